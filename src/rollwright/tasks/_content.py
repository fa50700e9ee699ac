"""Stable instance ids, and a split into train and test that is decided by content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

from rollwright.errors import DataError
from rollwright.rng import generator
from rollwright.tree import TaskId

SPLITS = ("train", "test")
TEST_SHARE = 0.25
_MAX_DRAWS = 2000
Content = TypeVar("Content")


def split_of(content: str, test_share: float = TEST_SHARE) -> str:
    """Return the split that owns ``content``: ``"test"`` if hash(content)/2⁶⁴ < test_share.

    The same content has one owner whatever its id, so train and test can never share an instance.
    """
    digest = hashlib.blake2b(content.encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") < test_share * 2**64 else "train"


@dataclass(frozen=True, slots=True)
class Ids(Sequence[TaskId]):
    """The ids ``"<task>/<split>/0"`` ... of one split, made when asked for.

    Args:
        task: the task's name.
        split: ``"train"`` or ``"test"``.
        num: how many instances the split has.
    """

    task: str
    split: str
    num: int

    def __post_init__(self) -> None:
        check_split(self.split)

    def __len__(self) -> int:
        return self.num

    @overload
    def __getitem__(self, index: int) -> TaskId: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TaskId]: ...
    def __getitem__(self, index: int | slice) -> TaskId | Sequence[TaskId]:
        if isinstance(index, slice):
            return [self[k] for k in range(self.num)[index]]
        return f"{self.task}/{self.split}/{range(self.num)[index]}"


def check_split(split: str) -> None:
    """Raise DataError unless ``split`` is one of the two."""
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: expected 'train' or 'test'")


def parse_id(task: str, task_id: TaskId, num_by_split: Callable[[str], int]) -> tuple[str, int]:
    """Split an id of ``task`` into (split, number).

    Raises:
        DataError: the id belongs to another task, names no split, or its number is out of range.
    """
    head, _, number = task_id.rpartition("/")
    owner, _, split = head.rpartition("/")
    if owner != task or split not in SPLITS or not number.isdecimal():
        raise DataError(f"unknown task id {task_id!r}: expected '{task}/train/<number>' or '.../test/...'")
    if int(number) >= num_by_split(split):
        raise DataError(f"unknown task id {task_id!r}: {split} has {num_by_split(split)} instances, from 0")
    return split, int(number)


def draw(
    task_id: TaskId,
    split: str,
    make: Callable[[np.random.Generator], Content],
    canonical: Callable[[Content], str],
) -> Content:
    """Return the first of the id's random draws whose content belongs to its split.

    Raises:
        DataError: none of 2000 draws does (the family is too small to be split).
    """
    for attempt in range(_MAX_DRAWS):
        content = make(generator(0, task_id, attempt))
        if split_of(canonical(content)) == split:
            return content
    raise DataError(
        f"{task_id}: no draw of {_MAX_DRAWS} belongs to split {split!r}; widen the task's options"
    )
