"""Where an answer stands. Oracle: read by hand, unless a test says otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.grade.answers import How, extract
from rollwright.grade.answers.boxes import find_boxes
from rollwright.grade.verdict import Status


@pytest.mark.parametrize(
    ("text", "answer", "how"),
    [
        ("$\\boxed 42$", "42", How.BOX),
        ("\\boxed{ \\{1, 2\\} }", "\\{1, 2\\}", How.BOX),
        ("\\boxed{1}, \\boxed{2} and \\boxed{3}.", "1, 2, 3", How.BOX),
        ("\\boxed{x \\{ y} and so on }", "x \\{ y", How.BOX),
        ("\\boxed{\\boxed{5}}", "\\boxed{5}", How.BOX),
        ("the answer is 3, but \\boxed{4}\nThe answer is 5", "4", How.BOX),
        ("\\boxed{1} then an empty one \\boxed{}", "1", How.BOX),
        ("Answer: 3\n#### 4\nThe final answer is 5.", "5", How.CUE),
        ("**Answer:** `7`", "7", How.CUE),
        ("The answer is $\\frac{1}{2}$, which is small.", "$\\frac{1}{2}$", How.CUE),
        ("The answer is 3.5.", "3.5", How.CUE),
        ("The answer is **42**, because I say so.", "42", How.CUE),
        ("The answer is\n\n$$\\frac12$$", "$$\\frac12$$", How.CUE),
        ("## Final Answer\n12\n", "12", How.CUE),
        ("The final answer is $1$ and $2$", "$1$ and $2$", How.CUE),
        ("#### 1,234", "1,234", How.CUE),
        ("_42_", "42", How.WHOLE),
    ],
)
def test_marks(text: str, answer: str, how: How) -> None:
    """The last mark of the strongest kind wins; emphasis and the sentence's end are no part of the answer."""
    found = extract(text)
    assert (found.answer, found.how, found.status) == (answer, how, None)
    if "joined" not in found.detail:
        assert text[found.first : found.end] == answer


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", Status.NO_ANSWER),
        ("  \n ", Status.NO_ANSWER),
        ("line one\nline two", Status.NO_ANSWER),
        ("x" * 201, Status.NO_ANSWER),
        ("\\boxed 1 1/4", Status.NO_ANSWER),
        ("</think>", Status.NO_ANSWER),
        ("\\boxed{\\frac{1}{2}", Status.TRUNCATED),
        ("<think>\\boxed{1}", Status.TRUNCATED),
        ("<think>a</think>\\boxed{1}<think>", Status.TRUNCATED),
    ],
)
def test_no_answer(text: str, status: Status) -> None:
    """Nothing is made up, and a text that was cut says so."""
    found = extract(text)
    assert (found.answer, found.how, found.status) == (None, How.NOTHING, status)


def test_a_guess_has_to_be_asked_for() -> None:
    """By hand: without a mark, the last line only where the caller wants it."""
    assert extract("first\nthen 42").answer is None
    assert extract("first\nthen 42", guess=True).answer == "then 42"
    assert extract("first\nthen 42", guess=True).how is How.LAST_LINE


def test_the_whole_text_is_searched() -> None:
    """Metamorphic: prose without marks behind or before an answer changes nothing, however long."""
    prose = " and so on" * 5000
    for answer in ("\\boxed{7}", "#### 7\n", "The answer is 7.\n"):
        assert extract(answer + prose).answer == "7"
        assert extract(prose + "\n" + answer).answer == "7"


balanced = st.recursive(
    st.text("ab1+\\, ", min_size=1, max_size=6).map(lambda s: s.replace("\\", "\\frac")),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    max_leaves=6,
)


@given(balanced.filter(str.strip))
@settings(max_examples=150, deadline=None)
def test_any_balanced_box_comes_back(content: str) -> None:
    """Closed form: what was put into the last box is what comes out."""
    found = extract("\\boxed{0} is wrong " + f"\\boxed{{{content}}} done")
    assert found.answer == content.strip()


@given(st.text("\\boxed{}fbox<think>/#*$ \n12answer is:.", max_size=80))
@settings(max_examples=300, deadline=None)
def test_never_fails_and_points_into_the_text(text: str) -> None:
    """Invariants: no exception, the same twice, the span holds the answer, no answer has a status."""
    found = extract(text)
    assert found == extract(text)
    assert 0 <= found.first <= found.end <= len(text)
    assert (found.answer is None) == (found.status is not None)
    if found.answer is not None and "joined" not in found.detail:
        assert text[found.first : found.end] == found.answer != ""


def test_many_open_boxes_take_linear_time() -> None:
    """Slow inputs: ten thousand boxes that never close."""
    boxes, is_open = find_boxes("\\boxed{" * 3000)
    assert boxes == [] and is_open
