"""Critics, rewriters, self-judges and self-made rubrics: each mechanism with a rule in the model's place."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest

from rollwright.errors import ConfigError, GraderError
from rollwright.grade.generative import arithmetic
from rollwright.grade.generative.cat import Teacher
from rollwright.grade.generative.fapo import Critic, FlawAware, locating_reward, split_steps
from rollwright.grade.generative.rlmec import alignment, imitation_weights, num_edits, token_rewards
from rollwright.grade.generative.spark import agreement, judge_tasks, rows, swapped
from rollwright.grade.judge import Judge, Scripted
from rollwright.grade.verdict import Status, Verdict
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory


def chain(rng, num=4, wrong=None):
    """Return a chain of sums as lines; ``wrong`` is the step with a false result, passed over by the next."""
    value, lines = int(rng.integers(1, 9)), []
    for place in range(num):
        more = int(rng.integers(1, 9))
        said = value + more + (1 if place == wrong else 0)
        lines.append(f"{value}+{more}={said}")
        value += more
    return lines


def graded(right):
    return Verdict(float(right), Status.RIGHT if right else Status.WRONG)


def advantages(scores):
    """Return GRPO's advantage of each score, through the stage itself."""
    nodes = {"r": Node("r", None, 0, Origin.PROMPT, (1,))}
    trajectories = []
    for k, score in enumerate(scores):
        name = f"n{k}"
        nodes[name] = Node(
            name, "r", 1, Origin.SAMPLED, (2,), f"0/{k}", 1, "policy", 0, (-1.0,), stop=StopReason.EOS
        )
        trajectories.append(Trajectory(name, k, reward=score, score=score))
    group = GroupNorm()(Group("g", "t", nodes, tuple(trajectories)))
    return [t.advantages[0] for t in group.trajectories]


# ---------------------------------------------------------------- FAPO


def test_a_critic_finds_the_planted_step():
    """Oracle: the place where the error was put, for 200 chains, in one batch; none in 50 sound ones."""
    rng = np.random.default_rng(0)
    places = [int(rng.integers(4)) for _ in range(200)] + [None] * 50
    solutions = [("q", chain(rng, wrong=place)) for place in places]
    assert [c.first_error for c in Critic(arithmetic.critic()).locate(solutions)] == places


def test_a_flawed_answer_changes_sign_where_the_mean_crosses_its_score():
    """Oracle: GRPO's own stage over all mixes of 8: a flawed answer gains exactly while wrong ones outnumber
    right ones, and with no flaw the advantages are those of ±1."""
    rng = np.random.default_rng(1)
    good, flawed, bad = chain(rng), chain(rng, wrong=2), ["0+0=0"]
    shape = FlawAware(Critic(arithmetic.critic()))
    for num_right, num_flawed in itertools.product(range(5), range(1, 4)):
        num_wrong = 8 - num_right - num_flawed
        texts = ["\n".join(x) for x in [good] * num_right + [flawed] * num_flawed + [bad] * num_wrong]
        verdicts = [graded(True)] * (num_right + num_flawed) + [graded(False)] * num_wrong
        shaped = shape.shape("q", texts, verdicts)
        scores = [v.score for v in shaped]
        assert scores == [1.0] * num_right + [0.0] * num_flawed + [-1.0] * num_wrong
        assert np.sign(advantages(scores)[num_right]) == np.sign(num_wrong - num_right)
    texts, verdicts = ["\n".join(good)] * 3 + ["0+0=0"] * 5, [graded(True)] * 3 + [graded(False)] * 5
    plain = advantages([1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0])
    assert advantages([v.score for v in shape.shape("q", texts, verdicts)]) == plain


