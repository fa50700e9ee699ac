"""Real cases of rewards: what other frameworks extracted or compared wrongly. Oracle: worked out by hand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollwright.grade.answers import extract
from rollwright.grade.choice import grade_choice
from rollwright.grade.math import MathSettings, Sameness, compare, grade, grade_many
from rollwright.grade.math import grader as math_grader
from rollwright.grade.pool import Pool
from rollwright.grade.text import grade_text
from rollwright.grade.verdict import Status

OWN = [json.loads(line) for line in (Path(__file__).parent / "own_cases.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as pool:
        yield pool


def verdict(gold: str, answer: str) -> bool:
    """Whether the front says equal; it must say the same with its sides swapped."""
    settings = MathSettings()
    first, second = compare(gold, answer, settings)[0], compare(answer, gold, settings)[0]
    assert (first is Sameness.EQUAL) == (second is Sameness.EQUAL), "not symmetric"
    return first is Sameness.EQUAL


def test_r01_mixed_numbers() -> None:
    """Case R01 (Math-Verify#34), by hand: a b/c is a + b/c; "4 10/3" has no single reading."""
    pairs = [("5/4", "1 1/4"), ("71/6", "11 5/6"), ("2", "2 2/3"), ("10", "4 10/3")]
    pairs += [("5/2", "$2\\frac{1}{2}$"), ("-5/4", "-1 1/4")]
    assert [verdict(*pair) for pair in pairs] == [True, True, False, False, True, True]
    assert verdict("8/3", "2 2/3"), "the value, not only what it is not"
    assert not verdict("22/3", "4 10/3") and not verdict("40/3", "4 10/3"), "neither a sum nor a product"


def test_r03_find_all() -> None:
    """Case R03 (Math-Verify#47), by hand: a set; no subset and no superset passes."""
    answers = ["1728", "1728 and 1331", "1331, 1728", "\\{1331,1728\\}", "1331, 1728, 5"]
    assert [verdict("1331 and 1728", a) for a in answers] == [False, True, True, True, False]


def test_r06_small_differences() -> None:
    """Case R06 (Math-Verify#14), by hand: no absolute tolerance, nothing dropped while reading."""
    pairs = [
        ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"),
        ("\\frac{1}{2004!}", "\\frac{1}{2006!}"),
        ("1-\\frac{1}{\\mathrm{e}}", "1+\\frac{1}{\\mathrm{e}}"),
        ("\\pm 2021", "2021"),
        ("12:00", "1:00"),
        ("10\\text{ cm}", "10\\text{ m}"),
    ]
    assert [verdict(*pair) for pair in pairs] == [False] * 6
    assert all(verdict(side, side) for pair in pairs for side in pair)
    assert verdict("10\\text{ cm}", "0.1\\text{ m}") and verdict("\\pm 2021", "2021, -2021")


def test_r08_no_tail_window() -> None:
    """Case R08 (verl#7274), exact: 420 characters after the mark change nothing."""
    prose = ("and so the sum that was asked for is shown " * 10)[:420]
    assert len(prose) == 420 and not any(c.isdigit() for c in prose)
    response = f"2+40=42\n#### 42\n{prose}"
    result = grade(response, "42")
    assert (result.score, result.extracted) == (1.0, "42")
    assert result.where and response[slice(*result.where)] == "42"


def test_r09_a_long_box() -> None:
    """Case R09 (verl#7440), exact: the answer has 125 characters, its value is 45·46/2 = 1035."""
    total = "+".join(str(number) for number in range(1, 46))
    response = f"Answer: \\boxed{{{total}}}"
    found = extract(response)
    assert found.answer == total and (len(total), len(response)) == (125, 141)
    assert grade(response, total).score == 1.0 and grade(response, "1035").score == 1.0
    assert grade(response, "1034").score == 0.0


def test_r11_boxes() -> None:
    """Case R11 (OpenRLHF#1285), exact: framed, nested, unclosed and empty boxes."""
    texts = [
        "\\boxed{42}",
        "\\fbox{42}",
        "\\fbox{\\frac{1}{2}}",
        "\\boxed{\\frac{1}{2}}",
        "\\boxed{\\frac{1}{3}}",
    ]
    texts += ["\\boxed{42", "\\boxed{}", "\\boxed{ }"]
    found = [extract(text) for text in texts]
    right = ["42", "42", "\\frac{1}{2}", "\\frac{1}{2}", "\\frac{1}{3}", None, None, None]
    assert [one.answer for one in found] == right
    assert [one.status for one in found[5:]] == [Status.TRUNCATED, Status.NO_ANSWER, Status.NO_ANSWER]
    assert not verdict(str(found[3].answer), str(found[4].answer))
    assert all(grade(text, "42").score == 0.0 for text in texts[5:])


def test_r12_letters() -> None:
    """Case R12 (NeMo Gym#1844), exact: a letter counts alone or before a label mark; two are no answer."""
    texts = ["\\boxed{E}", "\\boxed{\\text{E}}", "\\boxed{E: a polygenic score}", "\\boxed{(E)}"]
    texts += ["maybe \\boxed{C} ... finally \\boxed{E}", "\\boxed{Earth}", "\\boxed{A or E}"]
    results = [grade_choice(text, "E") for text in texts]
    assert [result.score for result in results] == [1.0] * 5 + [0.0] * 2
    assert all(result.extracted == "E" for result in results[:5])
    assert [result.status for result in results[5:]] == [Status.NO_ANSWER] * 2


def test_r13_thoughts() -> None:
    """Case R13 (NeMo Gym#2105), exact: no tags, closed tags, a thought that never closed."""
    texts = ["ASC 606", "<think>a guess 9</think>ASC 606", "<think>long unfinished thought about ASC 606"]
    results = [grade_text(text, "ASC 606") for text in texts]
    assert [result.extracted or "" for result in results] == ["ASC 606", "ASC 606", ""]
    assert [result.score for result in results] == [1.0, 1.0, 0.0]
    assert [result.status is Status.TRUNCATED for result in results] == [False, False, True]


def test_r14_any_thread() -> None:
    """Case R14 (verl#5635), exact: the same verdict in a thread; a grader that raises is never a zero."""
    response, gold = "\\boxed{\\frac{1}{3}}", "\\frac{1}{3}"
    integral = ("\\boxed{\\int_0^1 x \\, dx}", "\\frac{1}{2}")  # math-verify's part
    results = []

    def work() -> None:
        results.extend([grade(response, gold), grade(*integral)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [grade(response, gold), grade(*integral)]
    assert [result.score for result in results] == [1.0, 1.0]


def test_r14_a_raising_grader_is_not_a_zero(pool: Pool) -> None:
    """Case R14, exact: an exception in the grader has no score and its own status."""
    [outcome] = pool.map("rollwright.grade.math.grader:grade", [("\\boxed{1}", None)], 20)
    result = math_grader.verdict_of(outcome, "math", {})
    assert (result.score, result.status) == (None, Status.GRADER_ERROR)
    assert "Error" in result.detail


def test_r16_emphasis() -> None:
    """Case R16 (Math-Verify#76), exact: emphasis is no part of the answer; the cue wins over the working."""
    text = "Left: 437 + 2*234 = 905. OK.\n\nFinal Answer: **73**"
    result = grade(text, "73")
    assert (result.extracted, result.score) == ("73", 1.0)


def test_h01_towers(pool: Pool) -> None:
    """Case H01 (Math-Verify#65), exact: three towers score 0, ten right answers 1; two workers live."""
    answers = ["\\boxed{\\dfrac{5^{\\left(5^{\\left(5^{\\left(5^5\\right)}\\right)}-4\\right)}-5}{16}}"]
    answers += ["\\boxed{9^{9^{9^{9}}}}", "\\boxed{10^{10^{10}}}", *["\\boxed{7}"] * 10]
    pool.warm()
    start = time.monotonic()
    results = grade_many([(answer, "7") for answer in answers], timeout_s=2, pool=pool)
    assert time.monotonic() - start < 10
    assert [result.score for result in results] == [0.0] * 3 + [1.0] * 10
    assert all(result.status in (Status.TOO_LARGE, Status.TIMEOUT) for result in results[:3])
    assert pool.num_alive == 2


@pytest.mark.parametrize("case", OWN, ids=[case["id"] for case in OWN])
def test_own_cases(case: dict) -> None:
    """Cases from public reports that ref names; each right value is worked out by hand in why."""
    given, right = case["input"], case["expected"]
    settings = MathSettings(**given.get("settings", {}))
    if "pairs" in given:
        for (gold, answer), equal in zip(given["pairs"], right["verdicts"], strict=True):
            first, second = compare(gold, answer, settings)[0], compare(answer, gold, settings)[0]
            assert (first is Sameness.EQUAL, second is Sameness.EQUAL) == (equal, equal), (gold, answer)
    if "texts" in given and "extracted" in right:
        assert [extract(text).answer for text in given["texts"]] == right["extracted"]
    if "texts" in given and "scores" in right:
        grader = grade_choice if given.get("grader") == "choice" else grade
        assert [grader(text, given["gold"]).score for text in given["texts"]] == right["scores"]


def test_own_cases_are_whole() -> None:
    """Oracle: the shared file's fields; at least thirty cases, each with a source."""
    assert len(OWN) >= 30 and len({case["id"] for case in OWN}) == len(OWN)
    for case in OWN:
        assert {"id", "ref", "kind", "severity", "check", "symptom", "input", "expected", "why"} <= set(case)
        assert {"verdicts", "extracted", "scores"} & set(case["expected"])
