"""Taking asks in: what can be served at all, and the row of one that joins the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.pages import PAGE
from rollwright.engine.table import Entry
from rollwright.errors import EngineError
from rollwright.events import Submit

if TYPE_CHECKING:
    from rollwright.engine.inprocess import LocalEngine


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
    if not (0 <= sampling.temperature < np.inf and 0 < sampling.top_p <= 1 and 0 <= sampling.min_p <= 1):
        raise EngineError(
            f"{name}: needs a finite temperature ≥ 0, 0 < top_p ≤ 1, 0 ≤ min_p ≤ 1; given "
            f"{sampling.temperature}, {sampling.top_p}, {sampling.min_p}"
        )
    needed = max_keys(engine, command, prefix.size)
    if -(-needed // PAGE) > engine.max_pages:
        raise EngineError(
            f"{name} needs keys for {needed} tokens, {needed * engine.kv.bytes_per_token} bytes; the budget "
            f"is {engine.kv_budget_bytes}: raise kv_budget_bytes or lower max_tokens"
        )


def max_keys(engine: LocalEngine, command: Submit, num_prefix: int) -> int:
    """Return the most keys that an ask may need; its last token needs none."""
    return int(min(num_prefix + command.max_tokens - 1, engine.cfg.max_positions))


def take_row(engine: LocalEngine, entry: Entry) -> None:
    """Write the row of a sequence that got one, for the first time or again."""
    table, command, sampling, seq = engine.table, entry.command, entry.command.sampling, entry.seq
    row, strings = seq.row, sampling.stop_strings
    entry.prefilled += seq.tokens.size - 1 - seq.num_cached
    table.fill(row, seq.tokens, seq.max_keys + 1, sampling.stop_ids, command.num_top)
    if entry.saved is not None:
        table.restore(row, entry.saved)
        entry.saved = None
        return
    table.set(
        row,
        t=command.start,
        made=0,
        unreported=0,
        limit=command.max_tokens,
        chunk=command.chunk,
        stream=command.stream,
        top_k=sampling.top_k,
        forced=-1 if command.first is None else command.first,
        num_top=command.num_top,
        strings=engine.stop_strings.index(strings) if strings and engine.stop_strings else -1,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
    )
