"""The checks of `rollwright.envs.check`: each returns what is wrong, as (problem, is only a note)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rollwright.envs._episodes import Episode, mark_of, play
from rollwright.envs.answers import answer
from rollwright.envs.keepers import close
from rollwright.envs.task import EnvTask
from rollwright.envs.tool_calls import parse_tool_calls
from rollwright.envs.tools import Effect
from rollwright.errors import EnvironmentFault

if TYPE_CHECKING:
    from rollwright.envs.check import Trial

Problems = Sequence[tuple[str, bool]]
_FIELDS = (
    "name ids prompt reset step grade demonstrate grader_version max_turns max_tokens context stop_strings"
)


class Skip(Exception):
    """There is nothing that the check could look at."""


_MARKS = ("<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|eot_id|>", "[INST]", "<start_of_turn>")


def check_task(task: Any) -> str | None:
    """Return what a task lacks."""
    for name in _FIELDS.split():
        if not hasattr(task, name):
            return f"it has no {name}"
    for name in ("max_turns", "max_tokens", "context"):
        if not isinstance(getattr(task, name), int) or getattr(task, name) < 1:
            return f"{name} is {getattr(task, name)!r}; expected a whole number from 1 on"
    if not task.ids("train") or not task.ids("test"):
        return "a split has no ids"
    text = task.prompt(task.ids("train")[0])
    if not isinstance(text, str) or not text:
        return f"the prompt is {text!r}; expected text"
    return None


def seeds(trial: Trial) -> Problems:
    one, again = trial.again(), trial.again()  # both untouched by the episodes
    firsts = []
    for task_id in trial.ids:
        first = (one.prompt(task_id), mark_of(one, one.reset(task_id)))
        second = (again.prompt(task_id), mark_of(again, again.reset(task_id)))
        if first[0] != second[0]:
            return [(f"{task_id} has the prompt {_short(first[0])} and then {_short(second[0])}", False)]
        if first[1] != second[1]:
            return [(f"{task_id} begins in another state when the task is made again", False)]
        firsts.append(first)
    if len(firsts) > 1 and len(set(firsts)) == 1:
        return [(f"{len(firsts)} ids begin in the same state: do they differ at all?", True)]
    return []


def determinism(trial: Trial) -> Problems:
    _need_turns(trial)
    again = trial.again()
    for task_id, episode in trial.episodes.items():
        other = play(again, again.reset(task_id), episode.turns)
        problem = _difference(episode, other, 0)
        if problem:
            return [(f"{task_id}, played again: {problem}", False)]
    return []


def fork(trial: Trial) -> Problems:
    """Branch at some points, come back, and compare with a task that plays the branch from the start."""
    _need_turns(trial)
    for task_id, episode in trial.episodes.items():
        problem = _alone(trial.task, task_id, episode)
        if problem:
            return [(f"{task_id}, played by the environment alone: {problem}", False)]
        others, fresh = trial.turns[_next(trial.ids, task_id)], trial.again()
        num_turns = len(episode.turns)
        for at in sorted({0, num_turns // 3, 2 * num_turns // 3, num_turns - 1} & set(range(num_turns))):
            state, num = episode.states[at], len(episode.turns) - at
            branch = play(trial.task, state, others[:num])
            if mark_of(trial.task, state) != episode.marks[at]:
                return [(f"{task_id}: playing on from turn {at} changed the state there", False)]
            rest = play(trial.task, state, episode.turns[at:])
            problem = _difference(episode, rest, at)
            if problem:
                return [(f"{task_id}: back at turn {at} after a branch, {problem}", False)]
            whole = play(fresh, fresh.reset(task_id), episode.turns[:at] + branch.turns)
            problem = _difference(whole, branch, at)
            if problem:
                return [(f"{task_id}: a branch at turn {at} against a fresh replay: {problem}", False)]
    return []


def signatures(trial: Trial) -> Problems:
    _need_turns(trial)
    texts = {text for episode in trial.episodes.values() for text in episode.texts}
    marks = {mark for episode in trial.episodes.values() for mark in episode.marks[:-1]}
    if len(texts) > 2 and len(marks) == 1:
        return [("all states of all episodes have one signature", False)]
    return []


def processes(trial: Trial) -> Problems:
    if trial.spec is None:
        raise Skip("nothing names it for another process")
    from rollwright.envs._child import ask_another_process

    told = ask_another_process(trial.spec, {i: list(e.turns) for i, e in trial.episodes.items()})
    for task_id, episode in trial.episodes.items():
        prompt, texts, marks = told[task_id]
        here = [trial.task.prompt(task_id), *episode.texts]
        for number, (mine, theirs) in enumerate(zip(here, [prompt, *texts], strict=False)):
            if mine != theirs:
                return [(f"{task_id}, text {number}: {_short(mine)} here, {_short(theirs)} there", False)]
        if marks != episode.marks:
            return [(f"{task_id}: the signatures differ although the texts do not", False)]
    return []


def end(trial: Trial) -> Problems:
    _need_turns(trial)
    over = {task_id: episode for task_id, episode in trial.episodes.items() if episode.is_over}
    if not over:
        raise Skip("no episode came to its end; try more with --num or --max-turns")
    for task_id, episode in over.items():
        last = episode.seen[-1]
        if last.terminated and last.truncated:
            return [(f"{task_id} is terminated and truncated at once; say which", False)]
        turn = (episode.turns or trial.turns[task_id])[-1]
        try:
            trial.task.step(episode.states[-1], turn)
        except EnvironmentFault:
            continue
        return [(f"{task_id} takes a step after its end; raise EnvironmentFault there", False)]
    lengths = {len(episode.turns) for episode in over.values() if episode.seen[-1].terminated}
    if len(over) >= 3 and lengths == {trial.task.max_turns} and len(over) == len(trial.episodes):
        return [
            (f"every episode ends as terminated at turn {lengths.pop()}: a limit would be truncated", True)
        ]
    return []


def new_text(trial: Trial) -> Problems:
    _need_turns(trial)
    for task_id, episode in trial.episodes.items():
        before = trial.task.prompt(task_id)
        for number, (turn, seen) in enumerate(zip(episode.turns, episode.seen, strict=True)):
            said = f"{before}{turn}" if isinstance(turn, str) else before
            old, new = "".join(said.split()), "".join(seen.text.split())
            if isinstance(turn, str) and turn.strip() and before.strip() and new.startswith(old):
                return [(f"{task_id}: observation {number} begins with what was said before it", False)]
            mark = next((mark for mark in _MARKS if mark in seen.text), None)
            if mark:
                return [(f"{task_id}: observation {number} holds {mark}, which the template writes", False)]
            before = seen.text
    return []


def tools(trial: Trial) -> Problems:
    offered = getattr(trial.task, "tools", ())
    format, is_own = getattr(trial.task, "tool_format", None), hasattr(trial.task, "signature")
    if not offered or not format or not is_own:
        raise Skip("it says no tools, tool_format and signature(state)")
    reading = {tool.name for tool in offered if tool.effect is Effect.READ}
    num_read = 0
    for task_id, episode in trial.episodes.items():
        for number, (turn, seen) in enumerate(zip(episode.turns, episode.seen, strict=True)):
            calls = parse_tool_calls(turn, format, offered) if isinstance(turn, str) else ()
            is_reading = bool(calls) and all(c.error is None and c.name in reading for c in calls)
            is_over = seen.terminated or seen.truncated  # it changes the state whatever was called
            num_read += is_reading and not is_over
            if is_reading and not is_over and episode.marks[number] != episode.marks[number + 1]:
                names = ", ".join(call.name for call in calls)
                return [(f"{task_id}: turn {number} calls only {names}, and the state changed", False)]
    if not num_read:
        raise Skip("no turn called read-only tools; the environment's sample_turn(rng) may")
    return []


def grade(trial: Trial) -> Problems:
    for task_id, episode in trial.episodes.items():
        verdict = trial.task.grade(task_id, episode.states[-1], episode.turns, not episode.is_over)
        score = verdict.score
        if score is not None and (isinstance(score, bool | str) or not math.isfinite(float(score))):
            return [(f"{task_id}: the score is {score!r}; expected a finite number or None", False)]
        again = trial.task.grade(task_id, episode.states[-1], episode.turns, not episode.is_over)
        if again != verdict:
            return [(f"{task_id}: graded twice, it got {verdict.score} and {again.score}", False)]
    return []


ALL: dict[str, Callable[[Trial], Problems]] = {
    "seeds": seeds,
    "determinism": determinism,
    "fork": fork,
    "signature": signatures,
    "processes": processes,
    "end": end,
    "new text": new_text,
    "tools": tools,
    "grade": grade,
}


def _need_turns(trial: Trial) -> None:
    if not any(episode.turns for episode in trial.episodes.values()):
        raise Skip("it has one turn, which no environment answers")


# A check that need not be asked once others do not hold.
NEEDS = {
    "determinism": ("seeds",),
    "fork": ("seeds", "determinism"),
    "signature": ("seeds", "determinism", "fork"),
    "processes": ("seeds", "determinism"),
    "tools": ("signature",),
}


def _difference(right: Episode, other: Episode, at: int) -> str | None:
    """Say where ``other``, which begins at turn ``at``, first differs from ``right``."""
    if len(right.seen) - at != len(other.seen):
        return f"it took {len(other.seen)} turns, not {len(right.seen) - at}"
    for number, (mine, theirs) in enumerate(zip(right.seen[at:], other.seen, strict=True)):
        if mine != theirs:
            return f"turn {at + number} was answered by {_short(mine.text)} and by {_short(theirs.text)}" + (
                "" if mine.text != theirs.text else ", with another reward or flag"
            )
    if right.marks[at:] != other.marks:
        number = next(
            k for k, pair in enumerate(zip(right.marks[at:], other.marks, strict=True)) if len(set(pair)) > 1
        )
        return f"the signatures before turn {at + number} differ although the texts do not"
    return None


def _alone(task: Any, task_id: str, episode: Episode) -> str | None:
    """Compare with the environment behind an `EnvTask`, played without keeping any state."""
    if not isinstance(task, EnvTask):
        return None
    env = task.make()
    try:
        env.reset(task.seed(task_id))
        for number, (turn, seen) in enumerate(zip(episode.turns, episode.seen, strict=True)):
            alone = answer(env, turn)
            if alone != seen:
                return f"turn {number} was answered by {_short(alone.text)}, not by {_short(seen.text)}"
    finally:
        close(env)
    return None


def _next(ids: Sequence[str], task_id: str) -> str:
    return ids[(list(ids).index(task_id) + 1) % len(ids)]


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
