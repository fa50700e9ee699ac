"""Repair: its repositories and bugs by running them, its commands and grades by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.errors import ConfigError, DataError, EnvironmentFault
from rollwright.grade.sandbox.program import Ending, Outcome
from rollwright.tasks import repair as repair_module
from rollwright.tasks._repair_bugs import all_bugs
from rollwright.tasks._repair_repositories import REPOSITORIES
from rollwright.tasks._repair_unseen import UNSEEN
from rollwright.tasks.repair import Repair, State, repair, run_tests

TASK = repair()
GOLDEN = (
    "dates/year.py:2:    return year % 4 == 0 and (year % 100 != 1 or year % 400 == 0)"  # of repair/test/0
)


def state_of(name: str, **changed: str) -> State:
    files = {**REPOSITORIES[name][0], **{f"{path}.py": text for path, text in changed.items()}}
    return State(name, tuple(sorted(files.items())))


def played(task: Repair, task_id: str, turns: list[str]) -> tuple[State, list[str]]:
    state, said = task.reset(task_id), []
    for turn in turns:
        state, seen = task.step(state, turn)
        said.append(seen.text)
    return state, said


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_repositories_pass_their_tests(name: str) -> None:
    """Oracle: the sandbox: unbroken, every test passes; kills an expected value that is not true."""
    found = run_tests(name, state_of(name).files, True)
    assert [line for is_right, line in found if not is_right] == []
    shown = [test for test in REPOSITORIES[name][1] if test[3]]
    assert len(found) == len(REPOSITORIES[name][1]) > len(shown) >= 6


def test_expected_values_by_hand() -> None:
    """Oracle: hand, one for each repository: the files could all be wrong in the same way as their tests."""
    right = [
        ("bank", "account:fee", ([["out", 7], ["in", 9], ["out", 11]], 50), 4),  # lowest -9; 450 // 100
        ("words", "count:share", ("a b c", "c"), 33),
        ("grid", "walk:bumps", ("RRRDDD", 2), 4),
        ("dates", "calendar_days:day_of_year", (2024, 3, 1), 61),  # 31 + 29 + 1
        ("stock", "orders:serve", ({"a": 2, "b": 1}, [["a", 2], ["a", 1], ["b", 1]]), [{}, ["a"]]),
        ("scores", "report:above", ([1, 9, 2, 8],), 2),  # the median is 5
    ]
    for name, *test in right:
        assert test in [list(one[:3]) for one in REPOSITORIES[name][1]], test


@pytest.mark.slow
def test_every_bug_is_seen_or_listed() -> None:
    """Oracle: the sandbox: all 170 bugs; a shown test fails with each that is not on the list."""
    for bug in all_bugs():
        found = run_tests(bug.repository, tuple(sorted(bug.files().items())), False)
        assert all(is_right for is_right, _ in found) == (bug.content in UNSEEN), bug


def test_bugs_are_one_line_each() -> None:
    """Oracle: the files: a bug changes its line and no other; the list names bugs that exist."""
    contents = [bug.content for bug in all_bugs()]
    assert len(set(contents)) == len(contents) > 150 and set(contents) >= UNSEEN
    for bug in all_bugs():
        before = REPOSITORIES[bug.repository][0][bug.path].splitlines()
        after = bug.files()[bug.path].splitlines()
        assert [k for k, pair in enumerate(zip(before, after, strict=True), 1) if len(set(pair)) > 1] == [
            bug.line
        ]


def test_splits_share_no_bug() -> None:
    """Oracle: exhaustive; an id gives the same bug for ever (golden)."""
    train, test = ({TASK.bug(task_id) for task_id in TASK.ids(split)} for split in ("train", "test"))
    assert not train & test and len(train) > 80 and len(test) > 20
    assert (len(train) + len(test)) == len(all_bugs()) - len(UNSEEN)
    assert TASK.bug("repair/test/0").content == GOLDEN
    for bad in ("repair/test/9999", "repair/dev/0", "lake/test/0"):
        with pytest.raises(DataError):
            TASK.prompt(bad)
    prompts = [TASK.prompt(task_id) for split in ("train", "test") for task_id in TASK.ids(split)]
    assert all(text.isascii() and len(text) < 1200 for text in prompts)


def test_an_episode_by_hand() -> None:
    """Oracle: hand: read, a wrong file, a wrong line, a mended line, tests before and after, the end."""
    task_id = "repair/train/0"
    bug = TASK.bug(task_id)
    turns = [
        "test",
        "read nothing.py",
        f"set {bug.path} 99 x",
        f"set {bug.path} {bug.line} {bug.right}",
        "test",
    ]
    state, said = played(TASK, task_id, [*turns, f"read {bug.path}", "dance"])
    num = sum(test[3] for test in REPOSITORIES[bug.repository][1])
    assert said[0].split(" pass")[0] != f"{num} of {num}" and " gave " in said[0]
    assert said[1] == "no such file\n" and "has the lines 1 to" in said[2] and said[3] == "set\n"
    assert said[4] == f"{num} of {num} pass\n"
    assert f"{bug.line}|{bug.right}\n" in said[5] and said[6].startswith("commands:")
    assert TASK.grade(task_id, state, turns, True).score == 1.0, "mended is mended, also when time runs out"
    state, seen = TASK.step(state, "done")
    assert seen.terminated and seen.text == ""
    verdict = TASK.grade(task_id, state, turns, False)
    assert (verdict.score, verdict.status, verdict.rewards) == (1.0, "right", {"tests": 1.0})
    with pytest.raises(EnvironmentFault, match="over"):
        TASK.step(state, "test")


def test_grades_by_hand() -> None:
    """Oracle: hand: untouched, made worse, cut, and a file that does not even load."""
    task_id = "repair/train/1"
    bug, start = TASK.bug(task_id), TASK.reset("repair/train/1")
    assert TASK.grade(task_id, start, [], False).status == "no_answer"
    worse, _ = TASK.step(start, f"write {bug.path}\ndef nothing():\n    return (")
    verdict = TASK.grade(task_id, worse, [], True)
    assert (verdict.score, verdict.status) == (0.0, "truncated") and verdict.rewards["tests"] < 1
    assert TASK.grade(task_id, replace(worse, is_done=True), [], False).status == "wrong"


def test_special_cases_do_not_pay() -> None:
    """Oracle: hand: a file that knows the shown values passes those tests, and fails hidden ones."""
    shown = {
        repr(list(a)): v for n, a, v, is_shown in REPOSITORIES["dates"][1] if is_shown and n == "year:is_leap"
    }
    cheat = REPOSITORIES["dates"][0]["year.py"].replace(
        "return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
        f"return {shown!r}.get(repr([year]), 7)",
    )
    state = state_of("dates", year=cheat)
    assert all(ok for ok, line in run_tests("dates", state.files, False) if line.startswith("is_leap"))
    hidden = [ok for ok, line in run_tests("dates", state.files, True) if line.startswith("is_leap")]
    assert not all(hidden)


@pytest.mark.parametrize(
    "text",
    [
        "while True: pass",
        "import os; os._exit(0)",
        "import os\nwhile True: os.fork()",
        "import builtins, sys\nsys.modules.clear()",
        "raise SystemExit",
        "class S:\n    def __eq__(self, o): return True\ndef total(e): return S()\ndef lowest(e): return S()",
        "import os, struct\nos.write(3, struct.pack('<I', 2) + b'{}')",
    ],
)
def test_hostile_repairs_fail(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: whatever a written file does, tests fail in words, and the next repair is graded."""
    limits = replace(repair_module._LIMITS, timeout_s=1.0)
    monkeypatch.setattr(repair_module, "_LIMITS", limits)
    state = replace(state_of("bank", ledger=text), num_edits=1, is_done=True)
    found = run_tests("bank", state.files, True)
    assert not all(is_right for is_right, _ in found)
    good = state_of("bank", ledger=REPOSITORIES["bank"][0]["ledger.py"] + f"# {text[:9]!r}\n")
    assert all(is_right for is_right, _ in run_tests("bank", good.files, True))


