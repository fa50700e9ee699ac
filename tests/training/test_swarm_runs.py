"""Whole runs that share rollouts: each trains the share it was asked for, and a death loses nothing."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import torch

from rollwright.config import RunConfig, SwarmConfig
from rollwright.errors import ConfigError
from rollwright.events import EmitBatch, Published, Received
from rollwright.runner import Runner
from rollwright.store.journal import check_replay, read
from rollwright.store.layout import JOURNAL, METRICS
from rollwright.store.rows import load_rows
from rollwright.swarm.text import Parcel, sources
from rollwright.training import Training
from rollwright.training.parts import build


class Crash(BaseException):
    """Neither caught nor handled by anyone, like a kill."""


def config(folder: Path, node: str, **changes):
    fields = {
        "task": "lake",
        "method": "sapo",
        "num_steps": 3,
        "num_tasks": 2,
        "checkpoint_every": 100,
        "threads": 1,
        "device": "cpu",
        "max_tokens": 8,
        "method_options": {"each": 4, "external": 2},
        "swarm": SwarmConfig(str(folder), node),
    }
    return RunConfig(**{**fields, **changes})


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def finish(training: Training) -> Training:
    assert training.run() == "all steps done"
    return training


def steps_of(run: Path):
    return [row for row in load_rows(run / METRICS).rows if row["kind"] == "step"]


def check_books(runner: Runner) -> None:
    """Every own token has one fate, and nothing of others is among them."""
    runner.ledger.check()
    assert runner.ledger.fates["held"] == 0 and runner.ledger.spent["sampled_tokens"] > 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Return a folder in which one run has shared three steps."""
    folder = tmp_path_factory.mktemp("swarm")
    finish(
        Training.start(
            config(folder / "place", "anna", seed=7, num_tasks=4), folder / "anna", lambda row: None
        )
    )
    return folder / "place"


def test_a_run_trains_what_another_shared(shared: Path, tmp_path: Path):
    """Oracle: slow reference. Foreign groups in the share asked for, each once, as the author published them;
    the journal replays without the folder, and a fresh learner has the same weights from it."""
    place = shutil.copytree(shared, tmp_path / "place")
    cfg = config(place, "ben")
    training = finish(Training.start(cfg, tmp_path / "run", lambda row: None))
    shutil.rmtree(place)
    parts, batches, foreign = build(alone(cfg)), {}, []
    runner = Runner(parts.method, parts.settings)

    def fold(event):
        commands = runner.step(event)
        if isinstance(event, Published):
            batch = batches.pop(event.version - 1)
            parts.learner.update(batch.groups, batch.version)
        for command in commands:
            if isinstance(command, EmitBatch):
                batches[command.version] = command
                foreign.append([group for group in command.groups if sources(group)])
        return commands

    assert check_replay(tmp_path / "run" / JOURNAL, fold) > 0
    assert torch.equal(weights(parts.model), weights(training.parts.model))
    assert [len(groups) for groups in foreign] == [2, 2, 2]
    assert [row["num_groups_foreign"] for row in steps_of(tmp_path / "run")] == [2, 2, 2]
    parcels = [msgspec.json.decode(path.read_bytes(), type=Parcel) for path in (shared / "anna").iterdir()]
    told = {f"anna!{group.id}": group for parcel in parcels for group in parcel.groups}
    names = [group.id for groups in foreign for group in groups]
    assert len(set(names)) == 6
    for group in (group for groups in foreign for group in groups):
        assert [t.reward for t in group.trajectories] == [r.reward for r in told[group.id].rollouts]
        for t, rollout in zip(group.trajectories, told[group.id].rollouts, strict=True):
            said = [parts.world.text(node.tokens) for node, _ in group.path(t.leaf)[1:]]
            assert said == [turn.text for turn in rollout.turns]
    check_books(runner)


def alone(cfg: RunConfig) -> RunConfig:
    """Return the config without its swarm: what a reader of the journal needs."""
    return dataclasses.replace(cfg, swarm=SwarmConfig())