def test_only_right_answers_are_shown_and_a_failing_critic_is_no_score():
    """By hand: the log of what was asked; unreadable, unreachable and a step too many are unscored."""
    asked = []
    counting = Scripted(lambda prompt: asked.append(prompt) or '{"first_error": 0}')
    texts, verdicts = ["a\nb", "c\nd", "e"], [graded(True), graded(False), Verdict(None, "bad_data")]
    shaped = FlawAware(Critic(counting)).shape("q", texts, verdicts)
    assert [v.score for v in shaped] == [1.0, -1.0, None] and len(asked) == 1
    assert shaped[2] is verdicts[2]
    for said, status in (
        ("no", "unreadable"),
        (None, "infrastructure_error"),
        ('{"first_error": 3}', "unreadable"),
    ):
        [one] = FlawAware(Critic(Scripted(lambda _, s=said: s))).shape("q", ["a\nb"], [graded(True)])
        assert (one.score, one.status, one.rewards) == (None, status, {"outcome": 1.0})
    [half] = FlawAware(Critic(arithmetic.critic()), 0.5).shape("q", ["1+1=3"], [graded(True)])
    assert (half.score, half.status, half.rewards["first_error"]) == (0.5, "flawed", 0.0)
    with pytest.raises(ConfigError):
        FlawAware(Critic(counting), -1.0)


def test_the_reward_of_a_critic():
    """By hand: ±1 for the flag, less |t̂ − t*| / n where it flags what is flawed."""
    cases = [(None, None, 1.0), (None, 2, -1.0), (2, None, -1.0), (2, 2, 1.0), (0, 3, 0.25)]
    for said, truth, reward in cases:
        assert locating_reward(said, truth, 4) == reward
    assert split_steps("a\nb\n\nc") == ["a\nb", "c"] and split_steps("a\nb") == ["a", "b"]


# ---------------------------------------------------------------- RLMEC


