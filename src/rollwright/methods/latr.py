"""LATR: a group grown as a tree that branches where the model hesitates and prunes what rejoins."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.generate.lookahead_tree import LookaheadTree


def latr(
    each: int = 8,
    tau_abs: float = 0.25,
    tau_rel: float = 0.15,
    tau_ed: float = 0.4,
    lookahead: int = 20,
    share: float = 1.0,
    clip_high: float = 0.2,
    reduce: str = "sequence_mean",
) -> Method:
    """Grow each group as a tree of at most ``each`` branches and finish it by plain sampling.

    branch ⇔ p₂ > tau_abs and p₁ − p₂ < tau_rel;  prune ⇔ d(own, left) / lookahead < tau_ed

    With ``tau_abs=1`` it is GRPO, token for token.

    Args:
        each: K, rollouts per prompt, ≥ 1.
        tau_abs: branch only if the second token has at least this probability, in [0, 1]; 1 never does.
        tau_rel: and only if it is no further than this behind the first, in [0, 1].
        tau_ed: prune a branch that differs in less than this share of its lookahead, in [0, 1].
        lookahead: tokens before a new branch is judged, ≥ 1; choose it well below the usual length.
        share: share of each group that the tree makes, in [0, 1]; the rest is sampled plainly.
        clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.

    Source: LATR (2510.24302). What differs: docs/methods/latr.md.
    """
    return dataclasses.replace(
        grpo(each, clip_high=clip_high, reduce=reduce),
        name="latr",
        generate=LookaheadTree(tau_abs, tau_rel, tau_ed, lookahead, share),
    )
