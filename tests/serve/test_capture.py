"""Rollouts as trees of tokens, from calls alone: no server."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from rollwright.events import Sampled
from rollwright.serve.capture import Rollout, read_groups
from rollwright.tree import Origin, Sampling, StopReason


def play(rollout, prompt, ids, stop=StopReason.EOS, version=0, choice=0, call=None):
    """Make one call and its answer in two chunks."""
    call = call or rollout.begin({"protocol": "completions"}, prompt, Sampling())
    half = len(ids) // 2
    for part, end in ((ids[:half], None), (ids[half:], stop)):
        logprobs = tuple(-float(i) for i in part)
        rollout.take(
            call, choice, Sampled(ask="a", tokens=tuple(part), logprobs=logprobs, version=version, stop=end)
        )
    return call


def rows(rollout):
    """Return (ids, mask) of every trajectory, in order."""
    found = []
    for group in rollout.to_groups():
        for trajectory in group.trajectories:
            response = group.response(trajectory)
            mask = [False] * len(response.prompt) + response.is_sampled.tolist()
            found.append(([*response.prompt, *response.tokens], mask))
    return found


def test_a_dialogue_is_one_trajectory():
    """Hand: prompts that go on from what was said join; the mask is on the sampled ids only."""
    rollout = Rollout("r")
    play(rollout, [1, 2], [3, 4])
    play(rollout, [1, 2, 3, 4, 5], [6])
    play(rollout, [1, 2, 3, 4, 5, 6], [7, 8])  # nothing new in between
    ((ids, mask),) = rows(rollout)
    assert ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert mask == [False, False, True, True, False, True, True, True]
    (group,) = rollout.to_groups()
    (trajectory,) = group.trajectories
    response = group.response(trajectory)
    assert response.logp_old[response.is_sampled].tolist() == [-3.0, -4.0, -6.0, -7.0, -8.0]
    assert trajectory.num_turns == 2 and trajectory.reward is None and trajectory.status == "not_scored"
    assert [c.goes_on for c in rollout.calls] == [None, 0, 1]


def test_t02_a_template_that_rewrites_gives_two_rows():
    """Case T02. Golden: no prefix, first difference at 9, rows of 14 and 26 with 5 sampled ids each."""
    prompt_1 = [1, 5, 3, 11, 4, 3, 1, 2, 3]
    sampled_1 = [20, 21, 22, 10, 4]
    prompt_2 = [1, 5, 3, 11, 4, 3, 1, 2, 3, 10, 4, 3, 1, 5, 3, 13, 4, 3, 1, 2, 3]
    sampled_2 = [20, 23, 22, 12, 4]
    rollout = Rollout("r")
    play(rollout, prompt_1, sampled_1)
    call = play(rollout, prompt_2, sampled_2)
    assert call.goes_on is None and call.left == {"call": 0, "at": 9}
    found = rows(rollout)
    assert [len(ids) for ids, _ in found] == [14, 26]
    assert [sum(mask) for _, mask in found] == [5, 5]
    sampled = [n for g in rollout.to_groups() for n in g.nodes.values() if n.origin is Origin.SAMPLED]
    assert sum(n.num_steps for n in sampled) == 10  # each sampled id stands in one node
    assert [ids for ids, _ in found] == [prompt_1 + sampled_1, prompt_2 + sampled_2]


def test_the_same_prompt_again_is_a_second_answer():
    """Hand: retries and n > 1 hang beside each other, and later calls below the one they go on from."""
    rollout = Rollout("r")
    call = rollout.begin({}, [1, 2], Sampling(), num_choices=2)
    play(rollout, [1, 2], [3], choice=1, call=call)
    play(rollout, [1, 2], [4], choice=0, call=call)
    play(rollout, [1, 2], [5])
    play(rollout, [1, 2, 3, 9], [6])
    assert [ids for ids, _ in rows(rollout)] == [[1, 2, 4], [1, 2, 5], [1, 2, 3, 9, 6]]
    (group,) = rollout.to_groups()
    assert group.root.tokens == (1, 2) and [t.index for t in group.trajectories] == [0, 1, 2]
    assert rollout.calls[2].goes_on == 0


def test_the_longest_history_wins():
    """Hand: two earlier answers are both beginnings of the prompt; it hangs below the longer one."""
    rollout = Rollout("r")
    play(rollout, [1], [2, 3])
    play(rollout, [1], [2])
    play(rollout, [1, 2, 3, 4], [5])
    assert rollout.calls[2].goes_on == 0
    assert [ids for ids, _ in rows(rollout)] == [[1, 2], [1, 2, 3, 4, 5]]


def test_versions_make_nodes():
    """Hand: a node never mixes versions; the trajectory goes through both."""
    rollout = Rollout("r")
    call = rollout.begin({}, [1], Sampling())
    rollout.take(call, 0, Sampled(ask="a", tokens=(2, 3), logprobs=(-1.0, -2.0), version=4))
    rollout.take(call, 0, Sampled(ask="a", tokens=(), logprobs=(), version=4))
    rollout.take(call, 0, Sampled(ask="a", tokens=(5,), logprobs=(-3.0,), version=6, stop=StopReason.LENGTH))
    play(rollout, [1, 2, 3, 5, 7], [8])
    (group,) = rollout.to_groups()
    sampled = [n for n in group.nodes.values() if n.origin is Origin.SAMPLED]
    assert [(n.version, n.tokens, n.start) for n in sampled] == [(4, (2, 3), 1), (6, (5,), 3), (0, (8,), 5)]
    assert [n.stop for n in sampled] == [StopReason.INTERRUPTED, StopReason.LENGTH, StopReason.EOS]
    assert group.response(group.trajectories[0]).versions.tolist() == [4, 4, 6, -1, 0]
    assert group.trajectories[0].any_turn_cut and not group.trajectories[0].truncated


def test_an_answer_without_tokens_is_recorded_and_nothing_hangs_on_it():
    """Hand: a call that was given up at once leaves its prompt and no trajectory."""
    rollout = Rollout("r")
    play(rollout, [1, 2], [], StopReason.INTERRUPTED)
    assert rows(rollout) == [] and rollout.calls[0].to_json()["answers"][0]["nodes"] == []
    play(rollout, [1, 2], [3])
    assert [ids for ids, _ in rows(rollout)] == [[1, 2, 3]]


def test_the_record_reads_back_exactly():
    """Metamorphic: groups through JSON are equal, floats to the bit."""
    rollout = Rollout("r/with#odd name")
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 1000, 40).tolist()
    call = rollout.begin(
        {"protocol": "chat", "messages": [{"role": "user", "content": "é"}]}, ids, Sampling(0.7, 0.9)
    )
    values = tuple((-rng.exponential(size=30)).astype(np.float32).tolist())
    event = Sampled(
        ask="a",
        tokens=tuple(range(30)),
        logprobs=values,
        entropies=values,
        kept_masses=values,
        top=tuple(((1, v), (2, v)) for v in values),
        stop=StopReason.STOP,
    )
    rollout.take(call, 0, event)
    record = json.loads(msgspec.json.encode(rollout.to_json()))
    assert read_groups(record) == rollout.to_groups()
    assert record["calls"][0]["messages"][0]["content"] == "é"


@pytest.mark.parametrize("num", [50])
def test_calls_that_end_out_of_order(num):
    """Metamorphic: the trajectories are those of the calls in order, whatever ended first."""
    order = np.random.default_rng(1).permutation(num)
    one, other = Rollout("r"), Rollout("r")
    for i in range(num):
        play(one, [i, 1], [i, 2])
    calls = [other.begin({"protocol": "completions"}, [i, 1], Sampling()) for i in range(num)]
    for i in order:
        play(other, [], [int(i), 2], call=calls[i])
    assert rows(one) == rows(other)
    assert one.to_groups() == other.to_groups()
