"""What happens (events) and what the runner wants done (commands). Both are plain, frozen values.

The journal holds every event with the commands that answered it; folding the events through a fresh
runner gives the same commands, byte for byte. ``at`` is seconds since the run started, by the
driver's clock: it feeds reports, never a decision.
"""

from __future__ import annotations

import msgspec

from rollwright.tree import Group, GroupId, NodeId, Sampling, StopReason, TaskId


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    at: float = 0.0


class Started(Event, frozen=True):
    """The run begins."""


class Sampled(Event, frozen=True):
    """A chunk of an ask was sampled, all of it by one policy and version.

    ``stop`` is None while more is to come; INTERRUPTED when an abort gave back what was made.
    Arrays have one entry per token. ``prefilled`` counts tokens prefilled for it in this chunk.
    ``attempt`` is that of the submit which it answers: a worker that was given up may still report, and
    what it says must not be taken for the answer of the one that was asked after it. None is not known.
    """

    ask: NodeId
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy: str = "policy"
    version: int = 0
    entropies: tuple[float, ...] | None = None
    kept_masses: tuple[float, ...] | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] | None = None
    stop: StopReason | None = None
    prefilled: int = 0
    attempt: int | None = None


class Observed(Event, frozen=True):
    """An environment answered a reset or a step. Tokens are the encoded new text only.

    ``outcome`` is its word on the turn for schedulers, such as ``"error"`` or ``"empty"``; never a reward.
    """

    ask: NodeId
    tokens: tuple[int, ...]
    terminated: bool = False
    truncated: bool = False
    reward: float | None = None
    outcome: str = ""


class Scored(Event, frozen=True):
    """A grader gave its verdict on a trajectory. ``reward`` None is not scored, with the reason."""

    ask: NodeId
    reward: float | None
    status: str
    rewards: dict[str, float] = {}
    detail: str = ""


class Failed(Event, frozen=True):
    """An ask failed on our side: never a reward."""

    ask: NodeId
    kind: str  # data | grader | environment | engine | worker
    message: str


class Published(Event, frozen=True):
    """The learner consumed the batch of ``step`` and its new weights are in place, whole."""

    step: int
    version: int
    policy: str = "policy"
    learner_tokens: int = 0
    metrics: dict[str, float] = {}


class TimerFired(Event, frozen=True):
    timer: str


class WorkerLost(Event, frozen=True):
    """A worker is gone; the asks it held must be done again from their last acknowledged token."""

    worker: str
    asks: tuple[NodeId, ...] = ()


class BudgetChanged(Event, frozen=True):
    granted: dict[str, float]


class Extended(Event, frozen=True):
    """The run shall make ``num_steps`` learner steps in total; one that was done goes on."""

    num_steps: int


class Resumed(Event, frozen=True):
    """The run goes on after a restart: everything still owed is asked for again."""


class Received(Event, frozen=True):
    """Rollouts that another run shared, as this one encodes them (`rollwright.swarm`).

    ``source`` names what they came in; ``refused`` counts those that were left out, by reason.
    """

    source: str
    groups: tuple[Group, ...] = ()
    refused: dict[str, int] = {}


class StopAsked(Event, frozen=True):
    """The user asked for a clean stop."""


AnyEvent = (
    Started
    | Sampled
    | Observed
    | Scored
    | Failed
    | Published
    | TimerFired
    | WorkerLost
    | BudgetChanged
    | Extended
    | Resumed
    | Received
    | StopAsked
)


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    pass


class Reset(Command, frozen=True):
    """Start the task's environment and give its prompt (answered by Observed)."""

    ask: NodeId
    group: GroupId
    task: TaskId


class Submit(Command, frozen=True):
    """Sample tokens that continue ``parent`` after ``at`` of its steps (answered by Sampled).

    ``start`` is the position t of the first new token and ``stream`` the 63-bit noise key, so the
    answer does not depend on when or where it is sampled. ``first`` forces the first token.
    """

    ask: NodeId
    group: GroupId
    parent: NodeId
    at: int
    stream: int
    start: int
    max_tokens: int
    sampling: Sampling
    policy: str = "policy"
    first: int | None = None
    num_top: int = 0
    chunk: int = 0  # answer at least every this many tokens; 0 only at the end
    turn_start: int | None = None  # where the turn began, if before start: stop strings may begin there
    attempt: int = 0  # how often the ask was submitted before; its answers say which one they answer
    priority: int = 0  # the engine's waiting order: larger goes first, then older


class Fork(Submit, frozen=True):
    """A submit whose parent is live: the engine may copy its cache instead of prefilling."""


class Abort(Command, frozen=True):
    """Stop sampling and give back what was made (answered by Sampled with a stop)."""

    ask: NodeId


class EnvStep(Command, frozen=True):
    """Give the turn that ends at ``parent`` to the environment (answered by Observed)."""

    ask: NodeId
    group: GroupId
    parent: NodeId


class Score(Command, frozen=True):
    """Grade the trajectory that ends at ``leaf`` (answered by Scored)."""

    ask: NodeId
    group: GroupId
    leaf: NodeId


class EmitBatch(Command, frozen=True):
    """Train on these groups (answered by Published). ``version`` is the one to improve on."""

    step: int
    version: int
    groups: tuple[Group, ...]


class SetTimer(Command, frozen=True):
    timer: str
    seconds: float
    what: str


class CancelTimer(Command, frozen=True):
    timer: str


class Retire(Command, frozen=True):
    """The group is closed: caches and environment states of it can go."""

    group: GroupId


class Report(Command, frozen=True):
    """Metrics of a finished step, to be logged."""

    step: int
    metrics: dict[str, float | None]
    notes: tuple[str, ...] = ()


class Finish(Command, frozen=True):
    """The run is over."""

    reason: str


AnyCommand = (
    Reset
    | Submit
    | Fork
    | Abort
    | EnvStep
    | Score
    | EmitBatch
    | SetTimer
    | CancelTimer
    | Retire
    | Report
    | Finish
)
