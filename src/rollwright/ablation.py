"""A method without one of its parts: what is left is what plain GRPO does there."""

from __future__ import annotations

import dataclasses
from typing import Any

from rollwright.errors import ConfigError, UnknownName
from rollwright.method import Method

_MANY = ("control", "filters", "credit")
_ONE = ("select", "allocate", "generate", "replay", "objective", "reduce")


def parts(method: Method) -> list[str]:
    """Return the names of the parts in which a method differs from plain GRPO, in the order of the data.

    A part is named by its class. Members of a list (controls, filters, credits) are parts one by one.
    """
    plain = _plain(method)
    found = []
    for kind in (
        "select",
        "allocate",
        "generate",
        "control",
        "filters",
        "replay",
        "credit",
        "objective",
        "reduce",
    ):
        value = getattr(method, kind)
        stages = value if kind in _MANY else (value,)
        others = getattr(plain, kind) if kind in _MANY else (getattr(plain, kind),)
        found += [type(stage).__name__ for stage in stages if stage not in others]
    return list(dict.fromkeys(found))


def without(method: Method, name: str) -> Method:
    """Return the method without one part.

    A control or a filter is left out; the last credit and every other stage become those of plain GRPO with
    as many rollouts for a prompt.

    Args:
        name: one of `parts`; several, joined by ``+``, are all left out.

    Raises:
        UnknownName: it has no such part, with a suggestion.
        ConfigError: the rest does not work without it.
    """
    for one in name.split("+"):
        method = _without(method, one)
    return method


def _without(method: Method, name: str) -> Method:
    known = parts(method)
    if name not in known:
        raise UnknownName(f"part of method {method.name}", name, known)
    plain = _plain(method)
    changes: dict[str, Any] = {}
    for kind in _MANY:
        rest = tuple(stage for stage in getattr(method, kind) if type(stage).__name__ != name)
        if rest != getattr(method, kind):
            changes[kind] = rest or getattr(plain, kind)
    for kind in _ONE:
        if type(getattr(method, kind)).__name__ == name:
            changes[kind] = getattr(plain, kind)
    try:
        return dataclasses.replace(method, name=f"{method.name}~{name}", **changes)
    except ConfigError as error:
        raise ConfigError(f"method {method.name} does not work without {name}: {error}") from error


def _plain(method: Method) -> Method:
    from rollwright.methods.grpo import grpo

    stages = (method.allocate, method.generate)
    nums = (getattr(stage, "each", None) for stage in stages)
    each = next((num for num in nums if isinstance(num, int)), None)
    return grpo() if each is None else grpo(each=each)