def brute_distance(a, b):
    """Return the least number of edits by plain recursion."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        brute_distance(a[1:], b[1:]) + (a[0] != b[0]),
        brute_distance(a[1:], b) + 1,
        brute_distance(a, b[1:]) + 1,
    )


def test_the_alignment_has_as_few_edits_as_there_can_be():
    """Oracle: brute force over all pairs of strings of two letters up to length 4; it rebuilds the text."""
    strings = ["".join(s) for n in range(5) for s in itertools.product("ab", repeat=n)]
    for a, b in itertools.product(strings, strings):
        edits = alignment(a, b)
        assert num_edits(edits) == brute_distance(a, b), (a, b)
        assert "".join(b[e.after] for e in edits if e.kind != "delete") == b
        assert [e.before for e in edits if e.kind != "insert"] == list(range(len(a)))
        assert all(a[e.before] == b[e.after] for e in edits if e.kind == "keep")


def test_token_rewards_flag_the_corrupted_token():
    """Oracle: the planted corruption of 60 chains, against a noisy rewriter: AUROC above 0.9."""
    rng = np.random.default_rng(2)
    scores, labels = [], []
    for seed in range(60):
        text = list("\n".join(chain(rng)))
        place = int(rng.choice([k for k, c in enumerate(text) if c == "="])) + 1
        corrupted = [*text]
        corrupted[place] = str((int(text[place]) + 1) % 10)
        rewards = token_rewards(arithmetic.SumRewriter(0.2, seed).probabilities("q", corrupted))
        scores += rewards
        labels += [k == place for k in range(len(corrupted))]
    scores, labels = np.array(scores), np.array(labels)
    wins = (scores[labels][:, None] < scores[~labels]).mean() + 0.5 * (
        scores[labels][:, None] == scores[~labels]
    ).mean()
    assert wins > 0.9


def test_only_edited_tokens_are_imitated():
    """By hand: replaced and inserted tokens share the weight, kept ones have none, no change is all 0."""
    before, after = list("3+4=8"), arithmetic.SumRewriter().rewrite("q", list("3+4=8"))
    assert "".join(after) == "3+4=7" and imitation_weights(before, after) == [0, 0, 0, 0, 1.0]
    assert imitation_weights("abc", "axcy", decay=0.5) == pytest.approx([0, 2 / 3, 0, 1 / 3])
    assert imitation_weights("abc", "abc") == [0, 0, 0] and imitation_weights("abc", "ab") == [0, 0]
    assert token_rewards([1.0, 0.9, 0.5, 0.0]) == pytest.approx([0.0, 0.0, -0.4, -0.8])
    for wrong in (lambda: token_rewards([1.2]), lambda: token_rewards([0.5], 0.9, 0.1)):
        with pytest.raises(GraderError):
            wrong()
    with pytest.raises(GraderError):
        imitation_weights("a", "b", decay=0.0)


# ---------------------------------------------------------------- SPARK-CoEvolve


def test_labels_are_the_verifiers_and_orders_are_balanced():
    """Oracle: the logged verdicts: every label equals them, unscored rollouts are in no question, and of the
    pairs half have the right answer first."""
    rng = np.random.default_rng(3)
    answers = [f"answer {k}" for k in range(9)]
    verdicts = [graded(k % 3 == 0) for k in range(8)] + [Verdict(None, Status.GRADER_ERROR)]
    kinds = ("pointwise", "pairwise", "reflection")
    tasks = judge_tasks("q", answers, verdicts, rng, kinds, reflections={0: "fine", 1: "hm", 8: "?"})
    counts = Counter(task.kind for task in tasks)
    assert counts == {"pointwise": 8, "pairwise": 3 * 5, "reflection": 2}
    for task in tasks:
        assert 8 not in task.sources
        right = [verdicts[source].status == "right" for source in task.sources]
        if task.kind == "pairwise":
            assert sorted(right) == [False, True] and task.label == ("first" if right[0] else "second")
            assert task.prompt.index(answers[task.sources[0]]) < task.prompt.index(answers[task.sources[1]])
        else:
            assert task.label is right[0]
    firsts = [task.label == "first" for task in tasks if task.kind == "pairwise"]
    assert abs(sum(firsts) - len(firsts) / 2) <= 0.5
    assert len(judge_tasks("q", answers, verdicts, rng, ("pairwise",), max_pairs=4)) == 4
    assert len({row["id"] for row in rows(tasks, "g0")}) == len(tasks)
    again = judge_tasks("q", answers, verdicts, np.random.default_rng(3), kinds, {0: "fine", 1: "hm", 8: "?"})
    assert again == tasks  # the same seed makes the same questions


def test_agreement_pays_what_the_verifier_said():
    """By hand: agreement 1, disagreement 0, and an unreadable reply is the policy's own failing: 0."""
    task, *_ = judge_tasks("q", ["a"], [graded(True)], np.random.default_rng(0))
    assert [agreement(task, f'{{"right": {w}}}').score for w in ("true", "false")] == [1.0, 0.0]
    assert agreement(task, task.answer).status == "right"
    assert (agreement(task, "yes").score, agreement(task, "yes").status) == (0.0, "no_answer")
    [pair] = judge_tasks(
        "q", ["a", "b"], [graded(True), graded(False)], np.random.default_rng(0), ("pairwise",)
    )
    assert agreement(pair, pair.answer).score == 1.0
    assert agreement(swapped(pair, "q", ["a", "b"]), pair.answer).score == 0.0


def test_a_tiny_judge_learns_from_agreement_alone():
    """Oracle: held-out accuracy and consistency under a swap, of a logistic judge trained by REINFORCE.

    It sees features of two answers, and is paid by `agreement` on questions that a group's verdicts made.
    """
    rng = np.random.default_rng(4)
    direction = np.array([1.0, -0.5, 0.0, 0.0])

    def group():
        features = rng.normal(size=(6, 4))
        return features, [graded(x @ direction > 0) for x in features]

    def chance_of_first(weights, features, task):
        first, second = task.sources
        return 1 / (1 + np.exp(-weights @ (features[first] - features[second])))

    weights = np.zeros(4)
    answers = [f"a{k}" for k in range(6)]
    for _ in range(150):
        features, verdicts = group()
        for task in judge_tasks("q", answers, verdicts, rng, ("pairwise",), max_pairs=4):
            p = chance_of_first(weights, features, task)
            says_first = rng.random() < p
            reward = agreement(task, json.dumps({"better": "first" if says_first else "second"})).score
            difference = features[task.sources[0]] - features[task.sources[1]]
            weights += 0.2 * (reward - 0.5) * (float(says_first) - p) * difference
    right = consistent = total = 0
    for _ in range(60):
        features, verdicts = group()
        for task in judge_tasks("q", answers, verdicts, rng, ("pairwise",)):
            other = swapped(task, "q", answers)
            one, two = (chance_of_first(weights, features, t) > 0.5 for t in (task, other))
            right += one == (task.label == "first")
            consistent += one != two
            total += 1
    assert right / total > 0.85 and consistent == total


