"""A journal that was folded again gives the same bytes, or the first record that does not is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
from drive_help import Trainer, run_inline, run_virtual, small_model, toy_settings

from rollwright.discovery import load_method
from rollwright.drive.virtual import LogNormal, Model, TaskModel, VirtualDriver
from rollwright.errors import JournalCorrupt, LawBroken
from rollwright.events import EmitBatch, Published, Sampled, Scored
from rollwright.runner import Runner
from rollwright.store.codec import decision_bytes
from rollwright.store.journal import Journal, read
from rollwright.store.layout import JOURNAL
from rollwright.store.replay import replay
from rollwright.testing.fake import ToyTask
from rollwright.testing.hand import plain_method

RUNS = {"inline": run_inline, "virtual": run_virtual}


def record(folder: Path, run: Any = run_virtual, method: Any = None, **changes: Any) -> Any:
    with Journal.open(folder / JOURNAL) as journal:
        return run(ToyTask(max_turns=2), method, journal=journal, **changes)


def rewrite(folder: Path, change: Any) -> None:
    """Write the journal again, with good checksums, as ``change(number, event, decisions)`` says."""
    records = list(read(folder / JOURNAL))
    (folder / JOURNAL).unlink()
    with Journal.open(folder / JOURNAL) as journal:
        for number, (event, decisions) in enumerate(records, 1):
            event, decisions = change(number, event, decisions)
            journal.append(event, _Raw(decisions))


class _Raw(list[Any]):
    """Commands that are written as the bytes that they were read as."""

    def __init__(self, data: bytes) -> None:
        super().__init__(msgspec.json.decode(data, type=list[msgspec.Raw]))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", ["grpo", "april", "latr"])
def test_a_run_replays_to_the_same_bytes(tmp_path, run, name):
    """Oracle: the run itself. Every record comes out again, and the runner ends in the same state."""
    ran = record(tmp_path, RUNS[run], load_method(name))
    report = replay(tmp_path, load_method(name), toy_settings(ToyTask(max_turns=2))).require()
    assert report.is_same
    assert report.num_records == len(list(read(tmp_path / JOURNAL)))
    assert report.runner.ledger == ran.runner.ledger
    assert report.runner.version == ran.runner.version
    assert "replay to the same bytes" in str(report)


def test_a_run_with_failing_workers_replays_from_the_file_itself(tmp_path):
    """Oracle: the run itself, its path given instead of its folder."""
    model = small_model(failure_seconds=9.0, restart_seconds=3.0)
    record(tmp_path, model=model)
    assert any(b"WorkerLost" in line for line in (tmp_path / JOURNAL).read_bytes().splitlines())
    assert replay(tmp_path / JOURNAL, plain_method(), toy_settings(ToyTask(max_turns=2))).is_same


def test_another_method_seed_or_version_does_not_replay(tmp_path):
    """Oracle: metamorphic. What decided differently differs from the first decision on that shows it."""
    record(tmp_path)
    settings = toy_settings(ToyTask(max_turns=2))
    for method, changed, version in (
        (plain_method(5), settings, 0),
        (plain_method(), dataclasses.replace(settings, seed=2), 0),
        (plain_method(), settings, 1),
    ):
        report = replay(tmp_path, method, changed, version)
        assert not report.is_same
        with pytest.raises(LawBroken, match="the journal does not replay"):
            report.require()


@pytest.mark.parametrize("where", [0.0, 0.37, 0.99])
def test_a_changed_decision_is_found_at_its_record(tmp_path, where):
    """Oracle: by construction. One record's decisions were changed, with a good checksum.

    Kills: a replay that compares only kinds, only the last record, or counts from another number.
    """
    record(tmp_path)
    with_commands = [n for n, (_, decisions) in enumerate(read(tmp_path / JOURNAL), 1) if decisions != b"[]"]
    target = with_commands[int(where * len(with_commands))]
    rewrite(
        tmp_path,
        lambda n, event, decisions: (
            (event, decisions.replace(b"toy/", b"yot/")) if n == target else (event, decisions)
        ),
    )
    report = replay(tmp_path, plain_method(), toy_settings(ToyTask(max_turns=2)))
    assert report.difference is not None
    assert (report.difference.record, report.num_records) == (target, target - 1)
    assert "yot/" in report.difference.recorded and "toy/" in report.difference.now
    assert report.difference.command >= 1
    assert f"record {target}" in str(report)


def test_a_missing_command_is_found_with_its_number(tmp_path):
    """Oracle: by construction. The last command of a record with several was taken out."""
    record(tmp_path)
    decisions = {n: msgspec.json.decode(d) for n, (_, d) in enumerate(read(tmp_path / JOURNAL), 1)}
    target = next(n for n, commands in decisions.items() if len(commands) > 2)
    cut = msgspec.json.encode(decisions[target][:-1])
    rewrite(tmp_path, lambda n, event, d: (event, cut if n == target else d))
    found = replay(tmp_path, plain_method(), toy_settings(ToyTask(max_turns=2))).difference
    assert found is not None
    assert (found.record, found.command) == (target, len(decisions[target]))
    assert found.recorded == "no such command"


def test_a_changed_reward_is_found_where_it_first_decides(tmp_path):
    """Oracle: by construction. A reward decides nothing until its group's advantages are emitted."""
    record(tmp_path)
    events = [event for event, _ in read(tmp_path / JOURNAL)]
    target = next(n for n, event in enumerate(events, 1) if isinstance(event, Scored))
    batch_at = next(
        n for n, (_, d) in enumerate(read(tmp_path / JOURNAL), 1) if b'"EmitBatch"' in d and n > target
    )

    def flip(n: int, event: Any, decisions: bytes) -> tuple[Any, bytes]:
        changed = msgspec.structs.replace(event, reward=1 - event.reward) if n == target else event
        return changed, decisions

    rewrite(tmp_path, flip)
    found = replay(tmp_path, plain_method(), toy_settings(ToyTask(max_turns=2))).difference
    assert found is not None and found.record == batch_at


