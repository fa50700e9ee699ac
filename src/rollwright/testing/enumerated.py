"""An exact-gradient oracle: a tabular policy so small that every sequence and every group is enumerated.

With 3 tokens and length 3 there are 27 sequences (fewer with an end token), so the true policy gradient
and the expectation of any estimator of it are finite sums, worked out in float64. A credit or objective
that says it is unbiased is held to it; one that says it is biased must be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rollwright.stages.objective import Objective
from rollwright.stages.reduce import Reduce
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory

Tokens = tuple[int, ...]
RewardFn = Callable[[Tokens], float | None]
CreditFn = Callable[[Group], Group]
PROMPT = (0,)


@dataclass(frozen=True, slots=True, eq=False)
class TabularPolicy:
    """One softmax per prefix.

    Args:
        logits: [num_prefixes, V], float64; the rows are in the order of `prefixes`.
        length: the most tokens of a sequence, ≥ 1.
        eos: a token that ends the sequence early, or None.
    """

    logits: Tensor
    length: int = 3
    eos: int | None = None

    @classmethod
    def random(
        cls, seed: int, num_words: int = 3, length: int = 3, eos: int | None = None, scale: float = 1.0
    ) -> TabularPolicy:
        """Return a policy with normal logits."""
        empty = cls(torch.zeros(0, num_words, dtype=torch.float64), length, eos)
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, scale, (len(empty.prefixes()), num_words))
        return cls(torch.from_numpy(logits), length, eos)

    @property
    def num_words(self) -> int:
        return self.logits.shape[1]

    def prefixes(self) -> list[Tokens]:
        """Return every prefix that has a next token, shortest first."""
        found: list[Tokens] = [()]
        for prefix in found:
            if len(prefix) + 1 < self.length:
                found += [(*prefix, v) for v in range(self.num_words) if v != self.eos]
        return found

    def sequences(self) -> list[Tokens]:
        """Return every finished sequence."""
        return [
            (*prefix, v)
            for prefix in self.prefixes()
            for v in range(self.num_words)
            if len(prefix) + 1 == self.length or v == self.eos
        ]

    def logps(self, logits: Tensor | None = None) -> Tensor:
        """Return the logprob of each step of each sequence, [S, length]; 0 after the end."""
        logp_PV = torch.log_softmax(self.logits if logits is None else logits, -1)
        place = {prefix: i for i, prefix in enumerate(self.prefixes())}
        sequences = self.sequences()
        rows_ST = torch.zeros(len(sequences), self.length, dtype=torch.int64)
        words_ST = torch.zeros_like(rows_ST)
        is_real_ST = torch.zeros(rows_ST.shape, dtype=torch.bool)
        for s, sequence in enumerate(sequences):
            for t, word in enumerate(sequence):
                rows_ST[s, t], words_ST[s, t], is_real_ST[s, t] = place[sequence[:t]], word, True
        return logp_PV[rows_ST, words_ST] * is_real_ST

    def probabilities(self) -> Tensor:
        """Return the probability of each sequence, [S]; they add up to 1."""
        return self.logps().sum(1).exp()


def exact_policy_gradient(policy: TabularPolicy, reward_fn: RewardFn) -> Tensor:
    """Return ∇ Σ_s p(s)·r(s) with respect to the logits, by enumeration, [num_prefixes, V].

    A reward of None (not scored) is refused: the true gradient of an unknown reward does not exist.
    """
    rewards = [reward_fn(sequence) for sequence in policy.sequences()]
    if None in rewards:
        raise ValueError("exact_policy_gradient needs a reward for every sequence")
    logits = policy.logits.clone().requires_grad_(True)
    value = (policy.logps(logits).sum(1).exp() * torch.tensor(rewards, dtype=torch.float64)).sum()
    return torch.autograd.grad(value, logits)[0]


def expected_estimator_gradient(
    policy: TabularPolicy,
    reward_fn: RewardFn,
    group_size: int,
    credit: CreditFn,
    objective: Objective,
    reduce: Reduce,
    behaviour: TabularPolicy | None = None,
) -> Tensor:
    """Return the exact expectation of the ascent direction −∇loss over all groups, [num_prefixes, V].

    E[g] = Σ over multisets of sequences of (multinomial coefficient · Π p) · g(group); credit, objective
    and reduce are the real stages, on real `Group` values. Each group is an optimizer step of its own.

    Args:
        policy: the policy that learns.
        reward_fn: reward of a sequence; None is not scored.
        group_size: rollouts in a group, 1 to 3 or so: S^G / G! groups are made.
        credit: scores to advantages.
        objective, reduce: the loss of a token and its weight.
        behaviour: what samples; the policy itself by default.
    """
    behaviour = behaviour or policy
    sampler = GroupMaker(behaviour, reward_fn)
    columns: list[tuple[int, int, int, float, float]] = []  # segment, sequence, step, advantage, weight
    num_segments = 0
    for members, probability in outcomes(behaviour.probabilities().tolist(), group_size):
        group = credit(sampler.group(members))
        scored = [(s, t) for s, t in zip(members, group.trajectories, strict=True) if t.score is not None]
        sizes = [len(sampler.sequences[s]) for s, _ in scored]
        weight_T = reduce(np.ones(sum(sizes), np.bool_), np.repeat(np.arange(len(scored)), sizes))
        weights = iter((weight_T * probability).tolist())
        for i, (s, trajectory) in enumerate(scored):
            for t, adv in enumerate(trajectory.advantages or ()):
                columns.append((num_segments + i, s, t, adv * trajectory.weight, next(weights)))
        num_segments += len(scored)
    return _ascent(policy, objective, behaviour.logps(), columns)


def _ascent(
    policy: TabularPolicy,
    objective: Objective,
    logp_old_ST: Tensor,
    columns: Sequence[tuple[int, int, int, float, float]],
) -> Tensor:
    segment_T, sequence_T, step_T = (torch.tensor([c[k] for c in columns]) for k in range(3))
    adv_T, weight_T = (torch.tensor([c[k] for c in columns], dtype=torch.float64) for k in (3, 4))
    logits = policy.logits.clone().requires_grad_(True)
    loss_T = objective(
        policy.logps(logits)[sequence_T, step_T],
        logp_old_ST[sequence_T, step_T],
        adv_T,
        torch.ones(len(columns), dtype=torch.bool),
        None,
        segment_T,
    )
    return -torch.autograd.grad((loss_T * weight_T).sum(), logits)[0]


def outcomes(probabilities: Sequence[float], size: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield each multiset of ``size`` draws, ascending, with its probability; these add up to 1."""
    for members in itertools.combinations_with_replacement(range(len(probabilities)), size):
        ways = math.factorial(size)
        for _, repeats in itertools.groupby(members):
            ways //= math.factorial(len(list(repeats)))
        yield members, ways * math.prod(probabilities[s] for s in members)


