"""Rows to micro-batches: the tokens that the model must see, packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwright.learn.backbone import is_written_out
from rollwright.learn.rows import Row
from rollwright.stages.objective import Objective
from rollwright.stages.reduce import Reduce

MIN_SAVED = 0.3  # share of the tokens; where laying prompts once saves less, it costs more than it saves
MAX_SPREAD = 2  # positions that attend for each token of the budget: shared ones take memory there too


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What of one row goes through the model.

    Args:
        row: where it comes from.
        steps_T: the response steps whose logprob is needed, [T], ascending.
        weight_T: their weight in the step's loss, [T].
    """

    row: Row
    steps_T: NDArray[np.int64]
    weight_T: NDArray[np.float64]

    @property
    def num_tokens(self) -> int:
        """Tokens of context: all before the last token that is predicted."""
        return self.row.num_prompt + int(self.steps_T[-1])

    @property
    def prompt(self) -> bytes:
        """The prompt, as a key: rows with equal prompts may share it."""
        return self.row.tokens_L[: self.row.num_prompt].tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """Packed sequences and the T tokens among them that have a loss.

    Args:
        parts: the rows, in order.
        lengths: tokens of each row, its prompt included.
        tokens_N: all of them, [N]; a prompt that rows share stands here once.
        rows_L: where prompts are shared, packed place of every row's tokens, laid end to end, [sum(lengths)].
        at_T: packed place of the token before, whose hidden state predicts, [T].
        target_T: the token predicted, [T].
        temperature_T: what its logits were divided by, [T]; None where all are 1.
        logp_old_T, adv_T, weight_T: behaviour logprob, advantage, weight in the loss, [T].
        segment_T: number of the row, [T].
        is_current_T: sampled at the version that learns, [T].
        logp_ref_T: logprob under the reference, [T], if it is asked for.
        logp_prox_T: logprob under the weights before the batch's first update, [T], if it is asked for and
            more than one update is made.
    """

    parts: tuple[Part, ...]
    lengths: tuple[int, ...]
    tokens_N: Tensor
    at_T: Tensor
    target_T: Tensor
    temperature_T: Tensor | None
    logp_old_T: Tensor
    adv_T: Tensor
    weight_T: Tensor
    segment_T: Tensor
    is_current_T: Tensor
    rows_L: Tensor | None = None
    logp_ref_T: Tensor | None = None
    logp_prox_T: Tensor | None = None

    def name_of(self, t: int) -> str:
        """Say which token the t-th is, for messages."""
        part = self.parts[int(self.segment_T[t])]
        first = int((self.segment_T < self.segment_T[t]).sum())
        return f"{part.row.name}, response step {int(part.steps_T[t - first])}"


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """All of one optimizer step.

    Args:
        micro_batches: what goes through the model; empty if no token can move the weights.
        num_tokens: trained tokens, also those that cannot move anything (advantage 0).
        num_trajectories: trajectories with at least one trained token.
    """

    micro_batches: tuple[MicroBatch, ...]
    num_tokens: int
    num_trajectories: int

    @property
    def num_model_tokens(self) -> int:
        """Tokens that go through the model, context included; a shared prompt counts for each row."""
        return sum(sum(micro.lengths) for micro in self.micro_batches)


def plan_step(
    rows: Sequence[Row], objective: Objective, reduce: Reduce, budget: int, like: Tensor
) -> StepPlan:
    """Weigh every trained token of the optimizer step, then pack those that have a loss.

    ``like`` is a parameter of the model: micro-batches go to its device, in its precision but at least
    float32.

    Tokens whose loss and gradient are exactly zero (advantage 0, and an objective that says so) count in
    the weights like any other, but the model is not run for them.
    """
    is_trained_T = np.concatenate([row.is_trained_R for row in rows]) if rows else np.zeros(0, np.bool_)
    sizes = [len(row.is_trained_R) for row in rows]
    weight_T = reduce(is_trained_T, np.repeat(np.arange(len(rows)), sizes))
    parts = []
    for row, weight_R in zip(rows, np.split(weight_T, np.cumsum(sizes)[:-1]), strict=True) if rows else ():
        steps_T = needed_steps(row, objective)
        if len(steps_T):
            parts.append(Part(row, steps_T, weight_R[steps_T] * row.weight))
    shares = is_written_out(like) and share_saved(parts) >= MIN_SAVED
    return StepPlan(
        micro_batches=tuple(pack(chunk, like, shares) for chunk in cut(parts, budget, shares)),
        num_tokens=int(is_trained_T.sum()),
        num_trajectories=sum(bool(row.is_trained_R.any()) for row in rows),
    )


def needed_steps(row: Row, objective: Objective) -> NDArray[np.int64]:
    """Return the response steps of a row whose logprob the loss needs."""
    if not objective.is_zero_at_zero_adv:
        return np.flatnonzero(row.is_trained_R)
    is_moving_R = row.is_trained_R & (row.adv_R != 0) & (row.weight != 0)
    if "segments" in objective.reads and is_moving_R.any():
        return np.flatnonzero(row.is_trained_R)
    return np.flatnonzero(is_moving_R)


