"""What a task is: instances with stable ids, an environment of immutable states, and a grader.

A task's environment is a pure function of its state: ``step(state, text)`` returns the next state,
so a branch needs no copy and a resumed run replays the turns of a path to get its state back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollwright.grade.verdict import Verdict
from rollwright.tree import TaskId

__all__ = ["Observation", "Record", "Task", "Verdict"]


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment says after a turn. ``text`` is the new text only.

    ``terminated``: the environment says that the episode is over. ``truncated``: it cut it. ``tokens``: what
    the model reads instead of the text, for environments that speak in tokens.
    """

    text: str
    terminated: bool = False
    truncated: bool = False
    reward: float | None = None
    tokens: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What was sampled, exactly. A task with ``wants_record = True`` is given it as ``grade(..., record=)``.

    ``ids``: the sampled tokens of all turns. ``version``: the newest policy that sampled any, -1 for none.
    """

    ids: tuple[int, ...]
    version: int


class Task(Protocol):
    """A family of instances with one environment and one grader.

    A task with ``takes_tokens = True`` gets each turn as its tuple of token ids, end token included, not as
    text.

    Instance ids are ``"<task>/<split>/<number>"`` with split ``train`` or ``test``. An id always
    gives the same instance, and no instance is in both splits.
    """

    name: str
    grader_version: str
    max_turns: int  # sampled turns in a trajectory; 1 for a single answer
    max_tokens: int  # sampled tokens in one turn
    context: int  # steps of a whole path
    stop_strings: tuple[str, ...]  # end a turn, beside the end token

    def ids(self, split: str) -> Sequence[TaskId]: ...

    def prompt(self, task_id: TaskId) -> str:
        """Return the text of the root node."""
        ...

    def reset(self, task_id: TaskId) -> Any:
        """Return the first state, an immutable value."""
        ...

    def step(self, state: Any, text: str) -> tuple[Any, Observation]:
        """Give one sampled turn to the environment. Only called when ``max_turns > 1``.

        Raises:
            EnvironmentFault: the episode is over.
        """
        ...

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        """Score a finished trajectory from its sampled turns' texts and its last state."""
        ...

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Return an imperfect solver's episode: turn, observation, turn, ... (turns at even places)."""
        ...
