"""A pass that checks drafts: every row computes its last token and its guesses, and keeps what it sampled."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.drafts.api import Drafter, Tokens
from rollwright.engine.drafts.switch import Switch
from rollwright.engine.noise import step_words
from rollwright.engine.passes import Drawn, Noise, Pass
from rollwright.engine.sampler import Controls, draw
from rollwright.errors import EngineError
from rollwright.events import Submit

if TYPE_CHECKING:
    from rollwright.engine.inprocess import LocalEngine

Ints = NDArray[np.int64]


@dataclass(slots=True)
class DraftReport:
    """What drafts did.

    Args:
        passes: that checked any.
        proposed, accepted: tokens; the model agreed with the accepted ones.
        kept: tokens that those passes brought, one more for each row than were accepted.
        plain_passes: steps without drafts while a drafter was there.
        seconds: of the drafter's own work.
    """

    passes: int = 0
    proposed: int = 0
    accepted: int = 0
    kept: int = 0
    plain_passes: int = 0
    seconds: float = 0.0

    @property
    def acceptance(self) -> float:
        """Share of the proposed tokens that were right; 0 where none were proposed."""
        return self.accepted / self.proposed if self.proposed else 0.0

    def metrics(self) -> dict[str, float]:
        """Return the figures for a row of metrics; none before drafts were checked."""
        if not self.passes:
            return {}
        return {
            "draft_acceptance": self.acceptance,
            "draft_tokens_a_pass": self.kept / self.passes,
            "draft_passes_share": self.passes / (self.passes + self.plain_passes),
        }


@dataclass(frozen=True, slots=True)
class Checked:
    """What a pass brought, [B] each: how many tokens, and the last of them with its logprob.

    ``num_right`` of all its guesses were what was sampled.
    """

    gained: Ints
    tokens: Ints
    logps: NDArray[np.float32]
    num_right: int


class Drafting:
    """A drafter at work in an engine.

    Args:
        drafter: guesses.
        most: tokens of a draft at most, ≥ 1.
        is_forced: check drafts even where plain steps would be faster.
    """

    def __init__(self, drafter: Drafter, most: int = 8, is_forced: bool = False) -> None:
        self.drafter, self.most = drafter, most
        self.switch = Switch(is_forced)
        self.report = DraftReport()
        self._ask_to_heard: dict[str, int] = {}  # tokens that the drafter knows, the prefix among them
        self._num_heard = 0

    def begin(self, command: Submit, prefix: Tokens) -> None:
        """An ask was submitted."""
        self.drafter.begin(command, prefix)
        self._ask_to_heard[command.ask] = prefix.size

    def end(self, ask: str) -> None:
        """It ended or was aborted."""
        del self._ask_to_heard[ask]
        self.drafter.end(ask)

    def start_step(self) -> None:
        """Count from here what `tell` is told of."""
        self._num_heard = 0

    def hear(self, engine: LocalEngine) -> None:
        """Tell the drafter what live rows sampled since it heard last."""
        began = time.perf_counter()
        for row, known in enumerate(engine.scheduler.num_known[: engine.scheduler.num_live].tolist()):
            ask = engine.entry_of(row).command.ask
            heard = self._ask_to_heard[ask]
            if known > heard:
                self.drafter.extend(ask, engine.table.tokens[row, heard:known])
                self._ask_to_heard[ask] = known
                self._num_heard += known - heard
        self.report.seconds += time.perf_counter() - began

    def tell(self, num_rows: int, seconds: float, is_drafted: bool) -> None:
        """Count what a pass or burst of steady rows cost, and what it brought."""
        self.switch.tell(num_rows, self._num_heard, seconds, is_drafted)
        if is_drafted:
            self.report.kept += self._num_heard
        else:
            self.report.plain_passes += 1

    def drafts(self, engine: LocalEngine, lefts: Ints) -> list[Tokens] | None:
        """Return a draft for each live row, none longer than ``lefts`` less one; None if all are empty.

        Raises:
            EngineError: the drafter gave what is no draft.
        """
        num = engine.scheduler.num_live
        if not self.switch.wants_drafts(num):
            return None
        began = time.perf_counter()
        asks = [engine.entry_of(row).command.ask for row in range(num)]
        most = np.minimum(lefts - 1, self.most).tolist()
        found = self.drafter.propose(asks, most)
        _refuse_no_drafts(self.drafter.name, found, asks, most, engine.cfg.vocab_size)
        self.report.seconds += time.perf_counter() - began
        return found if any(draft.size for draft in found) else None


def _refuse_no_drafts(
    name: str, found: list[Tokens], asks: list[str], most: list[int], vocab_size: int
) -> None:
    """Raise if a pass could not feed these: the kernel reads a token's row without looking at its bounds."""
    if len(found) != len(asks):
        raise EngineError(
            f"drafter {name!r} gave {len(found)} drafts for {len(asks)} asks; give one for each"
        )
    for ask, draft, num in zip(asks, found, most, strict=True):
        if not (isinstance(draft, np.ndarray) and draft.ndim == 1 and draft.dtype.kind in "iu"):
            raise EngineError(
                f"drafter {name!r} gave {draft!r} for ask {ask!r}; expected an array of token ids, [K] int64"
            )
        if draft.size > max(0, num):
            raise EngineError(
                f"drafter {name!r} gave {draft.size} tokens for ask {ask!r}; expected at most {max(0, num)}"
            )
        if draft.size and not (draft.min() >= 0 and draft.max() < vocab_size):
            raise EngineError(
                f"drafter {name!r} gave tokens {draft.min()} to {draft.max()} for ask {ask!r}; expected ids"
                f" in [0, {vocab_size}): does it belong to another model?"
            )


