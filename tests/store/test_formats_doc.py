"""docs/formats.md against the code."""

import re
from pathlib import Path

import pytest

from rollwright.ledger import Fate
from rollwright.store import journal, layout, schema

DOC = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["nodes", "trajectories"])
def test_every_column_is_documented(name):
    """Oracle: the schema; the same columns in the same order, with its types."""
    table = DOC.split(f"### {name}: one row")[1].split("###")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    fields = {"nodes": schema.NODES, "trajectories": schema.TRAJECTORIES}[name]
    assert [column for column, _ in rows] == fields.names
    words = {"list<": "list of", "map<": "map of", "double": "double", "bool": "bool", "string": "string"}
    for (_, given), field in zip(rows, fields, strict=True):
        kind = next((word for start, word in words.items() if str(field.type).startswith(start)), None)
        assert given.startswith(kind or str(field.type)), (field, given)


def test_versions_names_and_fates_are_documented():
    """Oracle: the constants."""
    assert f"## journal.jsonl, format {journal.FORMAT_VERSION}" in DOC
    assert f"## shards/, schema {schema.SCHEMA_VERSION}" in DOC
    for name in (
        layout.CONFIG,
        layout.JOURNAL,
        layout.METRICS,
        layout.SHARDS,
        layout.CHECKPOINTS,
        layout.PLOTS,
    ):
        assert f"\n  {name}" in DOC
    for fate in Fate:
        assert f"`{fate.value}`" in DOC
