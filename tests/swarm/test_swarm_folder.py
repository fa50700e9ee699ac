"""The shared folder: whole files only, each read once, and nothing that others write stops a run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from test_swarm_text import digits, parcel, rollout, said

from rollwright.errors import StoreError
from rollwright.store.codec import decode_record, encode_record
from rollwright.swarm.folder import SharedFolder

GROUPS = parcel(rollout(said("1")), rollout(said("2"), reward=0.0)).groups


def door(path: Path, node: str) -> SharedFolder:
    return SharedFolder(path, node, digits())


def test_what_one_publishes_the_others_hear_once(tmp_path: Path):
    """Oracle: enumeration. Three nodes: each hears the other two, nobody itself, nothing twice."""
    doors = {node: door(tmp_path, node) for node in ("anna", "ben", "cleo")}
    for node, one in doors.items():
        assert one.publish(3, GROUPS) == tmp_path / node / "00000003.json"
    for node, one in doors.items():
        others = [other for other in doors if other != node]
        assert [event.source for event in one.collect()] == [f"{other}/00000003" for other in others]
        assert list(one.collect()) == []
    doors["anna"].publish(4, GROUPS)
    (event,) = doors["ben"].collect()
    assert event.source == "anna/00000004" and [g.id for g in event.groups] == ["anna!toy/train/0#0"]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Oracle: hand. A death before the rename leaves a part that nobody reads, and the next one mends it."""
    anna, ben = door(tmp_path, "anna"), door(tmp_path, "ben")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            anna.publish(0, GROUPS)
    assert [path.name for path in (tmp_path / "anna").iterdir()] == ["00000000.part"]
    assert list(ben.collect()) == []
    door(tmp_path, "anna").publish(0, GROUPS)
    assert len(list(ben.collect())) == 1


def test_a_restarted_node_neither_repeats_nor_rewrites(tmp_path: Path):
    """Oracle: metamorphic. Publishing again changes no byte; sources that the journal knows are old."""
    anna, ben = door(tmp_path, "anna"), door(tmp_path, "ben")
    path = anna.publish(0, GROUPS)
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert door(tmp_path, "anna").publish(0, ()) is None
    assert door(tmp_path, "anna").publish(0, GROUPS[:0] + GROUPS) is None
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    known = {event.source for event in ben.collect()}
    assert list(SharedFolder(tmp_path, "ben", digits(), known).collect()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"node": "ben", "step": 0, "groups": []}',
        b'{"node": "anna", "step": 0, "groups": [], "format": 2}',
        b'{"node": "anna", "groups": [{}]}',
    ],
)
def test_rubbish_of_others_is_counted(tmp_path: Path, data: bytes):
    """Oracle: enumeration. Torn, of another node, of a later format: refused with a reason, no exception."""
    ben = door(tmp_path, "ben")
    (tmp_path / "anna").mkdir()
    (tmp_path / "anna" / "00000000.json").write_bytes(data)
    (event,) = ben.collect()
    assert event.groups == () and event.refused == {"unreadable": 1}


def test_a_file_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Oracle: hand. A file above the limit is refused by its size."""
    monkeypatch.setattr("rollwright.swarm.folder.MAX_BYTES", 10)
    ben = door(tmp_path, "ben")
    door(tmp_path, "anna").publish(0, GROUPS)
    (event,) = ben.collect()
    assert event.refused == {"too_large": 1}


def test_a_received_event_reads_back_from_the_journal(tmp_path: Path):
    """Oracle: the event itself. Groups with unknown logprobs, and the counts, through a journal's line."""
    ben = door(tmp_path, "ben")
    door(tmp_path, "anna").publish(0, GROUPS)
    (event,) = ben.collect()
    assert decode_record(encode_record(event, [])) == (event, b"[]")
    assert msgspec.json.decode(msgspec.json.encode(event))["type"] == "Received"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    """Oracle: hand. The shared place is a file."""
    (tmp_path / "place").write_text("")
    with pytest.raises(StoreError, match="cannot make"):
        door(tmp_path / "place", "anna")
