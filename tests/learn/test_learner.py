"""The learner: gradients against a slow reference, laws 4 to 7, the first ratio, refusals."""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from learn_help import Spec, make_group, mixed_groups, plain_logp, tiny_model

from rollwright.errors import ConfigError, LearnerError
from rollwright.learn.config import LearnerConfig, lr_at
from rollwright.learn.gradient import accumulate
from rollwright.learn.learner import Learner, deal
from rollwright.learn.packing import plan_step
from rollwright.learn.rows import rows_of
from rollwright.stages.objective.gspo import GSPO
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.stages.reduce.constant_length import ConstantLength
from rollwright.stages.reduce.sequence_mean import SequenceMean
from rollwright.stages.reduce.token_mean import TokenMean

CFG = LearnerConfig()


def gradient(model, groups, objective, reduce, budget=10_000, version=0, cfg=CFG):
    """Return loss and gradient, [num parameters], as the learner computes them."""
    plan = plan_step(rows_of(groups, version, cfg), objective, reduce, budget, model.embed)
    outcomes = accumulate(model, objective, plan.micro_batches)
    loss = sum(float(outcome.loss) for outcome in outcomes)
    return loss, torch.cat([p.grad.flatten() for p in model.parameters()])


def slow_gradient(model, groups, clip, reduce_name, clip_high=0.2):
    """The loss written down plainly: one trajectory at a time, one token at a time."""
    rows = [(g, t) for g in groups for t in g.trajectories if t.score is not None]
    counts = [int(g.response(t).is_sampled.sum()) for g, t in rows]
    num_rows = sum(count > 0 for count in counts)
    loss = torch.zeros((), dtype=torch.float64)
    for (group, trajectory), count in zip(rows, counts, strict=True):
        response = group.response(trajectory)
        kept = [m for n, k in group.path(trajectory.leaf)[1:] for m in (n.kept_masses or (1.0,) * k)[:k]]
        tokens = [*response.prompt, *response.tokens]
        for j, token in enumerate(response.tokens):
            if not response.is_sampled[j]:
                continue
            at = len(response.prompt) + j
            new = plain_logp(model, tokens[:at], response.temperatures[j])[-1, token]
            ratio = (new - response.logp_old[j] - math.log(kept[j])).exp()
            adv = trajectory.advantages[j]
            term = -torch.minimum(ratio * adv, ratio.clamp(1 - clip, 1 + clip_high) * adv)
            weight = {"token": 1 / sum(counts), "sequence": 1 / (num_rows * count), "constant": 1 / num_rows}
            loss = loss + term * weight[reduce_name] * trajectory.weight
    grads = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), torch.cat([g.flatten() for g in grads])


REDUCE = {"token": TokenMean(), "sequence": SequenceMean(), "constant": ConstantLength(1)}


@pytest.mark.parametrize("name", sorted(REDUCE))
def test_gradient_slow_reference(name):
    """Law 6. Oracle: a plain loop without packing, masks or micro-batches, in float64, off-policy, so that
    clips bind. Mutants: an off-by-one place of prediction; temperature left out; a wrong denominator."""
    groups = mixed_groups(tiny_model())
    model = tiny_model(scale=8.3)  # not the sampler: the ratios are off 1
    loss, grad = gradient(model, groups, PPOClip(), REDUCE[name])
    want_loss, want = slow_gradient(model, groups, 0.2, name)
    assert loss == pytest.approx(want_loss, rel=1e-9)
    # torch's CPU attention keeps its logsumexp in float32, even for float64: 1e-8 is its own error.
    assert (grad - want).norm() < 1e-7 * want.norm()


