"""Stop strings against a check of the whole text at every token."""

from __future__ import annotations

import random

import numpy as np
import pytest
from engine_help import characters, lively_model
from tokenizers import Tokenizer as InnerTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.stops import StopStrings

TEXT = "Thought: go on\nObservation: é ü 日本 x\n\nThe end. <stop> 2+2=4 </s> ok" * 3


def byte_level() -> Tokenizer:
    inner = InnerTokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    return Tokenizer(inner, "bytes", ())


def metaspace() -> Tokenizer:
    words = ["▁The", "▁end", ".", "▁", "▁x", "x", "▁ok", "\n", "▁▁"] + [f"<0x{b:02X}>" for b in range(256)]
    inner = InnerTokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)
    return Tokenizer(inner, "metaspace", ())


def first_stop_slowly(tokenizer, tokens, strings):
    for num in range(1, len(tokens) + 1):
        if any(s in tokenizer.decode(tokens[:num]) for s in strings):
            return num
    return None


def first_stop(stops, tokens, strings):
    index = stops.index(strings)
    for num in range(1, len(tokens) + 1):
        flagged = stops.flagged(np.array([index]), np.array([tokens[num - 1]]))
        if flagged.size and stops.is_complete(tokens[:num], strings):
            return num
    return None


@pytest.mark.parametrize("make", [byte_level, metaspace, characters])
@pytest.mark.parametrize(
    "strings", [("\nObservation:",), ("end.", "</s>"), ("日本",), ("é", "x\n"), (" ",), ("=4",)]
)
def test_incremental_check_equals_decoding_everything(make, strings):
    """Oracle: slow reference. Broken by: looking at the last token's text only."""
    tokenizer = make()
    stops = StopStrings(tokenizer, tokenizer.vocab_size)
    rng = random.Random(1)
    for _ in range(60):
        tokens = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 25))]
        if make is byte_level and rng.random() < 0.7:
            start = rng.randrange(len(TEXT) - 60)
            tokens = tokenizer.encode(TEXT[start : start + 60])
        assert first_stop(stops, tokens, strings) == first_stop_slowly(tokenizer, tokens, strings), tokens


def test_characters_spread_over_many_tokens():
    """Oracle: slow reference: two emoji of four byte tokens each. Broken by: a window that never grows."""
    tokenizer = metaspace()
    stops = StopStrings(tokenizer, tokenizer.vocab_size)
    tokens = [5, *(9 + byte for byte in "😀😀".encode()), 5]
    assert first_stop(stops, tokens, ("😀😀",)) == first_stop_slowly(tokenizer, tokens, ("😀😀",)) == 9


def test_case_t06_the_completing_token_is_the_last():
    """Oracle: case T06: "\\nOb" + "servation:" stops at token 5 of 6."""
    pieces = ["The", " end", ".", "\nOb", "servation:", " x"]
    vocab = {p: i + 1 for i, p in enumerate(pieces)} | {"<unk>": 0}
    inner = InnerTokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    inner.decoder = decoders.Fuse()
    stops = StopStrings(Tokenizer(inner, "t06", ()), 7)
    assert first_stop(stops, [1, 2, 3, 4, 5, 6], ("\nObservation:",)) == 5


def test_rows_without_strings_are_never_flagged():
    """Oracle: closed form: index -1 has no table."""
    stops = StopStrings(characters(), lively_model().cfg.vocab_size)
    index = stops.index(("A",))
    token = characters().encode("A")[0]
    assert stops.flagged(np.array([-1, index, -1]), np.array([token] * 3)).tolist() == [1]