def test_an_event_that_cannot_be_is_named(tmp_path):
    """Oracle: by construction. A chunk with a logprob too few is refused by the runner, at its record."""
    record(tmp_path)
    events = [event for event, _ in read(tmp_path / JOURNAL)]
    target = next(n for n, event in enumerate(events, 1) if isinstance(event, Sampled))

    def cut(n: int, event: Any, decisions: bytes) -> tuple[Any, bytes]:
        changed = msgspec.structs.replace(event, logprobs=event.logprobs[1:]) if n == target else event
        return changed, decisions

    rewrite(tmp_path, cut)
    found = replay(tmp_path, plain_method(), toy_settings(ToyTask(max_turns=2))).difference
    assert found is not None
    assert (found.record, found.command) == (target, 0)
    assert "refused: LawBroken" in found.now and found.event.startswith("Sampled toy/")


def test_damage_is_no_difference(tmp_path):
    """Oracle: the contract. A flipped bit is named as damage, with its line, and not as a decision."""
    record(tmp_path)
    lines = (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b'"e"', b'"f"')
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))
    with pytest.raises(JournalCorrupt, match="line 6"):
        replay(tmp_path, plain_method(), toy_settings(ToyTask(max_turns=2)))


@pytest.mark.parametrize("cut", [1, 40, 111, -1])
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path, cut):
    """Oracle: metamorphic. The first ``cut`` records of a run, folded, then driven on: the same batches.

    Kills: a driver that starts at time zero again, or that answers again what was acknowledged.
    """
    settings = toy_settings(ToyTask(), num_steps=3, max_tokens=50, context=90)
    model = Model(tasks=TaskModel(response=LogNormal(15, 1)))

    def drive(runner: Runner, started_at: float = 0.0, is_resumed: bool = False) -> list[EmitBatch]:
        trainer = Trainer()
        with Journal.open(tmp_path / JOURNAL) as journal:
            driver = VirtualDriver(runner, model, train=trainer, journal=journal, started_at=started_at)
            assert driver.run(is_resumed) == "all steps done"
        return trainer.batches

    whole = drive(Runner(plain_method(), settings))
    records = list(read(tmp_path / JOURNAL))[:cut]
    (tmp_path / JOURNAL).unlink()
    with Journal.open(tmp_path / JOURNAL) as journal:
        for event, decisions in records:
            journal.append(event, _Raw(decisions))
    runner = replay(tmp_path, plain_method(), settings).require().runner
    num_trained = sum(isinstance(event, Published) for event, _ in records)
    rest = drive(runner, runner.last_at, is_resumed=True)
    assert texts(rest) == texts(whole[num_trained:])
    assert replay(tmp_path, plain_method(), settings).is_same


def texts(batches: list[EmitBatch]) -> list[Any]:
    """Return what was trained, whatever the parts it was sampled in."""
    return [
        (batch.step, group.id, t.index, t.score, t.advantages, group.response(t).tokens)
        for batch in batches
        for group in batch.groups
        for t in group.trajectories
    ]


def test_decision_bytes_do_not_depend_on_the_driver():
    """Oracle: metamorphic. The batches of an inline and of a virtual run are the same bytes."""
    inline, virtual = run_inline(ToyTask()), run_virtual(ToyTask())
    assert decision_bytes(inline.batches) == decision_bytes(virtual.batches)
