"""User reward functions: loaded from a file, called in either convention, never trusted."""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rollwright.errors import ConfigError, UnknownName
from rollwright.tasks.api import Verdict

RewardFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward function with its name.

    Two conventions are read from the parameters' names:

    - ``f(prompt, completion, **row)`` returns one number, or None for not scored;
    - ``f(prompts, completions, **columns)`` (TRL) gets lists of one and returns a list of one.

    A function without ``**`` gets only the fields that it names.
    """

    name: str
    function: RewardFunction

    def __post_init__(self) -> None:
        names = _parameters(self.function)
        if not {"completion", "completions"} & set(names):
            raise ConfigError(
                f"reward {self.name}: its parameters are ({', '.join(names)}); it needs 'completion'"
                " (returns a number) or 'completions' (TRL's form: returns a list)"
            )

    def __call__(self, prompt: str, completion: str, row: Mapping[str, Any]) -> Verdict:
        """Return the function's verdict on one completion.

        A function that raises, or returns NaN, an infinity or anything but a number gives
        ``Verdict(None, "grader_error")`` with what happened; None gives ``Verdict(None, "not_scored")``.
        """
        try:
            value = self._call(prompt, completion, row)
        except Exception as error:  # a user's function may raise anything; SystemExit and the like pass
            return _failed(f"reward {self.name} raised {type(error).__name__}: {error}")
        if value is None:
            return Verdict(None, "not_scored", detail=f"reward {self.name} returned None")
        score = _as_float(value)
        if score is None:
            return _failed(f"reward {self.name} returned {value!r}, expected a finite number or None")
        return Verdict(score, "right" if score >= 1 else "wrong", rewards={self.name: score})

    def _call(self, prompt: str, completion: str, row: Mapping[str, Any]) -> Any:
        is_listed = "completions" in _parameters(self.function)
        fields: dict[str, Any] = {k: [v] if is_listed else v for k, v in row.items()}
        if is_listed:
            fields.update(prompts=[prompt], completions=[completion])
        else:
            fields.update(prompt=prompt, completion=completion)
        value = self.function(**_accepted(self.function, fields))
        if not is_listed:
            return value
        if not hasattr(value, "__len__") or len(value) != 1:
            raise ValueError(f"returned {value!r} for one completion, expected a list of one number")
        return value[0]


def _failed(detail: str) -> Verdict:
    return Verdict(None, "grader_error", detail=detail)


def _as_float(value: Any) -> float | None:
    """Return a finite float, or None where ``value`` is not one. Text is not a number."""
    if isinstance(value, str | bytes):
        return None
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return score if math.isfinite(score) else None


def _parameters(function: RewardFunction) -> list[str]:
    return list(inspect.signature(function).parameters)


def _accepted(function: RewardFunction, fields: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return fields
    return {p.name: fields[p.name] for p in parameters if p.name in fields}


def load_module(path: str | Path) -> ModuleType:
    """Run a Python file of the user as a module.

    Raises:
        ConfigError: there is no such file, or it fails while it is loaded.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no file {path}; give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"rollwright_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # user code may raise anything while it loads
        raise ConfigError(f"{path} failed while it was loaded: {type(error).__name__}: {error}") from error
    return module


def load_function(spec: str) -> Callable[..., Any]:
    """Return the function that ``"file.py:function"`` names.

    Raises:
        ConfigError: the text has another form, or the file cannot be loaded.
        UnknownName: the file has no such function, with a suggestion.
    """
    file, colon, name = spec.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"{spec!r} names no function: expected 'file.py:function'")
    module = load_module(file)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise UnknownName(f"function in {file}", name, known)
    return function


def load_reward(spec: str | RewardFunction) -> Reward:
    """Return the reward function that ``"file.py:function"`` names, or wrap a function."""
    if isinstance(spec, str):
        return Reward(spec.rpartition(":")[2], load_function(spec))
    return Reward(getattr(spec, "__name__", type(spec).__name__), spec)
