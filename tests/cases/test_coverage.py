"""The table of cases names tests that exist."""

import fnmatch
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def test_the_table_names_existing_tests():
    """Every path is a file, every name after :: matches a function in it; every row has a test."""
    rows = [line for line in (TESTS / "cases" / "COVERAGE.md").read_text().splitlines() if line[:3] != "|--"]
    rows = [line for line in rows if re.match(r"\| [A-Z]\d\d", line)]
    assert len(rows) >= 30
    for row in rows:
        named = re.findall(r"((?:[a-z_]+/)+test_[a-z_]+\.py)(?:::([a-z0-9_*]+))?", row)
        assert named, row
        for path, pattern in named:
            text = (TESTS / path).read_text()
            functions = re.findall(r"^def (test_\w+)", text, re.MULTILINE)
            assert functions, path
            if pattern:
                assert fnmatch.filter(functions, pattern), f"{path} has no test {pattern}"
