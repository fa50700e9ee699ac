"""Whether drafts pay, by the clock: seconds for a token with and without, at about this many rows.

It decides how fast tokens come, never which.
"""

from __future__ import annotations

from dataclasses import dataclass

_SMOOTHING = 0.2
_LOOK = 4  # drafted passes before a first judgement
_AGAIN = 32  # plain passes until a mode that lost is looked at again; doubles each time that it loses
_LONGEST = 1024


@dataclass(slots=True)
class _Rows:
    """What is known at one size of the batch (by powers of two): seconds a token, smoothed; what is next."""

    plain: float = 0.0
    drafted: float = 0.0
    num_drafted: int = 0
    until: int = 0
    pause: int = _AGAIN


class Switch:
    """Chooses between passes with and without drafts.

    Args:
        is_forced: drafts always, for tests and measurements.
    """

    def __init__(self, is_forced: bool = False) -> None:
        self.is_forced = is_forced
        self._size_to_rows: dict[int, _Rows] = {}

    def wants_drafts(self, num_rows: int) -> bool:
        """Return whether the next pass of so many rows should check drafts, where there are any."""
        rows = self._of(num_rows)
        if self.is_forced:
            return True
        if not rows.plain:
            return False  # nothing to compare with yet
        if rows.until:
            rows.until -= 1
            return False
        return True

    def is_paused(self, num_rows: int) -> bool:
        """Return whether drafts lost at this size, and are not looked at for a while."""
        return self._of(num_rows).until > 0

    def tell(self, num_rows: int, num_tokens: int, seconds: float, is_drafted: bool) -> None:
        """Learn what a pass cost, and the tokens that it brought."""
        rows, cost = self._of(num_rows), seconds / max(1, num_tokens)
        if not is_drafted:
            rows.plain = _smooth(rows.plain, cost)
            return
        rows.drafted = _smooth(rows.drafted, cost)
        rows.num_drafted += 1
        if rows.num_drafted % _LOOK == 0:
            if rows.drafted > rows.plain:
                rows.until, rows.pause = rows.pause, min(2 * rows.pause, _LONGEST)
                rows.drafted = 0.0
            else:
                rows.pause = _AGAIN

    def _of(self, num_rows: int) -> _Rows:
        return self._size_to_rows.setdefault(num_rows.bit_length(), _Rows())


def _smooth(old: float, new: float) -> float:
    return new if not old else old + _SMOOTHING * (new - old)
