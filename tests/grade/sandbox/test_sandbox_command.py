"""`rollwright sandbox`. Oracle: by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollwright.cli.main import main
from rollwright.grade.sandbox.protections import NAMES


def test_protections_and_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: every protection by name; a file's output, its input, its ending and the exit code."""
    monkeypatch.chdir(tmp_path)
    assert main(["sandbox", "--json"]) == 0
    assert tuple(json.loads(capsys.readouterr().out)) == NAMES
    Path("p.py").write_text("print(int(input()) * 2)")
    Path("in.txt").write_text("21\n")
    assert main(["sandbox", "run", "p.py", "--stdin", "in.txt", "--require", "network"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "42\n" and "done" in captured.err
    assert main(["sandbox", "run", "p.py", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ending"] == "raised"
    for words, said in (
        (["run"], "needs a file"),
        (["run", "no.py"], "cannot be read"),
        (["--require", "magic"], "magic"),
        (["run", "p.py", "--timeout", "0"], "timeout_s"),
    ):
        assert main(["sandbox", *words]) == 2
        assert said in capsys.readouterr().err
