"""Episodes for the checks: turns to try, and what a task answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rollwright.envs.answers import as_observation
from rollwright.envs.api import Observation, Turn
from rollwright.envs.signature import signature
from rollwright.errors import DataError, EnvironmentFault

_ODD = ("", " ", "x", "0", "1", "yes")  # turns that most environments do not expect


@dataclass(slots=True)
class Episode:
    """What was played from a state on: one more state and mark than there are turns."""

    states: list[Any]
    marks: list[str]
    turns: list[Turn] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return bool(self.seen) and (self.seen[-1].terminated or self.seen[-1].truncated)

    @property
    def texts(self) -> list[str]:
        return [seen.text for seen in self.seen]


def mark_of(task: Any, state: Any) -> str:
    """Return the task's own signature of a state, or that of its content."""
    own = getattr(task, "signature", None)
    return str(own(state)) if callable(own) else signature(state)


def play(task: Any, state: Any, turns: Sequence[Turn]) -> Episode:
    """Play ``turns`` from ``state`` on, at most until the episode is over.

    Raises:
        EnvironmentFault: the environment failed, or answered with what it must not.
    """
    episode = Episode([state], [mark_of(task, state)])
    for turn in turns:
        if episode.is_over:
            break
        state, seen = task.step(episode.states[-1], turn)
        as_observation("the task", seen)
        episode.states.append(state)
        episode.marks.append(mark_of(task, state))
        episode.turns.append(turn)
        episode.seen.append(seen)
    return episode


def draw_turns(task: Any, task_id: str, rng: Any, num: int) -> list[Turn]:
    """Return turns to try: the task's own, or a demonstrator's, with odd ones among them."""
    turns: list[Turn] = []
    if getattr(task, "takes_tokens", False):
        turns = [tuple(int(k) for k in rng.integers(0, 256, int(rng.integers(1, 6)))) for _ in range(num)]
    sample = getattr(task, "sample_turn", None)
    if callable(sample) and sample(rng) is not None:
        return [sample(rng) for _ in range(num)]
    if turns:
        return turns
    while len(turns) < num:
        noise = float(rng.choice([0.0, 0.3, 1.0]))
        try:
            shown = list(task.demonstrate(task_id, rng, noise))[::2]
        except (DataError, EnvironmentFault, NotImplementedError):
            shown = []
        turns += shown or [_ODD[int(rng.integers(len(_ODD)))]]
    odd = [_ODD[int(rng.integers(len(_ODD)))] if rng.random() < 0.15 else turn for turn in turns]
    return odd[:num]