@pytest.mark.parametrize("objective", [PPOClip(), GSPO(0.1, 0.1), Reinforce(ratio_cap=2.0)], ids=str)
def test_micro_batches_and_order_change_nothing(objective):
    """Law 6. Metamorphic: budgets of 1 token to all, groups and members in reverse. Mutant: divide by
    the micro-batch's own token count."""
    groups = mixed_groups(tiny_model())
    model = tiny_model(scale=8.3)
    want_loss, want = gradient(model, groups, objective, TokenMean())
    reversed_groups = [
        msgspec.structs.replace(g, trajectories=tuple(reversed(g.trajectories))) for g in reversed(groups)
    ]
    for some, budget in [(groups, 1), (groups, 12), (groups, 25), (reversed_groups, 10_000)]:
        loss, grad = gradient(model, some, objective, TokenMean(), budget)
        assert loss == pytest.approx(want_loss, rel=1e-10)
        assert torch.allclose(grad, want, rtol=1e-9, atol=1e-13)


def test_padding_like_steps_change_nothing():
    """Laws 5 and 6. Metamorphic: context after the last sampled token, and rollouts that are not scored,
    leave loss and gradient bit for bit. Mutant: count them in the denominator."""
    model = tiny_model()
    plain = [Spec([("s", [1, 2, 3], 0)], adv=1.0), Spec([("s", [4], 0)], adv=-1.0)]
    padded = [
        Spec([("s", [1, 2, 3], 0), ("o", [0, 0, 0], 0)], adv=1.0),
        Spec([("s", [4], 0), ("h", [2], 0)], adv=-1.0),
        Spec([("s", [5, 5], 0)], adv=0.0, score=None),
    ]
    want = gradient(model, [make_group(model, [1], plain)], PPOClip(), TokenMean())
    got = gradient(model, [make_group(model, [1], padded)], PPOClip(), TokenMean())
    assert got[0] == want[0] and torch.equal(got[1], want[1])


def test_tokens_without_advantage_need_no_forward_pass():
    """Oracle: the same objective made to run the model everywhere gives the same gradient, with the same
    denominators. Mutant: leave rollouts of zero credit out of the token count."""
    groups = mixed_groups(tiny_model())
    model = tiny_model(scale=8.3)
    lazy = plan_step(rows_of(groups, 0, CFG), PPOClip(), TokenMean(), 10_000, model.embed)
    eager_objective = PPOClip(kl=1e-300)  # a KL term too small to count, which needs every token
    ref = tiny_model()
    eager = plan_step(rows_of(groups, 0, CFG), eager_objective, TokenMean(), 10_000, model.embed)
    assert eager.num_model_tokens > lazy.num_model_tokens
    assert eager.num_tokens == lazy.num_tokens == 23
    loss, grad = gradient(model, groups, PPOClip(), TokenMean())
    learner = Learner(
        model,
        eager_objective,
        TokenMean(),
        LearnerConfig(ratio_tolerance=None, ratio_mean_tolerance=None),
        ref,
    )
    outcomes = accumulate(model, eager_objective, learner.plan(rows_of(groups, 0, CFG)).micro_batches)
    assert sum(float(o.loss) for o in outcomes) == pytest.approx(loss, rel=1e-10)
    assert torch.allclose(torch.cat([p.grad.flatten() for p in model.parameters()]), grad, rtol=1e-9)


def test_sequence_ratio_sees_tokens_without_advantage():
    """Oracle: the GSPO gradient by a plain loop, for a trajectory whose credit is zero on some tokens.

    Mutant: run the model only where the advantage is not zero, which changes the mean ratio."""
    group = make_group(tiny_model(), [1, 2], [Spec([("s", [3, 4, 5, 6], 0)])])
    adv = (0.0, 1.0, 0.0, -0.5)
    partly = msgspec.structs.replace(group.trajectories[0], advantages=adv)
    group = msgspec.structs.replace(group, trajectories=(partly,))
    model = tiny_model(scale=8.3)
    _, grad = gradient(model, [group], GSPO(0.9, 10.0), TokenMean())
    logp = plain_logp(model, [1, 2, 3, 4, 5, 6], 1.0)
    new = torch.stack([logp[1 + j, 3 + j] for j in range(4)])
    old = torch.tensor(group.response(partly).logp_old)
    ratio = (new.detach() - old).mean().exp()
    want = torch.autograd.grad(-(ratio * torch.tensor(adv) * new).sum() / 4, list(model.parameters()))
    want = torch.cat([g.flatten() for g in want])
    assert (grad - want).norm() < 1e-6 * want.norm()


