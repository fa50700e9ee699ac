"""Programs graded by tests. Oracle: worked out by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rollwright.errors import ConfigError, DataError
from rollwright.grade.code import (
    CallTest,
    CodeSettings,
    StdinTest,
    call_test_of,
    grade,
    grade_async,
    grade_code,
    grade_many,
)
from rollwright.grade.code_blocks import extract_code
from rollwright.grade.sandbox.pool import Sandbox
from rollwright.grade.sandbox.program import Limits
from rollwright.grade.verdict import Status

PY = "```python\n"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(2) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("response", "code", "status"),
    [
        (f"{PY}a = 1\n```", "a = 1\n", None),
        ("```\na = 1\n```", "a = 1\n", None),
        (f"{PY}a\n```\ntext\n{PY}b\n```", "b\n", None),
        (f"{PY}a\n```\n```\nsample output\n```", "a\n", None),
        (f"{PY}a\n```\n```json\n{{}}\n```", "a\n", None),
        ("~~~py\na\n~~~", "a\n", None),
        (f'{PY}s = """\n``\n"""\n```', 's = """\n``\n"""\n', None),
        ("````python\nprint('```')\n```\n````", "print('```')\n```\n", None),
        ("  ```Python3 title=x\n  a\n  ```", "  a\n", None),
        (f"{PY}```", "", None),
        (f"<think>{PY}no\n```</think>{PY}yes\n```", "yes\n", None),
        (f"<think>{PY}no\n```", None, Status.TRUNCATED),
        (f"{PY}a\n```\nand\n{PY}b = (", None, Status.TRUNCATED),
        ("print(1)", None, Status.NO_ANSWER),
        ("use `print(1)` here", None, Status.NO_ANSWER),
        ("```rust\nfn main() {}\n```", None, Status.NO_ANSWER),
        ("", None, Status.NO_ANSWER),
    ],
)
def test_extraction(response: str, code: str | None, status: Status | None) -> None:
    """By hand. Kills: the first block, a greedy match, a block of another language, a cut block run."""
    found = extract_code(response)
    assert (found.text, found.status) == (code, status)
    if code is not None:
        assert found.where is not None and response[slice(*found.where)] == code


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("assert f(1, [2]) == [3]", CallTest("f", (1, [2]), [3])),
        ("assert f('a', k=None) is True", CallTest("f", ("a",), True, {"k": None})),
        ("assert Solution().add(-1) == {'a': (1, 2)}, 'why'", CallTest("Solution.add", (-1,), {"a": (1, 2)})),
    ],
)
def test_asserts_become_calls(text: str, test: CallTest) -> None:
    """By hand: the call goes to the sandbox, the literal stays here."""
    assert call_test_of(text) == test


@pytest.mark.parametrize(
    "text",
    [
        "assert f(x) == 1",
        "assert f(1) == g(1)",
        "assert f(1)",
        "assert f(1) != 2",
        "assert f(1) == 1 == 1",
        "assert 1 == f(1)",
        "assert f(*[1]) == 1",
        "assert f(**{'a': 1}) == 1",
        "f(1) == 1",
        "assert f(1) == 1; assert True",
        "assert f(",
    ],
)
def test_asserts_that_cannot_be_checked_outside(text: str) -> None:
    """Oracle: the error tree: they are refused, not run where the program could answer them."""
    with pytest.raises(DataError, match="outside the program"):
        call_test_of(text)


def test_partial_credit_and_the_first_failure(sandbox: Sandbox) -> None:
    """By hand: 2 of 4 tests; the first that fails is test 2; without partial credit the score is 0."""
    code = "def f(x):\n    if x == 2: raise KeyError('two')\n    if x == 3: return 0\n    return x"
    tests = [CallTest("f", (x,), x) for x in (1, 2, 3, 4)]
    verdict = grade_code(code, tests, sandbox=sandbox)
    assert (verdict.score, verdict.status, verdict.rewards) == (0.5, "runtime_error", {"tests": 0.5})
    assert verdict.detail.startswith("test 2 of 4: KeyError") and verdict.grader == "code/1"
    strict = CodeSettings(partial=False)
    verdict = grade_code(code, tests, sandbox=sandbox, settings=strict)
    assert (verdict.score, verdict.rewards, verdict.settings["partial"]) == (0.0, {}, "False")
    assert grade_code(code, tests[:1], sandbox=sandbox, settings=strict).score == 1.0


def test_tests_do_not_disturb_each_other(sandbox: Sandbox) -> None:
    """By hand: a program that is right on its first call only, in every process of its own."""
    code = "calls = []\ndef f(x):\n    calls.append(x)\n    return x if len(calls) == 1 else None"
    assert grade_code(code, [CallTest("f", (k,), k) for k in range(3)], sandbox=sandbox).score == 1.0


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("while True: pass", "timeout"),
        ("x = [0] * 10**9", "limit_hit"),
        ("while True: print('x' * 999)", "limit_hit"),
        ("import os\nwhile True: os.fork()", "limit_hit"),
        ("open('x', 'wb').write(bytes(10**8))", "limit_hit"),
        ("1 / 0", "runtime_error"),
        ("import sys; sys.exit(1)", "runtime_error"),
        ("import os; os._exit(0)", "no_verdict"),
        ("import os; print('ok', flush=True); os._exit(0)", "right"),
        ("import os; print('no', flush=True); os._exit(0)", "wrong"),
        ("import os; print('ok', flush=True); os._exit(1)", "runtime_error"),
        ("import os; print('ok', flush=True); os.kill(os.getpid(), 9)", "runtime_error"),
        ("print('ok')\nraise SystemExit", "right"),
        ("print('ok')\nraise ValueError", "runtime_error"),
        ("print('okay')", "wrong"),
        ("pass", "wrong"),
        ("def f(:", "runtime_error"),
    ],
)
def test_statuses_of_output_tests(code: str, status: str, sandbox: Sandbox) -> None:
    """By hand: each ending has its status, and only a match after a good end scores."""
    verdict = grade_code(
        code, [StdinTest("", "ok\n")], sandbox=sandbox, limits=Limits(timeout_s=1.5, num_processes=8)
    )
    assert (verdict.status, verdict.score) == (status, float(status == "right")), verdict.detail


def test_a_program_has_a_budget_over_all_tests(sandbox: Sandbox) -> None:
    """By hand: 30 endless tests of 0.3 s with 0.5 s in all: two run, the others fail by timeout unseen."""
    tests = [StdinTest("", "")] * 30
    settings, limits = CodeSettings(total_s=0.5), Limits(timeout_s=0.3)
    verdict = grade_code("while True: pass", tests, sandbox=sandbox, settings=settings, limits=limits)
    assert (verdict.score, verdict.status) == (0.0, "timeout")


def test_no_code_and_no_tests(sandbox: Sandbox) -> None:
    """By hand: no code scores 0, as `no_answer`; no tests, whatever the code, is no score."""
    assert (v := grade("I cannot.", [StdinTest("", "")], sandbox=sandbox)).score == 0.0
    assert v.status == "no_answer"
    assert (v := grade(f"{PY}print(1)\n```", [], sandbox=sandbox)).score is None and v.status == "bad_data"


def test_values_that_cannot_be_shown(sandbox: Sandbox) -> None:
    """By hand: a wrong value of 5,000 digits, and one nested 900 deep, are wrong, not our failure."""
    for code in (
        "def f(): return 10**5000",
        "def f():\n    x = []\n    for _ in range(900): x = [x]\n    return x",
    ):
        verdict = grade_code(code, [CallTest("f", (), 1)], sandbox=sandbox)
        assert verdict.status in ("wrong", "runtime_error") and verdict.score == 0.0


def test_many_and_async_agree_with_one(sandbox: Sandbox) -> None:
    """Metamorphic: the same verdicts one by one, in a batch, and from an event loop."""
    items = [(f"{PY}print(int(input()) % 3)\n```", [StdinTest(f"{k}", "1")]) for k in range(9)]
    single = [grade(response, tests, sandbox=sandbox) for response, tests in items]
    assert grade_many(items, sandbox=sandbox) == single
    assert [verdict.score for verdict in single] == [0, 1, 0] * 3

    async def all_of_them() -> list[object]:
        return list(await asyncio.gather(*(grade_async(*item, sandbox=sandbox) for item in items)))

    assert asyncio.run(all_of_them()) == single


def test_settings_and_tests_are_checked() -> None:
    """Oracle: the error tree."""
    for bad in ({"compare": "words"}, {"rel_tol": -1}, {"total_s": 0}):
        with pytest.raises(ConfigError):
            CodeSettings(**bad)  # type: ignore[arg-type]
    assert CallTest("f", (1, "other"), {"a": [None]}).expected == {"a": [None]}
    for args, expected in (((object(),), 1), ((1,), [object()])):
        with pytest.raises(DataError, match="plain values"):
            CallTest("f", args, expected)
