"""How the state of an environment that changes is kept, so that any point of an episode can be gone on from.

A keeper makes of it what a task needs: a step that takes one state and returns the next, and leaves the
first as it was. None of them is asked by two threads about one environment: who takes one, has it alone.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Protocol

from rollwright.envs.answers import answer, checked_text
from rollwright.envs.api import Environment, Make, Observation, Reports, Turn
from rollwright.envs.signature import signature
from rollwright.errors import EnvironmentFault

_NUM_LIVE = 256  # environments that wait for their episode's next turn, or starts that are kept


@dataclass(frozen=True, slots=True)
class Point:
    """A point of an episode: who plays it, and what was done and said so far.

    ``kept`` is what the keeper needs to go on; two points are equal if the same was done and said.
    """

    seed: int
    turns: tuple[Turn, ...] = ()
    texts: tuple[str, ...] = ()
    kept: Any = field(default=None, compare=False, repr=False)
    mark: str | None = field(default=None, compare=False, repr=False)

    def then(self, turn: Turn, said: str, kept: Any = None, mark: str | None = None) -> Point:
        return Point(self.seed, (*self.turns, turn), (*self.texts, said), kept, mark)


class Keeper(Protocol):
    """Plays single turns from any point."""

    def prompt(self, seed: int) -> str: ...
    def step(self, point: Point, turn: Turn) -> tuple[Point, Observation]: ...
    def signature(self, point: Point) -> str: ...
    def close(self) -> None: ...


class _Starts:
    """The environment of each seed right after its reset, and its prompt; the last few are kept."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self._lock = threading.Lock()
        self._found: OrderedDict[int, tuple[Any, str]] = OrderedDict()

    def get(self, seed: int, freeze: Any) -> tuple[Any, str]:
        with self._lock:
            if seed in self._found:
                self._found.move_to_end(seed)
                return self._found[seed]
        env = self.make()
        text = checked_text(env.reset(seed), "reset")
        found = (freeze(env), text)
        with self._lock:
            self._found[seed] = found
            if len(self._found) > _NUM_LIVE:
                self._found.popitem(last=False)
        return found


class Copies:
    """Keeps a deep copy of the environment at each point."""

    def __init__(self, make: Make) -> None:
        self._starts = _Starts(make)

    def prompt(self, seed: int) -> str:
        return self._starts.get(seed, lambda env: env)[1]

    def _env(self, point: Point) -> Environment:
        return self._starts.get(point.seed, lambda env: env)[0] if point.kept is None else point.kept

    def step(self, point: Point, turn: Turn) -> tuple[Point, Observation]:
        env = copy.deepcopy(self._env(point))
        seen = answer(env, turn)
        return point.then(turn, said_by(seen), env), seen

    def signature(self, point: Point) -> str:
        return signature_of(self._env(point))

    def close(self) -> None:
        """Copies hold nothing but memory."""


