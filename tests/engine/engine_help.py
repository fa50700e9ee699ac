"""Small models, asks and a loop for the engine's tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as InnerTokenizer

from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.events import Sampled, Submit
from rollwright.rng import stream_key
from rollwright.tree import Sampling, StopReason

CHARACTERS = "".join(chr(c) for c in range(32, 32 + 61))


def config(**changes: object) -> DecoderConfig:
    base = {
        "family": "qwen2",
        "vocab_size": 64,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "qkv_bias": True,
        "max_positions": 256,
    }
    return DecoderConfig(**(base | changes))  # type: ignore[arg-type]


def lively_model(cfg: DecoderConfig | None = None, seed: int = 0, gain: float = 6.0) -> Decoder:
    """A random model whose next-token distributions are far from uniform and from each other."""
    model = new_model(cfg or config(), seed)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(gain) if p.ndim == 2 else p.add_(torch.randn(p.shape, generator=rng) * 0.1)
    return model


def characters(eos: tuple[int, ...] = (0,)) -> Tokenizer:
    """One token per character: ids 0..2 are specials."""
    vocab = {"<eos>": 0, "<pad>": 1, "<x>": 2} | {c: i + 3 for i, c in enumerate(CHARACTERS)}
    inner = InnerTokenizer(models.WordLevel(vocab, unk_token="<x>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    return Tokenizer(inner, "characters", eos)


def ask(
    name: str,
    prefix: Sequence[int],
    group: str = "g",
    stream: int | None = None,
    max_tokens: int = 20,
    sampling: Sampling | None = None,
    **more: object,
) -> tuple[Submit, list[int]]:
    """Return a submit and its prefix; the stream's key comes from the name unless given."""
    command = Submit(
        ask=name,
        group=group,
        parent="root",
        at=len(prefix),
        stream=stream_key(0, group, name) if stream is None else stream,
        start=len(prefix),
        max_tokens=max_tokens,
        sampling=sampling or Sampling(),
        **more,  # type: ignore[arg-type]
    )
    return command, list(prefix)


@dataclass
class Answer:
    """Everything that was reported for one ask."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    kept_masses: tuple[float, ...] = ()
    top: tuple = ()
    versions: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()
    prefilled: int = 0
    stop: StopReason | None = None

    def add(self, event: Sampled) -> None:
        assert self.stop is None, f"{event.ask} was answered after its end"
        self.tokens += event.tokens
        self.logprobs += event.logprobs
        self.entropies += event.entropies or ()
        self.kept_masses += event.kept_masses or ()
        self.top += event.top or ()
        self.versions += (event.version,) * len(event.tokens)
        self.chunks += (len(event.tokens),)
        self.prefilled += event.prefilled
        self.stop = event.stop

    @property
    def exact(self) -> tuple:
        """What must not depend on the schedule, to the last bit."""
        return self.tokens, self.logprobs, self.entropies, self.kept_masses, self.top, self.stop


def run(
    engine: LocalEngine, asks: Sequence[tuple[Submit, list[int]]], rng: random.Random | None = None
) -> dict[str, Answer]:
    """Submit everything (all at once, or at random moments) and step until idle."""
    todo = list(asks)
    if rng is not None:
        rng.shuffle(todo)
    answers = {command.ask: Answer() for command, _ in asks}
    while todo or engine.num_live:
        for _ in range(len(todo) if rng is None else min(rng.randint(0, 6), len(todo))):
            engine.submit(*todo.pop(0))
        for event in engine.step():
            answers[event.ask].add(event)
    return answers
