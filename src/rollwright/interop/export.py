"""Our rollouts as files of other tools, with a report of what those cannot hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rollwright.check.source import DUMP_FORMAT, DUMP_VERSION, RawGroup, Row, Source
from rollwright.errors import ConfigError, UnknownName
from rollwright.store.strict import dumps

Decode = Callable[[list[int]], str]
Piece = tuple[str, str | None, Any]
LOST = {
    "trl": "token ids, masks, logprobs, versions, fates, the tree, stop reasons",
    "verl": "token ids, masks, logprobs, versions, fates, advantages, the tree, stop reasons",
    "openai-chat": "token ids, masks, logprobs, versions, fates, advantages, the tree",
    "jsonl": "",
}


def export_dump(source: Source, to: str, out: Path) -> tuple[int, dict[str, int]]:
    """Write the rollouts of a dump in another format.

    Returns:
        (rollouts written, notes with how often): what was left out, and what one value cannot say.

    Raises:
        UnknownName: no such format.
        ConfigError: ``out`` is there already, or cannot be written.
    """
    if to not in LOST:
        raise UnknownName("export format", to, LOST)
    if out.exists():
        raise ConfigError(f"{out} is there already; it is left as it is, give another name")
    notes: Counter[str] = Counter()
    try:
        if to == "jsonl":
            return _own(source, out), {}
        rows = _rows(source, to, notes)
        return (_parquet if to == "trl" else _lines)(rows, out), dict(notes)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from error


def _lines(rows: Iterator[Row], out: Path) -> int:
    num = 0
    with out.open("x", encoding="utf-8") as file:
        for row in rows:
            file.write(dumps(row)[0] + "\n")
            num += 1
    return num


def _parquet(rows: Iterator[Row], out: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = list(rows)
    names = dict.fromkeys(name for row in kept for name in row)
    texts, numbers = {"prompt", "completion"}, {"step": pa.int64()}
    columns = {
        name: pa.array([row.get(name) for row in kept], pa.string() if name in texts else
                       numbers.get(name, pa.float64()))
        for name in names
    }  # fmt: skip
    pq.write_table(pa.table(columns), out)
    return len(kept)


def _own(source: Source, out: Path) -> int:
    num = 0
    header = {"format": DUMP_FORMAT, "version": DUMP_VERSION, "from": source.came_from, "lacks": source.lacks}
    with out.open("x", encoding="utf-8") as file:
        file.write(dumps(header)[0] + "\n")
        for group in source.groups():
            first = (group.nodes or group.trajectories)[0]
            kind, step, place = group.key
            row = {
                "kind": kind,
                "step": step,
                "group_index": place,
                "group": first["group"],
                "task": first["task"],
            }
            row["nodes"] = [plain_row(node) for node in group.nodes]
            row["trajectories"] = [plain_row(leaf) for leaf in group.trajectories]
            file.write(dumps(row)[0] + "\n")
            num += len(group.trajectories)
    return num


def plain_row(row: Row) -> Row:
    found = {name: value for name, value in row.items() if not name.startswith("_")}
    for name in ("fates", "rewards"):
        if found.get(name) is not None and not isinstance(found[name], dict):
            found[name] = dict(found[name])
    return found


def _rows(source: Source, to: str, notes: Counter[str]) -> Iterator[Row]:
    make = {"trl": _trl, "verl": _verl, "openai-chat": _chat}[to]
    decode = decoder_of(source)
    for group in source.groups():
        nodes = {row["node"]: row for row in group.nodes}
        for leaf in group.trajectories:
            pieces = pieces_of(nodes, leaf, decode)
            if pieces is None:
                notes["rollouts left out: no text, and no tokeniser to make it"] += 1
            else:
                yield make(group, leaf, pieces, notes)


def pieces_of(nodes: dict[str, Row], leaf: Row, decode: Decode | None) -> list[Piece] | None:
    """Return (origin, text, message) of each stretch of the path; None where its text cannot be had."""
    path: list[Piece] = []
    name, num = leaf["leaf"], None
    while name is not None:
        row = nodes[name]
        whole = num is None or num == row["num_steps"] or row["tokens"] is None
        text = row["text"] if whole else None
        if text is None and row.get("message") is None:
            if decode is None or row["tokens"] is None:
                return None
            text = decode(row["tokens"][:num])
        path.append((row["origin"], text, row.get("message")))
        name, num = row["parent"], row["at"]
    return path[::-1]


def decoder_of(source: Source) -> Decode | None:
    from rollwright.learn.checkpoint import newest

    path = newest(source.run / "checkpoints") if source.run is not None else None
    if path is None:
        return None
    from rollwright.engine.checkpoint import load_tokenizer

    tokenizer = load_tokenizer(path)
    return lambda tokens: tokenizer.decode(tuple(tokens))


def text_of(pieces: list[Piece]) -> str:
    return "".join(text if text is not None else json.dumps(message) for _, text, message in pieces)


def _trl(group: RawGroup, leaf: Row, pieces: list[Piece], notes: Counter[str]) -> Row:
    credit = {value for value in leaf["advantages"] or () if value != 0}
    if len(credit) > 1:
        notes["rollouts with several advantages: TRL has one, so it is null"] += 1
    advantage = None if leaf["advantages"] is None or len(credit) > 1 else next(iter(credit), 0.0)
    if leaf["reward"] is None:
        notes["rollouts that were not scored: their reward is null"] += 1
    rewards = dict(leaf["rewards"] or ()) or {"reward": leaf["reward"]}
    own = {"step": group.key[1], "prompt": text_of(pieces[:1]), "completion": text_of(pieces[1:])}
    return own | rewards | {"advantage": advantage}


def _verl(group: RawGroup, leaf: Row, pieces: list[Piece], notes: Counter[str]) -> Row:
    if leaf["reward"] is None:
        notes["rollouts that were not scored: their score is null"] += 1
    own = {"input": text_of(pieces[:1]), "output": text_of(pieces[1:]), "gts": None, "score": leaf["reward"]}
    return own | {"step": group.key[1], "uid": f"{leaf['group']}_0_{leaf['index']}"}


def _chat(group: RawGroup, leaf: Row, pieces: list[Piece], notes: Counter[str]) -> Row:
    """Neighbours of one origin are one message: versions and forks cut a turn, and are no turns."""
    messages: list[Row] = []
    last = ""
    for origin, text, message in pieces:
        if message is not None:
            messages += message if isinstance(message, list) else [message]
        elif origin == last:
            messages[-1]["content"] += text
        elif text or origin != "prompt":
            messages.append({"role": "assistant" if origin == "sampled" else "user", "content": text})
        last = origin if message is None and (text or origin != "prompt") else ""
    return {"messages": messages, "task": leaf["task"], "index": leaf["index"], "reward": leaf["reward"]}
