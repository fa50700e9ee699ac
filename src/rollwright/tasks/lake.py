"""Lake: text FrozenLake on random maps, one move a turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rollwright.envs.signature import signature
from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.rng import generator
from rollwright.tasks._content import Ids, draw, parse_id
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

_MOVES = {"L": (0, -1), "D": (1, 0), "R": (0, 1), "U": (-1, 0)}
_TURNED = {"L": "UD", "R": "UD", "U": "LR", "D": "LR"}
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class State:
    """Where the walker stands. ``moves`` counts turns, so that slips depend on nothing else."""

    task_id: TaskId
    rows: tuple[str, ...]
    place: Place = (0, 0)
    moves: int = 0

    @property
    def tile(self) -> str:
        return self.rows[self.place[0]][self.place[1]]


def shortest(rows: tuple[str, ...]) -> dict[Place, int]:
    """Return the number of moves to the goal for every place that can reach it without a hole."""
    size = len(rows)
    goal = (size - 1, size - 1)
    place_to_moves, queue = {goal: 0}, deque([goal])
    while queue:
        at = queue.popleft()
        for move in _MOVES:
            to = moved(at, move, size)
            if to not in place_to_moves and rows[to[0]][to[1]] != "H":
                place_to_moves[to] = place_to_moves[at] + 1
                queue.append(to)
    return place_to_moves


def moved(place: Place, move: str, size: int) -> Place:
    """Return the place after one move; the edge holds the walker back."""
    down, right = _MOVES[move]
    return min(max(place[0] + down, 0), size - 1), min(max(place[1] + right, 0), size - 1)


@dataclass(frozen=True, slots=True)
class Lake:
    """See `lake`."""

    size: int
    holes: float
    slip: float
    max_turns: int
    num_train: int
    num_test: int
    name: str = field(default="lake", init=False)
    grader_version: str = field(default="1", init=False)
    max_tokens: int = field(default=4, init=False)
    stop_strings: tuple[str, ...] = field(default=("\n",), init=False)
    recipe: Recipe = field(
        default=Recipe(noise=0.3, steps=800, clean_share=0.5, learning_rate=3e-3), init=False
    )

    def __post_init__(self) -> None:
        if not 2 <= self.size <= 9 or not 0 <= self.holes < 1 or not 0 <= self.slip < 1:
            raise ConfigError(
                f"size={self.size} must lie in 2..9, holes={self.holes} and slip={self.slip} in [0, 1)"
            )

    @property
    def context(self) -> int:
        return self.size * (self.size + 1) + 4 + self.max_turns * (self.max_tokens + 3)

    def num_instances(self, split: str) -> int:
        return {"train": self.num_train, "test": self.num_test}.get(split, 0)

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def draw_map(self, rng: np.random.Generator) -> tuple[str, ...]:
        while True:
            tiles = np.where(rng.random((self.size, self.size)) < self.holes, "H", "F")
            tiles[0, 0], tiles[-1, -1] = "S", "G"
            rows = tuple("".join(row) for row in tiles)
            if (0, 0) in shortest(rows):
                return rows

    def rows(self, task_id: TaskId) -> tuple[str, ...]:
        """Return the map of an id: S start, F frozen, H hole, G goal; the goal can be reached."""
        return _instance(self, task_id)

    def prompt(self, task_id: TaskId) -> str:
        return "\n".join(self.rows(task_id)) + "\na1\n"

    def reset(self, task_id: TaskId) -> State:
        return State(task_id, self.rows(task_id))

    def step(self, state: State, text: str) -> tuple[State, Observation]:
        """Move by the turn's letter; the observation is the new place, for example ``b3``.

        A turn that is not one of L, D, R, U keeps the place and is answered by ``?``.

        Raises:
            EnvironmentFault: the walk is over.
        """
        if state.tile in "GH":
            raise EnvironmentFault(f"{state.task_id} is over, on {state.tile}; it takes no further step")
        move = text.strip()
        after = replace(state, moves=state.moves + 1)
        if move not in _MOVES:
            return after, Observation("?\n")
        if self.slip:
            rng = generator(0, state.task_id, "slip", state.moves)
            move = _TURNED[move][int(rng.integers(2))] if rng.random() < self.slip else move
        after = replace(after, place=moved(state.place, move, self.size))
        over = after.tile in "GH"
        return after, Observation(self.place_name(after.place) + "\n", terminated=over)

    def signature(self, state: State) -> str:
        """Return the same for the same place on the same map: the way there matters on slippery ice only."""
        slips = (state.task_id, state.moves) if self.slip else None
        return signature((state.rows, state.place, slips))

    @staticmethod
    def place_name(place: Place) -> str:
        """Return the row as a letter and the column as a number: (0, 0) is ``a1``."""
        return f"{'abcdefghi'[place[0]]}{place[1] + 1}"

    def grade(self, task_id: TaskId, state: State, turns: Sequence[str], truncated: bool) -> Verdict:
        """Right on the goal, wrong in a hole, truncated where the turns ran out."""
        if state.tile == "G":
            return Verdict(1.0, "right", self.place_name(state.place))
        if state.tile == "H":
            return Verdict(0.0, "wrong", self.place_name(state.place), "fell into a hole")
        if any(turn.strip() in _MOVES for turn in turns):
            return Verdict(0.0, "truncated", self.place_name(state.place), "did not reach the goal")
        return Verdict(0.0, "no_answer", None, "no turn was a move")

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Walk a shortest way, but with probability ``noise`` a turn move at random."""
        state, episode = self.reset(task_id), []
        place_to_moves = shortest(state.rows)
        for _ in range(self.max_turns):
            ways = {move: moved(state.place, move, self.size) for move in _MOVES}
            best = min(place_to_moves.get(to, 10**6) for to in ways.values())
            good = [move for move, to in ways.items() if place_to_moves.get(to, 10**6) == best]
            options = list(_MOVES) if rng.random() < noise else good
            turn = options[int(rng.integers(len(options)))] + "\n"
            state, seen = self.step(state, turn)
            episode += [turn, seen.text]
            if seen.terminated:
                break
        return episode


@lru_cache(maxsize=4096)
def _instance(task: Lake, task_id: TaskId) -> tuple[str, ...]:
    split, _ = parse_id(task.name, task_id, task.num_instances)
    return draw(task_id, split, task.draw_map, "/".join)


def lake(
    *,
    size: int = 4,
    holes: float = 0.3,
    slip: float = 0.0,
    max_turns: int = 14,
    num_train: int = 20000,
    num_test: int = 1000,
) -> Lake:
    """Walk over a frozen lake from S to G without falling into a hole H, one move a turn.

    Args:
        size: rows and columns of the map.
        holes: share of tiles that are holes.
        slip: probability that a move goes to the side, as a function of the id and the turn's number.
        max_turns: sampled turns in an episode.
        num_train, num_test: how many instances each split offers.
    """
    return Lake(
        size=size,
        holes=holes,
        slip=slip,
        max_turns=max_turns,
        num_train=num_train,
        num_test=num_test,
    )
