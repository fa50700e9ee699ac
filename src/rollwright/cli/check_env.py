"""`rollwright check-env`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from rollwright.errors import ConfigError

if TYPE_CHECKING:
    from rollwright.envs.check import Report


def check_env(
    env: str,
    /,
    *,
    num: int = 4,
    max_turns: int = 12,
    seed: int = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Check that a task or environment can be trained on, branched and trusted.

    A few episodes are played, played again, branched, and played in another process. Exit code 1: some
    check failed.

    For example:

    `rollwright check-env lake`

    `rollwright check-env gymnasium:FrozenLake-v1`

    `rollwright check-env my_env.py:MyEnv`

    Args:
        env: A task, or `FILE.py:FUNCTION` that makes a task or an environment (a class will do).
        num: Instances to play.
        max_turns: Turns of each, at most.
        seed: Of the turns that are tried.
        as_json: Print JSON instead, for programs.
    """
    from rollwright.envs import check
    from rollwright.envs._child import builder

    if num < 1 or max_turns < 1:
        raise ConfigError(f"--num {num}, --max-turns {max_turns}: expected at least 1")
    report = check.check_env(builder(env), spec=env, num=num, max_turns=max_turns, seed=seed)
    if as_json:
        _print_json(report)
    else:
        _print(Console(), report)
    return 0 if report.is_right else 1


def _print_json(report: Report) -> None:
    from rollwright.store.strict import dumps

    findings = [
        {
            "check": finding.check,
            "problem": finding.problem,
            "is_note": finding.is_note,
            "skipped": finding.skipped,
        }
        for finding in report.findings
    ]
    facts = {
        "name": report.name,
        "is_right": report.is_right,
        "episodes": report.num_episodes,
        "turns": report.num_turns,
        "findings": findings,
    }
    sys.stdout.write(dumps(facts)[0] + "\n")


def _print(console: Console, report: Report) -> None:
    from rollwright.cli.report import table_of
    from rollwright.envs.check import CHECKS

    table = table_of("check", "", "what it asks, or what is wrong")
    for finding in report.findings:
        word = "look" if finding.is_note else "WRONG"
        if finding.problem is None:
            word = "ok" if finding.skipped is None else "-"
        table.add_row(finding.check, word, Text(finding.problem or finding.skipped or CHECKS[finding.check]))
    console.print(table)
    left = [name for name in CHECKS if name not in {finding.check for finding in report.findings}]
    if left:
        console.print(f"not reached: {', '.join(left)}", highlight=False)
    console.print(
        f"{report.name}: {report.num_episodes} episodes, {report.num_turns} turns; "
        + ("all is well" if report.is_right else "see what is WRONG"),
        highlight=False,
        soft_wrap=True,
    )
