"""The character tokenisers: lossless, and pieces add up to the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwright.engine.checkpoint import load_tokenizer
from rollwright.tasks.tokenizer import (
    EOS,
    EOS_ID,
    PAD_ID,
    PRINTABLE,
    byte_tokenizer,
    character_tokenizer,
    save_tokenizer,
)

CHARACTERS, BYTES = character_tokenizer(), byte_tokenizer()
printable = st.text(st.sampled_from(PRINTABLE + EOS), max_size=30)
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def ids(inner, text):
    return inner.encode(text, add_special_tokens=False).ids


@given(printable, printable)
def test_pieces_of_characters_add_up(one, two):
    """Oracle: metamorphic; kills an end token that is spelled with several characters."""
    assert ids(CHARACTERS, one) + ids(CHARACTERS, two) == ids(CHARACTERS, one + two)
    assert len(ids(CHARACTERS, one)) == len(one)
    assert CHARACTERS.decode(ids(CHARACTERS, one), skip_special_tokens=False) == one


@given(anything, anything)
def test_pieces_of_any_text_add_up(one, two):
    """Oracle: metamorphic and the text itself; kills dropping characters in silence."""
    assert ids(BYTES, one) + ids(BYTES, two) == ids(BYTES, one + two)
    assert BYTES.decode(ids(BYTES, one), skip_special_tokens=False) == one


def test_ids_are_stable_and_shared():
    """Oracle: golden; checkpoints depend on these numbers."""
    assert CHARACTERS.get_vocab_size() == 98
    assert ids(CHARACTERS, "\n 09Az~" + EOS) == ids(BYTES, "\n 09Az~" + EOS) == [2, 3, 19, 28, 36, 93, 97, 1]


def test_a_character_that_is_missing_raises():
    """Oracle: an exception; kills a tokeniser that leaves it out."""
    with pytest.raises(Exception, match="UNK"):
        CHARACTERS.encode("3 é")


def test_saved_files_load_here_and_in_transformers(tmp_path):
    """Oracle: another implementation."""
    save_tokenizer(CHARACTERS, tmp_path)
    ours = load_tokenizer(tmp_path)
    assert ours.eos_ids == (EOS_ID,) and ours.encode("3 5:8\n") == ids(CHARACTERS, "3 5:8\n")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("3 5:8\n")["input_ids"] == ours.encode("3 5:8\n")
    assert (theirs.eos_token_id, theirs.pad_token_id) == (EOS_ID, PAD_ID)
    assert theirs.decode([*ours.encode("a b"), EOS_ID], skip_special_tokens=True) == "a b"
