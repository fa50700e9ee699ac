"""Repair: find and mend the bug in a small Python repository, with its tests run in the sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.grade.sandbox.pool import shared_sandbox
from rollwright.grade.sandbox.program import Call, Ending, Limits, Program
from rollwright.grade.sandbox.values import is_equal
from rollwright.rng import generator
from rollwright.tasks._content import Ids, parse_id, split_of
from rollwright.tasks._repair_bugs import Bug, all_bugs
from rollwright.tasks._repair_repositories import REPOSITORIES
from rollwright.tasks._repair_unseen import UNSEEN
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

Files = tuple[tuple[str, str], ...]  # (path, text), by path
_LIMITS = Limits(timeout_s=5.0, memory_mb=256, output_kb=64, num_processes=8, file_mb=4)
_MOST_TEXT = 4000
# One process runs all tests; what they gave is compared outside.
_RUNNER = """
import importlib
def run(calls):
    found = []
    for name, args in calls:
        try:
            module, _, function = name.partition(":")
            found.append([True, getattr(importlib.import_module(module), function)(*args)])
        except Exception as error:
            found.append([False, type(error).__name__ + ": " + str(error)[:100]])
    return found
"""
_HELP = "read FILE, set FILE LINE TEXT, write FILE and its text below, test, done"


@dataclass(frozen=True, slots=True)
class State:
    """The repository's files as they are now.

    Args:
        repository: its name.
        files: (path, text), by path.
        num_edits: how often a file was changed.
        is_done: the repair was said to be over.
    """

    repository: str
    files: Files
    num_edits: int = 0
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """See `repair`."""

    max_turns: int
    hidden: bool
    name: str = field(default="repair", init=False)
    grader_version: str = field(default="1", init=False)
    max_tokens: int = field(default=400, init=False)
    stop_strings: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if self.max_turns < 2:
            raise ConfigError(f"max_turns={self.max_turns} must be 2 or more: an edit and `done`")

    @property
    def context(self) -> int:
        return 1200 + self.max_turns * (self.max_tokens + 700)

    def num_instances(self, split: str) -> int:
        return len(_bugs(split))

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def bug(self, task_id: TaskId) -> Bug:
        """Return the bug of an id."""
        split, number = parse_id(self.name, task_id, self.num_instances)
        return _bugs(split)[number]

    def prompt(self, task_id: TaskId) -> str:
        bug = self.bug(task_id)
        shown = [
            f"{name.partition(':')[2]}({', '.join(map(repr, args))}) == {value!r}"
            for name, args, value, is_shown in REPOSITORIES[bug.repository][1]
            if is_shown
        ]
        files = " ".join(sorted(bug.files()))
        return "\n".join(["Mend the bug, so that all tests pass.", *shown, f"files: {files}", _HELP, ""])

    def reset(self, task_id: TaskId) -> State:
        bug = self.bug(task_id)
        return State(bug.repository, tuple(sorted(bug.files().items())))

    def step(self, state: State, text: str) -> tuple[State, Observation]:
        """Carry out one command; a turn that is none is answered by the list of commands.

        Raises:
            EnvironmentFault: the sandbox failed, or the repair is over already.
        """
        if state.is_done:
            raise EnvironmentFault("repair: the repair is over; it takes no further command")
        head, _, below = text.strip("\n").partition("\n")
        word, _, rest = head.strip().partition(" ")
        if word == "done":
            return replace(state, is_done=True), Observation("", terminated=True)
        if word == "test":
            return state, Observation(self._tested(state) + "\n")
        files = dict(state.files)
        if word == "read":
            return state, Observation(_numbered(files.get(rest.strip())))
        if word == "set":
            return _edited(state, *_with_line(files, rest))
        if word == "write":
            return _edited(state, *_with_text(files, rest.strip(), below))
        return state, Observation(f"commands: {_HELP}\n")

    def _tested(self, state: State) -> str:
        found = run_tests(state.repository, state.files, hidden=False)
        failed = [line for is_right, line in found if not is_right]
        return "\n".join([f"{len(found) - len(failed)} of {len(found)} pass", *failed[:3]])

    def grade(self, task_id: TaskId, state: State, turns: Sequence[str], truncated: bool) -> Verdict:
        """Right if all tests pass, those that were not shown too; ``rewards["tests"]`` is their share.

        Raises:
            EnvironmentFault: the sandbox failed.
        """
        found = run_tests(state.repository, state.files, hidden=self.hidden)
        failed = [line for is_right, line in found if not is_right]
        share = 1 - len(failed) / len(found)
        if not failed:
            return Verdict(1.0, "right", detail=f"{state.num_edits} edits", rewards={"tests": share})
        status = "no_answer" if not state.num_edits else "wrong" if state.is_done else "truncated"
        return Verdict(0.0, status, detail=failed[0], rewards={"tests": share})

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Run the tests, read, mend the line, test again.

        With probability ``noise`` it writes a wrong line first, and then gives up half of the time.
        """
        bug, state = self.bug(task_id), self.reset(task_id)
        worse = bug.broken.replace(bug.broken.lstrip(), "pass")
        turns = ["test", f"read {bug.path}", f"set {bug.path} {bug.line} {bug.right}", "test", "done"]
        if rng.random() < noise:
            turns[2:2] = [f"set {bug.path} {bug.line} {worse}", "test"]
            turns[4:] = ["done"] if rng.random() < 0.5 else turns[4:]
        episode: list[str] = []
        for turn in turns[: self.max_turns]:
            state, seen = self.step(state, turn)
            episode += [turn, seen.text]
        return episode


