"""The command, the idle tail of a journal, real runs, and the tables that the documents show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from diagnose_help import write

from rollwright.cli.main import main
from rollwright.diagnose.evidence import Evidence
from rollwright.diagnose.report import DETECTORS, diagnose
from rollwright.diagnose.shape import loops
from rollwright.diagnose.thresholds import LIMITS
from rollwright.diagnose.treatments import TREATMENTS
from rollwright.diagnose.windows import Window, merged, wilson_low
from rollwright.discovery import method_factories, stage_classes
from rollwright.events import AnyCommand, AnyEvent, Sampled, Started, Submit
from rollwright.store.journal import Journal
from rollwright.store.layout import JOURNAL
from rollwright.tree import Sampling, StopReason

DOCUMENT = Path(__file__).parents[2] / "docs/diagnose.md"


def journal(folder: Path, ends: list[float]) -> None:
    """Eight requests begin at 1 s and end at these times; nothing else happens."""
    names = [f"t/1#0/{k}:0" for k in range(len(ends))]
    asks: list[AnyCommand] = [
        Submit(
            ask=name, group="t/1#0", parent="t/1#0/root", at=2, stream=1, start=2, max_tokens=9,
            sampling=Sampling(),
        )
        for name in names
    ]  # fmt: skip
    records: list[tuple[AnyEvent, list[AnyCommand]]] = [(Started(at=1.0), asks)]
    for name, at in sorted(zip(names, ends, strict=True), key=lambda pair: pair[1]):
        records.append((Sampled(ask=name, tokens=(1,), logprobs=(-1.0,), stop=StopReason.EOS, at=at), []))
    with Journal.open(folder / JOURNAL) as file:
        for event, commands in records:
            file.append(event, commands)


@pytest.mark.parametrize(
    ("ends", "share"),
    [([2.0] * 6 + [9.0, 10.0], 0.8), ([9.0] * 6 + [10.0] * 2, 0.1)],
    ids=["long tail", "all end together"],
)
def test_idle_tail(tmp_path: Path, ends: list[float], share: float) -> None:
    """By hand: of 10 s, two of eight requests (a quarter) are left from the time that the others end.

    Kills: a tail that counts the time with all requests, or with none.
    """
    path = write(tmp_path / "run", num_steps=5)
    journal(path, ends)
    found = DETECTORS["idle_tail"](Evidence(path))
    assert found.numbers == {"share": pytest.approx(share), "seconds": 10.0, "peak": 8.0}
    assert (found.status == "found") == (share > 0.3)
    if found.status == "found":
        assert set(found.examples[:2]) == {"t/1#0/6:0", "t/1#0/7:0"}


def test_exit_codes_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the contract 0 / 1 / 2, and the diagnoses themselves. Kills: a bad folder that exits with 1."""
    well = write(tmp_path / "well")
    assert main(["diagnose", str(well)]) == 0
    assert "0 found; 16 of 17 detectors could tell" in capsys.readouterr().out
    sick = write(tmp_path / "sick", lambda roll, step, group, k: {"reward": 1.0})
    assert main(["diagnose", str(sick)]) == 1
    text = capsys.readouterr().out
    assert "FOUND        zero_variance (certain): 60 of 60 groups" in text
    assert "filter/ZeroVariance" in text and "dapo" in text and "t/train/" in text
    assert main(["diagnose", str(sick), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in facts["diagnoses"]] == [one.name for one in diagnose(sick)]
    first = facts["diagnoses"][0]
    assert first["name"] == "zero_variance" and first["finding"]["numbers"]["share"] == 1.0
    (tmp_path / "empty").mkdir()
    for bad in (tmp_path / "empty", tmp_path / "nowhere"):
        assert main(["diagnose", str(bad)]) == 2
        assert str(bad) in capsys.readouterr().err


def test_damaged_shards_are_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: exit code 2 and the file's name, no traceback."""
    path = write(tmp_path / "run", num_steps=5)
    file = next(path.glob("shards/*/trajectories.parquet"))
    file.write_bytes(b"PAR1 not a table")
    assert main(["diagnose", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_few_rollouts_are_no_verdict(tmp_path: Path) -> None:
    """Oracle: the least numbers. Kills: an alarm from two groups."""
    path = write(tmp_path / "run", lambda roll, step, group, k: {"reward": 1.0}, num_steps=3)
    found = {one.name: one.finding.status for one in diagnose(path)}
    assert found["zero_variance"] == found["entropy_collapse"] == "cannot tell"


def test_no_dead_names() -> None:
    """Oracle: the registries. Kills: a treatment that names a stage or method that is not there."""
    assert TREATMENTS.keys() == DETECTORS.keys()
    kinds = {name.split("/")[0] for name in stage_classes()} | {"grade", "engine"}
    for name, one in TREATMENTS.items():
        assert set(one.stages) <= stage_classes().keys(), name
        assert set(one.methods) <= method_factories().keys(), name
        assert one.where in kinds, name
        assert one.do.endswith("."), name
        assert (one.stages and one.methods) or one.where == "grade", name


def test_the_document_shows_the_tables() -> None:
    """Golden: every limit with its number, every pathology. Kills: a table that outlives its code."""
    lines = DOCUMENT.read_text().splitlines()
    for name, one in LIMITS.items():
        assert f"| `{name}` | {one.value:g} | {one.meaning} | {one.source} |" in lines
        assert name.split(".")[0] in DETECTORS
    for name in DETECTORS:
        assert any(line.startswith(f"| `{name}` | ") for line in lines), name


def test_loops() -> None:
    """By hand: at least four copies and 32 tokens in a row; a copy fewer is no loop."""
    import numpy as np

    noise = np.arange(100, 140)
    assert loops(np.concatenate([noise, np.tile([1, 2, 3, 4, 5, 6, 7, 8], 4), noise]))
    assert not loops(np.concatenate([noise, np.tile([1, 2, 3, 4, 5, 6, 7, 8], 3), [1, 2, 3, 4, 5, 6, 7]]))
    assert loops(np.zeros(32, dtype=np.int32)) and not loops(np.zeros(31, dtype=np.int32))
    assert loops(np.tile(np.arange(32), 4)) and not loops(np.tile(np.arange(33), 9))
    assert not loops(np.zeros(0, dtype=np.int32))


def test_windows() -> None:
    """Closed form: Wilson's interval; by hand: neighbours join, what is left joins the last."""
    assert wilson_low(8, 10) == pytest.approx(0.4901625)
    windows = [Window(k, k, 1, 4) for k in range(5)]
    assert [(w.first, w.last, w.hits, w.total) for w in merged(windows, 8)] == [(0, 1, 2, 8), (2, 4, 3, 12)]


@pytest.mark.slow
def test_a_real_run(tmp_path: Path) -> None:
    """Metamorphic: a run that may sample 12 tokens only is truncated; detectors cope with real files."""
    words = "countdown --num-steps 5 --num-tasks 6 --threads 1 --device cpu --max-tokens 12 --out"
    path = tmp_path / "run"
    assert main(["train", *words.split(), str(path)]) == 0
    found = {one.name: one.finding for one in diagnose(path)}
    assert found["truncation"].status == "found"
    assert found["mismatch"].status == "clear" and found["grader_errors"].status == "clear"
    assert found["idle_tail"].status != "cannot tell"
