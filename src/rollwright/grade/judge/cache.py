"""Replies on disk, one file each: written whole or not at all, and read by any process."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from rollwright.errors import GraderError


def key_of(**parts: Any) -> str:
    """Return the key of a request: the hash of everything that can change its reply."""
    return sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


class Cache:
    """A folder of replies by key. A damaged file is a miss, and is counted.

    Args:
        folder: made if it is not there.

    Raises:
        GraderError: the folder cannot be made or written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.num_damaged = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GraderError(f"no cache of replies at {folder}: {error.strerror}; name a folder") from error

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was put under the key, or None."""
        try:
            value = json.loads(self._path(key).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            self.num_damaged += 1
            return None
        if not isinstance(value, dict) or value.get("key") != key:
            self.num_damaged += 1
            return None
        return dict(value["reply"])

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Keep a reply.

        Raises:
            GraderError: it cannot be written.
        """
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    json.dump({"key": key, "reply": reply}, file)
                os.replace(name, path)  # noqa: PTH105  (the name is a string here)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)  # noqa: PTH108
                raise
        except OSError as error:
            raise GraderError(f"the cache at {self.folder} cannot be written: {error.strerror}") from error

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"
