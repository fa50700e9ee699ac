"""One step: compute the planned pass, sample where a row is complete, report what is due."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rollwright.engine.drafts.checking import Drafting, checked_pass
from rollwright.engine.noise import step_words
from rollwright.engine.passes import BurstPass, Drawn, Noise, Pass
from rollwright.engine.report import STOPS
from rollwright.engine.sampler import Controls, draw
from rollwright.engine.schedule.burst import MOST, reserve, settle
from rollwright.engine.schedule.plan import Plan
from rollwright.engine.table import At, Drawing
from rollwright.errors import EngineError
from rollwright.events import Sampled
from rollwright.tree import StopReason

if TYPE_CHECKING:
    from rollwright.engine.inprocess import LocalEngine

Ints = NDArray[np.int64]
MOST_BETWEEN_DRAFTS = 4  # steps of a burst while a drafter waits for its turn

_EOS, _STOP, _LENGTH, _CONTEXT = (
    STOPS.index(s) for s in (StopReason.EOS, StopReason.STOP, StopReason.LENGTH, StopReason.CONTEXT)
)


def decode_step(engine: LocalEngine) -> list[Sampled]:
    """Compute one pass, or several in which nothing happens; return the chunks due, by submit order."""
    if engine.drafting is None:
        events = _burst(engine)
        return _one_pass(engine) if events is None else events
    return _step_with_drafts(engine, engine.drafting)


def _step_with_drafts(engine: LocalEngine, drafting: Drafting) -> list[Sampled]:
    """As `decode_step`: check drafts where there are any and it pays, and tell the drafter what came."""
    num, is_steady = engine.scheduler.num_live, engine.scheduler.is_steady
    drafting.start_step()
    began = time.perf_counter()
    events = _checked(engine, drafting) if is_steady else None
    is_drafted = events is not None
    if events is None:
        events = _burst(engine)
    if events is None:
        events = _one_pass(engine)
    if is_steady:
        drafting.tell(num, time.perf_counter() - began, is_drafted)
    return events


def _checked(engine: LocalEngine, drafting: Drafting) -> list[Sampled] | None:
    """Check drafts of all rows in one pass; None where there are none, or a row is sampled in another way."""
    num = engine.scheduler.num_live
    at = slice(0, num)
    if not _is_plain(engine, at):
        return None
    drafts = drafting.drafts(engine, _lefts(engine, at))
    checked = None if drafts is None else checked_pass(engine, drafts)
    if drafts is None or checked is None:
        return None
    drafting.report.passes += 1
    drafting.report.proposed += sum(draft.size for draft in drafts)
    drafting.report.accepted += checked.num_right
    rows = np.arange(num, dtype=np.int32)
    _check(engine, rows, checked.logps)
    return _take(engine, at, rows, checked.tokens)


def _one_pass(engine: LocalEngine) -> list[Sampled]:
    scheduler, table = engine.scheduler, engine.table
    plan = scheduler.plan()
    rows = plan.rows[plan.samples]
    num = scheduler.num_live
    at: At = slice(0, num) if rows.size == num else rows.astype(np.intp)
    engine.make_room(plan.pages)
    noise = _noise(engine, at, rows.size) if rows.size else None
    logits, drawn = engine.forward.run(_pass(engine, plan), noise)
    scheduler.commit(plan)
    if noise is None:
        return []
    drawing = _drawing(engine, at, logits, noise, drawn)
    _check(engine, rows, drawing.logps)
    table.append(at, scheduler.num_known[at], drawing)
    scheduler.grow(rows)
    return _take(engine, at, rows, drawing.tokens)


def _burst(engine: LocalEngine) -> list[Sampled] | None:
    """Decode several tokens of every row in one call; None where each step needs more than that.

    It goes on until a row may have ended, so it does what so many passes would have done, to the bit.
    """
    scheduler, table = engine.scheduler, engine.table
    num = scheduler.num_live
    at = slice(0, num)
    steps = _quiet_steps(engine, at) if scheduler.is_steady else 0
    reserved = reserve(scheduler, steps) if steps > 1 else None
    if reserved is None:
        return None
    engine.make_room(reserved.pages)
    streams, t = table.get("stream", at), table.get("t", at)
    words = step_words(np.tile(streams, steps), (t + np.arange(steps)[:, None]).ravel())
    known = scheduler.num_known[at].copy()
    drawn = engine.forward.burst(
        BurstPass(
            tokens=table.tokens[np.arange(num), known - 1],
            num_keys=scheduler.num_keys,
            room=scheduler.room,
            num_pages=scheduler.num_pages_of,
            table=scheduler.table,
            counts=scheduler.counts,
            words=np.ascontiguousarray(words.reshape(2, steps, num).swapaxes(0, 1)),
            temperature=table.real("temperature", at),
            is_end=engine.is_eos,
            stop_ids=table.stop_ids[at],
            stop_set=table.get("strings", at),
            may_stop=engine.may_stop,
        )
    )
    rows, tokens, logps = np.arange(num, dtype=np.int32), drawn.tokens[-1], drawn.logps[-1]
    done = drawn.tokens.shape[0] - (not np.isfinite(logps).all())
    settle(scheduler, reserved, done)
    table.append_many(num, known, Drawn(drawn.tokens[:done], drawn.logps[:done], drawn.entropies[:done]))
    _check(engine, rows, logps)
    return _take(engine, at, rows, tokens)


def _quiet_steps(engine: LocalEngine, at: slice) -> int:
    """Return for how many steps no row is due by its own count, at most `MOST`."""
    if not engine.forward.can_burst or not _is_plain(engine, at):
        return 0
    is_waiting = engine.drafting is not None and not engine.drafting.switch.is_paused(at.stop)
    most = MOST_BETWEEN_DRAFTS if is_waiting else MOST
    return int(min(_lefts(engine, at).min(), most))


def _is_plain(engine: LocalEngine, at: slice) -> bool:
    """Return whether all rows are sampled by temperature alone."""
    if (engine.table.get("forced", at) >= 0).any():
        return False
    return not (engine.has_cuts and _skipped(engine, at).any())


def _lefts(engine: LocalEngine, at: slice) -> Ints:
    """Return how many tokens each row may sample until it is due by its own count, [B]."""
    table = engine.table
    made, chunk = table.get("made", at), table.get("chunk", at)
    left: Ints = np.minimum(
        table.get("limit", at) - made, engine.cfg.max_positions - engine.scheduler.num_known[at]
    )
    return np.where(chunk > 0, np.minimum(left, chunk - made % np.maximum(chunk, 1)), left)


def _take(engine: LocalEngine, at: At, rows: NDArray[np.int32], tokens: Ints) -> list[Sampled]:
    """Look at the newest token of rows, which are recorded; return the chunks that are due."""
    table = engine.table
    if engine.drafting is not None:
        engine.drafting.hear(engine)
    stops = _stops(engine, at, rows, tokens)
    chunk = table.get("chunk", at)
    due = (stops > 0) | ((chunk > 0) & (table.get("made", at) % np.maximum(chunk, 1) == 0))
    if not due.any():
        return []
    return _report(engine, rows[due], stops[due])


def _skipped(engine: LocalEngine, at: At) -> NDArray[np.bool_]:
    """Return which rows the kernel does not sample itself."""
    table = engine.table
    cuts = (table.real("top_p", at) < 1) | (table.get("top_k", at) > 0) | (table.real("min_p", at) > 0)
    skipped: NDArray[np.bool_] = cuts | (table.get("num_top", at) > 0)
    return skipped


def _pass(engine: LocalEngine, plan: Plan) -> Pass:
    """Return the plan with the tokens to feed."""
    scheduler = engine.scheduler
    rows, positions = plan.rows, plan.starts
    if plan.pages.size > rows.size:
        within = np.arange(plan.pages.size) - np.repeat(np.cumsum(plan.nums) - plan.nums, plan.nums)
        rows, positions = np.repeat(rows, plan.nums), np.repeat(positions, plan.nums) + within
    return Pass(
        tokens=engine.table.tokens[rows, positions],
        positions=positions,
        slots=rows,
        pages=plan.pages,
        offsets=plan.offsets,
        table=scheduler.table,
        counts=scheduler.counts,
        out_rows=(np.cumsum(plan.nums) - 1)[plan.samples],
    )


def _noise(engine: LocalEngine, at: At, num: int) -> Noise:
    table = engine.table
    skip = np.zeros(num, np.int32)
    if engine.has_cuts:
        skip[_skipped(engine, at)] = 1
    return Noise(
        words=step_words(table.get("stream", at), table.get("t", at)),
        temperature=table.real("temperature", at),
        forced=table.get("forced", at),
        skip=skip,
    )


def _drawing(engine: LocalEngine, at: At, logits: Tensor, noise: Noise, drawn: Drawn | None) -> Drawing:
    """Sample the rows that the kernel left; a row is always sampled by the same one of the two."""
    num = noise.skip.size
    if drawn is None:
        drawn = Drawn(np.zeros(num, np.int64), np.zeros(num, np.float32), np.zeros(num, np.float32))
        rest = np.arange(num)
    else:
        rest = np.flatnonzero(noise.skip)
    drawing = Drawing(drawn.tokens, drawn.logps, drawn.entropies, np.ones(num, np.float32))
    if not rest.size:
        return drawing
    table, rows = engine.table, np.arange(engine.max_batch)[at][rest]
    controls = Controls(
        temperature=table.real("temperature", rows),
        top_p=table.real("top_p", rows),
        top_k=table.get("top_k", rows),
        min_p=table.real("min_p", rows),
        forced=table.get("forced", rows),
    )
    num_tops = table.get("num_top", rows)
    got = draw(logits[rest], controls, noise.words[:, rest], int(num_tops.max()))
    drawing.tokens[rest], drawing.logps[rest] = got.tokens, got.logps
    drawing.entropies[rest], drawing.kept_masses[rest] = got.entropies, got.kept_masses
    if got.top_ids is not None and got.top_logps is not None:
        for i in np.flatnonzero(num_tops):
            drawing.tops.append(
                (int(rows[i]), got.top_ids[i, : num_tops[i]], got.top_logps[i, : num_tops[i]])
            )
    return drawing


def _report(engine: LocalEngine, rows: NDArray[np.int32], stops: NDArray[np.int64]) -> list[Sampled]:
    due = [(engine.entry_of(int(row)), STOPS[stop]) for row, stop in zip(rows, stops, strict=True)]
    due.sort(key=lambda item: item[0].seq.number)
    events = [engine.flush(entry, stop) for entry, stop in due]
    for entry, stop in due:
        if stop is not None:
            engine.forget(entry)
    return events


def _stops(
    engine: LocalEngine, at: At, rows: NDArray[np.int32], tokens: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return why each row ends with its newest token, [B], as indices into `STOPS`; 0 goes on."""
    table = engine.table
    stops = np.zeros(rows.size, np.int64)
    stops[engine.scheduler.num_known[at] >= engine.cfg.max_positions] = _CONTEXT
    stops[table.get("made", at) >= table.get("limit", at)] = _LENGTH
    strings = table.get("strings", at)
    if engine.stop_strings is not None and (strings >= 0).any():
        for i in engine.stop_strings.flagged(strings, tokens):
            if _completes_string(engine, int(rows[i])):
                stops[i] = _STOP
    if table.stop_ids.shape[1]:
        stops[(table.stop_ids[at] == tokens[:, None]).any(1)] = _STOP
    stops[engine.is_eos[tokens]] = _EOS
    return stops


def _completes_string(engine: LocalEngine, row: int) -> bool:
    entry = engine.entry_of(row)
    assert engine.stop_strings is not None
    made = engine.table.tokens[row, entry.turn_at : int(engine.scheduler.num_known[row])]
    return engine.stop_strings.is_complete(made, entry.command.sampling.stop_strings)


def _check(engine: LocalEngine, rows: NDArray[np.int32], logps: NDArray[np.float32]) -> None:
    """Give up on a step without numbers; keys that may hold none are wiped so that they reach no one."""
    if np.isfinite(logps).all():
        return
    ask = engine.entry_of(int(rows[~np.isfinite(logps)][0])).command.ask
    engine.recall()
    engine.kv.pool.zero_()
    raise EngineError(
        f"the logits of ask {ask!r} are not finite under version {engine.version}: the weights have "
        "diverged; go back to a checkpoint or lower the learning rate"
    )
