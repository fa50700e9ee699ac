"""Is this environment one that can be trained on, branched and trusted? `rollwright check-env` asks."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rollwright.envs import _checks as checks
from rollwright.envs._episodes import Episode, draw_turns, play
from rollwright.envs.api import Environment, Turn
from rollwright.envs.task import env_task
from rollwright.errors import ConfigError, RollwrightError
from rollwright.rng import generator

__all__ = ["CHECKS", "Finding", "Report", "check_env"]

# What each check holds an environment to.
CHECKS = {
    "task": "it has what a task has, and a prompt that is text",
    "answers": "each step gives new text, two flags, and a finite reward or None, and does not raise",
    "seeds": "an id gives the same prompt and state again, and other ids give others",
    "determinism": "the same turns get the same answers and states",
    "fork": "a state stays as it is, and a branch from it equals a fresh replay",
    "signature": "a state has a signature, and another state another one",
    "processes": "another process, with another hash seed, gives the same texts and signatures",
    "end": "one flag says how it ended, and a further step is refused",
    "new text": "an observation repeats neither what was said before nor the chat template's marks",
    "tools": "a call of read-only tools changes nothing",
    "grade": "a finished episode's score is a finite number, or None",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Args:
        check: one of `CHECKS`.
        problem: what is wrong; None if it holds, or could not be asked.
        is_note: the problem is worth a look, but no failure.
        skipped: why it could not be asked; None if it was.
    """

    check: str
    problem: str | None = None
    is_note: bool = False
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What all checks found, in the order of `CHECKS`."""

    name: str
    findings: tuple[Finding, ...] = ()
    num_episodes: int = 0
    num_turns: int = 0

    @property
    def is_right(self) -> bool:
        return all(finding.problem is None or finding.is_note for finding in self.findings)


@dataclass(slots=True)
class Trial:
    """What the checks look at. ``spec`` names the task for another process."""

    make: Callable[[], Any]
    task: Any
    ids: list[str]
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    episodes: dict[str, Episode] = field(default_factory=dict)
    spec: str | None = None
    seed: int = 0
    others: list[Any] = field(default_factory=list)

    def again(self) -> Any:
        """Return the same task, made anew."""
        self.others.append(as_task(self.make))
        return self.others[-1]

    def close(self) -> None:
        for task in (self.task, *self.others):
            end = getattr(task, "close", None)
            if callable(end):
                end()


def check_env(
    build: Callable[[], Any], *, spec: str | None = None, num: int = 4, max_turns: int = 12, seed: int = 0
) -> Report:
    """Play episodes and hold them against `CHECKS`.

    Args:
        build: makes the task or environment; called more than once.
        spec: as `rollwright check-env` takes it; without it no other process is asked.
        num: instances to play.
        max_turns: turns of each, at most.
        seed: of the turns that are tried.

    Raises:
        ConfigError: what is built is neither.
    """
    task = as_task(build)
    trial = Trial(build, task, [], spec=spec, seed=seed)
    try:
        findings = _findings(trial, num, max_turns)
    finally:
        trial.close()
    num_turns = sum(len(episode.turns) for episode in trial.episodes.values())
    return Report(task.name, tuple(findings), len(trial.episodes), num_turns)


def _findings(trial: Trial, num: int, max_turns: int) -> list[Finding]:
    findings = [_task(trial.task)]
    if findings[0].problem is None:
        trial.ids = _some_ids(trial.task, num)
        findings += _play_all(trial, max_turns)
    if all(finding.problem is None for finding in findings):
        for name, check in checks.ALL.items():
            wrong = {finding.check for finding in findings if finding.problem and not finding.is_note}
            before = next((other for other in checks.NEEDS.get(name, ()) if other in wrong), None)
            if before is not None:
                findings.append(Finding(name, skipped=f"not asked, because of what is wrong with {before}"))
            else:
                findings += _run(name, check, trial)
    return findings


def _task(task: Any) -> Finding:
    try:
        return Finding("task", checks.check_task(task))
    except (Exception, SystemExit) as error:  # its first reset happens here
        return Finding("task", _said(error))


def as_task(build: Callable[[], Any]) -> Any:
    """Return the task that ``build`` makes, or that of the environment which it makes."""
    try:
        made = build()
    except RollwrightError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"it cannot be made: {_said(error)}; expected a function without arguments"
        ) from error
    if hasattr(made, "ids") and hasattr(made, "grade"):
        return made
    if isinstance(made, Environment):
        return env_task(build, getattr(made, "name", None) or type(made).__name__.lower())
    raise ConfigError(
        f"a {type(made).__name__} was made; expected a task (ids, prompt, reset, step, grade) or an"
        " environment (reset(seed) -> text, step(turn) -> Observation)"
    )


def _some_ids(task: Any, num: int) -> list[str]:
    ids = [list(task.ids(split)[: (num + 1) // 2]) for split in ("train", "test")]
    return [*ids[0], *ids[1]][: max(num, 1)]


def _play_all(trial: Trial, max_turns: int) -> list[Finding]:
    """Play the episodes that the other checks look at."""
    task = trial.task
    num = min(max_turns, task.max_turns) if task.max_turns > 1 else 0
    for number, task_id in enumerate(trial.ids):
        try:
            rng = generator(trial.seed, "check-env", number)
            trial.turns[task_id] = draw_turns(task, task_id, rng, num) if num else []
            trial.episodes[task_id] = play(task, task.reset(task_id), trial.turns[task_id])
        except (Exception, SystemExit) as error:  # foreign code may do anything; that is what is asked
            return [Finding("answers", f"{task_id}: {_said(error)}")]
    return [Finding("answers")]


def _run(name: str, check: Callable[[Trial], checks.Problems], trial: Trial) -> list[Finding]:
    try:
        problems = check(trial)
    except checks.Skip as skip:
        return [Finding(name, skipped=str(skip))]
    except (Exception, SystemExit) as error:
        return [Finding(name, _said(error))]
    return [Finding(name, problem, is_note) for problem, is_note in problems] or [Finding(name)]


def _said(error: BaseException) -> str:
    """Return an error in one line, with where in foreign code it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}"
    is_ours = "rollwright" in last.filename and "rollwright_user" not in last.filename
    return text if is_ours else f"{text} (line {last.lineno} of {last.filename.rpartition('/')[2]})"
