"""What a detector says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["found", "clear", "cannot tell"]
Sure = Literal["certain", "likely", "hint"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One pathology: is it there, and why we think so.

    Args:
        status: ``"cannot tell"`` where the run lacks what the detector needs; `evidence` says what.
        evidence: one sentence with the numbers.
        sure: of what was found. ``"certain"``: counted, and above the limit by more than chance (95%);
            ``"likely"``: above the limit, or a trend with more than one cause; ``"hint"``: a rule of thumb.
        numbers: the figures by name.
        steps: first and last step that show it.
        examples: ids of a few groups, rollouts or tasks that show it, which the viewer opens.
    """

    status: Status
    evidence: str
    sure: Sure | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    steps: tuple[int, int] | None = None
    examples: tuple[str, ...] = ()


def cannot_tell(missing: str) -> Finding:
    return Finding("cannot tell", missing)
