"""Our stages against the loss of TRL's GRPOTrainer: on random batches, and through a whole model."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from parity_help import Padded, ours, random_batch, same

from rollwright.engine.checkpoint import fill, save_model
from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.learn.config import LearnerConfig
from rollwright.learn.gradient import accumulate
from rollwright.learn.packing import plan_step
from rollwright.learn.rows import rows_of
from rollwright.stages.objective.gspo import GSPO
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.stages.reduce.constant_length import ConstantLength
from rollwright.stages.reduce.sequence_mean import SequenceMean
from rollwright.stages.reduce.token_mean import TokenMean
from rollwright.tree import Group, Node, Origin, Trajectory

pytestmark = pytest.mark.slow

LENGTH = 32


def trainer(loss_type: str, new: torch.Tensor, **changes) -> SimpleNamespace:
    """Return what `GRPOTrainer._compute_loss` reads of its trainer, with the logprobs given."""
    pieces = {
        "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "beta": 0.0,
        "loss_type": loss_type,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "current_gradient_accumulation_steps": 1,
        "max_completion_length": LENGTH,
        "_entropy_bonus_enabled": False,
        "_metrics": {"train": defaultdict(list)},
        "model": SimpleNamespace(training=True),
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        "accelerator": SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, sync_gradients=True
        ),
        "_get_per_token_logps_and_entropies": lambda *a, **k: (new, torch.zeros_like(new), None),
    }
    args = changes.pop("args", {})
    fake = SimpleNamespace(**{**pieces, **changes})
    vars(fake.args).update(args)
    return fake


def loss_of(fake: SimpleNamespace, batch: Padded) -> torch.Tensor:
    """Return TRL's loss; fails, and with it these tests, where TRL is not installed."""
    from trl import GRPOTrainer

    rows = batch.mask.shape[0]
    inputs = {
        "prompt_ids": torch.zeros(rows, 1, dtype=torch.int64),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.int64),
        "completion_ids": torch.zeros(batch.mask.shape, dtype=torch.int64),
        "completion_mask": batch.mask,
        "advantages": batch.adv[:, 0],
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.ref,
        "num_items_in_batch": batch.mask.sum(),
    }
    return GRPOTrainer._compute_loss(fake, None, inputs)


def theirs(batch: Padded, loss_type: str, **changes) -> tuple[float, torch.Tensor]:
    leaf = batch.leaf
    loss = loss_of(trainer(loss_type, leaf, **changes), batch)
    return loss.item(), torch.autograd.grad(loss, leaf)[0]


TYPE_TO_REDUCE = {
    "grpo": SequenceMean(),
    "bnpo": TokenMean(),
    "dapo": TokenMean(),
    "dr_grpo": ConstantLength(LENGTH),
}


@pytest.mark.parametrize("loss_type", sorted(TYPE_TO_REDUCE))
@pytest.mark.parametrize("kl", [0.0, 0.1])
@pytest.mark.parametrize("delta", [None, 2.5])
def test_clipped_loss(loss_type, kl, delta):
    """Oracle: TRL's loss in its four reductions, with its KL term (k3) and its two-sided clip."""
    batch = random_batch(0, spread=0.8)
    got = ours(batch, PPOClip(0.2, 0.28, kl=kl, dual_clip=delta), TYPE_TO_REDUCE[loss_type])
    assert same(got, theirs(batch, loss_type, beta=kl, args={"delta": delta}))


def test_sequence_ratio():
    """Oracle: TRL's sequence-level importance sampling: same value, and the same gradient because the
    advantage is one number per rollout."""
    batch = random_batch(1)
    got = ours(batch, GSPO(0.2, 0.28), SequenceMean())
    assert same(got, theirs(batch, "grpo", importance_sampling_level="sequence"))


def test_truncated_importance_weight():
    """Oracle: TRL's cispo, which is REINFORCE with a capped weight over a token mean."""
    batch = random_batch(2)
    got = ours(batch, Reinforce(ratio_cap=1.28), TokenMean())
    assert same(got, theirs(batch, "cispo", epsilon_high=1.28))


