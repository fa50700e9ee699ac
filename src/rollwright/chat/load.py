"""Find the chat template that comes with a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rollwright.chat.template import ChatTemplate
from rollwright.engine.shipped import find_model
from rollwright.errors import ModelError


def load_template(path: str | Path) -> ChatTemplate | None:
    """Return the chat template of a model, or None if it has none.

    Args:
        path: a model's folder, a ``.gguf`` file, or a known name (`rollwright.engine.shipped`).

    Raises:
        ModelError: the model is not there, or its template cannot be read.
    """
    path = find_model(path)
    if path.suffix == ".gguf":
        from rollwright.engine.gguf_tokenizer import gguf_chat_template

        found = gguf_chat_template(path)
        return None if found is None else ChatTemplate(*found)
    config = _config(path / "tokenizer_config.json")
    file = path / "chat_template.jinja"
    text = file.read_text(encoding="utf-8") if file.is_file() else _default(config.get("chat_template"), path)
    if text is None:
        return None
    return ChatTemplate(text, _token(config.get("bos_token")), _token(config.get("eos_token")))


def _config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error


def _default(value: Any, path: Path) -> str | None:
    """Return the template; some models have several by name, of which one is the default."""
    if not isinstance(value, list):
        return value
    named = {entry["name"]: entry["template"] for entry in value}
    if "default" not in named:
        raise ModelError(f"{path} has chat templates named {', '.join(named)}; expected one named 'default'")
    return str(named["default"])


def _token(value: Any) -> str:
    """Return a token's text; configs hold it plain or as an object."""
    return "" if value is None else str(value["content"] if isinstance(value, dict) else value)
