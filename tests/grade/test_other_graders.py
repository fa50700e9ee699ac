"""Choice, text, numbers, JSON, regular expressions and SQL. Oracle: worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from rollwright.errors import ConfigError
from rollwright.grade.choice import grade_choice, read_letter
from rollwright.grade.numeric import grade_numeric, read_number
from rollwright.grade.pool import Pool
from rollwright.grade.sql import grade_sql, same_rows
from rollwright.grade.structured import first_difference, grade_json, grade_regex, read_json
from rollwright.grade.text import grade_text, normalised
from rollwright.grade.verdict import Status


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1, memory_mb=4096, warm_up=()) as pool:
        yield pool


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"), ("(b)", "B"), ("b", "B"), ("**C**", "C"), ("D. none of these", "D"),
        ("$\\mathrm{A}$", "A"),
        ("option B", "B"), ("A) first", "A"), ("C - the last", "C"), ("\\textbf{(D)} x", "D"),
        ("Bird", None), ("A or B", None), ("A, B", None), ("A/B", None), ("", None), ("7", None),
        ("a cat", None),
        ("A and C", None), ("I think so", None), ("both", None),
    ],
)  # fmt: skip
def test_letters(text: str, letter: str | None) -> None:
    """A letter counts alone or before a label mark."""
    assert read_letter(text) == letter


def test_choice_bounds() -> None:
    """By hand: a letter beyond the options is no answer; a gold answer that is none is an error."""
    assert grade_choice("Answer: E", "A", num_options=4).status is Status.NO_ANSWER
    assert grade_choice("Answer: B", "A", num_options=4).status is Status.WRONG
    with pytest.raises(ConfigError, match="first 4 letters"):
        grade_choice("A", "Earth", num_options=4)


def test_text() -> None:
    """By hand: case, articles, width and end marks fall away when normalising, and only then."""
    assert normalised("  The  Ｅiffel Tower. ") == "eiffel tower"
    assert grade_text("Answer: the Eiffel tower.", "Eiffel Tower").score == 1.0
    assert grade_text("Answer: the Eiffel tower.", "Eiffel Tower", "exact").score == 0.0
    assert grade_text("Answer: Paris", "Paris", "exact").score == 1.0
    assert grade_text("Paris", " ").score is None
    with pytest.raises(ConfigError):
        grade_text("a", "a", "fuzzy")  # type: ignore[arg-type]


def test_numbers() -> None:
    """By hand: |answer - gold| ≤ max(rel_tol·|gold|, abs_tol), bounds included, exactly."""
    assert read_number("$1,234.50") == Fraction("1234.5") and read_number("\\frac{1}{3}") == Fraction(1, 3)
    assert abs(read_number("\\sqrt{2}") ** 2 - 2) < Fraction(1, 10**50)
    assert grade_numeric("Answer: 10.1", 10, rel_tol=0.01).score == 1.0
    assert grade_numeric("Answer: 10.1000001", 10, rel_tol=0.01).score == 0.0
    assert grade_numeric("Answer: 1e-30", 0).score == 0.0, "no absolute tolerance unless asked for"
    assert grade_numeric("Answer: 1e-30", 0, abs_tol=1e-9).score == 1.0
    assert grade_numeric("Answer: x", 1).status is Status.WRONG
    assert grade_numeric("Answer: 9^{9^{9^9}}", 1).status is Status.TOO_LARGE
    assert grade_numeric("Answer: 1", "x").score is None
    with pytest.raises(ConfigError):
        grade_numeric("1", 1, rel_tol=-1)


@pytest.mark.parametrize(
    ("answer", "gold", "where"),
    [
        ('{"b": 1, "a": [1, 2]}', '{"a": [1, 2], "b": 1.0}', None),
        ('{"a": [1, 3]}', '{"a": [1, 2]}', "$.a[1]"), ("[1]", "[1, 2]", "$"), ('{"a": 1}', "{}", "$.a"),
        ("[true]", "[1]", "$[0]"), ("[null]", "[0]", "$[0]"), ('["1"]', "[1]", "$[0]"),
        ('{"a": {"b": "x"}}', '{"a": {"b": "y"}}', "$.a.b"), ("0", "false", "$"),
    ],
)  # fmt: skip
def test_json_differences(answer: str, gold: str, where: str | None) -> None:
    """The first difference is named by its path; the score follows."""
    difference = first_difference(read_json(answer), read_json(gold))
    assert (difference.split(":")[0] if difference else None) == where
    assert grade_json(f"Here:\n```json\n{answer}\n```\nDone.", gold).score == float(where is None)


def test_json_that_is_none() -> None:
    """By hand: NaN, repeated keys, deep nesting and prose are not JSON; a broken gold is our side's."""
    for text in ("NaN", '{"a": 1, "a": 2}', "[" * 100_000, "hello", ""):
        assert grade_json(text, "[1]").status is Status.NO_ANSWER
    assert grade_json("[1]", "[1").score is None
    assert grade_json("[1.0000001]", "[1]", rel_tol=1e-6).score == 1.0
    assert grade_json("<think>[1]", "[1]").status is Status.TRUNCATED


