"""Real clusters of several machines in this one: processes are killed, machines come and go."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import signal
from pathlib import Path

import pytest
import ray
from drive_help import run_inline, toy_settings
from ray_help import Run, ToySampler, ToyTrainer, add_machine, machines, outcome, toy_crew, toy_world

from rollwright.drive.ray.recipe import Recipe
from rollwright.events import WorkerLost
from rollwright.runner import Runner
from rollwright.store.journal import Journal, check_replay, read
from rollwright.testing.fake import ToyTask
from rollwright.testing.hand import plain_method

DIALOGUE = ToyTask(max_turns=3, context=64)
OPTIONS = {"num_steps": 12, "num_tasks": 6}


class Spy(ToySampler):
    """Notes where the weights lie that it is given: process, machine, and place in the machine's memory."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def load(self, weights):
        super().load(weights)
        node = ray.get_runtime_context().get_node_id()
        line = f"{os.getpid()} {node} {self.loaded} {where(weights['version'])}\n"
        with Path(self.path).open("a") as file:
            file.write(line)


def where(array) -> str:
    """Return file and offset of the shared memory that an array lies in."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, inode, *rest = line.split()
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            assert rest and "plasma" in rest[0], f"not in the object store: {line}"
            return f"{inode}:{address - low + int(offset, 16)}"
    raise AssertionError("the array lies nowhere")


def recipe(path: Path, task: ToyTask = DIALOGUE) -> Recipe:
    return Recipe(functools.partial(Spy, str(path)), functools.partial(toy_world, task), ToyTrainer)


def seen(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def no_processes_left() -> None:
    """Nothing runs any more of the clusters that this process started: their names end with its number."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    assert any("pytest" in line for line in lines)
    assert not [line for line in lines if re.search(rf"/session_[-\d_]+_{os.getpid()}/", line)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_on_one_machine(tmp_path):
    """Oracle: the inline driver, whole batches; and the kernel's own word on where the weights lie: two
    workers of a machine read one copy of each version.
    """
    with machines(1, cpus=1) as _, toy_crew(recipe(tmp_path / "seen")) as crew:
        while len(crew.workers.serving) < 2:
            assert crew.wait(1.0) == []
        it = Run(crew, Runner(plain_method(2), toy_settings(DIALOGUE)))
        assert it.driver.run() == "all steps done"
        assert len({place.pid for _, place, _ in crew.roster()}) == 4
    assert it.batches == run_inline(DIALOGUE, plain_method(2)).batches
    rows = seen(tmp_path / "seen")
    for version in "0123":
        assert len({pid for pid, _, v, _ in rows if v == version}) == 2
        assert len({place for _, _, v, place in rows if v == version}) == 1
    no_processes_left()


class Killer:
    """Ends a random actor with SIGKILL after each so many events."""

    def __init__(self, crew, seed: int, every: int, most: int) -> None:
        self.crew, self.random, self.every, self.most = crew, random.Random(seed), every, most
        self.killed: list[str] = []
        self.num_events = 0
        self.kinds = [kind for kind in ("worker", "grader", "learner") for _ in range(most // 3 + 1)]
        self.random.shuffle(self.kinds)

    def __call__(self, events) -> None:
        self.num_events += len(events)
        if len(self.killed) < min(self.most, self.num_events // self.every):
            kind = self.kinds[len(self.killed)]
            able = [(n, place) for n, place, _ in self.crew.roster() if place and n.startswith(kind)]
            if able:
                name, place = self.random.choice(able)
                os.kill(place.pid, signal.SIGKILL)
                self.killed.append(name)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_kills_on_three_machines(tmp_path):
    """Oracle: the inline driver. Workers, graders and the learner are killed at random, ten in all: the run
    ends, nothing acknowledged is lost, the ledger balances, the samples are the same, bit for bit; and each
    machine reads one copy of each version of the weights.
    """
    path = tmp_path / "journal.jsonl"
    with (
        machines(3, cpus=1),
        toy_crew(recipe(tmp_path / "seen"), workers=4, graders=2, losses=20) as crew,
        Journal(path) as journal,
    ):
        it = Run(crew, Runner(plain_method(2), toy_settings(DIALOGUE, **OPTIONS)), journal)
        killer, wait = Killer(crew, 1, 30, 10), crew.wait

        def wait_and_kill(seconds):
            events = wait(seconds)
            killer(events)
            return events

        crew.wait = wait_and_kill
        assert it.driver.run() == "all steps done"
        assert len(killer.killed) == 10
        lost = (crew.workers.num_lost, crew.graders.num_lost, crew.seat.num_lost)
    assert sum(lost) >= 9 and all(lost), lost  # one that was killed last may not have been missed
    whole = run_inline(DIALOGUE, plain_method(2), **OPTIONS)
    assert outcome(it.batches) == outcome(whole.batches)
    it.runner.ledger.check()
    assert it.runner.ledger.fates == whole.runner.ledger.fates
    again = Runner(plain_method(2), toy_settings(DIALOGUE, **OPTIONS))
    assert check_replay(path, again.step) > 300
    assert any(isinstance(event, WorkerLost) for event, _ in read(path))
    rows = seen(tmp_path / "seen")
    assert len({node for _, node, *_ in rows}) > 1
    copies: dict[tuple[str, str], set[str]] = {}
    for _, node, version, place in rows:
        copies.setdefault((node, version), set()).add(place)
    # A learner that was made again sends its weights again, to those who come after it.
    assert sum(map(len, copies.values())) <= len(copies) + lost[2] * 3
    no_processes_left()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_machines_come_and_go(tmp_path):
    """Oracle: the inline driver, and a count. A machine joins, its workers serve, and it is taken away."""
    options = {**OPTIONS, "num_steps": 12}
    with (
        machines(1, cpus=2) as cluster,
        toy_crew(recipe(tmp_path / "seen"), workers=0, worker_cpus=1.0, losses=20) as crew,
    ):
        it = Run(crew, Runner(plain_method(2), toy_settings(DIALOGUE, **options)))
        wait, done = crew.wait, []

        def begun() -> int:
            return sum(worker.place is not None for worker in crew.workers.members.values())

        def wait_for(num: int, nodes: int) -> list:
            events = []
            while begun() != num or len({worker.place.node for worker in crew.workers.serving}) != nodes:
                crew._counted_at = -1e9
                events += wait(1.0)
            return events

        def wait_and_change(seconds):
            events = wait(seconds)
            if it.runner.version == 3 and not done:
                done.append(add_machine(cluster, 2))
                events += wait_for(4, nodes=2)
            if it.runner.version == 7 and len(done) == 1:
                done.append(cluster.remove_node(done[0], allow_graceful=False))
            return events

        crew.wait = wait_and_change
        assert it.driver.run() == "all steps done"
        wait_for(2, nodes=1)  # new weights were sent to those that are gone, so that is found out
        assert len(done) == 2 and crew.workers.num_lost >= 1
    assert outcome(it.batches) == outcome(run_inline(DIALOGUE, plain_method(2), **options).batches)
    no_processes_left()
