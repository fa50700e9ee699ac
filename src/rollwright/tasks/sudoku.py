"""Sudoku on a 4x4 board, with the working out in the answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from rollwright.errors import ConfigError, DataError, EnvironmentFault
from rollwright.tasks._content import Ids, draw, parse_id
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

_LINE = re.compile(r"([a-d])([1-4]):([1-4]*)=([1-4])", re.ASCII)
_NUM_CELLS = 16
_MAX_TRIES = 20_000  # one board in some thousands has many blanks and one solution
Board = tuple[int, ...]  # 16 digits, row by row; 0 is blank


def peers(cell: int) -> frozenset[int]:
    """Return the other cells of a cell's row, column and 2x2 box."""
    row, column = divmod(cell, 4)
    same = {4 * row + k for k in range(4)} | {4 * k + column for k in range(4)}
    top, left = row - row % 2, column - column % 2
    same |= {4 * r + c for r in (top, top + 1) for c in (left, left + 1)}
    return frozenset(same - {cell})


_PEERS = tuple(peers(cell) for cell in range(_NUM_CELLS))


def seen_digits(board: Board, cell: int) -> set[int]:
    """Return the digits that stand in the cell's row, column or box."""
    return {board[peer] for peer in _PEERS[cell]} - {0}


def is_solved(board: Board) -> bool:
    """Whether every cell is filled and no row, column or box holds a digit twice."""
    return all(board[cell] and board[cell] not in seen_digits(board, cell) for cell in range(_NUM_CELLS))


def solutions(board: Board) -> Iterator[Board]:
    """Yield every completion of a board."""
    blanks = [cell for cell in range(_NUM_CELLS) if not board[cell]]
    if not blanks:
        yield board
        return
    cell = max(blanks, key=lambda blank: len(seen_digits(board, blank)))
    for digit in sorted({1, 2, 3, 4} - seen_digits(board, cell)):
        yield from solutions(filled(board, cell, digit))


def filled(board: Board, cell: int, digit: int) -> Board:
    """Return the board with one cell set."""
    return (*board[:cell], digit, *board[cell + 1 :])


def cell_name(cell: int) -> str:
    """Return the row as a letter and the column as a number: cell 0 is ``a1``."""
    return f"{'abcd'[cell // 4]}{cell % 4 + 1}"


