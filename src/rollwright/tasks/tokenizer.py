"""Character-level tokenisers: pieces encoded apart equal the whole encoded at once."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

PAD, EOS = "\u2400", "\u2403"  # one character each, so that no pieces of text can join into one
PAD_ID, EOS_ID = 0, 1
PRINTABLE = "\n" + "".join(chr(code) for code in range(32, 127))


def character_tokenizer(alphabet: str = PRINTABLE) -> Tokenizer:
    """Return a tokeniser with one token per character of ``alphabet``, after pad (0) and eos (1).

    A text with any other character makes ``encode`` raise: nothing is dropped in silence.
    """
    vocab = {PAD: PAD_ID, EOS: EOS_ID}
    for character in alphabet:
        vocab.setdefault(character, len(vocab))
    # no unk_token: WordLevel then raises on a character that it does not have
    inner = Tokenizer(models.WordLevel(vocab, unk_token="\0missing"))
    return _finish(inner)


def byte_tokenizer(alphabet: str = PRINTABLE) -> Tokenizer:
    """Return a tokeniser with the same ids for ``alphabet`` and a token per byte for all other text.

    It encodes any text without loss: a character outside the alphabet becomes its UTF-8 bytes.
    """
    vocab = {PAD: PAD_ID, EOS: EOS_ID}
    for character in alphabet:
        vocab.setdefault(character, len(vocab))
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    inner = Tokenizer(models.BPE(vocab, [], byte_fallback=True))
    return _finish(inner)


def _finish(inner: Tokenizer) -> Tokenizer:
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    specials = [AddedToken(text, special=True, normalized=False) for text in (PAD, EOS)]
    inner.add_special_tokens(specials)
    return inner


def save_tokenizer(inner: Tokenizer, path: str | Path) -> None:
    """Write tokenizer.json and the configs that name its end token, for transformers and for us."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    inner.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    generation = {"eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    (path / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
