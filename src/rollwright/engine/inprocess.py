"""The in-process decode engine: continuous batching over slots, exact whatever the schedule.

A sequence's prompt is prefilled up to its last token and the last token is its first decode step, so
a sequence whose prefix is cached (its group's prompt, the parent of a fork, the turn before) joins
without any prefilling. See `rollwright.engine.forward` for why the answer does not depend on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.decoding import decode_step
from rollwright.engine.forward import Forward, Job
from rollwright.engine.intake import admit, check
from rollwright.engine.kv import KVSlots
from rollwright.engine.model import Decoder, DecoderConfig
from rollwright.engine.report import flush, waiting_answer
from rollwright.engine.slots import Entry, Moves, SlotTable, as_ids
from rollwright.engine.stops import StopStrings
from rollwright.errors import EngineError, ModelError
from rollwright.events import Sampled, Submit
from rollwright.tree import StopReason


class LocalEngine:
    """Samples tokens from a decoder in this process. Implements `rollwright.engine.api.Engine`.

    Args:
        model: the decoder; it may be the one that a learner updates in place (call `publish` after).
        tokenizer: for stop strings and end tokens; None leaves the config's end tokens and refuses
            stop strings.
        max_batch: sequences that decode at once.
        kv_budget_bytes: the most that keys and values may take.
        max_parked: ended sequences whose keys are kept for their group; default ``max_batch``.
        version: the version of the weights now.
        prefill_tokens: tokens prefilled in one forward pass at most.

    Raises:
        ModelError: the weights are not float32, or an end token lies outside the vocabulary.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer | None = None,
        *,
        max_batch: int = 256,
        kv_budget_bytes: int = 1 << 30,
        max_parked: int | None = None,
        version: int = 0,
        prefill_tokens: int = 4096,
    ) -> None:
        self.model, self.tokenizer, self.cfg = model, tokenizer, model.cfg
        self.version = version
        self.max_batch, self.prefill_tokens = max_batch, prefill_tokens
        self.max_slots = max_batch + (max_batch if max_parked is None else max_parked)
        self.kv_budget_bytes = kv_budget_bytes
        self.kv = KVSlots(model.cfg, model.embed)
        self.forward = Forward(model, self.kv)
        self.table = SlotTable()
        self.stop_strings = None if tokenizer is None else StopStrings(tokenizer, model.cfg.vocab_size)
        self.waiting: deque[Entry] = deque()
        self.by_ask: dict[str, Entry] = {}
        self._ready: list[Sampled] = []
        self._num_submitted = 0
        self.is_eos = _eos_table(model.cfg, () if tokenizer is None else tokenizer.eos_ids)
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
        ids = as_ids(prefix)
        check(self, command, ids)
        carried = 0 if command.turn_start is None else command.start - command.turn_start
        entry = Entry(command, self._num_submitted, ids, turn_at=ids.size - carried)
        self._num_submitted += 1
        self.by_ask[command.ask] = entry
        self.waiting.append(entry)

    def abort(self, ask: str) -> Sampled:
        """Stop the ask now and return the tokens not reported yet, with stop INTERRUPTED.

        Raises:
            EngineError: no such ask is in flight.
        """
        entry = self.by_ask.pop(ask, None)
        if entry is None:
            raise EngineError(f"no ask {ask!r} is in flight; it ended before or was never submitted")
        if entry.slot < 0:
            self.waiting.remove(entry)
            earlier = [e for e in self._ready if e.ask == ask]
            self._ready = [e for e in self._ready if e.ask != ask]
            return waiting_answer(entry, earlier, self.version)
        answer = flush(self.table, entry, StopReason.INTERRUPTED, self.version)
        self.move(self.table.park([entry.slot]))
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
        while not self._ready:
            admit(self)
            if not self.table.num_live:
                return []
            self._ready = decode_step(self)
        ready, self._ready = self._ready, []
        return ready

    def retire(self, group: str) -> None:
        """Forget the keys of a group's ended sequences."""
        self.table.retire(group)

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
        self._weights = self._weights_state()

    def recall(self) -> None:
        """Drop every key; live sequences report what they have and wait to be computed again."""
        table = self.table
        live = sorted((e for e in table.entries[: table.num_live] if e), key=lambda e: e.number)
        for entry in live:
            if table["unreported"][entry.slot]:
                self._ready.append(flush(table, entry, None, self.version))
            keys = table.num_keys(entry)
            entry.prefix = np.append(table.tokens[entry.slot, :keys], table["token"][entry.slot])
            entry.made = int(table["made"][entry.slot])
        table.num_live = 0
        for entry in [e for e in table.entries if e is not None]:
            table.drop(entry)
        self.waiting.extendleft(reversed(live))

    # ------------------------------------------------------------------ reports

    def memory_report(self) -> dict[str, int]:
        """Return bytes and counts: what keys and values take, of what budget, and who uses them."""
        table, per_token = self.table, self.kv.bytes_per_token
        parked = table.parked
        return {
            "weight_bytes": sum(p.numel() * p.element_size() for p in self.model.parameters()),
            "kv_bytes": self.kv.num_bytes,
            "kv_budget_bytes": self.kv_budget_bytes,
            "kv_live_bytes": int(table["keys"].sum()) * per_token,
            "kv_parked_bytes": sum(table.num_keys(e) for e in parked) * per_token,
            "num_slots": table.num_slots,
            "num_decoding": table.num_live,
            "num_waiting": len(self.waiting),
            "num_parked": len(parked),
        }

    def sleep(self) -> int:
        """Free all keys and values and return the bytes freed.

        Raises:
            EngineError: sequences are in flight.
        """
        if self.by_ask:
            raise EngineError(f"{len(self.by_ask)} asks are in flight; abort them or let them end first")
        for entry in self.table.parked:
            self.table.drop(entry)
        self.table.resize(0, 0)
        return self.kv.release()

    # ------------------------------------------------------------------ room

    def slots_within_budget(self, length: int) -> int:
        """Return how many slots of ``length`` keys the budget allows."""
        per_slot = self.kv.reserved_length(length) * self.kv.bytes_per_token
        return int(min(self.max_slots, self.kv_budget_bytes // per_slot))

    def prefill(self, jobs: list[Job]) -> None:
        """Prefill jobs in passes of bounded size."""
        batch: list[Job] = []
        room = self.prefill_tokens
        for job in jobs:
            tokens, start = job.tokens, job.start
            while len(tokens):
                part, tokens = tokens[:room], tokens[room:]
                batch.append(Job(job.slot, start, part))
                start, room = start + len(part), room - len(part)
                if not room:
                    self.forward.prefill(batch)
                    batch, room = [], self.prefill_tokens
        if batch:
            self.forward.prefill(batch)

    def move(self, moves: Moves) -> None:
        """Copy keys as the table moved its columns."""
        if moves.sources:
            self.kv.move(moves.sources, moves.targets, moves.length)

    def _weights_state(self) -> int:
        return sum(p._version for p in self.model.parameters())


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
