"""The shared place: one folder, one file per node and step, each put there by one rename.

    FOLDER/<node>/<step, 8 digits>.json

A node writes into its own subfolder only, and reads the others'. Nobody waits for anybody: a node that stops
publishes nothing more, and what it published stays. A file is read once; one that cannot be read is left out
and counted, for what another run writes must not stop this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rollwright.errors import StoreError
from rollwright.events import Received
from rollwright.swarm.text import Parcel, SharedGroup, Speech

MAX_BYTES = 64 << 20  # of one file; a larger one is no parcel
_decoder = msgspec.json.Decoder(Parcel)


@dataclass
class SharedFolder:
    """One node's door to the shared place.

    Args:
        path: the folder; it is made if it is missing.
        node: this node's name, unlike that of any other.
        speech: this run's tokens and text.
        known: sources that were received before, by this process or by the one that it goes on for.

    Raises:
        StoreError: the folder cannot be made.
    """

    path: Path
    node: str
    speech: Speech
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        try:
            (self.path / self.node).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"swarm: cannot make {self.path / self.node}: {error.strerror}") from error

    def publish(self, step: int, groups: Iterable[SharedGroup | None]) -> Path | None:
        """Share a step's groups, once: a file that is there already stays. None if there is nothing to say.

        Raises:
            StoreError: the file cannot be written.
        """
        said = tuple(group for group in groups if group is not None)
        path = self.path / self.node / f"{step:08d}.json"
        if not said or path.exists():
            return None
        part = path.with_suffix(".part")
        try:
            part.write_bytes(msgspec.json.encode(Parcel(self.node, step, said)))
            part.replace(path)
        except OSError as error:
            raise StoreError(f"swarm: cannot write {path}: {error.strerror}") from error
        return path

    def collect(self) -> Iterator[Received]:
        """Yield what others shared since the last call, by node and step."""
        for path in sorted(self.path.glob("*/*.json")):
            source = f"{path.parent.name}/{path.stem}"
            if path.parent.name != self.node and source not in self.known:
                self.known.add(source)
                yield self._read(path, source)

    def _read(self, path: Path, source: str) -> Received:
        try:
            if path.stat().st_size > MAX_BYTES:
                return Received(source=source, refused={"too_large": 1})
            parcel = _decoder.decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return Received(source=source, refused={"unreadable": 1})
        if parcel.format != 1 or parcel.node != path.parent.name:
            return Received(source=source, refused={"unreadable": 1})
        groups, refused = self.speech.heard(parcel)
        return Received(source=source, groups=tuple(groups), refused=refused)
