"""`rollwright train --driver ray` as a user runs it: real models, and a driver that is ended and goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray_help import machines, outcome

from rollwright.drive.ray.cluster import connected
from rollwright.errors import ConfigError
from rollwright.events import EmitBatch
from rollwright.learn.checkpoint import newest
from rollwright.runner import Runner
from rollwright.store.journal import check_replay, read
from rollwright.store.layout import CHECKPOINTS, JOURNAL, METRICS
from rollwright.store.run import RunFolder
from rollwright.training.parts import plan_of

TRAIN = [sys.executable, "-m", "rollwright.cli.main", "train"]
WORDS = (
    *("lake", "--num-steps", "4", "--num-tasks", "4", "--seed", "3", "--chunk", "4", "--threads", "1"),
    *("--checkpoint-every", "2", "--eval-every", "2", "--eval-tasks", "10", "--device", "cpu"),
    *("--method-options.each", "4"),
)
ON_RAY = ("--driver", "ray", "--ray.workers", "2", "--ray.worker-cpus", "0.5")


def train(*words: str) -> None:
    done = subprocess.run([*TRAIN, *words], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr


def whole(folder: Path) -> dict[str, object]:
    """Return what two equal runs have in common; checks that the journal replays on the way."""
    method, _, settings = plan_of(RunFolder.view(folder).config())
    runner, batches = Runner(method, settings), []

    def fold(event):
        commands = runner.step(event)
        batches.extend(c for c in commands if isinstance(c, EmitBatch))
        return commands

    check_replay(folder / JOURNAL, fold)
    runner.ledger.check()
    path = newest(folder / CHECKPOINTS)
    names = ("success", "num_rollouts", "num_tokens")
    rows = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "evaluation"]
    return {
        "rollouts": outcome(batches),
        "fates": dict(runner.ledger.fates),
        "weights": {file.name: file.read_bytes() for file in sorted(path.glob("*.safetensors"))},
        "files": sorted(file.name for file in path.iterdir()),
        "evaluations": {row["step"]: [row[f"sampled_{name}"] for name in names] for row in rows},
    }


def differences(a: dict[str, object], b: dict[str, object]) -> list[str]:
    return [name for name in a if a[name] != b[name]]


def end_at_record(words: tuple[str, ...], folder: Path, num: int, how: int) -> int:
    """Start a run, send it a signal once its journal has so many records; return how it ended."""
    process = subprocess.Popen([*TRAIN, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    journal = folder / JOURNAL
    while process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > num:
            process.send_signal(how)
            break
        time.sleep(0.01)
    code = process.wait(timeout=120)
    process.stderr.close()
    return code


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_on_ray_is_the_inline_run(tmp_path):
    """Oracle: the inline driver. On two machines, by address: the same tokens, logprobs, rewards,
    evaluations, checkpoint files and weights, bit for bit.
    """
    train(*WORDS, "--out", str(tmp_path / "inline"))
    with machines(2, cpus=1) as cluster:
        train(*WORDS, *ON_RAY, "--address", cluster.address, "--out", str(tmp_path / "ray"))
    expected, got = whole(tmp_path / "inline"), whole(tmp_path / "ray")
    assert len(expected["rollouts"]) == 4 * 4 * 4 and len(expected["evaluations"]) == 3
    assert differences(expected, got) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_driver_that_is_ended_goes_on(tmp_path):
    """Oracle: the inline driver, uninterrupted. The driver is asked to stop, then, resumed, killed; both
    times with a cluster of its own. What was acknowledged stays, and the end is the same, bit for bit.
    """
    train(*WORDS, "--out", str(tmp_path / "inline"))
    folder = tmp_path / "ray"
    num = (tmp_path / "inline" / JOURNAL).read_bytes().count(b"\n")
    code = end_at_record((*WORDS, *ON_RAY, "--out", str(folder)), folder, num // 3, signal.SIGTERM)
    assert code == 130
    stopped = (folder / JOURNAL).read_bytes()
    resume = ("--resume", str(folder))
    assert end_at_record(resume, folder, 2 * num // 3, signal.SIGKILL) == -signal.SIGKILL
    killed = (folder / JOURNAL).read_bytes()
    killed = killed[: killed.rfind(b"\n") + 1]
    train(*resume)
    last = (folder / JOURNAL).read_bytes()
    assert last.startswith(killed) and killed.startswith(stopped) and len(last) > len(killed) > len(stopped)
    assert sum(type(event).__name__ == "Resumed" for event, _ in read(folder / JOURNAL)) == 2
    expected, got = whole(tmp_path / "inline"), whole(folder)
    assert expected.pop("evaluations").items() <= got["evaluations"].items()  # a resume evaluates too
    assert differences(expected, got) == []


@pytest.mark.slow
def test_nothing_of_ray_is_loaded_by_other_runs(tmp_path):
    """Oracle: the loaded modules, after a whole inline run in a process of its own."""
    code = (
        "import sys; from rollwright.cli.main import main\n"
        "words = ['lake', '--num-steps', '1', '--num-tasks', '2', '--max-tokens', '4', '--threads', '1']\n"
        "assert main(['train', *words, '--method-options.each', '2', '--out', sys.argv[1]]) == 0\n"
        "print([name for name in sys.modules if name == 'ray' or name.startswith('ray.')])"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_settings_of_ray_need_its_driver(tmp_path):
    """Oracle: the exit code and the words. Nothing is accepted and ignored."""
    words = [*TRAIN, "lake", "--out", str(tmp_path / "run"), "--ray.workers", "3", "--address", "auto"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "address and [ray] given with driver = 'inline'" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1"])
def test_an_address_where_nobody_answers(address):
    """Oracle: the error's words, at once. The handlers of signals are as they were."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConfigError, match=r"where no cluster answers .*host:port"), connected(address):
        pass
    assert signal.getsignal(signal.SIGTERM) == before
