"""A method: a published system as one value that composes stages."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rollwright.errors import ConfigError, UnknownName
from rollwright.stage import Allocate, Control, Credit, Filter, Generate, Objective, Reduce, Replay, Select

# What every run records, whatever the engine.
RECORDED = frozenset({"tokens", "logprob", "length", "origin", "version", "reward", "turns"})
# What an engine may be able to give; a driver refuses a method that needs what its engine cannot.
ENGINE_CAN_GIVE = frozenset({"entropy", "kept_mass", "top", "fork"})
# The exceptions from the laws that a method or a stage may declare.
EXCEPTIONS = frozenset({"biased", "off_policy", "equal_rewards_move", "arrival", "schedule"})


@dataclass(frozen=True, slots=True)
class Method:
    """Stages that together are one way to spend rollouts.

    Args:
        name: the registered name.
        declares: exceptions from the laws that it names: ``biased`` (its expected gradient is not
            the exact policy gradient), ``off_policy`` (the first gradient is not REINFORCE's),
            ``equal_rewards_move`` (a group of equal rewards may have advantages), ``arrival`` (which
            rollouts are trained depends on which finish first; what each samples never does),
            ``schedule`` (it changes when and where rollouts are sampled and nothing else: it trains what its
            parent trains).

    Raises:
        ConfigError: a stage needs something that nothing before it gives.
        UnknownName: it declares an exception that does not exist.
    """

    name: str
    select: Select
    allocate: Allocate
    generate: Generate
    replay: Replay
    objective: Objective
    reduce: Reduce
    control: tuple[Control, ...] = ()
    filters: tuple[Filter, ...] = ()
    credit: tuple[Credit, ...] = ()
    declares: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        for exception in self.all_declared - EXCEPTIONS:
            raise UnknownName("exception from the laws", exception, EXCEPTIONS)
        given = set(RECORDED | ENGINE_CAN_GIVE)
        for kind, stage in self.stages():
            missing = set(getattr(stage, "needs", ())) - given
            if missing:
                raise ConfigError(
                    f"method {self.name!r}: {kind} {type(stage).__name__} needs {sorted(missing)}, which no"
                    f" stage before it gives (given: {sorted(given)}); add a stage that gives it"
                )
            given |= set(getattr(stage, "gives", ()))

    def stages(self) -> Iterator[tuple[str, Any]]:
        """Yield (kind, stage) in the order of the data."""
        yield "select", self.select
        yield "allocate", self.allocate
        yield "generate", self.generate
        yield from (("control", stage) for stage in self.control)
        yield from (("filter", stage) for stage in self.filters)
        yield "replay", self.replay
        yield from (("credit", stage) for stage in self.credit)
        yield "objective", self.objective
        yield "reduce", self.reduce

    @property
    def all_declared(self) -> frozenset[str]:
        """The exceptions from the laws that the method and its stages declare."""
        return self.declares.union(*(getattr(stage, "declares", ()) for _, stage in self.stages()))

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that its stages ask for and that learn."""
        return getattr(self.generate, "policies", ("policy",))

    @property
    def max_flying(self) -> int | None:
        """How many asks for tokens may fly at once; None is any number."""
        limits = [limit for stage in self.control if (limit := getattr(stage, "max_flying", None))]
        return min(limits, default=None)

    @property
    def engine_needs(self) -> frozenset[str]:
        """What the engine must be able to give for this method."""
        needs: set[str] = set()
        for _, stage in self.stages():
            needs |= set(getattr(stage, "needs", ()))
        return frozenset(needs & ENGINE_CAN_GIVE)

    def to_json(self) -> str:
        """Return the method as JSON text; `from_json` gives an equal value back."""
        return json.dumps(_encode(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Method:
        """Return the method that `to_json` wrote.

        Raises:
            ConfigError: the text names a class that does not exist or does not hold a method.
        """
        value = _decode(json.loads(text))
        if not isinstance(value, Method):
            raise ConfigError(f"method JSON: expected a method, got {type(value).__name__}")
        return value


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        fields = {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": f"{cls.__module__}:{cls.__qualname__}", **fields}
    if isinstance(value, tuple):
        return {"tuple": [_encode(v) for v in value]}
    if isinstance(value, frozenset):
        return {"frozenset": sorted(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(
        f"a stage holds {value!r} of type {type(value).__name__}; expected plain values, tuples and stages"
    )


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(_decode(v) for v in value["tuple"])
    if "frozenset" in value:
        return frozenset(value["frozenset"])
    fields = {k: _decode(v) for k, v in value.items() if k != "class"}
    module, _, name = value["class"].partition(":")
    try:
        stage = getattr(importlib.import_module(module), name)
        if not (isinstance(stage, type) and dataclasses.is_dataclass(stage)):
            raise TypeError("it is no dataclass, and JSON may build nothing else")
        return stage(**fields)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"method JSON names {value['class']!r}, which cannot be built: {error}") from error
