"""The graders of `rollwright.grade` by name, for tasks whose answers stand in rows."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rollwright.config_checks import convert_options
from rollwright.errors import ConfigError, DataError, GraderError, UnknownName
from rollwright.grade.answers import extract
from rollwright.grade.answers.found import How
from rollwright.grade.verdict import Status, Verdict

Settings = tuple[tuple[str, Any], ...]  # sorted pairs, so that a task that holds them is a value


def _exact(response: str, gold: str) -> Verdict:
    said = response.strip()
    if not said:
        return Verdict(0.0, Status.NO_ANSWER, None)
    is_right = said == gold.strip()
    return Verdict(float(is_right), Status.RIGHT if is_right else Status.WRONG, said)


def _math(
    response: str,
    gold: str,
    *,
    percent: Literal["value", "number", "either"] = "value",
    units: Literal["optional", "required"] = "optional",
    rel_tol: float = 1e-6,
    guess: bool = False,
    timeout_s: float = 5.0,
) -> Verdict:
    from rollwright.grade.math import MathSettings, grade_many

    [verdict] = grade_many([(response, gold)], timeout_s, MathSettings(percent, units, rel_tol, guess))
    return verdict


def _choice(response: str, gold: str, *, num_options: int = 26) -> Verdict:
    from rollwright.grade.choice import grade_choice

    return grade_choice(response, gold, num_options)


def _text(response: str, gold: str, *, mode: Literal["exact", "normalised"] = "normalised") -> Verdict:
    from rollwright.grade.text import grade_text

    return grade_text(response, gold, mode)


def _numeric(response: str, gold: str, *, rel_tol: float = 1e-6, abs_tol: float = 0.0) -> Verdict:
    from rollwright.grade.numeric import grade_numeric

    return grade_numeric(response, gold, rel_tol, abs_tol)


def _json(response: str, gold: str, *, rel_tol: float = 0.0) -> Verdict:
    from rollwright.grade.structured import grade_json

    return grade_json(response, gold, rel_tol)


def _regex(response: str, gold: str, *, timeout_s: float = 2.0) -> Verdict:
    from rollwright.grade.structured import grade_regex

    return grade_regex(response, gold, timeout_s)


def _sql(
    response: str,
    gold: str,
    *,
    setup: str = "",
    is_ordered: bool = False,
    rel_tol: float = 1e-9,
    timeout_s: float = 10.0,
) -> Verdict:
    from rollwright.grade.sql import grade_sql

    return grade_sql(response, gold, setup, is_ordered, rel_tol, timeout_s)


def _code(
    response: str,
    gold: str,
    *,
    partial: bool = True,
    compare: Literal["lines", "tokens", "exact"] = "lines",
    rel_tol: float = 1e-9,
    total_s: float = 60.0,
) -> Verdict:
    from rollwright.grade.code import CodeSettings, grade
    from rollwright.tasks._code_tests import tests_of

    settings = CodeSettings(partial, compare, rel_tol, total_s)
    return grade(response, tests_of(json.loads(gold)), settings=settings)


_GRADERS: dict[str, Callable[..., Verdict]] = {
    "exact": _exact,
    "math": _math,
    "choice": _choice,
    "text": _text,
    "numeric": _numeric,
    "json": _json,
    "regex": _regex,
    "sql": _sql,
    "code": _code,
}
_FENCED, _WHOLE, _STRUCTURED = ("json", "sql", "code"), ("exact", "regex"), ("json", "code")


@dataclass(frozen=True, slots=True)
class RowGrader:
    """One grader with its settings.

    Args:
        name: ``exact``, ``math``, ``choice``, ``text``, ``numeric``, ``json``, ``regex``, ``sql``, ``code``.
        settings: of that grader, by name; what is left out has its default.

    Raises:
        UnknownName: no such grader or setting, with a suggestion.
        ConfigError: a setting of the wrong type or out of range.
    """

    name: str
    settings: Settings = ()

    def __post_init__(self) -> None:
        if self.name not in _GRADERS:
            raise UnknownName("grader", self.name, _GRADERS)
        function, given = _GRADERS[self.name], dict(self.settings)
        known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        for setting in given:
            if setting not in known:
                raise UnknownName(f"setting of the grader {self.name!r}", setting, known)
        converted = convert_options(f"the grader {self.name!r}", function, given)
        _check_ranges(self.name, converted)
        object.__setattr__(self, "settings", tuple(sorted(converted.items())))

    def with_settings(self, name: str | None, settings: Mapping[str, Any]) -> RowGrader:
        """Return the grader of a row that names its own, or settings of its own."""
        if name is not None and name != self.name:
            return RowGrader(name, tuple(settings.items()))
        return RowGrader(self.name, tuple({**dict(self.settings), **settings}.items())) if settings else self

    def gold(self, answer: Any) -> str:
        """Return a row's answer as the text that the grader compares with."""
        is_text = self.name not in _STRUCTURED or (self.name == "json" and isinstance(answer, str))
        return str(answer) if is_text else json.dumps(answer, ensure_ascii=False)

    def complaint(self, answer: Any) -> str | None:
        """Return what is wrong with a row's answer, or None."""
        if self.name not in _STRUCTURED and not isinstance(answer, str | int | float):
            return "expected a string or a number"
        gold = self.gold(answer)
        if not gold.strip() and self.name != "exact":
            return "expected an answer that is not empty"
        check = _GOLD_CHECKS.get(self.name)
        return None if check is None else check(gold, dict(self.settings))

    def grade(self, response: str, answer: Any, truncated: bool) -> Verdict:
        """Grade a response. In one that was cut, only an answer that was closed counts: a box, or a fence.

        Raises:
            GraderError: no worker process can be started.
        """
        if truncated and not self._is_closed(response):
            return Verdict(
                0.0, Status.TRUNCATED, response.strip() or None, "cut before its answer was closed"
            )
        try:
            return _GRADERS[self.name](response, self.gold(answer), **dict(self.settings))
        except GraderError:
            raise
        except Exception as error:  # a grader's own mistake says nothing about the answer
            return Verdict(None, Status.GRADER_ERROR, None, f"{self.name}: {type(error).__name__}: {error}")

    def _is_closed(self, response: str) -> bool:
        if self.name in _WHOLE:
            return False
        if self.name in _FENCED:
            num = len(re.findall(r"^```", response, re.MULTILINE))
            return num > 0 and num % 2 == 0
        return extract(response).how is How.BOX


