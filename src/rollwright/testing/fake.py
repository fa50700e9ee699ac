"""A fake engine over a tabular policy, and a toy task: for unit tests and the law suite only.

The policy's logits at a prefix are a function of the prefix alone, so everything about a sample can be
computed again by hand. Noise and records follow the same definitions as the real engine's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwright import rng as randomness
from rollwright.events import Sampled, Submit
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import GroupId, NodeId, StopReason, TaskId

EOS = 0


def toy_logits(prefix: Sequence[int], num_words: int, version: int = 0) -> NDArray[np.float64]:
    """Return logits [V] that depend on the prefix and the version alone."""
    return _toy_logits(tuple(prefix), num_words, version)


@lru_cache(maxsize=1 << 16)
def _toy_logits(prefix: tuple[int, ...], num_words: int, version: int) -> NDArray[np.float64]:
    digest = hashlib.blake2b(f"{version}:{list(prefix)}".encode(), digest_size=8).digest()
    logits = np.random.default_rng(int.from_bytes(digest, "little")).normal(0, 1.2, num_words)
    logits[EOS] -= 0.8
    logits.flags.writeable = False  # it is shared
    return logits


def toy_sample(
    logits: NDArray[np.float64], stream: int, t: int, temperature: float, first: int | None = None
) -> tuple[int, float, float, NDArray[np.float64]]:
    """Return (token, logprob, entropy, logprobs [V]) of the race argmin(E / p); greedy at temperature 0."""
    scaled = logits / (temperature or 1.0)
    logp = scaled - np.logaddexp.reduce(scaled)
    if first is not None:
        token = first
    elif temperature == 0:
        token = int(np.argmax(logits))
    else:
        bits = randomness.noise_bits(randomness.step_words(stream, t), len(logits))
        token = int(np.argmin(randomness.exponential(bits) / np.exp(logp)))
    return token, float(logp[token]), float(-(np.exp(logp) * logp).sum()), logp


@dataclass
class _Live:
    command: Submit
    prefix: list[int]
    num_made: int = 0
    pending: list[tuple[int, float, float, tuple[tuple[int, float], ...]]] = field(default_factory=list)


class FakeEngine:
    """Samples from `toy_logits`. ``arrival`` shuffles which chunks arrive first (None: all in order)."""

    def __init__(self, num_words: int = 6, arrival: int | None = None, version: int = 0) -> None:
        self.num_words, self.version = num_words, version
        self.live: dict[NodeId, _Live] = {}
        self.order = None if arrival is None else np.random.default_rng(arrival)
        self.num_tokens = 0

    @property
    def num_live(self) -> int:
        return len(self.live)

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        assert len(prefix) == command.start, (len(prefix), command.start)
        self.live[command.ask] = _Live(command, list(prefix))

    def abort(self, ask: NodeId) -> Sampled:
        live = self.live.pop(ask)
        return self._event(live, StopReason.INTERRUPTED)

    def step(self) -> list[Sampled]:
        asks = list(self.live)
        if self.order is not None and asks:
            asks = [asks[i] for i in self.order.permutation(len(asks))[: 1 + len(asks) // 3]]
        return [self.advance(ask) for ask in asks]

    def advance(self, ask: NodeId) -> Sampled:
        """Decode one ask until its next chunk is due."""
        return self._advance(self.live[ask])

    def _advance(self, live: _Live) -> Sampled:
        command = live.command
        while True:
            t = command.start + live.num_made
            logits = toy_logits(live.prefix, self.num_words, self.version)
            first = command.first if live.num_made == 0 else None
            temperature = command.sampling.temperature
            token, logp, entropy, logps = toy_sample(logits, command.stream, t, temperature, first)
            best = np.argsort(-logps)[: command.num_top]
            live.pending.append((token, logp, entropy, tuple((int(v), float(logps[v])) for v in best)))
            live.prefix.append(token)
            live.num_made += 1
            self.num_tokens += 1
            stop = None
            if token == EOS or token in command.sampling.stop_ids:
                stop = StopReason.EOS if token == EOS else StopReason.STOP
            elif live.num_made >= command.max_tokens:
                stop = StopReason.LENGTH
            if stop is not None:
                del self.live[command.ask]
                return self._event(live, stop)
            if command.chunk and live.num_made % command.chunk == 0:
                return self._event(live, None)

    def _event(self, live: _Live, stop: StopReason | None) -> Sampled:
        made, live.pending = live.pending, []
        return Sampled(
            ask=live.command.ask,
            tokens=tuple(m[0] for m in made),
            logprobs=tuple(m[1] for m in made),
            entropies=tuple(m[2] for m in made),
            top=tuple(m[3] for m in made) if live.command.num_top else None,
            version=self.version,
            policy=live.command.policy,
            stop=stop,
            attempt=live.command.attempt,
        )

    def retire(self, group: GroupId) -> None:
        pass

    def publish(self, version: int) -> None:
        self.version = version


class ToyTokenizer:
    """Digits to ids and back; the end token is no text."""

    def encode(self, text: str) -> list[int]:
        return [int(c) for c in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(str(i) for i in ids)


@dataclass(frozen=True, slots=True)
class ToyTask:
    """Say a text with enough ones. With ``max_turns > 1`` the environment answers each turn.

    Reward 1 if ones make up at least ``share`` of all sampled text, else 0; a text that holds ``bad``
    cannot be graded (the grader raises).
    """

    num_tasks: int = 12
    max_turns: int = 1
    max_tokens: int = 12
    context: int = 64
    share: float = 0.2
    bad: str = "\n"
    name: str = "toy"
    grader_version: str = "1"
    stop_strings: tuple[str, ...] = ()

    def ids(self, split: str) -> Sequence[TaskId]:
        return [f"toy/{split}/{i}" for i in range(self.num_tasks)]

    def prompt(self, task_id: TaskId) -> str:
        return f"{int(task_id.rpartition('/')[2]) % 5 + 1}2"

    def reset(self, task_id: TaskId) -> Any:
        return ()

    def step(self, state: Any, text: str) -> tuple[Any, Observation]:
        state = (*state, text)
        return state, Observation(str(1 + len(text) % 4), terminated="3" in text)

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        text = "".join(turns)
        if self.bad in text:
            raise ValueError("toy grader cannot read this")
        is_right = bool(text) and text.count("1") / len(text) >= self.share
        return Verdict(float(is_right), "right" if is_right else "wrong")

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        return ["11"]
