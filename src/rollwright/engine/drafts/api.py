"""What the engine asks of a drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rollwright.events import Submit

Tokens = NDArray[np.int64]
NO_TOKENS: Tokens = np.zeros(0, np.int64)


class Drafter(Protocol):
    """Guesses how sequences go on. A wrong guess costs time and nothing else.

    Asks are named as in `rollwright.events.Submit`.
    """

    name: str

    def begin(self, command: Submit, prefix: Tokens) -> None:
        """An ask was submitted, with the tokens before its first new one.

        The noise of its k-th new token is that of position ``command.start + k`` of ``command.stream``.
        """
        ...

    def extend(self, ask: str, tokens: Tokens) -> None:
        """It sampled these tokens."""
        ...

    def propose(self, asks: Sequence[str], most: Sequence[int]) -> list[Tokens]:
        """Return for each ask a guess of its next tokens, at most so many; none where there is none."""
        ...

    def end(self, ask: str) -> None:
        """It ended or was aborted."""
        ...
