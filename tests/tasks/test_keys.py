"""Keys: its moves, doors and shortest ways against an independent walk and a value iteration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.tasks.keys import State, keys, moved, num_moves, start_of

TASK = keys()
FOUR = keys(rooms=4, max_turns=45)
SHIFTS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


def reference_moves(rows):
    """Fewest moves to the goal by value iteration over (keys as bits, row, column), [8, H + 2, W + 2]."""
    height, width = len(rows), len(rows[0])
    grid = np.full((height + 2, width + 2), "#")
    grid[1:-1, 1:-1] = [list(row) for row in rows]
    far = np.full((8, height + 2, width + 2), np.inf)
    for _ in range(8 * height * width):
        old = far.copy()
        for held in range(8):
            near = np.full(grid.shape, np.inf)
            for down, right in SHIFTS.values():
                # entering a cell may add its key: look up the distance there with that key held
                entered = np.full(grid.shape, np.inf)
                for r, c in np.argwhere(grid != "#"):
                    tile = str(grid[r, c])
                    if tile in "XYZ" and not held >> "XYZ".index(tile) & 1:
                        continue
                    after = held | (1 << "xyz".index(tile) if tile in "xyz" else 0)
                    entered[r, c] = 0 if tile == "G" else far[after, r, c]
                near = np.minimum(near, np.roll(entered, (-down, -right), (0, 1)))
            far[held] = np.where(grid != "#", near + 1, np.inf)
        far[:, grid == "G"] = 0
        if np.array_equal(far, old):
            break
    return far


def bits(held):
    return sum(1 << "xyz".index(key) for key in held)


@pytest.mark.parametrize("task", [TASK, FOUR], ids=["two rooms", "four rooms"])
def test_shortest_ways_agree_with_value_iteration(task):
    """Oracle: value iteration over places and keys; kills a door that opens for any key, or for none."""
    for task_id in task.ids("train")[: 12 if task is TASK else 2]:
        rows = task.rows(task_id)
        far = reference_moves(rows)
        for state, num in num_moves(rows).items():
            assert num == far[bits(state.keys), state.place[0] + 1, state.place[1] + 1]


def test_maps_can_be_solved_and_need_their_keys():
    """Oracle: the search, with doors walled up; kills a key behind its own door."""
    num_needed = 0
    pairs = [(TASK, i) for i in TASK.ids("train")[:100]] + [(FOUR, i) for i in FOUR.ids("train")[:30]]
    for task, task_id in pairs:
        rows = task.rows(task_id)
        assert start_of(rows) in num_moves(rows)
        for door in "XYZ":
            walled = tuple(row.replace(door, "#") for row in rows)
            if walled != rows:
                assert start_of(walled) not in num_moves(walled)
                num_needed += 1
    assert num_needed > 100


def test_every_state_that_can_be_reached_can_still_be_solved():
    """Oracle: enumeration of all states; a walk can never get stuck, so any demonstration can go on."""
    for task_id in FOUR.ids("test")[:15]:
        rows = FOUR.rows(task_id)
        left = num_moves(rows)
        for state, num in left.items():
            if num:
                assert min(left[moved(state, move)] for move in "LDRU") == num - 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 200), st.text("LDRU?", max_size=30))
def test_walks_agree_with_a_walk_on_a_grid(number, moves):
    """Oracle: an independent simulator, and every state taken up again (fork equals replay)."""
    task_id = f"keys/train/{number}"
    rows, states, seen = FOUR.rows(task_id), [FOUR.reset(task_id)], []
    y, x = states[0].place
    held = set()
    for move in moves:
        if rows[y][x] == "G":
            with pytest.raises(EnvironmentFault, match="goal"):
                FOUR.step(states[-1], move)
            break
        state, said = FOUR.step(states[-1], move + "\n")
        states.append(state)
        seen.append(said)
        if move == "?":
            assert said.text == "?\n"
            continue
        down, right = SHIFTS[move]
        if 0 <= y + down < len(rows) and 0 <= x + right < len(rows[0]):
            tile = rows[y + down][x + right]
            if tile != "#" and not (tile in "XYZ" and tile.lower() not in held):
                y, x = y + down, x + right
            held |= {rows[y][x]} & set("xyz")
        where = f"{'abcdefghijklmnop'[y]}{x + 1}"
        assert said.text == " ".join([where, *(["".join(sorted(held))] if held else [])]) + "\n"
        assert said.terminated == (rows[y][x] == "G") and not said.truncated
    for place in reversed(range(len(seen))):
        assert FOUR.step(states[place], moves[place]) == (states[place + 1], seen[place])
    verdict = FOUR.grade(task_id, states[-1], list(moves), True)
    assert verdict.score == float(rows[y][x] == "G")


def test_a_door_by_hand():
    """Oracle: hand; kills a key that is used up, and a door that opens for another key."""
    state = start_of(("SyX", "x.G"))
    for move, place, held in [
        ("R", (0, 1), "y"),
        ("R", (0, 1), "y"),  # y does not open X
        ("U", (0, 1), "y"),  # the edge
        ("L", (0, 0), "y"),
        ("D", (1, 0), "xy"),
        ("R", (1, 1), "xy"),
        ("U", (0, 1), "xy"),
        ("R", (0, 2), "xy"),
        ("L", (0, 1), "xy"),
        ("R", (0, 2), "xy"),  # and again
    ]:
        state = moved(state, move)
        assert (state.place, state.keys) == (place, held)
    assert moved(state, "D") == State(("SyX", "x.G"), (1, 2), "xy")
    assert num_moves(("SyX", "x.G"))[start_of(("SyX", "x.G"))] == 3


def test_perfect_demonstrations_take_a_shortest_way():
    """Oracle: value iteration for the length; kills a detour, and an answer that is not the environment's."""
    rng = np.random.default_rng(0)
    for number, task_id in enumerate(TASK.ids("test")[:60]):
        episode = TASK.demonstrate(task_id, rng, 0.0)
        state = TASK.reset(task_id)
        for turn, seen in zip(episode[::2], episode[1::2], strict=True):
            state, said = TASK.step(state, turn)
            assert said.text == seen
        assert TASK.grade(task_id, state, episode[::2], False).status == "right"
        if number < 4:
            rows = TASK.rows(task_id)
            row, column = start_of(rows).place
            assert len(episode) // 2 == reference_moves(rows)[0, row + 1, column + 1]


def test_statuses():
    """Oracle: the documented table."""
    state = TASK.reset("keys/test/0")
    assert TASK.grade("keys/test/0", state, ["x\n"], True).status == "no_answer"
    assert TASK.grade("keys/test/0", state, ["U\n"], True).status == "truncated"


def test_bad_options_are_refused():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match="rooms=9"):
        keys(rooms=9)
