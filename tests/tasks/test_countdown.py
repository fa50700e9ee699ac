"""Countdown: its grader against a slow reference, its instances by enumeration."""

import itertools
import operator

import numpy as np
import pytest

from rollwright.errors import ConfigError, DataError, EnvironmentFault, UnknownName
from rollwright.tasks.countdown import Instance, chains, check_chain, countdown
from rollwright.tasks.registry import load_task

TASK = countdown()
EXACT = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def reference(first, steps, instance):
    """Whether a chain is right, from the rules as the documentation words them."""
    value, used = first, [first]
    for sign, number, stated in steps:
        if sign not in instance.operators:
            return False
        try:
            value = EXACT[sign](value, number)
        except ZeroDivisionError:
            return False
        if value != stated or value < 0 or value != int(value):
            return False
        used.append(number)
    return sorted(used) == sorted(instance.numbers) and value == instance.target


@pytest.mark.parametrize(
    "numbers, operators, target",
    [((3, 5, 8), "+-", 16), ((2, 8, 4), "+-*/", 1), ((6, 6, 1), "+-*", 35)],
)
def test_grader_agrees_with_reference_on_every_chain(numbers, operators, target):
    """Oracle: slow reference over all numbers, signs and stated values in a box.

    Kills: not comparing the multiset of used numbers; not checking the first stated value; any operator.
    """
    instance, pool, num_right = Instance(numbers, operators, target), (*sorted(set(numbers)), 7), 0
    for a, b, c in itertools.product(pool, repeat=3):
        for one, two in itertools.product("+-*/", repeat=2):
            if (one == "/" and a % b) or (two == "/" and b == 0):
                continue
            middle = int(EXACT[one](a, b))
            for said, last in itertools.product((middle, middle + 1), (target, target + 1)):
                if said < 0:
                    continue
                text = f"{a}{one}{b}={said}{two}{c}={last}"
                expected = reference(a, [(one, b, said), (two, c, last)], instance)
                assert (check_chain(text, instance) == "right") == expected, text
                num_right += expected
    assert num_right > 0


@pytest.mark.parametrize("numbers", [(3, 5), (12, 7), (3, 5, 8), (9, 9, 1)])
def test_chains_reach_exactly_the_values_that_exist(numbers):
    """Oracle: enumeration of all orders and signs; kills dropping an order of a difference."""
    expected = set()
    for order in itertools.permutations(numbers):
        for signs in itertools.product("+-*", repeat=len(numbers) - 1):
            values = [order[0]]
            for sign, number in zip(signs, order[1:], strict=True):
                values.append(EXACT[sign](values[-1], number))
            if all(0 <= value <= 99 for value in values):
                expected.add(values[-1])
    found = chains(numbers, "+-*")
    assert {value for _, value in found} == expected
    assert all(check_chain(text, Instance(numbers, "+-*", value)) == "right" for text, value in found)


@pytest.mark.parametrize(
    "text, truncated, score, status",
    [
        ("3*7=21-5=16", False, 1.0, "right"),
        ("3+7=10+5=15\n3*7=21-5=16", False, 1.0, "right"),
        ("3*7=21-5=16\n", False, 1.0, "right"),
        ("3*7=21-5=16\n3+7=10+5=15", False, 0.0, "wrong"),
        ("3*7=22-5=16", False, 0.0, "wrong"),
        ("3*7=21-5=17", False, 0.0, "wrong"),
        ("7+9=16", False, 0.0, "wrong"),
        ("5/5=1*16=16", False, 0.0, "wrong"),
        ("3*7=21", False, 0.0, "wrong"),
        ("16", False, 0.0, "no_answer"),
        ("", False, 0.0, "no_answer"),
        ("3*7=21-5=16 done", False, 0.0, "no_answer"),
        ("3-7=-4+5=1", False, 0.0, "no_answer"),
        ("٣*7=21-5=16", False, 0.0, "no_answer"),
        ("3*7=21-5=16", True, 0.0, "truncated"),
    ],
)
def test_statuses(text, truncated, score, status):
    """Oracle: the documented table; kills reading any line instead of the last, and cut answers as right."""
    task_id = next(i for i in TASK.ids("train") if len(TASK.instance(i).numbers) == 3)
    fixed = Instance((3, 5, 7), "+-*", 16)

    class Fixed(type(TASK)):
        __slots__ = ()

        def instance(self, task_id):
            return fixed

    task = Fixed((3,), 1000, 96)
    verdict = task.grade(task_id, fixed, [text], truncated)
    assert (verdict.score, verdict.status) == (score, status)


def test_every_instance_can_be_solved_and_no_content_is_in_both_splits():
    """Oracle: exhaustive over all ids; kills a split that is decided by number, not content."""
    contents = {}
    for split in ("train", "test"):
        instances = [TASK.instance(i) for i in TASK.ids(split)]
        assert all(any(v == x.target for _, v in chains(x.numbers, x.operators)) for x in instances)
        contents[split] = [(tuple(sorted(x.numbers)), x.operators, x.target) for x in instances]
        assert len(set(contents[split])) == len(contents[split])
        assert {(len(x.numbers), x.operators) for x in instances} == {(2, "+-*"), (3, "+-"), (3, "+-*")}
    assert not set(contents["train"]) & set(contents["test"])
    assert len(contents["train"]) > 1000 and len(contents["test"]) > 400


def test_demonstrations_are_chains_and_patience_pays():
    """Oracle: the grader, and closed forms: no noise ends right or full; noise 1 makes one attempt."""
    rng = np.random.default_rng(0)
    ids = TASK.ids("train")[:300]
    for task_id in ids:
        instance = TASK.instance(task_id)
        (patient,) = TASK.demonstrate(task_id, rng, 0.0)
        assert len(patient) + 1 <= TASK.max_tokens
        lines = patient.split("\n")
        assert all(check_chain(line, instance).startswith(("right", "reaches")) for line in lines)
        assert all(check_chain(line, instance) != "right" for line in lines[:-1])
        assert len({line.rpartition("=")[2] for line in lines}) == len(lines)
        if len(instance.numbers) == 2 or instance.operators == "+-":
            assert check_chain(lines[-1], instance) == "right"
        assert "\n" not in TASK.demonstrate(task_id, rng, 1.0)[0]


def test_bad_input_is_refused():
    """Oracle: the error tree. Each message names what was given."""
    with pytest.raises(DataError, match="countdown/train/999999"):
        TASK.prompt("countdown/train/999999")
    with pytest.raises(DataError, match="lake/train/0"):
        TASK.prompt("lake/train/0")
    with pytest.raises(DataError, match="split 'dev'"):
        TASK.ids("dev")
    with pytest.raises(ConfigError, match=r"levels \[1, 7\]"):
        countdown(levels=(1, 7))
    with pytest.raises(UnknownName, match="per_level"):
        load_task("countdown", per_levl=3)
    with pytest.raises(EnvironmentFault):
        TASK.step(TASK.reset("countdown/train/0"), "3+4=7")
