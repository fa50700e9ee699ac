"""Checks of config values: type, range, and settings that need one another."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from rollwright.errors import ConfigError, UnknownName
from rollwright.ledger import Unit
from rollwright.runner.settings import FailureKind
from rollwright.store.layout import CHECKPOINTS, CONFIG, JOURNAL

if TYPE_CHECKING:
    from rollwright.config import RunConfig
    from rollwright.config_sections import FailureConfig, SwarmConfig

_WORDS = {float: "a number", int: "a whole number", str: "a string", bool: "true or false"}


def convert(key: str, value: object, hint: Any) -> Any:
    """Return ``value`` as the type of its key: a whole number may stand for a number, nothing else.

    Raises:
        ConfigError: it is of another type.
    """
    if get_origin(hint) is dict and get_args(hint)[1] is Any:
        return _options(value, key)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        if get_origin(hint) is dict and isinstance(value, Mapping):
            for name, item in value.items():
                convert(f"{key}.{name}", item, get_args(hint)[1])
        given = f"{value!r} ({type(value).__name__})"
        raise ConfigError(f"{key}: given {given}, expected {_expected(hint)}") from None


def _expected(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {len(get_args(hint))} numbers"
    if get_origin(hint) is dict or dataclasses.is_dataclass(hint):
        return "a table"
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    return " or ".join(_WORDS.get(kind, str(kind)) for kind in kinds)


def convert_options(what: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as the types that ``function`` names for its parameters.

    A parameter without a type, or a table of anything, takes what it is given.

    Raises:
        ConfigError: an option is of another type.
    """
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):  # a name known to type checkers only, or no function at all
        hints = {}
    converted = dict(options)
    for name in options:
        if name in hints and get_origin(hints[name]) is not dict:
            try:
                converted[name] = convert(f"option {name} of {what}", options[name], hints[name])
            except TypeError:  # a type that is checked by nobody, such as a callable's
                continue
    return converted


def _options(value: object, key: str) -> Any:
    """Return a method's options as TOML holds them: tuples become lists."""
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _options(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, (list, tuple)) and "." in key:
        return [_options(item, f"{key}[{place}]") for place, item in enumerate(value)]
    if type(value) in (bool, int, float, str) and "." in key:
        return value
    expected = "a string, number, true/false, list or table of such" if "." in key else "a table"
    hint = "; leave the key out instead" if value is None else ""
    raise ConfigError(f"{key}: given {value!r} ({type(value).__name__}), expected {expected}{hint}")


Rule = tuple[str, Callable[[Any], bool], str]


def _at_least(low: int, *keys: str) -> list[Rule]:
    return [(key, lambda value: value >= low, f"{low} or more") for key in keys]


def _more_than_zero(*keys: str) -> list[Rule]:
    return [(key, lambda value: value > 0, "a number > 0") for key in keys]


def _share(value: float) -> bool:
    return 0 <= value <= 1


_RULES: list[Rule] = [
    *_at_least(1, "num_steps", "num_tasks", "max_tokens", "context", "max_turns", "num_updates"),
    *_at_least(1, "micro_batch_tokens", "threads"),
    *_at_least(0, "chunk", "weight_decay", "eval_every", "checkpoint_every", "retries", "max_age"),
    *_at_least(0, "sampling.top_k"),
    (
        "sampling.temperature",
        lambda value: value > 0,
        "a number > 0: greedy sampling has nothing to train on",
    ),
    *_more_than_zero("lr", "max_grad_norm", "deadlines.rollouts_s", "deadlines.learner_s"),
    *_more_than_zero("deadlines.grader_s", "deadlines.environment_s", "deadlines.engine_s"),
    *_at_least(0, "num_ahead", "max_carry", "failures.backoff_s", "failures.quarantine_after"),
    *_at_least(1, "failures.min_group", "failures.quarantine_visits"),
    *_at_least(1, "overlap.graders", "overlap.environments", "drafts.tokens"),
    ("betas", lambda betas: all(0 <= beta < 1 for beta in betas), "two numbers in [0, 1)"),
    ("sampling.top_p", lambda value: 0 < value <= 1, "a number in (0, 1]"),
    ("sampling.min_p", _share, "a number in [0, 1]"),
    *_at_least(0, "ray.workers", "ray.worker_cpus", "ray.worker_gpus", "ray.grader_cpus"),
    *_at_least(0, "ray.learner_cpus", "ray.learner_gpus"),
    *_at_least(1, "ray.graders", "ray.worker_asks", "ray.grader_asks", "ray.losses"),
    *_more_than_zero("ray.start_s", "ray.setup_s"),
    *_at_least(0, "swarm.every_s"),
    ("task", bool, "a task's name"),
    ("method", bool, "a method's name"),
]
# Settings of a feature are checked only while the feature is on.
_FEATURES: dict[str, list[Rule]] = {
    "eval_every": _at_least(1, "eval_tasks", "eval_samples"),
    "checkpoint_every": _at_least(1, "keep_checkpoints"),
}


