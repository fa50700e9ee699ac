"""What is typed wrong is refused with what was meant, before anything starts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from rollwright.cli import launch
from rollwright.cli.main import _COMMANDS
from rollwright.config import (
    Deadlines,
    RunConfig,
    load_config,
)
from rollwright.drive.ray.settings import CrewSettings
from rollwright.errors import StoreError
from rollwright.ledger import Unit


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Configs that training was started with, instead of training."""
    found: list[RunConfig] = []

    def start(config: RunConfig, console: object) -> tuple[int, Path]:
        found.append(config)
        return 0, Path("run")

    monkeypatch.setattr(launch, "start", start)
    return found


GIVEN = {
    "method": "dapo",
    "model": "m",
    "reward": "r.py:f",
    "seed": 7,
    "num_steps": 9,
    "num_tasks": 3,
    "max_tokens": 11,
    "context": 99,
    "max_turns": 2,
    "chat": "off",
    "chunk": 5,
    "lr": 1e-5,
    "betas": (0.8, 0.95),
    "weight_decay": 0.1,
    "max_grad_norm": 2.0,
    "num_updates": 2,
    "micro_batch_tokens": 64,
    "eval_every": 5,
    "eval_tasks": 6,
    "eval_samples": 3,
    "checkpoint_every": 4,
    "keep_checkpoints": 3,
    "threads": 1,
    "device": "cpu",
    "retries": 0,
    "on_failure": "drop_group",
    "max_age": 4,
    "num_ahead": 2,
    "max_carry": 3,
    "driver": "ray",
    "address": "auto",
    "out": "somewhere",
    "sampling.temperature": 0.7,
    "sampling.top_p": 0.9,
    "sampling.top_k": 5,
    "sampling.min_p": 0.1,
    **{f"deadlines.{f.name}": 1.0 + k for k, f in enumerate(fields(Deadlines))},
    "failures.backoff_s": 0.5,
    "failures.min_group": 2,
    "failures.quarantine_after": 3,
    "failures.quarantine_visits": 4,
    "failures.retries.grader": 5,
    "failures.on_failure.engine": "stop",
    **{f"ray.{f.name}": type(f.default)(7 + k) for k, f in enumerate(fields(CrewSettings))},
    "swarm.folder": "shared",
    "swarm.node": "n1",
    "swarm.every_s": 2.0,
    "rewards.timeout_s": 3.0,
    "rewards.isolation": "thread",
    "rewards.workers": 2,
    "rewards.memory_mb": 900,
    "rewards.conversational": True,
    "rewards.weights.f": 0.5,
    **{f"budget.{unit.value}": 10.0 + k for k, unit in enumerate(Unit)},
}


# They need another driver than the address does.
OVERLAP = {
    "driver": "async",
    "overlap.graders": 2,
    "overlap.environments": 3,
    "overlap.publish": "drain",
    "server.url": "http://127.0.0.1:9",
    "server.model": "served",
    "server.weights": "handed-over",
}

DRAFTS = {"drafts.kind": "suffix", "drafts.tokens": 4, "drafts.keep_noise": True}


def _words(given: dict[str, object]) -> list[str]:
    words = []
    for key, value in given.items():
        words.append(f"--{key.replace('_', '-')}")
        if value is not True:  # a switch
            words += map(str, value) if isinstance(value, tuple) else [str(value)]
    return words