def test_regular_expressions(pool: Pool) -> None:
    """By hand: the whole text must match; a pattern that backtracks for ever is stopped, unscored."""
    assert grade_regex("<think>hm</think> ab12 ", r"[a-z]+\d+", pool=pool, timeout_s=20).score == 1.0
    assert grade_regex("ab12!", r"[a-z]+\d+", pool=pool, timeout_s=20).score == 0.0
    verdict = grade_regex("a" * 60 + "!", r"(a+)+b", timeout_s=1, pool=pool)
    assert (verdict.score, verdict.status) == (None, Status.GRADER_ERROR)
    assert grade_regex("a", "(", pool=pool).status is Status.BAD_DATA


SETUP = (
    "CREATE TABLE t (a INTEGER, b DOUBLE, c VARCHAR);"
    " INSERT INTO t VALUES (1, 0.1, 'x'), (2, NULL, 'y'), (2, NULL, 'y')"
)


def test_sql(pool: Pool) -> None:
    """By hand: order as asked, duplicates count, NULL is only NULL, floats are near, errors score 0."""

    def score(query: str, gold: str, **settings: bool) -> float | None:
        return grade_sql(f"```sql\n{query}\n```", gold, SETUP, timeout_s=30, pool=pool, **settings).score

    assert score("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM t ORDER BY a") == 1.0
    assert score("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM t ORDER BY a", is_ordered=True) == 0.0
    assert score("SELECT DISTINCT a FROM t", "SELECT a FROM t") == 0.0
    assert score("SELECT coalesce(b, 0) FROM t", "SELECT b FROM t") == 0.0
    assert score("SELECT b * 3 / 3 FROM t", "SELECT b FROM t") == 1.0
    assert score("SELECT a::VARCHAR FROM t", "SELECT a FROM t") == 0.0
    assert score("SELECT nothing FROM t", "SELECT a FROM t") == 0.0
    assert score("SELECT a FROM t", "SELECT nothing FROM t") is None
    reading = grade_sql("SELECT * FROM read_csv('/etc/passwd')", "SELECT 1", SETUP, timeout_s=30, pool=pool)
    assert reading.status is Status.RUNTIME_ERROR, "no file of the machine can be read"
    endless = "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
    assert grade_sql(endless, "SELECT 1", SETUP, timeout_s=2, pool=pool).status in (
        Status.TIMEOUT,
        Status.LIMIT_HIT,
    )


def test_rows() -> None:
    """By hand: NULL and NaN, text against number, rows whose floats differ by rounding in another order."""
    assert same_rows([(None,), (1.0,)], [(1,), (None,)], False, 1e-9)
    assert not same_rows([(None,)], [(0,)], False, 1e-9) and not same_rows([("1",)], [(1,)], False, 1e-9)
    assert same_rows([(0.1 + 0.2, "b"), (1.0, "a")], [(1.0, "a"), (0.3, "b")], False, 1e-9)
    assert not same_rows([(True,)], [(1,)], False, 1e-9)
    assert not same_rows([(1, 2)], [(2, 1)], False, 1e-9), "columns have an order"
