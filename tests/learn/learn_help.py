"""Small models and hand-made groups whose behaviour logprobs come from a plain forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory

VOCAB = 11
KIND_TO_ORIGIN = {"s": Origin.SAMPLED, "o": Origin.OBSERVATION, "h": Origin.HINT}


def tiny_model(seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 8.0) -> Decoder:
    """Return a decoder with two layers and grouped heads whose distributions are not flat."""
    cfg = DecoderConfig(
        family="qwen2",
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        qkv_bias=True,
    )
    model = new_model(cfg, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(scale)
    return model.to(dtype)


@dataclass(frozen=True)
class Spec:
    """A trajectory: pieces of (kind, tokens, version) with kind s(ampled), o(bservation) or h(int)."""

    pieces: Sequence[tuple[str, Sequence[int], int]]
    adv: float = 0.0
    score: float | None = 1.0
    temperature: float = 1.0
    kept_mass: float | None = None
    weight: float = 1.0


def plain_logp(model: Decoder, tokens: Sequence[int], temperature: float) -> Tensor:
    """Return log softmax of every position of one sequence on its own, [L, V]."""
    hidden = model.hidden_packed(torch.tensor(tokens), [len(tokens)])
    return torch.log_softmax(model.logits(hidden) / temperature, -1)


def make_group(model: Decoder, prompt: Sequence[int], specs: Sequence[Spec], name: str = "t/0#0") -> Group:
    """Return a group whose logprobs are the model's own, so that the first ratio is 1."""
    nodes = {name: Node(name, None, 0, Origin.PROMPT, tuple(prompt))}
    trajectories = []
    for i, spec in enumerate(specs):
        trajectories.append(_grow(model, nodes, name, list(prompt), i, spec))
    return Group(name, name.split("#")[0], nodes, tuple(trajectories))


def _grow(
    model: Decoder, nodes: dict[str, Node], root: str, path: list[int], i: int, spec: Spec
) -> Trajectory:
    parent, advantages = root, []
    for k, (kind, tokens, version) in enumerate(spec.pieces):
        is_sampled = kind == "s"
        logprobs = None
        if is_sampled:
            with torch.no_grad():
                logp = plain_logp(model, [*path, *tokens], spec.temperature)
            shift = 0.0 if spec.kept_mass is None else torch.tensor(spec.kept_mass).log().item()
            at = len(path) - 1
            logprobs = tuple(float(logp[at + j, token]) - shift for j, token in enumerate(tokens))
        node = Node(
            id=f"{root}/{i}.{k}",
            parent=parent,
            at=nodes[parent].num_steps,
            origin=KIND_TO_ORIGIN[kind],
            tokens=tuple(tokens),
            start=len(path),
            policy="policy" if is_sampled else None,
            version=version if is_sampled else None,
            logprobs=logprobs,
            kept_masses=(spec.kept_mass,) * len(tokens) if is_sampled and spec.kept_mass else None,
            temperature=spec.temperature if is_sampled else None,
            stop=StopReason.EOS,
        )
        nodes[node.id] = node
        parent = node.id
        path += tokens
        advantages += [spec.adv if is_sampled else 0.0] * len(tokens)
    return Trajectory(
        leaf=parent,
        index=i,
        reward=spec.score,
        status="not_scored" if spec.score is None else "scored",
        score=spec.score,
        advantages=tuple(advantages),
        weight=spec.weight,
    )


def mixed_groups(model: Decoder, version: int = 0) -> list[Group]:
    """Return two groups with ragged, multi-turn, partly old, empty, unscored and zero-credit members."""
    v, old = version, version - 1
    first = [
        Spec([("s", [1, 2, 3], v)], adv=1.0),
        Spec([("s", [4, 5], v), ("o", [6, 7, 8], 0), ("s", [9], v), ("o", [2], 0)], adv=-0.5),
        Spec([("s", [3, 3], old), ("s", [1, 10, 4, 2], v)], adv=0.7, temperature=0.7),
        Spec([("s", [8, 8], v)], adv=0.0, score=None),
    ]
    second = [
        Spec([("s", [5], v)], adv=-1.5, weight=0.5),
        Spec([("s", [], v)], adv=0.0, score=0.0),
        Spec([("s", [6, 1, 9, 9, 2, 4, 7], v)], adv=0.9, kept_mass=0.8),
        Spec([("s", [2, 2, 2], v)], adv=0.0, score=0.5),
    ]
    return [make_group(model, [1, 2], first, "t/0#0"), make_group(model, [3, 4, 5], second, "t/1#0")]
