"""`rollwright methods`, `rollwright tasks`, `rollwright warmstart` and `rollwright demo`."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex

import pytest

from rollwright.cli import demo as demo_module
from rollwright.cli.docstrings import arguments, first_line, source
from rollwright.cli.main import app
from rollwright.discovery import load_method, method_factories
from rollwright.tasks.registry import load_task, task_factories


def example(width: int, num: int = 3) -> None:
    """Do one thing.

    More words.

    Args:
        width, height: in metres,
            at least 1.
        num: how many: any.

    Returns:
        other: nothing.

    Source: A paper (2401.00001),
    second line.

    After it.
    """


def test_docstrings_are_read() -> None:
    """Oracle: golden. Kills: continuation lines lost, entries of other sections taken for arguments."""
    assert first_line(example) == "Do one thing."
    assert arguments(example) == {
        "width": "in metres, at least 1.",
        "height": "in metres, at least 1.",
        "num": "how many: any.",
    }
    assert source(example) == "A paper (2401.00001), second line."
    assert (first_line(len.__class__), arguments(None.__class__), source(None.__class__))[1:] == ({}, "")


def test_methods(rollwright) -> None:
    """Oracle: the factories' own signatures. Kills: a method or option that the list lacks."""
    facts = {entry["name"]: entry for entry in json.loads(rollwright("methods", "--json").out)}
    factories = method_factories()
    assert facts.keys() == factories.keys()
    text = rollwright("methods").out
    for name, factory in factories.items():
        options = {key: p.default for key, p in inspect.signature(factory).parameters.items()}
        assert {key: option["default"] for key, option in facts[name]["options"].items()} == options
        assert all(option["text"] for option in facts[name]["options"].values()), name
        assert facts[name]["does"] and facts[name]["source"] and name in text
        one = rollwright("methods", name)
        assert one.code == 0
        assert all(type(stage).__name__ in one.out for _, stage in load_method(name).stages())
        assert all(f"--method-options.{key.replace('_', '-')}"[:28] in one.out for key in options)


def test_tasks(rollwright) -> None:
    """Oracle: the registry; the task's own first held-out prompt."""
    facts = json.loads(rollwright("tasks", "--json").out)
    assert [entry["name"] for entry in facts] == sorted(task_factories())
    assert all(entry["is"] for entry in facts)
    text = rollwright("tasks").out
    for name in ("calc", "countdown", "lake", "sudoku"):
        assert name in text
        task = load_task(name)
        one = rollwright("tasks", name).out
        assert task.prompt(task.ids("test")[0]).splitlines()[0] in one
        fact = json.loads(rollwright("tasks", name, "--json").out)
        assert (fact["num_test"], fact["max_turns"]) == (len(task.ids("test")), task.max_turns)
    result = rollwright("tasks", "lak")
    assert result.code == 2 and "did you mean 'lake'?" in result.err


def test_a_dataset_that_holds_nothing_out(rollwright, tmp_path) -> None:
    """Oracle: the row that is there is shown. Kills: the first of no held-out rows."""
    (tmp_path / "rows.jsonl").write_text('{"prompt": "2+2=", "answer": 4}\n')
    (tmp_path / "mine.py").write_text(
        "from rollwright.tasks.registry import load_task\n"
        f"def all_of_it():\n    return load_task('jsonl:{tmp_path}/rows.jsonl', test_share=0.0)\n"
    )
    shown = rollwright("tasks", f"{tmp_path}/mine.py:all_of_it")
    assert shown.code == 0 and "2+2=" in shown.out and "0 held-out" in shown.out


def test_warmstart(rollwright, tmp_path) -> None:
    """Oracle: the folder trains; the same call again is refused and changes nothing."""
    out = tmp_path / "model"
    words = ("--steps", 2, "--batch", 4, "--num-eval", 3, "--num-samples", 1, "--threads", 1, "--out", out)
    result = rollwright("warmstart", "lake", *words)
    assert result.code == 0 and f"rollwright train lake --model {out}" in result.out
    record = json.loads((out / "warmstart.json").read_text())
    assert record["recipe"]["steps"] == 2 and record["held_out"]["greedy"]["num_tasks"] == 3
    before = (out / "model.safetensors").read_bytes()
    again = rollwright("warmstart", "lake", *words)
    assert again.code == 1 and "not empty" in again.err
    assert (out / "model.safetensors").read_bytes() == before
    result = rollwright("warmstart", "lake", "--steps", 0, "--out", tmp_path / "other")
    assert result.code == 2 and "at least one step" in " ".join(result.err.split())


def test_the_demo_s_preset_can_run() -> None:
    """Oracle: the method's and the config's own checks. Kills: a preset that went stale."""
    config = demo_module.preset(seed=4, seconds=9.0)
    assert (config.seed, config.budget["seconds"], config.task) == (4, 9.0, "countdown")
    assert config.eval_every > 0
    load_method(config.method, **config.method_options)


def test_the_demo(rollwright, tiny_model, tmp_path, monkeypatch) -> None:
    """Oracle: the commands that it proposes are parsed; its picture and run folder are there."""

    def preset(seed, out, seconds):
        config = kept(seed, out, seconds)
        small = {"model": str(tiny_model), "num_steps": 2, "num_tasks": 2, "eval_tasks": 3, "eval_samples": 1}
        return dataclasses.replace(config, **small, max_tokens=8, threads=1)

    kept = demo_module.preset
    monkeypatch.setattr(demo_module, "preset", preset)
    out = tmp_path / "demo"
    result = rollwright("demo", "--seed", 1, "--out", out)
    assert result.code == 0, result.err
    assert (out / "plots" / "summary.png").stat().st_size > 10_000
    for part in ("before", "after 2 updates", "greedy", "trained", str(out)):
        assert part in result.out
    proposed = [
        line.partition("rollwright ")[2] for line in result.out.splitlines() if "  rollwright " in line
    ]
    assert len(proposed) == 4
    for words in proposed:
        app.parse_args(shlex.split(words), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("seconds", [0.0])
def test_the_demo_s_limit_of_seconds(rollwright, tiny_model, tmp_path, monkeypatch, seconds) -> None:
    """Oracle: no time at all is no step, and still a result."""
    kept = demo_module.preset

    def preset(seed, out, seconds):
        small = {"model": str(tiny_model), "eval_tasks": 2, "eval_samples": 1, "max_tokens": 8, "threads": 1}
        return dataclasses.replace(kept(seed, out, seconds), **small)

    monkeypatch.setattr(demo_module, "preset", preset)
    result = rollwright("demo", "--seconds", seconds, "--out", tmp_path / "demo")
    assert result.code == 0 and "the budget of seconds is spent" in result.out
