"""Messages between a program's process and its parent: a length, then JSON. Standard library only."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

_HEAD = struct.Struct("<I")


class Broken(Exception):
    """What came is no message."""


def pack(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message."""
    data = json.dumps(message).encode("utf-8", "surrogatepass")
    return _HEAD.pack(len(data)) + data


def read(fd: int) -> dict[str, Any] | None:
    """Return the next message of a blocking descriptor; None at its end."""
    head = _exactly(fd, _HEAD.size)
    if head is None:
        return None
    data = _exactly(fd, _HEAD.unpack(head)[0])
    return None if data is None else json.loads(data)


def write(fd: int, message: dict[str, Any]) -> None:
    """Write a message to a blocking descriptor."""
    data = memoryview(pack(message))
    while data:
        data = data[os.write(fd, data) :]


def _exactly(fd: int, num: int) -> bytes | None:
    parts = b""
    while len(parts) < num:
        data = os.read(fd, num - len(parts))
        if not data:
            return None
        parts += data
    return parts


class Inbox:
    """Messages out of bytes that come in pieces, from somebody who may send anything.

    Args:
        limit: the largest message, bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._data = limit, bytearray()

    def add(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that ``data`` completes.

        Raises:
            Broken: one is too long, no JSON, nested too deep or no object.
        """
        self._data += data
        messages = []
        while len(self._data) >= _HEAD.size:
            size = _HEAD.unpack_from(self._data)[0]
            if size > self._limit:
                raise Broken(f"a message of {size} bytes, over the limit of {self._limit}")
            if len(self._data) < _HEAD.size + size:
                break
            messages.append(_parsed(bytes(self._data[_HEAD.size : _HEAD.size + size])))
            del self._data[: _HEAD.size + size]
        return messages


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Broken(f"a message that is no JSON: {type(error).__name__}") from error
    if not isinstance(message, dict):
        raise Broken("a message that is no object")
    return message
