"""Runs with drafts: the same run, token for token, in fewer passes."""

import dataclasses

import pytest
import torch

from rollwright.config import RunConfig
from rollwright.errors import ConfigError
from rollwright.store.parquet import open_run
from rollwright.training import Training, parts

NODES = "select step, group_index, node, version, tokens, logprobs, entropies from nodes order by all"


def config(**changes):
    fields = {"task": "countdown", "num_steps": 4, "num_tasks": 2, "threads": 1, "device": "cpu"}
    return RunConfig(**{**fields, "chunk": 0, "lr": 1e-5, "method_options": {"each": 4}, **changes})


def trained(folder, force=False, **changes):
    """Return weights, records and what the drafts did."""
    rows = []
    training = Training.start(config(**changes), folder, rows.append)
    drafting = training.parts.engine.drafting
    if drafting is not None:
        drafting.switch.is_forced = force
    assert training.run() == "all steps done"
    weights = torch.cat([p.detach().flatten() for p in training.parts.model.parameters()])
    told = [row["draft_acceptance"] for row in rows if "draft_acceptance" in row]
    assert told[-1:] == ([drafting.report.acceptance] if drafting and drafting.report.passes else [])
    return weights, open_run(folder).sql(NODES).fetchall(), drafting and drafting.report


@pytest.mark.parametrize("kind", ["suffix", "previous"])
def test_a_run_with_drafts_is_the_run_without(tmp_path, kind):
    """Oracle: metamorphic: weights and records without drafts, over weight updates. Broken by: drafts that
    keep a token of the old weights."""
    plain = trained(tmp_path / "plain")
    drafted = trained(tmp_path / kind, force=True, drafts={"kind": kind})
    assert torch.equal(plain[0], drafted[0]) and plain[1] == drafted[1]
    assert plain[2] is None


def test_with_kept_noise_the_last_visit_comes_again(tmp_path, monkeypatch):
    """Oracle: closed form: with a learning rate near 0 a second visit samples what the first did, and all of
    it is accepted. Broken by: the visit's number in the noise."""
    whole = parts.settings_of

    def two_tasks(config, task):
        settings = whole(config, task)
        return dataclasses.replace(settings, tasks=settings.tasks[:2])

    monkeypatch.setattr(parts, "settings_of", two_tasks)
    drafts = {"kind": "previous", "keep_noise": True}
    _, rows, report = trained(tmp_path / "run", True, drafts=drafts, lr=1e-12)
    by_step = {}
    for step, _, _, _, tokens, logprobs, _ in rows:
        if logprobs:
            by_step.setdefault(step, []).append(tuple(tokens))
    assert sorted(by_step[0]) == sorted(by_step[1]) == sorted(by_step[3])
    assert report.proposed == report.accepted > 50


def test_drafts_elsewhere_are_refused():
    """Oracle: hand."""
    with pytest.raises(ConfigError, match="engine in this process"):
        config(driver="ray", drafts={"kind": "suffix"})
    with pytest.raises(ConfigError, match=r"without drafts\.kind"):
        config(drafts={"tokens": 3})