# ---------------------------------------------------------------- CaT


def same_end(answer, reference):
    return graded(answer.rpartition("=")[2] == reference.rpartition("=")[2])


def test_the_reference_may_be_right_where_every_answer_is_wrong():
    """By hand: answers with a false step each, at other places: joined they are right, a vote is not."""
    truth = ["2+3=5", "5+4=9", "9+1=10"]
    answers = ["2+3=6\n6+4=10\n10+1=11", "2+3=5\n5+4=8\n8+1=9", "2+3=5\n5+4=9\n9+1=11"]
    teacher = Teacher(arithmetic.anchor())
    assert teacher.reference(answers).value.splitlines() == truth[:2]  # the last step is nowhere right
    answers.append("1+1=2\n2+2=4\n9+1=10")
    assert teacher.reference(answers).value.splitlines() == truth
    ends = Counter(answer.rpartition("=")[2] for answer in answers[:3])
    assert "10" not in ends
    verdicts = teacher.grade("q", answers, same_end)
    assert [v.score for v in verdicts] == [0.0, 0.0, 0.0, 1.0]
    assert verdicts[0].settings["signal"] == "self_consistency" and verdicts[0].rewards["signal_rank"] == 2.0


def test_more_answers_make_a_better_reference():
    """Oracle: a simulation: each step is false with chance 0.4; accuracy does not fall with G."""
    rng = np.random.default_rng(6)

    def noisy(truth):
        lines = []
        for step in truth:
            left, right = step.split("=")
            lines.append(f"{left}={int(right) + 1}" if rng.random() < 0.4 else step)
        return lines

    truths = [chain(rng, 5) for _ in range(150)]
    accuracy = []
    for num in (1, 2, 4, 8, 16):
        hits = [arithmetic.joined([noisy(truth) for _ in range(num)]) == truth for truth in truths]
        accuracy.append(np.mean(hits))
    assert accuracy == sorted(accuracy) and accuracy[0] < 0.2 and accuracy[-1] > 0.95


def test_rubrics_that_the_anchor_makes():
    """Oracle: the share of the reference's steps that an answer has, counted; always within 0 and 1."""
    answers = ["2+3=5\n5+4=9\n9+1=10", "2+3=5\n5+4=8", "2+3=5\n5+4=9\n9+1=11", ""]
    teacher = Teacher(arithmetic.anchor(), Judge(arithmetic.ticker()))
    verdicts = teacher.grade("q", answers)
    assert [v.score for v in verdicts] == pytest.approx([1.0, 1 / 3, 2 / 3, 0.0])
    assert verdicts[0].rewards == {"c0": 1.0, "c1": 1.0, "c2": 1.0, "signal_rank": 3.0}
    assert "5+4=9" in verdicts[1].settings["reference"]


def test_the_anchor_sees_the_answers_only_and_its_failure_scores_nobody():
    """By hand: the question is not in its prompt; what cannot be read leaves the whole group unscored."""
    asked = []
    deaf = Scripted(lambda prompt: asked.append(prompt) or "well")
    verdicts = Teacher(deaf, attempts=1).grade("the secret question", ["a", "b"], same_end)
    assert [(v.score, v.status) for v in verdicts] == [(None, "unreadable")] * 2
    assert "secret" not in asked[0] and asked[0].count("<<<answer ") == 2
    lonely = Teacher(arithmetic.anchor()).grade("q", ["1+1=2"])
    assert lonely[0].score is None and "judge" in lonely[0].detail
    for items in (["x"], ["x", "x"], ["x", ""], ["x", 1], ["x", "y", "z"]):
        says = json.dumps({"criteria": items})
        anchor = Scripted(lambda p, s=says: s if '"criteria"' in p else '{"answer": "x"}')
        assert (
            Teacher(anchor, Judge(Scripted(lambda _: '{"met": true}')), most=2).grade("q", ["a"])[0].status
            == "unreadable"
        ), items
