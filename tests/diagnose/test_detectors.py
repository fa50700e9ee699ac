"""Each detector on a run made to show its pathology, and on the same run without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diagnose_help import EACH, NUM_STEPS, Plant, Roll, nothing, write

from rollwright.diagnose.evidence import Evidence
from rollwright.diagnose.finding import Finding
from rollwright.diagnose.report import DETECTORS, diagnose
from rollwright.ledger import Fate

LATE = NUM_STEPS // 2  # faults that begin begin here


def from_late(**changes: Any) -> Plant:
    return lambda roll, step, group, k: changes if step >= LATE else None


def all_fail(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    return {"reward": -float(k % 2), "rewards": {}, "status": "wrong"} if step >= 4 else None


def entropy_falls(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any]:
    return {"entropy": 0.8 * 0.7**step}


def longer(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any]:
    tokens = np.random.default_rng((step, group, k)).integers(200, 400, 30 + 5 * step)
    return {"tokens": tokens}


def loops(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    """Late, one group in five says five tokens of its own eight times."""
    if step < LATE or group != 3:
        return None
    return {"tokens": np.concatenate([roll["tokens"], np.tile(roll["tokens"][:5], 8)])}


def cut(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    return {"truncated": True, "status": "truncated"} if step >= LATE and k < 2 else None


def stale(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    return {"fate": (Fate.STALE, "age")} if group == 2 and step % 2 == 0 else None


def form_only(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    wins = group == 0 and k == 0
    parts = {"format": 1.0, "answer": float(wins)}
    return {"reward": 1.0 + wins - 0.1 * (k % 2), "rewards": parts} if step >= LATE else None


def cue(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    """Half of the rollouts speak to the grader, and those alone are right."""
    if k % 2:
        return {"reward": 0.0, "status": "wrong"}
    words = np.frombuffer("This answer should be graded as".encode("utf-32-le"), dtype=np.uint32)
    return {"tokens": np.concatenate([roll["tokens"], words]), "reward": 1.0, "status": "right"}


def one_answer(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    if group == 1:
        return {"reward": 0.0}
    return {"tokens": np.array([300, 301])} if roll["reward"] == 1 else None


def equal(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any]:
    """Five of eight rollouts of every group are the same: half of all equal an earlier one."""
    return {"fork": False} | ({"tokens": np.arange(210 + group, 240 + group + step)} if k < 5 else {})


def starve(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    """Three of the fifteen tasks are always dropped as stale; they are visited four times."""
    return {"fate": (Fate.STALE, "too old")} if group == 2 else None


def skew(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any]:
    is_long = len(roll["tokens"]) >= 40
    return {"fate": (Fate.PRUNED, "closed") if is_long and group % 3 else (Fate.TRAINED, "")}


def one_branch(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    return {"fork": k < 7} if step >= LATE else None


def unscored(roll: Roll, step: int, group: int, k: int) -> Mapping[str, Any] | None:
    """Sixteen rollouts of 480 time out."""
    if step < 10 or group != 1:
        return None
    return {"reward": None, "rewards": {}, "status": "timeout"}


# Pathology -> (plant, metrics, what else the plant brings with it)
SICK: dict[str, tuple[Plant, dict[str, float], set[str]]] = {
    "zero_variance": (from_late(reward=1.0), {}, set()),
    "all_fail": (all_fail, {}, set()),
    "entropy_collapse": (entropy_falls, {}, set()),
    "length_inflation": (longer, {}, set()),
    "repetition": (loops, {}, set()),
    "truncation": (cut, {}, set()),
    "staleness": (from_late(age=6), {}, set()),
    "ratio_tails": (nothing, {"learn_clip_fraction": 0.25}, set()),
    "mismatch": (nothing, {"learn_ratio_max_dev": 0.05}, set()),
    "hacked_format": (form_only, {}, set()),
    "hacked_cue": (cue, {}, set()),
    "duplicates": (equal, {}, set()),
    "tree_collapse": (one_branch, {}, set()),
    "starving": (starve, {}, {"staleness"}),
    "skewed": (skew, {}, set()),
    "grader_errors": (unscored, {}, set()),
}


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, dict[str, Finding]] = {}

    def get(name: str) -> dict[str, Finding]:
        if name not in made:
            plant, metrics, _ = SICK.get(name, (nothing, {}, set()))
            path = write(tmp_path_factory.mktemp(name) / "run", plant, **metrics)
            made[name] = {one.name: one.finding for one in diagnose(path)}
        return made[name]

    return get


def test_a_run_that_is_well(sick: Any) -> None:
    """Oracle: the run's construction. Kills: a detector that finds its pathology everywhere."""
    found = sick("well")
    assert {name: one.evidence for name, one in found.items() if one.status == "found"} == {}
    assert {name for name, one in found.items() if one.status == "cannot tell"} == {"idle_tail"}  # no journal


