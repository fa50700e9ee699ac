"""How reward functions of other frameworks are called, and what their answers mean.

- ``plain``, known by a parameter ``completion``: called with ``prompt``, ``completion`` and the row's
  fields; returns a number.
- ``trl``, known by ``completions``, ``completion_ids`` or ``prompts``: called with lists, one value for each
  completion; returns a list.
- ``verl``, known by ``solution_str``: called with ``data_source``, ``solution_str``, ``ground_truth`` and
  ``extra_info``; returns a number, or a dict with "score".
- ``verl_batch``, known by ``solution_strs``: called with lists of the four; returns a list.

Any of them may be ``async``. A function without ``**`` gets only what it names. None is not scored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rollwright.errors import ConfigError
from rollwright.grade.reward.answers import Answer, Log, raised, read, read_list

Convention = Literal["plain", "trl", "verl", "verl_batch"]
_MARKS: dict[str, Convention] = {
    "completion": "plain",
    "completions": "trl",
    "solution_str": "verl",
    "solution_strs": "verl_batch",
    "completion_ids": "trl",
    "prompts": "trl",
}
_LISTED = ("trl", "verl_batch")


@dataclass(frozen=True, slots=True)
class Call:
    """One completion to score.

    Args:
        prompt: the first turn's prompt.
        turns: the texts of the sampled turns.
        row: the fields of the task's row.
        task: the task's name.
        ids: the sampled tokens of all turns, or None where nobody knows them.
        version: the newest version of the policy that sampled any of them, likewise.
    """

    prompt: str
    turns: tuple[str, ...]
    row: Mapping[str, Any] = field(default_factory=dict)
    task: str = ""
    ids: tuple[int, ...] | None = None
    version: int | None = None

    @property
    def completion(self) -> str:
        return "".join(self.turns)


class TrainerState:
    """What is known of TRL's trainer state: ``global_step``, the policy's version; nothing else is there."""

    def __init__(self, global_step: int) -> None:
        self.global_step = global_step

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"trainer_state.{name} is not known here; only trainer_state.global_step is")


def convention_of(name: str, function: Callable[..., Any]) -> Convention:
    """Return the convention that a function's parameters name.

    Raises:
        ConfigError: none of them.
    """
    names = parameters(function)
    for mark, convention in _MARKS.items():
        if mark in names:
            return convention
    raise ConfigError(
        f"reward {name}: its parameters are ({', '.join(names)}); it needs 'completion' (returns a number),"
        " 'completions' (TRL's form: returns a list) or 'solution_str' (verl's form)"
    )


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters.

    Raises:
        ConfigError: it has no signature that can be read.
    """
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{function!r} has no signature to read; wrap it in a function of its own"
        ) from error


def is_listed(convention: Convention) -> bool:
    """Whether one call of the function scores many completions."""
    return convention in _LISTED


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (an object with an async __call__)
    )


def run(
    function: Callable[..., Any],
    convention: Convention,
    calls: Sequence[Call],
    limit_s: float | None = None,
    conversational: bool | None = None,
) -> list[Answer]:
    """Call a reward function and read what it says; the answers stand in the order of the calls.

    Args:
        function: the user's.
        convention: how to call it.
        calls: what to score.
        limit_s: seconds that a coroutine may take; nothing here stops a function that is not one.
        conversational: give TRL's functions messages; None does where the row's prompt is messages.

    Nothing that the function does is raised, ``SystemExit`` included: it is the answer's error.
    """
    if not calls:
        return []
    log = Log()
    if is_listed(convention):
        values = _values(function, [_listed(function, convention, calls, conversational, log)], limit_s)
        return read_list(values[0], len(calls), log)
    values = _values(function, [_single(function, convention, call) for call in calls], limit_s)
    return [value if isinstance(value, Answer) else read(value) for value in values]


# ---------------------------------------------------------------- calling


