"""What a run waits for: every open wait, since when, and what ends it at the latest."""

from __future__ import annotations

from typing import Literal

import msgspec

from rollwright.runner.state import AskId, AskState, LiveAsk

What = Literal["prompt", "tokens", "environment", "grade", "abort", "next step", "learner"]

_KINDS: dict[str, What] = {"reset": "prompt", "tokens": "tokens", "env": "environment", "score": "grade"}


class Wait(msgspec.Struct, frozen=True):
    """One kind of answer that a step waits for.

    Args:
        step: the learner step.
        phase: the step's phase: ``"rollouts"``, ``"closing"`` or ``"learning"``.
        what: a prompt, tokens, an environment, a grade, the answer to an abort, the next step (sampling
            that was carried over: nobody works on it), or the learner.
        since: seconds of the run at which the oldest of the asks was given out.
        deadline: seconds of the run at which the wait is given up; None where no timer is set.
        timer: the name of that timer, empty without one.
        asks: the asks, in the order in which they were made; empty for the learner.
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
    if live.state is AskState.ABORTING:
        return "abort"
    return "next step" if live.state is AskState.WAITING else _KINDS[live.kind]