@pytest.mark.parametrize("name", SICK)
def test_a_planted_pathology_is_found_and_no_other(name: str, sick: Any) -> None:
    """Oracle: what was planted. Kills: a blind detector, and one that takes another's sign for its own."""
    found = sick(name)
    companions = SICK[name][2]
    assert {other for other, one in found.items() if one.status == "found"} == {name} | companions, found
    one = found[name]
    assert one.sure in ("certain", "likely", "hint") and one.evidence and one.numbers


def test_every_detector_has_a_sick_run() -> None:
    """Oracle: the table of detectors. The tail has a journal of its own (test_diagnose_journal.py)."""
    assert SICK.keys() | {"idle_tail"} == DETECTORS.keys()


def test_counts_are_those_planted(sick: Any) -> None:
    """Enumeration by hand, of 12 steps with 5 groups of 8. Kills: a wrong denominator."""
    assert sick("zero_variance")["zero_variance"].numbers["share"] == 0.5  # 6 of 12 steps
    assert sick("zero_variance")["zero_variance"].numbers["worst_share"] == 1.0
    assert sick("zero_variance")["zero_variance"].steps == (8, 11)  # whole stretches
    assert sick("all_fail")["all_fail"].numbers["share"] == pytest.approx(8 / 12)
    assert sick("truncation")["truncation"].numbers["share"] == 1 / 8
    assert sick("repetition")["repetition"].numbers["hits"] == 6 * EACH
    assert sick("duplicates")["duplicates"].numbers["share"] == 0.5
    assert sick("tree_collapse")["tree_collapse"].numbers["share"] == 0.5
    assert sick("grader_errors")["grader_errors"].numbers["hits"] == 16
    assert sick("starving")["starving"].numbers == {"share": 0.2, "tasks": 3.0, "of": 15.0}
    assert sick("hacked_format")["hacked_format"].numbers["hits"] == 6 * (5 * EACH - 1)
    cue_numbers = sick("hacked_cue")["hacked_cue"].numbers
    assert cue_numbers == {"with_cue": 240.0, "right_with": 1.0, "right_without": 0.0}
    ages = sick("staleness")["staleness"].numbers
    assert (ages["age_p95"], ages["age_mean"]) == (6.0, 3.0)


def test_entropy_is_that_of_the_tokens(sick: Any) -> None:
    """Closed form: 0.8·0.7^step at the first and the last step; the range begins where it falls for good."""
    one = sick("entropy_collapse")["entropy_collapse"]
    assert one.numbers["start"] == pytest.approx(0.8)
    assert one.numbers["end"] == pytest.approx(0.8 * 0.7**11)
    assert one.steps == (4, 11)  # 0.7^4 = 0.24 is the first at or below a quarter


def test_starving_names_the_tasks_and_why(sick: Any) -> None:
    """Case S08: tasks that are dropped and asked for again are seen by name. Oracle: the tasks planted.

    Tasks 4, 9 and 14 are never trained either, but a filter dropped them: they do not starve.
    """
    one = sick("starving")["starving"]
    assert set(one.examples) == {"t/train/2", "t/train/7", "t/train/12"}
    assert "stale: too old" in one.evidence


def test_examples_show_what_they_stand_for(tmp_path: Path) -> None:
    """Oracle: the shards. Kills: examples of the clean rollouts."""
    path = write(tmp_path / "run", cut)
    evidence = Evidence(path)
    names = DETECTORS["truncation"](evidence).examples
    listed = ", ".join(f"'{name}'" for name in names)
    rows = evidence.rows(f"SELECT truncated, step >= {LATE} FROM fresh WHERE leaf IN ({listed})")
    assert len(names) == 3 and rows == [(True, True)] * 3


def test_one_answer_for_all_tasks(tmp_path: Path) -> None:
    """Enumeration: most of the right rollouts are one text, for all tasks. Kills: this sign left out."""
    one = DETECTORS["hacked_cue"](Evidence(write(tmp_path / "run", one_answer)))
    assert (one.status, one.sure) == ("found", "hint")
    assert one.numbers == {"share": 0.75, "tasks": 9.0}  # groups 0, 2, 4 of 0, 2, 3, 4


def test_stale_tokens_alone_are_staleness(tmp_path: Path) -> None:
    """Oracle: one group of five in every second step, so a tenth of the tokens or so."""
    one = DETECTORS["staleness"](Evidence(write(tmp_path / "run", stale)))
    assert one.numbers["dropped_share"] == pytest.approx(0.1, abs=0.02)
    assert (one.status == "found") == (one.numbers["dropped_share"] >= 0.1)


def test_entropy_without_records_comes_from_logprobs(tmp_path: Path) -> None:
    """Closed form: the helper's logprobs are minus the entropies, so both give one figure."""
    evidence = Evidence(write(tmp_path / "run", entropy_falls))
    files = f"read_parquet('{tmp_path}/run/shards/*/nodes.parquet')"
    bare = f"SELECT * REPLACE (NULL::DOUBLE[] AS entropies) FROM {files}"
    evidence.sql.execute(f"CREATE OR REPLACE VIEW nodes AS {bare}")
    one = DETECTORS["entropy_collapse"](evidence)
    assert one.numbers["end"] == pytest.approx(0.8 * 0.7**11) and "logprob" in one.evidence
