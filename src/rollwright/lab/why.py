"""What a run waits for, since when, and what ends the wait; if it is over, why.

A run is looked at from outside: its journal is folded through a fresh runner, and the files and the process
tell what the journal cannot (a checkpoint being written, an evaluation, a process that is suspended or
dead). No lock is taken and nothing is changed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollwright.config import RunConfig
from rollwright.errors import JournalCorrupt
from rollwright.lab.activity import Activity
from rollwright.lab.doing import Doing, doing
from rollwright.lab.process import Writer, writer
from rollwright.lab.records import decoded
from rollwright.lab.state import AskRow, ask_rows
from rollwright.runner import Runner, Wait
from rollwright.store.journal import read
from rollwright.store.replay import compare
from rollwright.store.run import RunFolder
from rollwright.store.tail import end_of_lines

_WHAT = {"sample": "tokens"}  # kinds of work as `Runner.waits` names them
_FOLLOWS = {
    "learner": "the run ends: the learner did not answer in time; the batch is kept and a resumed run gives"
    " it to the learner again",
    "abort": "the sampling is given up as failed with the tokens that were reported",
    "next step": "it goes on when the next step begins",
    "older step": "it is trained when the steps before it are",
    "retry": "it is tried again",
    "": "the step gives up what is unanswered as failed, never as a reward, and goes on with what it has",
}

_DIFFERS = (
    "the decisions of record {} do not come out again (`rollwright replay` shows how they differ), so what"
    " follows is read from the recorded decisions alone"
)


class Answer(msgspec.Struct, frozen=True):
    """What `explain` found.

    Args:
        path: the run folder.
        state: ``"running"``, ``"suspended"`` (by a stop signal), ``"elsewhere"`` (another machine's
            process names it), ``"finished"`` or ``"stopped"``: no process writes it, and it can go on.
        pid, host: of the process that writes it; None without one.
        step, num_steps: the step it is in, from 1 (0: before the first), and how many there are to be.
        version: of the policy.
        phase: ``"starting"``, ``"resuming"``, ``"rollouts"``, ``"closing"``, ``"learning"``,
            ``"recording"``, ``"checkpoint"``, ``"evaluation"``, ``"done"``.
        phase_text, phase_since: what is being done in the phase, and since when in seconds of the run.
        seconds: of the run, now; for a run that nobody writes, at its last event.
        silence: wall-clock seconds since its last event; None where nothing was recorded.
        last_event: what it was.
        waits: what the step waits for; ``since`` and ``deadline`` in seconds of the run.
        follows: what happens at each wait's deadline, in the order of the waits.
        asks: open asks, the oldest first; ``since`` is when each was first given out.
        end: why the run ended; None while it has not, or where nothing says so.
        failures: what failed in the last finished step.
        notes: what could not be read, and what that means for this answer.
    """

    path: str
    state: str
    pid: int | None
    host: str | None
    step: int
    num_steps: int
    version: int
    phase: str
    phase_text: str
    phase_since: float
    seconds: float
    silence: float | None
    last_event: str
    waits: list[Wait]
    follows: list[str]
    asks: list[AskRow]
    end: str | None
    failures: list[str]
    notes: list[str]


def explain(path: str | Path) -> Answer:
    """Say what a run waits for.

    Args:
        path: the run folder, of a run that goes on, stands, ended or was killed.

    Raises:
        StoreError: it is no run folder.
        ConfigError: its config cannot be read.
    """
    folder = RunFolder.view(path)
    config = folder.config()
    notes: list[str] = []
    look = _look(folder, None)
    if look.activity.num_records and look.activity.finish is None:
        # What a fold needs takes seconds to load, and a run that goes on is elsewhere by then: look again.
        look = _look(folder, _runner(config, notes))
    notes += look.notes
    activity, runner, found = look.activity, look.runner, look.writer
    is_alive = found is not None
    now = activity.last_at + (look.silence or 0.0 if is_alive else 0.0)
    waits = _waits(activity, runner)
    at_work = doing(folder.path, config, activity, found, waits)
    if activity.num_records and folder.journal_path.exists() and not is_alive:
        _note_torn(folder.journal_path, notes)
    return Answer(
        path=str(folder.path),
        state=_state(found, activity),
        pid=None if found is None else found.pid,
        host=None if found is None else found.host,
        step=_step(activity, runner, at_work),
        num_steps=config.num_steps if runner is None else runner.num_steps,
        version=activity.version if runner is None else runner.version,
        phase=at_work.phase,
        phase_text=at_work.text,
        phase_since=at_work.since,
        seconds=now,
        silence=look.silence,
        last_event=_last_event(activity),
        waits=waits,
        follows=[_FOLLOWS.get(wait.what, _FOLLOWS[""]) for wait in waits],
        asks=_asks(activity, runner),
        end=activity.finish,
        failures=activity.steps[-1].notes if activity.steps else [],
        notes=notes,
    )


# ---------------------------------------------------------------- the fold


@dataclass
class _Look:
    """The run at one moment.

    ``silence`` is None where nothing was recorded. The runner is behind the last record of the activity,
    None where it cannot be had.
    """

    writer: Writer | None
    silence: float | None
    activity: Activity
    runner: Runner | None
    notes: list[str]


def _look(folder: RunFolder, runner: Runner | None) -> _Look:
    """Read the journal once, through the runner as far as its decisions are the recorded ones."""
    path, activity, notes = folder.journal_path, Activity(), list[str]()
    found = writer(folder.path)  # before the journal: what a process wrote since is then seen as its own
    if not path.exists():
        return _Look(found, None, activity, None, notes)
    silence = max(0.0, time.time() - path.stat().st_mtime)
    try:
        for number, (event, recorded) in enumerate(read(path), 1):
            activity.take(event, decoded(recorded))
            if runner is not None:
                difference, _ = compare(runner, number, event, recorded)
                runner.take_closed()
                if difference is not None:
                    notes.append(_DIFFERS.format(number))
                    runner = None
    except JournalCorrupt as error:
        notes.append(f"only the records before the damage are looked at. {error}")
    return _Look(found, silence if activity.num_records else None, activity, runner, notes)


def _runner(config: RunConfig, notes: list[str]) -> Runner | None:
    try:
        from rollwright.lab.replay import fresh_runner  # its modules load torch

        return fresh_runner(config)
    except Exception as error:  # the user's own code may be loaded, and it may raise anything
        notes.append(
            "the run's method or task cannot be had here, so what follows is read from the recorded decisions"
            f" alone: {type(error).__name__}: {error}"
        )
        return None


def _note_torn(path: Path, notes: list[str]) -> None:
    end, size = end_of_lines(path)
    if end < size:
        notes.append(
            f"the journal ends with half a record ({size - end} bytes): it was being written when the process"
            " died, nobody acted upon it, and a resumed run does without it"
        )


# ---------------------------------------------------------------- what it waits for


def _waits(activity: Activity, runner: Runner | None) -> list[Wait]:
    if runner is not None:
        return runner.waits()
    return [] if activity.finish is not None else _recorded_waits(activity)


def _recorded_waits(activity: Activity) -> list[Wait]:
    """Return what the recorded decisions asked for and no recorded event answered."""
    step = activity.step
    waits = []
    for kind in dict.fromkeys(work.kind for work in activity.open.values()):
        asks = [work for work in activity.open.values() if work.kind == kind]
        timer = activity.timers.get(f"rollouts:{step}")
        waits.append(
            Wait(
                step=step,
                phase="rollouts",
                what=_WHAT.get(kind, kind),  # type: ignore[arg-type]
                since=min(work.began for work in asks),
                deadline=None if timer is None else timer.deadline,
                timer="" if timer is None else timer.name,
                asks=tuple(work.ask for work in asks),
            )
        )
    for update in activity.learning.values():
        timer = activity.timers.get(f"learn:{update.step}")
        deadline = None if timer is None else timer.deadline
        name = "" if timer is None else timer.name
        waits.append(Wait(update.step, "learning", "learner", update.began, deadline, name))
    return waits


def _asks(activity: Activity, runner: Runner | None) -> list[AskRow]:
    """Return the open asks, those that were first given out longest ago first."""
    first: dict[str, float] = {}
    for work in activity.work:
        first.setdefault(work.ask, work.began)
    if runner is not None:
        rows = [msgspec.structs.replace(row, since=first.get(row.ask, row.since)) for row in ask_rows(runner)]
    else:
        rows = [
            AskRow(
                ask=work.ask,
                kind=_WHAT.get(work.kind, work.kind),
                task=work.task,
                state="flying",
                tokens=sum(w.num_tokens for w in activity.work if w.ask == work.ask),
                versions=tuple(
                    sorted({c.version for w in activity.work if w.ask == work.ask for c in w.chunks})
                ),
                since=first[work.ask],
                submits=work.attempt,
                attempts=0,
            )
            for work in activity.open.values()
        ]
    return sorted(rows, key=lambda row: row.since)


# ---------------------------------------------------------------- where it is


def _state(found: Writer | None, activity: Activity) -> str:
    if found is not None:
        return found.state
    return "finished" if activity.finish is not None else "stopped"


def _step(activity: Activity, runner: Runner | None, at_work: Doing) -> int:
    if at_work.step is not None:
        return at_work.step + 1
    if activity.finish is not None:
        return len(activity.steps)
    return activity.step + 1 if runner is None else runner.step_number + 1


def _last_event(activity: Activity) -> str:
    if activity.last is None:
        return "nothing yet"
    event, _ = activity.last
    names = (getattr(event, name, None) for name in ("ask", "timer", "worker", "step"))
    return " ".join([type(event).__name__, *(str(name) for name in names if name is not None)])
