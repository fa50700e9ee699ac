"""A comparison as files: one object of JSON, a table in Parquet, one page of HTML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollwright.compare.budget import AXES
from rollwright.compare.page import page
from rollwright.compare.result import Result
from rollwright.store.strict import dumps
from rollwright.store.tail import write_atomic

REPORT, RESULT, POINTS = "report.html", "result.json", "points.parquet"


def write(result: Result, out: Path) -> tuple[Path, Path, Path]:
    """Write report.html, result.json and points.parquet into the comparison's folder.

    Raises:
        StoreError: a file cannot be written; an older one is as it was.
    """
    write_atomic(out / REPORT, page(result).encode())
    write_atomic(out / RESULT, (dumps(plain(dataclasses.asdict(result)))[0] + "\n").encode())
    write_atomic(out / POINTS, parquet(result))
    return out / REPORT, out / RESULT, out / POINTS


def plain(value: Any) -> Any:
    """Return a result's values as JSON can hold them: keys as text, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def parquet(result: Result) -> bytes:
    """Return one row for each evaluation of each run, as a Parquet file.

    Columns: label, seed, state, version, success, greedy, one for each axis, pass_at (list of k and value),
    right and scored (by task).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = pa.list_(pa.int64())
    schema = pa.schema(
        [
            *(("label", pa.string()), ("seed", pa.int64()), ("state", pa.string()), ("version", pa.int64())),
            *(("success", pa.float64()), ("greedy", pa.float64())),
            *((axis, pa.float64()) for axis in AXES),
            ("pass_at", pa.map_(pa.int64(), pa.float64())),
            *(("right", whole), ("scored", whole)),
        ]
    )
    rows = [
        {
            "label": run.label,
            "seed": run.seed,
            "state": run.state,
            "version": point.version,
            "success": point.success,
            "greedy": point.greedy,
            **point.spent,
            "pass_at": list(point.pass_at.items()),
            "right": list(point.right),
            "scored": list(point.scored),
        }
        for run in result.runs
        for point in run.points
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())