class GroupMaker:
    """Makes real groups of a tabular policy's sequences, scored by a reward function.

    Args:
        policy: gives the sequences and their logprobs.
        reward_fn: reward of a sequence; None is not scored.
    """

    def __init__(self, policy: TabularPolicy, reward_fn: RewardFn) -> None:
        self.policy, self.sequences = policy, policy.sequences()
        self.rewards = [reward_fn(sequence) for sequence in self.sequences]
        self._logp_ST: list[list[float]] = policy.logps().tolist()
        self._root = Node("t/0#0", None, 0, Origin.PROMPT, PROMPT)
        self._leaves: dict[tuple[int, int], tuple[Node, Trajectory]] = {}

    def group(self, members: Sequence[int]) -> Group:
        """Return the group whose trajectories are the sequences with these numbers, in order."""
        leaves = [self._leaf(i, s) for i, s in enumerate(members)]
        nodes = {self._root.id: self._root, **{node.id: node for node, _ in leaves}}
        return Group("t/0#0", "t/0", nodes, tuple(trajectory for _, trajectory in leaves))

    def _leaf(self, i: int, s: int) -> tuple[Node, Trajectory]:
        """Return node and trajectory of sequence ``s`` as the i-th sample."""
        if (i, s) in self._leaves:
            return self._leaves[i, s]
        tokens, reward = self.sequences[s], self.rewards[s]
        is_ended = tokens[-1] == self.policy.eos
        node = Node(
            id=f"{self._root.id}/{i}",
            parent=self._root.id,
            at=len(PROMPT),
            origin=Origin.SAMPLED,
            tokens=tokens,
            stream=str(i),
            start=len(PROMPT),
            policy="policy",
            version=0,
            logprobs=tuple(self._logp_ST[s][: len(tokens)]),
            temperature=1.0,
            stop=StopReason.EOS if is_ended else StopReason.LENGTH,
        )
        trajectory = Trajectory(
            leaf=node.id,
            index=i,
            reward=reward,
            status="not_scored" if reward is None else "scored",
            score=reward,
            terminated=is_ended,
            truncated=not is_ended,
            stop=node.stop,
        )
        self._leaves[i, s] = node, trajectory
        return node, trajectory


@dataclass(frozen=True, slots=True)
class Bias:
    """How far an expected estimator is from the exact gradient.

    Args:
        relative: ‖expected − exact‖ / ‖exact‖.
        relative_up_to_scale: the same for the best scaling of ``expected``: 0 if the direction is right.
        scale: that best scaling's inverse: expected ≈ scale·exact.
    """

    relative: float
    relative_up_to_scale: float
    scale: float


def bias(exact: Tensor, expected: Tensor) -> Bias:
    """Compare an expected estimator with the exact gradient; see `Bias`."""
    norm = float(exact.norm())
    scale = float((expected * exact).sum()) / norm**2
    along = float((expected * exact).sum() / expected.square().sum().clamp(min=1e-300))
    return Bias(
        relative=float((expected - exact).norm()) / norm,
        relative_up_to_scale=float((along * expected - exact).norm()) / norm,
        scale=scale,
    )
