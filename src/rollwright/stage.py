"""The stages: one Protocol per kind of decision, and the plain values that they exchange.

A strategy is a frozen, slotted dataclass of plain values: its own config. Its state is explicit and
returned. It may declare, as class variables, ``needs`` (names of what it reads that someone must give),
``gives`` (what it adds) and ``declares`` (exceptions from the laws, for example ``"biased"``).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np

from rollwright.events import Event
from rollwright.tree import Group, GroupId, Node, NodeId, Origin, Sampling, StopReason, TaskId

# ---------------------------------------------------------------- plans: what to generate


@dataclass(frozen=True, slots=True)
class Ask:
    """Sample ``num`` continuations of ``parent`` (after ``at`` of its steps; None is all of them).

    ``max_tokens`` None is the task's limit for a turn. ``first`` forces the first token. ``num_top``
    asks for the most likely tokens at each step. ``more``: the node is a segment, and the plan goes on
    with the same turn when it ends by length. ``priority``: of asks that wait for an engine the larger go
    first; it changes when and where something is sampled, never what.
    """

    parent: NodeId
    num: int = 1
    at: int | None = None
    max_tokens: int | None = None
    sampling: Sampling | None = None
    policy: str = "policy"
    first: int | None = None
    num_top: int = 0
    more: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AskEnv:
    """Give the turn that ends at ``parent`` to the environment."""

    parent: NodeId


@dataclass(frozen=True, slots=True)
class AskScore:
    """The path to ``leaf`` is a finished trajectory: grade it.

    With ``wait`` the plan gets the leaf again once its reward is known (`PlanView.reward`).
    """

    leaf: NodeId
    wait: bool = False


@dataclass(frozen=True, slots=True)
class Hint:
    """Put ``tokens`` after ``parent`` as a node of origin hint; the node comes back at once."""

    parent: NodeId
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prune:
    """The plan gives up the branch that ends at ``leaf``; its own tokens get the fate pruned."""

    leaf: NodeId
    reason: str


AnyAsk = Ask | AskEnv | AskScore | Hint | Prune


@dataclass(frozen=True, slots=True)
class Want:
    """New asks, and what to wait for: all asks in flight of this plan, or any one of them."""

    asks: Sequence[AnyAsk] = ()
    wait: Literal["all", "any"] = "all"


class PlanView(Protocol):
    """What a plan may read: its own group."""

    group: GroupId
    task: TaskId
    root: NodeId
    is_dialogue: bool  # turns go to an environment
    max_tokens: int  # in one turn
    max_turns: int

    def node(self, node: NodeId) -> Node: ...
    def path(self, leaf: NodeId) -> list[tuple[Node, int]]: ...
    def num_turns(self, leaf: NodeId) -> int: ...
    def reward(self, leaf: NodeId) -> float | None: ...


Plan = Generator[Want, Sequence[Node], None]


@runtime_checkable
class Generate(Protocol):
    """Topology and conditioning. Yields wants, receives finished nodes, does no I/O.

    A plan's decisions may depend on what it received, not on the order within one wait "any".
    """

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan: ...


def next_ask(view: PlanView, node: Node) -> Ask | AskEnv | AskScore | None:
    """Return what a plain rollout does after ``node``: the environment, the next turn, or the grader.

    None when the rollout is lost (failed) or was pruned.
    """
    stop = node.stop
    if stop in (StopReason.FAILED, StopReason.PRUNED):
        return None
    if node.origin is Origin.SAMPLED:
        # A turn cut by its own length still goes to the environment, which says what it makes of it.
        is_over = not view.is_dialogue or stop is StopReason.CONTEXT
        return AskScore(node.id) if is_over else AskEnv(node.id)
    if node.origin is Origin.OBSERVATION and stop is not None:
        return AskScore(node.id)
    return Ask(node.id)


# ---------------------------------------------------------------- select and allocate


class TaskHistory(msgspec.Struct):
    """What is known of one task: visits, rollouts scored, sums of raw rewards and of their squares, the last
    visit's mean reward, and the last step that picked it (-1: none has)."""

    visits: int = 0
    num_scored: int = 0
    reward_sum: float = 0.0
    square_sum: float = 0.0
    last_mean: float | None = None
    last_step: int = -1
    num_failed: int = 0


