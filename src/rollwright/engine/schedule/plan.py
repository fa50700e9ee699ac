"""What the scheduler hands to the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.pages import Pages
from rollwright.engine.schedule.waiting import Seq


@dataclass(slots=True, eq=False)
class Plan:
    """What one forward pass computes: N tokens of M rows, grouped by row, rows ascending.

    Args:
        rows: rows that take part, [M].
        starts: position of each row's first token, [M].
        nums: tokens of each, [M].
        samples: whether the row's last token gives logits to sample from, [M].
        pages: where each token's key goes, [N].
        offsets: the place in that page, [N].
        preempted: sequences that lost their row for it; they wait again, with all tokens saved.
    """

    rows: NDArray[np.int32]
    starts: NDArray[np.int32]
    nums: NDArray[np.int32]
    samples: NDArray[np.bool_]
    pages: Pages
    offsets: Pages
    preempted: list[Seq] = field(default_factory=list)
