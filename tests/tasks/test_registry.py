"""Tasks are found by file, by entry point, and in a user's own file."""

import pytest

from rollwright.errors import ConfigError, UnknownName
from rollwright.tasks import registry
from rollwright.tasks.registry import load_task, task_factories, task_options

OWN = """
from rollwright.tasks.lake import lake

def small_lake(*, size=3):
    return lake(size=size)
"""


def test_every_file_is_found():
    """Oracle: the list of the issue."""
    assert set(task_factories()) >= {"countdown", "lake", "calc", "sudoku", "gym", "jsonl"}
    assert task_options(task_factories()["lake"])["size"] == 4


def test_names_and_options_that_do_not_exist():
    """Oracle: the error tree, with suggestions; kills a silently dropped option."""
    with pytest.raises(UnknownName, match="did you mean 'countdown'"):
        load_task("coutdown")
    with pytest.raises(UnknownName, match="did you mean 'size'"):
        load_task("lake", sise=3)
    with pytest.raises(ConfigError, match="nothing may follow"):
        load_task("lake:3")


def test_a_factory_in_a_users_file(tmp_path):
    """Oracle: the task that it builds."""
    (tmp_path / "mine.py").write_text(OWN)
    assert load_task(f"{tmp_path / 'mine.py'}:small_lake", size=5).size == 5
    with pytest.raises(UnknownName, match="small_lake"):
        load_task(f"{tmp_path / 'mine.py'}:smal_lake")


def test_a_name_given_twice_is_an_error(monkeypatch):
    """Oracle: the error tree; kills one task that hides another."""

    class Entry:
        name, value = "lake", "other:lake"

    monkeypatch.setattr(registry, "entry_points", lambda group: [Entry()])
    with pytest.raises(ConfigError, match="'lake' is given twice"):
        task_factories()
