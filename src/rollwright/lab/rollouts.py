"""The rollouts of a run as rows, from its shards and, where those are not written yet, its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rollwright.events import Extended, Failed, Observed, Scored
from rollwright.store.journal import check_replay, read
from rollwright.store.layout import CHECKPOINTS
from rollwright.store.parquet import open_run
from rollwright.store.run import RunFolder

_FINISH = b'"type":"Finish"'


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout, for reading.

    Args:
        group: ``"<task id>#<visit>"``.
        index: its number in the group.
        step: the step in which it left the run (or is now).
        tokens: sampled tokens of its path.
        turns: sampled turns.
        seconds: from its prompt to its grade, waiting included; None where the journal does not say.
        reward: the grader's; None is not scored.
        status, fate, reason, stop: the grader's word, where its tokens ended, why, and why it stopped.
        prompt, response: texts; None where no tokeniser was at hand.
        parts: (origin, text) of each stretch of the path, prompt first; empty where it is not known.
    """

    group: str
    index: int
    step: int
    tokens: int
    turns: int
    seconds: float | None
    reward: float | None
    status: str
    fate: str
    reason: str
    stop: str | None
    prompt: str | None
    response: str | None
    parts: tuple[tuple[str, str], ...] = ()

    @property
    def stream(self) -> str:
        """Name of its sample: ``"<group>/<index>"``."""
        return f"{self.group}/{self.index}"


@dataclass
class JournalNotes:
    """What one pass over the journal's events tells.

    Args:
        num_records: events in it.
        finish: why the run ended; None while it has not.
        seconds: from prompt to grade, by sample.
        failures: how often which failure happened, and which verdicts gave no score, by
            ``"kind: message"``.
        last_at: seconds on the run's clock at the last event.
    """

    num_records: int = 0
    finish: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    last_at: float = 0.0


def read_notes(path: Path) -> JournalNotes:
    """Read a journal once.

    Raises:
        StoreError, JournalCorrupt: as `store.journal.read`.
    """
    notes = JournalNotes()
    opened: dict[str, float] = {}
    for event, decisions in read(path):
        notes.num_records += 1
        notes.last_at = max(notes.last_at, event.at)
        if isinstance(event, Observed) and event.ask.endswith("/root"):
            opened[event.ask.removesuffix("/root")] = event.at
        elif isinstance(event, Scored):
            stream = event.ask.rpartition(":")[0]
            began = opened.get(stream.rpartition("/")[0])
            if began is not None:
                notes.seconds[stream] = event.at - began
            if event.reward is None:
                notes.failures[f"{event.status}: {event.detail}" if event.detail else event.status] += 1
        elif isinstance(event, Failed):
            notes.failures[f"{event.kind}: {event.message}"] += 1
        elif isinstance(event, Extended):
            notes.finish = None
        if _FINISH in decisions:
            notes.finish = _finish_of(decisions) or notes.finish
    return notes


def _finish_of(decisions: bytes) -> str | None:
    commands = msgspec.json.decode(decisions)
    return next((str(c["reason"]) for c in commands if c.get("type") == "Finish"), None)


# ---------------------------------------------------------------- from the shards


_COLUMNS = (
    'leaf, "group", index, step, num_sampled, num_turns, reward, status, fate, reason, stop, prompt_text, '
    "response_text"
)
_NAMES = (
    *("group", "index", "step", "tokens", "turns", "reward", "status", "fate", "reason", "stop"),
    *("prompt", "response"),
)
_FRESH = "from trajectories where kind = 'train' and not replayed"


