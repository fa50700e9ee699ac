"""Hugging Face checkpoint directories: safetensors, config.json, tokenizer.json."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer as _Tokenizer
from torch import Tensor

from rollwright.engine.model import Decoder, DecoderConfig
from rollwright.engine.shipped import find_model
from rollwright.errors import ModelError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


class Tokenizer:
    """Text to token ids and back. Nothing is added that the text does not hold.

    Args:
        inner: the tokenizer of the ``tokenizers`` library.
        name: where it came from, for records.
        eos_ids: tokens that end a text.
    """

    def __init__(self, inner: _Tokenizer, name: str, eos_ids: tuple[int, ...]) -> None:
        self.inner, self.name, self.eos_ids = inner, name, eos_ids
        inner.no_padding()
        inner.no_truncation()

    @property
    def vocab_size(self) -> int:
        return int(self.inner.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; special tokens only where the text spells them out."""
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """Return the text of ``ids``, with special tokens spelled out unless told otherwise."""
        return str(self.inner.decode(list(ids), skip_special_tokens=skip_special))


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a checkpoint: rows ``start`` to ``start + num`` of one of our parameters.

    ``paired`` says that its rows are rotary: halves in the checkpoint, neighbouring pairs with us.
    """

    theirs: str
    ours: str
    start: int
    num: int
    paired: bool = False


def tensor_parts(cfg: DecoderConfig) -> Iterator[Part]:
    """Yield every tensor of a checkpoint and where it lives in the fused parameters."""
    yield Part("model.embed_tokens.weight", "embed", 0, cfg.vocab_size)
    yield Part("model.norm.weight", "final_norm", 0, cfg.hidden_size)
    if not cfg.tie_embeddings:
        yield Part("lm_head.weight", "lm_head", 0, cfg.vocab_size)
    for i in range(cfg.num_layers):
        yield from _layer_parts(cfg, f"model.layers.{i}.", f"layers.{i}.")


def _layer_parts(cfg: DecoderConfig, theirs: str, ours: str) -> Iterator[Part]:
    num_q, num_k, num_v = cfg.qkv_sizes
    width, inner = cfg.hidden_size, cfg.intermediate_size
    yield Part(theirs + "input_layernorm.weight", ours + "input_norm", 0, width)
    yield Part(theirs + "post_attention_layernorm.weight", ours + "post_norm", 0, width)
    for kind in ("weight", "bias") if cfg.qkv_bias else ("weight",):
        fused, at = f"{ours}qkv_proj.{kind}", theirs + "self_attn."
        yield Part(f"{at}q_proj.{kind}", fused, 0, num_q, paired=True)
        yield Part(f"{at}k_proj.{kind}", fused, num_q, num_k, paired=True)
        yield Part(f"{at}v_proj.{kind}", fused, num_q + num_k, num_v)
    for kind in ("weight", "bias") if cfg.o_bias else ("weight",):
        yield Part(f"{theirs}self_attn.o_proj.{kind}", f"{ours}o_proj.{kind}", 0, width)
    for name in ("q_norm", "k_norm") if cfg.qk_norm else ():
        yield Part(f"{theirs}self_attn.{name}.weight", ours + name, 0, cfg.head_dim, paired=True)
    yield Part(theirs + "mlp.gate_proj.weight", ours + "gate_up_proj.weight", 0, inner)
    yield Part(theirs + "mlp.up_proj.weight", ours + "gate_up_proj.weight", inner, inner)
    yield Part(theirs + "mlp.down_proj.weight", ours + "down_proj.weight", 0, width)


def halves_to_pairs(value: Tensor, head_dim: int) -> Tensor:
    """Reorder rows of each head from (first half, second half) to neighbouring rotary pairs."""
    heads = value.unflatten(0, (-1, 2, head_dim // 2))
    return heads.transpose(1, 2).reshape(value.shape)


def pairs_to_halves(value: Tensor, head_dim: int) -> Tensor:
    """Undo `halves_to_pairs`."""
    heads = value.unflatten(0, (-1, head_dim // 2, 2))
    return heads.transpose(1, 2).reshape(value.shape)


def fill(model: Decoder, get: Callable[[str], Tensor | None], source: str) -> None:
    """Copy every tensor into the model's fused parameters.

    Raises:
        ModelError: a tensor is missing or has another shape than the config says.
    """
    key_to_parameter = dict(model.named_parameters())
    with torch.no_grad():
        for part in tensor_parts(model.cfg):
            target = key_to_parameter[part.ours][part.start : part.start + part.num]
            value = get(part.theirs)
            if value is None:
                raise ModelError(f"{source} has no tensor {part.theirs!r} of shape {tuple(target.shape)}")
            if value.shape != target.shape:
                raise ModelError(
                    f"{source}: tensor {part.theirs!r} has shape {tuple(value.shape)}, its config asks for "
                    f"{tuple(target.shape)}; the config and the weights do not belong together"
                )
            target.copy_(halves_to_pairs(value, model.cfg.head_dim) if part.paired else value)


def load_config(path: str | Path) -> DecoderConfig:
    """Read the config.json of a checkpoint directory."""
    return DecoderConfig.from_hf(_read_json(Path(path), "config.json"))


def load_model(path: str | Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Decoder:
    """Load a checkpoint directory, a ``.gguf`` file, or a model that has a name (`find_model`).

    Raises:
        ModelError: a file or tensor is missing, has another shape, or the family is unknown.
    """
    path = find_model(path)
    if path.suffix == ".gguf":
        from rollwright.engine.gguf import load_gguf

        return load_gguf(path).to(device=device, dtype=dtype)
    model = Decoder(load_config(path))
    name_to_file = _weight_files(path)
    open_files: dict[Path, Any] = {}

    def get(name: str) -> Tensor | None:
        file = name_to_file.get(name)
        if file is None:
            return None
        if file not in open_files:
            open_files[file] = _open(file)
        return open_files[file].get_tensor(name)

    fill(model, get, str(path))
    return model.to(device=device, dtype=dtype)


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} cannot be read as safetensors ({error}); copy the file again") from error


def _weight_files(path: Path) -> dict[str, Path]:
    """Return the file of each tensor, from the index of a sharded checkpoint or the single file."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        return {name: path / file for name, file in _read_json(path, index.name)["weight_map"].items()}
    file = path / "model.safetensors"
    if not file.exists():
        raise ModelError(
            f"no model.safetensors or its index in {path}; give a Hugging Face checkpoint folder"
        )
    return dict.fromkeys(_open(file).keys(), file)