def _check_ranges(name: str, settings: dict[str, Any]) -> None:
    for setting, value in settings.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        low = {"timeout_s": 1e-3, "total_s": 1e-3, "num_options": 2}.get(setting, 0)
        if is_number and not low <= value < float("inf"):
            raise ConfigError(f"{setting}={value} of the grader {name!r}: expected at least {low}")
    if name == "math":
        from rollwright.grade.math import MathSettings

        MathSettings(**{key: value for key, value in settings.items() if key != "timeout_s"})


def _choice_complaint(gold: str, settings: dict[str, Any]) -> str | None:
    from rollwright.grade.choice import read_letter

    num = settings.get("num_options", 26)
    return None if read_letter(gold, num) else f"expected one of the first {num} letters"


def _numeric_complaint(gold: str, settings: dict[str, Any]) -> str | None:
    from rollwright.grade.math.expression import TooLarge, Unreadable
    from rollwright.grade.numeric import read_number

    try:
        read_number(gold)
    except (Unreadable, TooLarge) as error:
        return f"expected a number ({error})"
    return None


def _json_complaint(gold: str, settings: dict[str, Any]) -> str | None:
    from rollwright.grade.structured import read_json

    try:
        read_json(gold)
    except ValueError as error:
        return f"expected JSON ({error})"
    return None


def _regex_complaint(gold: str, settings: dict[str, Any]) -> str | None:
    try:
        re.compile(gold)
    except re.error as error:
        return f"expected a regular expression ({error})"
    return None


def _code_complaint(gold: str, settings: dict[str, Any]) -> str | None:
    from rollwright.tasks._code_tests import tests_of

    try:
        tests_of(json.loads(gold))
    except DataError as error:
        return str(error)
    return None


_GOLD_CHECKS: dict[str, Callable[[str, dict[str, Any]], str | None]] = {
    "choice": _choice_complaint,
    "numeric": _numeric_complaint,
    "json": _json_complaint,
    "regex": _regex_complaint,
    "code": _code_complaint,
}
