"""Every key of a run's config as a flag, with the help text from its docstring."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypedDict, get_type_hints

from cyclopts import Group, Parameter

from rollwright.cli.docstrings import arguments
from rollwright.config import RunConfig, parse_override
from rollwright.ledger import Unit

_GROUPS = {
    "What is trained": ("method", "model", "reward", "rewards", "seed"),
    "How long": ("num_steps", "num_tasks", "budget"),
    "Rollouts": (
        "sampling",
        "max_tokens",
        "context",
        "max_turns",
        "chat",
        "chunk",
        "max_age",
        "method_options",
        "task_options",
    ),
    "Learning": (*("lr", "betas", "weight_decay", "max_grad_norm", "num_updates", "micro_batch_tokens"),),
    "Evaluation and checkpoints": (
        *("eval_every", "eval_tasks", "eval_samples", "checkpoint_every", "keep_checkpoints"),
    ),
    "Machine and failures": ("threads", "device", "drafts", "retries", "on_failure", "deadlines", "failures"),
    "Where it runs": ("driver", "num_ahead", "max_carry", "overlap", "address", "ray", "server", "swarm"),
    "Run folder": ("out", "resume"),
}
_OPTIONS = {
    "method_options": "an option of the method, such as `--method-options.each 8`; "
    "`rollwright methods NAME` lists them",
    "task_options": "an option of the task, such as `--task-options.max-tokens 64`; "
    "`rollwright tasks NAME` lists them",
}
_UNITS = {
    Unit.SAMPLED: "tokens sampled by the policy",
    Unit.PREFILLED: "tokens of prompts and observations read",
    Unit.SCORED: "tokens scored by a model",
    Unit.ROLLOUTS: "rollouts started",
    Unit.GRADER_CALLS: "verdicts of the grader",
    Unit.ENV_STEPS: "turns given to an environment",
    Unit.LEARNER_TOKENS: "tokens the learner trained on",
    Unit.SECONDS: "seconds of the run",
}


def group_of(key: str) -> Group:
    """Return the help group of a config key. Keys that are new in the config go to the last one."""
    titles = list(_GROUPS)
    title = next((title for title in titles if key in _GROUPS[title]), titles[-1])
    return Group(title, sort_key=titles.index(title) + 1)


def _parameter(text: str, default: Any, key: str) -> Parameter:
    if isinstance(default, tuple):
        default = " ".join(map(str, default))
    text = text.rstrip(".") + (f" [default: {default}]" if default is not None else "")
    return Parameter(help=text, show_default=False, negative="", group=group_of(key))


def _table(name: str, fields: Mapping[str, Any]) -> Any:
    """Return a TypedDict of these fields, of which any may be missing."""
    make: Any = TypedDict
    return make(name, fields, total=False)


def _section(kind: Any, key: str) -> Any:
    texts, hints = arguments(kind), get_type_hints(kind)
    fields = {
        field.name: Annotated[hints[field.name], _parameter(texts.get(field.name, ""), _default(field), key)]
        for field in dataclasses.fields(kind)
    }
    return _table(kind.__name__, fields)


def _default(field: dataclasses.Field[Any]) -> Any:
    return None if field.default is dataclasses.MISSING else field.default


def _flags() -> Any:
    texts, hints, fields = arguments(RunConfig), get_type_hints(RunConfig), {}
    for field in dataclasses.fields(RunConfig):
        name, hint = field.name, hints[field.name]
        parameter = _parameter(texts.get(name, ""), _default(field), name)
        if name == "task":
            continue
        if name == "budget":
            units = {
                unit.value: Annotated[float, _parameter(f"end the run after so many {text}", None, name)]
                for unit, text in _UNITS.items()
            }
            hint = _table("Budget", units)
        elif name in _OPTIONS:
            hint = dict[str, str]
            parameter = Parameter(
                help=_OPTIONS[name],
                negative="",
                group=group_of(name),
            )
        elif dataclasses.is_dataclass(hint):
            hint = _section(hint, name)
        fields[name] = Annotated[hint, parameter]
    return _table("Flags", fields)


Flags: Any = _flags()


def overrides(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given flags as `rollwright.config.load_config` takes them: values by dotted key.

    A method's options are read as TOML, else as plain strings: ``8`` is a number, ``mean`` a string.
    """
    return dict(_overrides(flags))


def _overrides(flags: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in flags.items():
        if key in _OPTIONS:
            for name, text in value.items():
                yield parse_override(f"{key}.{name.replace('-', '_')}={text}")
        elif isinstance(value, Mapping):
            yield from ((f"{key}.{name}", item) for name, item in value.items())
        else:
            yield key, value
