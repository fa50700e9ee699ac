"""Sudoku 4x4: its grader by brute force over all fillings."""

import itertools

import numpy as np
import pytest

from rollwright.errors import ConfigError, DataError
from rollwright.tasks.sudoku import all_full, cell_name, is_solved, solutions, sudoku

TASK = sudoku()


def reference_solved(board):
    """Whether all rows, columns and boxes are {1, 2, 3, 4}, by sets over a matrix."""
    grid = np.array(board).reshape(4, 4)
    boxes = grid.reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
    return all(set(line) == {1, 2, 3, 4} for part in (grid, grid.T, boxes) for line in part.tolist())


def test_there_are_288_boards():
    """Oracle: the known count of 4x4 sudokus, and sets; kills a missing box rule."""
    assert len(set(all_full())) == 288
    assert all(reference_solved(board) for board in all_full())


def test_grader_agrees_with_brute_force_on_every_filling():
    """Oracle: enumeration of all fillings of boards with few blanks; exactly one is right."""
    ids = [i for i in TASK.ids("train")[:200] if TASK.board(i).count(0) <= 4][:12]
    for task_id in ids:
        board, rights = TASK.board(task_id), 0
        blanks = [k for k in range(16) if not board[k]]
        for digits in itertools.product((1, 2, 3, 4), repeat=len(blanks)):
            whole = list(board)
            for cell, digit in zip(blanks, digits, strict=True):
                whole[cell] = digit
            text = "\n".join(f"{cell_name(c)}:={d}" for c, d in zip(blanks, digits, strict=True))
            verdict = TASK.grade(task_id, board, [text], False)
            assert verdict.status == ("right" if reference_solved(whole) else "wrong")
            assert is_solved(tuple(whole)) == reference_solved(whole)
            rights += verdict.score == 1.0
        assert rights == 1 == len(list(solutions(board)))


def test_every_solution_of_a_board_with_several_is_right():
    """Oracle: all 288 full boards that agree with the givens; kills grading against one stored solution."""
    task = sudoku(min_blanks=8, max_blanks=12, min_solutions=2, max_solutions=6)
    nums = set()
    for task_id in task.ids("train")[:25]:
        board = task.board(task_id)
        blanks = [cell for cell in range(16) if not board[cell]]
        fitting = [full for full in all_full() if all(g in (0, f) for g, f in zip(board, full, strict=True))]
        extracted = set()
        for full in all_full():
            text = "\n".join(f"{cell_name(cell)}:={full[cell]}" for cell in blanks)
            verdict = task.grade(task_id, board, [text], False)
            assert (verdict.score == 1.0) == any(
                [full[cell] for cell in blanks] == [fit[cell] for cell in blanks] for fit in fitting
            )
            extracted |= {verdict.extracted} if verdict.score == 1.0 else set()
        assert extracted == {"".join(map(str, fit)) for fit in fitting}
        nums.add(len(fitting))
        (text,) = task.demonstrate(task_id, np.random.default_rng(0), 0.0)
        assert len(text) + 1 <= task.max_tokens
    assert nums <= set(range(2, 7)) and len(nums) > 2


def test_boards_have_one_solution_and_the_asked_blanks():
    """Oracle: search; kills drawing without the uniqueness check."""
    nums = set()
    for task_id in TASK.ids("test")[:150]:
        board = TASK.board(task_id)
        assert len(list(solutions(board))) == 1
        nums.add(board.count(0))
    assert nums == set(range(2, 11))


def test_statuses():
    """Oracle: the documented table; kills overwriting a given cell, and partial boards as right."""
    task_id = "sudoku/train/0"
    board = TASK.board(task_id)
    answer = next(solutions(board))
    fill = [f"{cell_name(k)}:={answer[k]}" for k in range(16) if not board[k]]
    given = next(k for k in range(16) if board[k])

    def status(lines, truncated=False):
        verdict = TASK.grade(task_id, board, ["\n".join(lines)], truncated)
        assert verdict.score == float(verdict.status == "right")
        return verdict.status

    wrong = fill[0][:-1] + str(answer[next(k for k in range(16) if not board[k])] % 4 + 1)
    assert status(fill) == status([wrong, *fill]) == status(["thinking", *fill]) == "right"
    assert status(fill[1:]) == status([*fill, wrong]) == "wrong"
    assert status([*fill, f"{cell_name(given)}:={board[given]}"]) == "wrong"
    assert status(["a1=4"]) == status([]) == "no_answer"
    assert status(fill, truncated=True) == "truncated"


def test_perfect_demonstrations_are_right_and_show_what_is_seen():
    """Oracle: the grader, and sets over rows, columns and boxes for the working out."""
    rng = np.random.default_rng(0)
    scores = {0.0: [], 0.3: []}
    for task_id in TASK.ids("train")[:150]:
        for noise, found in scores.items():
            (text,) = TASK.demonstrate(task_id, rng, noise)
            assert len(text) + 1 <= TASK.max_tokens
            found.append(TASK.grade(task_id, None, [text], False).score)
            if noise == 0:
                grid = np.array(TASK.board(task_id)).reshape(4, 4)
                for line in text.split("\n"):
                    r, c = "abcd".index(line[0]), int(line[1]) - 1
                    box = grid[r // 2 * 2 : r // 2 * 2 + 2, c // 2 * 2 : c // 2 * 2 + 2]
                    seen = sorted({*grid[r], *grid[:, c], *box.ravel()} - {0})
                    assert line == f"{'abcd'[r]}{c + 1}:{''.join(map(str, seen))}={line[-1]}"
                    grid[r, c] = int(line[-1])
    assert np.mean(scores[0.0]) == 1.0
    assert 0.4 < np.mean(scores[0.3]) < 0.9


def test_bad_options_are_refused():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match=r"0\.\.10"):
        sudoku(min_blanks=0)
    with pytest.raises(ConfigError, match="min_solutions=3"):
        sudoku(min_solutions=3)
    with pytest.raises(DataError, match="no board"):
        sudoku(min_blanks=1, max_blanks=1, min_solutions=2, max_solutions=2).board("sudoku/train/0")
