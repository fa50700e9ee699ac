"""Warm starts: masks, loss, determinism, and the checkpoints that ship."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rollwright.engine.checkpoint import load_model, load_tokenizer
from rollwright.errors import ConfigError, DataError
from rollwright.tasks import warmstart as module
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.registry import load_task, shipped_checkpoint
from rollwright.tasks.tokenizer import EOS_ID, character_tokenizer
from rollwright.tasks.warmstart import batches, demonstration_loss, encode_episode, train, warmstart

TOKENIZER = character_tokenizer()
SMALL = Recipe(steps=3, batch=4, width=16, num_layers=1, num_heads=1, inner=16)


def test_only_turns_are_targets_and_end_as_a_policy_would_end_them():
    """Oracle: the episode by hand; kills training on observations, and a turn without its end token."""
    lake, calc = load_task("lake"), load_task("calc")
    tokens, is_sampled = encode_episode(lake, TOKENIZER, "lake/train/0", ["R\n", "a2\n", "D\n", "b2\n"])
    prompt = lake.prompt("lake/train/0")
    assert TOKENIZER.decode(tokens) == prompt + "R\na2\nD\nb2\n"
    assert is_sampled == [False] * len(prompt) + [True] * 2 + [False] * 3 + [True] * 2 + [False] * 3
    tokens, is_sampled = encode_episode(calc, TOKENIZER, "calc/train/0", ["8*3=", "24\n", "#24"])
    assert tokens[-1] == EOS_ID and tokens.count(EOS_ID) == 1
    assert sum(is_sampled) == 4 + 3 + 1 and is_sampled[-1]


def test_loss_is_the_mean_over_sampled_tokens():
    """Oracle: slow reference, one sequence at a time and token by token; kills an off-by-one target."""
    task = load_task("calc")
    batch = next(batches(task, TOKENIZER, replace(SMALL, batch=6), seed=1))
    model = module.fresh_model(module.decoder_config(SMALL, TOKENIZER.get_vocab_size()), seed=0)
    losses = []
    for tokens, is_sampled in batch:
        logits = model.logits(model.hidden_packed(torch.tensor(tokens), [len(tokens)]))
        for t, flag in enumerate(is_sampled):
            if flag:
                losses.append(-F.log_softmax(logits[t - 1], -1)[tokens[t]].item())
    assert demonstration_loss(model, batch).item() == pytest.approx(np.mean(losses), abs=1e-5)


def test_first_steps_are_clean_where_the_recipe_says_so():
    """Oracle: the noise that the task is asked for, step by step."""
    asked = []

    class Spy:
        def __getattr__(self, name):
            return getattr(load_task("lake"), name)

        def demonstrate(self, task_id, rng, noise):
            asked.append(noise)
            return ["R\n", "a2\n"]

    list(batches(Spy(), TOKENIZER, replace(SMALL, steps=4, batch=1, clean_share=0.5, noise=0.4), seed=0))
    assert asked == [0.0, 0.0, 0.4, 0.4]


def test_same_seed_same_weights_and_the_loss_falls():
    """Oracle: metamorphic; kills a source of randomness that the seed does not reach."""
    task = load_task("lake")
    losses = []
    one, two = (
        train(task, TOKENIZER, replace(SMALL, steps=25), 5, lambda *args: losses.append(args[-1]))
        for _ in range(2)
    )
    other = train(task, TOKENIZER, SMALL, 6)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.embed, other.embed)
    assert losses[:25] == losses[25:] and losses[24] < losses[0] - 0.2


def test_warmstart_leaves_a_checkpoint_with_its_record(tmp_path):
    """Oracle: the files read back; kills a record that lacks what made it."""
    seen = []
    record = warmstart(
        "lake", tmp_path / "m", seed=3, steps=2, batch=4, num_eval=3, num_samples=2,
        progress=lambda *args: seen.append(args[:2]),
    )  # fmt: skip
    assert seen == [(1, 2), (2, 2)]
    assert json.loads((tmp_path / "m" / "warmstart.json").read_text()) == record
    assert record["command"] == "rollwright warmstart lake --seed 3 --steps 2 --batch 4"
    assert record["held_out"]["sampled"]["num_rollouts"] == 6
    assert load_model(tmp_path / "m").num_parameters == record["num_parameters"]
    assert load_tokenizer(tmp_path / "m").eos_ids == (EOS_ID,)
    with pytest.raises(ConfigError, match=r"noise=1\.5"):
        warmstart("lake", tmp_path / "m", noise=1.5)
    (tmp_path / "one.jsonl").write_text('{"prompt": "2+2=", "answer": 4}')
    with pytest.raises(DataError, match="holds no instance out"):
        warmstart(f"jsonl:{tmp_path / 'one.jsonl'}", tmp_path / "m", steps=1)


@pytest.mark.parametrize("name", ["countdown", "lake", "calc", "sudoku"])
def test_shipped_checkpoints_are_small_and_their_records_say_what_they_reach(name):
    """Oracle: the requirement: 20-50% sampled on held-out tasks, a few MB, with the command."""
    folder = shipped_checkpoint(name)
    assert folder is not None
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4e6
    record = json.loads((folder / "warmstart.json").read_text())
    assert record["command"].startswith(f"rollwright warmstart {name}")
    held_out = record["held_out"]
    assert 0.2 <= held_out["sampled"]["success"] <= 0.5
    assert held_out["sampled"]["num_tasks"] >= 300 and held_out["sampled"]["num_not_scored"] == 0
    assert held_out["greedy"]["low"] <= held_out["greedy"]["success"] <= held_out["greedy"]["high"]


@pytest.mark.parametrize("name", ["countdown", "lake", "calc", "sudoku"])
def test_documented_figures_are_the_recorded_ones(name):
    """Oracle: the record; kills documentation that outlives its checkpoint."""
    record = json.loads((shipped_checkpoint(name) / "warmstart.json").read_text())
    cells = [f"`{record['command']}`"]
    for kind in ("sampled", "greedy"):
        one = record["held_out"][kind]
        cells.append(f"{100 * one['success']:.1f}% [{100 * one['low']:.1f}, {100 * one['high']:.1f}]")
    assert " | ".join(cells) in (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    assert record["recipe"] == asdict(load_task(name).recipe)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["countdown", "lake", "calc", "sudoku"])
def test_shipped_checkpoints_measure_as_recorded(name):
    """Oracle: golden: the record. The noise is the same, so only the arithmetic's order may differ."""
    folder = shipped_checkpoint(name)
    record = json.loads((folder / "warmstart.json").read_text())["held_out"]
    again = module.measure(name, folder, 200, 2)
    for kind in ("sampled", "greedy"):
        assert abs(again[kind]["success"] - record[kind]["success"]) < 0.1