def _values(function: Callable[..., Any], arguments: list[Any], limit_s: float | None) -> list[Any]:
    """Return what the function returns for each set of arguments; an `Answer` where it failed."""
    if not is_async(function):
        return [one if isinstance(one, Answer) else _called(function, one) for one in arguments]
    import asyncio  # only where a function needs it

    async def awaited(one: Any) -> Any:
        if isinstance(one, Answer):
            return one
        try:
            async with asyncio.timeout(limit_s):
                return await function(**one)
        except TimeoutError as error:
            late = f"gave no answer within {limit_s:g} s" if limit_s and not str(error) else ""
            return Answer(None, late or raised(error))
        except BaseException as error:  # one that cancels or exits must not take the others with it
            return Answer(None, raised(error))

    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*map(awaited, arguments)))

    return asyncio.run(all_of_them())


def _called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        value = function(**arguments)
        return _awaited(value) if inspect.isawaitable(value) else value
    except BaseException as error:  # sys.exit() in a reward function must not end the run
        return Answer(None, raised(error))


def _awaited(value: Any) -> Any:
    """Return what a plain function's awaitable gives: it may wrap a coroutine function."""
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _single(function: Callable[..., Any], convention: Convention, call: Call) -> Any:
    """Return the arguments for one completion, or an `Answer` that says why there are none."""
    if convention == "plain":
        given = {**call.row, "prompt": call.prompt, "completion": call.completion}
        return _accepted(function, given)
    try:
        return _accepted(function, dict(zip(_VERL, _verl(call), strict=True)))
    except _Missing as error:
        return Answer(None, str(error))


def _listed(
    function: Callable[..., Any],
    convention: Convention,
    calls: Sequence[Call],
    conversational: bool | None,
    log: Log,
) -> Any:
    """Return the arguments for all completions at once."""
    if convention == "verl_batch":
        try:
            columns = zip(*map(_verl, calls), strict=True)
        except _Missing as error:
            return Answer(None, str(error))
        return _accepted(function, dict(zip(_VERL_BATCH, map(list, columns), strict=True)))
    keys = dict.fromkeys(key for call in calls for key in call.row)
    given: dict[str, Any] = {key: [call.row.get(key) for call in calls] for key in keys}
    for key in ("prompt", "completion", "completion_ids"):
        given.pop(key, None)
    as_messages = [_is_messages(call) if conversational is None else conversational for call in calls]
    given["prompts"] = [_prompt(c) if m else c.prompt for c, m in zip(calls, as_messages, strict=True)]
    given["completions"] = [_said(c) if m else c.completion for c, m in zip(calls, as_messages, strict=True)]
    if all(call.ids is not None for call in calls):
        given["completion_ids"] = [list(call.ids or ()) for call in calls]
    versions = [call.version for call in calls if call.version is not None]
    if versions:
        given["trainer_state"] = TrainerState(max(versions))
    given["log_metric"], given["log_extra"] = log.metric, log.extra
    return _accepted(function, given)


_VERL = ("data_source", "solution_str", "ground_truth", "extra_info")
_VERL_BATCH = ("data_sources", "solution_strs", "ground_truths", "extra_infos")


class _Missing(Exception):
    """The row lacks what the convention needs."""


def _verl(call: Call) -> tuple[str, str, Any, dict[str, Any]]:
    row = call.row
    model = row.get("reward_model")
    places = [(model, "ground_truth")] if isinstance(model, Mapping) else []
    places += [(row, "ground_truth"), (row, "answer")]
    for place, key in places:
        if key in place:
            known = {"num_turns": len(call.turns), "rollout_reward_scores": {}}
            extra = {**(row.get("extra_info") or {}), **known}
            return str(row.get("data_source", call.task)), call.completion, place[key], extra
    raise _Missing(
        "needs a ground truth: the row has neither reward_model.ground_truth nor ground_truth nor answer"
        f" (given: {', '.join(row) or 'no row'})"
    )


def _is_messages(call: Call) -> bool:
    prompt = call.row.get("prompt")
    return isinstance(prompt, Sequence) and not isinstance(prompt, str)


def _prompt(call: Call) -> Any:
    return call.row["prompt"] if _is_messages(call) else [{"role": "user", "content": call.prompt}]


def _said(call: Call) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": turn} for turn in call.turns or ("",)]


def _accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    taken = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in taken):
        return dict(given)
    return {p.name: given[p.name] for p in taken if p.name in given}
