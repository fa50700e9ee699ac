"""Runs as a comparison reads them, and what it makes of several: by hand, on folders written by the tests."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pytest
from compare_help import evaluation_row, plan_of, rising, step_row, write_run

from rollwright.compare.export import POINTS, REPORT, RESULT, write
from rollwright.compare.reading import area, at_amount, read_points, read_run
from rollwright.compare.result import Result, outcome, read_runs, result_of
from rollwright.compare.sequential import SequentialTest
from rollwright.errors import DataError

TEST = SequentialTest()


def test_points_of_the_plan() -> None:
    """Oracle: hand.

    Kills: an evaluation made by a resume that becomes a point, time of measuring that counts.
    """
    rows = [
        evaluation_row(0, [1, 1], evaluation_s=3.0),
        step_row(0, 30, spent_seconds=10.0),
        evaluation_row(1, [4, 4]),  # no point is crossed: somebody stopped the run here and went on
        step_row(1, 60, spent_seconds=20.0),
        evaluation_row(2, [2, 4], evaluation_s=5.0),
        step_row(2, 120, spent_seconds=40.0),
        evaluation_row(3, [3, 3]),
    ]
    found = read_points(rows, "sampled_tokens", [50, 100], is_done=True)
    assert [point.version for point in found] == [0, 2, 3]
    assert [point.spent["sampled_tokens"] for point in found] == [0, 60, 120]
    assert [point.spent["seconds"] for point in found] == [0, 17, 32]
    assert [point.success for point in found] == [0.25, 0.75, 0.75]
    assert found[1].pass_at == pytest.approx({1: 0.75, 2: (5 / 6 + 1) / 2, 4: 1.0})
    unfinished = read_points(rows[:3], "sampled_tokens", [50, 100], is_done=False)
    assert [point.version for point in unfinished] == [0]
    nothing = evaluation_row(1, [1, 1])
    nothing["sampled_success"] = None
    assert len(read_points([rows[0], step_row(0, 60), nothing], "sampled_tokens", [50], True)) == 1


def test_success_at_an_amount() -> None:
    """Oracle: hand. Kills: the last evaluation taken for the budget's, an area that is not divided."""
    points = read_points(rising(0, 4), "sampled_tokens", [50, 100], is_done=True)
    assert at_amount(points, "sampled_tokens", 60) == 0.5
    assert at_amount(points, "sampled_tokens", 100) == pytest.approx(0.5 + 0.5 * 40 / 50)
    assert at_amount(points, "sampled_tokens", 500) == 1.0 and at_amount(points, "rollouts", 11) == 1.0
    assert at_amount(points, "sampled_tokens", 60, k=4) == 1.0
    assert area(points, "sampled_tokens", 110) == pytest.approx((60 * 0.25 + 50 * 0.75) / 110)
    assert area(points, "sampled_tokens", 60) == pytest.approx(0.25)
    with pytest.raises(DataError, match="pass@3"):
        at_amount(points, "sampled_tokens", 10, k=3)
    with pytest.raises(DataError, match="0 evaluations"):
        at_amount([], "sampled_tokens", 10)


def test_states_of_runs(tmp_path: Path) -> None:
    """Oracle: hand. Kills: a run that was killed counted as done, a folder without a run."""
    plan = plan_of()
    done = write_run(plan, tmp_path, 0, 0, rising(1, 3))
    write_run(plan, tmp_path, 1, 0, rising(1, 3)[:3], done=False)
    runs = read_runs(plan, tmp_path)
    assert [run.state for run in runs] == ["done", "missing", "missing", "unfinished", "missing", "missing"]
    assert (runs[0].num_updates, runs[0].spent["rollouts"], runs[0].fates["trained"]) == (2, 11, 110)
    assert runs[0].path == done and runs[1].points == ()
    few = write_run(plan, tmp_path, 1, 1, rising(1, 3)[:3])  # 60 of 100 tokens: the last step was made, say
    short = read_run(few, "dapo", 1, "sampled_tokens", plan.points())
    assert short.state == "short" and "before its budget was spent" in short.reason
    assert outcome(plan, short) is None
    (done / "metrics.jsonl").unlink()
    assert read_run(done, "grpo", 0, "sampled_tokens", [50]).points == ()


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """Three seeds: GRPO reaches 50% never, DAPO at the end; one run of DAPO failed. Labels hold markup."""
    plan = plan_of("grpo,dapo:each=4", 4)
    for seed in range(4):
        write_run(plan, tmp_path, 0, seed, rising(1, 1, 8 + seed))
        if seed < 3:
            write_run(plan, tmp_path, 1, seed, rising(1, 3, 8 + seed))
    failed = {("dapo:each=4", 3): "out of <b>memory</b> & gone"}
    return result_of(plan, read_runs(plan, tmp_path), TEST, 0.5, failed)


