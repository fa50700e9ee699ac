"""User reward functions: both conventions, and every way to fail."""

import math

import numpy as np
import pytest

from rollwright.drive.world import World
from rollwright.errors import ConfigError, UnknownName
from rollwright.events import Score
from rollwright.grade.reward import load_function, load_reward
from rollwright.tasks.registry import load_task
from rollwright.tree import Node, Origin

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


def test_the_world_gives_the_sampled_tokens_and_the_newest_version():
    """By hand: prompt, turn (version 3), observation, turn cut by an update (versions 3, 4): 5 sampled ids.

    Kills: text encoded again, observations among the ids, the version of the first token.
    """
    seen = {}

    def by_ids(completions, completion_ids, trainer_state, **columns):
        seen.update(ids=completion_ids, step=trainer_state.global_step, said=completions)
        return [1.0]

    def node(name, parent, origin, tokens, version=None):
        logprobs = None if version is None else (-1.0,) * len(tokens)
        at = len(nodes[parent].tokens) if parent else 0
        nodes[name] = Node(name, parent, at, origin, tokens, version=version, logprobs=logprobs)

    nodes: dict[str, Node] = {}
    tokenizer = WordTokenizer()
    node("g/root", None, Origin.PROMPT, (2, 3))
    node("g/0", "g/root", Origin.SAMPLED, (10, 11), 3)
    node("g/1", "g/0", Origin.OBSERVATION, (5, 5))
    node("g/2", "g/1", Origin.SAMPLED, (12,), 3)
    node("g/3", "g/2", Origin.SAMPLED, (13, 1), 4)
    task = load_task("calc", reward=by_ids)
    event = World(task, tokenizer, (1,)).score(Score("s", "g", "g/3"), "calc/train/0", nodes, False)
    assert event.reward == 1.0, event
    assert seen == {"ids": [[10, 11, 12, 13, 1]], "step": 4, "said": ["<10><11><12><13>"]}


class WordTokenizer:
    """A word for each id."""

    def encode(self, text):
        raise AssertionError("text was encoded again")

    def decode(self, ids):
        return "".join(f"<{token}>" for token in ids)


def test_a_task_whose_right_answers_are_looked_at_by_a_critic(tmp_path):
    """By hand: the reward sees the last number only; a right end by a wrong step is 0 instead of 1."""
    (tmp_path / "rows.jsonl").write_text('{"prompt": "2+3+4", "answer": 9}\n')
    (tmp_path / "mine.py").write_text(
        "from rollwright.grade.generative.arithmetic import critic\n"
        "from rollwright.grade.generative.fapo import Critic, FlawAware\n"
        "from rollwright.tasks.registry import load_task\n"
        "from rollwright.tasks.rewarded import Shaped\n"
        "def ends(completion, answer):\n"
        "    return float(completion.endswith(f'={answer}'))\n"
        "def checked(path: str):\n"
        "    task = load_task(f'jsonl:{path}', reward=ends, test_share=0.0)\n"
        "    return Shaped(task, FlawAware(Critic(critic())).shape, 'flaw_aware/1')\n"
    )
    task = load_function(f"{tmp_path / 'mine.py'}:checked")(str(tmp_path / "rows.jsonl"))
    [number] = task.ids("train")
    said = ["2+3=5\n5+4=9", "2+3=6\n6+3=9", "2+3=5\n5+4=8"]
    verdicts = [task.grade(number, None, [text], False) for text in said]
    assert [(v.score, v.status) for v in verdicts] == [(1.0, "right"), (0.0, "flawed"), (-1.0, "wrong")]
    assert verdicts[1].rewards == {"ends": 1.0, "outcome": 1.0, "is_flawed": 1.0, "first_error": 0.0}
    assert task.grader_version == "flaw_aware/1>reward:ends" and task.wants_record
