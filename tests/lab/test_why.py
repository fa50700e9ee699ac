"""`why` on run folders without a process: cut anywhere, damaged, with locks of all kinds, and at the end."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from lab_help import cut, lock, toy_folder

from rollwright.errors import StoreError
from rollwright.events import Finish
from rollwright.lab.process import writer
from rollwright.lab.replay import fresh_runner
from rollwright.lab.why import explain
from rollwright.runner import Runner
from rollwright.store.codec import encode_record
from rollwright.store.journal import read
from rollwright.store.layout import CHECKPOINTS, CONFIG, JOURNAL, LOCK, METRICS
from rollwright.store.run import RunFolder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A finished run of three steps."""
    return toy_folder(tmp_path_factory.mktemp("toy") / "run")


@pytest.fixture
def process() -> Iterator[int]:
    """The pid of a process that lives until the test ends."""
    sleeper = subprocess.Popen(["sleep", "100"])
    yield sleeper.pid
    sleeper.kill()
    sleeper.wait()


def records(path: Path) -> list:
    return list(read(path / JOURNAL))


def runner_after(path: Path, num: int) -> Runner:
    runner = fresh_runner(RunFolder.view(path).config())
    for event, _ in records(path)[:num]:
        runner.step(event)
    return runner


def test_a_run_cut_anywhere(whole, tmp_path) -> None:
    """Oracle: a runner that is given the same events. Kills: a fold that stops too early or too late."""
    num = len(records(whole))
    for place in sorted({1, 2, 5, num // 3, num // 2, num - 2, num - 1}):
        answer = explain(cut(whole, tmp_path / str(place), place))
        runner = runner_after(whole, place)
        assert (answer.waits, answer.version) == (runner.waits(), runner.version)
        assert answer.step == runner.step_number + 1 and answer.state == "stopped"
        assert {row.ask for row in answer.asks} == set(runner.asks)
        assert answer.seconds == max(event.at for event, _ in records(whole)[:place])
        assert answer.phase == runner.phase.value and answer.notes == []


def test_steps_that_overlap(tmp_path) -> None:
    """Oracle: a runner that is given the same events: every step's waits, the oldest step first."""
    path = toy_folder(tmp_path / "run", driver="async", num_ahead=1)
    num_overlaps = 0
    for place in range(10, len(records(path)), 37):
        answer = explain(cut(path, tmp_path / str(place), place))
        runner = runner_after(path, place)
        assert answer.waits == runner.waits() and answer.notes == []
        assert answer.step == runner.step_number + 1
        num_overlaps += len({wait.step for wait in answer.waits}) > 1
        assert answer.phase == runner.phase.value
    assert num_overlaps > 2


def test_the_end_and_why(whole, tmp_path) -> None:
    """Oracle: the Finish that the journal holds; a reason by hand where the learner was too late."""
    answer = explain(whole)
    assert (answer.state, answer.end, answer.waits) == ("finished", "all steps done", [])
    assert (answer.step, answer.version) == (3, 3)
    path = cut(whole, tmp_path / "late", len(records(whole)) // 2)
    event, _ = records(path)[-1]
    with (path / JOURNAL).open("ab") as file:
        file.write(encode_record(event, [Finish(reason="the learner did not answer within 3 s")]))
    assert explain(path).end == "the learner did not answer within 3 s"


def test_without_its_code_the_record_is_read(whole, tmp_path) -> None:
    """Oracle: the answer with the code. Kills: an answer that gives up where the task is gone."""
    text = (whole / CONFIG).read_text()
    num = len(records(whole))
    for place in (2, num // 2, num - 1):
        path = cut(whole, tmp_path / str(place), place)
        known = explain(path)
        (path / CONFIG).write_text(text.replace("toy_task.py", "gone.py"))
        answer = explain(path)
        assert "cannot be had here" in answer.notes[0]
        # Carried and deferred sampling is nobody's work, so the record does not name it.
        named = [w for w in known.waits if w.what != "next step"]
        assert {(w.what, w.asks) for w in answer.waits} == {(w.what, w.asks) for w in named}
        assert [w.deadline for w in answer.waits] == [w.deadline for w in named]
        assert {(r.ask, r.since, r.tokens, r.versions) for r in answer.asks} == {
            (r.ask, r.since, r.tokens, r.versions) for r in known.asks
        }
        assert (answer.step, answer.version, answer.phase) == (known.step, known.version, known.phase)


def test_decisions_that_do_not_come_out_again(whole, tmp_path) -> None:
    """Oracle: by construction: another seed decides otherwise from the first record on."""
    path = cut(whole, tmp_path / "run", 40)
    text = (path / CONFIG).read_text()
    assert "seed = 0" in text
    (path / CONFIG).write_text(text.replace("seed = 0", "seed = 1"))
    answer = explain(path)
    assert "record 1 do not come out again" in answer.notes[0] and answer.waits


def test_who_writes_it(whole, tmp_path, process) -> None:
    """Oracle: real processes: alive, dead, not yet waited for, another one of the same pid, elsewhere."""
    path = cut(whole, tmp_path / "run", 40)
    assert writer(path) is None and explain(path).state == "stopped"
    lock(path, process)
    found = writer(path)
    assert found is not None and (found.pid, found.state) == (process, "running")
    os.utime(path / "lock", (time.time() - 3600,) * 2)
    assert writer(path) is None, "the process began after the lock was taken: it is another one"
    dead = subprocess.Popen(["true"])
    lock(path, dead.pid)
    time.sleep(0.2)
    assert writer(path) is None, "dead, and not yet waited for"
    dead.wait()
    assert writer(path) is None
    lock(path, process, "another-machine")
    answer = explain(path)
    assert (answer.state, answer.host, answer.pid) == ("elsewhere", "another-machine", process)
    for text in ("", "{", "[]", '{"pid": -1, "host": 3}', '{"pid": "x"}'):
        (path / "lock").write_text(text)
        assert explain(path).state in ("stopped", "elsewhere")


def test_time_goes_on_while_it_lives(whole, tmp_path, process) -> None:
    """Oracle: closed form: seconds of the run plus the silence. Kills: ages as of the last event."""
    path = cut(whole, tmp_path / "run", 40)
    last = max(event.at for event, _ in records(path))
    os.utime(path / JOURNAL, (time.time() - 5000,) * 2)
    assert explain(path).seconds == last
    lock(path, process)
    os.utime(path / "lock", (time.time() - 5100,) * 2)
    assert explain(path).state == "stopped"
    lock(path, process)
    os.utime(path / JOURNAL, (time.time() + 0.5 - 50,) * 2)
    os.utime(path / "lock", (time.time() - 55,) * 2)
    answer = explain(path)
    assert answer.state == "running" and answer.phase == "rollouts"
    assert answer.seconds == pytest.approx(last + 49.5, abs=5)


def test_a_process_that_reads_its_journal(whole, tmp_path, process) -> None:
    """Oracle: by construction: the lock is newer than the last event."""
    path = cut(whole, tmp_path / "run", 40)
    os.utime(path / JOURNAL, (time.time() - 5,) * 2)
    lock(path, process)
    assert explain(path).phase == "resuming"


def test_what_the_files_show_at_the_end(whole, tmp_path, process) -> None:
    """Oracle: by construction, in the order of the end's work: record, checkpoint, evaluation."""
    path = cut(whole, tmp_path / "run", len(records(whole)))
    text = (path / CONFIG).read_text()
    assert "eval_every = 0" in text
    (path / CONFIG).write_text(text.replace("eval_every = 0", "eval_every = 2"))
    rows = (path / METRICS).read_text().splitlines(keepends=True)
    (path / METRICS).write_text("".join(rows[:2]))
    lock(path, process)
    os.utime(path / LOCK, (time.time() - 5,) * 2)
    phases = [explain(path)]
    (path / METRICS).write_text("".join(rows))
    phases.append(explain(path))
    (path / CHECKPOINTS / "v00000003").mkdir()
    phases.append(explain(path))
    with (path / METRICS).open("a") as file:
        file.write(json.dumps({"kind": "evaluation", "step": 3}) + "\n")
    phases.append(explain(path))
    assert [answer.phase for answer in phases] == ["recording", "checkpoint", "evaluation", "done"]
    assert {answer.end for answer in phases} == {"all steps done"}
    assert "version 3" in phases[1].phase_text and "step 3" in phases[0].phase_text


def test_an_ask_is_as_old_as_its_first_submit(tmp_path) -> None:
    """Oracle: the journal: when each ask was first given out. Kills: an age that a carry-over makes young."""
    path = toy_folder(tmp_path / "run", "april", num_steps=4)
    asked: dict[str, list[float]] = {}
    num_older = 0
    for number, (event, decisions) in enumerate(records(path), 1):
        for command in msgspec.json.decode(decisions):
            if command["type"] in ("Reset", "Submit", "EnvStep", "Score"):
                asked.setdefault(command["ask"], []).append(event.at)
        if number % 60 == 0:
            for row in explain(cut(path, tmp_path / str(number), number)).asks:
                assert row.since == asked[row.ask][0]
                num_older += row.since < asked[row.ask][-1]
    assert num_older > 0, "nothing was carried over"


def test_half_a_record_and_damage_are_said(whole, tmp_path) -> None:
    """Oracle: by construction. A torn end is passed over, a damaged line ends what is looked at."""
    data = (whole / JOURNAL).read_bytes()
    lines = data.splitlines(keepends=True)
    torn = cut(whole, tmp_path / "torn", num_bytes=sum(map(len, lines[:21])) + 7)
    answer = explain(torn)
    assert answer.waits == runner_after(whole, 20).waits()
    assert answer.notes == [note for note in answer.notes if "half a record (7 bytes)" in note] != []
    bad = cut(whole, tmp_path / "bad", 60)
    lines[31] = lines[31].replace(b'"e"', b'"f"')
    (bad / JOURNAL).write_bytes(b"".join(lines[:61]))
    answer = explain(bad)
    assert answer.waits == runner_after(whole, 30).waits() and "line 32" in answer.notes[0]


def test_what_failed_lately(tmp_path) -> None:
    """Oracle: the report's own notes. The toy grader raises at some texts."""
    path = toy_folder(tmp_path / "run", num_steps=2)
    commands = [command for _, decisions in records(path) for command in msgspec.json.decode(decisions)]
    notes = [command["notes"] for command in commands if command["type"] == "Report"][-1]
    assert notes and explain(path).failures == notes


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("method", "num"),
    [("grpo", 9), ("april", 9), *(pytest.param(m, 60, marks=pytest.mark.slow) for m in ("april", "latr"))],
)
def test_it_never_crashes(tmp_path, method, num) -> None:
    """Oracle: the contract. Cut at random bytes, a third of the times with a bit changed, it always answers.

    Every answer can be written as JSON, and its numbers are sane.
    """
    path = toy_folder(tmp_path / "run", method, num_steps=2)
    data = (path / JOURNAL).read_bytes()
    rng = random.Random(method)
    for number in range(num):
        damaged = bytearray(data[: rng.randrange(1, len(data))])
        if number % 3 == 2:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        (path / JOURNAL).write_bytes(damaged)
        try:
            answer = explain(path)
        except StoreError as error:
            assert "journal" in str(error) and number % 3 == 2, "only a header may be beyond reading"
            continue
        msgspec.json.encode(answer)
        assert answer.state in ("stopped", "finished") and answer.phase != "resuming"
        assert all(wait.since <= answer.seconds for wait in answer.waits)
        assert len(answer.follows) == len(answer.waits)


def test_no_run(tmp_path) -> None:
    """Oracle: the contract: what is no run folder is an error of ours."""
    with pytest.raises(StoreError, match="is no run folder"):
        explain(tmp_path)
