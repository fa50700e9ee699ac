"""What a modelled engine answers: how many tokens, which, and why they end. Time is the engine's part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollwright.drive.virtual.model import Distribution, share_of
from rollwright.errors import LawBroken
from rollwright.events import Submit
from rollwright.tree import Node, Origin, StopReason

Path = Sequence[tuple[Node, int]]

TOKEN, END = 1, 0  # placeholders: an ordinary token and an end token
LOGPROB = -1.0  # nats, a placeholder: nothing that a simulation reports depends on it
_LENGTH = 0x6C656E677468  # keeps the noise of lengths apart from all other noise
_ENDED = (StopReason.EOS, StopReason.STOP)


@dataclass(frozen=True, slots=True)
class Request:
    """A submit with what it continues.

    Args:
        stream: the trajectory key that the new tokens get (`rollwright.tree.Node.stream`).
        path: (node, number of its steps) from the root to the parent, ``command.at`` steps of the last.
    """

    command: Submit
    stream: str
    path: Path


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
        response: tokens that a turn would have without limits, rounded, at least 1.
    """

    gives: frozenset[str] = frozenset({"fork"})

    def __init__(self, response: Distribution) -> None:
        self.response = response

    def answer(self, request: Request, version: int) -> Placeholders:
        command, start = request.command, turn_start(request)
        length = max(1, round(self.response.at(share_of(command.stream, start, _LENGTH))))
        left = length - (command.start - start)
        if left < 1:
            raise LawBroken(
                f"{command.ask}: the turn from position {start} has {length} tokens and goes on at position"
                f" {command.start}; expected a run that was recorded with the same model"
            )
        if left <= command.max_tokens:
            return Placeholders(left, StopReason.EOS)
        return Placeholders(command.max_tokens, StopReason.LENGTH)

    def renew(self, answer: Answer, num_made: int, version: int) -> Answer:
        return answer


def turn_start(request: Request) -> int:
    """Return the position of the turn's first token: where the parts of the ask's own stream begin."""
    start = request.command.start
    for node, _ in reversed(request.path):
        if node.origin is not Origin.SAMPLED or node.stream != request.stream or node.stop in _ENDED:
            break
        start = node.start
    return start
