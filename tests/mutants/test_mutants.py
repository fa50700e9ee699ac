"""Each mutant of the list is killed by its tests: what the suite claims to catch, it catches."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("room", ["core", "torch"])
def test_mutants_are_killed(room):
    """Oracle: the list's own. A mutation that no longer applies is an error, not a pass."""
    command = [sys.executable, str(ROOT / "tools" / "mutants.py"), "--room", room]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "killed" in found.stdout


def test_a_stale_mutation_is_an_error(tmp_path, monkeypatch):
    """The runner says how often the old text occurs."""
    sys.path.insert(0, str(ROOT / "tools"))
    import mutants

    sys.path.remove(str(ROOT / "tools"))
    stale = {"file": "ledger.py", "old": "no such text", "new": "", "name": "stale", "tests": []}
    assert mutants.mutate(stale, tmp_path / "a") == "the old text occurs 0 times in ledger.py, not once"
    gone = {**stale, "file": "gone.py"}
    assert mutants.mutate(gone, tmp_path / "b") == "gone.py does not exist"
