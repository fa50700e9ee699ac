"""Rollouts as text and back: what was said survives, what cannot be known is not made up."""

from __future__ import annotations

import math

import msgspec
import pytest

from rollwright.errors import LawBroken
from rollwright.methods.grpo import grpo
from rollwright.swarm.text import FOREIGN, Parcel, Rollout, SharedGroup, Speech, Turn, sources
from rollwright.testing.fake import ToyTask
from rollwright.testing.scenarios import Scenario, play
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory

DIALOGUE = Scenario("dialogue", ToyTask(max_turns=3))


def digits(context: int = 64, shift: int = 0) -> Speech:
    """Return a tokeniser of digits, ids moved by ``shift``; 0 ends a turn."""

    def decode(ids):
        ids = list(ids)
        while ids and ids[-1] == 0:
            ids.pop()
        return "".join(str(i - shift) for i in ids)

    def encode(text):
        return [int(c) + shift for c in text]

    return Speech(encode, decode, encode, (0,), context)


def sampled_groups() -> list[Group]:
    return [group for batch in play(grpo(each=4), DIALOGUE).batches for group in batch.groups]


def rollout(*turns: Turn, reward: float = 1.0) -> Rollout:
    return Rollout(turns, reward, "right", True, False)


def said(text: str, is_ended: bool = True) -> Turn:
    return Turn(Origin.SAMPLED, text, is_ended)


def parcel(*rollouts: Rollout, prompt: str = "12") -> Parcel:
    return Parcel("anna", 0, (SharedGroup("toy/train/0#0", "toy/train/0", prompt, rollouts),))


def test_the_same_tokeniser_hears_what_was_sampled():
    """Oracle: metamorphic. Text out and in again with one tokeniser: tokens, origins, rewards as sampled."""
    speech, groups = digits(), sampled_groups()
    assert any(t.num_turns > 1 for group in groups for t in group.trajectories)
    told = [speech.told(group, "".join(map(str, group.root.tokens))) for group in groups]
    wire = msgspec.json.encode(Parcel("anna", 0, tuple(told)))
    heard, refused = speech.heard(msgspec.json.decode(wire, type=Parcel))
    assert refused == {} and len(heard) == len(groups)
    for ours, theirs in zip(heard, groups, strict=True):
        assert ours.task == theirs.task and ours.root.tokens == theirs.root.tokens
        for a, b in zip(ours.trajectories, theirs.trajectories, strict=True):
            one, other = ours.response(a), theirs.response(b)
            assert one.tokens == other.tokens
            assert one.is_sampled.tolist() == other.is_sampled.tolist()
            assert (a.reward, a.status, a.num_turns) == (b.reward, b.status, b.num_turns)
            assert (a.terminated, a.truncated) == (b.terminated, b.truncated)


def test_another_tokeniser_hears_the_same_text():
    """Oracle: metamorphic. Ids differ, what is said does not; a turn ends with the receiver's token."""
    there, here = digits(), digits(shift=3)
    group = sampled_groups()[0]
    told = there.told(group, "12")
    (heard,), _ = here.heard(Parcel("anna", 0, (told,)))
    again = here.told(_as_own(heard), "12")
    assert [r.turns for r in again.rollouts] == [r.turns for r in told.rollouts]


def _as_own(group: Group) -> Group:
    own = [msgspec.structs.replace(t, replayed=False) for t in group.trajectories]
    return msgspec.structs.replace(group, trajectories=tuple(own))


def test_foreign_nodes_say_what_they_are():
    """Oracle: hand. Policy names the node; version and logprobs are None, never 0; the learner fills them."""
    (group,), _ = digits().heard(parcel(rollout(said("31"), Turn(Origin.OBSERVATION, "2"), said("4", False))))
    first, seen, last = list(group.nodes.values())[1:]
    assert (first.policy, first.version, first.logprobs) == (f"{FOREIGN}anna", None, None)
    assert (first.tokens, seen.tokens, last.tokens) == ((3, 1, 0), (2,), (4,))
    assert (first.stop, last.stop, seen.policy) == (StopReason.EOS, None, None)
    assert (last.start, last.parent, last.at) == (2 + 3 + 1, seen.id, 1)
    (trajectory,) = group.trajectories
    assert trajectory.replayed and trajectory.ratio_to_current and trajectory.num_turns == 2
    assert sources(group) == ["anna"] and sources(sampled_groups()[0]) == []


def test_steps_of_this_run_must_have_logprobs():
    """Oracle: the law. Only steps of another run (a policy, no version) may lack them. Kills: any may."""
    with pytest.raises(LawBroken, match="logprobs"):
        Node("n", "r", 1, Origin.SAMPLED, (1,), policy="policy", version=3)
    with pytest.raises(LawBroken, match="logprobs"):
        Node("n", "r", 1, Origin.OBSERVATION, (1,), policy="swarm/anna", logprobs=(0.0,))


def test_what_cannot_be_trained_is_left_out_and_counted():
    """Oracle: enumeration. Too long for the context by one, nothing said, and rewards that are no numbers."""
    fits, too_long = rollout(said("1" * 5)), rollout(said("1" * 6))
    empty, silent = rollout(said("", False)), rollout(Turn(Origin.OBSERVATION, "1"))
    no_number = [rollout(said("1"), reward=value) for value in (math.nan, math.inf, -1e31)]
    speech = digits(context=2 + 5 + 1)
    (group,), refused = speech.heard(parcel(fits, too_long, empty, silent, *no_number))
    assert refused == {"too_long": 1, "empty": 2, "no_reward": 3}
    assert [t.index for t in group.trajectories] == [0] and len(group.nodes) == 2
    assert speech.heard(parcel(too_long)) == ([], {"too_long": 1})
    assert speech.heard(parcel(fits, prompt="")) == ([], {"empty": 1})


def test_only_own_graded_rollouts_are_told():
    """Oracle: hand. A replayed rollout is not passed on as one's own, an ungraded one has nothing to say."""
    group = sampled_groups()[0]
    first, second, *_ = group.trajectories
    mixed = (msgspec.structs.replace(first, replayed=True), msgspec.structs.replace(second, reward=None))
    told = digits().told(msgspec.structs.replace(group, trajectories=(*mixed, group.trajectories[2])), "12")
    assert len(told.rollouts) == 1
    assert digits().told(msgspec.structs.replace(group, trajectories=mixed), "12") is None


def test_a_turn_over_a_weight_update_is_one_turn():
    """Oracle: hand. Two nodes of one turn are decoded together: a character may lie across them."""
    root = Node("g/root", None, 0, Origin.PROMPT, (1,))
    parts = [
        Node(
            f"g/0.{i}", parent, 1, Origin.SAMPLED, ids, "0/0", 1 + i, "policy", i, logprobs=(-1.0,) * len(ids)
        )
        for i, (parent, ids) in enumerate([("g/root", (2,)), ("g/0.0", (3, 0))])
    ]
    nodes = {node.id: node for node in (root, *parts)}
    group = Group("g", "t", nodes, (Trajectory("g/0.1", 0, reward=1.0),))
    assert digits().told(group, "1").rollouts[0].turns == (said("23"),)