class History(Protocol):
    """What Select may read.

    ``num_picked`` counts the tasks picked so far in the run, every visit.
    """

    @property
    def tasks(self) -> Sequence[TaskId]: ...
    @property
    def num_picked(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def step(self) -> int: ...

    def of(self, task: TaskId) -> TaskHistory: ...


@runtime_checkable
class Select(Protocol):
    """Which tasks to roll out next."""

    def pick(self, history: History, num_tasks: int, rng: np.random.Generator) -> Sequence[TaskId]: ...


@dataclass(frozen=True, slots=True)
class GroupView:
    """What Allocate and Control see of a group of this step."""

    id: GroupId
    task: TaskId
    num_granted: int
    rewards: tuple[float | None, ...]  # raw rewards of finished trajectories, by index
    num_failed: int
    is_complete: bool
    is_kept: bool | None  # the filters' word, once complete
    is_carried: bool  # begun in an earlier step
    oldest_version: int
    num_unfinished: int = field(init=False, compare=False)  # rollouts that are neither done nor lost

    def __post_init__(self) -> None:
        num = 0 if self.is_complete else self.num_granted - len(self.rewards) - self.num_failed
        object.__setattr__(self, "num_unfinished", num)


_IS_COMPLETE, _IS_KEPT = attrgetter("is_complete"), attrgetter("is_kept")
_NUM_UNFINISHED = attrgetter("num_unfinished")


@dataclass(frozen=True, slots=True)
class StepView:
    """What Allocate and Control see of the step."""

    step: int
    version: int
    round: int  # how often Allocate was asked before in this step
    num_tasks: int  # the target: groups a batch is made of
    groups: tuple[GroupView, ...]
    num_held: int = 0  # complete groups of earlier steps that Replay keeps for a first training
    num_complete: int = field(init=False, compare=False)  # groups
    num_kept: int = field(init=False, compare=False)  # groups that the filters kept
    num_unfinished: int = field(init=False, compare=False)  # rollouts that are neither done nor lost

    def __post_init__(self) -> None:
        # Counted once: a control reads them at every event, and one view serves many events.
        object.__setattr__(self, "num_complete", sum(map(_IS_COMPLETE, self.groups)))
        object.__setattr__(self, "num_kept", list(map(_IS_KEPT, self.groups)).count(True))
        object.__setattr__(self, "num_unfinished", sum(map(_NUM_UNFINISHED, self.groups)))


@dataclass(frozen=True, slots=True)
class Left:
    """What the budget still allows: rollouts and sampled tokens (inf without a limit)."""

    rollouts: float
    sampled_tokens: float


@dataclass(frozen=True, slots=True)
class Grant:
    """``new_tasks`` fresh tasks with ``each`` rollouts, and ``extra`` rollouts for open groups."""

    new_tasks: int = 0
    each: int = 0
    extra: Mapping[GroupId, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return self.new_tasks == 0 and not any(self.extra.values())


@runtime_checkable
class Allocate(Protocol):
    """How many rollouts go where; asked again after each scored round; an empty grant ends the step."""

    def grant(self, step: StepView, left: Left) -> Grant: ...


# ---------------------------------------------------------------- control


@dataclass(frozen=True, slots=True)
class Stop:
    """End a live ask; what it made stays in the tree with stop PRUNED."""

    ask: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class ForkAt:
    """Branch a live ask after ``at`` of its steps into ``num`` further samples."""

    ask: NodeId
    at: int
    num: int = 1


@dataclass(frozen=True, slots=True)
class Carry:
    """Interrupt a live ask now and go on with it in the next step."""

    ask: NodeId


@dataclass(frozen=True, slots=True)
class Close:
    """End the step's rollouts: complete groups are trained, the others are carried over."""

    reason: str


Action = Stop | ForkAt | Carry | Close | Grant
PRECEDENCE: tuple[type, ...] = (Close, Stop, ForkAt, Carry, Grant)


@runtime_checkable
class Control(Protocol):
    """Decides while tokens flow, on every event. A `Grant` opens tasks at once, beside what Allocate grants.

    A control with an attribute ``max_flying`` limits how many asks for tokens fly at once, in the whole
    run; the others wait in the runner, larger priorities first, then older groups.
    """

    def __call__(self, event: Event, view: StepView) -> Sequence[Action]: ...


# ---------------------------------------------------------------- filter, replay, credit


@dataclass(frozen=True, slots=True)
class Verdict:
    """A filter's word on a group: kept or dropped with a reason; shaped scores by leaf."""

    keep: bool
    reason: str = ""
    scores: Mapping[NodeId, float | None] | None = None


@runtime_checkable
class Filter(Protocol):
    """Scores, keeps or drops a complete group. Scores start as the raw rewards."""

    def __call__(self, group: Group) -> Verdict: ...


@runtime_checkable
class Replay(Protocol):
    """What to keep and what to train on. The state is a msgspec-encodable value."""

    def init(self) -> Any: ...

    def exchange(
        self, state: Any, fresh: Sequence[Group], version: int, rng: np.random.Generator, num_tasks: int
    ) -> tuple[Any, Sequence[Group]]:
        """Take the fresh groups, return the next state and the groups to train on now.

        ``num_tasks`` is the number of groups that a batch is made of.
        """
        ...

    def holds(self, state: Any) -> Collection[GroupId]:
        """Return the groups that the state keeps for a first training later (their tokens are held)."""
        ...


@runtime_checkable
class Receives(Protocol):
    """A `Replay` that takes rollouts of other runs."""

    def receive(self, state: Any, groups: Sequence[Group]) -> tuple[Any, Mapping[str, int]]:
        """Take groups that arrived; return the next state, and how many were left out, by reason."""
        ...


@runtime_checkable
class Credit(Protocol):
    """Rewards to advantages per response step. Stages of this kind chain."""

    def __call__(self, group: Group) -> Group: ...


# ---------------------------------------------------------------- objective and reduce (torch side)


class Objective(Protocol):
    """A loss per token of any flat run of tokens; see `rollwright.stages.objective`."""


class Reduce(Protocol):
    """How token losses become one number; see `rollwright.stages.reduce`."""


@runtime_checkable
class Estimate(Protocol):
    """A small online predictor that other stages name in ``needs``."""

    def update(self, x: Any, y: float) -> Estimate: ...
    def predict(self, x: Any) -> float: ...
