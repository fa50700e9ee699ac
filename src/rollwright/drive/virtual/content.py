"""What a modelled engine answers: how many tokens, which, and why they end. Time is the engine's part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from rollwright import rng as randomness
from rollwright.drive.virtual.distributions import LEAST_SHARE, normal_at, normal_share, share_of
from rollwright.drive.virtual.model import Hard, Model
from rollwright.errors import LawBroken
from rollwright.events import Submit
from rollwright.tree import Node, Origin, StopReason, TaskId

Path = Sequence[tuple[Node, int]]

TOKEN, END = 1, 0  # placeholders: an ordinary token and an end token
LOGPROB = -1.0  # nats, a placeholder: nothing that a simulation reports depends on it
# They keep the noise of lengths and of kinds apart from all other noise.
_LENGTH, _HARD = 0x6C656E677468, 0x68617264
_ENDED = (StopReason.EOS, StopReason.STOP)


@dataclass(frozen=True, slots=True)
class Request:
    """A submit with what it continues.

    Args:
        stream: the trajectory key that the new tokens get (`rollwright.tree.Node.stream`).
        path: (node, number of its steps) from the root to the parent, ``command.at`` steps of the last.

    Attributes:
        ends: how far each stream of the path reaches, in tokens from the root.
        turn: sampled turns on the path; the parts of one count once.
    """

    command: Submit
    stream: str
    path: Path
    ends: dict[str, int] = field(init=False)
    turn: int = field(init=False)

    def __post_init__(self) -> None:
        ends, turn, was_sampled = {}, 0, False
        for node, num in self.path:
            ends[node.stream] = node.start + num
            is_sampled = node.origin is Origin.SAMPLED
            turn += is_sampled and not was_sampled
            was_sampled = is_sampled
        object.__setattr__(self, "ends", ends)
        object.__setattr__(self, "turn", turn)

    @property
    def task(self) -> TaskId:
        return self.command.group.rpartition("#")[0]


class Answer(Protocol):
    """The tokens that an ask will have once it is done, if nothing stops it.

    Attributes:
        num: tokens, ≥ 1.
        stop: why they end.
    """

    num: int
    stop: StopReason

    def columns(self, first: int, last: int) -> dict[str, Any]:
        """Return the fields of `Sampled` that hold one value per token, for tokens first to last - 1."""
        ...


class Content(Protocol):
    """Where answers come from. They depend on the ask, its path and the version, never on time.

    ``gives`` names what answers hold beyond tokens and logprobs (`rollwright.method.ENGINE_CAN_GIVE`).
    """

    gives: frozenset[str]

    def answer(self, request: Request, version: int) -> Answer: ...

    def renew(self, answer: Answer, num_made: int, version: int) -> Answer:
        """Return the answer whose tokens after the first ``num_made`` come from a new version."""
        ...


class Placeholders:
    """An answer of placeholder tokens: only its length and its end mean something."""

    __slots__ = ("num", "stop")

    def __init__(self, num: int, stop: StopReason) -> None:
        self.num, self.stop = num, stop

    def columns(self, first: int, last: int) -> dict[str, Any]:
        num = last - first
        if last == self.num and self.stop is StopReason.EOS:
            tokens = (TOKEN,) * (num - 1) + (END,)
        else:
            tokens = (TOKEN,) * num
        return {"tokens": tokens, "logprobs": (LOGPROB,) * num}


class ModelledContent:
    """Turns whose length is a function of the noise key and of where the turn starts.

    The key holds (run seed, task, trajectory), so a length depends on no schedule: an interrupted turn
    goes on to the same end, wherever and whenever it is resumed.

    Args:
        model: of its tasks, the tokens that a turn would have without limits, rounded, at least 1.
    """

    gives: frozenset[str] = frozenset({"fork"})

    def __init__(self, model: Model) -> None:
        self.model = model

    def answer(self, request: Request, version: int) -> Placeholders:
        command, (start, began) = request.command, turn_start(request)
        length = self.length(request.task, command.stream, start, version if began is None else began)
        left = length - (command.start - start)
        if left < 1:
            raise LawBroken(
                f"{command.ask}: the turn from position {start} has {length} tokens and goes on at position"
                f" {command.start}; expected a run that was recorded with the same model"
            )
        if left <= command.max_tokens:
            return Placeholders(left, StopReason.EOS)
        return Placeholders(command.max_tokens, StopReason.LENGTH)

    def length(self, task: TaskId, key: int, start: int, version: int) -> int:
        """Return the tokens of the turn from ``start`` of a trajectory with a noise key, without limits."""
        tasks = self.model.tasks_of(task)
        share = share_of(key, start, _LENGTH)
        if tasks.alike:
            z = math.sqrt(tasks.alike) * normal_of(task, "length")
            z += math.sqrt(1 - tasks.alike) * normal_at(share)
            share = min(max(normal_share(z), LEAST_SHARE), 1 - LEAST_SHARE)
        num = tasks.response.at(share)
        if tasks.growth:
            num *= (1 + tasks.growth) ** version
        if tasks.hard is not None and is_hard(tasks.hard, key):
            num *= tasks.hard.factor
        return max(1, round(num))

    def renew(self, answer: Answer, num_made: int, version: int) -> Answer:
        return answer


def turn_start(request: Request) -> tuple[int, int | None]:
    """Return where the turn begins, and the version that began it, None if nothing of it is sampled.

    It is the position of its first token: where the parts of the ask's own stream begin.
    """
    start, version = request.command.start, None
    for node, _ in reversed(request.path):
        if node.origin is not Origin.SAMPLED or node.stream != request.stream or node.stop in _ENDED:
            break
        start, version = node.start, node.version if node.version is not None else version
    return start, version


def is_hard(hard: Hard, key: int) -> bool:
    """Whether the trajectory of a noise key is a hard one."""
    return share_of(key, 0, _HARD) < hard.share


@lru_cache(maxsize=100_000)
def normal_of(task: TaskId, what: str) -> float:
    """Return a standard normal variable that is fixed by the task's id, for every seed."""
    return normal_at(share_of(randomness.stream_key(0, task, what), 0))