@lru_cache(maxsize=4096)
def run_tests(repository: str, files: Files, hidden: bool) -> tuple[tuple[bool, str], ...]:
    """Run a repository's tests; (passed, what happened) of each.

    Args:
        repository: whose tests.
        files: as they are now.
        hidden: also those that are not shown.

    Raises:
        EnvironmentFault: the sandbox failed, so nothing is known.
    """
    tests = [test for test in REPOSITORIES[repository][1] if test[3] or hidden]
    calls = [[name, list(args)] for name, args, _, _ in tests]
    outcome = shared_sandbox().run(Program(_RUNNER, call=Call("run", (calls,)), files=dict(files)), _LIMITS)
    if outcome.ending is Ending.INFRASTRUCTURE:
        raise EnvironmentFault(f"repair: the sandbox failed: {outcome.detail}")
    if outcome.ending is not Ending.DONE or not _is_list_of_pairs(outcome.value, len(tests)):
        return ((False, f"the tests do not run: {outcome.ending} {outcome.detail}"[:200]),) * len(tests)
    return tuple(
        _compared(name.partition(":")[2], args, given, value)
        for (name, args, value, _), given in zip(tests, outcome.value, strict=True)
    )


def _is_list_of_pairs(value: Any, num: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == num
        and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    )


def _compared(name: str, args: tuple[Any, ...], given: list[Any], value: Any) -> tuple[bool, str]:
    has_value, gave = given
    shown = f"{name}({', '.join(map(repr, args))})"
    if has_value is True and is_equal(gave, value):
        return True, shown
    try:
        text = repr(gave)[:100] if has_value is True else str(gave)[:100]
    except (ValueError, RecursionError):
        text = "a value too large to show"
    return False, f"{shown} gave {text}, not {value!r}"


def _numbered(text: str | None) -> str:
    if text is None:
        return "no such file\n"
    return "".join(f"{number}|{line}\n" for number, line in enumerate(text.splitlines(), 1))


def _edited(state: State, files: Mapping[str, str] | None, said: str) -> tuple[State, Observation]:
    if files is None:
        return state, Observation(said + "\n")
    after = replace(state, files=tuple(sorted(files.items())), num_edits=state.num_edits + 1)
    return after, Observation(said + "\n")


def _with_line(files: dict[str, str], rest: str) -> tuple[dict[str, str] | None, str]:
    """Return the files with one line replaced, or None, and what to answer."""
    match = re.fullmatch(r"\s*(\S+) +(\d{1,4})(?: (.*))?", rest)
    if not match or match[1] not in files:
        return None, "expected: set FILE LINE TEXT, with a file that exists"
    path, number, text = match[1], int(match[2]), match[3] or ""
    lines = files[path].splitlines()
    if not 1 <= number <= len(lines):
        return None, f"{path} has the lines 1 to {len(lines)}"
    lines[number - 1] = text
    return {**files, path: "\n".join(lines) + "\n"}, "set"


def _with_text(files: dict[str, str], path: str, text: str) -> tuple[dict[str, str] | None, str]:
    """Return the files with one written anew, or None, and what to answer."""
    if path not in files:
        return None, "expected: write FILE, with a file that exists, and its text on the lines below"
    if len(text) > _MOST_TEXT:
        return None, f"a file holds {_MOST_TEXT} characters at most"
    return {**files, path: text.rstrip("\n") + "\n"}, "written"


@lru_cache(maxsize=2)
def _bugs(split: str) -> tuple[Bug, ...]:
    """Return the bugs of a split that a shown test sees, in a fixed shuffled order."""
    pool = [bug for bug in all_bugs() if bug.content not in UNSEEN and split_of(bug.content) == split]
    order = generator(0, "repair", split).permutation(len(pool))
    return tuple(pool[int(k)] for k in order)


def repair(*, max_turns: int = 8, hidden: bool = True) -> Repair:
    """Mend the bug of one token in a small Python repository; its tests run in the sandbox.

    Args:
        max_turns: commands in an episode.
        hidden: whether tests that are not shown count too.
    """
    return Repair(max_turns=max_turns, hidden=hidden)
