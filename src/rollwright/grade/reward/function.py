"""A reward function of the user as a grader: called in its own convention, never trusted."""

from __future__ import annotations

import atexit
import importlib.util
import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollwright.errors import ConfigError
from rollwright.grade.pool import Outcome, Pool
from rollwright.grade.reward.answers import Answer
from rollwright.grade.reward.conventions import Call, Convention, convention_of, is_async, is_listed, run
from rollwright.grade.reward.job import Source
from rollwright.grade.reward.load import load_function
from rollwright.grade.reward.settings import RewardSettings
from rollwright.grade.verdict import Status, Verdict

RewardFunction = Callable[..., Any]
_GRACE_S = 1.0  # a coroutine's own timer comes before its worker's


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward function with its name; calling it gives a verdict and never raises what the function does.

    Its convention is read from its parameters' names (`rollwright.grade.reward.conventions`).

    Args:
        name: for verdicts and metrics.
        function: sync or async.
        settings: where it runs, and for how long.
        source: how a fresh process gets it, or None: then it runs in a thread of this process.

    In a process, a call that overruns its time, exits, or takes its process down costs nothing but its own
    verdict; the function's module is loaded once in each worker, so global state is each worker's own. In a
    thread, a call that overruns is given up but runs on, and a crash of the interpreter ends the run.

    Raises:
        ConfigError: its parameters fit no convention, or it must run in a process and cannot.
    """

    name: str
    function: RewardFunction
    settings: RewardSettings = field(default_factory=RewardSettings)
    source: Source | None = None
    convention: Convention = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "convention", convention_of(self.name, self.function))
        source = self.source
        if self.settings.isolation == "thread":
            source = None
        elif source is None:
            source = _pickled(self.function)
            if source is None and self.settings.isolation == "process":
                raise ConfigError(
                    f"reward {self.name} cannot be imported by another process (it is defined in a function"
                    " or in the main program, or holds what cannot be pickled); put it into a file and"
                    " name it as 'file.py:function', or use isolation = 'thread'"
                )
        object.__setattr__(self, "source", source)

    @property
    def weight(self) -> float:
        """Factor of its score in a sum of several."""
        return self.settings.weights.get(self.name, 1.0)

    def __call__(self, prompt: str, completion: str, row: Mapping[str, Any] | None = None) -> Verdict:
        """Return the function's verdict on one completion; see `many`."""
        return self.many([Call(prompt, (completion,), row or {})])[0]

    def many(self, calls: Sequence[Call]) -> list[Verdict]:
        """Return a verdict for each call, in order.

        A function that takes lists gets all calls at once; where that fails, each alone, so that one bad
        completion costs only its own verdict. One that raises, exits, crashes, overruns its time, or returns
        NaN, an infinity or anything but a number gives ``grader_error``; None gives ``not_scored``.
        """
        if not calls:
            return []
        together = is_listed(self.convention) or is_async(self.function)
        answers = self._answers([calls] if together else [[call] for call in calls])
        if together and len(calls) > 1:
            failed = [place for place, answer in enumerate(answers) if answer.error]
            again = self._answers([[calls[place]] for place in failed])
            for place, answer in zip(failed, again, strict=True):
                answers[place] = answer
        return [self._verdict(answer) for answer in answers]

    def _answers(self, jobs: Sequence[Sequence[Call]]) -> list[Answer]:
        if self.source is None:
            return [answer for job in jobs for answer in self._in_thread(job)]
        limit_s = self.settings.timeout_s
        more = (limit_s, self.settings.conversational or None)
        arguments = [(self.source, tuple(sys.path), self.convention, list(job), *more) for job in jobs]
        timeout_s = limit_s + _GRACE_S if is_async(self.function) else limit_s
        pool = _pool(self.settings.workers, self.settings.memory_mb)
        outcomes = pool.map("rollwright.grade.reward.job:call", arguments, timeout_s)
        pairs = zip(jobs, outcomes, strict=True)
        return [answer for job, outcome in pairs for answer in self._of(outcome, len(job))]

    def _of(self, outcome: Outcome, num: int) -> list[Answer]:
        if outcome.kind == "done":
            return list(outcome.value)
        what = {
            "timeout": f"gave no answer within {self.settings.timeout_s:g} s; its process was ended",
            "memory": f"went over {self.settings.memory_mb} MiB",
            "died": f"took its process down ({outcome.detail})",
        }.get(outcome.kind, outcome.detail)
        return [Answer(None, what)] * num

    def _in_thread(self, calls: Sequence[Call]) -> list[Answer]:
        answers: list[Answer] = []

        def work() -> None:
            limit_s, talk = self.settings.timeout_s, self.settings.conversational or None
            answers.extend(run(self.function, self.convention, calls, limit_s, talk))

        # A daemon: a function that hangs for ever must not keep the process from ending.
        thread = threading.Thread(target=work, name=f"reward-{self.name}", daemon=True)
        thread.start()
        thread.join(self.settings.timeout_s + (_GRACE_S if is_async(self.function) else 0))
        if answers:
            return answers
        late = f"gave no answer within {self.settings.timeout_s:g} s; its thread was given up and may run on"
        return [Answer(None, late)] * len(calls)

    def _verdict(self, answer: Answer) -> Verdict:
        place = "thread" if self.source is None else "process"
        settings = {"convention": self.convention, "isolation": place}
        about: dict[str, Any] = {
            "extracted": answer.extracted,
            "grader": f"reward:{self.name}",
            "settings": settings,
        }
        if answer.error:
            return Verdict(None, Status.GRADER_ERROR, detail=f"reward {self.name} {answer.error}", **about)
        further = {f"{self.name}/{key}": value for key, value in answer.rewards.items()}
        if answer.score is None:
            detail = answer.detail or f"reward {self.name} returned None"
            return Verdict(None, Status.NOT_SCORED, detail=detail, rewards=further, **about)
        status = Status.RIGHT if answer.score >= 1 else Status.WRONG
        return Verdict(
            answer.score, status, detail=answer.detail, rewards={self.name: answer.score, **further}, **about
        )