def check(config: RunConfig) -> None:
    """Check ranges, units and settings that need one another.

    Raises:
        ConfigError: key, given, expected.
        UnknownName: an unknown unit in the budget.
    """
    rules = [*_RULES]
    for switch, of_feature in _FEATURES.items():
        if getattr(config, switch):
            rules += of_feature
    for key, is_right, expected in rules:
        value: Any = config
        for name in key.split("."):
            value = getattr(value, name)
        if value is not None and not is_right(value):
            raise ConfigError(f"{key}: given {value!r}, expected {expected}")
    known = [unit.value for unit in Unit]
    for unit, amount in config.budget.items():
        if unit not in known:
            raise UnknownName("unit in [budget]", unit, known)
        if not amount >= 0:
            raise ConfigError(f"budget.{unit}: given {amount!r}, expected a number ≥ 0")
    _check_kinds(config.failures)
    _check_swarm(config.swarm)
    if config.reward is None and config.rewards != type(config.rewards)():
        raise ConfigError("[rewards] given without reward; name the reward function, or leave it out")
    if config.driver != "async" and config.overlap != type(config.overlap)():
        raise ConfigError(
            f"[overlap] given with driver = {config.driver!r}; expected driver = 'async', or leave it out"
        )
    if config.driver != "ray":
        given = {"address": config.address is not None, "[ray]": config.ray != type(config.ray)()}
        if names := [name for name, is_given in given.items() if is_given]:
            raise ConfigError(
                f"{' and '.join(names)} given with driver = {config.driver!r}; expected driver = 'ray', or "
                "leave them out"
            )
    elsewhere = "driver = 'ray'" if config.driver == "ray" else "server.url" if config.server.url else ""
    if not config.drafts.kind and config.drafts.tokens != type(config.drafts)().tokens:
        raise ConfigError("drafts.tokens given without drafts.kind; name the drafter, or leave it out")
    if config.drafts.kind and elsewhere:
        raise ConfigError(f"drafts.kind given with {elsewhere}; expected an engine in this process")
    if config.driver == "ray" and config.server.url:
        raise ConfigError("server.url given with driver = 'ray'; expected one of the two")
    if not config.server.url and config.server != type(config.server)():
        raise ConfigError("[server] given without server.url; give its address, or leave it out")
    if config.resume is not None and not config.checkpoint_every:
        raise ConfigError(
            "resume needs checkpoints: given resume with checkpoint_every = 0; set checkpoint_every to 1 or "
            "more, or leave resume out to start a new run"
        )


def _check_swarm(swarm: SwarmConfig) -> None:
    if bool(swarm.folder) != bool(swarm.node):
        missing = "folder" if swarm.node else "node"
        raise ConfigError(f"swarm: given without swarm.{missing}; expected folder and node, or neither")
    if swarm.node and not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", swarm.node):
        raise ConfigError(f"swarm.node: given {swarm.node!r}, expected letters, digits, '-', '_' and '.'")


def _check_kinds(failures: FailureConfig) -> None:
    kinds = get_args(FailureKind)
    for name in ("retries", "on_failure"):
        for kind in getattr(failures, name):
            if kind not in kinds:
                raise UnknownName(f"kind of failure in [failures.{name}]", kind, kinds)
    for kind, num in failures.retries.items():
        if num < 0:
            raise ConfigError(f"failures.retries.{kind}: given {num!r}, expected 0 or more")


def check_resume(config: RunConfig) -> None:
    """Check that ``resume`` names a run that can go on.

    Raises:
        ConfigError: no such run folder, or neither checkpoint nor journal in it.
    """
    if config.resume is None:
        return
    run = Path(config.resume)
    if not (run / CONFIG).is_file():
        raise ConfigError(f"resume: given {config.resume!r}, which is no run folder (it has no {CONFIG})")
    if not (run / JOURNAL).is_file() and not any((run / CHECKPOINTS).glob("step-*")):
        raise ConfigError(
            f"resume needs a checkpoint: {config.resume!r} has none and no journal, so nothing was done "
            "in it yet; start a new run"
        )
