"""Remote calls that are out: whom their answers concern, and when each is given up."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from rollwright.errors import EngineError, GraderError, LawBroken, LearnerError, RollwrightError
from rollwright.events import AnyEvent

Events = Iterable[AnyEvent]
Ref = Any  # ray.ObjectRef: stands for an answer that is on its way
FOREVER = math.inf
HOW_TO_GO_ON = "Everything acknowledged is kept: remove the cause, then resume the run"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Overdue(Exception):
    """A call was not answered in its time."""


@dataclass(slots=True)
class Call:
    """One call: what to do with its answer or with the error instead of one."""

    member: str
    done: Callable[[Any], Events]
    failed: Callable[[Exception], Events]
    due: float


class Calls:
    """All calls of a driver.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._calls: dict[Ref, Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(
        self,
        ref: Ref,
        member: str,
        done: Callable[[Any], Events],
        failed: Callable[[Exception], Events],
        seconds: float = FOREVER,
    ) -> None:
        """Wait for a call from now on, so many seconds at most."""
        self._calls[ref] = Call(member, done, failed, self.clock() + seconds)

    def drop(self, member: str) -> None:
        """Forget the calls to a member that is gone."""
        self._calls = {ref: call for ref, call in self._calls.items() if call.member != member}

    def wait(self, seconds: float) -> list[AnyEvent]:
        """Wait until some call is answered or overdue, or the time is over; return what that gave."""
        if not self._calls:
            return []
        due = min(call.due for call in self._calls.values()) - self.clock()
        timeout = max(0.0, min(seconds, due))
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=timeout)
        if ready:
            ready, _ = ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        return [*self._answered(ready), *self._overdue()]

    def _answered(self, ready: list[Ref]) -> Iterator[AnyEvent]:
        for ref in ready:
            call = self._calls.pop(ref, None)
            if call is None:
                continue  # its member was given up by what came just before
            try:
                value = ray.get(ref)
            except RayError as error:
                yield from call.failed(error)
            else:
                yield from call.done(value)

    def _overdue(self) -> Iterator[AnyEvent]:
        now = self.clock()
        for ref, call in [item for item in self._calls.items() if item[1].due <= now]:
            if self._calls.pop(ref, None) is not None:
                yield from call.failed(Overdue(f"{call.member} did not answer in time"))


def fetch(ref: Ref, seconds: float, what: str) -> Any:
    """Wait for one answer.

    Raises:
        Overdue: it did not come in time.
        RayError: the actor, or what it was given, is gone.
    """
    try:
        return ray.get(ref, timeout=seconds)
    except GetTimeoutError as error:
        raise Overdue(f"{what} took more than {seconds} s") from error


def cause_of(error: Exception) -> Exception:
    """Return what an actor's code raised, or the error itself where the actor or its machine is gone."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(error, RayTaskError) and isinstance(cause, Exception) else error


def reason_of(error: Exception) -> str:
    """Return an error in one line."""
    cause = cause_of(error)
    lines = [line.strip() for line in _COLOURS.sub("", str(cause)).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    last = f": {lines[-1]}" if len(lines) > 1 and isinstance(cause, RayError) else ""
    return f"{type(cause).__name__}: {first}{last}"


def check_code(error: Exception, who: str, has_begun: bool = False) -> None:
    """Tell errors of the code in an actor from the end of an actor.

    Code that failed once would fail again in another actor, so its error is raised here; that of an actor
    which had begun well only if it says that a law is broken, for another one may do better.

    Raises:
        RollwrightError: the code's own error, or one that says what it was.
    """
    if not isinstance(error, RayTaskError):
        return
    cause = cause_of(error)
    if has_begun and not isinstance(cause, LawBroken):
        return
    if isinstance(cause, RollwrightError):
        raise cause
    kind = {"learner": LearnerError, "grader": GraderError}.get(who, EngineError)
    raise kind(f"the {who} failed: {reason_of(error)}. {HOW_TO_GO_ON}") from cause
