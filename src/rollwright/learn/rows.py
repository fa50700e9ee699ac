"""Groups to rows: what of each trajectory is context and what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import LearnerError
from rollwright.learn.config import LearnerConfig
from rollwright.tree import Group, Node, Response, Trajectory


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One scored trajectory as flat arrays.

    Args:
        name: group and sample number, for messages.
        group: number of its group in the batch.
        tokens_L: prompt and response, [L].
        num_prompt: steps of the root, ≥ 1 if anything is trained.
        is_trained_R: which response steps are trained, [R].
        logp_old_R: behaviour logprob over the full vocabulary at its temperature, [R].
        adv_R: advantage, [R].
        temperature_R: what the logits were divided by, [R].
        is_current_R: sampled by the policy that learns at the version that learns, [R].
        weight: factor of the trajectory's loss.
        ratio_to_current: the learner puts its own logprob before the update in the place of logp_old.
    """

    name: str
    group: int
    tokens_L: NDArray[np.int64]
    num_prompt: int
    is_trained_R: NDArray[np.bool_]
    logp_old_R: NDArray[np.float64]
    adv_R: NDArray[np.float64]
    temperature_R: NDArray[np.float64]
    is_current_R: NDArray[np.bool_]
    weight: float
    ratio_to_current: bool = False


def rows_of(groups: Sequence[Group], version: int, cfg: LearnerConfig) -> list[Row]:
    """Return one row for each scored trajectory, in order.

    A trajectory whose score is None is left out: it is in no denominator. A step is trained if and only
    if it was sampled, by none of ``cfg.others``, and is not older than ``cfg.max_token_age`` versions.

    Raises:
        LearnerError: a scored trajectory has no advantages, one has a credit where it must not, or a
            number is not finite.
    """
    rows = []
    for g, group in enumerate(groups):
        for trajectory in group.trajectories:
            name = f"trajectory {trajectory.index} of group {group.id}"
            if trajectory.score is None:
                if any(trajectory.advantages or ()):
                    raise LearnerError(f"{name} is not scored but has an advantage; a credit must give it 0")
                continue
            rows.append(_row(name, g, group, trajectory, version, cfg))
    return rows


def _row(name: str, g: int, group: Group, trajectory: Trajectory, version: int, cfg: LearnerConfig) -> Row:
    path = group.path(trajectory.leaf)
    response = Response.of(path)
    is_own_R = spread(path, lambda node: node.policy == cfg.policy, np.bool_)
    is_trained_R = response.is_sampled.copy()
    if cfg.others:
        is_trained_R &= ~spread(path, lambda node: node.policy in cfg.others, np.bool_)
    if cfg.max_token_age is not None:
        is_trained_R &= version - response.versions <= cfg.max_token_age
    logp_old_R = response.logp_old + log_kept_mass(path)
    row = Row(
        name=name,
        group=g,
        tokens_L=np.array(response.prompt + response.tokens, dtype=np.int64),
        num_prompt=len(response.prompt),
        is_trained_R=is_trained_R,
        logp_old_R=logp_old_R,
        adv_R=_advantages(name, trajectory, response),
        temperature_R=response.temperatures,
        is_current_R=response.is_sampled & is_own_R & (response.versions == version),
        weight=trajectory.weight,
        ratio_to_current=trajectory.ratio_to_current,
    )
    _check(row)
    return row


def spread(path: Sequence[tuple[Node, int]], value, dtype: type) -> NDArray:  # type: ignore[no-untyped-def,type-arg]
    """Return ``value(node)`` for each response step of the path, [R]."""
    values = np.array([value(node) for node, _ in path[1:]], dtype=dtype)
    return np.repeat(values, [num for _, num in path[1:]])


def log_kept_mass(path: Sequence[tuple[Node, int]]) -> NDArray[np.float64]:
    """Return log of the kept mass of each response step, [R]; 0 where nothing was cut.

    The engine records log π(token | kept set). Adding this gives the logprob over the full vocabulary at
    the same temperature, which is what the learner computes: the ratio then compares the uncut policy
    now with the uncut policy then, and is 1 before the first update.
    """
    parts = [
        np.zeros(num) if node.kept_masses is None else np.log(np.array(node.kept_masses[:num]))
        for node, num in path[1:]
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _advantages(name: str, trajectory: Trajectory, response: Response) -> NDArray[np.float64]:
    num = len(response.tokens)
    if trajectory.advantages is None:
        raise LearnerError(f"{name} is scored but has no advantages; put a credit stage into the method")
    if len(trajectory.advantages) != num:
        raise LearnerError(
            f"{name} has {len(trajectory.advantages)} advantages for {num} response steps;"
            " a credit gives one per step after the root"
        )
    adv_R = np.array(trajectory.advantages, dtype=np.float64)
    if adv_R[~response.is_sampled].any():
        raise LearnerError(f"{name} has credit on steps that were not sampled; a credit must give them 0")
    return adv_R


def _check(row: Row) -> None:
    trained = row.is_trained_R
    if not trained.any():
        return
    if row.num_prompt < 1:
        raise LearnerError(f"{row.name} has an empty prompt; the first token needs one token before it")
    what_to_values = {"advantage": row.adv_R, "behaviour logprob": row.logp_old_R}
    for what, values in what_to_values.items():
        if what == "behaviour logprob" and row.ratio_to_current:
            continue  # the learner puts its own in its place: another run's may be unknown
        if not np.isfinite(values[trained]).all():
            at = int(np.flatnonzero(trained & ~np.isfinite(values))[0])
            raise LearnerError(f"{row.name}: the {what} of response step {at} is {values[at]}")
    if not np.isfinite(row.weight):
        raise LearnerError(f"{row.name}: its weight is {row.weight}")
    if (row.temperature_R[trained] <= 0).any():
        raise LearnerError(
            f"{row.name} was sampled greedily (temperature 0), which has no probabilities to train;"
            " sample training rollouts with a temperature above 0"
        )