def load_reward(spec: str | RewardFunction | Reward, settings: RewardSettings | None = None) -> Reward:
    """Return the reward function that ``"file.py:function"`` names, or wrap a function.

    Raises:
        ConfigError, UnknownName: it cannot be loaded, or fits no convention.
    """
    settings = settings or RewardSettings()
    if isinstance(spec, Reward):
        return spec
    if isinstance(spec, str):
        file, _, name = spec.rpartition(":")
        function = load_function(spec)
        return Reward(name, function, settings, ("file", f"{Path(file).resolve()}:{name}"))
    return Reward(getattr(spec, "__name__", type(spec).__name__), spec, settings)


def load_rewards(specs: str, settings: RewardSettings | None = None) -> list[Reward]:
    """Return the reward functions that a config names: one or several, with commas between them.

    Raises:
        ConfigError, UnknownName: one cannot be loaded, two have one name, or a weight names none of them.
    """
    rewards = [load_reward(spec.strip(), settings) for spec in specs.split(",")]
    names = [reward.name for reward in rewards]
    if len(set(names)) < len(names):
        raise ConfigError(f"rewards: given {', '.join(names)}; expected names that differ")
    for name in settings.weights if settings else ():
        if name not in names:
            raise ConfigError(f"rewards.weights.{name}: no such reward function (given: {', '.join(names)})")
    return rewards


def _pickled(function: RewardFunction) -> Source | None:
    """Return the function as another process can have it, or None."""
    module = getattr(function, "__module__", None) or type(function).__module__
    try:
        if module == "__main__" or importlib.util.find_spec(module) is None:
            return None
        data = pickle.dumps(function)
        return None if b"__main__" in data else ("pickle", data)
    except Exception:  # what cannot be pickled says so in many ways
        return None


_pools: dict[tuple[int, int], Pool] = {}
_lock = threading.Lock()


def _pool(workers: int, memory_mb: int) -> Pool:
    """Return this process's workers for reward functions; they stay warm until the process ends."""
    with _lock:
        pool = _pools.get((workers, memory_mb))
        if pool is None:
            warm_up = ("rollwright.grade.reward.job:ready",)
            pool = _pools[workers, memory_mb] = Pool(workers or None, memory_mb, warm_up=warm_up)
            atexit.register(pool.close)
        return pool
