"""Text as it is sampled: whole characters only, nothing of a stop string."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers

from rollwright.engine.checkpoint import Tokenizer
from rollwright.serve.text import TextStream
from rollwright.tasks.tokenizer import byte_tokenizer
from rollwright.tree import StopReason

BYTES = Tokenizer(byte_tokenizer(), "bytes", (1,))


def byte_level() -> Tokenizer:
    """One token per byte, as in GPT-2's scheme: a character of many bytes has many tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Inner(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return Tokenizer(inner, "byte level", ())


def pieces_of(*pieces: str) -> Tokenizer:
    inner = Inner(models.WordLevel({p: i for i, p in enumerate(pieces)}, unk_token=pieces[0]))
    inner.decoder = decoders.Fuse()
    return Tokenizer(inner, "pieces", ())


LEVEL = byte_level()


def feed(stream: TextStream, ids: list[int], stop: StopReason, rng: random.Random) -> list[str]:
    shown, at = [], 0
    while at < len(ids):
        num = rng.randint(1, 4)
        shown.append(stream.push(ids[at : at + num], stop if at + num >= len(ids) else None))
        at += num
    return shown


@pytest.mark.parametrize("tokenizer", [BYTES, LEVEL], ids=["byte fallback", "byte level"])
@given(text=st.text(max_size=30), seed=st.integers(0, 99))
def test_pieces_join_to_the_whole_text(tokenizer, text, seed):
    """Slow reference: the text decoded at once. Kills: half a character shown, a character lost."""
    ids = tokenizer.encode(text)
    shown = feed(TextStream(tokenizer), ids, StopReason.LENGTH, random.Random(seed))
    assert "".join(shown) == text
    assert all("�" not in piece for piece in shown) or "�" in text


@given(text=st.text("abc", max_size=30), stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_nothing_of_a_stop_string_is_shown(text, stops):
    """Slow reference: the text up to the first stop string, found at the token that completes it."""
    ends = [i for i in range(1, len(text) + 1) if any(s in text[:i] for s in stops)]
    is_stopped = bool(ends)
    made = text[: ends[0]] if is_stopped else text
    cut = min((made.find(s) for s in stops if s in made), default=len(made))
    ids = BYTES.encode(made)
    stop = StopReason.STOP if is_stopped else StopReason.LENGTH
    for seed in range(3):
        shown = feed(TextStream(BYTES, stops), ids, stop, random.Random(seed))
        assert "".join(shown) == made[:cut]
        for i in range(len(shown)):
            assert made[:cut].startswith("".join(shown[:i]))


def test_t06_text_is_cut_and_ids_are_not():
    """Case T06. Golden: the stop string ends within the fifth token; the sixth was never sampled."""
    tokenizer = pieces_of("<unk>", "The", " end", ".", "\nOb", "servation:", " x")
    stream = TextStream(tokenizer, ("\nObservation:",))
    shown = [stream.push([i]) for i in (1, 2, 3, 4)] + [stream.push([5], StopReason.STOP)]
    assert shown == ["The", " end", ".", "", ""]


def test_what_only_looks_like_a_stop_is_shown_late():
    """Hand: "\\nOb" is held until "ey" shows that it is not "\\nObservation:"."""
    tokenizer = pieces_of("<unk>", "A", "\nOb", "ey")
    stream = TextStream(tokenizer, ("\nObservation:",))
    assert [stream.push([1]), stream.push([2]), stream.push([3])] == ["A", "", "\nObey"]
    assert stream.push([2], StopReason.LENGTH) == "\nOb"


def test_end_tokens_are_no_text():
    """Hand: an end token and a stop id are left out, special or not; a stop by string keeps the rest."""
    tokenizer = pieces_of("<unk>", "A", "B")
    assert TextStream(tokenizer).push([1, 2], StopReason.EOS) == "A"
    assert TextStream(tokenizer, (), (2,)).push([1, 2], StopReason.STOP) == "A"
    assert TextStream(tokenizer, ("B",)).push([1, 2], StopReason.STOP) == "A"
    assert TextStream(tokenizer).push([1, 2], StopReason.LENGTH) == "AB"


def test_broken_characters_do_not_stop_the_stream():
    """Hand: bytes that never make a character come out as replacements, at most three tokens late."""
    bad = LEVEL.encode("é")[:1]
    stream = TextStream(LEVEL)
    shown = ""
    for num in range(1, 40):
        shown += stream.push(bad)
        assert num - 3 <= len(shown) <= num and set(shown) <= {"�"}
    assert stream.push(LEVEL.encode("A"), StopReason.LENGTH).endswith("A")


@given(ids=st.lists(st.integers(0, 255), max_size=40), seeds=st.tuples(st.integers(), st.integers()))
def test_the_text_does_not_depend_on_how_tokens_came(ids, seeds):
    """Metamorphic: bytes that are no text, in two ways of cutting. Kills: replacements that depend on it."""
    one, other = ("".join(feed(TextStream(LEVEL), ids, StopReason.LENGTH, random.Random(s))) for s in seeds)
    assert one == other
