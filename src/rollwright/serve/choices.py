"""One completion on its way out: what was sampled, as text and as the exact record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rollwright.events import Sampled
from rollwright.serve.text import TextStream
from rollwright.tree import StopReason

Json = dict[str, Any]
_FINISH = {
    StopReason.EOS: "stop",
    StopReason.STOP: "stop",
    StopReason.LENGTH: "length",
    StopReason.CONTEXT: "length",
    StopReason.INTERRUPTED: "abort",
}


@dataclass(slots=True)
class Piece:
    """What came at once: new text and the events behind it."""

    text: str
    events: Sequence[Sampled]

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.events for token in event.tokens]

    @property
    def stop(self) -> StopReason | None:
        return self.events[-1].stop if self.events else None

    @property
    def finish_reason(self) -> str | None:
        return None if self.stop is None else _FINISH[self.stop]

    def record(self) -> list[Json]:
        """Return the exact record: one entry for each run of tokens of one version."""
        runs: list[list[Sampled]] = []
        for event in self.events:
            if runs and (runs[-1][-1].version == event.version or not event.tokens):
                runs[-1].append(event)
            else:
                runs.append([event])
        return [_run(run) for run in runs]


def _run(events: Sequence[Sampled]) -> Json:
    last = events[-1]
    entry: Json = {
        "version": events[0].version,
        "tokens": [token for e in events for token in e.tokens],
        "logprobs": [logp for e in events for logp in e.logprobs],
        "entropies": _joined(events, "entropies"),
        "kept_masses": _joined(events, "kept_masses"),
        "prefilled": sum(e.prefilled for e in events),
        "stop": None if last.stop is None else last.stop.value,
    }
    top = _joined(events, "top")
    return entry if top is None else entry | {"top": top}


def _joined(events: Sequence[Sampled], name: str) -> list[Any] | None:
    parts = [getattr(event, name) for event in events]
    return None if any(part is None for part in parts) else [value for part in parts for value in part]


@dataclass(slots=True)
class Choice:
    """One completion.

    Args:
        index: its number in the answer.
        prompt: the ids it continues.
        stream: turns its ids into text; None leaves the text out.
    """

    index: int
    prompt: Sequence[int]
    stream: TextStream | None
    events: list[Sampled] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    is_begun: bool = False  # whether a piece of it was sent
    num_told: int = 0  # characters of the tokens whose logprobs were sent

    def take(self, events: Sequence[Sampled]) -> Piece:
        """Take what was sampled and return what may be shown of it."""
        stream = self.stream
        text = "" if stream is None else "".join(stream.push(e.tokens, e.stop) for e in events)
        self.events += events
        self.texts.append(text)
        return Piece(text, events)

    def whole(self) -> Piece:
        return Piece("".join(self.texts), self.events)

    @property
    def num_sampled(self) -> int:
        return sum(len(event.tokens) for event in self.events)
