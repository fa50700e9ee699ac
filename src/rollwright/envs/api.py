"""What an environment is, and what may be missing from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from rollwright.tasks.api import Observation

__all__ = ["Environment", "Forking", "Observation", "Reports", "Restores", "Turn"]

Turn = str | tuple[int, ...]  # the text of one answer, or its tokens where `takes_tokens`
Forking = Literal["copy", "own", "replay"]


@runtime_checkable
class Environment(Protocol):
    """An episode that changes as it is played. `rollwright.envs.EnvTask` makes a task of it.

    Beside these two methods an environment may have

    - ``snapshot() -> state`` and ``restore(state)``, see `Restores`;
    - ``signature() -> str``, see `Reports`;
    - ``forking``: how a branch gets its state. ``"copy"``: ``copy.deepcopy`` is a whole copy. ``"own"``:
      by ``snapshot`` and ``restore``. ``"replay"``, what holds without it: the episode's turns are
      given to a new environment, which must answer as the first did;
    - ``takes_tokens = True``: a turn is a tuple of token ids, with its end token, not a text;
    - ``close()``: give back what it holds. Copies and new ones are closed each by itself;
    - ``sample_turn(rng) -> turn``: a turn to try, for `rollwright check-env`;
    - ``max_turns``, ``max_tokens``, ``context``, ``stop_strings``: as of `rollwright.tasks.api.Task`.
    """

    def reset(self, seed: int) -> str:
        """Begin the episode that ``seed`` names, and return the prompt."""
        ...

    def step(self, turn: Any) -> Observation:
        """Take one turn. The observation holds new text only, and says how the episode stands.

        ``terminated``: the episode is over by its own rules. ``truncated``: it was cut, by a limit.
        ``reward``: of this turn; None where there is none.
        """
        ...


@runtime_checkable
class Restores(Protocol):
    """An environment that gives its state away and takes it back."""

    def snapshot(self) -> Any:
        """Return the state; what is done to the environment afterwards must not change it."""
        ...

    def restore(self, state: Any) -> None:
        """Go on from ``state``, also where it is another environment's of the same kind."""
        ...


@runtime_checkable
class Reports(Protocol):
    """An environment that says when two of its states are the same."""

    def signature(self) -> str:
        """Return a name for the state: the same for two states from which all goes on in the same way.

        What cannot matter any more, such as the way here, is best left out: methods that compare the
        actions taken in one state (GiGPO, RTMC) then find more of them.
        """
        ...


Make = Callable[[], Environment]
Turns = Sequence[Turn]
