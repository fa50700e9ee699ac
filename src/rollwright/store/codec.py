"""Journal records: events that read back as themselves, decisions as deterministic bytes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from rollwright.errors import LawBroken
from rollwright.events import AnyCommand, AnyEvent, EmitBatch, Report, Sampled
from rollwright.store.strict import Path, dotted, plain
from rollwright.tree import Group, Trajectory, path_to

NonFinite = list[tuple[list[str | int], str]]


class Record(msgspec.Struct, frozen=True):
    """One line of the journal: event, decisions, and where the event holds NaN or infinity."""

    e: msgspec.Raw
    d: msgspec.Raw
    n: NonFinite = []


def _builtin(value: object) -> object:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in a decision")


_encoder = msgspec.json.Encoder()
_decision_encoder = msgspec.json.Encoder(enc_hook=_builtin)
_event_decoder = msgspec.json.Decoder(AnyEvent)
_record_decoder = msgspec.json.Decoder(Record)
_any_decoder = msgspec.json.Decoder()


def encode_record(event: AnyEvent, commands: Sequence[AnyCommand]) -> bytes:
    """Return the journal's line for an event and the commands that answered it.

    The line is ``<crc32 of the JSON, 8 hex digits> <JSON>\\n``.

    Raises:
        LawBroken: the event would read back as another value (see `canonical`).
    """
    data, flags = pack_event(event)
    decisions = decision_bytes(commands)
    if flags:
        body = b'{"e":%b,"d":%b,"n":%b}' % (data, decisions, _encoder.encode(flags))
    else:
        body = b'{"e":%b,"d":%b}' % (data, decisions)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def damage(line: bytes) -> str:
    """Return what is wrong with a line (its newline included), or ``""`` when it is whole."""
    if len(line) < 10 or line[8:9] != b" ":
        return "it is not '<crc32> <json>'"
    try:
        stated = int(line[:8], 16)
    except ValueError:
        return "its checksum is not a number"
    found = zlib.crc32(memoryview(line)[9:-1])
    if line[:8] == b"%08x" % found:  # as it was written: another case of a digit is a changed byte too
        return ""
    return f"its checksum says {stated:08x}, its bytes give {found:08x}"


def decode_record(line: bytes) -> tuple[AnyEvent, bytes]:
    """Return (event, decision bytes) of a whole line.

    Raises:
        msgspec.MsgspecError: the JSON is not a record that this version knows.
    """
    record = _record_decoder.decode(memoryview(line)[9:-1])
    event: AnyEvent = unpack_event(record.e, record.n) if record.n else _event_decoder.decode(record.e)
    return event, bytes(record.d)


def pack_event(event: AnyEvent) -> tuple[bytes, NonFinite]:
    """Return an event as JSON, and where it holds numbers that are not finite.

    Raises:
        LawBroken: it would read back as another value, for example an int where a float belongs or
            a numpy scalar; a run restored from it could decide differently.
    """
    try:
        data = _encoder.encode(event)
        if _is_plain_sampled(event) or _reads_back(event, data):
            return data, []
        return _pack_slowly(event)
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise LawBroken(_inexact(event, str(error))) from error


def _is_plain_sampled(event: AnyEvent) -> bool:
    """Whether a Sampled is known to read back exactly; the cheap test for the bulk of a journal."""
    if type(event) is not Sampled or event.top is not None or type(event.at) is not float:
        return False
    for floats in (event.logprobs, event.entropies or (), event.kept_masses or ()):
        if not (set(map(type, floats)) <= {float} and math.isfinite(sum(floats))):
            return False
    whole = set(map(type, (*event.tokens, event.version, event.prefilled)))
    return whole <= {int} and math.isfinite(event.at)


def _reads_back(event: AnyEvent, data: bytes) -> bool:
    try:
        again = _event_decoder.decode(data)
    except msgspec.ValidationError:
        return False
    return bool(again == event) and _encoder.encode(again) == data


def _pack_slowly(event: AnyEvent) -> tuple[bytes, NonFinite]:
    built = msgspec.to_builtins(event)
    clean, flags = plain(built)
    data = _encoder.encode(clean)
    marks: NonFinite = [(list(path), word) for path, word in flags]
    again = msgspec.to_builtins(unpack_event(data, marks))
    if repr(again) != repr(built):
        raise LawBroken(_inexact(event, _first_difference(built, again)))
    return data, marks


def unpack_event(data: bytes | msgspec.Raw, flags: NonFinite) -> AnyEvent:
    """Return the event of `pack_event`'s result.

    Raises:
        msgspec.MsgspecError: the JSON is not an event that this version knows.
    """
    built = _any_decoder.decode(data)
    for path, word in flags:
        place: Any = built
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = float(word)
    event: AnyEvent = msgspec.convert(built, AnyEvent)
    return event


def _first_difference(given: object, read: object, path: Path = ()) -> str:
    if isinstance(given, dict) and isinstance(read, dict) and given.keys() == read.keys():
        pairs: list[tuple[str | int, object, object]] = [(k, given[k], read[k]) for k in given]
    elif isinstance(given, (list, tuple)) and isinstance(read, (list, tuple)) and len(given) == len(read):
        pairs = [(k, a, b) for k, (a, b) in enumerate(zip(given, read, strict=True))]
    else:
        pairs = []
    for key, a, b in pairs:
        if repr(a) != repr(b):
            return _first_difference(a, b, (*path, key))
    return f"{dotted(path)} is {given!r} and reads back as {read!r}"


def _inexact(event: AnyEvent, why: str) -> str:
    return (
        f"event {type(event).__name__} does not read back as itself: {why}. "
        "Give the runner `rollwright.store.codec.canonical(event)` and journal that"
    )


def canonical(event: AnyEvent) -> AnyEvent:
    """Return the event as the journal would read it back, with plain Python values.

    Whole numbers in float fields become floats, numpy values plain numbers, characters that UTF-8
    cannot hold are escaped. Call it where values enter from foreign code (graders, environments),
    before the runner sees the event. An event that is exact already is returned as it is.

    Raises:
        LawBroken: it holds something that no event can hold.
    """
    try:
        pack_event(event)
        return event
    except LawBroken:
        pass
    try:
        built = _clean_text(msgspec.to_builtins(event, enc_hook=_builtin))
        exact: AnyEvent = msgspec.convert(built, AnyEvent)
    except (TypeError, msgspec.MsgspecError) as error:
        raise LawBroken(f"event {type(event).__name__} cannot be written: {error}") from error
    pack_event(exact)
    return exact


def _clean_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_clean_text(k): _clean_text(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean_text(v) for v in value]
    return value


def decision_bytes(commands: Sequence[AnyCommand]) -> bytes:
    """Return commands as JSON, the same bytes for the same decisions.

    An `EmitBatch` is written short: its nodes are in the journal as events, so per trajectory only
    what the stages decided is kept (docs/formats.md). Nodes of replayed trajectories may come from
    elsewhere and are written whole. Numbers that are not finite are null and named in the command's
    ``non_finite``.
    """
    if any(type(command) is EmitBatch or type(command) is Report for command in commands):
        return _decision_encoder.encode([_short(command) for command in commands])
    return _decision_encoder.encode(commands)


def _short(command: AnyCommand) -> object:
    if type(command) is EmitBatch:
        groups = [_short_group(group) for group in command.groups]
        short = {"type": "EmitBatch", "step": command.step, "version": command.version, "groups": groups}
        clean, flags = plain(short)
    elif type(command) is Report:
        clean, flags = plain(msgspec.to_builtins(command, enc_hook=_builtin))
    else:
        return command
    return clean | {"non_finite": {dotted(path): word for path, word in flags}} if flags else clean


def _short_group(group: Group) -> dict[str, object]:
    short: dict[str, object] = {
        "id": group.id,
        "trajectories": [_short_trajectory(t) for t in group.trajectories],
    }
    if group.baseline is not None:
        short["baseline"] = group.baseline
    replayed = {
        node.id: node
        for trajectory in group.trajectories
        if trajectory.replayed
        for node, _ in path_to(group.nodes, trajectory.leaf)
    }
    if replayed:
        short["nodes"] = [msgspec.to_builtins(node, enc_hook=_builtin) for node in replayed.values()]
    return short


def _short_trajectory(trajectory: Trajectory) -> dict[str, object]:
    short: dict[str, object] = {"leaf": trajectory.leaf, "score": trajectory.score}
    if trajectory.advantages is not None:
        short["advantages"] = runs(trajectory.advantages)
    if trajectory.weight != 1.0:
        short["weight"] = trajectory.weight
    if trajectory.replayed:
        short["replayed"] = True
    return short


def runs(values: Sequence[float]) -> dict[str, list[float]]:
    """Return values as runs of equal bits.

    (0.5, 0.5, 0.0) is ``{"values": [0.5, 0.0], "counts": [2, 1]}``.
    """
    if not values:
        return {"values": [], "counts": []}
    first = values[0]
    if first != 0 and values.count(first) == len(values):
        return {"values": [float(first)], "counts": [len(values)]}
    array = np.array(values, dtype=np.float64)
    bits = array.view(np.int64)
    starts = np.flatnonzero(np.diff(bits, prepend=~bits[:1]))
    return {"values": array[starts].tolist(), "counts": np.diff(starts, append=len(array)).tolist()}


def unroll(packed: dict[str, list[float]]) -> tuple[float, ...]:
    """Return the values of `runs`."""
    pairs = zip(packed["values"], packed["counts"], strict=True)
    return tuple(value for value, count in pairs for _ in range(int(count)))
