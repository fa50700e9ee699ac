"""One modelled decode worker: steps of equal length while its batch is the same, nothing per token."""

from __future__ import annotations

import heapq
from typing import Any

from rollwright.drive.virtual.content import Answer, Request
from rollwright.events import Sampled
from rollwright.tree import StopReason


class Live:
    """An ask that the engine works on.

    Attributes:
        answer: what it will have made in the end, known once it joined a batch.
        num_reported: tokens that were reported.
        joined: the worker's step count at which it had no token yet; None while it is in no batch.
        prefilled: tokens prefilled for it and not reported yet.
        since: when it was submitted, then when it got its slot (seconds).
        due: number of its entry in the worker's heap; older entries do not hold.
    """

    __slots__ = ("answer", "due", "joined", "num_reported", "prefilled", "request", "since", "worker")

    def __init__(self, request: Request, now: float) -> None:
        self.request, self.since = request, now
        self.answer: Answer | None = None
        self.worker: Worker | None = None
        self.joined: int | None = None
        self.num_reported = self.prefilled = 0
        self.due = -1

    def report(self, upto: int, now: float, version: int, stop: StopReason | None) -> Sampled:
        """Return the chunk of the tokens from the last reported one up to ``upto``."""
        command, first = self.request.command, self.num_reported
        columns: dict[str, Any] = {"tokens": (), "logprobs": ()}
        if upto > first:
            assert self.answer is not None
            columns = self.answer.columns(first, upto)
        prefilled, self.prefilled, self.num_reported = self.prefilled, 0, upto
        return Sampled(
            ask=command.ask,
            policy=command.policy,
            version=version,
            stop=stop,
            prefilled=prefilled,
            attempt=command.attempt,
            at=now,
            **columns,
        )


class Worker:
    """Continuous batching in closed form.

    Its step count stood at ``steps`` at the time ``anchor`` and since then grows by one every ``pace``
    seconds; before ``anchor`` it prefills. Sequences join and leave the batch at step boundaries only,
    when the worker is woken. What has to be reported lies in a heap by step count.

    Attributes:
        life: unique number, a new one after each failure.
        batch: sequences that are decoded.
        joining: sequences that have a slot and join at the next boundary.
        wake_at: when it will be woken; None while it has nothing to do.
        wakes: counts the wishes to be woken; only the last one holds.
        busy_since: start of its present work, None while it idles.
    """

    def __init__(self, index: int) -> None:
        self.index, self.life = index, index
        self.is_up = True
        self.batch: dict[str, Live] = {}
        self.joining: dict[str, Live] = {}
        self.steps, self.anchor, self.pace = 0, 0.0, 0.0
        self.wakes = self.num_failures = 0
        self.wake_at: float | None = None
        self.busy_since: float | None = None
        self.busy_seconds = 0.0
        self._due: list[tuple[int, int, Live]] = []
        self._num_due = 0

    @property
    def load(self) -> int:
        return len(self.batch) + len(self.joining)

    def steps_at(self, now: float) -> int:
        """Return the whole steps that were done by ``now``."""
        if self.busy_since is None or now <= self.anchor:
            return self.steps
        num = int((now - self.anchor) / self.pace)
        # Events are planned for anchor + num · pace; that product, not the quotient, says what is done.
        if self.anchor + (num + 1) * self.pace <= now:
            num += 1
        elif self.anchor + num * self.pace > now:
            num -= 1
        return self.steps + num

    def boundary(self, now: float) -> float:
        """Return the first step boundary at or after ``now``."""
        if self.busy_since is None or now <= self.anchor:
            return max(self.anchor, now)
        num = self.steps_at(now) - self.steps
        at = self.anchor + num * self.pace
        return at if at >= now else self.anchor + (num + 1) * self.pace

    def num_made(self, live: Live, now: float) -> int:
        """Return the tokens of a sequence that were made by ``now``."""
        if live.joined is None:
            return live.num_reported
        assert live.answer is not None
        return min(self.steps_at(now) - live.joined, live.answer.num)

    def plan_report(self, live: Live) -> None:
        """Note when the sequence reports next: after a chunk or at its end."""
        assert live.answer is not None and live.joined is not None
        num, chunk = live.answer.num, live.request.command.chunk
        if chunk:
            num = min(num, live.num_reported + chunk)
        live.due = self._num_due
        heapq.heappush(self._due, (live.joined + num, live.due, live))
        self._num_due += 1

    def take_due(self, now: float) -> list[Live]:
        """Move the anchor to ``now``, a boundary, and return the sequences that have to report."""
        self.steps, self.anchor = self.steps_at(now), now
        found = []
        while self._due and self._due[0][0] <= self.steps:
            _, number, live = heapq.heappop(self._due)
            if number == live.due:
                found.append(live)
        return found

    def next_report(self) -> float:
        """Return when the next sequence has to report, by the batch as it is now."""
        while self._due[0][1] != self._due[0][2].due:
            heapq.heappop(self._due)
        return self.anchor + (self._due[0][0] - self.steps) * self.pace

    def set_busy(self, is_busy: bool, now: float) -> None:
        """Note whether it works from now on."""
        if is_busy and self.busy_since is None:
            self.busy_since = now
        elif not is_busy and self.busy_since is not None:
            self.busy_seconds += now - self.busy_since
            self.busy_since = None

    def clear(self, now: float) -> list[Live]:
        """Forget everything, as a failure does, and return the sequences that it had."""
        lost = [*self.batch.values(), *self.joining.values()]
        self.batch.clear()
        self.joining.clear()
        self._due.clear()
        self.set_busy(False, now)
        self.wake_at, self.anchor = None, now
        self.wakes += 1
        return lost