def test_first_gradient_is_reinforce_on_the_model():
    """Law 7. Oracle: −Σ A·∇logp / n by a plain loop. Mutant: logp_old detached from a second pass hides
    an error in the record; here the record is used."""
    model = tiny_model()
    specs = [Spec([("s", [1, 2, 3], 0)], adv=1.0), Spec([("s", [4, 5], 0)], adv=-0.5)]
    groups = [make_group(model, [1, 2], specs)]
    _, grad = gradient(model, groups, PPOClip(), TokenMean())
    value = torch.zeros((), dtype=torch.float64)
    for spec in specs:
        tokens = [1, 2, *spec.pieces[0][1]]
        logp = plain_logp(model, tokens, 1.0)
        value = value + sum(spec.adv * logp[i - 1, tokens[i]] for i in range(2, len(tokens))) / 5
    want = torch.autograd.grad(-value, list(model.parameters()))
    assert torch.allclose(grad, torch.cat([g.flatten() for g in want]), rtol=1e-9, atol=1e-13)


def test_update_moves_probability_and_reports():
    """Oracle: after updates the rewarded answer is more likely than the other; figures by hand."""
    model = tiny_model(dtype=torch.float32)
    specs = [Spec([("s", [1, 2], 0)], adv=1.0), Spec([("s", [3, 4, 5], 0)], adv=-1.0)]
    learner = Learner(model, PPOClip(), TokenMean(), LearnerConfig(lr=1e-2))
    before = plain_logp(model, [7, 1], 1.0)[0, [1, 3]].detach()
    data_before = [p.data_ptr() for p in model.parameters()]
    found = learner.update([make_group(model, [7], specs)], 0)
    after = plain_logp(model, [7, 1], 1.0)[0, [1, 3]].detach()
    assert after[0] > before[0] and after[1] < before[1]
    assert [p.data_ptr() for p in model.parameters()] == data_before  # in place: the engine's own tensors
    assert found["num_trained_tokens"] == 5 and found["num_trained_trajectories"] == 2
    assert found["learner_tokens"] == 1 + 1 + 1 + 2  # prompts, and all but the last token of each
    assert found["num_updates"] == 1 and learner.num_steps == 1 and learner.version == 1
    assert found["loss"] == pytest.approx(1 / 5, abs=1e-6)  # −(2·1 − 3·1)/5
    assert found["ratio_max_dev"] < 1e-5 and found["clip_fraction"] == 0
    assert found["ratio_mean"] == pytest.approx(1, abs=1e-5) and found["kl_old"] == pytest.approx(0, abs=1e-6)
    assert 0 < found["entropy"] < math.log(11) and found["grad_norm"] > 0 and found["lr"] == 1e-2


def test_clip_fraction_counts_all_trained_tokens():
    """Oracle: by hand: the second update of the same batch, after a large step, clips tokens."""
    model = tiny_model(dtype=torch.float32)
    specs = [Spec([("s", [1, 2], 0)], adv=1.0), Spec([("s", [3, 3], 0)], adv=0.0)]
    groups = [make_group(model, [7], specs)]
    learner = Learner(model, PPOClip(), TokenMean(), LearnerConfig(lr=0.05, num_epochs=2))
    found = learner.update(groups, 0)
    assert found["num_updates"] == 2
    assert found["clip_fraction"] == pytest.approx((0 + 2 / 4) / 2)


