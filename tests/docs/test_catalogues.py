"""The tables of published systems name files and tests that exist, each row with a known status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "docs").glob("catalogue-*.md"))
STATUSES = {"faithful", "partial", "missing"}


def rows(path: Path) -> list[list[str]]:
    lines = [line for line in path.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_the_table_names_what_exists(path: Path) -> None:
    """Oracle: the files themselves. Kills: a row that outlives what it names, or claims without a test."""
    found = rows(path)
    assert len(found) > 10
    numbers = [row[0] for row in found]
    assert len(set(numbers)) == len(numbers)
    for number, _, status, here, missing, tests in found:
        assert status in STATUSES, number
        for file in re.findall(r"`((?:\w+/)+[\w.]*)`", here + missing):
            assert (ROOT / "src/rollwright" / file).exists(), f"row {number}: {file}"
        named = re.findall(r"[\w/]+\.py", tests)
        assert (named == []) == (status == "missing"), f"row {number} is {status} and names {named}"
        for file in named:
            assert (ROOT / "tests" / file).is_file(), f"row {number}: {file}"
