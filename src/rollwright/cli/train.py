"""`rollwright train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Unpack

from cyclopts import Parameter
from rich.console import Console

from rollwright.cli import launch
from rollwright.cli.flags import Flags, group_of, overrides
from rollwright.config import load_config
from rollwright.errors import ConfigError

_RESUME = ("resume", "num_steps", "address")


def train(
    task: str | None = None,
    /,
    *,
    config: Annotated[Path | None, Parameter(group=group_of("out"))] = None,
    **flags: Unpack[Flags],  # type: ignore[misc]
) -> int:
    """Train a policy on TASK, and record every token of it in a run folder.

    Settings come from the defaults, then `--config`, then the flags; the run folder keeps them all.
    Ctrl-C stops cleanly and says how to go on; twice stops at once. Either way nothing that was
    acknowledged is lost.

    For example:

    `rollwright train lake --num-steps 30 --seed 1`

    `rollwright train countdown --method dapo --budget.sampled-tokens 2e6 --eval-every 20`

    `rollwright train --resume runs/first --num-steps 200`

    Args:
        task: A task's name (`rollwright tasks` lists them).
        config: A TOML file with settings; flags override it.
    """
    given = overrides(flags)
    console = Console()
    if "resume" in given:
        path = _checked_resume(task, config, given)
        return launch.resume(path, given.get("num_steps"), console, given.get("address"))
    cfg = load_config(config, {"task": task, **given})
    if cfg.resume is not None:
        raise ConfigError(
            f"resume stands in {config}: a run that goes on has its own config. Use `rollwright train "
            f"--resume {cfg.resume}`, or take resume out to start a new run"
        )
    return launch.start(cfg, console)[0]


def _checked_resume(task: str | None, config: Path | None, given: dict[str, Any]) -> Path:
    """Refuse what cannot change when a run goes on, instead of passing it over."""
    names = [f"--{key.replace('_', '-')}" for key in given if key not in _RESUME]
    refused = [*([task] if task else []), *(["--config"] if config else []), *names]
    if refused:
        raise ConfigError(
            f"--resume goes on with the run as it was started. Given with it: {', '.join(refused)}; expected "
            "at most --num-steps and --address. Leave the others out, or start a new run"
        )
    return Path(given["resume"])
