"""Runs whose tokens come from a server: what is trained is what a run in one process trains, bit for bit."""

import pytest
import torch

from rollwright.config import RunConfig
from rollwright.engine.checkpoint import load_model, load_tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.errors import ConfigError, EngineError
from rollwright.serve.server import Server
from rollwright.store.parquet import open_run
from rollwright.tasks.registry import shipped_checkpoint
from rollwright.training import Training

NODES = "select step, group_index, node, version, tokens, logprobs, entropies from nodes order by all"


@pytest.fixture
def server():
    path = shipped_checkpoint("lake")
    tokenizer = load_tokenizer(path)
    served = Server(LocalEngine(load_model(path), tokenizer), tokenizer, name="lake")
    with served.running():
        yield served


def config(**changes):
    fields = {"task": "lake", "num_steps": 3, "num_tasks": 2, "threads": 1, "device": "cpu", "max_tokens": 8}
    return RunConfig(**{**fields, "checkpoint_every": 1, "method_options": {"each": 4}, **changes})


def results(training, folder):
    """Return the weights, and all that was recorded of every token."""
    assert training.run() == "all steps done"
    weights = torch.cat([p.detach().flatten() for p in training.parts.model.parameters()])
    connection = open_run(folder)
    return weights, connection.sql(NODES).fetchall()


def trained(folder, **changes):
    return results(Training.start(config(**changes), folder, lambda row: None), folder)


@pytest.mark.parametrize("driver", ["inline", "async"])
def test_a_server_trains_what_the_engine_of_this_process_trains(server, tmp_path, driver):
    """Oracle: metamorphic: the same run without a server; then once more with the server as the first run
    left it. Broken by: the server's own count of versions in the records, weights that are not handed over.
    """
    alone = trained(tmp_path / "alone", driver=driver)
    for name in ("served", "again"):
        served = trained(tmp_path / name, driver=driver, server={"url": server.url})
        assert torch.equal(alone[0], served[0])
        assert alone[1] == served[1] and len(alone[1]) > 20


def test_a_stopped_run_goes_on_with_a_server(server, tmp_path):
    """Oracle: metamorphic: the run that was not stopped. Broken by: resuming with the server's weights."""
    whole = trained(tmp_path / "whole")
    first = Training.start(
        config(server={"url": server.url}), tmp_path / "run", lambda row: row["step"] == 1 and first.stop()
    )
    assert first.run() is None
    rest = results(Training.resume(tmp_path / "run", lambda row: None), tmp_path / "run")
    assert torch.equal(whole[0], rest[0]) and whole[1] == rest[1]


def test_what_cannot_be_is_refused_before_a_run_folder_is_made(tmp_path):
    """Oracle: hand."""
    with pytest.raises(EngineError, match="is the server up"):
        trained(tmp_path / "run", server={"url": "http://127.0.0.1:9"})
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"without server\.url"):
        config(server={"weights": "somewhere"})
    with pytest.raises(ConfigError, match="driver = 'ray'"):
        config(driver="ray", server={"url": "http://127.0.0.1:9"})
