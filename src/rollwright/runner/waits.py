"""What a run waits for: every open wait, since when, and what ends it at the latest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from rollwright.runner.state import AskId, AskState, LiveAsk, Phase

if TYPE_CHECKING:
    from rollwright.runner.steps import Steps

What = Literal[
    "prompt",
    "tokens",
    "environment",
    "grade",
    "abort",
    "place",
    "retry",
    "next step",
    "learner",
    "older step",
]

_KINDS: dict[str, What] = {"reset": "prompt", "tokens": "tokens", "env": "environment", "score": "grade"}
_STATES: dict[AskState, What] = {
    AskState.ABORTING: "abort",
    AskState.QUEUED: "place",
    AskState.PAUSED: "retry",
    AskState.WAITING: "next step",
}


class Wait(msgspec.Struct, frozen=True):
    """One kind of answer that a step waits for.

    Args:
        step: the learner step.
        phase: the step's phase: ``"rollouts"``, ``"closing"``, ``"ready"`` or ``"learning"``.
        what: a prompt, tokens, an environment, a grade, the answer to an abort, a place among those that
            fly, the time of a retry, the next step (sampling that was carried over: nobody works on it),
            the learner, or (ready) an older step that is trained first.
        since: seconds of the run at which the oldest of the asks was given out, or the phase began.
        deadline: seconds of the run at which the wait ends at the latest; None where no timer is set.
        timer: the name of that timer (the first to fire of several), empty without one.
        asks: the asks, in the order in which they were made; empty for the learner and an older step.
    """

    step: int
    phase: str
    what: What
    since: float
    deadline: float | None
    timer: str
    asks: tuple[AskId, ...] = ()


def what_of(live: LiveAsk) -> What:
    """Return what a live ask waits for."""
    return _STATES.get(live.state) or _KINDS[live.kind]


def list_waits(runner: Steps) -> list[Wait]:
    """Return every open wait of a runner, older steps first."""
    if runner.is_done or not runner.is_started:
        return []
    found: dict[tuple[int, What], list[LiveAsk]] = {}
    for live in runner.asks.values():
        step = runner.step_of(runner.groups[live.group]) or runner.oldest
        if step is not None:
            found.setdefault((step.number, what_of(live)), []).append(live)
    waits = [_of_asks(runner, number, what, lives) for (number, what), lives in found.items()]
    for step in runner.steps.values():
        if step.phase is Phase.LEARNING:
            timer = f"learn:{step.number}"
            due = runner.due.get(timer)
            waits.append(Wait(step.number, step.phase.value, "learner", step.since, due, timer))
        elif step.phase is Phase.READY:
            waits.append(Wait(step.number, step.phase.value, "older step", step.since, None, ""))
    return sorted(waits, key=lambda wait: wait.step)


def _of_asks(runner: Steps, number: int, what: What, lives: list[LiveAsk]) -> Wait:
    since = min(live.since for live in lives)
    timer = f"rollouts:{number}"
    if what == "retry":
        timer = min((f"retry:{live.id}" for live in lives), key=lambda name: runner.due.get(name, math.inf))
    elif what == "next step" or timer not in runner.timers:
        timer = ""
    asks = tuple(live.id for live in lives)
    return Wait(number, runner.steps[number].phase.value, what, since, runner.due.get(timer), timer, asks)
