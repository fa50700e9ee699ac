"""The law suite catches what breaks a law, names it, and lets what obeys pass."""

import dataclasses
import random
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec
import numpy as np
import pytest

from rollwright.discovery import load_method
from rollwright.errors import LawBroken
from rollwright.stage import Close
from rollwright.stages.credit.group_norm import GroupNorm, with_advantage
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.stages.reduce.constant_length import ConstantLength
from rollwright.testing import check_method
from rollwright.testing import laws_of_learning as _  # noqa: F401  (imports torch before any test is timed)
from rollwright.testing.scenarios import SCENARIOS

GRPO = load_method("grpo", each=4)


def variant(**changes):
    return dataclasses.replace(GRPO, name="variant", **changes)


# ---------------------------------------------------------------- stages that break a law


@dataclass(frozen=True, slots=True)
class Forger:
    """Trains every group a second time as if it had been sampled again."""

    def init(self):
        return None

    def exchange(self, state, fresh, version, rng, num_tasks):
        copies = []
        for group in fresh:
            rename = {name: name.replace(group.id, f"{group.id}+") for name in group.nodes}
            nodes = {
                rename[n.id]: msgspec.structs.replace(n, id=rename[n.id], parent=rename.get(n.parent))
                for n in group.nodes.values()
            }
            members = tuple(msgspec.structs.replace(t, leaf=rename[t.leaf]) for t in group.trajectories)
            copies.append(
                msgspec.structs.replace(group, id=f"{group.id}+", nodes=nodes, trajectories=members)
            )
        return state, [*fresh, *copies]

    def holds(self, state):
        return ()


@dataclass(frozen=True, slots=True)
class Dice:
    """Picks tasks with a generator that no seed reaches."""

    def pick(self, history, num_tasks, rng):
        return random.sample(list(history.tasks), num_tasks)


@dataclass(frozen=True, slots=True)
class FirstCome:
    """Closes the step when half of its groups are complete."""

    def __call__(self, event, view):
        return (Close("half"),) if view.num_complete * 2 >= len(view.groups) else ()


@dataclass(frozen=True, slots=True)
class RawReward:
    """No baseline at all; ``lost`` is the score of what was not scored."""

    lost: float = 0.0

    def __call__(self, group):
        credited = [
            with_advantage(group, t, self.lost if t.score is None else t.score) for t in group.trajectories
        ]
        return msgspec.structs.replace(group, trajectories=tuple(credited))


@dataclass(frozen=True, slots=True)
class NoneIsZero:
    """A baseline that counts an unscored rollout as a zero."""

    def __call__(self, group):
        scores = [t.score or 0.0 for t in group.trajectories]
        mean = sum(scores) / len(scores)
        credited = []
        for t in group.trajectories:
            value = 0.0 if t.score is None or len(set(scores)) == 1 else t.score - mean
            credited.append(with_advantage(group, t, value))
        return msgspec.structs.replace(group, trajectories=tuple(credited))


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Credit on every step of the response, observations included."""

    def __call__(self, group):
        group = GroupNorm()(group)
        credited = [
            msgspec.structs.replace(t, advantages=(t.advantages[0],) * len(t.advantages))
            for t in group.trajectories
        ]
        return msgspec.structs.replace(group, trajectories=tuple(credited))


@dataclass(frozen=True, slots=True)
class Unmasked(Reinforce):
    """Forgets which steps were sampled."""

    def __call__(self, logp_new_T, logp_old_T, adv_T, is_sampled_T, logp_ref_T=None, segment_T=None):
        return -adv_T * logp_new_T


@dataclass(frozen=True, slots=True)
class Whitened(Reinforce):
    """Normalises advantages over whatever happens to be in the micro-batch."""

    def __call__(self, logp_new_T, logp_old_T, adv_T, is_sampled_T, logp_ref_T=None, segment_T=None):
        adv_T = adv_T.where(is_sampled_T, 0.0)
        return -(adv_T - adv_T.mean()).where(is_sampled_T, 0.0) * logp_new_T.where(is_sampled_T, 0.0)


@dataclass(frozen=True, slots=True)
class Previous:
    """The baseline is the member before: credit that depends on the order of the group."""

    def __call__(self, group):
        credited, before = [], None
        for t in group.trajectories:
            value = 0.0 if t.score is None or before is None else t.score - before
            credited.append(with_advantage(group, t, value))
            before = t.score if t.score is not None else before
        return msgspec.structs.replace(group, trajectories=tuple(credited))


@dataclass(frozen=True, slots=True)
class Doubled(Reinforce):
    def __call__(self, logp_new_T, logp_old_T, adv_T, is_sampled_T, logp_ref_T=None, segment_T=None):
        zero = logp_new_T.new_zeros(())
        return (-2 * adv_T * logp_new_T).where(is_sampled_T, zero)


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """REINFORCE with the others' mean: unbiased."""

    def __call__(self, group):
        scores = [t.score for t in group.trajectories if t.score is not None]
        credited = []
        for t in group.trajectories:
            if t.score is None or len(scores) < 2 or max(scores) == min(scores):
                value = 0.0
            else:
                value = t.score - (sum(scores) - t.score) / (len(scores) - 1)
            credited.append(with_advantage(group, t, value))
        return msgspec.structs.replace(group, trajectories=tuple(credited))


