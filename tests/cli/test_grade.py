"""`rollwright grade`. Oracle: by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollwright.cli.main import main


def test_a_table_and_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One line a verdict, in order; what has no score is counted apart."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"response": "so \\boxed{B}", "gold": "B"},
        {"answer": "C", "gold": "B"},
        {"response": "\n", "gold": "A"},
    ]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["grade", "a.jsonl", "--grader", "choice", "--out", "v.jsonl"]) == 0
    verdicts = [json.loads(line) for line in Path("v.jsonl").read_text().splitlines()]
    assert [(v["score"], v["status"]) for v in verdicts] == [
        (1.0, "right"),
        (0.0, "wrong"),
        (0.0, "no_answer"),
    ]
    assert "mean score 33.3% over 3 scored" in " ".join(capsys.readouterr().out.split())
    Path("m.jsonl").write_text('{"answer": 0.5, "gold": "1/2"}\n\n{"answer": "1", "gold": " "}\n')
    assert main(["grade", "m.jsonl", "--workers", "1", "--timeout", "30"]) == 0
    captured = capsys.readouterr()
    assert "mean score 100.0% over 1 scored" in " ".join(captured.out.split())
    assert "1 answers have no score" in captured.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"response": "a"}\n', "line 1: no 'gold'"),
        ('{"response": "a", "gold": "b"}\n{', "line 2 is not JSON"),
        ("[1]\n", "line 1 is a list"),
        ('{"response": ["a"], "gold": "b"}', "expected text or a number"),
        ("\n", "has no lines"),
    ],
)
def test_bad_lines_are_named(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The message names the line and what was expected; the exit code is 1."""
    (tmp_path / "bad.jsonl").write_text(text)
    assert main(["grade", str(tmp_path / "bad.jsonl")]) == 1
    assert said in capsys.readouterr().err


def test_a_missing_file(capsys: pytest.CaptureFixture) -> None:
    """A wrong command has exit code 2."""
    assert main(["grade", "nothing.jsonl"]) == 2
    assert "no file nothing.jsonl" in capsys.readouterr().err


def test_a_file_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """By hand. Broken by: reading it bare, which ended in a traceback."""
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe\n")
    assert main(["grade", str(tmp_path / "bad.jsonl")]) == 1
    assert "bad.jsonl is no UTF-8 text" in capsys.readouterr().err