def checked_pass(engine: LocalEngine, drafts: list[Tokens]) -> Checked | None:
    """Run one pass over the drafts of all rows, each of which decodes and has one token to compute.

    None, and nothing done, if there are no pages for it.
    """
    scheduler, table = engine.scheduler, engine.table
    num = scheduler.num_live
    every: Ints = np.arange(num)
    nums: Ints = np.array([1 + draft.size for draft in drafts])
    lack = int(scheduler.num_new_pages(every, nums).sum()) - scheduler.pool.num_free
    if lack > 0 and scheduler.tree.evict(lack) < lack:
        return None
    known = scheduler.num_known[:num].copy()
    pages, offsets = scheduler.place(every, nums)
    engine.make_room(pages)
    rows = np.repeat(every, nums)
    within = np.arange(rows.size) - np.repeat(np.cumsum(nums) - nums, nums)
    fed = np.empty(rows.size, np.int64)
    is_first = within == 0
    fed[is_first] = table.tokens[every, known - 1]
    fed[~is_first] = np.concatenate(drafts)
    work = Pass(
        tokens=fed.astype(np.int32),
        positions=(known[rows] - 1 + within).astype(np.int32),
        slots=rows.astype(np.int32),
        pages=pages,
        offsets=offsets,
        table=scheduler.table,
        counts=scheduler.counts,
        out_rows=np.arange(rows.size, dtype=np.int32),
    )
    drawn = _draw(engine, work, rows, within)
    is_right = np.zeros(rows.size, np.bool_)  # the next token that was fed is the one that was sampled
    is_right[:-1] = (drawn.tokens[:-1] == fed[1:]) & ~is_first[1:]
    ends = np.flatnonzero(~is_right | _may_end(engine, rows, drawn))
    starts = np.cumsum(nums) - nums
    lasts = ends[np.searchsorted(ends, starts)]
    # One that is no number is not kept: the caller refuses it.
    gained: Ints = lasts - starts + np.isfinite(drawn.logps[lasts])
    scheduler.take_back(nums - gained)
    scheduler.num_keys[:num] += gained
    scheduler.num_known[:num] += gained
    keep = within < gained[rows]
    kept = Drawn(drawn.tokens[keep], drawn.logps[keep], drawn.entropies[keep])
    table.append_ragged(rows[keep], within[keep], known, gained, kept)
    return Checked(gained, drawn.tokens[lasts], drawn.logps[lasts], int(is_right[keep].sum()))


def _may_end(engine: LocalEngine, rows: NDArray[np.intp], drawn: Drawn) -> NDArray[np.bool_]:
    """Return after which tokens a row must be looked at before it goes on."""
    table, tokens = engine.table, drawn.tokens
    ends = engine.is_eos[tokens] | ~np.isfinite(drawn.logps)
    ends |= (table.stop_ids[rows] == tokens[:, None]).any(1)
    sets = table.get("strings", slice(0, engine.scheduler.num_live))[rows]
    if (sets >= 0).any():
        ends |= (sets >= 0) & engine.may_stop[np.maximum(sets, 0), tokens]
    return ends


def _draw(engine: LocalEngine, work: Pass, rows: NDArray[np.intp], within: Ints) -> Drawn:
    """Compute the pass and sample at every place of it, each with the noise of its own position."""
    table = engine.table
    at = slice(0, engine.scheduler.num_live)
    words = step_words(table.get("stream", at)[rows], table.get("t", at)[rows] + within)
    temperature = table.real("temperature", at)[rows]
    none = np.full(rows.size, -1)
    logits, drawn = engine.forward.run(work, Noise(words, temperature, none, np.zeros(rows.size, np.int32)))
    if drawn is not None:
        return drawn
    controls = Controls(
        temperature=temperature,
        top_p=np.ones(rows.size, np.float32),
        top_k=np.zeros(rows.size, np.int64),
        min_p=np.zeros(rows.size, np.float32),
        forced=none,
    )
    got = draw(logits, controls, words, 0)
    return Drawn(got.tokens, got.logps, got.entropies)
