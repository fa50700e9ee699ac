"""`rollwright import` and `rollwright export`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console


def import_(format_: str, file: Path, out: Path, /) -> int:
    """Make a dump of another framework one of ours; say what that format cannot hold.

    Formats: verl, verl-data, trl, openrlhf (prompts), slime, verifiers, verifiers-v1 (prime-rl too),
    prime-rl-tokens, atropos, atropos-sft, skyrl, tau-bench, swe-agent, openai-chat, sharegpt, areal, roll,
    nemo-rl, tinker.

    For example:

    `rollwright import verl rollouts/12.jsonl verl-12.jsonl`

    Args:
        format_: The format's name.
        file: The dump.
        out: The file to write, `.jsonl`; one that is there is left as it is.
    """
    from rollwright.interop.formats import import_dump

    done = import_dump(format_, file, out)
    console = Console()
    console.print(f"{out}: {done.num_rollouts} rollouts in {done.num_groups} groups", highlight=False)
    for note, num in done.notes.items():
        console.print(f"  {num} x {note}", highlight=False, markup=False, soft_wrap=True)
    for column, why in done.lacks.items():
        console.print(
            f"  {format_} cannot hold {column}: {why}", highlight=False, markup=False, soft_wrap=True
        )
    return 0


def export(run: Path, /, *, to: str, out: Path) -> int:
    """Write a run's rollouts for another tool; say what its format cannot hold.

    For example:

    `rollwright export runs/demo --to trl --out completions.parquet`

    Args:
        run: A run folder, a shard or an imported dump.
        to: trl (Parquet), verl (JSON lines), openai-chat (JSON lines), or jsonl: ours, in one file.
        out: The file to write; one that is there is left as it is.
    """
    from rollwright.check.source import open_source
    from rollwright.interop.export import LOST, export_dump

    num, notes = export_dump(open_source(run), to, out)
    console = Console()
    console.print(f"{out}: {num} rollouts", highlight=False)
    for note, times in notes.items():
        console.print(f"  {times} x {note}", highlight=False, markup=False, soft_wrap=True)
    if LOST[to]:
        console.print(f"  {to} cannot hold: {LOST[to]}", highlight=False, markup=False, soft_wrap=True)
    return 0
