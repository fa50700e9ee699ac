"""Programs graded by test cases in the sandbox.

A pass needs evidence for each test: the value of a call, which carries a number that the program was given
only after its code had been loaded, or its output; both are compared here, in the parent. The program never
holds what is expected, so the best forgery is the right answer. Exit code 0 proves nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rollwright.errors import ConfigError, DataError
from rollwright.grade.code_blocks import extract_code
from rollwright.grade.sandbox.pool import Sandbox, shared_sandbox
from rollwright.grade.sandbox.program import Call, Ending, Limits, Outcome, Program
from rollwright.grade.sandbox.values import is_equal
from rollwright.grade.verdict import Status, Verdict

GRADER = "code/1"
NO_VERDICT = "no_verdict"  # the program left before its test was over: scored as wrong


@dataclass(frozen=True, slots=True)
class CallTest:
    """A function's value for given arguments.

    Args:
        function: see `rollwright.grade.sandbox.program.Call`.
        args, kwargs: plain values.
        expected: a plain value; it never enters the sandbox.

    Raises:
        DataError: a value is not plain.
    """

    function: str
    args: tuple[Any, ...]
    expected: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Call(self.function, (*self.args, self.expected), self.kwargs)  # refuses what is not plain


@dataclass(frozen=True, slots=True)
class StdinTest:
    """A program's output for a given input."""

    stdin: str
    expected: str


Test = CallTest | StdinTest


@dataclass(frozen=True, slots=True)
class CodeSettings:
    """How programs are graded.

    Args:
        partial: the score is the share of tests that pass; otherwise 1 for all and 0 for fewer, and the
            first failure ends the grading.
        compare: of output: ``lines`` (white space at the ends of lines and of the text does not count),
            ``tokens`` (only the words count; those that are numbers within ``rel_tol``) or ``exact``.
        rel_tol: how far floats may be off, of the larger.
        total_s: for all tests of one program, seconds of its own time; what is left then fails by timeout.
    """

    partial: bool = True
    compare: Literal["lines", "tokens", "exact"] = "lines"
    rel_tol: float = 1e-9
    total_s: float = 60.0

    def __post_init__(self) -> None:
        if self.compare not in ("lines", "tokens", "exact") or self.rel_tol < 0 or self.total_s <= 0:
            raise ConfigError(
                f"compare={self.compare!r} must be lines, tokens or exact, rel_tol={self.rel_tol} not"
                f" negative, total_s={self.total_s} more than 0"
            )


def call_test_of(text: str) -> CallTest:
    """Return the test that ``assert f(1, [2]) == [3]`` stands for, so that its value is compared outside.

    Raises:
        DataError: it is not a call with literal arguments, ``==`` or ``is``, and a literal.
    """
    try:
        [statement] = ast.parse(text.strip()).body
        assert isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare)
        call, [operator], [right] = statement.test.left, statement.test.ops, statement.test.comparators
        assert isinstance(call, ast.Call) and isinstance(operator, (ast.Eq, ast.Is))
        args = tuple(ast.literal_eval(one) for one in call.args)
        kwargs = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords if word.arg}
        assert len(kwargs) == len(call.keywords)
        return CallTest(ast.unparse(call.func).replace("()", ""), args, ast.literal_eval(right), kwargs)
    except (SyntaxError, ValueError, AssertionError, TypeError, RecursionError) as error:
        raise DataError(
            f"{text[:200]!r} cannot be checked from outside the program; expected `assert f(literals) =="
            " literal`, or give a CallTest or StdinTest"
        ) from error


def grade(
    response: str,
    tests: Sequence[Test],
    *,
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
    settings: CodeSettings | None = None,
) -> Verdict:
    """Grade the code in a model's response; see `grade_code`."""
    found = extract_code(response)
    if found.text is None:
        return Verdict(0.0, found.status or Status.NO_ANSWER, detail=found.detail, grader=GRADER)
    return grade_code(found.text, tests, sandbox=sandbox, limits=limits, settings=settings, where=found.where)


def grade_code(
    code: str,
    tests: Sequence[Test],
    *,
    files: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
    settings: CodeSettings | None = None,
    where: tuple[int, int] | None = None,
) -> Verdict:
    """Grade a program. Each test runs in a process of its own, so tests cannot disturb each other.

    Args:
        code: Python.
        tests: at least one; without any there is no score (``bad_data``).
        files: path -> text, beside the program.
        sandbox: this process's own by default.
        limits: of each test; the sandbox's by default.
        settings: see `CodeSettings`.
        where: where the code stood in the response.

    Returns:
        The status of the first test that fails, or ``right``. ``rewards["tests"]`` is the share that passed.
        Where a test could not be run by our fault there is no score.
    """
    settings = settings or CodeSettings()
    told = {"partial": str(settings.partial), "compare": settings.compare, "rel_tol": repr(settings.rel_tol)}
    if not tests:
        return Verdict(None, Status.BAD_DATA, code, "no tests", where=where, grader=GRADER, settings=told)
    sandbox = sandbox or shared_sandbox()
    failure: tuple[str, str] | None = None
    num_right, left = 0, settings.total_s
    for number, test in enumerate(tests, 1):
        status, detail, seconds = _graded(code, test, files or {}, sandbox, limits, settings, left)
        left -= seconds
        if status == Status.INFRASTRUCTURE_ERROR:
            return Verdict(None, status, code, detail, where=where, grader=GRADER, settings=told)
        num_right += status == Status.RIGHT
        if status != Status.RIGHT:
            failure = failure or (status, f"test {number} of {len(tests)}: {detail}")
            if not settings.partial:
                break
    share = num_right / len(tests)
    score = share if settings.partial else float(failure is None)
    status, detail = failure or (Status.RIGHT, "")
    rewards = {"tests": share} if settings.partial else {}
    return Verdict(score, status, code, detail, rewards, where, GRADER, told)


