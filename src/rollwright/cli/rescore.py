"""`rollwright rescore`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console


def rescore(run: Path, /, *, reward: str, out: Path) -> int:
    """Score saved rollouts again, into a new dump; show what would have changed.

    For example:

    `rollwright rescore runs/demo --reward reward.py:reward --out rescored.jsonl`

    Args:
        run: A run folder, a shard or an imported dump; it is left as it is.
        reward: `file.py:function`, several with commas, as for `rollwright train`.
        out: The dump to write, `.jsonl`.
    """
    from rollwright.check.rescore import rescore as score_again
    from rollwright.check.run import context_of
    from rollwright.check.source import open_source
    from rollwright.cli.report import table_of
    from rollwright.grade.reward import load_rewards

    source = open_source(run)
    done = score_again(source, load_rewards(reward), out, context_of(source))
    console = Console()
    if done.changed:
        table = table_of("rollout", ">before", ">after", "status")
        for leaf, before, after, status in done.changed[:20]:
            table.add_row(leaf, _number(before), _number(after), status)
        console.print(table)
    more = f" (the first 20 are shown; all are in {out})" if len(done.changed) > 20 else ""
    groups = f"{done.num_groups_changed} of {done.num_groups} groups would have had other advantages"
    if done.num_groups_changed is None:
        groups = f"whether advantages would be others cannot be told: missing {done.why_unknown}"
    text = f"{out}: {len(done.changed)} of {done.num} rewards changed{more}; {groups}"
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
