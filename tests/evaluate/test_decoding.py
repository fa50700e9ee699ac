"""Decoding policies against plain greedy, beam search and best-of-N on a model that is a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwright.errors import ConfigError
from rollwright.evaluate.decoding import Decoded, DecodingPolicy, best, decode
from rollwright.rng import generator

EOS, SIZE, LONGEST = 0, 4, 4


def model(seed: int):
    """A model over four tokens whose next token depends on the whole text."""

    def next_logp(texts: Sequence[tuple[int, ...]]) -> np.ndarray:
        rows = [generator(seed, "table", *text).standard_normal(SIZE) * 1.5 for text in texts]
        logits = np.array(rows)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    return next_logp


def logp_of(next_logp, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> float:
    return math.fsum(float(next_logp([(*prompt, *tokens[:k])])[0][token]) for k, token in enumerate(tokens))


def all_texts() -> list[tuple[int, ...]]:
    """Every text of at most LONGEST tokens that ends with the end token or at the limit."""
    found = []
    for num in range(1, LONGEST + 1):
        for tokens in itertools.product(range(SIZE), repeat=num):
            if EOS not in tokens[:-1] and (tokens[-1] == EOS or num == LONGEST):
                found.append(tokens)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_greedy_and_a_full_beam(seed: int) -> None:
    """Oracle: a loop for greedy; enumeration of all texts for a beam that is as wide as there are texts.

    Kills: a beam that drops finished texts, logprobs of the wrong prefix.
    """
    next_logp, prompt = model(seed), (1, 2)
    tokens: tuple[int, ...] = ()
    while len(tokens) < LONGEST and EOS not in tokens:
        tokens += (int(np.argmax(next_logp([(*prompt, *tokens)])[0])),)
    (found,), spent = decode(DecodingPolicy(propose="top", max_tokens=LONGEST), next_logp, prompt, EOS)
    assert found.tokens == tokens and spent == len(tokens)
    assert found.logp == pytest.approx(logp_of(next_logp, prompt, tokens))
    wide = DecodingPolicy(width=400, expand=SIZE, propose="top", prune="best", max_tokens=LONGEST)
    texts, _ = decode(wide, next_logp, prompt, EOS)
    assert {text.tokens for text in texts} == set(all_texts())
    assert math.fsum(math.exp(text.logp) for text in texts) == pytest.approx(1.0)
    finished = [tokens for tokens in all_texts() if tokens[-1] == EOS]
    assert best(texts).tokens == max(finished, key=lambda tokens: logp_of(next_logp, prompt, tokens))


def beam_search(next_logp, prompt: tuple[int, ...], width: int) -> list[tuple[int, ...]]:
    """Plain beam search: the best ``width`` of all continuations; a finished text keeps its place."""
    done: list[tuple[int, ...]] = []
    beams: list[tuple[int, ...]] = [()]
    for _ in range(LONGEST):
        grown = [(*text, token) for text in beams for token in range(SIZE)]
        grown.sort(key=lambda tokens: -logp_of(next_logp, prompt, tokens))
        chosen = grown[: width - len(done)]
        done += [text for text in chosen if text[-1] == EOS]
        beams = [text for text in chosen if text[-1] != EOS]
    return done + beams


@pytest.mark.parametrize("width", (1, 2, 3))
def test_beams_are_beam_search(width: int) -> None:
    """Oracle: other implementation, over six models. Kills: pruning by the last token's logprob alone."""
    for seed in range(6):
        policy = DecodingPolicy(width=width, expand=SIZE, propose="top", prune="best", max_tokens=LONGEST)
        texts, _ = decode(policy, model(seed), (3,), EOS)
        assert [text.tokens for text in texts] == beam_search(model(seed), (3,), width)


def test_samples_are_samples() -> None:
    """Oracle: the probabilities of all texts.

    Kills: samples of one text that share noise, a wrong temperature.
    """
    next_logp = model(1)
    for temperature in (1.0, 0.5):
        policy = DecodingPolicy(width=1500, temperature=temperature, max_tokens=2)
        texts, spent = decode(policy, next_logp, (), EOS)
        assert len(texts) == 1500 and spent == sum(len(text.tokens) for text in texts)
        first = np.bincount([text.tokens[0] for text in texts], minlength=SIZE) / 1500
        p = np.exp(next_logp([()])[0] / temperature)
        assert first == pytest.approx(p / p.sum(), abs=0.05)
        assert texts[0].logp == pytest.approx(logp_of(next_logp, (), texts[0].tokens))
    one = decode(DecodingPolicy(width=8, max_tokens=LONGEST), next_logp, (), EOS, seed=3)[0]
    assert best(one) == max((t for t in one if t.is_finished), key=lambda t: t.logp)


def test_resampling_moves_to_likely_texts() -> None:
    """Oracle: power 0 keeps the samples' distribution, a large power leaves the likeliest.

    Kills: weights unused.
    """
    next_logp = model(2)
    even = DecodingPolicy(width=3000, prune="resample", power=0.0, max_tokens=1)
    texts, _ = decode(even, next_logp, (), EOS)
    shares = np.bincount([text.tokens[0] for text in texts], minlength=SIZE) / 3000
    assert shares == pytest.approx(np.exp(next_logp([()])[0]), abs=0.04)
    sharp = DecodingPolicy(width=200, prune="resample", power=50.0, max_tokens=1)
    texts, _ = decode(sharp, next_logp, (), EOS)
    assert {text.tokens[0] for text in texts} == {int(np.argmax(next_logp([()])[0]))}


POLICIES = st.builds(
    DecodingPolicy,
    width=st.integers(1, 6),
    expand=st.integers(1, 4),
    propose=st.sampled_from(["sample", "top"]),
    prune=st.sampled_from(["best", "random", "resample"]),
    budget=st.integers(1, 25),
    max_tokens=st.integers(1, 6),
)


@given(POLICIES, st.integers(0, 50))
def test_no_policy_spends_more_than_its_budget(policy: DecodingPolicy, seed: int) -> None:
    """Oracle: the laws themselves.

    Kills: one step too many, more texts than the width, a text that is lost.
    """
    texts, spent = decode(policy, model(seed), (1,), EOS, seed)
    assert spent <= policy.budget and 1 <= len(texts) <= policy.width
    assert all(len(text.tokens) <= policy.max_tokens for text in texts)
    assert all(text.is_finished == (EOS in text.tokens) and EOS not in text.tokens[:-1] for text in texts)
    assert all(0 <= text.finished_at <= spent for text in texts)
    assert decode(policy, model(seed), (1,), EOS, seed) == (texts, spent)
    if spent < policy.budget:
        assert all(text.is_finished or len(text.tokens) == policy.max_tokens for text in texts)


def test_what_is_refused() -> None:
    """Oracle: errors by name. Kills: an expansion that nobody prunes."""
    for given_ in ({"width": 0}, {"temperature": 0}, {"prune": "worst"}, {"propose": "x"}, {"expand": 2}):
        with pytest.raises(ConfigError, match="decoding policy"):
            DecodingPolicy(**given_)
    assert best([Decoded((1,), -1.0, False, 1), Decoded((1, 0), -3.0, True, 3)]).is_finished
