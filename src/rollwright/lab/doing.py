"""What the process of a run does at this moment, from its waits, its files and its lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollwright.config import RunConfig
from rollwright.events import Published
from rollwright.lab.activity import Activity
from rollwright.lab.process import Writer
from rollwright.runner import Wait
from rollwright.store.layout import CHECKPOINTS, DRAFT, JOURNAL, METRICS, SHARDS
from rollwright.store.rows import load_rows

_WORDS = {
    "prompt": ("prompt", "prompts"),
    "tokens": ("rollout that is being sampled", "rollouts that are being sampled"),
    "environment": ("step of an environment", "steps of environments"),
    "grade": ("grade", "grades"),
    "place": ("rollout that waits for a place in flight", "rollouts that wait for a place in flight"),
    "retry": ("failed ask that waits to be tried again", "failed asks that wait to be tried again"),
    "abort": ("rollout to stop", "rollouts to stop"),
    "next step": ("rollout carried over to the next step", "rollouts carried over to the next step"),
}


@dataclass(frozen=True, slots=True)
class Doing:
    """A phase, what is done in it, since when (seconds of the run), and the step if it is not the next."""

    phase: str
    text: str
    since: float
    step: int | None = None


def doing(
    path: Path, config: RunConfig, activity: Activity, found: Writer | None, waits: Sequence[Wait]
) -> Doing:
    """Return what is being done, or was when the process died.

    Args:
        path: the run folder.
        found: the process that writes it, None if nobody does.
        waits: of the run, as its journal tells.
    """
    now = activity.last_at
    if not activity.num_records:
        files = None if found is None else _files(path, config, 0, (), found.since, is_edge=True)
        return Doing(*(files or ("starting", "it has recorded no event yet")), since=0.0)
    if found is not None and found.since > (path / JOURNAL).stat().st_mtime:
        text = "reading its journal, and training again what the last checkpoint lacks"
        return Doing("resuming", text, now)
    beside = None if found is None else _beside(path, config, activity, found)
    if beside is not None:
        return beside
    if activity.finish is not None:
        return Doing("done", activity.finish, activity.finished_at or now)
    if not waits:
        return Doing("rollouts", "it waits for nothing that its journal names", now)
    oldest = [wait for wait in waits if wait.step == waits[0].step]
    return Doing(oldest[0].phase, " and ".join(map(text_of, oldest)), min(wait.since for wait in oldest))


def text_of(wait: Wait) -> str:
    """Return what a wait is for, in words."""
    if wait.what == "learner":
        return f"the learner's update of step {wait.step + 1}"
    if wait.what == "older step":
        return f"the steps before step {wait.step + 1}, which is ready"
    one, many = _WORDS.get(wait.what, (wait.what, wait.what))
    return f"{len(wait.asks):,} {one if len(wait.asks) == 1 else many}"


def _beside(path: Path, config: RunConfig, activity: Activity, found: Writer) -> Doing | None:
    """Return what a thread does between a step's report and the next event, while nothing is answered."""
    assert activity.last is not None
    event, decisions = activity.last
    steps = tuple(decision.step for decision in decisions if decision.type == "Report")
    is_end = any(decision.type == "Finish" for decision in decisions)
    if not steps and not is_end:
        return None
    version = event.version if isinstance(event, Published) else activity.version
    files = _files(path, config, version, steps, found.since, is_end)
    return None if files is None else Doing(*files, since=activity.last_at, step=max(steps, default=None))


def _files(
    path: Path, config: RunConfig, version: int, steps: Sequence[int], since: float, is_edge: bool
) -> tuple[str, str] | None:
    """Return (phase, text) of what the files show to be under way once steps were reported.

    Args:
        version: of the policy.
        steps: that were reported.
        since: wall-clock time at which the process began; what is older is left from another.
        is_edge: the run begins or ends, so its policy is kept and measured whatever the intervals say.
    """
    saved = path / CHECKPOINTS / f"v{version:08d}"
    if _is_newer(saved.with_name(f".partial-{saved.name}"), since):
        return "checkpoint", f"writing the checkpoint of version {version}"
    if any(_is_newer(draft, since) for draft in (path / SHARDS).glob(f"{DRAFT}*")):
        return "recording", "writing rollouts to the shards"
    metrics = path / METRICS
    rows = load_rows(metrics).rows if metrics.exists() else []
    recorded = {(row.get("kind"), row.get("step")) for row in rows}
    missing = [step for step in steps if ("step", step) not in recorded]
    if missing:
        return "recording", f"recording metrics and rollouts of step {missing[0] + 1}"
    is_kept = is_edge or (config.checkpoint_every and version % config.checkpoint_every == 0)
    if is_kept and not saved.exists():
        return ("checkpoint", f"writing the checkpoint of version {version}") if steps else None
    is_measured = config.eval_every and (is_edge or version % config.eval_every == 0)
    if is_measured and ("evaluation", version) not in recorded:
        return "evaluation", f"measuring version {version} on held-out tasks"
    return None


def _is_newer(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except OSError:
        return False
