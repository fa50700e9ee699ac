"""A user's dataset: one JSON object a line, with a prompt and perhaps an answer and an id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollwright.errors import ConfigError, DataError, EnvironmentFault
from rollwright.grade.reward import RewardFunction
from rollwright.tasks._content import check_split, split_of
from rollwright.tasks._graders import RowGrader
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Task, Verdict
from rollwright.tasks.rewarded import with_rewards
from rollwright.tree import TaskId

_EXACT = RowGrader("exact")


def read_rows(path: Path, grader: RowGrader | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, row) of a JSON lines file; blank lines are passed over.

    Args:
        path: the file.
        grader: that rows are graded by; None where a reward function is given, so that no answer is needed.

    Raises:
        DataError: the file is missing, or a line is not an object with the fields it must have.
    """
    if not path.is_file():
        raise DataError(f"no dataset at {path}; give the path of a .jsonl file")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _checked(f"{path}, line {number}", line, grader)


def _checked(where: str, line: str, grader: RowGrader | None) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not valid JSON ({error}); expected one object a line") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: got {type(row).__name__}, expected an object with the field 'prompt'")
    for key in ("prompt",) if grader is None else ("prompt", "answer"):
        if row.get(key) is None:
            hint = "; or give a reward function" if key == "answer" else ""
            raise DataError(f"{where}: no field {key!r} (given: {', '.join(map(repr, row))}); add it{hint}")
    if not isinstance(row["prompt"], str) or not row["prompt"]:
        raise DataError(f"{where}: field 'prompt' is {row['prompt']!r}, expected a non-empty string")
    if not isinstance(row.get("id"), str | int | None):
        raise DataError(f"{where}: field 'id' is {row['id']!r}, expected a string or a whole number")
    if grader is not None:
        try:
            complaint = row_grader(row, grader).complaint(row["answer"])
        except ConfigError as error:
            raise DataError(f"{where}: {error}") from error
        if complaint:
            raise DataError(f"{where}: field 'answer' is {row['answer']!r}, {complaint}")
    return row


def row_grader(row: Mapping[str, Any], grader: RowGrader) -> RowGrader:
    """Return the grader of a row: its own ``grader`` and ``grader_settings``, else the task's.

    Raises:
        ConfigError: the row names no grader, or a setting that its grader does not have.
    """
    name, settings = row.get("grader"), row.get("grader_settings") or {}
    if not isinstance(name, str | None) or not isinstance(settings, dict):
        raise ConfigError(
            f"'grader' is {name!r} and 'grader_settings' {settings!r}; expected a grader's name and an object"
        )
    return grader.with_settings(name, settings)


def row_key(row: Mapping[str, Any]) -> str:
    """Return the row's ``id``, or 12 hex digits of the prompt's hash where it has none."""
    if row.get("id") is not None:
        return str(row["id"])
    return hashlib.blake2b(row["prompt"].encode(), digest_size=6).hexdigest()


@lru_cache(maxsize=8)
def _load(task: Jsonl) -> dict[str, dict[TaskId, dict[str, Any]]]:
    """Read the rows into {split: {id: row}}, and check ids and overlap."""
    splits: dict[str, dict[TaskId, dict[str, Any]]] = {"train": {}, "test": {}}
    prompt_to_first: dict[str, tuple[str, str]] = {}
    files = [(task.path, "train" if task.test else None)] + ([(task.test, "test")] if task.test else [])
    for path, fixed in files:
        for number, row in read_rows(Path(path), task.grader if task.needs_answer else None):
            where, key = f"{path}, line {number}", row_key(row)
            split = fixed or split_of(row["prompt"], task.test_share)
            first_split, first = prompt_to_first.setdefault(row["prompt"], (split, where))
            if first_split != split:
                raise DataError(f"{where}: this prompt is also in the training data ({first}); remove one")
            task_id = f"{task.name}/{split}/{key}"
            if task_id in splits[split]:
                raise DataError(f"{where}: id {key!r} is given twice; give each row an 'id' of its own")
            splits[split][task_id] = row
    if not splits["train"]:
        raise DataError(f"{task.path} has no training row")
    return splits


