"""`rollwright eval` on a shipped model: its numbers against its own samples, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from rollwright.cli.main import main
from rollwright.config import from_values
from rollwright.engine.shipped import CHECKPOINTS
from rollwright.errors import ConfigError, UnknownName
from rollwright.evaluate.decoding import DecodingPolicy, best, decode
from rollwright.evaluate.measures import pass_at_k
from rollwright.evaluate.measuring import (
    JOINT,
    Bench,
    Condition,
    next_logp_of,
    parse_perturbations,
    prompt_features,
)
from rollwright.tree import Origin, Sampling

MODEL = CHECKPOINTS / "lake"


@pytest.fixture(scope="module")
def bench() -> Bench:
    values = {
        "task": "lake",
        "model": str(MODEL),
        "threads": 1,
        "device": "cpu",
        "eval_tasks": 6,
        "eval_every": 1,
    }
    return Bench(from_values(values))


def test_the_command_says_what_its_samples_say(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the same samples taken through the bench.

    Kills: samples of another temperature, tasks mixed up.
    """
    words = [
        "eval",
        str(MODEL),
        "--task",
        "lake",
        "--num",
        "6",
        "--samples",
        "4",
        "--threads",
        "1",
        "--device",
        "cpu",
    ]
    more = [
        "--perturb",
        "temperature=1.5",
        "--perturb",
        "prefix=Hm. ",
        "--base",
        str(MODEL),
        "--difficulty",
        "--json",
    ]
    assert main([*words, *more]) == 0
    facts = json.loads(capsys.readouterr().out)
    taken = bench.take(4)
    right = {task: sum(taken.success[task, k] for k in range(4)) for task in bench.tasks}
    by_name = {(one["name"], one["k"]): one["mean"] for one in facts["measures"]["measured"]}
    for k in (1, 2, 4):
        assert by_name["pass", k] == pytest.approx(np.mean([pass_at_k(4, c, k) for c in right.values()]))
    assert by_name["pass", 1] == pytest.approx(facts["sampled"]["success"])
    assert facts["sampled"]["right"] == [right[task] for task in sorted(bench.tasks)]
    assert facts["measures"]["num_tokens"] == facts["sampled"]["num_tokens"]
    assert facts["perturbed"]["num"] == 24 and set(facts["perturbed"]["singles"]) == {
        *("temperature=1.5", "prefix=Hm. "),
    }
    assert facts["exchange"]["ks"] == [1, 2, 4] and facts["exchange"]["rule"]["num"] >= 2
    assert set(facts["difficulty"]) >= {"brier", "mae", "spearman", "auc"} and "suspects" in facts


def test_conditions_change_what_they_say_and_nothing_else(bench: Bench) -> None:
    """Oracle: metamorphic. Kills: a change that is not made, noise that is not shared."""
    plain = bench.take(2)
    assert bench.take(2, condition=Condition("same", {"temperature": 1.0})).samples == plain.samples
    greedy = bench.take(2, condition=Condition("cold", {"temperature": 0.0})).samples
    assert all(greedy[task, 0].num_tokens == greedy[task, 1].num_tokens for task in bench.tasks)
    short = bench.take(1, condition=Condition("short", {"max_turns": 1})).samples
    assert all(sample.num_tokens <= 4 for sample in short.values())
    slippery = bench.take(2, condition=Condition("slip", {"task_options.slip": 0.9}))
    assert slippery.samples.keys() == plain.samples.keys() and slippery.samples != plain.samples
    assert bench.take(2, condition=Condition("said", {"prefix": "x"})).samples != plain.samples
    num = [0]
    bench.take(1, on_graded=lambda: num.__setitem__(0, num[0] + 1))
    assert num == [len(bench.tasks)]


def test_a_greedy_policy_is_the_engine(bench: Bench) -> None:
    """Oracle: other implementation, the engine's greedy turn; and best-of-N never below one sample's logprob.

    Kills: logits of another position than the last, texts of different lengths that mix.
    """
    from rollwright.training.evaluate import evaluate

    settings = dataclasses.replace(bench.parts.settings, max_turns=1)
    _, groups = evaluate(bench.parts.engine, bench.parts.world, settings, bench.tasks, 1, Sampling(0.0))
    next_logp = next_logp_of(bench.parts.model)
    for group in groups:
        (t,) = group.trajectories
        path = group.path(t.leaf)
        mine = next(node for node, _ in path if node.origin is Origin.SAMPLED)
        policy = DecodingPolicy(propose="top", max_tokens=mine.num_steps)
        (found,), spent = decode(policy, next_logp, group.root.tokens, eos=-1)
        assert found.tokens == mine.tokens and spent == mine.num_steps
        assert found.logp == pytest.approx(sum(logps_of(next_logp, group, mine)))
    texts, _ = decode(DecodingPolicy(width=6, max_tokens=3), next_logp, group.root.tokens, eos=-1)
    assert best(texts).logp == max(text.logp for text in texts)


def logps_of(next_logp, group, node) -> list[float]:
    """Log probabilities of a node's tokens, one text at a time."""
    prompt = group.root.tokens
    return [float(next_logp([(*prompt, *node.tokens[:k])])[0][token]) for k, token in enumerate(node.tokens)]


def test_features_of_prompts_by_hand(bench: Bench) -> None:
    """Oracle: slow reference, one prompt at a time in float64 numpy.

    Kills: prompts that leak into each other.
    """
    import torch

    model, prompts = bench.parts.model, bench.prompts()
    together = prompt_features(model, prompts)
    for prompt, row in zip(prompts[:3], together, strict=False):
        with torch.no_grad():
            logits = model.logits(model.hidden_packed(torch.tensor(prompt), [len(prompt)])).double().numpy()
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        entropy = -(p * np.log(p)).sum(-1)
        surprise = -np.log(p[np.arange(len(prompt) - 1), prompt[1:]])
        values = [entropy.mean(), entropy.max(), surprise.mean(), surprise.max(), np.log(len(prompt))]
        assert row == pytest.approx(values, rel=1e-3, abs=1e-4)
    assert prompt_features(model, prompts, at_once=1) == pytest.approx(together, rel=1e-3, abs=1e-4)


def test_perturbations_as_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: hand. Kills: an unknown key that is passed over, one perturbation that is called several."""
    found = parse_perturbations(["temperature=1.5", "max-tokens=20", "prefix=12"])
    assert [one.changes for one in found[:3]] == [{"temperature": 1.5}, {"max_tokens": 20}, {"prefix": "12"}]
    assert found[3] == Condition(JOINT, {"temperature": 1.5, "max_tokens": 20, "prefix": "12"})
    for texts in (["top_p=0.5"], ["top_p=0.5", "top_p=0.7"], ["top_p=0.5", "min_p"]):
        with pytest.raises(ConfigError):
            parse_perturbations(texts)
    with pytest.raises(UnknownName, match="did you mean 'temperature'"):
        parse_perturbations(["temprature=1", "top_p=0.5"])
    assert main(["eval", str(MODEL), "--task", "lake", "--perturb", "top_p=0.5"]) == 2
    assert "at least two" in capsys.readouterr().err
    assert main(["eval", str(MODEL), "--task", "lake", "--base", str(Path("nowhere"))]) != 0
