"""The in-process decode engine: continuous batching over paged keys, exact whatever the schedule.

A pure scheduler (`rollwright.engine.schedule`) says which tokens the next pass computes and where their
keys go; a forward pass (compiled, or torch) computes them; this class owns what lies between: the rows'
columns, what is reported, weights and their version. The last known token of a sequence is its first
decode step, so one whose prefix is cached (its group's prompt, the parent of a fork, the turn before) joins
without any prefilling.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.decoding import decode_step
from rollwright.engine.drafts.api import Drafter
from rollwright.engine.drafts.checking import Drafting
from rollwright.engine.intake import check, max_keys, take_row
from rollwright.engine.kernels import choose
from rollwright.engine.model import Decoder, DecoderConfig
from rollwright.engine.pages import PagedKV
from rollwright.engine.report import sampled
from rollwright.engine.schedule.pages import Pages
from rollwright.engine.schedule.scheduler import Scheduler
from rollwright.engine.schedule.waiting import Seq
from rollwright.engine.stops import StopStrings
from rollwright.engine.table import Entry, Record, RowTable
from rollwright.errors import EngineError, ModelError
from rollwright.events import Sampled, Submit
from rollwright.tree import StopReason

_FIRST_PAGES = 64
_NO_SETS = np.zeros((0, 0), np.bool_)


class LocalEngine:
    """Samples tokens from a decoder in this process. Implements `rollwright.engine.api.Engine`.

    Args:
        model: the decoder; it may be the one that a learner updates in place (call `publish` after).
        tokenizer: for stop strings and end tokens; None leaves the config's end tokens and refuses
            stop strings.
        max_batch: sequences that decode at once.
        kv_budget_bytes: the most that keys and values may take; beyond it cached prefixes go, then
            sequences wait, then the youngest of the lowest priority are preempted and computed again later.
        version: the version of the weights now.
        token_budget: tokens of one pass: one for each row that decodes, the rest for prefilling; at least
            ``max_batch``, which is what a smaller number is raised to.
        threads: cores for the compiled kernel; None takes torch's number.
        kernel: auto, native or torch, see `rollwright.engine.kernels.choose`.
        drafter: guesses tokens that are then checked several at a time (`rollwright.engine.drafts`); what is
            sampled is the same. It belongs to one engine.
        draft_tokens: the most of one guess, ≥ 1.

    Raises:
        ModelError: the weights are not float32, or an end token lies outside the vocabulary.
        EngineError: the kernel that is asked for cannot be had, or not one page fits the budget.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer | None = None,
        *,
        max_batch: int = 256,
        kv_budget_bytes: int = 1 << 30,
        version: int = 0,
        token_budget: int = 2048,
        threads: int | None = None,
        kernel: str = "auto",
        drafter: Drafter | None = None,
        draft_tokens: int = 8,
    ) -> None:
        self.model, self.tokenizer, self.cfg = model, tokenizer, model.cfg
        self.version, self.max_batch, self.kv_budget_bytes = version, max_batch, kv_budget_bytes
        self.kv = PagedKV(model.cfg, model.embed)
        self.max_pages = kv_budget_bytes // self.kv.bytes_per_page
        if self.max_pages < 1:
            raise EngineError(
                f"kv_budget_bytes={kv_budget_bytes} does not hold one page of {self.kv.bytes_per_page} bytes"
            )
        self.forward = choose(kernel, model, self.kv, threads)
        self.scheduler = Scheduler(
            num_pages=self.max_pages,
            max_rows=max_batch,
            token_budget=max(token_budget, max_batch),
            tokens_of=self._tokens_of,
            on_move=self._on_move,
            on_leave=self._on_leave,
        )
        self.table = RowTable(max_batch)
        self.stop_strings = None if tokenizer is None else StopStrings(tokenizer, model.cfg.vocab_size)
        self.by_ask: dict[str, Entry] = {}
        self.has_cuts = False  # whether any ask so far needs more than temperature and a forced token
        self._seq_to_entry: dict[Seq, Entry] = {}
        self._ready: list[Sampled] = []
        self._num_submitted = 0
        self._is_asleep = False
        self.is_eos = _eos_table(model.cfg, () if tokenizer is None else tokenizer.eos_ids)
        self.drafting = None if drafter is None else Drafting(drafter, draft_tokens)
        self._parameters = tuple(model.parameters())  # walking the model's tree takes longer than a step
        self._weights = self._weights_state()

    # ------------------------------------------------------------------ the Engine protocol

    @property
    def num_live(self) -> int:
        """Asks that are not answered to the end: decoding or waiting."""
        return len(self.by_ask)

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        """Take an ask; ``prefix`` is the whole path of token ids before its first new token.

        Raises:
            EngineError: it can never fit, or asks for what this engine cannot give.
        """
        if command.ask in self.by_ask:
            raise EngineError(f"ask {command.ask!r} is in flight already; every ask needs a name of its own")
        ids = np.array(prefix, dtype=np.int64)
        check(self, command, ids)
        carried = 0 if command.turn_start is None else command.start - command.turn_start
        seq = Seq(
            name=command.ask,
            group=command.group,
            number=self._num_submitted,
            tokens=ids,
            max_keys=max_keys(self, command, ids.size),
            priority=command.priority,
        )
        entry = Entry(command, seq, turn_at=ids.size - carried)
        if self.drafting is not None:
            self.drafting.begin(command, ids)  # first: if it raises, the ask was not taken
        self._num_submitted += 1
        self.has_cuts = self.has_cuts or command.sampling.cuts or command.num_top > 0
        self.by_ask[command.ask] = self._seq_to_entry[seq] = entry
        self.scheduler.add(seq)

    def abort(self, ask: str) -> Sampled:
        """Stop the ask now and return the tokens not reported yet, with stop INTERRUPTED.

        Raises:
            EngineError: no such ask is in flight.
        """
        entry = self.by_ask.get(ask)
        if entry is None:
            raise EngineError(f"no ask {ask!r} is in flight; it ended before or was never submitted")
        earlier = [event for event in self._ready if event.ask == ask]
        if earlier:  # made by an older version and not seen yet: nothing was made since
            self._ready = [event for event in self._ready if event.ask != ask]
            answer = msgspec.structs.replace(earlier[0], stop=StopReason.INTERRUPTED)
        else:
            answer = self.flush(entry, StopReason.INTERRUPTED)
        self.forget(entry)
        return answer

    @torch.inference_mode()
    def step(self) -> list[Sampled]:
        """Decode until at least one chunk is due and return every chunk that is; [] when idle.

        Raises:
            EngineError: the weights changed without a `publish`, or gave logits that are no numbers.
        """
        if self._weights_state() != self._weights:
            raise EngineError(
                f"the weights changed since version {self.version} was published; call publish(version) "
                "once the whole update is in place"
            )
        if self._is_asleep:
            self.forward.load_weights()
            self._is_asleep = False
        while not self._ready:
            for seq in self.scheduler.admit():
                take_row(self, self._seq_to_entry[seq])
            if not self.scheduler.num_live:
                return []
            self._ready = decode_step(self)
        ready, self._ready = self._ready, []
        return ready

    def retire(self, group: str) -> None:
        """Forget the keys that only this group's ended sequences could use."""
        self.scheduler.retire(group)

    def publish(self, version: int) -> None:
        """New weights are in place, whole, under this version; caches of older ones are dropped.

        What live sequences sampled under the old version is reported by the next `step` as chunks of
        that version; they go on under the new one, their keys computed again. Before the first ask any
        version will do: a checkpoint that is loaded then may be of the version at which this engine began.

        Raises:
            EngineError: the version does not move up.
        """
        if version <= self.version and self._num_submitted:
            raise EngineError(f"publish({version}) after version {self.version}; a version only moves up")
        self.recall()
        self.version = version
        self.forward.load_weights()
        self._is_asleep = False
        self._weights = self._weights_state()

    def recall(self) -> None:
        """Drop every key; sequences in flight report what they have and wait to be computed again."""
        self.scheduler.clear()
        for entry in sorted(self.by_ask.values(), key=lambda e: e.seq.number):
            if entry.saved is not None and entry.saved.record.num:
                self._ready.append(self.flush(entry, None))

    # ------------------------------------------------------------------ between scheduler and rows

    @property
    def may_stop(self) -> NDArray[np.bool_]:
        """Which tokens may complete a stop string of each set that was asked for, [sets, V]."""
        return _NO_SETS if self.stop_strings is None else self.stop_strings.may_complete

    def entry_of(self, row: int) -> Entry:
        """Return whose row it is."""
        return self._seq_to_entry[self.scheduler.seqs[row]]

    def flush(self, entry: Entry, stop: StopReason | None) -> Sampled:
        """Return what a sequence sampled since its last report, and mark it reported."""
        table = self.table
        if entry.row >= 0:
            record = table.record_of(entry.row)
            table.set(entry.row, unreported=0)
        elif entry.saved is not None:
            record = entry.saved.take_record()
        else:
            record = Record.empty()
        return sampled(entry, record, stop, self.version)

    def forget(self, entry: Entry) -> None:
        """End an ask; its keys stay cached for its group."""
        del self.by_ask[entry.command.ask], self._seq_to_entry[entry.seq]
        if self.drafting is not None:
            self.drafting.end(entry.command.ask)
        self.scheduler.remove(entry.seq)

    def make_room(self, pages: Pages) -> None:
        """Grow the memory so that it holds these pages."""
        needed = int(pages.max(initial=-1)) + 1
        if needed > self.kv.num_pages:
            self.kv.grow(min(max(needed, 2 * self.kv.num_pages, _FIRST_PAGES), self.max_pages))

    def _tokens_of(self, seq: Seq) -> NDArray[np.int64]:
        num = int(self.scheduler.num_known[seq.row])
        if num == seq.tokens.size:  # it may have got its row a moment ago: the table does not have it yet
            return seq.tokens
        return self.table.tokens[seq.row, :num]

    def _on_move(self, source: int, target: int) -> None:
        self.table.move(source, target)

    def _on_leave(self, seq: Seq) -> None:
        self._seq_to_entry[seq].saved = self.table.save(seq.row)

    # ------------------------------------------------------------------ memory

    def memory_report(self) -> dict[str, int]:
        """Return bytes and counts: what keys and values take, of what budget, and who uses them."""
        scheduler, per_page = self.scheduler, self.kv.bytes_per_page
        return {
            "weight_bytes": sum(p.numel() * p.element_size() for p in self.model.parameters()),
            "packed_bytes": self.forward.weight_bytes,
            "kv_bytes": self.kv.num_bytes,
            "kv_budget_bytes": self.kv_budget_bytes,
            "kv_live_bytes": scheduler.num_pages_live * per_page,
            "kv_cached_bytes": scheduler.num_pages_cached * per_page,
            "num_decoding": scheduler.num_live,
            "num_waiting": scheduler.num_waiting,
        }

    def sleep(self) -> int:
        """Free all keys and values and the kernel's copy of the weights; return the bytes freed.

        Raises:
            EngineError: sequences are in flight.
        """
        if self.by_ask:
            raise EngineError(f"{len(self.by_ask)} asks are in flight; abort them or let them end first")
        self.scheduler.clear()
        self._is_asleep = True
        return self.kv.release() + self.forward.release()

    def _weights_state(self) -> int:
        return sum(p._version for p in self._parameters)


def _eos_table(cfg: DecoderConfig, more: Sequence[int]) -> NDArray[np.bool_]:
    """Return which tokens end a text, [V]: the config's and the tokenizer's."""
    is_eos = np.zeros(cfg.vocab_size, np.bool_)
    for token in (*cfg.eos_ids, *more):
        if not 0 <= token < cfg.vocab_size:
            raise ModelError(
                f"end token {token} is outside the model's vocabulary of {cfg.vocab_size}; model and "
                "tokenizer do not belong together"
            )
        is_eos[token] = True
    return is_eos
