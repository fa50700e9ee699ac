"""What was sampled, as events."""

from __future__ import annotations

from rollwright.engine.table import Entry, Record
from rollwright.events import Sampled
from rollwright.tree import StopReason

STOPS: tuple[StopReason | None, ...] = (
    None,
    StopReason.EOS,
    StopReason.STOP,
    StopReason.LENGTH,
    StopReason.CONTEXT,
)


def sampled(entry: Entry, record: Record, stop: StopReason | None, version: int) -> Sampled:
    """Return what a sequence sampled since its last report; its prefilled tokens are reported with it."""
    command = entry.command
    prefilled, entry.prefilled = entry.prefilled, 0
    reals = record.reals.tolist()
    return Sampled(
        ask=command.ask,
        tokens=tuple(record.tokens.tolist()),
        logprobs=tuple(reals[0]),
        policy=command.policy,
        version=version,
        entropies=tuple(reals[1]),
        kept_masses=tuple(reals[2]) if command.sampling.cuts else None,
        top=_top(record, command.num_top) if command.num_top else None,
        stop=stop,
        prefilled=prefilled,
        attempt=command.attempt,
    )


def _top(record: Record, num_top: int) -> tuple[tuple[tuple[int, float], ...], ...]:
    ids, logps = record.top_ids[:, :num_top].tolist(), record.top_logps[:, :num_top].tolist()
    return tuple(tuple(zip(i, p, strict=True)) for i, p in zip(ids, logps, strict=True))
