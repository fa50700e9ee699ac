"""One ask on its way through a server: what came, what is due to be reported, what may not be believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollwright.clients.dialect import Ask, Part
from rollwright.clients.gives import Gives, cuts
from rollwright.engine.stops import StopStrings, TextDecoder
from rollwright.errors import EngineError
from rollwright.events import Sampled, Submit
from rollwright.tree import StopReason

_MOST_CHUNK = 16  # tokens that a server may hold back: what an abort can cost
_COLUMNS = ("tokens", "logprobs", "entropies", "kept_masses", "top")
_TOLERANCE = 1e-3  # above 0, for logprobs that a server rounds


def server_chunk(chunk: int) -> int:
    """Return the largest divisor of a chunk that is small: reports then end where they are due."""
    if chunk <= 0:
        return _MOST_CHUNK
    return max(size for size in range(1, min(chunk, _MOST_CHUNK) + 1) if chunk % size == 0)


class Flight:
    """A submit and what was sampled for it.

    Args:
        command, prefix: of the submit.
        tokenizer: finds stop strings in ids, where the server may cut elsewhere; None trusts the server.
        gives: what the server can give.

    Tokens come in by `take`; `events` are cut where the in-process engine would cut them: after every
    ``chunk`` tokens, where the version changes, and at the end.
    """

    def __init__(
        self, command: Submit, prefix: Sequence[int], tokenizer: TextDecoder | None, gives: Gives
    ) -> None:
        self.command, self.prefix, self.gives = command, prefix, gives
        self.made: list[int] = []
        self.stop: StopReason | None = None
        self.events: list[Sampled] = []
        self.epoch = 0  # +1 when its stream is closed on purpose
        self._finder: StopStrings | None = None
        if tokenizer is not None and command.sampling.stop_strings and not gives.noise:
            self._finder = StopStrings(tokenizer, tokenizer.vocab_size)
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._version: int | None = None
        self._prefilled = 0

    def ask(self) -> Ask:
        """Return the request for what is left."""
        ids = [*self.prefix, *self.made]
        return Ask(self.command, ids, len(self.made), server_chunk(self.command.chunk))

    @property
    def num_unreported(self) -> int:
        return len(self._columns["tokens"])

    def take(self, part: Part, version: int) -> None:
        """Take what a message said.

        Args:
            part: the message.
            version: of the weights, where the message does not say.

        Raises:
            EngineError: it breaks what every answer must hold.
        """
        self._check(part)
        version = version if part.version is None else part.version
        self._prefilled += part.prefilled or 0
        for i, token in enumerate(part.tokens):
            if self.num_unreported and version != self._version:
                self.flush(None, version)
            self._version = version
            self.made.append(token)
            self._keep(part, i)
            is_last = i + 1 == len(part.tokens)
            stop = self._stop_at(token) or (self._named(part.stop) if is_last else None)
            if stop is not None:
                self.flush(stop, version)  # what came behind it was not asked for
                return
            if self.command.chunk and len(self.made) % self.command.chunk == 0:
                self.flush(None, version)
        if not part.tokens and part.stop is not None:
            self.flush(self._named(part.stop), version)

    def flush(self, stop: StopReason | None, version: int) -> None:
        """Make an event of all that is not reported; ``version`` labels one without tokens."""
        columns, self._columns = self._columns, {name: [] for name in _COLUMNS}
        command, prefilled = self.command, self._prefilled
        self._prefilled, self.stop = 0, stop
        label = version if self._version is None or not columns["tokens"] else self._version
        event = Sampled(
            ask=command.ask,
            tokens=tuple(columns["tokens"]),
            logprobs=tuple(columns["logprobs"]),
            policy=command.policy,
            version=label,
            entropies=tuple(columns["entropies"]) if self.gives.entropy else None,
            kept_masses=tuple(columns["kept_masses"]) if command.sampling.cuts else None,
            top=tuple(columns["top"]) if command.num_top else None,
            stop=stop,
            prefilled=prefilled,
            attempt=command.attempt,
        )
        self.events.append(event)

    def forget(self) -> int:
        """Drop what is not reported and return how many tokens that is."""
        num = self.num_unreported
        del self.made[len(self.made) - num :]
        self._columns = {name: [] for name in _COLUMNS}
        return num

    # ------------------------------------------------------------------ inside

    def _check(self, part: Part) -> None:
        name, num = f"ask {self.command.ask!r}", len(part.tokens)
        for what in ("logprobs", "entropies", "kept_masses", "top"):
            values = getattr(part, what)
            if values is not None and len(values) != num:
                raise EngineError(f"{name}: the server sent {len(values)} {what} for {num} tokens")
        left = self.command.max_tokens - len(self.made)
        if num > left:
            raise EngineError(f"{name}: the server sent {num} tokens where {left} were asked for")
        for logprob in part.logprobs:
            if not -1e30 < logprob <= _TOLERANCE:
                raise EngineError(f"{name}: the server says the logprob of a sampled token is {logprob}")
        needed = {
            "kept_masses": self.gives.kept_mass and cuts(self.command.sampling),
            "entropies": self.gives.entropy,
            "version": self.gives.version,
            "top": self.command.num_top > 0,
        }
        for what, is_needed in needed.items():
            if num and is_needed and getattr(part, what) is None:
                raise EngineError(f"{name}: the server sent no {what} with {num} tokens")

    def _keep(self, part: Part, i: int) -> None:
        for name, column in self._columns.items():
            values = getattr(part, name)
            # Greedy sampling ignores cuts: nothing was left out of what it chose from.
            column.append(1.0 if values is None and name == "kept_masses" else values and values[i])

    def _named(self, stop: StopReason | None) -> StopReason | None:
        is_short = stop is StopReason.LENGTH and len(self.made) < self.command.max_tokens
        return StopReason.CONTEXT if is_short else stop

    def _stop_at(self, token: int) -> StopReason | None:
        """Find the end of a turn by the ids themselves, except where a server of ours has done so."""
        if self.gives.noise:
            return None
        if token in self.command.sampling.stop_ids:
            return StopReason.STOP
        if self._finder is not None and self._finder.is_complete(
            self._turn(), self.command.sampling.stop_strings
        ):
            return StopReason.STOP
        return None

    def _turn(self) -> list[int]:
        """Return the ids of the turn so far: a stop string may begin before the submit."""
        start = self.command.turn_start
        carried = 0 if start is None else self.command.start - start
        return [*self.prefix[len(self.prefix) - carried :], *self.made] if carried else self.made