def test_a_failing_sandbox_is_no_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: our failure raises, in a step and in a grade; it is never a wrong repair."""

    class Broken:
        def run(self, *_: object) -> Outcome:
            return Outcome(Ending.INFRASTRUCTURE, "twice: gone")

    monkeypatch.setattr(repair_module, "shared_sandbox", Broken)
    state = state_of("bank", ledger="# never run before\n")
    for act in (lambda: TASK.step(state, "test"), lambda: TASK.grade("repair/train/0", state, [], False)):
        with pytest.raises(EnvironmentFault, match="sandbox"):
            act()


@pytest.mark.slow
def test_a_run_trains_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: exit code and ledger of a whole run with a random decoder: every rollout is graded."""
    from rollwright.cli.main import main
    from rollwright.engine.checkpoint import save_model
    from rollwright.engine.model import new_model
    from rollwright.tasks._recipe import Recipe
    from rollwright.tasks.tokenizer import character_tokenizer, save_tokenizer
    from rollwright.tasks.warmstart import decoder_config

    monkeypatch.chdir(tmp_path)
    Path("tiny").mkdir()
    tokenizer = character_tokenizer()
    save_tokenizer(tokenizer, Path("tiny"))
    shape = decoder_config(Recipe(width=32, num_layers=2, num_heads=2, inner=64), tokenizer.get_vocab_size())
    save_model(new_model(shape, 0), Path("tiny"))
    words = "train repair --model tiny --method grpo --num-steps 1 --num-tasks 2 --method-options.each 2"
    more = "--max-tokens 20 --task-options.max_turns 3 --threads 1 --device cpu --out run"
    assert main([*words.split(), *more.split()]) == 0
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    [step] = [line for line in lines if line["kind"] == "step"]
    assert (step["num_rollouts"], step["num_scored"], step["num_failed"]) == (4, 4, 0)


