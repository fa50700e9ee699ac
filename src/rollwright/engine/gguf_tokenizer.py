"""The tokenizer and the chat template that a GGUF file carries.

A byte-level BPE is described by its tokens, its merges and the name of a pre-tokenizer; the rules behind
the names are those of llama.cpp, which are those of the models' own tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as _Tokenizer

from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.gguf_file import GgufFile
from rollwright.errors import ModelError

_CONTROL, _USER_DEFINED = 3, 4  # GGUF's kinds of token that stand outside the merges
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_PLAIN = ("default", "gpt-2", "mpt", "olmo", "jais")
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_KNOWN = (*_PLAIN, *_DIGITS, "qwen2", "llama-bpe")


def load_gguf_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a GGUF file.

    Raises:
        ModelError: the file cannot be read, or its tokenizer is no byte-level BPE with a known
            pre-tokenizer.
    """
    path = Path(path)
    read = GgufFile(path).fields.get
    kind = read("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelError(
            f"{path} holds a tokenizer of kind {kind!r}; read from GGUF is 'gpt2' (byte-level BPE). "
            "Load the model from its Hugging Face folder instead"
        )
    name = read("tokenizer.ggml.pre", "default")
    tokens: Sequence[str] = read("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in read("tokenizer.ggml.merges")]
    vocab = {token: number for number, token in enumerate(tokens)}
    inner = _Tokenizer(models.BPE(vocab, merges, ignore_merges=name == "llama-bpe"))
    inner.pre_tokenizer = _pre_tokenizer(name, path)
    if name == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.decoder = decoders.ByteLevel()
    kinds = read("tokenizer.ggml.token_type") or []
    for number, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        texts = [token for token, kind in zip(tokens, kinds, strict=False) if kind == number]
        added = [AddedToken(text, special=special, normalized=False) for text in texts]
        inner.add_special_tokens(added) if special else inner.add_tokens(added)
    ends = (read(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot", "eom"))
    eos_ids = tuple(dict.fromkeys(int(end) for end in ends if end is not None))
    return Tokenizer(inner, str(path), eos_ids)


def _pre_tokenizer(name: str, path: Path) -> Any:
    """Return the rule that cuts a text into the pieces within which merges may work."""
    if name in _PLAIN:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in _DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if name in ("qwen2", "llama-bpe"):
        split = pre_tokenizers.Split(Regex(_QWEN if name == "qwen2" else _LLAMA3), "isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, bytes_only])
    raise ModelError(
        f"{path} names the pre-tokenizer {name!r}; known are {', '.join(_KNOWN)}. "
        "Load the model from its Hugging Face folder instead"
    )


def gguf_chat_template(path: str | Path) -> tuple[str, str, str] | None:
    """Return (template, begin token, end token) of a GGUF file, or None if it has no chat template."""
    read = GgufFile(path).fields.get
    template = read("tokenizer.chat_template")
    if template is None:
        return None
    tokens = read("tokenizer.ggml.tokens")
    bos, eos = (read(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
    return template, *("" if number is None else tokens[number] for number in (bos, eos))


def save_gguf_tokenizer(path: str | Path, folder: Path) -> None:
    """Write a GGUF's tokenizer and template as the files of a Hugging Face folder."""
    tokenizer, chat = load_gguf_tokenizer(path), gguf_chat_template(path)
    tokenizer.inner.save(str(folder / "tokenizer.json"))
    texts = [tokenizer.inner.id_to_token(number) for number in tokenizer.eos_ids]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "eos_token": texts[0] if texts else None,
    }
    if chat is not None:
        config |= {"chat_template": chat[0], "bos_token": chat[1] or None}
    _write(folder / "tokenizer_config.json", config)
    _write(folder / "generation_config.json", {"eos_token_id": list(tokenizer.eos_ids)})


def _write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
