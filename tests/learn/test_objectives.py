"""Objectives: closed forms, finite differences and laws 5 and 7."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.errors import ConfigError, LearnerError
from rollwright.method import Method
from rollwright.stages.objective import Objective
from rollwright.stages.objective._ratio import kl_estimate
from rollwright.stages.objective.gspo import GSPO
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.testing.hand import plain_method

D = torch.float64
ALL = [
    PPOClip(),
    PPOClip(clip_low=0.1, clip_high=0.28, dual_clip=3.0),
    PPOClip(kl=0.3, kl_kind="k3"),
    PPOClip(kl=0.3, kl_kind="k1"),
    PPOClip(kl=0.3, kl_kind="k2"),
    Reinforce(),
    Reinforce(ratio_cap=1.5),
    Reinforce(ratio_cap=math.inf),
    GSPO(0.2, 0.3),
]


def run(objective: Objective, ratio, adv, is_sampled=None, segment=None, logp_old=None):
    """Return the loss at the given ratios, and the leaf that it can be differentiated by."""
    ratio, adv = torch.tensor(ratio, dtype=D), torch.tensor(adv, dtype=D)
    old = torch.full_like(ratio, -1.3) if logp_old is None else torch.tensor(logp_old, dtype=D)
    new = (old + ratio.log()).requires_grad_(True)
    mask = torch.ones(len(ratio), dtype=torch.bool) if is_sampled is None else torch.tensor(is_sampled)
    segments = torch.zeros(len(ratio), dtype=torch.int64) if segment is None else torch.tensor(segment)
    return objective(new, old, adv, mask, old - 0.2, segments), new


def test_clip_closed_form():
    """Oracle: the four corners of the clip worked out by hand. Mutant: clamp before the minimum."""
    loss, new = run(PPOClip(0.2, 0.3), [1.5, 1.5, 0.5, 0.5, 1.1], [2.0, -2.0, 2.0, -2.0, 2.0])
    assert loss.tolist() == pytest.approx([-2.6, 3.0, -1.0, 1.6, -2.2])
    grad = torch.autograd.grad(loss.sum(), new)[0]
    assert grad.tolist() == pytest.approx([0.0, 3.0, -1.0, 0.0, -2.2])
    diagnosis = PPOClip(0.2, 0.3).diagnose(
        new, torch.full_like(new, -1.3), torch.tensor([2.0, -2.0, 2.0, -2.0, 2.0]), torch.ones(5).bool()
    )
    assert diagnosis["clip_fraction"].tolist() == [True, False, False, True, False]


def test_dual_clip_closed_form():
    """Oracle: by hand, loss ≤ -c·A for A < 0 only. Mutant: the bound also for A > 0."""
    objective = PPOClip(0.2, 0.2, dual_clip=3.0)
    loss, new = run(objective, [10.0, 10.0, 2.0], [-1.0, 1.0, -1.0])
    assert loss.tolist() == pytest.approx([3.0, -1.2, 2.0])
    assert torch.autograd.grad(loss.sum(), new)[0].tolist() == pytest.approx([0.0, 0.0, 2.0])


def test_reinforce_closed_form():
    """Oracle: by hand; the weight has no gradient. Mutant: differentiate through the weight."""
    loss, new = run(Reinforce(ratio_cap=2.0), [0.5, 4.0], [1.0, -1.0])
    assert torch.autograd.grad(loss.sum(), new)[0].tolist() == pytest.approx([-0.5, 2.0])
    loss, new = run(Reinforce(), [0.5, 4.0], [1.0, -1.0])
    assert loss.tolist() == pytest.approx([-new[0].item(), new[1].item()])


def test_gspo_slow_reference():
    """Oracle: a loop over trajectories that follows the paper. Mutant: mean over all tokens."""
    ratio, segment = [1.4, 0.9, 1.3, 0.5, 0.6, 1.0], [0, 0, 0, 1, 1, 2]
    adv, mask = [1.0, 1.0, 1.0, -1.0, -1.0, 0.5], [True, True, False, True, True, True]
    loss, _ = run(GSPO(0.2, 0.15), ratio, adv, mask, segment)
    want = []
    for i in range(6):
        mine = [math.log(ratio[j]) for j in range(6) if segment[j] == segment[i] and mask[j]]
        s = math.exp(sum(mine) / len(mine))
        clipped = min(max(s, 0.8), 1.15)
        want.append(-min(s * adv[i], clipped * adv[i]) if mask[i] else 0.0)
    assert loss.tolist() == pytest.approx(want)


def test_kl_estimates_closed_form():
    """Oracle: formulas at d = log 2 by hand, and enumeration: k1 and k3 have the exact KL as mean."""
    new, ref = torch.log(torch.tensor([0.2])), torch.log(torch.tensor([0.4]))
    one = torch.ones(1, dtype=torch.bool)
    got = {kind: kl_estimate(kind, new, ref, one).item() for kind in ("k1", "k2", "k3")}
    assert got == pytest.approx(
        {"k1": -math.log(2), "k2": math.log(2) ** 2 / 2, "k3": 1 - math.log(2)}, abs=1e-6
    )
    p, q = torch.tensor([0.5, 0.3, 0.2], dtype=D), torch.tensor([0.2, 0.2, 0.6], dtype=D)
    exact = (p * (p / q).log()).sum().item()
    for kind in ("k1", "k3"):
        mean = (p * kl_estimate(kind, p.log(), q.log(), torch.ones(3, dtype=torch.bool))).sum().item()
        assert mean == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("objective", [o for o in ALL if isinstance(o, PPOClip)], ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_gradient_finite_differences(objective, data):
    """Oracle: finite differences in float64, away from the clip's corners. Mutant: detach the KL term.

    The other objectives stop gradients on purpose; their closed forms hold them."""
    numbers = st.floats(0.3, 3.0).filter(
        lambda r: min(abs(r - c) for c in (0.7, 0.72, 0.8, 0.9, 1.0, 1.2, 1.28, 1.3, 1.5, 3.0)) > 1e-3
    )
    ratio = data.draw(st.lists(numbers, min_size=1, max_size=5))
    adv = data.draw(
        st.lists(st.sampled_from([-1.5, -0.2, 0.4, 2.0]), min_size=len(ratio), max_size=len(ratio))
    )
    loss, new = run(objective, ratio, adv)
    grad = torch.autograd.grad(loss.sum(), new)[0]
    for i in range(len(ratio)):
        step = 1e-6
        up, down = list(ratio), list(ratio)
        up[i], down[i] = ratio[i] * math.exp(step), ratio[i] * math.exp(-step)
        slope = (run(objective, up, adv)[0].sum() - run(objective, down, adv)[0].sum()).item() / (2 * step)
        assert grad[i].item() == pytest.approx(slope, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("objective", ALL, ids=str)
def test_unsampled_tokens_have_no_loss_and_no_gradient(objective):
    """Law 5. Oracle: zero. Mutant: multiply by the mask instead of selecting (NaN · 0 = NaN)."""
    loss, new = run(
        objective, [1.1, 1.2, 0.9], [1.0, 5.0, -1.0], [True, False, True], logp_old=[-1.0, math.nan, -2.0]
    )
    assert loss[1].item() == 0.0 and torch.isfinite(loss).all()
    grad = torch.autograd.grad(loss.sum(), new)[0]
    assert grad[1].item() == 0.0 and torch.isfinite(grad).all() and grad[0].item() != 0.0


@pytest.mark.parametrize("objective", [o for o in ALL if not getattr(o, "kl", 0)], ids=str)
def test_first_gradient_is_reinforce(objective):
    """Law 7. Oracle: −A at ratio 1, the gradient of REINFORCE. Mutant: a clip that binds at 1."""
    adv = [1.0, -2.0, 0.3, 0.0]
    loss, new = run(objective, [1.0] * 4, adv, segment=[0, 0, 1, 1])
    assert torch.autograd.grad(loss.sum(), new)[0].tolist() == pytest.approx([-a for a in adv])


@pytest.mark.parametrize("objective", ALL, ids=str)
def test_flat_concatenation_changes_nothing(objective):
    """Metamorphic: losses of two trajectories laid end to end are those of each on its own."""
    one = ([1.1, 0.7], [1.0, 1.0])
    two = ([0.6, 1.9, 1.0], [-1.0, -1.0, -1.0])
    apart = torch.cat([run(objective, *one)[0], run(objective, *two)[0]])
    joined, _ = run(objective, one[0] + two[0], one[1] + two[1], segment=[0, 0, 1, 1, 1])
    assert torch.equal(apart, joined)


@pytest.mark.parametrize("objective", ALL, ids=str)
def test_zero_advantage_claim(objective):
    """Oracle: the claim `is_zero_at_zero_adv` itself, at ratios far from 1 and at overflow.

    Mutant: a log ratio that is not held (inf · 0 = NaN)."""
    loss, new = run(objective, [5.0, 1e-3, 1.0], [0.0, 0.0, 0.0], logp_old=[-1.0, -1.0, -1.0])
    old = torch.tensor([-1.0, -1.0, -5000.0], dtype=D)
    loss = objective(new, old, torch.zeros(3, dtype=D), torch.ones(3).bool(), old, torch.tensor([0, 0, 1]))
    grad = torch.autograd.grad(loss.sum(), new)[0]
    is_zero = loss.abs().sum().item() == 0 and grad.abs().sum().item() == 0
    assert is_zero == objective.is_zero_at_zero_adv
    assert torch.isfinite(loss).all()


@pytest.mark.parametrize("objective", ALL, ids=str)
def test_empty_run_of_tokens(objective):
    """Oracle: a sum over nothing is 0, attached to the graph and not NaN (M01, E03)."""
    new = torch.zeros(0, requires_grad=True)
    empty = torch.zeros(0)
    loss = objective(new, empty, empty, empty.bool(), empty, empty.long())
    assert loss.sum().item() == 0.0 and loss.requires_grad


@pytest.mark.parametrize("objective", ALL, ids=str)
def test_round_trips(objective):
    """Law 9. Oracle: equality after pickle and JSON."""
    assert pickle.loads(pickle.dumps(objective)) == objective
    assert isinstance(objective, Objective)
    method = plain_method(objective=objective)
    assert Method.from_json(method.to_json()) == method


@pytest.mark.parametrize(
    "make",
    [
        lambda: PPOClip(clip_low=0),
        lambda: PPOClip(clip_low=1.5),
        lambda: PPOClip(kl=-1),
        lambda: PPOClip(kl_kind="k4"),
        lambda: PPOClip(dual_clip=1.1),
        lambda: Reinforce(ratio_cap=0),
        lambda: GSPO(clip_high=math.nan),
    ],
)
def test_bad_settings(make):
    """Oracle: the error names what was given and what was expected."""
    with pytest.raises(ConfigError, match=r"was given, expected"):
        make()


def test_missing_reads():
    """Oracle: a clear error instead of a loss without its KL term."""
    one = torch.zeros(1, requires_grad=True)
    with pytest.raises(LearnerError, match="reads logp_ref"):
        PPOClip(kl=0.1)(one, one, one, torch.ones(1).bool())


def test_building_a_method_needs_no_torch():
    """Oracle: the import itself, in a fresh interpreter: a simulation must not pay for torch."""
    code = (
        "import sys; from rollwright.stages.objective.ppo_clip import PPOClip;"
        "from rollwright.stages.objective.gspo import GSPO;"
        "from rollwright.stages.reduce.token_mean import TokenMean;"
        "PPOClip(kl=0.1); GSPO(); TokenMean(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