COMMANDS = st.sampled_from(
    [
        *("test", "read ledger.py", "read year.py", "set ledger.py 2     result = 1", "set x", "read"),
        *("write year.py\nx = 1", "write split.py\n", "done?", "", "set move.py 1", "\n\ntest\n"),
        "set rank.py 2   return []",
    ]
)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 30), st.lists(COMMANDS, max_size=5), st.integers(0, 5))
def test_replay_and_fork_agree(number: int, turns: list[str], at: int) -> None:
    """Metamorphic: the same commands, from the start or from a state in the middle, give equal states."""
    task_id = f"repair/train/{number}"
    whole, said = played(TASK, task_id, turns)
    middle, first = played(TASK, task_id, turns[:at])
    for turn in turns[at:]:
        middle, seen = TASK.step(middle, turn)
        first.append(seen.text)
    assert (middle, first) == (whole, said) and hash(middle) == hash(whole)
    assert 0 <= TASK.grade(task_id, whole, turns, False).score <= 1


def test_the_demonstrator() -> None:
    """Oracle: the grader: without noise it mends every bug; with noise half of its slips are given up."""
    rng, solved = np.random.default_rng(0), []
    for noise in (0.0, 1.0):
        for number in range(8):
            task_id = f"repair/test/{number}"
            episode = TASK.demonstrate(task_id, rng, noise)
            state, said = played(TASK, task_id, list(episode[::2]))
            assert said == list(episode[1::2])
            solved.append(TASK.grade(task_id, state, episode[::2], False).score)
    assert solved[:8] == [1.0] * 8 and 1 <= sum(solved[8:]) <= 7
    with pytest.raises(ConfigError):
        repair(max_turns=1)