def test_batches_that_cannot_move_anything():
    """M01, law 4. Oracle: weights and optimizer bit for bit as they were, figures finite. Mutant: an
    optimizer step whose momentum alone moves the weights."""
    model = tiny_model(dtype=torch.float32)
    learner = Learner(model, PPOClip(), TokenMean(), LearnerConfig(lr=1e-2, weight_decay=0.1))
    learner.update([make_group(model, [7], [Spec([("s", [1], 0)], adv=1.0)])], 0)
    before = [p.detach().clone() for p in model.parameters()]
    none = make_group(model, [7], [Spec([("s", [1], 1)], score=None), Spec([("s", [], 1)])])
    zero = make_group(model, [7], [Spec([("s", [1], 1)]), Spec([("s", [2], 1)])])
    for groups, num in (([none], 0), ([zero], 2), ([], 0)):
        found = learner.update(groups, 1)
        assert found["loss"] == 0 and found["num_updates"] == 0 and found["num_trained_tokens"] == num
        assert all(math.isfinite(value) for value in found.values())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_case_l01_temperature_is_part_of_the_logprob():
    """Case L01. Oracle: log_softmax([2, 0])[0] = −0.126928; a record before temperature is refused.

    Mutant: compute logp_new without the temperature."""
    model = tiny_model()
    group = make_group(model, [1, 2], [Spec([("s", [3, 4], 0)], adv=1.0, temperature=0.5)])
    learner = Learner(model, PPOClip(), TokenMean())
    assert learner.update([group], 0)["ratio_max_dev"] < 1e-9
    node = group.nodes["t/0#0/0.0"]
    model = tiny_model()
    raw = plain_logp(model, [1, 2, 3, 4], 1.0).detach()
    mixed = msgspec.structs.replace(node, logprobs=(float(raw[1, 3]), float(raw[2, 4])))
    bad = msgspec.structs.replace(group, nodes={**group.nodes, node.id: mixed})
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(LearnerError, match="ratio of new to old") as error:
        Learner(model, PPOClip(), TokenMean()).update([bad], 0)
    assert "trajectory 0 of group t/0#0, response step" in str(error.value)
    assert "temperature" in str(error.value)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    # An older version may differ: it is measured by the ratio, not refused.
    found = Learner(model, PPOClip(), TokenMean()).update([bad], 1)
    assert "ratio_max_dev" not in found


def test_a_small_error_of_every_token_is_refused_too():
    """Oracle: by hand: all records off by 1e-3 pass the worst token's limit and fail the mean's; one token
    off by 1e-3 among eleven passes both. Mutant: a mean over the worst token only."""
    group = make_group(tiny_model(), [1, 2], [Spec([("s", list(range(11)), 0)], adv=1.0)])
    node = group.nodes["t/0#0/0.0"]
    for num_off, is_refused in ((11, True), (1, False)):
        logprobs = tuple(x + 1e-3 * (i < num_off) for i, x in enumerate(node.logprobs))
        nodes = {**group.nodes, node.id: msgspec.structs.replace(node, logprobs=logprobs)}
        learner = Learner(tiny_model(), PPOClip(), TokenMean())
        if is_refused:
            with pytest.raises(LearnerError, match="mean of 11 tokens"):
                learner.update([msgspec.structs.replace(group, nodes=nodes)], 0)
        else:
            found = learner.update([msgspec.structs.replace(group, nodes=nodes)], 0)
            assert found["ratio_max_dev"] == pytest.approx(1e-3, rel=1e-2)


def test_not_finite_is_refused_before_weights_are_touched():
    """Oracle: weights bit for bit as they were. Mutant: clip to NaN and step."""
    model = tiny_model(dtype=torch.float32)
    group = make_group(model, [1, 2], [Spec([("s", [3, 4], 0)], adv=1.0)])
    learner = Learner(
        model, PPOClip(), TokenMean(), LearnerConfig(ratio_tolerance=None, ratio_mean_tolerance=None)
    )
    with torch.no_grad():
        model.layers[0].down_proj.weight[0, 0] = float("nan")
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(LearnerError, match="loss is nan") as error:
        learner.update([group], 0)
    assert "trajectory 0 of group t/0#0, response step 0" in str(error.value)
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old.nan_to_num(7.0), new.detach().nan_to_num(7.0))


