"""Decoding as one policy on one axis: sampling, beam, tree search and resampling by the same budget of
tokens.

At each step every open text proposes ``expand`` next tokens; then the texts are pruned to ``width``. A token
costs one, whatever is done with it later, so operating points of all policies stand on one axis.

| policy | settings |
|---|---|
| greedy | width 1, propose top |
| N samples, best-of-N | width N, propose sample, prune none |
| beam search | width B, expand B, propose top, prune best |
| tree of samples | width W, expand K, propose sample, prune best or random |
| resampling (particles) | width N, propose sample, prune resample |

What comes out is scored afterwards (`rollwright.evaluate.measures`): pass@k, votes, the best by logprob, the
first to finish.

Source: UDF (2026). What differs: a token that was proposed and pruned at once is not paid for, for its text
was never continued; and the budget is kept exactly, by cutting what no longer fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import ConfigError
from rollwright.rng import generator

# Log probabilities of the next token, [N, V], of N texts.
NextLogp = Callable[[Sequence[tuple[int, ...]]], NDArray[np.float64]]
Propose = Literal["sample", "top"]
Prune = Literal["none", "best", "random", "resample"]


@dataclass(frozen=True, slots=True)
class DecodingPolicy:
    """An executable policy.

    Args:
        width: texts that are open at once, ≥ 1.
        expand: tokens proposed for each, ≥ 1.
        propose: ``"sample"`` draws them (without repeats), ``"top"`` takes the most likely.
        prune: ``"none"`` (expand must be 1), ``"best"`` by logprob of the whole text, ``"random"``, or
            ``"resample"``: draws texts with replacement, by the probability of their last token under
            ``power``.
        temperature: of sampling, > 0.
        power: of the probabilities in resampling, ≥ 0; 0 draws evenly.
        budget: tokens in all, ≥ 1.
        max_tokens: tokens of one text, ≥ 1.

    Raises:
        ConfigError: a value outside its range, or an expansion that nothing prunes.
    """

    width: int = 1
    expand: int = 1
    propose: Propose = "sample"
    prune: Prune = "none"
    temperature: float = 1.0
    power: float = 1.0
    budget: int = 1 << 30
    max_tokens: int = 256

    def __post_init__(self) -> None:
        for name in ("width", "expand", "budget", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"decoding policy: {name} = {getattr(self, name)!r}; expected at least 1")
        if not self.temperature > 0 or not self.power >= 0:
            raise ConfigError(
                f"decoding policy: temperature {self.temperature!r}, power {self.power!r}; expected > 0, ≥ 0"
            )
        for name, known in (("propose", get_args(Propose)), ("prune", get_args(Prune))):
            if getattr(self, name) not in known:
                raise ConfigError(f"decoding policy: {name} {getattr(self, name)!r}; expected one of {known}")
        if self.prune == "none" and self.expand > 1:
            raise ConfigError(
                f"decoding policy: expand {self.expand} with prune 'none'; expected a rule that prunes"
            )


@dataclass(frozen=True, slots=True)
class Decoded:
    """One text.

    Args:
        tokens: sampled ones, the end token included.
        logp: of all of them, under the model itself (temperature 1).
        is_finished: it ends with an end token; else a limit cut it.
        finished_at: tokens that all texts had cost when it was done.
    """

    tokens: tuple[int, ...]
    logp: float
    is_finished: bool
    finished_at: int


def decode(
    policy: DecodingPolicy, next_logp: NextLogp, prompt: Sequence[int], eos: int, seed: int = 0
) -> tuple[list[Decoded], int]:
    """Run a policy on one prompt.

    Args:
        next_logp: the model: texts (prompt included) to log probabilities of the next token.
        eos: the end token.

    Returns:
        (texts, tokens paid for), finished ones first and in the order in which they finished. At most
        ``policy.width`` texts: what finishes gives its place to no other.
    """
    rng = generator(seed, "decode", *prompt)
    num_open = policy.width if policy.propose == "sample" else 1
    texts: list[tuple[tuple[int, ...], float]] = [((), 0.0)] * num_open
    done: list[Decoded] = []
    cut: list[Decoded] = []
    spent = length = 0
    while texts and length < policy.max_tokens:
        logps = next_logp([(*prompt, *tokens) for tokens, _ in texts])
        children = [
            (place, token)
            for place, row in enumerate(logps)
            for token in _proposed(policy, np.asarray(row, float), rng)
        ]
        kept = _pruned(policy, texts, logps, children, policy.width - len(done), rng)
        fits = policy.budget - spent
        grown = [((*texts[p][0], token), texts[p][1] + float(logps[p][token])) for p, token in kept[:fits]]
        cut += [Decoded(*texts[place], False, spent) for place, _ in kept[fits:]]
        spent += len(grown)
        length += 1
        done += [Decoded(tokens, logp, True, spent) for tokens, logp in grown if tokens[-1] == eos]
        texts = [text for text in grown if text[0][-1] != eos]
        if spent >= policy.budget:
            break
    cut += [Decoded(tokens, logp, False, spent) for tokens, logp in texts]
    return [*done, *cut], spent


def _proposed(policy: DecodingPolicy, logp: NDArray[np.float64], rng: np.random.Generator) -> list[int]:
    """Return the tokens proposed after one text: distinct, the most likely (or drawn first) first."""
    if policy.propose == "sample":
        # The largest of logp/T + Gumbel noise is a sample; the largest few are samples without replacement.
        logp = logp / policy.temperature + rng.gumbel(size=len(logp))
    order = np.argsort(-logp, kind="stable")[: policy.expand]
    return [int(token) for token in order if logp[token] > -math.inf]


def _pruned(
    policy: DecodingPolicy,
    texts: Sequence[tuple[tuple[int, ...], float]],
    logps: NDArray[np.float64],
    children: list[tuple[int, int]],
    room: int,
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """Return the (text, token) that go on, at most ``room`` of them."""
    if policy.prune == "best":
        scores = np.array([texts[place][1] + float(logps[place][token]) for place, token in children])
        return [children[k] for k in np.argsort(-scores, kind="stable")[:room]]
    if policy.prune == "random":
        return [children[k] for k in sorted(rng.permutation(len(children))[:room])]
    if policy.prune == "resample":
        scores = policy.power * np.array([float(logps[place][token]) for place, token in children])
        weights = np.exp(scores - scores.max())
        num = min(room, len(texts))
        return [children[k] for k in sorted(rng.choice(len(children), num, p=weights / weights.sum()))]
    return children[:room]


def best(texts: Sequence[Decoded]) -> Decoded:
    """Return the finished text with the highest logprob, of all texts where none is finished."""
    finished = [text for text in texts if text.is_finished] or list(texts)
    return max(finished, key=lambda text: text.logp)
