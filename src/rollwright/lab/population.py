"""Every rollout that a run sampled, with what became of it, from the journal alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollwright.events import AnyEvent, Failed, Observed, Published, Sampled, Scored
from rollwright.lab.records import Decision, records
from rollwright.runner.answers import MAX_REWARD
from rollwright.tree import StopReason

TRAINED, UNFINISHED = "trained", "unfinished"
UNTRAINED, NOT_SCORED, LOST = "scored, not trained", "not scored", "failed or given up"


@dataclass(slots=True)
class Sample:
    """One rollout: a path of the token tree with a stream of its own.

    Args:
        group, task, name: of its visit; ``name`` is ``"<group>/<stream>"``.
        first: number of the close that first passes over it, if it is not in its batch
            (`Population.closes`): that of the step that it was begun for.
        spans: [from, to) positions of its path that were sampled; a fork has its parent's, too.
        seconds: from its prompt to its grade; None if it has no grade.
        reward: the grader's; None is not scored.
        is_graded: the grader said something, be it that there is no score.
        is_open: its sampling is under way or was interrupted.
        trained_in: number of the close whose batch it was trained in; None if it was not.
        is_learning: it is in a batch whose update is not published.
    """

    group: str
    task: str
    name: str
    first: int
    spans: list[list[int]] = field(default_factory=list)
    seconds: float | None = None
    reward: float | None = None
    is_graded: bool = False
    is_open: bool = True
    trained_in: int | None = None
    is_learning: bool = False

    @property
    def num_tokens(self) -> int:
        """Sampled tokens of its path; what forks share counts for each."""
        return sum(end - start for start, end in self.spans)

    @property
    def is_trained(self) -> bool:
        return self.trained_in is not None


@dataclass
class Population:
    """The rollouts of a run, folded from its records with `take`.

    Attributes:
        samples: by name, in order of their beginning.
        closes: steps whose rollouts were closed, in order; open: those that are not closed yet.
        retired: groups that left the run, with the number of closes until then.
        finish: why the run ended; None while it has not.
    """

    samples: dict[str, Sample] = field(default_factory=dict)
    closes: list[int] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    retired: dict[str, int] = field(default_factory=dict)
    finish: str | None = None
    _at: dict[str, tuple[int, int]] = field(default_factory=dict)  # ask: attempt, next position
    _prompted: dict[str, float] = field(default_factory=dict)
    _batches: dict[int, list[Sample]] = field(default_factory=dict)
    _scoring: set[str] = field(default_factory=set)
    _first: dict[str, int] = field(default_factory=dict)

    def take(self, event: AnyEvent, decisions: Sequence[Decision]) -> None:
        """Take the next record."""
        if isinstance(event, Sampled):
            self._sampled(event)
        elif isinstance(event, Scored):
            self._scored(event)
        elif isinstance(event, Published):
            for sample in self._batches.pop(event.step, ()):
                sample.trained_in, sample.is_learning = self.closes.index(event.step), False
        elif isinstance(event, Observed) and event.ask.endswith("/root"):
            self._prompted[event.ask.removesuffix("/root")] = event.at
        elif isinstance(event, Failed) and event.ask in self._scoring:
            self.samples[_stream_of(event.ask)].is_graded = True  # by nobody, unless it is tried again
        for decision in decisions:
            self._decision(decision)

    def _sampled(self, event: Sampled) -> None:
        attempt, position = self._at.get(event.ask, (-1, 0))
        sample = self.samples.get(_stream_of(event.ask))
        if sample is None or attempt < 0 or event.attempt not in (None, attempt):
            return
        end = position + len(event.tokens)
        self._at[event.ask] = attempt, end
        if sample.spans and sample.spans[-1][1] == position:
            sample.spans[-1][1] = end
        elif end > position:
            sample.spans.append([position, end])
        if event.stop is not None:
            self._at.pop(event.ask)
            sample.is_open = event.stop is StopReason.INTERRUPTED

    def _scored(self, event: Scored) -> None:
        sample = self.samples.get(_stream_of(event.ask))
        if sample is None or event.ask not in self._scoring:
            return
        self._scoring.discard(event.ask)
        sample.is_graded = True
        is_number = event.reward is not None and abs(event.reward) <= MAX_REWARD
        sample.reward = event.reward if is_number else None
        if sample.group in self._prompted:
            sample.seconds = event.at - self._prompted[sample.group]

    def _decision(self, decision: Decision) -> None:
        if decision.type in ("Submit", "Fork"):
            self._submitted(decision)
        elif decision.type == "Reset":
            # With several steps open, a later round of an older one is taken for one of the newest.
            self._first[decision.group] = len(self.closes) + max(0, len(self.open) - 1)
        elif decision.type == "SetTimer":
            kind, _, step = decision.timer.partition(":")
            if kind == "rollouts" and int(step) not in (*self.open, *self.closes[-1:]):
                self.open.append(int(step))
        elif decision.type == "EmitBatch":
            self._close(decision.step)
            leaves = [t.leaf for group in decision.groups for t in group.trajectories if not t.replayed]
            found = map(self.samples.get, dict.fromkeys(map(_stream_of_node, leaves)))
            # A batch holds whole groups; what has no reward in them is not trained on.
            batch = [sample for sample in found if sample is not None and sample.reward is not None]
            self._batches[decision.step] = batch
            for sample in batch:
                sample.is_learning = True
        elif decision.type == "Score" and _stream_of(decision.ask) in self.samples:
            self._scoring.add(decision.ask)
        elif decision.type == "Report":
            self._close(decision.step)
        elif decision.type == "Retire":
            self.retired[decision.group] = len(self.closes)
            self._prompted.pop(decision.group, None)
        elif decision.type == "Finish":
            self.finish = decision.reason

    def _submitted(self, decision: Decision) -> None:
        self.finish = None
        self._at[decision.ask] = decision.attempt, decision.start
        name = _stream_of(decision.ask)
        if name in self.samples:
            self.samples[name].is_open = True
            return
        task = decision.group.rpartition("#")[0]
        first = max(len(self.closes), self._first.get(decision.group, 0))
        sample = Sample(decision.group, task, name, first)
        parent = self.samples.get(_stream_of_node(decision.parent))
        if parent is not None:
            inside = [[a, min(b, decision.start)] for a, b in parent.spans]
            sample.spans = [[a, b] for a, b in inside if a < b]
        self.samples[name] = sample

    def _close(self, step: int) -> None:
        if not self.closes or step > self.closes[-1]:
            self.closes.append(step)
        self.open = [other for other in self.open if other > step]

    # ------------------------------------------------------------ what became of them

    def decided(self) -> list[Sample]:
        """Return the rollouts that selection has had its word on, and of which something was sampled.

        Those of the step that is under way are left out while the run can go on: nothing was decided yet.
        """
        return [s for s in self.samples.values() if self._is_there(s) and self._is_decided(s)]

    @property
    def num_undecided(self) -> int:
        return sum(self._is_there(s) and not self._is_decided(s) for s in self.samples.values())

    def _is_there(self, sample: Sample) -> bool:
        return bool(sample.spans) or sample.is_graded

    def _is_decided(self, sample: Sample) -> bool:
        if self.finish is not None or sample.is_trained:
            return True
        return not sample.is_learning and len(self.closes) > sample.first

    def is_unfinished(self, sample: Sample) -> bool:
        """Whether a rollout is still being made."""
        return not sample.is_trained and sample.group not in self.retired and not sample.is_graded

    def end_of(self, sample: Sample) -> str:
        """Return what became of a rollout, in a word or a few.

        Scored, not trained: a filter or Replay dropped it, or Replay holds it; the ledger says which.
        """
        if sample.is_trained:
            return TRAINED
        if self.is_unfinished(sample):
            return UNFINISHED
        if not sample.is_graded:
            return LOST
        if sample.reward is None:
            return NOT_SCORED
        return UNTRAINED

    def left_in(self, sample: Sample) -> int | None:
        """Return the number of the close in which it was trained or dropped; None if it is still there."""
        if sample.trained_in is not None:
            return sample.trained_in
        retired = self.retired.get(sample.group)
        return None if retired is None else retired - 1


def _stream_of(ask: str) -> str:
    return ask.rpartition(":")[0]


def _stream_of_node(node: str) -> str:
    return node.rpartition(".")[0]


def read_population(path: str | Path) -> Population:
    """Read a journal once.

    Raises:
        StoreError, JournalCorrupt: as `rollwright.lab.records.records`.
    """
    population = Population()
    for event, decisions in records(path):
        population.take(event, decisions)
    return population
