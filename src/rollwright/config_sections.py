"""The sections of a run's config: settings that belong together, each a table of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """How tokens are sampled.

    Args:
        temperature: divides the logits, > 0.
        top_p: keep the smallest set of tokens with at least this mass, in (0, 1].
        top_k: keep this many tokens, ≥ 0; 0 keeps all.
        min_p: keep tokens with at least this share of the largest probability, in [0, 1].
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds, > 0, until a wait is given up.

    Args:
        rollouts_s: for the rollouts of one step; what is in flight then is lost with a reason.
        learner_s: for one update; then the run ends, and can be resumed.
        grader_s: for one grade; then it failed. Others must do it: driver ``"async"`` or ``"ray"``.
        environment_s: for one prompt or environment step, likewise.
        engine_s: for one step of the engine, likewise; then the run ends, and can be resumed (on Ray, the
            worker is replaced).
    """

    rollouts_s: float = 3600.0
    learner_s: float = 3600.0
    grader_s: float = 600.0
    environment_s: float = 600.0
    engine_s: float = 600.0


@dataclass(frozen=True, slots=True)
class FailureConfig:
    """What failures lead to, beside ``retries`` and ``on_failure``.

    Args:
        backoff_s: seconds until the first retry, doubled for each next one, ≥ 0; 0 retries at once.
        min_group: scored rollouts that a group with failures needs, or it is dropped, ≥ 1.
        quarantine_after: visits in a row without any scored rollout after which a task is passed over, ≥ 0;
            0 never.
        quarantine_visits: how often it is passed over then, ≥ 1.
        retries: the number of retries for one kind of failure: data, grader, environment, engine, worker.
        on_failure: what a lost rollout takes with it, for one kind of failure.
    """

    backoff_s: float = 0.0
    min_group: int = 1
    quarantine_after: int = 0
    quarantine_visits: int = 3
    retries: dict[str, int] = field(default_factory=dict)
    on_failure: dict[str, Literal["drop_sample", "drop_group", "stop"]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SwarmConfig:
    """Rollouts that several runs share, with a method that trains on those of others.

    Args:
        folder: where all of them lie, one folder for each run; empty shares nothing.
        node: this run's name among them: letters, digits, ``-``, ``_`` and ``.``.
        every_s: seconds between looks at what others shared, ≥ 0.
    """

    folder: str = ""
    node: str = ""
    every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """Guesses of the next tokens that the engine checks several at a time; what is sampled is the same.

    Args:
        kind: ``"suffix"`` looks up what followed in rollouts of the same prompt, ``"previous"`` goes over the
            last epoch's rollout; empty guesses nothing.
        tokens: of one guess at most, ≥ 1.
        keep_noise: a task's samples have the same noise at every visit, so that the last epoch's rollouts
            come again as far as the policy still agrees.
    """

    kind: Literal["", "suffix", "previous"] = ""
    tokens: int = 8
    keep_noise: bool = False


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server that samples, in place of the engine in this process.

    Args:
        url: its address; empty samples in this process. It must take weights over HTTP: `rollwright serve`,
            SGLang.
        model: the served model's name; empty takes the only one.
        weights: the folder in which checkpoints are handed over, which the server must see under the same
            path; empty is a temporary one, for a server on this machine.
    """

    url: str = ""
    model: str = ""
    weights: str = ""


@dataclass(frozen=True, slots=True)
class OverlapConfig:
    """How rollouts, grades and updates overlap with driver ``"async"``.

    Args:
        graders: grades at once, ≥ 1; more than one needs a grader that several threads may call.
        environments: prompts and environment steps at once, ≥ 1, likewise.
        publish: ``"interrupt"`` lets sequences go on under new weights; ``"drain"`` lets those that run end
            under the old ones first.
    """

    graders: int = 1
    environments: int = 1
    publish: Literal["interrupt", "drain"] = "interrupt"
