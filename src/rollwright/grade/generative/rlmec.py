"""RLMEC: a model that rewrites wrong solutions with the fewest edits says which tokens were wrong."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rollwright.errors import GraderError


class Rewriter(Protocol):
    """A generative reward model over tokens, trained to rewrite with the fewest edits."""

    def probabilities(self, question: str, tokens: Sequence[Hashable]) -> Sequence[float]:
        """Return its probability of each of the policy's tokens when it rewrites them, [T]."""
        ...

    def rewrite(self, question: str, tokens: Sequence[Hashable]) -> Sequence[Hashable]:
        """Return the solution as it would write it."""
        ...


@dataclass(frozen=True, slots=True)
class Edit:
    """One place of an alignment.

    Args:
        kind: what happens.
        before: index in the policy's tokens; for an insertion the index that it stands before.
        after: index in the rewritten tokens; for a deletion the index that it would stand before.
    """

    kind: Literal["keep", "replace", "insert", "delete"]
    before: int
    after: int


def alignment(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Edit]:
    """Return the edits that turn one sequence into another: as few as there can be (Levenshtein).

    Of several, kept tokens are matched as late as possible. Time and memory grow as the product of the
    lengths.
    """
    num, more = len(before), len(after)
    cost = [[i + j if not i or not j else 0 for j in range(more + 1)] for i in range(num + 1)]
    for i in range(1, num + 1):
        row, above, token = cost[i], cost[i - 1], before[i - 1]
        for j in range(1, more + 1):
            row[j] = min(above[j - 1] + (token != after[j - 1]), above[j] + 1, row[j - 1] + 1)
    edits: list[Edit] = []
    i, j = num, more
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (before[i - 1] != after[j - 1]):
            i, j = i - 1, j - 1
            edits.append(Edit("keep" if before[i] == after[j] else "replace", i, j))
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
            edits.append(Edit("delete", i, j))
        else:
            j -= 1
            edits.append(Edit("insert", i, j))
    return edits[::-1]


def num_edits(edits: Sequence[Edit]) -> int:
    """Return how many of them change something."""
    return sum(edit.kind != "keep" for edit in edits)


def token_rewards(probabilities: Sequence[float], low: float = 0.1, high: float = 0.9) -> list[float]:
    """Return each token's reward from the rewriter's probability of it.

    r_t = clip(p_t, low, high) − high, in [low − high, 0]

    A token that the rewriter would keep gets 0, one that it would change the least there is.

    Args:
        probabilities: p_t, [T].
        low, high: 0 ≤ low < high ≤ 1.

    Raises:
        GraderError: a probability outside [0, 1], or bounds that are out of order.

    Source: RLMEC (2401.06081), as the catalogue has it: the probability after clipping, near 0 where nothing
    is changed. The place of the zero at ``high`` is ours.
    """
    if not 0 <= low < high <= 1 or any(not 0 <= p <= 1 for p in probabilities):
        raise GraderError(
            f"token rewards with low={low}, high={high}; expected 0 ≤ low < high ≤ 1, as all p_t"
        )
    return [min(max(p, low), high) - high for p in probabilities]


def imitation_weights(
    before: Sequence[Hashable], after: Sequence[Hashable], decay: float = 1.0
) -> list[float]:
    """Return the weight of each rewritten token in the imitation loss; they add up to 1, or are all 0.

    w ∝ decay^k for the k-th token that was put in or replaced, 0 for one that was kept

    Args:
        before, after: the policy's tokens and the rewritten ones.
        decay: in (0, 1]; below 1 the first error, which later ones follow from, weighs most.

    Raises:
        GraderError: a decay outside (0, 1].

    Source: RLMEC (2401.06081): imitation of the edited tokens only. The decay is our reading of its weight by
    position.
    """
    if not 0 < decay <= 1:
        raise GraderError(f"imitation weights with decay={decay}; expected a number in (0, 1]")
    weights, number = [0.0] * len(after), 0
    for edit in alignment(before, after):
        if edit.kind in ("insert", "replace"):
            weights[edit.after] = decay**number
            number += 1
    total = math.fsum(weights)
    return [weight / total for weight in weights] if total else weights