def test_where_a_masked_rollout_differs():
    """A rollout whose tokens are all masked still divides TRL's sequence and constant-length means (M01's
    fault); verl leaves it out of both, and so do we."""
    batch = random_batch(3, with_empty_row=True)
    for loss_type in ("grpo", "dr_grpo"):
        value, grad = theirs(batch, loss_type)
        assert same(ours(batch, PPOClip(0.2, 0.28), TYPE_TO_REDUCE[loss_type]), (value * 6 / 5, grad * 6 / 5))


def test_whole_model(tmp_path):
    """Oracle: transformers' forward pass and TRL's loss give the same gradient for every weight as our
    decoder, packing and learner, for multi-turn rollouts of different lengths."""
    model = new_model(
        DecoderConfig("qwen2", 17, 32, 48, 2, num_heads=4, num_kv_heads=2, head_dim=8, qkv_bias=True), 0
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0 if parameter.ndim == 2 else 1.0)
    save_model(model, tmp_path)
    group, padded = rollouts()
    cfg = LearnerConfig()
    plan = plan_step(rows_of([group], 1, cfg), PPOClip(0.2, 0.28), TokenMean(), 16, model.embed)
    outcomes = accumulate(model, PPOClip(0.2, 0.28), plan.micro_batches)
    loss, grads = hugging_face_gradient(tmp_path, *padded)
    assert sum(float(o.loss) for o in outcomes) == pytest.approx(loss, rel=1e-5)
    want = Decoder(model.cfg)
    fill(want, lambda name: grads.get(name), "gradients")
    for (name, parameter), other in zip(model.named_parameters(), want.parameters(), strict=True):
        difference = (parameter.grad - other).norm()
        assert difference < 1e-4 * other.norm() + 1e-7, name


def rollouts():
    """Return a group with an observation inside, and the same rows padded on the right."""
    prompt, rng = (1, 2, 3), torch.Generator().manual_seed(0)
    nodes = {"g": Node("g", None, 0, Origin.PROMPT, prompt)}
    trajectories, rows = [], []
    for i, (first, seen, second) in enumerate([(3, 0, 0), (2, 3, 4), (6, 0, 0), (1, 1, 1)]):
        parent, row = "g", []
        adv = (1.0, -0.7, 0.4, -1.2)[i]
        for k, num in enumerate((first, seen, second)):
            tokens = torch.randint(0, 17, (num,), generator=rng).tolist()
            logp = (-torch.rand(num, generator=rng) * 4).tolist()
            is_sampled = k != 1
            node = Node(
                f"g/{i}.{k}",
                parent,
                nodes[parent].num_steps,
                Origin.SAMPLED if is_sampled else Origin.OBSERVATION,
                tuple(tokens),
                policy="policy",
                version=0,
                logprobs=tuple(logp) if is_sampled else None,
                temperature=1.0,
            )
            nodes[node.id], parent = node, node.id
            row += [
                (t, p if is_sampled else 0.0, float(is_sampled)) for t, p in zip(tokens, logp, strict=True)
            ]
        advantages = tuple(adv * mask for _, _, mask in row)
        trajectories.append(Trajectory(parent, i, 1.0, "scored", score=1.0, advantages=advantages))
        rows.append((row, adv))
    longest = max(len(row) for row, _ in rows)
    filled = [row + [(0, 0.0, 0.0)] * (longest - len(row)) for row, _ in rows]
    ids, old, mask = (torch.tensor([[column[k] for column in row] for row in filled]) for k in range(3))
    adv = torch.tensor([adv for _, adv in rows])[:, None].expand(mask.shape)
    return Group("g", "t", nodes, tuple(trajectories)), (torch.tensor(prompt), ids, old, adv, mask)


def hugging_face_gradient(path, prompt, ids, old, adv, mask):
    from transformers import AutoModelForCausalLM

    hugging = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    whole = torch.cat([prompt.expand(len(ids), -1), ids], 1)
    logits = hugging(whole).logits[:, len(prompt) - 1 : -1]
    new = torch.log_softmax(logits, -1).gather(-1, ids[..., None])[..., 0]
    loss = loss_of(trainer("dapo", new), Padded(new, old, old, adv, mask))
    loss.backward()
    return loss.item(), {name: p.grad for name, p in hugging.named_parameters()}