def grade_many(
    items: Sequence[tuple[str, Sequence[Test]]],
    *,
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
    settings: CodeSettings | None = None,
) -> list[Verdict]:
    """Grade responses in all slots of the sandbox; verdicts come in their order."""
    sandbox = sandbox or shared_sandbox()

    def one(item: tuple[str, Sequence[Test]]) -> Verdict:
        return grade(item[0], item[1], sandbox=sandbox, limits=limits, settings=settings)

    futures = [sandbox.submit(one, item) for item in items]
    return [future.result() for future in futures]


async def grade_async(
    response: str,
    tests: Sequence[Test],
    *,
    sandbox: Sandbox | None = None,
    limits: Limits | None = None,
    settings: CodeSettings | None = None,
) -> Verdict:
    """Grade a response without holding up the event loop."""
    import asyncio
    from functools import partial

    sandbox = sandbox or shared_sandbox()
    work = partial(grade, response, tests, sandbox=sandbox, limits=limits, settings=settings)
    return await asyncio.wrap_future(sandbox.submit(work))


def _graded(
    code: str,
    test: Test,
    files: Mapping[str, str],
    sandbox: Sandbox,
    limits: Limits | None,
    settings: CodeSettings,
    left_s: float,
) -> tuple[str, str, float]:
    """Run one test; return its status, what happened, and the seconds that it took."""
    if left_s <= 0:
        return Status.TIMEOUT, f"the program's {settings.total_s:g} s were used up before it", 0.0
    if isinstance(test, CallTest):
        call = Call(test.function, test.args, test.kwargs)
        outcome = sandbox.run(Program(code, call=call, files=files), limits)
        return *_judge_call(outcome, test, settings), outcome.wall_s
    outcome = sandbox.run(Program(code, test.stdin, files=files), limits)
    return *_judge_output(outcome, test, settings), outcome.wall_s


def _judge_call(outcome: Outcome, test: CallTest, settings: CodeSettings) -> tuple[str, str]:
    if outcome.ending is not Ending.DONE:
        return _status(outcome), outcome.detail
    try:
        if is_equal(outcome.value, test.expected, settings.rel_tol):
            return Status.RIGHT, ""
    except RecursionError:
        return Status.WRONG, "returned a value that is nested too deep"
    return Status.WRONG, f"returned {_short(outcome.value)}, expected {_short(test.expected)}"


def _judge_output(outcome: Outcome, test: StdinTest, settings: CodeSettings) -> tuple[str, str]:
    is_same = _is_same_output(outcome.stdout, test.expected, settings)
    if outcome.ending is Ending.EXITED and outcome.exit_code == 0 and outcome.stdout.strip():
        # It left by os._exit(0): what it wrote is evidence, its silence would be none.
        return (Status.RIGHT, "") if is_same else (Status.WRONG, _differs(outcome.stdout, test.expected))
    if outcome.ending is not Ending.DONE:
        return _status(outcome), outcome.detail
    return (Status.RIGHT, "") if is_same else (Status.WRONG, _differs(outcome.stdout, test.expected))


def _status(outcome: Outcome) -> str:
    ending = outcome.ending
    if ending.is_limit:
        return Status.LIMIT_HIT
    if ending is Ending.EXITED:
        return NO_VERDICT if outcome.exit_code in (0, -1) else Status.RUNTIME_ERROR
    if ending is Ending.TIMEOUT:
        return Status.TIMEOUT
    return Status.INFRASTRUCTURE_ERROR if ending is Ending.INFRASTRUCTURE else Status.RUNTIME_ERROR


def _is_same_output(output: str, expected: str, settings: CodeSettings) -> bool:
    if settings.compare == "exact":
        return output == expected
    if settings.compare == "lines":
        return _lines(output) == _lines(expected)
    words, right = output.split(), expected.split()
    return len(words) == len(right) and all(
        a == b or is_equal(_number(a), _number(b), settings.rel_tol)
        for a, b in zip(words, right, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _number(word: str) -> float | object | None:
    """Return a word's number, or an object that equals nothing."""
    return float(word) if re.fullmatch(r"[-+]?\d{1,300}(\.\d*)?([eE][-+]?\d{1,3})?", word) else object()


def _differs(output: str, expected: str) -> str:
    return f"wrote {_short(output)}, expected {_short(expected)}"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of too many digits, or nested too deep
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"
