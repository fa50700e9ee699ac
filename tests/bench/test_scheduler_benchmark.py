"""The schedulers' benchmark: its settings can be built, and the figures are what they say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import _scheduler_cases
import pytest
import schedulers
from _scheduler_cases import Case, cases

from rollwright.lab.simulation.setup import Scheduler, Setup

WANTED = {
    "april": (1.225, 1.44),
    "copris": (1.58, 1.94),
    "seer": (1.74, 1.97),
    "seer_tail": (0.07, 0.25),
    "areal": (2.57, 2.57),
    "roll_flash": (2.24, 2.24),
    "roll_flash_agents": (2.72, 2.72),
    "libra": (3.0, 3.0),
    "misa_t": (1.436, 1.533),
    "rollplex": (1.23, 1.30),
    "war_low": (1.4, 1.4),
    "war_high": (1.6, 1.6),
}


def test_every_paper_has_its_figure_and_a_setting_that_can_be_built() -> None:
    """Oracle: golden, from the abstracts. Kills: a figure that drifts towards what is measured, a setting
    whose weights do not fit, two cases of one name."""
    found = cases()
    assert len({case.name for case in found}) == len(found)
    assert WANTED.items() <= {case.name: (case.low, case.high) for case in found}.items()
    for case in found:
        assert len(case.schedulers) >= 2
        assert "assumed" in case.assumed or case.assumed == "the same"
        for scheduler in case.schedulers:
            scheduler.build(case.setup)


def test_a_figure_is_the_ratio_to_the_best_baseline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: hand. Of rates the largest baseline counts, of times the shortest; what is shared runs once.

    Kills: the first or the worst baseline, a run for each case, a verdict that is turned round.
    """
    values = {"a": 2.0, "b": 4.0, "c": 10.0}
    ran: list[str] = []

    def compare(setup: Setup, some: list[Scheduler]) -> list[Any]:
        ran.extend(one.name for one in some)
        rate = values[some[0].name]
        whole = SimpleNamespace(trained_per_second=rate)
        return [SimpleNamespace(tokens_per_second=rate, tail_seconds=rate, report=whole)]

    setup, some = Setup(), tuple(map(Scheduler, values))

    def case(name: str, measure: str, low: float, high: float) -> Case:
        return Case(name, "more", low, high, measure, setup, some, "nothing")

    mine = [
        case("rate", "tokens_per_second", 2.0, 3.0),
        case("time", "tail_seconds", 6.0, 7.0),
        case("whole", "report.trained_per_second", 1.0, 2.0),
    ]
    monkeypatch.setattr(schedulers, "compare", compare)
    monkeypatch.setattr(schedulers, "cases", lambda: mine)
    assert schedulers.run_cases([]) == {"ratio_rate": 2.5, "ratio_time": 5.0, "ratio_whole": 2.5}
    assert ran == ["a", "b", "c"]
    text = capsys.readouterr().out
    assert [text.count(word) for word in ("within:", "below:", "above:")] == [1, 1, 1]


def test_unknown_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: exit status 2 of argparse. Kills: a name that is taken and ignored."""
    for words in (["--only", "nothing"], ["--common", "--large"]):
        monkeypatch.setattr("sys.argv", ["schedulers.py", *words])
        with pytest.raises(SystemExit) as caught:
            schedulers.main()
        assert caught.value.code == 2


def test_all_schedulers_of_the_issue_are_known() -> None:
    """Oracle: the issue. Kills: a scheduler that is left out of the common table."""
    names = {"sync", "april", "copris", "seer", "areal", "roll_flash", "libra", "misa_t", "rollplex", "war"}
    assert names <= {one.name for one in _scheduler_cases.known(Setup(), *names)}
