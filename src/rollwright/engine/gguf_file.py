"""The container of a GGUF file: its metadata, and where its tensors lie.

The ``gguf`` package reads both too, but takes five seconds for the words of a vocabulary of 49,152; this
takes a fifth of a second. What the bytes of a quantised tensor mean stays the package's business.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rollwright.errors import ModelError

_MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: ``shape`` as torch has it (the file holds it reversed), kind, first byte."""

    shape: tuple[int, ...]
    kind: int
    start: int


class _Cursor:
    """Reads little-endian values one after another."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def numbers(self, code: str, num: int) -> tuple[Any, ...]:
        form = struct.Struct(f"<{num}{code}")
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values

    def string(self) -> str:
        end = self.number("Q") + self.at
        if end > len(self.data):
            raise ValueError("it ends in the middle of a string")
        text, self.at = self.data[self.at : end].decode("utf-8"), end
        return text

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(_NUMBERS[kind])
        inner, num = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            return list(self.numbers(_NUMBERS[inner], num))
        return [self.value(inner) for _ in range(num)]


class GgufFile:
    """An open GGUF file of version 2 or 3; tensors are mapped, not read.

    Args:
        path: the file.

    Attributes:
        fields: the metadata by key.
        tensors: `TensorInfo` by name.

    Raises:
        ModelError: there is no such file, or it is no GGUF file or a part of one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise ModelError(f"no file {self.path}")
        try:
            with self.path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._read(_Cursor(self._data))
        except (ValueError, KeyError, struct.error, OSError, OverflowError) as error:
            raise ModelError(
                f"{self.path} cannot be read as GGUF ({type(error).__name__}: {error}); copy the file again"
            ) from error

    def _read(self, cursor: _Cursor) -> None:
        if self._data[:4] != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        cursor.at = 4
        version = cursor.number("I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; expected 2 or 3")
        num_tensors, num_fields = cursor.numbers("Q", 2)
        self.fields: dict[str, Any] = {}
        for _ in range(num_fields):
            key = cursor.string()
            self.fields[key] = cursor.value(cursor.number("I"))
        found = []
        for _ in range(num_tensors):
            name, num_dims = cursor.string(), cursor.number("I")
            shape = cursor.numbers("Q", num_dims)[::-1]
            found.append((name, shape, cursor.number("I"), cursor.number("Q")))
        alignment = self.fields.get("general.alignment", 32)
        first = -(-cursor.at // alignment) * alignment
        self.tensors = {name: TensorInfo(shape, kind, first + at) for name, shape, kind, at in found}

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor's values, dequantised to float32.

        Raises:
            ModelError: it is of a kind that the gguf package cannot dequantise, or the file is cut off.
        """
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize

        info = self.tensors[name]
        try:
            kind = GGMLQuantizationType(info.kind)
            block, num_bytes = GGML_QUANT_SIZES[kind]
            rows = (*info.shape[:-1], info.shape[-1] // block * num_bytes)
            raw = np.frombuffer(self._data, np.uint8, int(np.prod(rows)), info.start).reshape(rows)
            plain = {GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16}
            raw = raw.view(plain[kind]) if kind in plain else raw
            return np.array(dequantize(raw, kind), np.float32)
        except (ValueError, NotImplementedError) as error:
            raise ModelError(f"{self.path}: tensor {name!r} cannot be read ({error})") from error