@dataclass(frozen=True, slots=True)
class Sudoku:
    """See `sudoku`."""

    min_blanks: int
    max_blanks: int
    min_solutions: int
    max_solutions: int
    num_train: int
    num_test: int
    name: str = field(default="sudoku", init=False)
    grader_version: str = field(default="1", init=False)
    max_turns: int = field(default=1, init=False)
    stop_strings: tuple[str, ...] = field(default=(), init=False)
    recipe: Recipe = field(default=Recipe(noise=0.1, steps=2000, learning_rate=3e-3), init=False)

    def __post_init__(self) -> None:
        most = 10 if self.max_solutions == 1 else 12
        if not 1 <= self.min_blanks <= self.max_blanks <= most:
            raise ConfigError(
                f"blanks {self.min_blanks}..{self.max_blanks} must lie in 1..{most} where a board may have up"
                f" to {self.max_solutions} solutions"
            )
        if not 1 <= self.min_solutions <= self.max_solutions:
            raise ConfigError(
                f"min_solutions={self.min_solutions} must be 1 or more and at most"
                f" max_solutions={self.max_solutions}"
            )

    @property
    def max_tokens(self) -> int:
        return 10 * self.max_blanks + 10

    @property
    def context(self) -> int:
        return self.max_tokens + 30

    def num_instances(self, split: str) -> int:
        return {"train": self.num_train, "test": self.num_test}.get(split, 0)

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def draw_board(self, rng: np.random.Generator) -> Board:
        """Draw full boards and blank ``num`` random cells, until as many solutions are left as asked for.

        Raises:
            DataError: no board of 20,000 has so many.
        """
        num = int(rng.integers(self.min_blanks, self.max_blanks + 1))
        for _ in range(_MAX_TRIES):
            board = all_full()[int(rng.integers(288))]
            for cell in rng.permutation(_NUM_CELLS)[:num]:
                board = filled(board, int(cell), 0)
            found = len(list(islice(solutions(board), self.max_solutions + 1)))
            if self.min_solutions <= found <= self.max_solutions:
                return board
        raise DataError(
            f"sudoku: no board of {_MAX_TRIES} with {num} blanks has {self.min_solutions} to"
            f" {self.max_solutions} solutions; allow other numbers of blanks or solutions"
        )

    def board(self, task_id: TaskId) -> Board:
        """Return the board of an id, 0 where it is blank; `solutions` of it gives all that are right."""
        return _instance(self, task_id)

    def prompt(self, task_id: TaskId) -> str:
        text = "".join(map(str, self.board(task_id))).replace("0", ".")
        return "".join(f"{'abcd'[row]}{text[4 * row : 4 * row + 4]}\n" for row in range(4))

    def reset(self, task_id: TaskId) -> Board:
        return self.board(task_id)

    def step(self, state: Board, text: str) -> tuple[Board, Observation]:
        raise EnvironmentFault("sudoku has one turn and no environment step")

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        """Fill in every line ``cell:seen=digit`` (the last one for a cell counts) and check the board.

        The working out before ``=`` is not graded. A line for a given cell makes the answer wrong. Any
        solution is right; ``extracted`` is its 16 digits, so that distinct solutions can be counted.
        """
        given = board = self.board(task_id)
        lines = [match for line in "".join(turns).split("\n") if (match := _LINE.fullmatch(line.strip()))]
        if truncated:
            return Verdict(0.0, "truncated", None, "cut before the end token")
        if not lines:
            return Verdict(0.0, "no_answer", None, "no line of the form 'a1:234=1'")
        for match in lines:
            cell = 4 * "abcd".index(match[1]) + int(match[2]) - 1
            if given[cell]:
                return Verdict(0.0, "wrong", None, f"{cell_name(cell)} was given")
            board = filled(board, cell, int(match[4]))
        text = "".join(map(str, board))
        if is_solved(board):
            return Verdict(1.0, "right", text)
        detail = "left blank" if 0 in board else "a digit stands twice in a row, column or box"
        return Verdict(0.0, "wrong", text, detail)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Fill a cell with one candidate at a time, its seen digits written out first.

        With probability ``noise`` a step takes any blank cell, looks along its row only and guesses.
        """
        board, lines = self.board(task_id), []
        while blanks := [cell for cell in range(_NUM_CELLS) if not board[cell]]:
            sure = [cell for cell in blanks if len(seen_digits(board, cell)) == 3]
            is_careless = rng.random() < noise
            pool = sure if sure and not is_careless else blanks
            cell = pool[int(rng.integers(len(pool)))]
            row = board[cell - cell % 4 : cell - cell % 4 + 4]
            seen = set(row) - {0} if is_careless else seen_digits(board, cell)
            options = sorted({1, 2, 3, 4} - seen) or [1, 2, 3, 4]
            digit = options[int(rng.integers(len(options)))]
            board = filled(board, cell, digit)
            lines.append(f"{cell_name(cell)}:{''.join(map(str, sorted(seen)))}={digit}")
        return ["\n".join(lines)]


@lru_cache(maxsize=1)
def all_full() -> tuple[Board, ...]:
    """Return the 288 full boards."""
    return tuple(solutions((0,) * _NUM_CELLS))


@lru_cache(maxsize=4096)
def _instance(task: Sudoku, task_id: TaskId) -> Board:
    split, _ = parse_id(task.name, task_id, task.num_instances)
    return draw(task_id, split, task.draw_board, lambda board: "".join(map(str, board)))


def sudoku(
    *,
    min_blanks: int = 2,
    max_blanks: int = 10,
    min_solutions: int = 1,
    max_solutions: int = 1,
    num_train: int = 20000,
    num_test: int = 1000,
) -> Sudoku:
    """Fill in a 4x4 board so that each row, column and 2x2 box holds 1, 2, 3 and 4.

    Args:
        min_blanks, max_blanks: how many cells are blank.
        min_solutions, max_solutions: how many solutions a board may have; any of them is right.
        num_train, num_test: how many instances each split offers.
    """
    return Sudoku(
        min_blanks=min_blanks,
        max_blanks=max_blanks,
        min_solutions=min_solutions,
        max_solutions=max_solutions,
        num_train=num_train,
        num_test=num_test,
    )