def test_ratio_that_overflows_stays_finite():
    """Oracle: the log ratio is held to 20, so a token that became impossible gives a finite loss."""
    model = tiny_model()
    group = make_group(model, [1, 2], [Spec([("s", [3], 0)], adv=-1.0)])
    node = group.nodes["t/0#0/0.0"]
    far = msgspec.structs.replace(node, logprobs=(-1e4,))
    bad = msgspec.structs.replace(group, nodes={**group.nodes, node.id: far})
    found = Learner(model, PPOClip(dual_clip=3.0), TokenMean()).update([bad], 1)
    assert found["loss"] == pytest.approx(3.0) and math.isfinite(found["ratio_max"])


def test_reference_stays_and_pulls():
    """Oracle: KL 0 and no pull at the start; after a move, the KL is positive and its gradient leads back.

    Mutant: the reference shares the model's tensors."""
    model = tiny_model(dtype=torch.float32)
    groups = [make_group(model, [7], [Spec([("s", [1, 2], 0)], adv=1.0), Spec([("s", [3], 0)], adv=0.0)])]
    learner = Learner(model, PPOClip(kl=0.1), TokenMean(), LearnerConfig(lr=1e-2))
    assert learner.update(groups, 0)["kl_ref"] == pytest.approx(0, abs=1e-6)
    found = learner.update(groups, 1)
    assert found["kl_ref"] > 1e-5
    assert found["learner_tokens"] == 2 + 1  # a token without advantage still has a KL
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            learner.ref_model.parameters(), tiny_model(dtype=torch.float32).parameters(), strict=True
        )
    )


def test_mini_batches_deal_every_group_once():
    """Oracle: counting; the order depends on seed and version only."""
    model = tiny_model()
    groups = [make_group(model, [1], [Spec([("s", [2], 0)], adv=1.0)], f"t/{i}#0") for i in range(7)]
    rows = rows_of(groups, 0, CFG)
    cfg = LearnerConfig(num_updates=3)
    dealt = deal(rows, 7, 5, cfg)
    assert sorted(len(part) for part in dealt) == [2, 2, 3]
    assert sorted(row.group for part in dealt for row in part) == list(range(7))
    names = [[row.name for row in part] for part in dealt]
    assert names == [[row.name for row in part] for part in deal(rows, 7, 5, cfg)]
    assert names != [[row.name for row in part] for part in deal(rows, 7, 6, cfg)]
    found = Learner(model, PPOClip(), TokenMean(), LearnerConfig(num_updates=20)).update(groups, 0)
    assert found["num_updates"] == 7


def test_learning_rate_closed_form():
    """Oracle: by hand. Mutant: a warmup that starts at 0 wastes the first step."""
    cfg = LearnerConfig(lr=1.0, warmup_updates=2, schedule="cosine", total_updates=12, min_lr_ratio=0.1)
    assert [lr_at(cfg, u) for u in (0, 1, 2)] == pytest.approx([0.5, 1.0, 1.0])
    assert lr_at(cfg, 7) == pytest.approx(0.1 + 0.9 * 0.5)
    assert lr_at(cfg, 12) == lr_at(cfg, 99) == pytest.approx(0.1)
    linear = LearnerConfig(lr=1.0, schedule="linear", total_updates=4)
    assert [lr_at(linear, u) for u in range(5)] == pytest.approx([1, 0.75, 0.5, 0.25, 0])
    assert lr_at(LearnerConfig(lr=0.3), 10**6) == 0.3


@pytest.mark.parametrize(
    "changes",
    [{"lr": 0.0}, {"num_updates": 0}, {"schedule": "step"}, {"schedule": "linear"}, {"max_token_age": -1}],
)
def test_bad_settings(changes):
    with pytest.raises(ConfigError, match="learner: "):
        LearnerConfig(**changes)
