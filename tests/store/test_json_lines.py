"""JSON-lines rows: torn tails, damaged rows, strict numbers (cases C01 and F01)."""

import json
import math
from enum import Enum

import numpy as np
import pytest

from rollwright.errors import DataError, StoreError
from rollwright.store.rows import RowFile, load_rows
from rollwright.store.strict import dumps, plain


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_case_c01_torn_results(tmp_path):
    """Golden, case C01 (verifiers#1376): two rows are done, the torn one is reported and run again."""
    path = tmp_path / "results.jsonl"
    torn = b'{"example_id":2,"rew'
    path.write_bytes(b'{"example_id":0,"reward":1.0}\n{"example_id":1,"reward":0.0}\n' + torn)
    loaded = load_rows(path)
    assert [row["example_id"] for row in loaded.rows] == [0, 1]
    assert loaded.num_torn_bytes == len(torn)
    assert loaded.to_run([0, 1, 2, 3], "example_id") == [2, 3]
    results = RowFile(path)
    assert results.torn.num_bytes == len(torn)
    assert results.torn.kept_in.read_bytes() == torn
    for example in results.loaded.to_run([0, 1, 2, 3], "example_id"):
        results.append({"example_id": example, "reward": 0.5})
    results.close()
    assert [row["example_id"] for row in lines(path)] == [0, 1, 2, 3]
    again = load_rows(path)
    assert (again.bad_lines, again.num_torn_bytes) == ((), 0)


@pytest.mark.parametrize(
    "bad", [b'{"example_id":1,"rew', b"\x00\x00\x00", b"[1]", b'{"a": NaN}', b"\xff\xfe"]
)
def test_bad_row_in_the_middle_is_skipped_and_run_again(tmp_path, bad):
    """Oracle: the rows before and after; the bad one is warned of, kept aside, and done again."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"example_id":0}\n' + bad + b'\n{"example_id":2}\n')
    with pytest.warns(UserWarning, match=r"1 damaged rows left out \(lines 2\)"):
        loaded = load_rows(path)
    assert loaded.bad_lines == (2,)
    assert loaded.to_run([0, 1, 2, 3], "example_id") == [1, 3]
    with pytest.warns(UserWarning):
        results = RowFile(path)
    results.append({"example_id": 1})
    assert [row["example_id"] for row in lines(path)] == [0, 2, 1]
    assert [bad in aside.read_bytes() for aside in tmp_path.glob("*.torn-*")] == [True]


def test_later_row_wins(tmp_path):
    """A step done again after a resume has one value. Oracle: the later row."""
    rows = RowFile(tmp_path / "metrics.jsonl")
    for step, loss in [(0, 1.0), (1, 2.0), (1, 3.0)]:
        rows.append({"step": step, "loss": loss})
    assert load_rows(rows.path).latest("step")[1] == {"step": 1, "loss": 3.0}


def test_row_that_does_not_fit_leaves_no_half(tmp_path, monkeypatch):
    """A write that stops half way is taken back. Oracle: the file's rows."""
    import os

    rows = RowFile(tmp_path / "metrics.jsonl")
    rows.append({"step": 0})
    whole = os.pwrite

    def full(fd, data, offset):
        if len(data) < 10:
            raise OSError(28, "No space left on device")
        return whole(fd, data[:5], offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match=r"No space left.*free some space"):
        rows.append({"step": 1, "loss": 0.123456789})
    monkeypatch.undo()
    assert lines(rows.path) == [{"step": 0}]
    rows.append({"step": 1})
    assert lines(rows.path) == [{"step": 0}, {"step": 1}]


EXTRAS = {
    "n": np.int64(3),
    "ok": np.bool_(True),
    "p": np.float32(0.5),
    "v": np.array([1, 2]),
    "bad": float("nan"),
}


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def test_case_f01_numpy_extras():
    """Golden, case F01 (verl#6167): numbers stay numbers, NaN is null with a flag, JSON is strict."""
    text, flags = dumps(EXTRAS)
    got = json.loads(text, parse_constant=refuse)
    assert got == {"n": 3, "ok": True, "p": 0.5, "v": [1, 2], "bad": None}
    assert [type(got[name]) for name in ("n", "ok", "p")] == [int, bool, float]
    assert flags == {"bad": "nan"}


def test_case_f01_in_a_row(tmp_path):
    """Oracle: the row read back; the flag stands beside the null."""
    rows = RowFile(tmp_path / "metrics.jsonl")
    rows.append({"step": 1, "loss": math.inf, "extras": EXTRAS})
    (row,) = lines(rows.path)
    assert row["loss"] is None
    assert row["non_finite"] == {"loss": "inf", "extras.bad": "nan"}


class Word(str, Enum):
    A = "a"


def test_plain_values_of_every_kind():
    """Oracle: the values written by hand."""
    value = {"e": Word.A, "t": (1, [np.float64(0.25), -math.inf]), "s": np.str_("x"), "b": 2**70, "z": None}
    expected = {"e": "a", "t": [1, [0.25, None]], "s": "x", "b": 2**70, "z": None}
    assert plain(value) == (expected, [(("t", 1, 1), "-inf")])


@pytest.mark.parametrize("bad", [{1, 2}, b"x", object(), {1: 2}, np.datetime64("2020-01-01")])
def test_what_json_cannot_hold_is_named(bad):
    """Never a string in silence. Oracle: the place in the message."""
    with pytest.raises(DataError, match=r"extras\.x"):
        dumps({"extras": {"x": bad}})
