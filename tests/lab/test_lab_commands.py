"""`rollwright why`, `rollwright timeline` and `rollwright replay` as commands: text, JSON, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from lab_help import cut, toy_folder

from rollwright.cli.main import main
from rollwright.lab.activity import read_activity
from rollwright.lab.replay import fresh_runner, replay
from rollwright.lab.state import state_of
from rollwright.lab.timeline import idle
from rollwright.lab.why import explain
from rollwright.store.journal import Journal, read
from rollwright.store.layout import JOURNAL
from rollwright.store.run import RunFolder


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def rollwright(capsys):
    def run(*words: object) -> Result:
        capsys.readouterr()
        return Result(main([str(word) for word in words]), *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return toy_folder(tmp_path_factory.mktemp("toy") / "run", "dapo")


def strict(text: str):
    return json.loads(text, parse_constant=lambda word: pytest.fail(word))


def test_why_in_words(rollwright, whole, tmp_path) -> None:
    """Oracle: the answer's own values, in the text."""
    path = cut(whole, tmp_path / "run", 30)
    answer, result = explain(path), rollwright("why", path)
    assert result.code == 0
    assert f"{path}: stopped" in result.out and f"--resume {path}" in result.out
    assert "It was in step 1 of 3, version 0, phase rollouts" in result.out
    assert answer.phase_text in result.out and answer.last_event in result.out
    for row in answer.asks[:8]:
        assert row.ask in result.out
    assert f"of {len(answer.asks)} open asks" in result.out
    done = rollwright("why", whole)
    assert done.code == 0 and "finished" in done.out and "all steps done" in done.out


def test_why_as_json(rollwright, whole, tmp_path) -> None:
    """Oracle: the answer itself, read back; what runs on meanwhile left out."""
    path = cut(whole, tmp_path / "run", 30)
    facts = strict(rollwright("why", path, "--json").out)
    known = msgspec.to_builtins(explain(path))
    assert facts.pop("silence") <= known.pop("silence")
    assert facts == json.loads(json.dumps(known))


def test_timeline_writes_what_its_name_says(rollwright, whole, tmp_path) -> None:
    """Oracle: the files' own first bytes, and the idle shares of the library."""
    firsts = {"a.json": b"{", "a.json.gz": b"\x1f\x8b", "a.svg": b"<?xml"}
    for name, first in firsts.items():
        result = rollwright("timeline", whole, "--out", tmp_path / "new" / name)
        assert result.code == 0 and (tmp_path / "new" / name).read_bytes().startswith(first)
        assert "learner idle" in result.out
    facts = strict(rollwright("timeline", whole, "--json").out)
    assert facts["engine_idle"] == idle(read_activity(whole / JOURNAL)).engine_idle


def test_a_picture_of_an_unknown_kind(rollwright, whole, tmp_path) -> None:
    """Oracle: the contract: exit code 1, the name and what is known."""
    result = rollwright("timeline", whole, "--out", tmp_path / "a.xyz")
    assert result.code == 1 and "a.xyz" in result.err and "png" in result.err


def test_the_picture_is_not_empty(rollwright, whole, tmp_path) -> None:
    """Oracle: a PNG of that size whose pixels are not all one colour; its parts were looked at by eye."""
    from matplotlib.image import imread

    assert rollwright("timeline", whole, "--out", tmp_path / "a.png").code == 0
    pixels = imread(tmp_path / "a.png")
    assert pixels.shape[:2] == (884, 1560) and pixels.std() > 0.05


@pytest.mark.parametrize("until", [0, 1, 2, 3])
def test_replay_until(rollwright, whole, until) -> None:
    """Oracle: slow reference: a runner that is stepped by hand until so many steps were reported."""
    runner, number, num_reported = fresh_runner(RunFolder.view(whole).config()), 0, 0
    for event, decisions in read(whole / JOURNAL):
        runner.step(event)
        number += 1
        num_reported += decisions.count(b'"type":"Report"')
        if num_reported >= until:
            break
    found = replay(RunFolder.view(whole), until=until)
    assert (found.num_records, found.has_reached, found.is_same) == (number, True, True)
    assert state_of(found.runner) == state_of(runner)
    facts = strict(rollwright("replay", whole, "--until", until, "--json").out)
    state = facts["state"]
    assert state == json.loads(msgspec.json.encode(state_of(runner)))
    assert state["ledger"]["fates"] == runner.ledger.fates
    assert {group["group"] for group in state["groups"]} == {*runner.groups, *runner.held}
    assert state["tasks"].keys() == {group.partition("#")[0] for group in _opened(whole, number)}


def _opened(path: Path, num: int) -> set[str]:
    found = set()
    for _, (_, decisions) in zip(range(num), read(path / JOURNAL), strict=False):
        found |= {c["group"] for c in msgspec.json.decode(decisions) if c["type"] == "Reset"}
    return found


def test_replay_in_words(rollwright, whole) -> None:
    """Oracle: the runner's own numbers, in the text."""
    found = replay(RunFolder.view(whole), until=2)
    result = rollwright("replay", whole, "--until", 2)
    assert result.code == 0 and f"{found.num_records:,} events gave the same" in result.out
    assert f"{int(found.runner.ledger.spent['sampled_tokens']):,}" in result.out
    for group in found.runner.groups:
        assert group in result.out
    assert "Ledger" in result.out and "tasks visited" in result.out


def test_replay_past_the_end(rollwright, whole, tmp_path) -> None:
    """Oracle: the contract: the state at the end, and the word that the journal ends before."""
    result = rollwright("replay", whole, "--until", 9)
    assert result.code == 0 and "ends before 9 steps are done" in result.out
    facts = strict(rollwright("replay", whole, "--until", 9, "--json").out)
    assert (facts["is_same"], facts["has_reached"]) == (True, False)
    result = rollwright("replay", whole, "--until", -1)
    assert result.code == 1 and "until = -1" in result.err


def test_replay_shows_the_first_difference(rollwright, whole, tmp_path) -> None:
    """Oracle: by construction: one decision of one record was changed, with a good checksum.

    Kills: a difference that is only said to be there, or an exit code of 0.
    """
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    records = list(read(path / JOURNAL))
    target = next(n for n, (_, d) in enumerate(records, 1) if n > 20 and b'"max_tokens":12' in d)
    (path / JOURNAL).unlink()
    with Journal.open(path / JOURNAL) as journal:
        for number, (event, decisions) in enumerate(records, 1):
            if number == target:
                decisions = decisions.replace(b'"max_tokens":12', b'"max_tokens":13', 1)
            journal.append(event, msgspec.json.decode(decisions, type=list[msgspec.Raw]))
    result = rollwright("replay", path)
    assert result.code == 1
    assert f"record {target} (" in result.out
    assert '"max_tokens":13' in result.out and '"max_tokens":12' in result.out
    facts = strict(rollwright("replay", path, "--json").out)
    assert (facts["is_same"], facts["difference"]["record"]) == (False, target)
    assert facts["num_records"] == target - 1


def test_replay_names_a_changed_byte(rollwright, whole, tmp_path) -> None:
    """Oracle: by construction: one bit of one line; the checksum finds it."""
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    lines = (path / JOURNAL).read_bytes().splitlines(keepends=True)
    lines[24] = lines[24][:30] + bytes([lines[24][30] ^ 1]) + lines[24][31:]
    (path / JOURNAL).write_bytes(b"".join(lines))
    result = rollwright("replay", path)
    assert result.code == 1 and "line 25" in result.err