@dataclass(frozen=True, slots=True)
class Jsonl:
    """See `jsonl`."""

    path: str
    test: str | None = None
    test_share: float = 0.1
    max_tokens: int = 256
    context: int = 1024
    needs_answer: bool = True
    grader: RowGrader = _EXACT
    max_turns: int = field(default=1, init=False)
    stop_strings: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.test_share < 1:
            raise ConfigError(f"test_share={self.test_share} must lie in [0, 1)")
        _load(self)  # a wrong row is an error now, not in the middle of a run

    @property
    def name(self) -> str:
        return f"jsonl:{Path(self.path).stem}"

    @property
    def grader_version(self) -> str:
        return f"{self.grader.name}-1"

    @property
    def recipe(self) -> Recipe:
        """Prompts may hold any character."""
        return Recipe(is_bytes=True)

    def ids(self, split: str) -> Sequence[TaskId]:
        check_split(split)
        return tuple(_load(self)[split])

    def row(self, task_id: TaskId) -> dict[str, Any]:
        """Return the row of an id, all its fields included."""
        for rows in _load(self).values():
            if task_id in rows:
                return rows[task_id]
        raise DataError(f"unknown task id {task_id!r}: {self.path} has no such row")

    def prompt(self, task_id: TaskId) -> str:
        return str(self.row(task_id)["prompt"])

    def reset(self, task_id: TaskId) -> TaskId:
        return task_id

    def step(self, state: TaskId, text: str) -> tuple[TaskId, Observation]:
        raise EnvironmentFault(f"{self.name} has one turn and no environment step")

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        """Grade the answer by the row's grader (see `rollwright.tasks._graders`).

        The default compares the whole answer, stripped, with the row's ``answer``: the same text or wrong.
        """
        row, said = self.row(task_id), "".join(turns)
        if row.get("answer") is None:
            return Verdict(None, "bad_data", said.strip(), "the row has no answer to compare with")
        return row_grader(row, self.grader).grade(said, row["answer"], truncated)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Give the row's answer, or with probability ``noise`` another row's."""
        rows = list(_load(self)["train"].values())
        row = rows[int(rng.integers(len(rows)))] if rng.random() < noise else self.row(task_id)
        if row.get("answer") is None:
            raise DataError(f"{task_id}: the row has no answer to demonstrate")
        answer = row["answer"]
        return [str(answer) if isinstance(answer, str | int | float) else json.dumps(answer)]


def jsonl(
    path: str,
    *,
    test: str | None = None,
    test_share: float = 0.1,
    max_tokens: int = 256,
    context: int = 1024,
    grader: str = "exact",
    grader_settings: dict[str, Any] | None = None,
    reward: str | RewardFunction | Sequence[str | RewardFunction] | None = None,
) -> Task:
    """Take the rows of a JSON lines file, for example ``jsonl:data/questions.jsonl``.

    Args:
        path: one object a line with ``prompt``; ``answer`` too unless a reward is given; ``id`` if stable.
        test: a second file with the held-out rows; without it the prompt's hash decides.
        test_share: share of held-out rows where there is one file.
        max_tokens, context: caps on the answer and on prompt with answer.
        grader: exact, math, choice, text, numeric, json, regex or sql; a row's field ``grader`` goes first.
        grader_settings: of the grader, by name; a row's ``grader_settings`` go first.
        reward: ``"file.py:function"``, a function, or several, in the place of a grader.
    """
    if not path:
        raise ConfigError("jsonl needs a path: write jsonl:<path of a .jsonl file>")
    if reward is not None and (grader != "exact" or grader_settings):
        raise ConfigError(f"jsonl: given a reward and the grader {grader!r}; leave one of them out")
    by_name = RowGrader(grader, tuple((grader_settings or {}).items()))
    task = Jsonl(path, test, test_share, max_tokens, context, reward is None, by_name)
    return task if reward is None else with_rewards(task, reward)
