"""What a run's first page shows: curves, the ledger, and how rollouts are spread by length and age."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rollwright.config import RunConfig
from rollwright.events import AnyEvent
from rollwright.lab.process import writer
from rollwright.lab.records import Decision, decoded
from rollwright.lab.statistics import interval
from rollwright.ledger import Fate
from rollwright.store.codec import damage, decode_record
from rollwright.view.database import Database

Row = dict[str, Any]
MAX_POINTS = 500
_NUM_BINS = 40
_LAST_BYTES = 1 << 18


def state(path: Path, journal: Path, num_steps: int, wanted: int | None) -> Row:
    """Say how far a run is, from its lock and the end of its journal, without reading all of that."""
    found = writer(path)
    done = f"{num_steps} of {wanted} steps" if wanted else f"{num_steps} steps"
    if found is not None and found.state == "running":
        return {"state": "running", "text": f"running as pid {found.pid}, {done} done"}
    if found is not None:
        where = "suspended" if found.state == "suspended" else f"perhaps running on {found.host}"
        return {"state": "stopped", "text": f"{where} (pid {found.pid}), {done} done"}
    reason = finish_reason(journal)
    if reason is not None:
        return {"state": "finished", "text": f"finished: {reason} ({num_steps} steps)"}
    return {"state": "stopped", "text": f"stopped after {done}"}


def finish_reason(journal: Path) -> str | None:
    """Return why a run ended, from the last records of its journal; None where they do not say."""
    try:
        with journal.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LAST_BYTES))
            data = file.read()
    except OSError:
        return None
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    reason = None
    for line in lines[1 if size > _LAST_BYTES else 0 :]:
        if damage(line) == "" and b'"Finish"' in line:
            reason = _finish_of(decode_record(line)) or reason
    return reason


def _finish_of(record: tuple[AnyEvent, bytes]) -> str | None:
    decisions: Sequence[Decision] = decoded(record[1])
    return next((one.reason for one in decisions if one.type == "Finish"), None)


def overview(database: Database, config: RunConfig | None, steps: Sequence[Row], evals: Sequence[Row]) -> Row:
    """Return what the first page draws.

    Args:
        database: the rollouts.
        config: the run's; None where this version cannot read it.
        steps, evals: the rows of metrics by step, and of the evaluations by version.
    """
    database.need("groups")
    return {
        "config": {} if config is None else asdict(config),
        "num_rollouts": _one(database, "SELECT count(*) FROM rollouts")[0],
        "num_groups": _one(database, "SELECT count(*) FROM groups")[0],
        "success": thin(success(database), 1),
        "evaluations": list(evals),
        "metrics": names(steps),
        "ledger": ledger(config, steps),
        "lengths": lengths(database),
        "length_by_step": thin(length_by_step(database), 1),
        "ages": counts(database, "age", "WHERE age IS NOT NULL"),
        "stops": counts(database, "stop"),
        "statuses": counts(database, "status"),
        "reasons": counts(database, "reason", "WHERE reason <> ''"),
    }


def success(database: Database) -> list[list[Any]]:
    """Return (step, mean share of right rollouts over the groups, low, high) with 95% intervals."""
    rows = database.cursor().execute(
        "SELECT step, list(num_right / num_scored ORDER BY group_index) FROM groups "
        "WHERE num_scored > 0 AND kind = 'train' AND NOT replayed GROUP BY step ORDER BY step"
    )
    return [[step, sum(shares) / len(shares), *interval(shares)] for step, shares in rows.fetchall()]


def length_by_step(database: Database) -> list[list[Any]]:
    """Return (step, 10%, median, 90%, longest) of the sampled tokens."""
    rows = database.cursor().execute(
        "SELECT step, quantile_cont(num_sampled, [0.1, 0.5, 0.9]), max(num_sampled) FROM rollouts "
        "WHERE kind = 'train' AND NOT replayed GROUP BY step ORDER BY step"
    )
    return [[step, *quantiles, longest] for step, quantiles, longest in rows.fetchall()]


def lengths(database: Database) -> Row:
    """Return a histogram of the sampled tokens, the right rollouts apart from the others."""
    most = _one(database, "SELECT max(num_sampled) FROM rollouts")[0]
    if most is None:
        return {"width": 1, "bins": []}
    width = max(1, math.ceil((most + 1) / _NUM_BINS))
    rows = database.cursor().execute(
        "SELECT num_sampled // ? AS bin, count(*) FILTER (status = 'right'), "
        "count(*) FILTER (status <> 'right') FROM rollouts WHERE NOT replayed GROUP BY bin ORDER BY bin",
        [width],
    )
    return {"width": width, "bins": [[int(b) * width, right, other] for b, right, other in rows.fetchall()]}


def counts(database: Database, column: str, where: str = "") -> list[list[Any]]:
    """Return (value, number of rollouts) of a column, the most frequent first, ages in order."""
    order = column if column == "age" else "2 DESC, 1"
    rows = database.cursor().execute(
        f"SELECT {column}, count(*) FROM rollouts {where} GROUP BY {column} ORDER BY {order} LIMIT 24"
    )
    return [list(row) for row in rows.fetchall()]


def ledger(config: RunConfig | None, steps: Sequence[Row]) -> Row:
    """Return tokens by fate and by reason, and units spent and granted, as the last step reports them."""
    last = steps[-1] if steps else {}

    def named(prefix: str) -> Row:
        return {name.removeprefix(prefix): v for name, v in last.items() if name.startswith(prefix) and v}

    fates = named("fate_")
    return {
        "fates": {fate.value: fates[fate.value] for fate in Fate if fates.get(fate.value)},
        "reasons": named("reason_"),
        "spent": named("spent_"),
        "granted": {} if config is None else dict(config.budget),
        "step": last.get("step"),
    }


def names(steps: Sequence[Row]) -> list[str]:
    """Return the metrics that are numbers, in the order in which they appear."""
    found = dict.fromkeys(name for row in steps for name, value in row.items() if _is_number(value))
    return [name for name in found if name not in ("step", "kind")]


def series(steps: Sequence[Row], wanted: Sequence[str]) -> dict[str, list[list[Any]]]:
    """Return (step, value) of each metric, at most `MAX_POINTS` each: means of stretches beyond that."""
    return {
        name: thin([[row["step"], row[name]] for row in steps if _is_number(row.get(name))], 1)
        for name in wanted
    }


def thin(rows: list[list[Any]], num_keys: int) -> list[list[Any]]:
    """Return at most `MAX_POINTS` rows: the first of each stretch, its columns after the keys as means."""
    if len(rows) <= MAX_POINTS:
        return rows
    found = []
    for part in np.array_split(np.arange(len(rows)), MAX_POINTS):
        stretch = [rows[int(k)] for k in part]
        values = np.mean([row[num_keys:] for row in stretch], axis=0)
        found.append([*stretch[len(stretch) // 2][:num_keys], *(float(v) for v in values)])
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _one(database: Database, query: str) -> tuple[Any, ...]:
    return database.cursor().execute(query).fetchall()[0]
