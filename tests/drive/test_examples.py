"""The examples of the simulator's page and of its docstrings run as they stand."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from rollwright.lab import simulate

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


def test_the_page_s_example_runs(capsys):
    """Oracle: the page. Its code runs, and prints what it says it measures."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    shown = capsys.readouterr().out
    assert "april, seed 0: all steps done" in shown
    for word in ("steps", "throughput", "idle", "age", "tokens"):
        assert f"\n{word} " in shown


def test_docstrings_run():
    """Oracle: the docstrings' own results."""
    result = doctest.testmod(simulate)
    assert result.attempted > 0 and result.failed == 0
