"""The config of a run: one frozen dataclass, TOML in, TOML out, nothing accepted and ignored."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

import tomli_w

from rollwright import config_checks as checks
from rollwright.config_sections import (
    Deadlines,
    DraftConfig,
    FailureConfig,
    OverlapConfig,
    SamplingConfig,
    ServerConfig,
    SwarmConfig,
)
from rollwright.drive.ray.settings import CrewSettings
from rollwright.errors import ConfigError, UnknownName
from rollwright.grade.reward.settings import RewardSettings


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that a run depends on. None means: the task's own value, or switched off.

    Args:
        task: name of the task.
        method: name of the method.
        model: checkpoint to start from, or a shipped model's name; None is the task's warm start.
        reward: ``"file.py:function"`` to grade with, or several with commas between; None is the task's
            grader.
        seed: of all randomness.
        num_steps: learner steps, ≥ 1.
        num_tasks: prompts per step, ≥ 1.
        max_tokens: sampled tokens in one turn, ≥ 1; None is the task's.
        context: steps of a whole path, ≥ 1; None is the task's.
        max_turns: sampled turns in a trajectory, ≥ 1; None is the task's.
        chat: ``"auto"`` puts prompts and observations through the model's chat template, where it has one;
            ``"off"`` never does.
        chunk: tokens after which an engine reports, ≥ 0; 0 only at the end.
        lr: learning rate, > 0.
        betas: AdamW's two decay rates, each in [0, 1).
        weight_decay: AdamW's, ≥ 0.
        max_grad_norm: gradients are clipped to this norm, > 0; inf does not clip.
        num_updates: optimiser updates per batch, ≥ 1.
        micro_batch_tokens: tokens per forward pass of the learner, ≥ 1; None chooses by the device.
        eval_every: steps between evaluations on held-out tasks, ≥ 0; 0 is off.
        eval_tasks: held-out tasks in an evaluation, ≥ 1.
        eval_samples: samples per held-out task at temperature 1, ≥ 1.
        checkpoint_every: steps between checkpoints, ≥ 0; 0 is off.
        keep_checkpoints: newest checkpoints to keep, ≥ 1.
        threads: of PyTorch, ≥ 1; None is one per core (on Ray: one per reserved CPU in a rollout worker).
        device: ``"cpu"``, ``"cuda"``, ...; ``"auto"`` is the best there is.
        retries: how often a failed ask is tried again, ≥ 0.
        on_failure: what a rollout that is lost for good takes with it.
        max_age: versions that a trajectory may lag behind, ≥ 0; None is any.
        num_ahead: steps whose rollouts may run before the update that they would wait for, ≥ 0; 0 is in turn.
        max_carry: steps that an unfinished group may be carried over, ≥ 0; one that may not is waited for.
            None is any number.
        driver: who carries the run out: ``"inline"`` one thread, ``"async"`` threads that overlap, ``"ray"``
            actors on one machine or many.
        address: of a running Ray cluster, ``"auto"`` for this machine's; None starts one for the run.
        out: run folder of a new run; None is a new one under ``runs/``.
        resume: run folder to go on with; None starts a new run.
        sampling, deadlines, drafts, failures, overlap, ray, server, swarm, rewards: sections of their own.
        budget: limits by unit (`rollwright.ledger.Unit`), each ≥ 0; a unit that is not named has none.
        method_options: the method's own options.
        task_options: the task's own options.

    Raises:
        ConfigError: a value of the wrong type or out of range; the message says key, given, expected.
    """

    task: str
    method: str = "grpo"
    model: str | None = None
    reward: str | None = None
    seed: int = 0
    num_steps: int = 100
    num_tasks: int = 32
    max_tokens: int | None = None
    context: int | None = None
    max_turns: int | None = None
    chat: Literal["auto", "off"] = "auto"
    chunk: int = 64
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    num_updates: int = 1
    micro_batch_tokens: int | None = None
    eval_every: int = 0
    eval_tasks: int = 200
    eval_samples: int = 1
    checkpoint_every: int = 10
    keep_checkpoints: int = 2
    threads: int | None = None
    device: str = "auto"
    retries: int = 1
    on_failure: Literal["drop_sample", "drop_group", "stop"] = "drop_sample"
    max_age: int | None = None
    num_ahead: int = 0
    max_carry: int | None = None
    driver: Literal["inline", "async", "ray"] = "inline"
    address: str | None = None
    out: str | None = None
    resume: str | None = None
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    deadlines: Deadlines = field(default_factory=Deadlines)
    drafts: DraftConfig = field(default_factory=DraftConfig)
    failures: FailureConfig = field(default_factory=FailureConfig)
    overlap: OverlapConfig = field(default_factory=OverlapConfig)
    ray: CrewSettings = field(default_factory=CrewSettings)
    server: ServerConfig = field(default_factory=ServerConfig)
    swarm: SwarmConfig = field(default_factory=SwarmConfig)
    rewards: RewardSettings = field(default_factory=RewardSettings)
    budget: dict[str, float] = field(default_factory=dict)
    method_options: dict[str, Any] = field(default_factory=dict)
    task_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, hint in _hints(RunConfig).items():
            object.__setattr__(self, key, checks.convert(key, getattr(self, key), hint))
        checks.check(self)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


