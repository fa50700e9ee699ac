"""`rollwright tasks`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from rollwright.cli.docstrings import arguments, first_line
from rollwright.cli.text import number
from rollwright.store.strict import dumps
from rollwright.tasks.api import Task


def tasks(
    name: str | None = None, /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False
) -> int:
    """List the tasks, or show one with an instance and how it is solved.

    Beside the names there are `gym:DATASET` (any dataset of reasoning-gym), `jsonl:FILE.jsonl` (rows of
    your own) and `FILE.py:FUNCTION` (a task of your own); any of them goes where a task is expected.

    For example:

    `rollwright tasks`

    `rollwright tasks countdown`

    Args:
        name: A task; all names without it.
        as_json: Print JSON instead, for programs.
    """
    from rollwright.tasks.registry import load_task, task_factories

    if name is not None:
        task = load_task(name)
        if as_json:
            _print_json(_facts_of_task(task))
        else:
            _print_one(Console(), task, task_factories().get(name.partition(":")[0]))
        return 0
    factories = dict(sorted(task_factories().items()))
    if as_json:
        _print_json([_facts(key, factory) for key, factory in factories.items()])
    else:
        _print_list(Console(), factories)
    return 0


def _print_json(value: Any) -> None:
    text, _ = dumps(value)
    sys.stdout.write(text + "\n")


def _facts(name: str, factory: Callable[..., Task]) -> dict[str, Any]:
    from rollwright.tasks.registry import shipped_checkpoint, task_options

    texts = arguments(factory)
    return {
        "name": name,
        "is": first_line(factory),
        "ships_model": shipped_checkpoint(name) is not None,
        "options": {
            key: {"default": value, "text": texts.get(key, "")}
            for key, value in task_options(factory).items()
        },
    }


def _facts_of_task(task: Task) -> dict[str, Any]:
    limits = ("max_turns", "max_tokens", "context", "stop_strings", "grader_version")
    example = (task.ids("test") or task.ids("train"))[0]  # a dataset may hold nothing out
    return {
        "name": task.name,
        **{limit: getattr(task, limit) for limit in limits},
        "num_train": len(task.ids("train")),
        "num_test": len(task.ids("test")),
        "example": example,
        "prompt": task.prompt(example),
    }


def _print_list(console: Console, factories: dict[str, Callable[..., Task]]) -> None:
    from rollwright.cli.report import table_of

    table = table_of("task", "what it is", "ships a model")
    for name, factory in factories.items():
        facts = _facts(name, factory)
        table.add_row(Text(name, style="bold"), Text(facts["is"]), "yes" if facts["ships_model"] else "-")
    console.print(table)


def _print_one(console: Console, task: Task, factory: Callable[..., Task] | None) -> None:
    from rollwright.cli.report import heading, table_of

    facts = _facts_of_task(task)
    console.print(Text(task.name, style="bold"))
    if factory is not None:
        console.print(Text((inspect.getdoc(factory) or "").partition("\nArgs:")[0].rstrip()))
    console.print(
        f"\n{number(facts['num_train'])} training and {number(facts['num_test'])} held-out instances; "
        f"{task.max_turns} {'turn' if task.max_turns == 1 else 'turns'} of at most {task.max_tokens} tokens, "
        f"{task.context} in all",
        soft_wrap=True,
        highlight=False,
    )
    options = _facts(task.name, factory)["options"] if factory is not None else {}
    if options:
        heading(console, "Options of its factory")
        table = table_of("option", "default", "what it is")
        for option, facts in options.items():
            table.add_row(option, str(facts["default"]), Text(facts["text"]))
        console.print(table)
    _print_example(console, task)


def _print_example(console: Console, task: Task) -> None:
    from rollwright.cli.report import heading
    from rollwright.rng import generator

    task_id = (task.ids("test") or task.ids("train"))[0]
    heading(console, f"An instance: {task_id}")
    text = Text(task.prompt(task_id), style="dim")
    episode = task.demonstrate(task_id, generator(0, "example"), 0.0)
    for place, part in enumerate(episode):
        text.append(part, style="dim" if place % 2 else "not dim bold")
    console.print(Panel(text, title="dim: what the model reads; bold: a solver's answer", title_align="left"))