def test_a_crash_loses_nothing_and_reads_nothing_twice(shared: Path, tmp_path: Path):
    """Oracle: metamorphic. Die with an update made and not recorded: given the same pool, the same weights,
    the same published files, each foreign file received once."""
    ends = {}
    for name in ("whole", "crashed"):
        place = shutil.copytree(shared, tmp_path / name / "place")
        training = Training.start(config(place, "ben"), tmp_path / name / "run", lambda row: None)
        if name == "crashed":
            kept = training.parts.learner.update

            def dying(groups, version, kept=kept):
                figures = kept(groups, version)
                if version == 1:
                    raise Crash
                return figures

            training.parts.learner.update = dying
            with pytest.raises(Crash):
                training.run()
            training = Training.resume(tmp_path / name / "run", lambda row: None)
        finish(training)
        received = [e.source for e, _ in read(tmp_path / name / "run" / JOURNAL) if isinstance(e, Received)]
        assert sorted(received) == [f"anna/{step:08d}" for step in range(3)]
        files = {path.name: path.read_bytes() for path in (place / "ben").iterdir()}
        assert len(files) == 3
        check_books(training.runner)
        ends[name] = weights(training.parts.model), files
    assert torch.equal(ends["whole"][0], ends["crashed"][0])
    assert ends["whole"][1] == ends["crashed"][1]


def test_settings_that_cannot_share_are_refused(tmp_path: Path):
    """Oracle: enumeration. A method that takes nothing, half a section, a name that is a path."""
    with pytest.raises(ConfigError, match="choose sapo"):
        Training.start(config(tmp_path, "ben", method="grpo", method_options={}), tmp_path / "run", print)
    for swarm in (SwarmConfig("place", ""), SwarmConfig("", "ben"), SwarmConfig("place", "../ben")):
        with pytest.raises(ConfigError, match=r"swarm"):
            config(tmp_path, "ben", swarm=swarm)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_processes_share_and_one_is_killed(tmp_path: Path):
    """Real processes and SIGKILL: the others end, what the dead one shared stays, it goes on where it was."""
    place, python = tmp_path / "place", [sys.executable, "-m", "rollwright.cli.main", "train"]
    words = "lake --method sapo --method-options.external 2 --num-tasks 4 --threads 1 --checkpoint-every 2"
    nodes = {"anna": 6, "ben": 6, "cleo": 40}
    started = {}
    for seed, (node, num_steps) in enumerate(nodes.items()):
        args = f"{words} --num-steps {num_steps} --seed {seed} --swarm.every-s 0.05".split()
        args += ["--swarm.folder", str(place), "--swarm.node", node, "--out", str(tmp_path / node)]
        started[node] = subprocess.Popen([*python, *args], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while len(list(place.glob("cleo/*.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    started["cleo"].send_signal(signal.SIGKILL)
    started["cleo"].wait()
    left = {path.name: path.read_bytes() for path in place.glob("cleo/*.json")}
    assert [started[node].wait(300) for node in ("anna", "ben")] == [0, 0]
    resumed = [*python, "--resume", str(tmp_path / "cleo"), "--num-steps", str(len(left) + 4)]
    subprocess.run(resumed, check=True, stdout=subprocess.DEVNULL, timeout=300)
    for name, data in left.items():
        assert (place / "cleo" / name).read_bytes() == data
    for node in nodes:
        events = [event for event, _ in read(tmp_path / node / JOURNAL)]
        heard = [event.source for event in events if isinstance(event, Received)]
        assert len(heard) == len(set(heard)) and not any(source.startswith(node) for source in heard)
        parts = build(
            RunConfig(task="lake", method="sapo", method_options={"external": 2}, num_tasks=4, threads=1)
        )
        runner = Runner(parts.method, parts.settings)
        for event in events:
            runner.step(event)
        check_books(runner)
    rows = [row for node in nodes for row in steps_of(tmp_path / node)]
    assert all(row["num_groups_foreign"] <= 2 for row in rows)
    assert sum(row["num_groups_foreign"] for row in steps_of(tmp_path / "cleo")) > 0
