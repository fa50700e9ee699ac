"""The run folder: made once, one writer, whole checkpoints."""

import pytest

from rollwright.config import RunConfig
from rollwright.errors import StoreError
from rollwright.events import Started
from rollwright.store.journal import read
from rollwright.store.run import RunFolder

CONFIG = RunConfig(task="countdown", seed=3, budget={"rollouts": 100})


def test_layout_and_config(tmp_path):
    """Golden: the names of the layout; the config reads back equal."""
    with RunFolder.create(tmp_path / "a" / "run", CONFIG) as run:
        with run.journal() as journal:
            journal.append(Started(), [])
        run.metrics().append({"step": 0})
        run.shards().add(0, [], {})
        found = sorted(path.name for path in run.path.iterdir())
        assert found == [
            *("checkpoints", "config.toml", "journal.jsonl", "lock", "metrics.jsonl", "plots", "shards"),
        ]
        assert run.config() == CONFIG
    assert [event for event, _ in read(RunFolder.view(run.path).journal_path)] == [Started()]


def test_nothing_is_overwritten(tmp_path):
    """Oracle: the message; a folder with a run or with files is refused, an empty or half-made one is not."""
    RunFolder.create(tmp_path / "run", CONFIG).close()
    with pytest.raises(StoreError, match="holds a run already"):
        RunFolder.create(tmp_path / "run", CONFIG)
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "mine" / "deep" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match=r"not empty: it holds deep/thesis\.txt"):
        RunFolder.create(tmp_path / "mine", CONFIG)
    (tmp_path / "half" / "shards").mkdir(parents=True)
    (tmp_path / "half" / ".config.toml.part").write_text("tas")
    RunFolder.create(tmp_path / "half", CONFIG).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the run folder"):
        RunFolder.create(tmp_path / "file", CONFIG)


def test_one_writer_many_readers(tmp_path):
    """Oracle: the lock; a view writes nothing."""
    path = tmp_path / "run"
    with RunFolder.create(path, CONFIG):
        with pytest.raises(StoreError, match="being written by this process"):
            RunFolder.open(path)
        view = RunFolder.view(path)
        assert view.config() == CONFIG
        for write in (view.journal, view.metrics, view.shards):
            with pytest.raises(StoreError, match="opened as a view"):
                write()
    RunFolder.open(path).close()
    for attempt in (RunFolder.open, RunFolder.view):
        with pytest.raises(StoreError, match="no run folder"):
            attempt(tmp_path)
