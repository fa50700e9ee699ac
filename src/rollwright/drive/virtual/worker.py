"""One modelled decode worker: nothing is done per token while its batch is the same."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

from rollwright.drive.placement import Job
from rollwright.drive.virtual.content import Answer, Request
from rollwright.drive.virtual.engine_model import EngineModel
from rollwright.drive.virtual.pace import Pace
from rollwright.events import Sampled
from rollwright.tree import GroupId, StopReason

# Of entries in the workers' heaps: unique over all of them, for a sequence may move to another worker.
_NUMBERS = itertools.count()


class Live:
    """An ask that the engine works on.

    Attributes:
        job: what the placement sees of it.
        answer: what it will have made in the end, known once it joined a batch.
        num_reported: tokens that were reported.
        joined: the worker's step count at which it had no token yet; None while it is in no batch.
        prefilled: tokens prefilled for it and not reported yet.
        since: when it was submitted, then when it got its slot (seconds).
        due: number of its entry in the worker's heap; older entries do not hold.
    """

    __slots__ = ("answer", "due", "job", "joined", "num_reported", "prefilled", "request", "since", "worker")

    def __init__(self, request: Request, job: Job, now: float) -> None:
        self.request, self.job, self.since = request, job, now
        self.answer: Answer | None = None
        self.worker: Worker | None = None
        self.joined: int | None = None
        self.num_reported = self.prefilled = 0
        self.due = -1

    @property
    def num_context(self) -> int:
        """Tokens before the next one that is not reported yet."""
        return self.request.command.start + self.num_reported

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

    Its step count stood at ``steps`` at the time ``anchor`` and since then grows as ``pace`` says; before
    ``anchor`` it prefills. Sequences join and leave the batch at step boundaries only, when the worker is
    woken. What has to be reported lies in a heap by step count.

    Attributes:
        index: its number.
        life: unique number, a new one whenever its cache is void.
        version: of its weights.
        is_up, is_lent: whether it runs, and whether it trains instead of decoding.
        batch: sequences that are decoded.
        joining: sequences that have a slot and join at the next boundary.
        wake_at: when it will be woken; None while it has nothing to do.
        wakes: counts the wishes to be woken; only the last one holds.
        busy_since: start of its present work, None while it idles.
        arithmetic_seconds: what the products of its tokens took, of those that were reported.
    """

    def __init__(self, index: int, model: EngineModel | None = None, version: int = 0) -> None:
        self.index, self.life, self.version = index, index, version
        self.model = model or EngineModel()
        self.is_up, self.is_lent = True, False
        self.batch: dict[str, Live] = {}
        self.joining: dict[str, Live] = {}
        self.steps, self.anchor, self.pace = 0, 0.0, Pace(1.0)
        self.wakes = self.num_failures = 0
        self.wake_at: float | None = None
        self.busy_since: float | None = None
        self.busy_seconds = self.arithmetic_seconds = 0.0
        self._due: list[tuple[int, int, Live]] = []
        self._base = 0  # of the batch: Σ (start − joined), so that its contexts are base + size · steps
        self._joining_tokens = self._shared_tokens = 0
        self._groups: dict[GroupId, int] = {}

    @property
    def load(self) -> int:
        return len(self.batch) + len(self.joining)

    # ------------------------------------------------------------ steps

    def steps_at(self, now: float) -> int:
        """Return the whole steps that were done by ``now``."""
        if self.busy_since is None or now <= self.anchor:
            return self.steps
        pace, anchor = self.pace, self.anchor
        num = pace.steps(now - anchor)
        # Events are planned for anchor + seconds(num); that sum, not its inverse, says what is done.
        while anchor + pace.seconds(num + 1) <= now:
            num += 1
        while num and anchor + pace.seconds(num) > now:
            num -= 1
        return self.steps + num

    def boundary(self, now: float) -> float:
        """Return the first step boundary at or after ``now``."""
        if self.busy_since is None or now <= self.anchor:
            return max(self.anchor, now)
        num = self.steps_at(now) - self.steps
        at = self.anchor + self.pace.seconds(num)
        return at if at >= now else self.anchor + self.pace.seconds(num + 1)

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
        live.due = next(_NUMBERS)
        heapq.heappush(self._due, (live.joined + num, live.due, live))

    def take_due(self, now: float) -> list[Live]:
        """Move the anchor to ``now``, a boundary, and return the sequences that have to report."""
        self.steps, self.anchor = self.steps_at(now), now
        found = []
        while self._due and self._due[0][0] <= self.steps:
            _, number, live = heapq.heappop(self._due)
            if number == live.due:
                found.append(live)
        return found

    def next_report(self, num_most: int | None = None) -> float:
        """Return when the next sequence has to report, by the batch as it is now, ``num_most`` steps on at
        the latest."""
        while self._due[0][1] != self._due[0][2].due:
            heapq.heappop(self._due)
        num = self._due[0][0] - self.steps
        return self.anchor + self.pace.seconds(num if num_most is None else min(num, num_most))

    # ------------------------------------------------------------ who is here

    def seat(self, live: Live) -> None:
        """Give a slot to a sequence; it joins the batch at the next boundary."""
        request = live.request
        self.joining[request.command.ask] = live
        self._joining_tokens += live.num_context
        group, num_root = request.command.group, request.path[0][1]
        others = self._groups.get(group, 0)
        self._groups[group] = others + 1
        self._shared_tokens += num_root if others else 0

    def join(self, live: Live) -> None:
        """Move a sequence that has a slot into the batch."""
        self._joining_tokens -= live.num_context
        live.joined = self.steps - live.num_reported
        self._base += live.request.command.start - live.joined
        self.batch[live.request.command.ask] = live

    def step_aside(self, live: Live) -> None:
        """Move a sequence out of the batch; it keeps its slot and joins again at the next boundary."""
        assert live.joined is not None
        ask = live.request.command.ask
        self.joining[ask] = self.batch.pop(ask)
        self._base -= live.request.command.start - live.joined
        self._joining_tokens += live.num_context
        live.joined, live.due = None, -1

    def leave(self, live: Live) -> bool:
        """Take a sequence out; return whether another one of its group is still here."""
        command = live.request.command
        if self.joining.pop(command.ask, None) is None:
            del self.batch[command.ask]
            assert live.joined is not None
            self._base -= command.start - live.joined
        else:
            self._joining_tokens -= live.num_context
        live.due = -1
        others = self._groups.pop(command.group) - 1
        if others:
            self._groups[command.group] = others
            self._shared_tokens -= live.request.path[0][1]
        return others > 0

    def has_group(self, group: GroupId) -> bool:
        """Whether a sequence of the group has a slot here."""
        return group in self._groups

    def num_read(self, steps: int) -> int:
        """Return the tokens of all contexts of the batch at a step count: what attention reads."""
        return self._base + len(self.batch) * steps

    def num_held(self, now: float) -> int:
        """Return the tokens that live sequences hold in memory, shared prompts counted once."""
        return self.num_read(self.steps_at(now)) + self._joining_tokens - self._shared_tokens

    # ------------------------------------------------------------ its course

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
        self._groups.clear()
        self._base = self._joining_tokens = self._shared_tokens = 0
        self.set_busy(False, now)
        self.wake_at, self.anchor = None, now
        self.wakes += 1
        return lost
