"""`why` on a real training process: stopped in every phase, suspended, killed, resumed, done."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollwright.config import Deadlines, RunConfig, dump_config
from rollwright.lab.why import Answer, explain
from rollwright.store.journal import read
from rollwright.store.layout import JOURNAL, LOCK

BEGIN = ("checkpoint", "evaluation", "prompt", "tokens", "environment", "grade", "learning", "recording")
GATES = (*BEGIN, "checkpoint", "evaluation", "tokens")
AGAIN = ("resuming", "learning", "checkpoint", "evaluation")


class Process:
    """The program of stuck.py, and how far it is."""

    def __init__(self, folder: Path, gates: tuple[str, ...]) -> None:
        self.folder, self.num = folder, 0
        self.at, self.go = folder.with_name("run.at"), folder.with_name("run.go")
        self.at.unlink(missing_ok=True)
        self.go.unlink(missing_ok=True)
        program = Path(__file__).with_name("stuck.py")
        words = [sys.executable, program, folder, folder.with_name("config.toml"), *gates]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)

    def next_gate(self) -> None:
        """Let it pass where it stands, and wait until it stands at the next gate."""
        self.go_on()
        self.num += 1
        until = time.monotonic() + 90
        while not (self.at.exists() and self.at.read_text() == str(self.num)):
            if self.process.poll() is not None:
                pytest.fail(f"it ended before gate {self.num}: {self.process.communicate()[1]}")
            assert time.monotonic() < until, f"it did not come to gate {self.num}"
            time.sleep(0.01)

    def go_on(self) -> None:
        draft = self.go.with_suffix(".draft")
        draft.write_text(str(self.num))
        draft.rename(self.go)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def prepared(path: Path, eval_every: int) -> Path:
    """Write the config of a run in ``path`` beside it."""
    config = RunConfig(
        task="lake",
        num_steps=2,
        num_tasks=2,
        method_options={"each": 3},
        chunk=1,
        checkpoint_every=1,
        eval_every=eval_every,
        eval_tasks=2,
        eval_samples=1,
        threads=1,
        device="cpu",
        deadlines=Deadlines(rollouts_s=1000.0),
    )
    path.with_name("config.toml").write_text(dump_config(config))
    return path


def test_a_real_run_until_its_first_update(tmp_path) -> None:
    """Oracle: where the process stands, by its own gates. The short form of the tests below."""
    gates = ("checkpoint", "environment", "grade", "learning")
    process = Process(prepared(tmp_path / "run", eval_every=0), gates)
    try:
        found = []
        for _ in gates:
            process.next_gate()
            answer = explain(process.folder)
            found.append((answer.state, answer.phase, answer.waits[-1].what if answer.waits else ""))
        process.process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        assert explain(process.folder).state == "suspended"
    finally:
        process.end()
    assert found == [
        ("running", "checkpoint", ""),
        ("running", "rollouts", "environment"),
        ("running", "rollouts", "grade"),
        ("running", "learning", "learner"),
    ]
    assert explain(process.folder).state == "stopped"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("live") / "run", eval_every=1)


@pytest.fixture(scope="module")
def live(folder) -> Iterator[list[tuple[str, Answer, Path]]]:
    """(gate, answer at it, copy of the folder then) of a run that stood at every gate, and was killed."""
    process = Process(folder, GATES)
    found = []
    try:
        for number, gate in enumerate(GATES):
            process.next_gate()
            copy = folder.with_name(f"copy-{number}")
            shutil.copytree(folder, copy)
            found.append((gate, explain(folder), copy))
        process.process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        found.append(("suspended", explain(folder), copy))
    finally:
        process.end()
    return found


@pytest.mark.slow
def test_every_phase_is_named(live) -> None:
    """Oracle: where the process stands, by its own gates. Kills: any phase taken for another."""
    phases = [(gate, answer.phase, answer.step, answer.version) for gate, answer, _ in live]
    assert phases == [
        ("checkpoint", "checkpoint", 0, 0),
        ("evaluation", "evaluation", 0, 0),
        ("prompt", "rollouts", 1, 0),
        ("tokens", "rollouts", 1, 0),
        ("environment", "rollouts", 1, 0),
        ("grade", "rollouts", 1, 0),
        ("learning", "learning", 1, 0),
        ("recording", "recording", 1, 1),
        ("checkpoint", "checkpoint", 1, 1),
        ("evaluation", "evaluation", 1, 1),
        ("tokens", "rollouts", 2, 1),
        ("suspended", "rollouts", 2, 1),
    ]
    for gate, answer, _ in live:
        assert answer.state == ("suspended" if gate == "suspended" else "running"), gate
        assert answer.pid is not None and answer.end is None and answer.notes == []
        assert answer.num_steps == 2


@pytest.mark.slow
def test_what_is_waited_for_since_when_and_until_when(live, folder) -> None:
    """Oracle: the journal, record by record: what was asked for and not answered at the time."""
    for gate, answer, copy in live:
        if answer.phase not in ("rollouts", "learning"):
            continue
        what = [wait.what for wait in answer.waits]
        expected = {"learning": "learner", "suspended": "tokens"}.get(gate, gate)
        assert expected in what, gate
        owed, asked_at, due = _owed(copy / JOURNAL)
        assert {row.ask for row in answer.asks} == set(owed), gate
        for row in answer.asks:
            assert row.since == asked_at[row.ask], gate
        for wait, follows in zip(answer.waits, answer.follows, strict=True):
            assert wait.deadline is not None and wait.deadline == pytest.approx(due[wait.timer])
            assert wait.timer == ("learn:0" if gate == "learning" else f"rollouts:{answer.step - 1}")
            assert ("run ends" in follows) == (wait.what == "learner")
            assert wait.since <= answer.seconds < wait.deadline
        assert answer.silence is not None and 0 <= answer.silence < 60
        ages = [row.since for row in answer.asks]
        assert ages == sorted(ages), "the oldest first"


def _owed(journal: Path) -> tuple[dict[str, str], dict[str, float], dict[str, float]]:
    """Slow reference: (what is asked and not answered, when it was first asked, when timers fire)."""
    owed: dict[str, str] = {}
    asked_at: dict[str, float] = {}
    due: dict[str, float] = {}
    for event, decisions in read(journal):
        if hasattr(event, "ask") and getattr(event, "stop", "end") is not None:
            owed.pop(event.ask, None)
        for command in json.loads(decisions):
            if command["type"] in ("Reset", "Submit", "EnvStep", "Score"):
                owed[command["ask"]] = command["type"]
                asked_at.setdefault(command["ask"], event.at)
            if command["type"] == "SetTimer":
                due[command["timer"]] = event.at + command["seconds"]
    return owed, asked_at, due


@pytest.mark.slow
def test_tokens_so_far(live) -> None:
    """Oracle: the journal: tokens reported of each open ask. The run reports each token as it is made."""
    gate, answer, copy = live[5]
    assert gate == "grade"
    num: dict[str, int] = {}
    for event, _ in read(copy / JOURNAL):
        if hasattr(event, "logprobs"):
            num[event.ask] = num.get(event.ask, 0) + len(event.tokens)
    for row in answer.asks:
        assert row.tokens == num.get(row.ask, 0)
        assert row.versions == ((0,) if row.tokens else ())


@pytest.mark.slow
def test_killed_in_every_phase(live) -> None:
    """Oracle: metamorphic. The same files with a lock of a dead process: the same waits, but stopped."""
    for gate, answer, copy in live[:-1]:
        dead = subprocess.Popen(["true"])
        dead.wait()
        (copy / LOCK).write_text(json.dumps({"pid": dead.pid, "host": socket.gethostname()}))
        killed = explain(copy)
        assert (killed.state, killed.pid, killed.end) == ("stopped", None, None), gate
        assert (killed.waits, killed.version) == (answer.waits, answer.version), gate
        assert [row.ask for row in killed.asks] == [row.ask for row in answer.asks], gate
        assert killed.phase in ("starting", "rollouts", "learning"), "what a file shows is nobody's work now"
        assert killed.seconds == max((event.at for event, _ in read(copy / JOURNAL)), default=0.0)


@pytest.mark.slow
def test_resumed_and_done(live, folder) -> None:
    """Oracle: the gates, then the run's own end. Runs on from the kill of the other tests."""
    assert explain(folder).state == "stopped"
    process = Process(folder, AGAIN)
    try:
        phases = []
        for _ in AGAIN:
            process.next_gate()
            answer = explain(folder)
            phases.append((answer.phase, answer.step, answer.version, answer.end))
        assert phases == [
            ("resuming", 2, 1, None),
            ("learning", 2, 1, None),
            ("checkpoint", 2, 2, "all steps done"),
            ("evaluation", 2, 2, "all steps done"),
        ]
        process.go_on()
        assert process.process.wait(60) == 0
    finally:
        process.end()
    answer = explain(folder)
    assert (answer.state, answer.phase, answer.end) == ("finished", "done", "all steps done")
    assert (answer.step, answer.version, answer.waits, answer.asks) == (2, 2, [], [])
