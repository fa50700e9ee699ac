"""Dialogues as exact records of tokens.

The template has the say in what the model sees, the record in what it sampled. A prompt that goes on
from a row of the record is that row's ids and the encoding of the new text alone; the model's own ids
are never decoded and encoded again. A prompt that does not (the template took a thought out, or the
client changed a message) begins another row: no row ever holds ids that were not in its context.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

from rollwright.chat.check import Rewrite
from rollwright.chat.template import ChatTemplate, Message
from rollwright.errors import DataError


class Encoder(Protocol):
    """What a dialogue needs of a tokenizer (`rollwright.engine.checkpoint.Tokenizer`)."""

    @property
    def eos_ids(self) -> Sequence[int]: ...

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A run of ids with one origin. A piece is itself: two with equal ids are two pieces.

    Args:
        ids: the token ids.
        text: what the template writes in its place.
        is_sampled: the model sampled them; otherwise they encode a template's text.
        logprobs: one per id, if sampled and known.
        version: of the policy, if sampled and known.
    """

    ids: tuple[int, ...]
    text: str
    is_sampled: bool
    logprobs: tuple[float, ...] | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt, ready to be answered.

    Args:
        pieces: what the model sees, in order.
        num_new: how many of the ids were encoded for it; the others stand in a row already.
        rewrite: where and why it does not go on from a row; None if it does.
    """

    pieces: tuple[Piece, ...]
    num_new: int
    rewrite: Rewrite | None = None
    history: str = field(default="", repr=False)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(i for piece in self.pieces for i in piece.ids)


@dataclass(frozen=True, slots=True)
class Row:
    """One append-only run of ids: what one trajectory was, exactly.

    Args:
        pieces: in order.
        num_shared: leading pieces that an earlier row holds too: context here, trained there.
    """

    pieces: tuple[Piece, ...]
    num_shared: int

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(i for piece in self.pieces for i in piece.ids)

    @property
    def is_trainable(self) -> tuple[bool, ...]:
        """Which ids this row trains: those that were sampled, each in one row only."""
        return tuple(
            piece.is_sampled and place >= self.num_shared
            for place, piece in enumerate(self.pieces)
            for _ in piece.ids
        )

    @property
    def logprobs(self) -> tuple[float | None, ...]:
        """The logprob of each id; None where it was not sampled or is not known."""
        return tuple(value for piece in self.pieces for value in piece.logprobs or (None,) * len(piece.ids))


class Dialogue:
    """The record of one dialogue, or of everything that one agent did under one name.

    Args:
        template: turns messages into text.
        tokenizer: turns text into ids; it must add nothing of its own.
        tools: descriptions of tools for the template.
        variables: more variables for it, such as ``enable_thinking``.

    Example (``engine`` stands for anything that samples)::

        turn = dialogue.prompt([{"role": "user", "content": "Hi"}])
        message = dialogue.record(turn, engine(turn.ids))
        turn = dialogue.prompt([{"role": "user", "content": "Hi"}, message, {"role": "user", ...}])
    """

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Encoder,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self.template, self.tokenizer = template, tokenizer
        self.tools, self.variables = tools, dict(variables or {})
        self._rows: list[tuple[Piece, ...]] = []
        self._said: dict[str, str] = {}  # what the model said, by its message behind its history

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows, in the order of their first answers; every sampled id is trainable in one of them."""
        seen: set[int] = set()
        rows = []
        for pieces in self._rows:
            shared = sum(1 for _ in takewhile(lambda piece: id(piece) in seen, pieces))
            rows.append(Row(pieces, shared))
            seen.update(map(id, pieces))
        return tuple(rows)

    def prompt(self, messages: Sequence[Message]) -> Turn:
        """Return the prompt for the assistant's next turn; nothing is recorded yet.

        Args:
            messages: the whole dialogue so far, the answers of `record` among them.

        Raises:
            DataError: the template refuses the messages.
        """
        rendered, history = self._as_sampled(messages)
        text = self.template.render(rendered, self.tools, add_generation_prompt=True, **self.variables)
        best = max((_shared(row, text) for row in self._rows), key=len, default=())
        start = sum(len(piece.text) for piece in best)
        new = self.tokenizer.encode(text[start:]) if start < len(text) else []
        pieces = (*best, Piece(tuple(new), text[start:], False)) if new else best
        return Turn(pieces, len(new), self._rewrite(best, text), history)

    def record(
        self,
        turn: Turn,
        ids: Sequence[int],
        logprobs: Sequence[float] | None = None,
        version: int | None = None,
        message: Message | None = None,
    ) -> dict[str, Any]:
        """Put the model's answer behind its prompt and return it as a message.

        Args:
            turn: what was answered.
            ids: the sampled ids, with the end token if one was sampled; without one, the template's own
                end of a turn follows in the next prompt, as text that nobody sampled.
            logprobs: one per id.
            version: of the policy that sampled.
            message: the answer as it is handed to the client, where that is not all of its text: with
                tool calls parsed, or a thought set apart. When the client gives it back, what was sampled
                is put into the prompt in its place, byte for byte.

        Raises:
            DataError: the logprobs are not one per id.
        """
        if logprobs is not None and len(logprobs) != len(ids):
            raise DataError(f"{len(logprobs)} logprobs were given for {len(ids)} ids; expected one for each")
        has_end = bool(ids) and ids[-1] in self.tokenizer.eos_ids
        said = self.tokenizer.decode(ids[:-1] if has_end else ids)
        end = self.tokenizer.decode(ids[-1:]) if has_end else ""
        values = None if logprobs is None else tuple(logprobs)
        self._add(turn.pieces, Piece(tuple(ids), said + end, True, values, version))
        plain = {"role": "assistant", "content": said}
        handed = plain if message is None else dict(message)
        self._said[_after(turn.history, handed)] = said
        if handed.get("tool_calls"):
            self._said[_after("", handed)] = said  # calls have ids, so these are found without history
        return handed

    def _add(self, before: tuple[Piece, ...], answer: Piece) -> None:
        """Let the answer's row grow, or begin another where that row has gone on already."""
        for number, row in enumerate(self._rows):
            if len(row) <= len(before) and _same(row, before):
                self._rows[number] = (*before, answer)
                return
        self._rows.append((*before, answer))

    def _as_sampled(self, messages: Sequence[Message]) -> tuple[list[Message], str]:
        """Return the messages with what the model said in its own words, and the key of this history."""
        found: list[Message] = []
        history = ""
        for message in messages:
            history = _after(history, message)
            said = self._said.get(history)
            if said is None and message.get("tool_calls"):
                said = self._said.get(_after("", message))
            found.append(message if said is None else {"role": "assistant", "content": said})
        return found, history

    def _rewrite(self, best: tuple[Piece, ...], text: str) -> Rewrite | None:
        """Say why a prompt does not go on from a row. One that was asked before is no rewrite."""
        wholes = ["".join(piece.text for piece in row) for row in self._rows]
        if not wholes or any(text.startswith(whole) or whole.startswith(text) for whole in wholes):
            return None
        start = "".join(piece.text for piece in best)
        nearest = next(whole for whole in wholes if whole.startswith(start))
        return Rewrite("the dialogue", nearest, text)


def _shared(row: tuple[Piece, ...], text: str) -> tuple[Piece, ...]:
    """Return the leading pieces of a row that ``text`` begins with."""
    start = 0
    for number, piece in enumerate(row):
        if not text.startswith(piece.text, start):
            return row[:number]
        start += len(piece.text)
    return row


def _same(row: tuple[Piece, ...], before: tuple[Piece, ...]) -> bool:
    return all(a is b for a, b in zip(row, before, strict=False))


def _after(history: str, message: Message) -> str:
    """Return the key of a history with one more message; key order and empty values do not matter."""
    kept = {name: value for name, value in message.items() if value not in (None, "", [], {})}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(f"{history}{text}".encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