def _read_json(path: Path, name: str) -> dict[str, Any]:
    file = path / name
    if not file.exists():
        raise ModelError(f"no {name} in {path}; give a Hugging Face checkpoint folder")
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error


def save_model(
    model: Decoder, path: str | Path, tokenizer_from: str | Path | Tokenizer | None = None
) -> None:
    """Write a checkpoint directory that transformers loads.

    Args:
        model: what to write; fused parameters are split into their usual names.
        path: the folder; made if missing.
        tokenizer_from: a folder whose tokenizer files are copied, or a tokenizer.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    key_to_parameter = dict(model.named_parameters())
    tensors: dict[str, Tensor] = {}
    for part in tensor_parts(model.cfg):
        value = key_to_parameter[part.ours].detach()[part.start : part.start + part.num]
        value = pairs_to_halves(value, model.cfg.head_dim) if part.paired else value
        tensors[part.theirs] = value.to("cpu", copy=True).contiguous()
    partial = path / "model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(model.cfg.to_hf(), indent=2) + "\n", encoding="utf-8")
    if isinstance(tokenizer_from, Tokenizer):
        tokenizer_from.inner.save(str(path / "tokenizer.json"))
    elif tokenizer_from is not None:
        _copy_tokenizer(Path(tokenizer_from), path)
    partial.replace(path / "model.safetensors")


def _copy_tokenizer(source: Path, target: Path) -> None:
    source = find_model(source)
    if source.suffix == ".gguf":
        from rollwright.engine.gguf_tokenizer import save_gguf_tokenizer

        return save_gguf_tokenizer(source, target)
    if not (source / "tokenizer.json").exists():
        raise ModelError(f"no tokenizer.json in {source}")
    for name in TOKENIZER_FILES:
        if (source / name).exists() and source.resolve() != target.resolve():
            shutil.copyfile(source / name, target / name)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a checkpoint directory (its tokenizer.json, with the end tokens that its
    configs name), of a ``.gguf`` file, or of a model that has a name (`find_model`).

    Raises:
        ModelError: the file is missing or broken.
    """
    path = find_model(path)
    if path.suffix == ".gguf":
        from rollwright.engine.gguf_tokenizer import load_gguf_tokenizer

        return load_gguf_tokenizer(path)
    file = path / "tokenizer.json"
    if not file.exists():
        raise ModelError(f"no tokenizer.json in {path}; a fast tokenizer's file is needed")
    try:
        inner = _Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"{file} is not a tokenizer of the tokenizers library: {error}") from error
    return Tokenizer(inner, str(path), _eos_ids(path))


def _eos_ids(path: Path) -> tuple[int, ...]:
    """Collect end tokens from generation_config.json and config.json: models often have several."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        if (path / name).exists():
            eos = _read_json(path, name).get("eos_token_id")
            found.extend([] if eos is None else eos if isinstance(eos, list) else [eos])
    return tuple(dict.fromkeys(found))
