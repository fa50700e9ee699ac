"""Find tasks by file, by entry point, or in a file of the user; there is no central list to edit.

``tasks/<name>.py`` exports one factory ``<name>(**options) -> Task``. Third parties use the entry-point
group ``rollwright.tasks``. What follows a colon is the factory's first argument: ``gym:leg_counting``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import rollwright.tasks
from rollwright.config_checks import convert_options
from rollwright.engine.shipped import CHECKPOINTS
from rollwright.errors import ConfigError, UnknownName
from rollwright.grade.reward import load_function
from rollwright.tasks.api import Task
from rollwright.tasks.rewarded import with_rewards

Factory = Callable[..., Task]
_NOT_TASKS = frozenset({"api", "registry", "rewarded", "tokenizer", "warmstart"})


def task_factories() -> dict[str, Factory]:
    """Return every task's factory by name.

    Raises:
        ConfigError: two places give the same name, or a file lacks its factory.
    """
    found: dict[str, Factory] = {}
    for info in pkgutil.iter_modules(rollwright.tasks.__path__):
        if info.name.startswith("_") or info.name in _NOT_TASKS:
            continue
        factory = getattr(importlib.import_module(f"rollwright.tasks.{info.name}"), info.name, None)
        if factory is None:
            raise ConfigError(f"tasks/{info.name}.py has no factory {info.name}(); add one of that name")
        found[info.name] = factory
    for entry in entry_points(group="rollwright.tasks"):
        if entry.name in found:
            raise ConfigError(
                f"the task name {entry.name!r} is given twice, the second time by {entry.value}"
            )
        found[entry.name] = entry.load()
    return found


def load_task(spec: str, **options: Any) -> Task:
    """Build a task.

    Args:
        spec: a name (``countdown``), a name with its argument (``gym:leg_counting``,
            ``jsonl:data/rows.jsonl``), or a factory in a file of one's own (``my_task.py:factory``).
        options: options of the task's factory; ``reward`` (``"file.py:function"``, a function, or
            several) replaces the grader of any task.

    Raises:
        UnknownName: no such task or option, with a suggestion.
        ConfigError: an option is of the wrong type or has a value that the task refuses.
        DataError: a row of the user's dataset is not what it must be.
    """
    factories = task_factories()
    name, colon, argument = spec.partition(":")
    if spec.rpartition(":")[0].endswith(".py"):
        factory: Factory = load_function(spec)
        arguments: list[str] = []
    elif name in factories:
        factory, arguments = factories[name], [argument] if colon else []
    else:
        raise UnknownName("task", name, factories)
    reward = options.get("reward")
    if "reward" not in _parameters(factory):
        options.pop("reward", None)
    _check_arguments(spec, factory, arguments, options)
    task = factory(*arguments, **convert_options(f"task {spec}", factory, options))
    if reward is None or "reward" in _parameters(factory):
        return task
    return with_rewards(task, reward)


def task_options(factory: Factory) -> Mapping[str, Any]:
    """Return a factory's options and their defaults, for help texts and for refusing unknown keys."""
    return {name: p.default for name, p in _parameters(factory).items() if p.kind is p.KEYWORD_ONLY}


def shipped_checkpoint(task_name: str) -> Path | None:
    """Return the folder of the warm-started model that ships with a task, or None."""
    folder = CHECKPOINTS / task_name
    return folder if (folder / "config.json").exists() else None


def _parameters(factory: Factory) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(factory).parameters


def _check_arguments(spec: str, factory: Factory, arguments: list[str], options: Mapping[str, Any]) -> None:
    parameters = _parameters(factory)
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(arguments) < len([p for p in positional if p.default is p.empty]):
        raise ConfigError(f"task {spec!r} needs an argument: write {spec}:<{positional[0].name}>")
    if len(arguments) > len(positional):
        raise ConfigError(f"task {spec!r}: nothing may follow the colon")
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for option in options:
            if option not in parameters:
                raise UnknownName(f"option of task {spec}", option, parameters)