class Snapshots:
    """Keeps what the environment's own ``snapshot`` returns."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self._starts = _Starts(make)

    def _freeze(self, env: Any) -> Any:
        state = env.snapshot()
        close(env)
        return state

    def prompt(self, seed: int) -> str:
        return self._starts.get(seed, self._freeze)[1]

    def _at(self, point: Point) -> Any:
        env: Any = self.make()
        start = self._starts.get(point.seed, self._freeze)[0] if point.kept is None else point.kept
        env.restore(start)
        return env

    def step(self, point: Point, turn: Turn) -> tuple[Point, Observation]:
        env = self._at(point)
        try:
            seen = answer(env, turn)
            return point.then(turn, said_by(seen), env.snapshot()), seen
        finally:
            close(env)

    def signature(self, point: Point) -> str:
        env = self._at(point)
        try:
            return signature_of(env)
        finally:
            close(env)

    def close(self) -> None:
        """Nothing is left open between two turns."""


class Replays:
    """Keeps the turns, and gives them again to a new environment where the episode has branched.

    The environment that played the last turn waits for the next one, so an episode without branches is
    played once.
    """

    def __init__(self, make: Make) -> None:
        self.make = make
        self._lock = threading.Lock()
        self._live: OrderedDict[tuple[int, tuple[Turn, ...]], Environment] = OrderedDict()
        self._prompts: OrderedDict[int, str] = OrderedDict()

    def prompt(self, seed: int) -> str:
        with self._lock:
            if seed in self._prompts:
                return self._prompts[seed]
        env = self._new(seed)
        self._put(seed, (), env)
        return self._prompts[seed]

    def step(self, point: Point, turn: Turn) -> tuple[Point, Observation]:
        env = self._take(point)
        try:
            seen = answer(env, turn)
            mark = env.signature() if isinstance(env, Reports) else None
        except BaseException:
            close(env)
            raise
        after = point.then(turn, said_by(seen), None, mark)
        if seen.terminated or seen.truncated:
            close(env)
        else:
            self._put(after.seed, after.turns, env)
        return after, seen

    def signature(self, point: Point) -> str:
        if point.mark is not None:
            return point.mark
        if point.turns:
            return signature((point.seed, point.turns))
        env = self._take(point)
        mark = env.signature() if isinstance(env, Reports) else signature((point.seed, ()))
        self._put(point.seed, (), env)
        return mark

    def close(self) -> None:
        with self._lock:
            envs = list(self._live.values())
            self._live.clear()
        for env in envs:
            close(env)

    def _new(self, seed: int) -> Environment:
        env = self.make()
        try:
            text = checked_text(env.reset(seed), "reset")
        except BaseException:
            close(env)
            raise
        with self._lock:
            known = self._prompts.setdefault(seed, text)
            if len(self._prompts) > 16 * _NUM_LIVE:
                self._prompts.popitem(last=False)
        if known != text:
            close(env)
            raise EnvironmentFault(
                f"seed {seed} gave the prompt {known[:60]!r} and then {text[:60]!r}: it cannot be replayed;"
                " make the environment depend on its seed alone"
            )
        return env

    def _take(self, point: Point) -> Environment:
        with self._lock:
            env = self._live.pop((point.seed, point.turns), None)
        return self._replay(point) if env is None else env

    def _replay(self, point: Point) -> Environment:
        env = self._new(point.seed)
        try:
            for number, (turn, text) in enumerate(zip(point.turns, point.texts, strict=True)):
                again = said_by(answer(env, turn))
                if again != text:
                    raise EnvironmentFault(
                        f"turn {number} of seed {point.seed} was answered by {text[:60]!r} and, when it was"
                        f" replayed, by {again[:60]!r}: the environment depends on more than its seed and"
                        " turns, so its episodes cannot branch"
                    )
        except BaseException:
            close(env)
            raise
        return env

    def _put(self, seed: int, turns: tuple[Turn, ...], env: Environment) -> None:
        with self._lock:
            old = [self._live.pop((seed, turns), None)]
            self._live[seed, turns] = env
            while len(self._live) > _NUM_LIVE:
                old.append(self._live.popitem(last=False)[1])
        for other in old:
            if other is not None:
                close(other)


KEEPERS: dict[str, type[Copies] | type[Snapshots] | type[Replays]] = {
    "copy": Copies,
    "own": Snapshots,
    "replay": Replays,
}


def signature_of(env: Any) -> str:
    """Return the environment's own signature, or that of its snapshot, or of everything in it."""
    if isinstance(env, Reports):
        return str(env.signature())
    return signature(env.snapshot() if hasattr(env, "snapshot") else vars(env))


def said_by(seen: Observation) -> str:
    """Return what a replay must say again."""
    return seen.text if seen.tokens is None else f"{seen.text}{seen.tokens}"


def close(env: Any) -> None:
    """Let an environment give back what it holds."""
    end = getattr(env, "close", None)
    if callable(end):
        end()