_SECTIONS: dict[str, type] = {
    "sampling": SamplingConfig,
    "deadlines": Deadlines,
    "drafts": DraftConfig,
    "failures": FailureConfig,
    "overlap": OverlapConfig,
    "ray": CrewSettings,
    "server": ServerConfig,
    "swarm": SwarmConfig,
    "rewards": RewardSettings,
}
_TABLES = (*_SECTIONS, "budget", "method_options", "task_options")


def load_config(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a config from a TOML file, overrides first.

    Args:
        path: the file; None starts from the defaults.
        overrides: values by key: ``"lr"``, ``"sampling.temperature"``, ``"budget.rollouts"``,
            ``"method_options.each"``, or the last part alone where it is a setting of one
            section (``"temperature"``). None is a flag that was not given and is passed over.

    Raises:
        ConfigError: the file cannot be read or is no TOML, a value is of the wrong type or out of
            range, or ``resume`` names no run.
        UnknownName: an unknown key, with a suggestion.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from error
    for key, value in (overrides or {}).items():
        if value is not None:
            _put(values, key, value)
    config = from_values(values)
    checks.check_resume(config)
    return config


def from_values(values: Mapping[str, Any]) -> RunConfig:
    """Return the config of plain values, as a TOML file holds them.

    Raises:
        ConfigError, UnknownName: as `load_config`.
    """
    settings = dict(values)
    for key in settings:
        if key not in _hints(RunConfig):
            section = _section_of(key)
            if section:
                raise ConfigError(f"key {key!r} belongs into the section [{section}]")
            names = [name for kind in (RunConfig, *_SECTIONS.values()) for name in _hints(kind)]
            raise UnknownName("key", key, names)
    for section, kind in _SECTIONS.items():
        given = settings.get(section, {})
        if not isinstance(given, Mapping):
            raise ConfigError(f"{section}: given {given!r}, expected a table [{section}]")
        for key in given:
            if key not in _hints(kind):
                raise UnknownName(f"key in [{section}]", key, _hints(kind))
        parts = {key: checks.convert(f"{section}.{key}", given[key], _hints(kind)[key]) for key in given}
        settings[section] = kind(**parts)
    if "task" not in settings:
        raise ConfigError("no task is given; name one as `task = ...` or on the command line")
    return RunConfig(**settings)


def _section_of(key: str) -> str | None:
    return next((section for section, kind in _SECTIONS.items() if key in _hints(kind)), None)


def _put(values: dict[str, Any], key: str, value: object) -> None:
    *parents, last = key.split(".")
    if not parents and last not in _hints(RunConfig):
        section = _section_of(last)
        parents = [section] if section else []
    place = values
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise ConfigError(f"{key}: {parent!r} is no table, so nothing can be set in it")
    place[last] = value


def parse_override(text: str) -> tuple[str, Any]:
    """Return (key, value) of ``"key=value"``; the value is read as TOML, else as a plain string.

    Example:
        >>> parse_override("sampling.top_p=0.9")
        ('sampling.top_p', 0.9)

    Raises:
        ConfigError: there is no ``=``.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {text!r}: expected key=value, for example lr=1e-4")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def dump_config(config: RunConfig) -> str:
    """Return the full config as TOML; `load_config` of it gives an equal config.

    TOML has no null: settings that are None stand as comments.
    """
    values = asdict(config)
    lines = []
    for key, value in values.items():
        if key in _TABLES:
            continue
        lines.append(f"# {key} is not set\n" if value is None else tomli_w.dumps({key: value}))
    tables = [tomli_w.dumps({key: values[key]}) for key in _TABLES]
    return "".join(lines) + "\n" + "\n".join(tables)
