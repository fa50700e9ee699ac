"""`rollwright compare` through the command line, with workers that only write what a run would."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

from rollwright.cli.compare_display import Display
from rollwright.cli.main import main
from rollwright.compare.run import Comparison
from rollwright.compare.sequential import SequentialTest

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Run the command in this process, with fake workers, 200 columns wide."""
    monkeypatch.setattr(Comparison, "command", FAKE)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Said:
        capsys.readouterr()
        code = main(["compare", *map(str, words)])
        return Said(code, *capsys.readouterr())

    return run


def test_a_comparison_from_start_to_more_seeds(compare, tmp_path: Path) -> None:
    """Oracle: hand, for the fake's success of 0.5 + 10·lr + noise of the seed at the budget.

    Kills: a report without a verdict, seeds added that run the old ones again, a target that is passed over.
    """
    out = tmp_path / "a"
    words = ("lake", "--methods", "grpo@lr=0.01,dapo@lr=0.02", "--budget", "10k-tokens", "--seeds", 3)
    said = compare(*words, "--points", 2, "--target", 0.6, "--out", out, "--jobs", 2, "--num-tasks", 4)
    assert said.code == 0, said.err
    assert "3 seeds at 10k tokens each (0 of 6 runs are done)" in said.out
    assert "dapo@lr=0.02 is better than grpo@lr=0.01 at 10k tokens: +10.0 points" in said.out
    assert "What 60.0% success takes (as given" in said.out and f"report: {out / 'report.html'}" in said.out
    facts = json.loads((out / "result.json").read_text())
    assert facts["plan"]["settings"] == {"num_tasks": 4} and facts["target"] == 0.6
    more = compare("--resume", out, "--seeds", 5)
    assert more.code == 0 and "5 seeds at 10k tokens each (6 of 10 runs are done)" in more.out
    assert len(list((out / "runs").glob("*/*/starts.txt"))) == 10
    assert all(path.read_text() == "x" for path in (out / "runs").glob("*/*/starts.txt"))
    same = compare(*words, "--points", 2, "--out", out, "--num-tasks", 4)
    assert same.code == 0 and "(10 of 10 runs are done)" in same.out


def test_a_run_that_fails_is_said(compare, tmp_path: Path) -> None:
    """Oracle: exit code and words. Kills: a failure that only the log knows."""
    words = ("lake", "--methods", "grpo,dapo@device=refuse", "--budget", "10k-tokens", "--seeds", 2)
    said = compare(*words, "--points", 2, "--out", tmp_path / "a")
    assert said.code == 1
    assert "dapo@device=refuse seed 0 failed: no such thing" in said.out
    assert "left out: dapo@device=refuse seed 1: no such thing" in said.out
    all_failed = compare(
        "lake",
        "--methods",
        "grpo@device=refuse",
        "--budget",
        "9-rollouts",
        "--seeds",
        1,
        "--out",
        tmp_path / "b",
    )
    assert all_failed.code == 1 and "no run of the comparison came to its end" in all_failed.err


def test_parts_left_out_in_turn(compare, tmp_path: Path) -> None:
    """Oracle: hand. Kills: an arm that is missing, the whole method that is not the baseline."""
    words = ("lake", "--budget", "10k-tokens", "--seeds", 2, "--points", 2, "--drop-one")
    said = compare(*words, "--methods", "dapo:each=4", "--out", tmp_path / "a")
    assert said.code == 0, said.err
    facts = json.loads((tmp_path / "a" / "result.json").read_text())
    labels = [arm["label"] for arm in facts["arms"]]
    assert labels[0] == "dapo:each=4" and "dapo:each=4~ZeroVariance" in labels and len(labels) == 6
    assert facts["plan"]["arms"][1]["options"] == {"each": 4, "without": "Refill"}
    assert said.out.count("the arms do the same") == 5
    for methods, match in (("grpo,dapo", "expected one"), ("grpo", "no part")):
        refused = compare(*words, "--methods", methods, "--out", tmp_path / "b")
        assert refused.code == 2 and match in refused.err


def test_what_is_refused(compare, tmp_path: Path) -> None:
    """Oracle: exit code 2 and the word that is wrong, before any folder is made.

    Kills: runs that start first.
    """
    good = {"--methods": "grpo,dapo", "--budget": "10k-tokens", "--seeds": "2", "--out": str(tmp_path / "a")}
    for change, match in (
        ({"--methods": "grpo,dpao"}, "dapo"),
        ({"--budget": "10k-apples"}, "budget"),
        ({"--seeds": "none"}, "seeds"),
        ({"--points": "0"}, "evaluations"),
        ({"--alpha": "2"}, "alpha"),
        ({"--lr": "-1"}, "lr"),
        ({"--seed": "3"}, "--seed"),
    ):
        words = [word for pair in (good | change).items() for word in pair]
        said = compare("lake", *words)
        assert said.code == 2 and match in said.err, change
    assert not (tmp_path / "a").exists()
    assert compare("--methods", "grpo").code == 2
    assert "--budget" in compare("--resume", tmp_path, "--budget", "1-rollouts").err
    assert compare("--resume", tmp_path / "nothing").code == 1


def test_the_live_table(tmp_path: Path) -> None:
    """Oracle: the table's own text, at three moments. Kills: a run that waits shown as running."""
    from compare_help import plan_of

    plan = plan_of("grpo,dapo", 2)
    comparison = Comparison(plan, tmp_path, SequentialTest())
    comparison.flying.add(("grpo", 0))
    display = Display(comparison, Console(width=120))
    display.row("grpo", 0, {"kind": "step", "spent_sampled_tokens": 40.0})
    display.row("grpo", 0, {"kind": "evaluation", "sampled_success": 0.25})
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(display.render())
    text = console.export_text()
    assert "25.0%" in text and "40% spent" in text and text.count("waits") == 3 and "1 going on" in text
    display.failed["dapo", 1] = "no"
    console.print(display.render())
    assert "failed" in console.export_text()
