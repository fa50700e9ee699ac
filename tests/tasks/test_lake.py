"""Lake: its moves, grader and maps against an independent walk and a value iteration."""

import dataclasses

import numpy as np
import pytest

from rollwright.errors import ConfigError
from rollwright.tasks.lake import lake, shortest

TASK = lake()


def reference_distances(rows):
    """Shortest ways by value iteration over a matrix padded with holes."""
    size = len(rows)
    is_open = np.zeros((size + 2, size + 2), bool)
    is_open[1:-1, 1:-1] = np.array([[tile != "H" for tile in row] for row in rows])
    far = np.where(is_open, 1e9, np.inf)
    far[size, size] = 0
    for _ in range(size * size):
        near = np.min([np.roll(far, shift, axis) for shift in (1, -1) for axis in (0, 1)], axis=0)
        far = np.where(is_open, np.minimum(far, near + 1), np.inf)
    return {
        (r, c): int(far[r + 1, c + 1]) for r in range(size) for c in range(size) if far[r + 1, c + 1] < 1e9
    }


def test_shortest_ways_agree_with_value_iteration():
    """Oracle: value iteration; kills walking through holes and a wrong goal."""
    for task_id in TASK.ids("train")[:200]:
        rows = TASK.rows(task_id)
        assert shortest(rows) == reference_distances(rows)


def test_random_walks_agree_with_a_walk_on_a_grid():
    """Oracle: an independent simulator; kills a swapped axis, a wrap at the edge and a missed hole."""
    rng = np.random.default_rng(1)
    seen = set()
    for task_id in TASK.ids("train")[:300]:
        rows, state, turns = TASK.rows(task_id), TASK.reset(task_id), []
        y = x = 0
        status = "truncated"
        for _ in range(TASK.max_turns):
            move = str(rng.choice(list("LDRU")))
            y = min(max(y + (move == "D") - (move == "U"), 0), 3)
            x = min(max(x + (move == "R") - (move == "L"), 0), 3)
            turns.append(move + "\n")
            state, said = TASK.step(state, turns[-1])
            assert said.text == f"{'abcd'[y]}{x + 1}\n"
            if rows[y][x] in "GH":
                status = "right" if rows[y][x] == "G" else "wrong"
                assert said.terminated
                break
            assert not said.terminated
        verdict = TASK.grade(task_id, state, turns, status == "truncated")
        assert verdict.status == status
        assert verdict.score == float(status == "right")
        seen.add(status)
    assert "wrong" in seen and "right" in seen


def test_no_move_is_answered_and_not_scored_as_wrong_way():
    """Oracle: the documented table; kills moving on unknown letters."""
    task_id = "lake/test/0"
    state, said = TASK.step(TASK.reset(task_id), "Q\n")
    assert (said.text, said.terminated, state.place, state.moves) == ("?\n", False, (0, 0), 1)
    assert TASK.grade(task_id, state, ["Q\n"], True).status == "no_answer"


def test_states_are_values():
    """Oracle: metamorphic: a step leaves its state as it was, and gives the same answer again."""
    state = lake(slip=0.5).reset("lake/train/3")
    again = [lake(slip=0.5).step(state, "R\n") for _ in range(3)]
    assert again[0] == again[1] == again[2]
    assert state == lake(slip=0.5).reset("lake/train/3")
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.moves = 3


def test_slips_go_to_the_side_as_often_as_asked():
    """Oracle: closed form: share of slips within 4 deviations, never backwards."""
    task = lake(size=9, holes=0.0, slip=0.3)
    num_slips, seen = 0, set()
    for task_id in task.ids("train")[:400]:
        state = dataclasses.replace(task.reset(task_id), place=(4, 4))
        state, _ = task.step(state, "R\n")
        num_slips += state.place != (4, 5)
        seen.add(state.place)
    assert seen == {(4, 5), (3, 4), (5, 4)}
    assert abs(num_slips / 400 - 0.3) < 4 * (0.21 / 400) ** 0.5


def test_perfect_demonstrations_take_a_shortest_way():
    """Oracle: value iteration; kills a detour in the solver."""
    rng = np.random.default_rng(0)
    for task_id in TASK.ids("test")[:200]:
        episode = TASK.demonstrate(task_id, rng, 0.0)
        state = TASK.reset(task_id)
        for turn, seen in zip(episode[::2], episode[1::2], strict=True):
            state, said = TASK.step(state, turn)
            assert said.text == seen
        assert TASK.grade(task_id, state, episode[::2], False).status == "right"
        assert len(episode) // 2 == reference_distances(TASK.rows(task_id))[0, 0]


def test_bad_options_are_refused():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match="size=12"):
        lake(size=12)