@dataclass(frozen=True, eq=False)
class Unequal:
    """A stage that is never equal to its copy."""

    gives: ClassVar[frozenset[str]] = frozenset({"advantage"})
    seed: int = field(default=0)

    def __call__(self, group):
        return GroupNorm()(group)


@dataclass(frozen=True, slots=True)
class Heap:
    """Keeps something in its state that JSON cannot hold."""

    def init(self):
        return {"seen": np.zeros(3), "what": object}

    def exchange(self, state, fresh, version, rng, num_tasks):
        return state, fresh

    def holds(self, state):
        return ()


UNBIASED = {"credit": (LeaveOneOut(),), "reduce": ConstantLength(8), "objective": Reinforce()}
BROKEN = {
    "forged tokens": (1, variant(replay=Forger()), "tokens with the fate trained"),
    "unseeded choice": (2, variant(select=Dice()), "differ|other batches"),
    "undeclared race": (2, variant(control=(FirstCome(),)), "declare 'arrival'"),
    "no baseline": (4, variant(credit=(RawReward(),)), r"with all 1.0; expected exactly 0"),
    "credit for unscored": (4, variant(credit=(RawReward(0.5),)), "nothing scored|all 1.0"),
    "unscored counts": (4, variant(credit=(NoneIsZero(),)), "unscored: the others have"),
    "credit everywhere": (5, variant(credit=(Everywhere(),)), "which was not sampled; expected 0"),
    "objective unmasked": (5, variant(objective=Unmasked()), "exactly 0 where not sampled"),
    "whitened micro-batch": (6, variant(objective=Whitened()), "row by row"),
    "credit by order": (6, variant(credit=(Previous(),)), "for the group backwards"),
    "gradient doubled": (7, variant(objective=Doubled()), "away from REINFORCE's"),
    "undeclared bias": (8, variant(declares=frozenset()), "or declare 'biased'"),
    "declared but unbiased": (8, variant(**UNBIASED), "the bias it declares"),
    "stage without equality": (9, variant(credit=(Unequal(),)), "another method after"),
    "state that JSON lacks": (9, variant(replay=Heap()), "does not encode"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_law_is_caught(name):
    """Each broken stage fails its law, and the message says law, method, what was seen and expected."""
    number, method, words = BROKEN[name]
    with pytest.raises(LawBroken, match=rf"law {number} \(.*\), method variant: seen .*") as caught:
        check_method(method, only=[number])
    text = str(caught.value)
    assert "; expected " in text
    with pytest.raises(LawBroken, match=words):
        check_method(method, only=[number])


def test_a_method_that_is_its_parent_does_not_bite():
    """Law 3: the same stages under another name."""
    with pytest.raises(LawBroken, match=r"law 3 \(bite\), method variant: seen the same batches"):
        check_method(variant(), parent=GRPO, only=[3], trigger=SCENARIOS[0])


def test_an_objective_alone_bites():
    """Law 3: the same rollouts, another loss."""
    check_method(variant(objective=Doubled()), parent=GRPO, only=[3])


def test_exemptions_are_taken_at_their_word():
    """What is declared is not asked for: no baseline, racing groups, a doubled gradient."""
    check_method(
        variant(credit=(RawReward(),), declares=frozenset({"biased", "equal_rewards_move"})), only=[4]
    )
    check_method(variant(control=(FirstCome(),), declares=frozenset({"biased", "arrival"})), only=[2])
    check_method(variant(objective=Doubled(), declares=frozenset({"biased", "off_policy"})), only=[7])


def test_an_unbiased_method_needs_no_exemption():
    """REINFORCE leave-one-out with a constant length declares nothing and breaks nothing."""
    check_method(lambda: variant(**UNBIASED, declares=frozenset()), parent=GRPO, only=range(3, 9))


def test_all_broken_laws_are_told_at_once():
    """One run of the suite gives the whole list."""
    method = variant(credit=(RawReward(),), objective=Doubled(), declares=frozenset())
    with pytest.raises(LawBroken) as caught:
        check_method(method, only=[4, 7, 8])
    assert [line.split(" (")[0] for line in str(caught.value).splitlines()] == ["law 4", "law 7", "law 8"]