def test_a_result_by_hand(result: Result) -> None:
    """Oracle: hand. Kills: censored runs left out, a failed run taken as zero, unpaired differences."""
    grpo, dapo = result.arms
    assert (grpo.num_done, dapo.num_done) == (4, 3) and dapo.failed == {3: "out of <b>memory</b> & gone"}
    assert grpo.final.mean == 0.25 and dapo.final.mean == pytest.approx(0.5 + 0.25 * 40 / 50)
    assert dapo.to_target["sampled_tokens"].median == 60 and dapo.to_target["rollouts"].median == 6
    assert (
        grpo.to_target["sampled_tokens"].median is None and grpo.to_target["sampled_tokens"].num_reached == 0
    )
    assert grpo.to_target["sampled_tokens"].horizon == 100 and grpo.to_target["rollouts"].horizon == 11
    assert dapo.ratio == pytest.approx((0.6, 0.6, 0.6)) and grpo.ratio is None
    assert {(curve.axis, curve.k) for curve in dapo.curves} == {
        (axis, k) for axis in ("sampled_tokens", "rollouts", "learner_tokens", "seconds") for k in (1, 2, 4)
    }
    curve = next(curve for curve in dapo.curves if (curve.axis, curve.k) == ("sampled_tokens", 1))
    assert curve.amounts[-1] == 110 and curve.bands[-1].mean == 0.75 and curve.bands[0].mean == 0.25
    assert grpo.fates["trained"].mean == 1.0 and grpo.spent["learner_tokens"] == 220 and grpo.updates == 2
    (one,) = result.contrasts
    assert one.seeds == (0, 1, 2) and one.differences == pytest.approx([0.45] * 3) and one.is_found
    assert not result.is_target_chosen


def test_a_target_is_chosen(tmp_path: Path) -> None:
    """Oracle: hand: halfway from the start to the best end. Kills: the worst arm's end."""
    plan = plan_of("grpo,dapo", 1)
    write_run(plan, tmp_path, 0, 0, rising(1, 1))
    write_run(plan, tmp_path, 1, 0, rising(1, 3))
    found = result_of(plan, read_runs(plan, tmp_path), TEST)
    assert found.is_target_chosen and found.target == pytest.approx((0.25 + 0.7) / 2)
    empty = result_of(plan, read_runs(plan, tmp_path / "nothing"), TEST)
    assert empty.target is None and empty.arms[0].final is None and empty.arms[0].curves == ()


class Page(HTMLParser):
    """Notes tags, addresses, and text outside of styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in ("href", "src", "srcset", "action")
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def test_the_page_is_whole_and_asks_for_nothing(result: Result, tmp_path: Path) -> None:
    """Oracle: an HTML parser. Kills: an outside asset, text that is not escaped, a tag left open."""
    paths = write(result, tmp_path / "runs")
    text = paths[0].read_text()
    page = Page(text)
    assert page.open == [] and page.addresses == []
    assert not {"script", "link", "img", "iframe", "b"} & set(page.tags)
    for word in ("http", "url(", "@import"):
        assert word not in text
    assert "out of <b>memory</b> & gone" in page.text
    assert result.contrasts[0].sentence in page.text
    for word in (">100", "What 50.0% success takes", "pass@4 against rollouts", "left out", "0 of 4"):
        assert word in page.text, word
    assert page.tags.count("svg") == 4 * 3 + 1


def test_the_page_of_nothing(tmp_path: Path) -> None:
    """Oracle: it is there. Kills: a division by no runs."""
    plan = plan_of("grpo,dapo", 2)
    tmp_path.joinpath("x").mkdir()
    paths = write(result_of(plan, read_runs(plan, tmp_path), TEST), tmp_path / "x")
    assert "it has not begun" in Page(paths[0].read_text()).text


def test_the_files_agree(result: Result, tmp_path: Path) -> None:
    """Oracle: the result itself, read back through JSON and DuckDB. Kills: a column that is another's."""
    out = tmp_path / "out"
    out.mkdir()
    assert [path.name for path in write(result, out)] == [REPORT, RESULT, POINTS]
    facts = json.loads((out / RESULT).read_text())
    assert facts["contrasts"][0]["differences"] == list(result.contrasts[0].differences)
    assert facts["plan"]["arms"][1]["options"] == {"each": 4}
    assert facts["arms"][0]["to_target"]["rollouts"]["median"] is None
    rows = duckdb.sql(
        'select label, seed, version, sampled_tokens, success, pass_at[2], "right"[1] '
        f"from '{out / POINTS}' order by label, seed, version"
    ).fetchall()
    assert len(rows) == 7 * 3
    assert rows[2] == ("dapo:each=4", 0, 2, 110.0, 0.75, 1.0, 3)
