"""The runner's state: plain values that pickle, with no generator and no clock inside."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

from rollwright.events import AnyCommand
from rollwright.tree import Group, GroupId, Node, NodeId, Sampling, TaskId, Trajectory

AskId = str


class AskState(str, Enum):
    FLYING = "flying"  # the driver works on it
    ABORTING = "aborting"  # an abort is under way
    QUEUED = "queued"  # to be submitted when fewer asks fly
    PAUSED = "paused"  # it failed, and is tried again when its timer fires
    WAITING = "waiting"  # carried over or deferred: to be submitted when the next step begins


IN_FLIGHT = (AskState.FLYING, AskState.ABORTING)  # the driver has it


def short(stream: str) -> str:
    """Return a stream's name inside its group, ``"<sample>~<fork>..."``, or ``"root"`` for none."""
    return stream.partition("/")[2] or "root"


def order(stream: str) -> tuple[int, ...]:
    """Return the sort key of a stream: samples in order of creation, each before its own forks."""
    return tuple(int(part) for part in short(stream).split("~")) if stream else ()


class LiveAsk(msgspec.Struct):
    """Work that the driver owes an answer for, or will.

    ``parent``, ``at``, ``start`` and ``max_tokens`` describe what is left to sample after the last
    closed node; ``tokens`` and the columns beside it are what came since.
    """

    id: AskId
    kind: Literal["reset", "tokens", "env", "score"]
    group: GroupId
    plan: int
    command: AnyCommand
    stream: str = ""
    parent: NodeId = ""
    at: int = 0
    start: int = 0
    max_tokens: int = 0
    is_cut_by_context: bool = False
    sampling: Sampling = Sampling()
    policy: str = "policy"
    version: int = -1
    forced: int = 0
    parts: list[NodeId] = []
    tokens: list[int] = []
    logprobs: list[float] = []
    entropies: list[float] | None = None
    kept_masses: list[float] | None = None
    top: list[tuple[tuple[int, float], ...]] | None = None
    attempts: int = 0
    num_resubmits: int = 0
    state: AskState = AskState.FLYING
    on_abort: Literal["carry", "stop", "fail"] = "carry"
    reason: str = ""
    wait: bool = False
    priority: int = 0
    number: int = 0  # in order of creation
    num_lost: int = 0  # workers that were lost with it
    since: float = 0.0  # seconds of the run at which it was last given out, or its abort

    @property
    def is_flying(self) -> bool:
        return self.state is AskState.FLYING


class PlanState(msgspec.Struct):
    """One running plan: what it received so far is enough to build its generator again."""

    num: int
    wait: Literal["all", "any"] = "all"
    received: list[list[NodeId]] = []
    inbox: list[NodeId] = []
    in_flight: set[AskId] = msgspec.field(default_factory=set)
    is_done: bool = False


class GroupState(msgspec.Struct):
    """One visit to one task."""

    id: GroupId
    task: TaskId
    visit: int
    order: int
    opened_step: int
    step: int  # the step whose batch it is meant for: a later one each time it is carried over
    nodes: dict[NodeId, Node] = {}
    root: NodeId = ""
    streams: dict[str, None] = {}  # trajectory keys
    num_nodes: dict[str, int] = {}  # nodes made per stream
    num_forks: dict[str, int] = {}  # forks made per stream
    continued: set[NodeId] = msgspec.field(default_factory=set)
    plans: list[PlanState] = []
    queued_plans: list[int] = []  # rollouts granted before the root was known
    asks: set[AskId] = msgspec.field(default_factory=set)
    trajectories: dict[NodeId, Trajectory] = {}
    pruned: dict[NodeId, str] = {}
    failed: dict[NodeId, str] = {}
    num_granted: int = 0
    num_roots: int = 0
    num_failed: int = 0
    is_kept: bool | None = None
    drop_reason: str = ""
    scores: dict[NodeId, float | None] = {}
    prompted: float = 0.0  # seconds of the run at which its prompt came; for reports only
    seconds: dict[NodeId, float] = {}  # from then to each leaf's grade; for reports only
    is_carried: bool = False
    is_broken: bool = False  # its reset failed, or on_failure took it: see drop_reason

    @property
    def is_complete(self) -> bool:
        return not self.asks and not self.queued_plans and all(plan.is_done for plan in self.plans)

    @property
    def oldest_version(self) -> int:
        versions = [node.version for node in self.nodes.values() if node.version is not None]
        return min(versions, default=-1)


class Phase(str, Enum):
    NEW = "new"
    ROLLOUTS = "rollouts"
    CLOSING = "closing"  # no more is begun; aborts, and groups that may not be carried, are waited for
    READY = "ready"  # rolled out; the learner is busy, or an older step is not done
    LEARNING = "learning"
    DONE = "done"


class StepState(msgspec.Struct):
    """One learner step that has begun and is not over. Several are open when rollouts run ahead."""

    number: int
    phase: Phase = Phase.ROLLOUTS
    round: int = 0  # how often Allocate was asked
    groups: dict[GroupId, None] = {}  # in order of opening
    incomplete: set[GroupId] = msgspec.field(default_factory=set)  # they await an answer in this step
    aborting: set[GroupId] = msgspec.field(default_factory=set)  # they await the answer to an abort
    must_finish: set[GroupId] = msgspec.field(default_factory=set)  # they may not be carried any further
    is_overdue: bool = False
    failures: dict[str, int] = {}  # rollouts that failed, by what was said
    batch: tuple[Group, ...] = ()
    report: dict[str, float | None] = {}
    since: float = 0.0  # seconds of the run at which its phase began