def share_saved(parts: Sequence[Part]) -> float:
    """Return the share of the tokens that laying each prompt once would save."""
    total = sum(part.num_tokens for part in parts)
    prompts = {part.prompt: part.row.num_prompt for part in parts}
    saved = sum(part.row.num_prompt for part in parts) - sum(prompts.values())
    return saved / max(total, 1)


def cut(parts: Sequence[Part], budget: int, shares: bool = False) -> list[list[Part]]:
    """Cut into micro-batches of at most ``budget`` tokens, or one row; similar lengths together.

    Longest first, so that workers finish together. Rows that share a prompt stay together; it counts once.
    """
    chunks: list[list[Part]] = []
    used = spread = 0
    laid: set[bytes] = set()
    for part in _ordered(parts, shares):
        cost = part.num_tokens
        if shares and part.prompt in laid:
            cost -= part.row.num_prompt
        if not chunks or used + cost > budget or spread + part.num_tokens > MAX_SPREAD * budget:
            chunks.append([])
            laid.clear()
            used, spread, cost = 0, 0, part.num_tokens
        chunks[-1].append(part)
        if shares:
            laid.add(part.prompt)
        used += cost
        spread += part.num_tokens
    return chunks


def _ordered(parts: Sequence[Part], shares: bool) -> list[Part]:
    if not shares:
        return sorted(parts, key=lambda part: -part.num_tokens)
    longest: dict[bytes, int] = {}
    for part in parts:
        longest[part.prompt] = max(part.num_tokens, longest.get(part.prompt, 0))
    return sorted(parts, key=lambda part: (-longest[part.prompt], part.prompt, -part.num_tokens))


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """Where parts lie in a pack.

    Args:
        tokens: their tokens, in pieces.
        heads, tails: place of each part's first prompt token, and of its first response token.
    """

    tokens: list[NDArray[np.int64]]
    heads: list[int]
    tails: list[int]

    def rows_of(self, parts: Sequence[Part]) -> NDArray[np.int64]:
        """Return the place of every part's tokens, laid end to end."""
        places = []
        for part, head, tail in zip(parts, self.heads, self.tails, strict=True):
            num = part.row.num_prompt
            places += [np.arange(head, head + num), np.arange(tail, tail + part.num_tokens - num)]
        return np.concatenate(places)


def lay(parts: Sequence[Part], shares: bool) -> Laid:
    """Lay parts one after another; with ``shares`` a prompt that was laid is not laid again."""
    laid = Laid([], [], [])
    prompt_to_place: dict[bytes, int] = {}
    end = 0
    for part in parts:
        num = part.row.num_prompt
        head = prompt_to_place.get(part.prompt) if shares else None
        if head is None:
            head = prompt_to_place[part.prompt] = end
            laid.tokens.append(part.row.tokens_L[:num])
            end += num
        laid.heads.append(head)
        laid.tails.append(end)
        laid.tokens.append(part.row.tokens_L[num : part.num_tokens])
        end += part.num_tokens - num
    return laid


def places_of(part: Part, head: int, tail: int) -> NDArray[np.int64]:
    """Return the place of the token before each predicted one: the prompt's last, or a response token."""
    return np.where(part.steps_T > 0, tail + part.steps_T - 1, head + part.row.num_prompt - 1)


def pack(parts: Sequence[Part], like: Tensor, shares: bool = False) -> MicroBatch:
    """Lay rows one after another without padding, equal prompts once if they are shared."""
    laid = lay(parts, shares)
    real = torch.promote_types(like.dtype, torch.float32)

    def join(values: Sequence[NDArray[Any]], dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(np.concatenate(values)).to(device=like.device, dtype=dtype)

    def steps(name: str) -> list[NDArray[Any]]:
        return [getattr(part.row, name)[part.steps_T] for part in parts]

    nums = [len(part.steps_T) for part in parts]
    places = [places_of(*at) for at in zip(parts, laid.heads, laid.tails, strict=True)]
    targets = [part.row.tokens_L[part.row.num_prompt + part.steps_T] for part in parts]
    temperatures = join(steps("temperature_R"), real)
    return MicroBatch(
        parts=tuple(parts),
        lengths=tuple(part.num_tokens for part in parts),
        tokens_N=join(laid.tokens, torch.int64),
        at_T=join(places, torch.int64),
        target_T=join(targets, torch.int64),
        temperature_T=None if bool((temperatures == 1).all()) else temperatures,
        logp_old_T=join(steps("logp_old_R"), real),
        adv_T=join(steps("adv_R"), real),
        weight_T=join([part.weight_T for part in parts], real),
        segment_T=join([np.repeat(np.arange(len(parts)), nums)], torch.int64),
        is_current_T=join(steps("is_current_R"), torch.bool),
        rows_L=join([laid.rows_of(parts)], torch.int64) if shares else None,
    )
