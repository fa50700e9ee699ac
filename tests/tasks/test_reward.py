"""User reward functions: both conventions, and every way to fail."""

import math

import numpy as np
import pytest

from rollwright.errors import ConfigError, UnknownName
from rollwright.grade.reward import load_reward
from rollwright.tasks.registry import load_task

FILE = """
def simple(prompt, completion, **row):
    return len(completion) / 10

def listed(completions, prompts, level, **kwargs):
    return [float(c == p) + l for c, p, l in zip(completions, prompts, level)]

def strict(completion):
    return 1.0 if completion == "yes" else 0.0

def raises(prompt, completion):
    return {}["missing"]

def no_text(prompt, answer):
    return 1.0
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(FILE)
    return path


def test_both_conventions(file):
    """Oracle: the functions' closed forms; kills passing bare values to TRL's list form."""
    simple = load_reward(f"{file}:simple")("p", "abcde", {"level": 2})
    assert (simple.score, simple.status, simple.rewards) == (0.5, "wrong", {"simple": 0.5})
    listed = load_reward(f"{file}:listed")("p", "p", {"level": 2, "other": 1})
    assert (listed.score, listed.status) == (3.0, "right")
    assert load_reward(f"{file}:strict")("p", "yes", {"level": 2}).status == "right"


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, "1.0", [1.0], {}, np.array([1.0, 2.0]), np.float32("nan"), 10**400],
)
def test_what_is_no_finite_number_is_not_scored(value):
    """Oracle: the law that a failure is never a reward; kills float(value) without the check."""

    def reward(prompt, completion):
        return value

    verdict = load_reward(reward)("p", "c", {})
    assert (verdict.score, verdict.status, verdict.rewards) == (None, "grader_error", {})
    assert "reward" in verdict.detail and "finite" in verdict.detail


@pytest.mark.parametrize("value", [1, 1.0, True, np.float32(1), np.int64(1), np.array(1.0)])
def test_numbers_of_any_kind_are_plain_floats(value):
    """Oracle: type and value; kills numpy scalars in records."""
    verdict = load_reward(lambda completion: value)("p", "c", {})
    assert type(verdict.score) is float and verdict.score == 1.0


def test_raising_and_none(file):
    """Oracle: the documented table; kills an exception that becomes a zero, and None as a failure."""
    verdict = load_reward(f"{file}:raises")("p", "c", {})
    assert (verdict.score, verdict.status) == (None, "grader_error")
    assert "raises" in verdict.detail and "KeyError" in verdict.detail
    none = load_reward(lambda prompt, completion: None)("p", "c", {})
    assert (none.score, none.status) == (None, "not_scored")
    short = load_reward(lambda completions: [])("p", "c", {})
    assert (short.score, short.status) == (None, "grader_error")
    missing = load_reward(lambda completion, answer: 1.0)("p", "c", {})
    assert missing.status == "grader_error" and "answer" in missing.detail


@pytest.mark.parametrize(
    "spec, error, message",
    [
        ("{file}:smple", UnknownName, "did you mean 'simple'"),
        ("{file}", ConfigError, "file.py:function"),
        ("{file}x.py:simple", ConfigError, "no file"),
        ("{file}:no_text", ConfigError, "completion"),
    ],
)
def test_names_that_cannot_be_loaded(file, spec, error, message):
    """Oracle: the error tree."""
    with pytest.raises(error, match=message):
        load_reward(spec.format(file=file))


def test_a_file_that_fails_while_loading(tmp_path):
    """Oracle: the error tree; the user's own error is named."""
    (tmp_path / "bad.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(ConfigError, match="nothing_of_this_name"):
        load_reward(f"{tmp_path / 'bad.py'}:f")


def test_several_rewards_on_a_built_in_task(file):
    """Oracle: their sum; one that fails leaves the rollout unscored, one that gives None does not count."""

    def nothing(completion):
        return None

    task = load_task("countdown", reward=[f"{file}:simple", f"{file}:strict", nothing])
    verdict = task.grade("countdown/train/0", None, ["yes"], False)
    assert verdict.score == pytest.approx(1.3) and set(verdict.rewards) == {"simple", "strict"}
    failing = load_task("countdown", reward=[f"{file}:simple", f"{file}:raises"])
    assert failing.grade("countdown/train/0", None, ["yes"], False).score is None
    assert load_task("lake", reward=nothing).max_turns == load_task("lake").max_turns
