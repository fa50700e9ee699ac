"""How far apart the policy that samples and the policy that learns are, token by token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rollwright.engine.forward import TorchForward
from rollwright.engine.model import Decoder
from rollwright.engine.pages import PAGE, PagedKV
from rollwright.engine.passes import Pass
from rollwright.engine.precision.forward import RoundedForward, shadow_of
from rollwright.engine.precision.learner import hidden_packed
from rollwright.engine.precision.value import Precision
from rollwright.errors import DataError

PLAIN = Precision()


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids, of which those from ``start`` on were sampled, 1 ≤ start < len(tokens)."""

    tokens: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The difference of two policies on sampled tokens, in nats.

    Args:
        num_tokens: sampled tokens.
        mean, p50, p99, p999, largest: of |logp_engine − logp_learner|.
        bias: mean of logp_learner − logp_engine.
        kl, kl_p99: KL(engine ‖ learner) over the whole vocabulary at each sampled place: mean and 99% point.
        sequence_std: deviation of a sequence's summed logp_learner − logp_engine.
        ratio_weight: effective sample size of the tokens' ratios, as a share of the tokens.
    """

    num_tokens: int
    mean: float
    p50: float
    p99: float
    p999: float
    largest: float
    bias: float
    kl: float
    kl_p99: float
    sequence_std: float
    ratio_weight: float


def probe(
    model: Decoder,
    texts: Sequence[Text],
    engine: Precision,
    learner: Precision = PLAIN,
    learner_model: Decoder | None = None,
) -> Mismatch:
    """Compare the engine's forward in one precision with the learner's in another.

    Args:
        model: the weights of both, unless ``learner_model`` is given.
        texts: what was sampled; the engine's own samples say what its training would see.

    Raises:
        DataError: a text has no sampled token, or there is none.
        ConfigError: the learner's precision has a format for keys and values.
    """
    if not texts or any(not 1 <= text.start < len(text.tokens) for text in texts):
        raise DataError("probe: expected texts with 1 ≤ start < number of tokens: each has a sampled token")
    engine_logits = EngineLogits(model, engine)
    deltas, kls, sums = [], [], []
    for text in texts:
        logp_e = engine_logits(text).double().log_softmax(-1)
        logp_l = learner_logits(learner_model or model, text, learner).double().log_softmax(-1)
        target = torch.tensor(text.tokens[text.start :])[:, None]
        delta = (logp_l - logp_e).gather(1, target)[:, 0]
        deltas.append(delta)
        sums.append(float(delta.sum()))
        kls.append((logp_e.exp() * (logp_e - logp_l)).sum(-1).clamp(min=0))
    return _mismatch(torch.cat(deltas), torch.cat(kls), sums)


def _mismatch(delta_T: Tensor, kl_T: Tensor, sums: Sequence[float]) -> Mismatch:
    size, ratio = delta_T.abs(), delta_T.exp()
    at = partial(torch.quantile, size)
    return Mismatch(
        num_tokens=delta_T.numel(),
        mean=float(size.mean()),
        p50=float(at(0.5)),
        p99=float(at(0.99)),
        p999=float(at(0.999)),
        largest=float(size.max()),
        bias=float(delta_T.mean()),
        kl=float(kl_T.mean()),
        kl_p99=float(torch.quantile(kl_T, 0.99)),
        sequence_std=float(np.std(sums)),
        ratio_weight=float(ratio.sum() ** 2 / (ratio.square().sum() * delta_T.numel())),
    )


class EngineLogits:
    """The engine's logits of given texts: the forward that samples, fed whole sequences.

    Prefilling and decoding give the same bits there, so these are what the sampler saw.
    """

    def __init__(self, model: Decoder, precision: Precision) -> None:
        shadow = shadow_of(model, precision)
        self.kv = PagedKV(model.cfg, model.embed)
        self.forward: TorchForward = RoundedForward(shadow, self.kv, precision)

    def __call__(self, text: Text) -> Tensor:
        """Return the logits at the sampled places, [T, V]."""
        num = len(text.tokens) - 1
        num_pages = math.ceil(num / PAGE)
        if num_pages > self.kv.num_pages:
            self.kv.grow(num_pages)
        place = np.arange(num, dtype=np.int32)
        counts = np.minimum(num - PAGE * np.arange(num_pages), PAGE).astype(np.int32)
        work = Pass(
            tokens=np.array(text.tokens[:-1], np.int32),
            positions=place,
            slots=np.zeros(num, np.int32),
            pages=place // PAGE,
            offsets=place % PAGE,
            table=np.arange(num_pages, dtype=np.int32)[None],
            counts=counts[None],
            out_rows=place[text.start - 1 :],
        )
        return self.forward.run(work, None)[0].clone()


@torch.no_grad()
def learner_logits(model: Decoder, text: Text, precision: Precision = PLAIN) -> Tensor:
    """Return the learner's logits at the sampled places, [T, V]."""
    tokens_N = torch.tensor(text.tokens[:-1], device=model.embed.device)
    hidden = hidden_packed(model, precision, tokens_N, [len(tokens_N)])
    return model.logits(hidden[text.start - 1 :])


def table(rows: Mapping[str, Mismatch]) -> str:
    """Return mismatches as lines of a table."""
    head = f"{'engine / learner':34} {'mean':>9} {'p99':>9} {'largest':>9} {'KL':>9} {'KL p99':>9} {'ESS':>6}"
    lines = [
        f"{name:34} {m.mean:9.2e} {m.p99:9.2e} {m.largest:9.2e} {m.kl:9.2e} {m.kl_p99:9.2e} "
        f"{m.ratio_weight:6.3f}"
        for name, m in rows.items()
    ]
    return "\n".join([head, *lines])
