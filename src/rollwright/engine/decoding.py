"""One decode step: feed a token to every live row, sample the next, report what is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from rollwright.engine.intake import ensure_room
from rollwright.engine.noise import step_words
from rollwright.engine.report import STOPS, flush
from rollwright.engine.sampler import Controls, draw
from rollwright.errors import EngineError
from rollwright.events import Sampled
from rollwright.tree import StopReason

if TYPE_CHECKING:
    from rollwright.engine.inprocess import LocalEngine

_EOS, _STOP, _LENGTH, _CONTEXT = (
    STOPS.index(s) for s in (StopReason.EOS, StopReason.STOP, StopReason.LENGTH, StopReason.CONTEXT)
)


def decode_step(engine: LocalEngine) -> list[Sampled]:
    """Sample one token for every live row; return the chunks that are due, by submit order."""
    table, num = engine.table, engine.table.num_live
    keys, fed = table["keys"], table["token"]
    longest = int(keys.max()) + 1
    if longest > engine.kv.length:
        ensure_room(engine, num, engine.kv.num_slots, longest, int(table["need"].max()))
        keys, fed = table["keys"], table["token"]
    table.tokens[np.arange(num), keys] = fed
    logits_BV = engine.forward.decode(torch.from_numpy(fed), torch.from_numpy(keys), longest)
    num_top = int(table["num_top"].max())
    drawn = draw(logits_BV, _controls(engine), step_words(table["stream"], table["t"]), num_top)
    if not np.isfinite(drawn.logps).all():
        _refuse_broken_logits(engine, drawn.logps)
    table.record(drawn, num_top)
    stops = _stops(engine, drawn.tokens)
    due = (stops > 0) | ((table["chunk"] > 0) & (table["made"] % np.maximum(table["chunk"], 1) == 0))
    if not due.any():
        return []
    return _report(engine, np.flatnonzero(due), stops)


def _controls(engine: LocalEngine) -> Controls | None:
    table = engine.table
    if table.is_plain:
        return None
    return Controls(
        temperature=table.real("temperature"),
        top_p=table.real("top_p"),
        top_k=table["top_k"],
        min_p=table.real("min_p"),
        forced=table["forced"],
    )


def _report(engine: LocalEngine, rows: NDArray[np.intp], stops: NDArray[np.int64]) -> list[Sampled]:
    table = engine.table
    entries = [e for r in rows if (e := table.entries[r]) is not None]
    ended = [int(r) for r in rows if stops[r]]
    events = []
    for entry in sorted(entries, key=lambda e: e.number):
        stop = STOPS[stops[entry.slot]]
        events.append(flush(table, entry, stop, engine.version))
        if stop is not None:
            del engine.by_ask[entry.command.ask]
    if ended:
        engine.move(table.park(ended))
    return events


def _stops(engine: LocalEngine, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return why each row ends with its newest token, [B], as indices into `STOPS`; 0 goes on."""
    table, num = engine.table, engine.table.num_live
    stops = np.zeros(num, np.int64)
    stops[table["keys"] + 1 >= engine.cfg.max_positions] = _CONTEXT
    stops[table["made"] >= table["limit"]] = _LENGTH
    if engine.stop_strings is not None and (table["strings"] >= 0).any():
        for row in engine.stop_strings.flagged(table["strings"], tokens):
            if _completes_string(engine, int(row), int(tokens[row])):
                stops[row] = _STOP
    if table.stop_ids.shape[1]:
        stops[(table.stop_ids[:num] == tokens[:, None]).any(1)] = _STOP
    stops[engine.is_eos[tokens]] = _EOS
    return stops


def _completes_string(engine: LocalEngine, row: int, token: int) -> bool:
    entry = engine.table.entries[row]
    assert entry is not None and engine.stop_strings is not None
    made = engine.table.tokens[row, entry.turn_at : engine.table.num_keys(entry)]
    return engine.stop_strings.is_complete(np.append(made, token), entry.command.sampling.stop_strings)


def _refuse_broken_logits(engine: LocalEngine, logps: NDArray[np.float32]) -> None:
    """Give up on the step; keys that may hold no numbers are wiped so that they reach no one."""
    row = int(np.flatnonzero(~np.isfinite(logps))[0])
    entry = engine.table.entries[row]
    engine.recall()
    engine.kv.wipe()
    raise EngineError(
        f"the logits of ask {entry.command.ask if entry else row!r} are not finite under version "
        f"{engine.version}: the weights have diverged; go back to a checkpoint or lower the learning rate"
    )
