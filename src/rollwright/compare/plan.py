"""What is compared: arms, budget, seeds, and the settings that all runs share."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from rollwright.compare.budget import Budget
from rollwright.config import RunConfig, load_config, parse_override
from rollwright.errors import ConfigError, StoreError
from rollwright.store.tail import write_atomic

PLAN = "compare.toml"
RUNS = "runs"
DONE = "compared.json"  # in the folder of a run that came to its end
# The comparison sets these itself, so nobody else may.
TAKEN = frozenset({"task", "method", "seed", "budget", "out", "resume", "eval_every", "method_options"})
_STEPS = 1_000_000  # the budget ends a run, not the number of steps


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison.

    Args:
        label: what it is called.
        method: the method's name.
        options: of the method.
        settings: settings of the run that differ from the shared ones, by dotted key.
    """

    label: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The label as the name of a folder."""
        return re.sub(r"[^\w.=~-]+", "_", self.label)


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison, complete: whoever has it can make the same runs.

    Args:
        task: the task.
        arms: at least one; the others are compared with the first.
        budget: of every run.
        seeds: of the pairs: runs with one seed share noise, prompts and held-out tasks.
        num_points: evaluations along the budget, beside the first.
        settings: of all runs, by dotted key of the run's config.

    Raises:
        ConfigError: no arm, two of one label, a seed twice, or a setting that the comparison sets itself.
    """

    task: str
    arms: tuple[Arm, ...]
    budget: Budget
    seeds: tuple[int, ...]
    num_points: int = 8
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        slugs = [arm.slug for arm in self.arms]
        if not slugs or len(set(slugs)) < len(slugs):
            raise ConfigError(f"compare: methods {slugs}; expected at least one, each with a name of its own")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"compare: seeds {list(self.seeds)}; expected at least one, each once")
        if self.num_points < 1:
            raise ConfigError(f"compare: {self.num_points} evaluations; expected at least 1")
        for name, settings in (
            ("all runs", self.settings),
            *((arm.label, arm.settings) for arm in self.arms),
        ):
            if taken := sorted(key for key in settings if key.split(".")[0] in TAKEN):
                raise ConfigError(f"compare: {taken} given for {name}; the comparison sets that itself")

    def config(self, arm: Arm, seed: int) -> RunConfig:
        """Return the config of one run."""
        shared = {"num_steps": _STEPS, "threads": 1, "eval_samples": 2}
        values = {**shared, **self.settings, **arm.settings}
        for name, value in arm.options.items():
            values[f"method_options.{name}"] = value
        return load_config(
            None,
            {
                **values,
                "task": self.task,
                "method": arm.method,
                "seed": seed,
                "eval_every": _STEPS,
                f"budget.{self.budget.unit}": self.budget.amount,
            },
        )

    def folder(self, out: Path, arm: Arm, seed: int) -> Path:
        """Return the run folder of one run."""
        return out / RUNS / arm.slug / f"seed-{seed}"

    def points(self) -> list[float]:
        """Return the amounts after which runs are measured."""
        return [self.budget.amount * (k + 1) / self.num_points for k in range(self.num_points)]


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Return the arms of ``a,b,...``.

    Each is a method's name, ``:option=value`` for options of the method, ``@key=value`` for settings of the
    run: ``grpo:each=16,dapo@lr=1e-4``.

    Raises:
        ConfigError: an arm without a name, or an option without a value.
    """
    return tuple(parse_arm(part.strip()) for part in text.split(",") if part.strip())


def parse_arm(text: str) -> Arm:
    """Return the arm of one text; see `parse_arms`."""
    name, *parts = re.split(r"(?=[:@])", text)
    found: dict[str, dict[str, Any]] = {":": {}, "@": {}}
    if not name:
        raise ConfigError(f"method {text!r}; expected a name first, such as grpo:each=16")
    for part in parts:
        key, value = parse_override(part[1:])
        key = key.replace("-", "_")
        found[part[0]][key] = value
    return Arm(text, name, found[":"], found["@"])


def check(plan: Plan) -> None:
    """Check every arm before anything runs: names, options, settings, the task and the model.

    Raises:
        ConfigError, ModelError, DataError: what a run would raise.
    """
    from rollwright.training.parts import model_path, plan_of

    for arm in plan.arms:
        config = plan.config(arm, plan.seeds[0])
        plan_of(config)
        model_path(config)


def save(plan: Plan, out: Path) -> None:
    """Write the plan into the comparison's folder."""
    values = {**dataclasses.asdict(plan), "seeds": list(plan.seeds)}
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / PLAN, tomli_w.dumps(values).encode())


def load(out: Path) -> Plan:
    """Read the plan of a comparison's folder.

    Raises:
        StoreError: there is none, or it does not hold one.
    """
    path = out / PLAN
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        arms = tuple(Arm(**arm) for arm in values.pop("arms"))
        return Plan(
            arms=arms, budget=Budget(**values.pop("budget")), seeds=tuple(values.pop("seeds")), **values
        )
    except FileNotFoundError:
        raise StoreError(f"{out} is no comparison: it has no {PLAN}") from None
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise StoreError(f"{path} does not hold a comparison: {error}") from error


def extend(old: Plan, new: Plan) -> Plan:
    """Return the plan with which a comparison goes on: more seeds or more methods, all else as it was.

    Raises:
        ConfigError: something else differs, so runs of both would not be comparable.
    """
    arms = {arm.label: arm for arm in old.arms}
    for arm in new.arms:
        if arms.setdefault(arm.label, arm) != arm:
            raise ConfigError(f"compare: {arm.label!r} was started with {arms[arm.label]}, now it is {arm}")
    seeds = tuple(dict.fromkeys((*old.seeds, *new.seeds)))
    grown = dataclasses.replace(old, arms=tuple(arms.values()), seeds=seeds)
    wanted = dataclasses.replace(new, arms=grown.arms, seeds=seeds)
    if grown != wanted:
        names = [
            f.name for f in dataclasses.fields(Plan) if getattr(grown, f.name) != getattr(wanted, f.name)
        ]
        raise ConfigError(
            f"compare: {', '.join(names)} differ from what this comparison was started with; only seeds and "
            "methods can be added: give the same, or another --out"
        )
    return grown


def ablate(arm: Arm, names: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arm and, for each part, the arm without it (the method's option ``without``)."""
    if "without" in arm.options:
        raise ConfigError(
            f"compare: {arm.label!r} is without {arm.options['without']} already; give it whole"
        )
    less = [
        dataclasses.replace(arm, label=f"{arm.label}~{name}", options={**arm.options, "without": name})
        for name in names
    ]
    return (arm, *less)


def as_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of ``5`` (0 to 4) or ``3,7,11``; ``7,`` is the seed 7 alone.

    Raises:
        ConfigError: neither.
    """
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or ("," not in text and numbers[0] < 1):
        raise ConfigError(f"seeds {text!r}; expected how many, or the seeds themselves with commas between")
    return tuple(numbers) if "," in text else tuple(range(numbers[0]))
