"""Calc: its calculator and grader against Python's own parser."""

import ast
import operator

import numpy as np
import pytest

from rollwright.errors import ConfigError
from rollwright.tasks.calc import State, calc, calls_of

TASK = calc()
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def reference(expression):
    """Work out an expression by walking Python's syntax tree; return (value, operations)."""

    def walk(node):
        if isinstance(node, ast.Constant):
            return node.value, 0
        (left, a), (right, b) = walk(node.left), walk(node.right)
        return SIGNS[type(node.op)](left, right), a + b + 1

    return walk(ast.parse(expression, mode="eval").body)


def test_values_and_operations_agree_with_pythons_parser():
    """Oracle: another implementation; kills left-to-right without precedence."""
    nums = set()
    for task_id in [*TASK.ids("train")[:400], *TASK.ids("test")[:100]]:
        expression = TASK.expression(task_id)
        value, num = reference(expression)
        calls = calls_of(expression)
        assert (calls[-1][-1], len(calls)) == (value, num)
        assert all(SIGNS[{"+": ast.Add, "-": ast.Sub, "*": ast.Mult}[s]](a, b) == v for a, s, b, v in calls)
        nums.add(num)
    assert nums == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    "turn, answer",
    [
        ("12*3=", "36\n"),
        ("3-12=", "-9\n"),
        ("-9+4=", "-5\n"),
        ("12*3*2=", "error\n"),
        ("12/3=", "error\n"),
        ("=", "error\n"),
        ("a+3=", "error\n"),
    ],
)
def test_calculator(turn, answer):
    """Oracle: the documented table; kills a calculator that works out long expressions."""
    state, said = TASK.step(State("12*3"), turn)
    assert (said.text, said.terminated, state.num_calls) == (answer, False, 1)


@pytest.mark.parametrize(
    "turns, truncated, score, status",
    [
        (["2*3=", "1+6=", "#7"], False, 1.0, "right"),
        (["#7"], False, 1.0, "right"),
        (["2*3=", "#6"], False, 0.0, "wrong"),
        (["7"], False, 0.0, "no_answer"),
        ([""], False, 0.0, "no_answer"),
        (["2*3=", "1+6="], True, 0.0, "truncated"),
    ],
)
def test_statuses(turns, truncated, score, status):
    """Oracle: the documented table; kills grading the last observation in place of the answer."""
    state = State("1+2*3")
    for turn in turns:
        state, said = TASK.step(state, turn)
    assert said.terminated == (status in ("right", "wrong", "no_answer"))
    verdict = TASK.grade("calc/train/0", state, turns, truncated)
    assert (verdict.score, verdict.status) == (score, status)


def test_demonstrations_replay_to_the_same_observations():
    """Oracle: the environment; perfect ones are right, noisy ones sometimes not.

    Kills: going on with the true value after a slip.
    """
    rng = np.random.default_rng(0)
    for noise in (0.0, 0.3):
        scores = []
        for task_id in TASK.ids("train")[:200]:
            episode, state = TASK.demonstrate(task_id, rng, noise), TASK.reset(task_id)
            assert len(episode) % 2 == 1 and (len(episode) + 1) // 2 <= TASK.max_turns
            for k, turn in enumerate(episode[::2]):
                assert len(turn) + 1 <= TASK.max_tokens
                state, said = TASK.step(state, turn)
                assert said.text == (*episode, "")[2 * k + 1]
            if "*" not in state.expression:
                said_before = zip(episode[1::2], episode[2:-1:2], strict=False)
                assert all(call.startswith(value.strip()) for value, call in said_before)
            scores.append(TASK.grade(task_id, state, episode[::2], False).score)
        assert np.mean(scores) == 1.0 if noise == 0 else 0.1 < np.mean(scores) < 0.7


def test_bad_options_are_refused():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match=r"5\.\.3"):
        calc(min_operations=5, max_operations=3)