class Shards:
    """Queries over the shards that are there now. Replayed copies of a rollout are left out."""

    def __init__(self, path: Path) -> None:
        self._connection = open_run(path)

    def steps(self) -> set[int]:
        """Return the steps that the shards hold."""
        rows = self._connection.execute("select distinct step from trajectories where kind = 'train'")
        return {int(step) for (step,) in rows.fetchall()}

    def shares(self) -> list[tuple[int, float | None]]:
        """Return (step, share of right rollouts among the scored) of each group."""
        return self._connection.execute(
            "select step, avg((status = 'right')::int) filter (where reward is not null) as share "
            f'{_FRESH} group by step, "group" order by step, "group"'
        ).fetchall()

    def lengths(self) -> list[tuple[int, int]]:
        """Return (step, sampled tokens) of each rollout."""
        return self._connection.execute(f"select step, num_sampled {_FRESH} order by step").fetchall()

    def longest(self, num: int, seconds: dict[str, float]) -> list[Rollout]:
        """Return the rollouts with the most sampled tokens."""
        rows = self._connection.execute(
            f"select {_COLUMNS} {_FRESH} order by num_sampled desc, leaf limit {int(num)}"
        ).fetchall()
        return self._rollouts(rows, seconds)

    def named(self, streams: Sequence[str], seconds: dict[str, float]) -> list[Rollout]:
        """Return the rollouts of these samples (``"<group>/<index>"``)."""
        rows = self._connection.execute(
            f"select {_COLUMNS} {_FRESH} and concat(\"group\", '/', index) in (select unnest(?))",
            [list(streams)],
        ).fetchall()
        return self._rollouts(rows, seconds)

    def _rollouts(self, rows: Sequence[tuple[Any, ...]], seconds: dict[str, float]) -> list[Rollout]:
        nodes = self._nodes(sorted({row[1] for row in rows}))
        rollouts = []
        for leaf, *values in rows:
            fields = dict(zip(_NAMES, values, strict=True))
            took = seconds.get(f"{fields['group']}/{fields['index']}")
            rollouts.append(Rollout(**fields, seconds=took, parts=_parts_to(nodes, leaf)))
        return rollouts

    def _nodes(self, groups: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        rows = self._connection.execute(
            'select node, parent, "at", num_steps, origin, text from nodes '
            "where kind = 'train' and \"group\" in (select unnest(?))",
            [list(groups)],
        )
        return {row[0]: row[1:] for row in rows.fetchall()}


def _parts_to(nodes: dict[str, tuple[Any, ...]], leaf: str) -> tuple[tuple[str, str], ...]:
    """Return (origin, text) from the root to a leaf; nothing where the path uses a part of a node."""
    parts: list[tuple[str, str]] = []
    node: str | None = leaf
    used: int | None = None
    while node is not None:
        if node not in nodes:
            return ()
        parent, at, num_steps, origin, text = nodes[node]
        if text is None or (used is not None and used != num_steps):
            return ()
        parts.append((origin, text))
        node, used = parent, at
    return tuple(reversed(parts))


# ---------------------------------------------------------------- from the journal


@dataclass(frozen=True, slots=True)
class Tail:
    """What only the journal knows, by folding it through a fresh runner.

    Args:
        runner: the runner as it was after the last whole record.
        rollouts: of the steps that no shard holds, and of the step that is under way.
    """

    runner: Any
    rollouts: list[Rollout]


def fold_tail(folder: RunFolder, in_shards: set[int], seconds: dict[str, float]) -> Tail:
    """Fold the journal and return what the shards do not hold yet.

    Raises:
        RollwrightError: the method, the task or the journal cannot be had, or decisions differ from
            the recorded ones (another version of the code wrote them).
    """
    # These import torch, and most looks at a run need none of it.
    from rollwright.lab.replay import fresh_runner
    from rollwright.runner import Runner
    from rollwright.runner.batch import freeze

    runner: Runner = fresh_runner(folder.config())
    check_replay(folder.journal_path, runner.step)
    decode = _decoder(folder)
    rollouts: list[Rollout] = []
    for closed in runner.take_closed():
        if closed.step not in in_shards:
            fates = {leaf: (fate.value, reason) for leaf, (fate, reason) in closed.fates.items()}
            rollouts += _from_group(closed.group, closed.step, fates, seconds, decode)
    for group in (*runner.groups.values(), *runner.held.values()):
        rollouts += _from_group(freeze(group), runner.step_number, {}, seconds, decode)
    return Tail(runner, rollouts)


def _decoder(folder: RunFolder) -> Callable[[Sequence[int]], str] | None:
    from rollwright.engine.checkpoint import load_tokenizer
    from rollwright.learn.checkpoint import newest

    path = newest(folder.path / CHECKPOINTS)
    if path is None:
        return None
    tokenizer = load_tokenizer(path)
    return lambda tokens: tokenizer.decode(tuple(tokens))


def _from_group(
    group: Any,
    step: int,
    fates: dict[str, tuple[str, str]],
    seconds: dict[str, float],
    decode: Callable[[Sequence[int]], str] | None,
) -> Iterable[Rollout]:
    for t in group.trajectories:
        if t.replayed:
            continue
        response = group.response(t)
        fate, reason = fates.get(t.leaf, ("held", ""))
        yield Rollout(
            group=group.id,
            index=t.index,
            step=step,
            tokens=int(response.is_sampled.sum()),
            turns=t.num_turns,
            seconds=seconds.get(f"{group.id}/{t.index}"),
            reward=t.reward,
            status=t.status,
            fate=fate,
            reason=reason,
            stop=None if t.stop is None else t.stop.value,
            prompt=decode(response.prompt) if decode else None,
            response=decode(response.tokens) if decode else None,
            parts=tuple((node.origin.value, decode(node.tokens[:num])) for node, num in group.path(t.leaf))
            if decode
            else (),
        )
