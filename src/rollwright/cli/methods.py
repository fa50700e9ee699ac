"""`rollwright methods`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from rollwright.cli.docstrings import arguments, first_line, source
from rollwright.store.strict import dumps


def methods(
    name: str | None = None, /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False
) -> int:
    """List the methods, or describe one with its options and stages.

    A method is a published way to spend rollouts, composed of small stages. Give one to training with
    `rollwright train TASK --method NAME`, and its options with `--method-options.OPTION VALUE`.

    For example:

    `rollwright methods`

    `rollwright methods dapo`

    Args:
        name: A method's name; all of them without it.
        as_json: Print JSON instead, for programs.
    """
    from rollwright.discovery import method_factories
    from rollwright.errors import UnknownName

    factories = method_factories()
    if name is not None and name not in factories:
        raise UnknownName("method", name, factories)
    chosen = {key: factory for key, factory in sorted(factories.items()) if name in (None, key)}
    if as_json:
        text, _ = dumps([_facts(key, factory) for key, factory in chosen.items()])
        sys.stdout.write(text + "\n")
    elif name is None:
        _print_list(Console(), chosen)
    else:
        _print_one(Console(), name, chosen[name])
    return 0


def options_of(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return a factory's options with their defaults (None where it has none)."""
    parameters = inspect.signature(factory).parameters.values()
    fixed = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return {p.name: None if p.default is p.empty else p.default for p in fixed}


def options_text(options: dict[str, Any]) -> str:
    """Return options as ``each=8, clip_high=0.2``."""
    return ", ".join(f"{key}={value}" for key, value in options.items()) or "-"


def _facts(name: str, factory: Callable[..., Any]) -> dict[str, Any]:
    texts = arguments(factory)
    return {
        "name": name,
        "does": first_line(factory),
        "source": source(factory),
        "options": {
            key: {"default": value, "text": texts.get(key, "")} for key, value in options_of(factory).items()
        },
    }


def _print_list(console: Console, factories: dict[str, Callable[..., Any]]) -> None:
    from rollwright.cli.report import table_of

    table = table_of("method", "what it does, and where it is from", "options")
    for name, factory in factories.items():
        does = Text(first_line(factory))
        paper = source(factory).partition(". What differs")[0]
        if paper:
            does.append(f"\n{paper}", style="dim")
        table.add_row(Text(name, style="bold"), does, options_text(options_of(factory)))
        table.add_section()
    console.print(table)


def _print_one(console: Console, name: str, factory: Callable[..., Any]) -> None:
    from rollwright.cli.report import heading, table_of
    from rollwright.discovery import load_method

    console.print(Text(name, style="bold"))
    console.print(Text((inspect.getdoc(factory) or "").partition("\nArgs:")[0].rstrip()))
    if source(factory):
        console.print(Text(f"\n{source(factory)}", style="dim"))
    texts = arguments(factory)
    heading(console, "Options")
    table = table_of("flag", "default", "what it is")
    for option, default in options_of(factory).items():
        flag = f"--method-options.{option.replace('_', '-')}"
        table.add_row(flag, str(default), Text(texts.get(option, "")))
    console.print(table)
    heading(console, "Stages, in the order of the data")
    table = table_of("kind", "stage")
    for kind, stage in load_method(name).stages():
        table.add_row(kind, Text(repr(stage)))
    console.print(table)
