"""Ids and splits of the built-in tasks: stable, and never the same content in both splits."""

import pytest

from rollwright.errors import DataError
from rollwright.tasks._content import TEST_SHARE, Ids, draw, split_of
from rollwright.tasks.registry import load_task

GOLDEN = {
    "countdown": ("2 6 7 +-*:8\n", "7 4 8 +-*:5\n", "6 2 7 +-:11\n"),
    "lake": ("SFFH\nFFHH\nHFHF\nFFFG\na1\n", "SFFF\nFHFH\nFFFF\nFHFG\na1\n", "SFFH\nFFHH\nFFFF\nHFFG\na1\n"),
    "calc": ("8*3+15-8\n", "15+16\n", "14+13+3\n"),
    "sudoku": (
        "a...2\nb.21.\nc2...\nd3124\n",
        "a4.12\nb2.43\nc.234\nd342.\n",
        "a4.32\nb32..\nc1.24\nd..13\n",
    ),
    "wordle": (
        "bone acid real wore army open hand dish grid mail aged paid\n",
        "rail hail bend vine fail tune hair sail slow kick mail mind\n",
        "mane meet late dirt lake wool tiny lame body cane rake lane\n",
    ),
    "keys": (
        ".G.#...\n...#.x.\n...X.S.\nc6\n",
        ".x.\nS..\nX##\n..G\n...\n...\nb1\n",
        ".Sx\n##X\n..G\n...\na2\n",
    ),
    "search": (
        "seat of the employer of the mayor of Buse?\n",
        "birthplace of the mayor of the birthplace of Ropi?\n",
        "mayor of the birthplace of Venu?\n",
    ),
    "shop": (
        "gus: cancel order 65\n",
        "ann: cancel order 72\n",
        "ida: where is order 95?\n",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_ids_give_the_same_instances_as_ever(name):
    """Oracle: golden prompts; kills any change of the draws that would mix up old runs' ids."""
    task = load_task(name)
    ids = (f"{name}/train/0", f"{name}/train/77", f"{name}/test/5")
    assert tuple(task.prompt(i) for i in ids) == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_train_and_test_share_no_content(name):
    """Oracle: exhaustive over close to two thousand prompts; kills a split that is decided by the id."""
    task = load_task(name)
    train = {task.prompt(i) for i in task.ids("train")[:1500]}
    test = {task.prompt(i) for i in task.ids("test")[:400]}
    assert len(train) > 600 and len(test) > 150
    assert not train & test


def test_split_takes_its_share():
    """Oracle: closed form: the share of test contents within 4 deviations."""
    num = sum(split_of(f"content {k}") == "test" for k in range(4000))
    assert abs(num / 4000 - TEST_SHARE) < 4 * (TEST_SHARE * (1 - TEST_SHARE) / 4000) ** 0.5


def test_ids_are_a_sequence():
    """Oracle: a list of the same ids."""
    ids = Ids("lake", "test", 12)
    plain = [f"lake/test/{k}" for k in range(12)]
    assert list(ids) == plain and ids[-1] == plain[-1] and ids[3:8:2] == plain[3:8:2]
    with pytest.raises(IndexError):
        ids[12]


def test_family_without_content_for_a_split_says_so():
    """Oracle: the error tree; kills an endless search."""
    only = next(text for text in map(str, range(99)) if split_of(text) == "train")
    with pytest.raises(DataError, match="widen"):
        draw("x/test/0", "test", lambda rng: only, str)
