"""Taking asks in: what can be served at all, who joins the batch now, and whose keys they take over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.forward import Job
from rollwright.engine.slots import Entry, Moves
from rollwright.errors import EngineError
from rollwright.events import Submit

if TYPE_CHECKING:
    from rollwright.engine.inprocess import LocalEngine

_FIRST_SLOTS = 8


def check(engine: LocalEngine, command: Submit, prefix: NDArray[np.int64]) -> None:
    """Refuse an ask that can never be served, saying why.

    Raises:
        EngineError: it can never fit, or asks for what this engine cannot give.
    """
    cfg, sampling, name = engine.cfg, command.sampling, f"ask {command.ask!r}"
    if not prefix.size:
        raise EngineError(f"{name} has an empty prefix; give at least one token (a begin token will do)")
    if prefix.size >= cfg.max_positions:
        raise EngineError(
            f"{name}: a prefix of {prefix.size} tokens leaves no room in a context of {cfg.max_positions}"
        )
    forced = -1 if command.first is None else command.first
    if int(prefix.max()) >= cfg.vocab_size or int(prefix.min()) < 0 or forced >= cfg.vocab_size:
        raise EngineError(f"{name}: a token id is outside the vocabulary of {cfg.vocab_size}")
    if command.max_tokens < 1:
        raise EngineError(f"{name}: max_tokens is {command.max_tokens}; at least 1 is needed")
    if sampling.stop_strings and (engine.stop_strings is None or not all(sampling.stop_strings)):
        raise EngineError(f"{name}: stop strings need a tokenizer, and none may be empty")
    if not (sampling.temperature >= 0 and 0 < sampling.top_p <= 1 and 0 <= sampling.min_p <= 1):
        raise EngineError(
            f"{name}: needs temperature ≥ 0, 0 < top_p ≤ 1, 0 ≤ min_p ≤ 1; given {sampling.temperature}, "
            f"{sampling.top_p}, {sampling.min_p}"
        )
    needed = min(prefix.size + command.max_tokens - 1, cfg.max_positions)
    if engine.slots_within_budget(needed) < 1:
        raise EngineError(
            f"{name} needs keys for {needed} tokens, {needed * engine.kv.bytes_per_token} bytes; the budget "
            f"is {engine.kv_budget_bytes}: raise kv_budget_bytes or lower max_tokens"
        )


def _need(engine: LocalEngine, entry: Entry) -> int:
    """Return the keys that a waiting sequence may need in the end; its last token needs none."""
    left = entry.command.max_tokens - entry.made
    return int(min(entry.prefix.size + left - 1, engine.cfg.max_positions))


def admit(engine: LocalEngine) -> None:
    """Let waiting sequences join while rows and budget allow, oldest first."""
    table, taken = engine.table, list[Entry]()
    longest = int(table["need"].max()) if table.num_live else 0
    while engine.waiting and table.num_live + len(taken) < engine.max_batch:
        need = max(longest, _need(engine, engine.waiting[0]))
        if table.num_live + len(taken) + 1 > engine.slots_within_budget(need):
            break
        longest = need
        taken.append(engine.waiting.popleft())
    if not taken:
        return
    for entry in taken:
        table.find(entry.command.group, entry.prefix[:-1])  # marks the keys that it will take over
    num_rows = table.num_live + len(taken)
    ensure_room(engine, num_rows, num_rows + len(table.parked), max(e.prefix.size for e in taken), longest)
    engine.move(table.make_room(len(taken)))
    for slot, entry in enumerate(taken, table.num_live):
        _fill_row(engine, entry, slot)
    table.num_live = num_rows
    _load_keys(engine, taken)


def ensure_room(engine: LocalEngine, num_rows: int, num_wanted: int, longest: int, most: int) -> None:
    """Grow the slots for ``num_rows`` live rows of ``longest`` keys now and ``most`` in the end.

    Slots beyond the rows (up to ``num_wanted``) keep parked keys where the budget allows.
    """
    kv, table = engine.kv, engine.table
    length = kv.length
    if longest > length:
        length = min(kv.reserved_length(longest + longest // 2), kv.reserved_length(max(most, longest)))
    if engine.slots_within_budget(length) < num_rows:
        length = kv.reserved_length(max(most, longest))
    num_slots = kv.num_slots
    if num_wanted > num_slots:
        num_slots = max(num_wanted, 2 * num_slots, _FIRST_SLOTS)
    num_slots = min(num_slots, engine.slots_within_budget(length))
    assert num_slots >= num_rows
    if (num_slots, length) != (kv.num_slots, kv.length):
        table.resize(num_slots, length)
        kv.resize(num_slots, length)


def _fill_row(engine: LocalEngine, entry: Entry, slot: int) -> None:
    table, command, sampling = engine.table, entry.command, entry.command.sampling
    strings = sampling.stop_strings
    table.place(entry, slot)
    table.widen_for(len(sampling.stop_ids), command.num_top)
    table.stop_ids[slot] = -1
    table.stop_ids[slot, : len(sampling.stop_ids)] = sampling.stop_ids
    table.set(
        slot,
        keys=0,
        token=entry.prefix[-1],
        t=command.start + entry.made,
        made=entry.made,
        limit=command.max_tokens,
        chunk=command.chunk,
        stream=command.stream,
        need=_need(engine, entry),
        unreported=0,
        top_k=sampling.top_k,
        forced=-1 if command.first is None or entry.made else command.first,
        num_top=command.num_top,
        strings=engine.stop_strings.index(strings) if strings and engine.stop_strings else -1,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
    )


def _load_keys(engine: LocalEngine, entries: list[Entry]) -> None:
    """Copy the keys that are cached and prefill the rest.

    In the first round one sequence of each group leads, so that a prompt is prefilled once and the
    others copy it; in the second one of each distinct prefix does.
    """
    left = entries
    for leads_by in ("group", "prefix", "none"):
        if left:
            left = _load_round(engine, left, leads_by)
    assert not left


def _load_round(engine: LocalEngine, entries: list[Entry], leads_by: str) -> list[Entry]:
    table, jobs, later, led = engine.table, list[Job](), list[Entry](), set[str | bytes]()
    moves, used_up = Moves(), dict[int, Entry]()
    for entry in entries:
        wanted = entry.prefix[:-1]
        source, num_shared = table.find(entry.command.group, wanted)
        if num_shared < wanted.size:
            lead = entry.command.group if leads_by == "group" else wanted.tobytes()
            if leads_by != "none" and lead in led:
                later.append(entry)
                continue
            led.add(lead)
            jobs.append(Job(entry.slot, num_shared, wanted[num_shared:]))
            entry.prefilled += wanted.size - num_shared
        if source is not None and source is not entry:
            moves.add(source.slot, entry.slot, num_shared)
            if source.slot >= table.num_live and num_shared == table.num_keys(source):
                used_up[source.slot] = source  # its keys live on in the sequence that continues it
        table.tokens[entry.slot, : wanted.size] = wanted
    engine.move(moves)
    for entry in used_up.values():
        table.drop(entry)
    engine.prefill(jobs)
    for entry in entries:
        if entry not in later:
            table.set(entry.slot, keys=entry.prefix.size - 1)
    return later
