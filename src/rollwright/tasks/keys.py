"""Keys: walk through rooms whose doors need keys, one move a turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.tasks._content import Ids, draw, parse_id
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

_MOVES = {"L": (0, -1), "D": (1, 0), "R": (0, 1), "U": (-1, 0)}
_KEYS, _DOORS = "xyz", "XYZ"
Rows = tuple[str, ...]
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class State:
    """Where the walker stands and the keys it holds, in the order of the alphabet. Doors need no state."""

    rows: Rows
    place: Place
    keys: str = ""

    @property
    def tile(self) -> str:
        return self.rows[self.place[0]][self.place[1]]

    @property
    def is_over(self) -> bool:
        return self.tile == "G"


def moved(state: State, move: str) -> State:
    """Return the state after one move. The edge, a wall, and a door without its key hold the walker back."""
    row, column = state.place[0] + _MOVES[move][0], state.place[1] + _MOVES[move][1]
    if not (0 <= row < len(state.rows) and 0 <= column < len(state.rows[0])):
        return state
    tile = state.rows[row][column]
    if tile == "#" or (tile in _DOORS and tile.lower() not in state.keys):
        return state
    keys = "".join(sorted({*state.keys, tile})) if tile in _KEYS else state.keys
    return replace(state, place=(row, column), keys=keys)


def start_of(rows: Rows) -> State:
    """Return the first state of a map."""
    return State(rows, next((r, row.index("S")) for r, row in enumerate(rows) if "S" in row))


@lru_cache(maxsize=4096)
def num_moves(rows: Rows) -> dict[State, int]:
    """Return the fewest moves to the goal for every state that a walk from S can come to, keys included."""
    first = start_of(rows)
    before: dict[State, list[State]] = {first: []}
    queue = deque([first])
    while queue:  # forwards: every state, and where it is reached from
        state = queue.popleft()
        for after in {moved(state, move) for move in _MOVES} - {state}:
            if after not in before:
                before[after] = []
                if not after.is_over:
                    queue.append(after)
            before[after].append(state)
    found = {state: 0 for state in before if state.is_over}
    queue = deque(found)
    while queue:  # backwards from the goal
        state = queue.popleft()
        for earlier in before[state]:
            if earlier not in found:
                found[earlier] = found[state] + 1
                queue.append(earlier)
    return found


@dataclass(frozen=True, slots=True)
class Keys:
    """See `keys`."""

    rooms: int
    height: int
    max_turns: int
    num_train: int
    num_test: int
    name: str = field(default="keys", init=False)
    grader_version: str = field(default="1", init=False)
    max_tokens: int = field(default=4, init=False)
    stop_strings: tuple[str, ...] = field(default=("\n",), init=False)
    recipe: Recipe = field(
        default=Recipe(noise=0.5, steps=1500, clean_share=0.5, learning_rate=3e-3), init=False
    )

    def __post_init__(self) -> None:
        if not 1 <= self.rooms <= len(_KEYS) + 1 or not 2 <= self.height <= 9 or self.max_turns < 8:
            raise ConfigError(
                f"rooms={self.rooms} must lie in 1..{len(_KEYS) + 1}, height={self.height} in 2..9, and"
                f" max_turns={self.max_turns} be 8 or more"
            )

    @property
    def context(self) -> int:
        width = 4 * self.rooms
        return (self.height + 1) * (width + 1) + 8 + self.max_turns * (self.max_tokens + 5 + self.rooms)

    def num_instances(self, split: str) -> int:
        return {"train": self.num_train, "test": self.num_test}.get(split, 0)

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def draw_map(self, rng: np.random.Generator) -> Rows:
        """Draw rooms side by side, each key before its door, until a way is at most 2/3 of the turns."""
        while True:
            rows = _drawn(rng, self.rooms, self.height)
            if 3 * num_moves(rows)[start_of(rows)] <= 2 * self.max_turns:
                return rows

    def rows(self, task_id: TaskId) -> Rows:
        """Return the map of an id: S start, G goal, # wall, x a key, X its door. The goal can be reached."""
        return _instance(self, task_id)

    def prompt(self, task_id: TaskId) -> str:
        return "\n".join(self.rows(task_id)) + "\n" + told(self.reset(task_id))

    def reset(self, task_id: TaskId) -> State:
        return start_of(self.rows(task_id))

    def step(self, state: State, text: str) -> tuple[State, Observation]:
        """Move by the turn's letter; the observation is the new place and the keys held: ``b3 x``.

        A turn that is not one of L, D, R, U keeps the place and is answered by ``?``.
        """
        if state.is_over:
            raise EnvironmentFault("keys: the walker is at the goal; the episode takes no further move")
        move = text.strip()
        if move not in _MOVES:
            return state, Observation("?\n")
        after = moved(state, move)
        return after, Observation(told(after), terminated=after.is_over)

    def grade(self, task_id: TaskId, state: State, turns: Sequence[str], truncated: bool) -> Verdict:
        """Right on the goal, truncated where the turns ran out."""
        if state.is_over:
            return Verdict(1.0, "right", told(state).strip(), f"in {len(turns)} moves")
        if any(turn.strip() in _MOVES for turn in turns):
            return Verdict(0.0, "truncated", told(state).strip(), "did not reach the goal")
        return Verdict(0.0, "no_answer", None, "no turn was a move")

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Walk a shortest way, but with probability ``noise`` a turn move at random."""
        state, episode = self.reset(task_id), []
        left = num_moves(state.rows)
        for _ in range(self.max_turns):
            ways = {move: left[moved(state, move)] for move in _MOVES}
            good = [move for move, num in ways.items() if num == min(ways.values())]
            options = list(_MOVES) if rng.random() < noise else good
            turn = options[int(rng.integers(len(options)))] + "\n"
            state, seen = self.step(state, turn)
            episode += [turn, seen.text]
            if seen.terminated:
                break
        return episode


def told(state: State) -> str:
    """Return a place and the keys held: row as a letter, column as a number, then the keys."""
    row, column = state.place
    return f"{chr(ord('a') + row)}{column + 1}{' ' if state.keys else ''}{state.keys}\n"


def _drawn(rng: np.random.Generator, num_rooms: int, height: int) -> Rows:
    """Draw rooms side by side with a door in each wall, and turn or mirror the whole.

    It can be solved by construction: the key of a door lies in a room that comes before that door.
    """
    widths = [int(width) for width in rng.integers(1, 4, num_rooms)]
    rooms = [np.full((height, width), ".") for width in widths]
    free = [[(room, r, c) for r in range(height) for c in range(widths[room])] for room in range(num_rooms)]

    def put(tile: str, room: int) -> None:
        _, row, column = free[room].pop(int(rng.integers(len(free[room]))))
        rooms[room][row, column] = tile

    put("S", 0)
    put("G", num_rooms - 1)
    names = [int(k) for k in rng.permutation(num_rooms - 1)]
    parts = [rooms[0]]
    for room in range(num_rooms - 1):
        options = [before for before in range(room + 1) if free[before]]
        put(_KEYS[names[room]], options[int(rng.integers(len(options)))])
        wall = np.full((height, 1), "#")
        wall[int(rng.integers(height))] = _DOORS[names[room]]
        parts += [wall, rooms[room + 1]]
    grid = np.concatenate(parts, axis=1)
    grid = np.rot90(grid, int(rng.integers(4)))
    return tuple("".join(row) for row in grid)


@lru_cache(maxsize=4096)
def _instance(task: Keys, task_id: TaskId) -> Rows:
    split, _ = parse_id(task.name, task_id, task.num_instances)
    return draw(task_id, split, task.draw_map, "/".join)


def keys(
    *,
    rooms: int = 2,
    height: int = 3,
    max_turns: int = 16,
    num_train: int = 20000,
    num_test: int = 1000,
) -> Keys:
    """Walk from S to G through rooms whose doors need keys (x opens X), one move a turn.

    Args:
        rooms: how many rooms; each but the last has a locked door.
        height: of the rooms in rows, before the map is turned.
        max_turns: sampled turns in an episode.
        num_train, num_test: how many instances each split offers.
    """
    return Keys(rooms=rooms, height=height, max_turns=max_turns, num_train=num_train, num_test=num_test)
