"""What was sampled, as events."""

from __future__ import annotations

from collections.abc import Sequence

from rollwright.engine.slots import Entry, SlotTable
from rollwright.events import Sampled
from rollwright.tree import StopReason

STOPS: tuple[StopReason | None, ...] = (
    None,
    StopReason.EOS,
    StopReason.STOP,
    StopReason.LENGTH,
    StopReason.CONTEXT,
)


def flush(table: SlotTable, entry: Entry, stop: StopReason | None, version: int) -> Sampled:
    """Return what a live row sampled since its last report, and mark it reported."""
    command, row = entry.command, entry.slot
    num = int(table["unreported"][row])
    table["unreported"][row] = 0
    prefilled, entry.prefilled = entry.prefilled, 0
    reals = table.out_reals[row, :, :num].tolist()
    return Sampled(
        ask=command.ask,
        tokens=tuple(table.out_tokens[row, :num].tolist()),
        logprobs=tuple(reals[0]),
        policy=command.policy,
        version=version,
        entropies=tuple(reals[1]),
        kept_masses=tuple(reals[2]) if command.sampling.cuts else None,
        top=_top(table, entry, num) if command.num_top else None,
        stop=stop,
        prefilled=prefilled,
        attempt=command.attempt,
    )


def _top(table: SlotTable, entry: Entry, num: int) -> tuple[tuple[tuple[int, float], ...], ...]:
    ids = table.top_ids[entry.slot, :num, : entry.command.num_top].tolist()
    logps = table.top_logps[entry.slot, :num, : entry.command.num_top].tolist()
    return tuple(tuple(zip(i, p, strict=True)) for i, p in zip(ids, logps, strict=True))


def waiting_answer(entry: Entry, earlier: Sequence[Sampled], version: int) -> Sampled:
    """Answer the abort of a sequence that waits: with what an older version made and nobody saw yet."""
    for event in earlier:
        return Sampled(
            ask=event.ask,
            tokens=event.tokens,
            logprobs=event.logprobs,
            policy=event.policy,
            version=event.version,
            entropies=event.entropies,
            kept_masses=event.kept_masses,
            top=event.top,
            stop=StopReason.INTERRUPTED,
            prefilled=event.prefilled,
            attempt=event.attempt,
        )
    command = entry.command
    return Sampled(
        ask=command.ask,
        tokens=(),
        logprobs=(),
        policy=command.policy,
        version=version,
        entropies=(),
        kept_masses=() if command.sampling.cuts else None,
        top=() if command.num_top else None,
        stop=StopReason.INTERRUPTED,
        prefilled=entry.prefilled,
        attempt=command.attempt,
    )
