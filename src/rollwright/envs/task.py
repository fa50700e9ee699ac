"""An environment as a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwright.envs.api import Environment, Make, Observation, Restores, Turn
from rollwright.envs.keepers import KEEPERS, Keeper, Point, close
from rollwright.envs.signature import signature
from rollwright.errors import ConfigError, DataError, EnvironmentFault
from rollwright.grade.verdict import Verdict
from rollwright.tasks._content import Ids, parse_id
from rollwright.tree import TaskId

_LIMITS: Mapping[str, Any] = {"max_turns": 16, "max_tokens": 128, "context": 4096, "stop_strings": ()}

OPTIONS = (*_LIMITS, "num_train", "num_test", "success", "forking")


@dataclass(frozen=True, slots=True)
class State:
    """Where an episode stands. ``total`` is the sum of its rewards, None while there was none."""

    point: Point
    total: float | None = None
    terminated: bool = False
    truncated: bool = False

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated


class EnvTask:
    """A task whose instances are an environment's seeds. See `env_task`."""

    grader_version = "environment/1"

    def __init__(
        self,
        name: str,
        make: Make,
        *,
        num_train: int = 20000,
        num_test: int = 1000,
        success: float = 1.0,
        forking: str | None = None,
        **limits: Any,
    ) -> None:
        env = make()
        if not isinstance(env, Environment):
            raise ConfigError(
                f"{name} makes {type(env).__name__}; expected an environment: reset(seed) -> text and"
                " step(turn) -> Observation"
            )
        close(env)
        self.name, self.make = name, make
        self.num_train, self.num_test, self.success = num_train, num_test, success
        unknown = sorted(set(limits) - set(_LIMITS))
        if unknown:
            raise ConfigError(f"{name} has no setting {unknown[0]!r}; known are {', '.join(_LIMITS)}")
        for limit, default in _LIMITS.items():
            setattr(self, limit, limits.get(limit, getattr(env, limit, default)))
        self.takes_tokens = bool(getattr(env, "takes_tokens", False))
        self.tools = tuple(getattr(env, "tools", ()))
        self.tool_format: str | None = getattr(env, "tool_format", None)
        self.forking = forking or getattr(env, "forking", "replay")
        self._keeper: Keeper = _keeper(name, self.forking, env, make)
        self._sample: Callable[[Any], Turn] | None = getattr(env, "sample_turn", None)

    max_turns: int
    max_tokens: int
    context: int
    stop_strings: tuple[str, ...]

    def num_instances(self, split: str) -> int:
        return {"train": self.num_train, "test": self.num_test}.get(split, 0)

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def seed(self, task_id: TaskId) -> int:
        """Return the environment's seed of an id: even numbers are for training, odd ones held out."""
        split, number = parse_id(self.name, task_id, self.num_instances)
        return 2 * number + (split == "test")

    def prompt(self, task_id: TaskId) -> str:
        return self._keeper.prompt(self.seed(task_id))

    def reset(self, task_id: TaskId) -> State:
        return State(Point(self.seed(task_id)))

    def step(self, state: State, text: Turn) -> tuple[State, Observation]:
        """Take one turn from ``state``, which stays as it is.

        Raises:
            EnvironmentFault: the episode is over, or the environment's answer is not what it must be.
        """
        if state.is_over:
            raise EnvironmentFault(f"{self.name}: the episode is over; it takes no further turn")
        point, seen = self._keeper.step(state.point, text)
        total = state.total if seen.reward is None else (state.total or 0.0) + seen.reward
        return State(point, total, seen.terminated, seen.truncated), seen

    def signature(self, state: State) -> str:
        """Return a name for where the episode stands, the same for equal states."""
        return signature((self._keeper.signature(state.point), state.terminated, state.truncated))

    def grade(self, task_id: TaskId, state: State, turns: Sequence[Turn], truncated: bool) -> Verdict:
        """Score an episode by the sum of its rewards: right from ``success`` on.

        An episode without any reward is not scored.
        """
        if state.total is None:
            return Verdict(
                None, "not_scored", None, "the environment gave no reward", grader=self.grader_version
            )
        is_right = state.total >= self.success
        status = "right" if is_right else "wrong" if state.terminated else "truncated"
        return Verdict(state.total, status, None, f"after {len(turns)} turns", grader=self.grader_version)

    def sample_turn(self, rng: Any) -> Turn | None:
        """Return a turn to try, where the environment offers some."""
        return None if self._sample is None else self._sample(rng)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Play an episode of the environment's own turns, whatever the noise: nobody knows a solver.

        Raises:
            DataError: the environment has no ``sample_turn``.
        """
        if self._sample is None:
            raise DataError(
                f"{self.name} has nobody to demonstrate it; give its environment sample_turn(rng)"
            )
        state, episode = self.reset(task_id), []
        while not state.is_over and len(episode) < 2 * self.max_turns:
            turn = self._sample(rng)
            state, seen = self.step(state, turn)
            episode += [str(turn), seen.text]
        return episode

    def close(self) -> None:
        """Close the environments that wait for a next turn."""
        self._keeper.close()


def env_task(make: Make, name: str | None = None, **options: Any) -> EnvTask:
    """Make a task of an environment.

    Args:
        make: makes one, for example the class; called for every episode, and for branches.
        name: of the task; the environment's ``name``, or its class's without it.
        num_train, num_test: how many instances each split offers. Instance k of train is seed 2k, of test
            seed 2k + 1.
        success: an episode whose rewards add up to at least this is right.
        forking: how branches get their state, see `Environment`; the environment's own word without it.
        max_turns, max_tokens, context, stop_strings: the environment's own without them.

    Raises:
        ConfigError: what is made is no environment, or lacks what its ``forking`` needs.
    """
    given = name or getattr(make, "name", None) or getattr(make, "__name__", "environment").lower()
    return EnvTask(given, make, **options)


def _keeper(name: str, forking: str, env: Environment, make: Make) -> Keeper:
    if forking not in KEEPERS:
        raise ConfigError(f"{name}: forking is {forking!r}; expected one of {', '.join(KEEPERS)}")
    if forking == "own" and not isinstance(env, Restores):
        raise ConfigError(
            f"{name}: forking 'own' needs snapshot() and restore(state); {type(env).__name__} lacks"
        )
    return KEEPERS[forking](make)
