"""Any dataset of reasoning-gym, by name, with its own scorer."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rollwright.errors import ConfigError, DataError, EnvironmentFault, UnknownName
from rollwright.tasks._content import check_split, parse_id, split_of
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_SUFFIX = "\nGive the answer between <answer> and </answer>.\n"


@lru_cache(maxsize=16)
def _build(dataset: str, seed: int, size: int, config: tuple[tuple[str, Any], ...]) -> Any:
    """Make the dataset, or say what is wrong with its name or settings."""
    try:
        factory = importlib.import_module("reasoning_gym.factory")
        importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise ConfigError(
            "reasoning-gym is not installed: install rollwright with its extra 'gym'"
        ) from error
    if dataset not in factory.DATASETS:
        raise UnknownName("reasoning-gym dataset", dataset, factory.DATASETS)
    try:
        return factory.create_dataset(dataset, **{"seed": seed, "size": size, **dict(config)})
    except (TypeError, AssertionError, ValueError) as error:
        raise ConfigError(f"gym:{dataset} refuses its settings {dict(config)}: {error}") from error


@lru_cache(maxsize=4096)
def _entry(task: Gym, index: int) -> Any:
    try:
        return task.family[index]
    except Exception as error:  # each dataset has its own ways to fail
        raise DataError(f"{task.name}: entry {index} of seed {task.seed} cannot be made: {error}") from error


@lru_cache(maxsize=16)
def _split_ids(task: Gym) -> dict[str, tuple[TaskId, ...]]:
    found: dict[str, list[TaskId]] = {"train": [], "test": []}
    for index in range(task.size):
        split = split_of(_entry(task, index)["question"])
        found[split].append(f"{task.name}/{split}/{index}")
    return {split: tuple(ids) for split, ids in found.items()}


@dataclass(frozen=True, slots=True)
class Gym:
    """See `gym`."""

    dataset: str
    seed: int = 0
    size: int = 1000
    max_tokens: int = 256
    context: int = 1024
    tags: bool = True
    config: tuple[tuple[str, Any], ...] = ()
    grader_version: str = field(default="reasoning-gym", init=False)
    max_turns: int = field(default=1, init=False)
    stop_strings: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        _ = self.family  # a wrong name or setting is an error now, not in the middle of a run

    @property
    def name(self) -> str:
        return f"gym:{self.dataset}"

    @property
    def recipe(self) -> Recipe:
        """Questions may hold any character."""
        return Recipe(is_bytes=True)

    @property
    def family(self) -> Any:
        """The dataset of reasoning-gym."""
        return _build(self.dataset, self.seed, self.size, self.config)

    def ids(self, split: str) -> Sequence[TaskId]:
        """Return the ids of a split. Every entry is made once, to see which split its question is in."""
        check_split(split)
        return _split_ids(self)[split]

    def entry(self, task_id: TaskId) -> Any:
        """Return the dataset's entry: the id's number is its index, whatever the split's other ids."""
        split, index = parse_id(self.name, task_id, lambda _: self.size)
        entry = _entry(self, index)
        if split_of(entry["question"]) != split:
            raise DataError(f"unknown task id {task_id!r}: entry {index} is not in split {split!r}")
        return entry

    def row(self, task_id: TaskId) -> dict[str, Any]:
        """Return what a user's reward function may look at."""
        entry = self.entry(task_id)
        return {"question": entry["question"], "answer": entry["answer"], "id": task_id}

    def prompt(self, task_id: TaskId) -> str:
        return str(self.entry(task_id)["question"]) + (_SUFFIX if self.tags else "\n")

    def reset(self, task_id: TaskId) -> TaskId:
        return task_id

    def step(self, state: TaskId, text: str) -> tuple[TaskId, Observation]:
        raise EnvironmentFault(f"{self.name} has one turn and no environment step")

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        """Score the answer in the last <answer> tags with the dataset's own scorer, and keep its score.

        1 is right; less, partial scores included, is wrong. No tags: no_answer, or truncated if cut. A
        scorer that raises or gives no finite number: grader_error, not scored.
        """
        text = "".join(turns)
        found = _TAGGED.findall(text) if self.tags else [text] if text.strip() and not truncated else []
        if not found:
            return Verdict(0.0, "truncated" if truncated else "no_answer", None, "no answer was given")
        answer, entry = found[-1].strip(), self.entry(task_id)
        try:
            score = float(self.family.score_answer(answer=answer, entry=entry))
        except Exception as error:  # the datasets' scorers raise many kinds on text they do not expect
            return Verdict(None, "grader_error", answer, f"{type(error).__name__}: {error}")
        if not math.isfinite(score):
            return Verdict(None, "grader_error", answer, f"the scorer returned {score}")
        return Verdict(score, "right" if score >= 1 else "wrong", answer)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Give the entry's answer, or with probability ``noise`` another random entry's.

        Raises:
            DataError: the dataset gives no answer for this entry.
        """
        entry = self.entry(task_id)
        if rng.random() < noise:
            entry = _entry(self, int(rng.integers(self.size)))
        if entry["answer"] is None:
            raise DataError(f"{task_id}: the dataset gives no answer to demonstrate")
        return [f"<answer>{entry['answer']}</answer>" if self.tags else str(entry["answer"])]


def gym(
    dataset: str,
    *,
    seed: int = 0,
    size: int = 1000,
    max_tokens: int = 256,
    context: int = 1024,
    tags: bool = True,
    **config: Any,
) -> Gym:
    """Take any dataset of reasoning-gym by name, for example ``gym:leg_counting``.

    Args:
        dataset: the dataset's name there.
        seed, size: the entries; entry k is a function of the seed and k.
        max_tokens, context: caps on the answer and on prompt with answer.
        tags: the answer stands between <answer> tags; without them the whole text is the answer.
        config: the dataset's own settings, for example ``max_animals=4``.
    """
    frozen = tuple(sorted((key, _freeze(value)) for key, value in config.items()))
    return Gym(dataset, seed, size, max_tokens, context, tags, frozen)


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