def _get(config: RunConfig, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


def test_every_key_is_a_flag(rollwright, started) -> None:
    """Oracle: enumeration of the config's own fields. Kills: a key that no flag sets."""
    sections = {name: hint for name, hint in get_type_hints(RunConfig).items() if is_dataclass(hint)}
    expected = {
        f"{f.name}.{g.name}" if f.name in sections else f.name
        for f in fields(RunConfig)
        for g in (fields(sections[f.name]) if f.name in sections else (f,))
    } - {"task", "resume", "budget", "method_options", "task_options"}
    given = {
        ".".join(key.split(".")[:2]) for key in (*GIVEN, *OVERLAP, *DRAFTS) if not key.startswith("budget.")
    }
    assert expected == given
    for number, some in enumerate((GIVEN, OVERLAP, DRAFTS)):
        assert rollwright("train", "lake", *_words(some)).code == 0
        assert started[number].task == "lake"
        assert {key: _get(started[number], key) for key in some} == some


def test_help_says_no_default_that_is_none(rollwright) -> None:
    """Oracle: the words of the help. Kills: the marker of a missing default shown to people."""
    assert "MISSING" not in rollwright("train", "--help").out


def test_flags_override_the_file_and_the_file_the_defaults(rollwright, started, tmp_path) -> None:
    """Oracle: the file read on its own, with the flags' keys replaced."""
    file = tmp_path / "c.toml"
    file.write_text('task = "lake"\nlr = 1e-3\nseed = 5\n[sampling]\ntop_k = 4\n[method_options]\neach = 2\n')
    words = ("--lr", "2e-3", "--sampling.top-p", "0.5", "--method-options.clip-high", "0.3")
    assert rollwright("train", "--config", file, *words).code == 0
    more = {"lr": 2e-3, "sampling.top_p": 0.5, "method_options.clip_high": 0.3}
    assert started == [load_config(file, more)]
    assert started[0].seed == 5 and started[0].sampling.top_k == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("0.5", 0.5), ("true", True), ("token_mean", "token_mean"), ("[1, 2]", [1, 2]), ("1e3", 1e3)],
)
def test_method_options_are_read_as_toml(rollwright, started, text, value) -> None:
    """Oracle: TOML's own types. Kills: every option a string."""
    assert rollwright("train", "lake", "--method-options.some-thing", text).code == 0
    assert started[0].method_options == {"some_thing": value}
    assert type(started[0].method_options["some_thing"]) is type(value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tran"], "unknown command 'tran', did you mean 'train'?"),
        (["train", "lake", "--sed", "3"], "'--sed', did you mean '--seed'?"),
        (["train", "lake", "--sampling.temprature", "1"], "did you mean '--sampling.temperature'?"),
        (["train", "lake", "--budget.rolouts", "1"], "did you mean '--budget.rollouts'?"),
        (["train", "lake", "pond"], "does not know what to do with 'pond'"),
        (["train", "lake", "--lr", "fast"], "--lr"),
        (["train", "lake", "--lr"], "--lr"),
        (["train", "lake", "--lr", "-1"], "lr: given -1.0, expected a number > 0"),
        (["train", "lake", "--on-failure", "ignore"], "drop_sample"),
        (["train", "lake", "--seed", "1", "--seed", "2"], "--seed"),
        (["train"], "no task is given"),
        (["train", "lake", "--checkpoint-every", "0", "--resume", "r"], "lake, --checkpoint-every"),
        (["train", "--resume", "r", "--seed", "3", "--num-steps", "9"], "--seed"),
        (["show"], "requires an argument"),
        (["eval", "nowhere"], "nowhere"),
        (["methods", "dap"], "unknown method 'dap', did you mean 'dapo'?"),
    ],
)
def test_wrong_words(rollwright, started, words, said) -> None:
    """Oracle: golden parts of the messages. Kills: a wrong flag that is passed over, a traceback."""
    result = rollwright(*words)
    assert started == []
    assert said in result.err
    assert "Traceback" not in result.err
    assert result.code == (1 if words[0] == "eval" else 2)


def test_unknown_key_of_a_file(rollwright, started, tmp_path) -> None:
    """Oracle: case G02 (a misspelt key is an error with what was meant)."""
    file = tmp_path / "c.toml"
    file.write_text('task = "lake"\ntemprature = 0.7\n')
    result = rollwright("train", "--config", file)
    assert (result.code, started) == (2, [])
    assert "unknown key 'temprature', did you mean 'temperature'?" in result.err


def test_resume_in_a_file_is_refused(rollwright, started, tmp_path) -> None:
    """Oracle: a run that goes on has its own config, so nothing beside it may be accepted and ignored."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "config.toml").write_text("")
    (tmp_path / "r" / "journal.jsonl").write_text("")
    file = tmp_path / "c.toml"
    file.write_text(f'task = "lake"\nlr = 1.0\nresume = "{tmp_path / "r"}"\n')
    result = rollwright("train", "--config", file)
    assert (result.code, started) == (2, [])
    assert "a run that goes on has its own config" in result.err


def test_errors_are_messages_and_debug_shows_where(rollwright, monkeypatch) -> None:
    """Oracle: exit code 1 with the message alone; with --debug the traceback as well."""

    def start(config: RunConfig, console: object) -> tuple[int, Path]:
        raise StoreError("the disk is on fire")

    monkeypatch.setattr(launch, "start", start)
    result = rollwright("train", "lake")
    assert (result.code, result.err) == (1, "rollwright: the disk is on fire\n")
    result = rollwright("train", "lake", "--debug")
    assert result.code == 1 and "Traceback" in result.err and "in start" in result.err


def test_ctrl_c_before_anything_began(rollwright, monkeypatch) -> None:
    """Oracle: exit code 130 and no traceback."""

    def start(config: RunConfig, console: object) -> tuple[int, Path]:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "start", start)
    assert rollwright("train", "lake") == (130, "", "rollwright: stopped\n")


def test_help_of_every_command_needs_no_torch() -> None:
    """Oracle: the modules of a real process. Kills: a help text that takes seconds to come."""
    code = (
        "import sys\nfrom rollwright.cli.main import main, _COMMANDS\n"
        "codes = [main([]), *(main([name, '--help']) for name in _COMMANDS)]\n"
        "heavy = [name for name in ('torch', 'duckdb', 'matplotlib', 'pyarrow') if name in sys.modules]\n"
        "print('RESULT', codes, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == f"RESULT {[0] * (1 + len(_COMMANDS))} []", done.stderr
    for word in ("--method-options", "Exit codes", "For example", "130 stopped"):
        assert word in done.stdout


def test_version(rollwright) -> None:
    """Oracle: the installed distribution's metadata."""
    from importlib.metadata import version

    assert rollwright("--version").out.strip() == version("rollwright")
