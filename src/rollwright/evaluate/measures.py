"""What k samples of a task are worth, from n ≥ k of them: without bias, and without drawing subsets.

Each measure is its mean over all subsets of k of the n samples, in closed form, so that nothing depends on
the order of the samples or on chance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence

from rollwright.errors import DataError


def _check(name: str, num: int, k: int) -> None:
    if not 1 <= k <= num:
        raise DataError(
            f"{name}: k = {k} of {num} samples; expected 1 ≤ k ≤ samples, take more samples or less k"
        )


def pass_at_k(num: int, num_right: int, k: int) -> float:
    """Return the chance that at least one of k samples is right: 1 - C(n-c, k)/C(n, k).

    k = 1 is the share of right samples.

    Args:
        num: n, samples there are.
        num_right: c of them, right ones.
        k: samples drawn without replacement, 1 ≤ k ≤ n.

    Raises:
        DataError: k or the number of right samples outside its range.

    Source: Chen et al. 2021 (2107.03374).
    """
    _check("pass_at_k", num, k)
    if not 0 <= num_right <= num:
        raise DataError(f"pass_at_k: {num_right} right of {num}; expected 0 ≤ right ≤ samples")
    return 1 - math.comb(num - num_right, k) / math.comb(num, k)


def auc_at_k(num: int, num_right: int, k: int) -> float:
    """Return the area under pass@1 ... pass@k by trapezia, divided by k - 1; k = 1 is pass@1."""
    values = [pass_at_k(num, num_right, j) for j in range(1, k + 1)]
    if k == 1:
        return values[0]
    return math.fsum((a + b) / 2 for a, b in itertools.pairwise(values)) / (k - 1)


def best_of_k(is_right: Sequence[bool], scores: Sequence[float], k: int) -> float:
    """Return the chance that the sample with the highest score among k is right.

    Equal scores share: each of them is as likely to be taken.

    Args:
        is_right: of each sample, [n].
        scores: what the choice goes by, [n]; not NaN.

    Raises:
        DataError: k outside its range, lists of unequal length, or a score that is NaN.
    """
    num = len(is_right)
    _check("best_of_k", num, k)
    if len(scores) != num or any(math.isnan(score) for score in scores):
        raise DataError(
            f"best_of_k: {len(scores)} scores for {num} samples; expected one number each, no NaN"
        )
    order = sorted(range(num), key=lambda i: -scores[i])
    total, start = 0.0, 0
    while start < num:
        end = start + 1
        while end < num and scores[order[end]] == scores[order[start]]:
            end += 1
        chance = (math.comb(num - start, k) - math.comb(num - end, k)) / math.comb(num, k)
        total += chance * sum(is_right[i] for i in order[start:end]) / (end - start)
        start = end
    return total


def first_finish(is_right: Sequence[bool], lengths: Sequence[int], is_cut: Sequence[bool], k: int) -> float:
    """Return the chance that the first of k parallel samples to finish is right.

    The shortest finishes first; one that was cut never finishes, so it is taken only where all k were cut.

    Args:
        is_right, lengths (sampled tokens), is_cut: of each sample, [n].
    """
    if not len(is_right) == len(lengths) == len(is_cut):
        raise DataError(
            f"first_finish: {len(is_right)} samples, {len(lengths)} lengths, {len(is_cut)} marks; expected "
            "equally many"
        )
    scores = [-math.inf if cut else -float(length) for length, cut in zip(lengths, is_cut, strict=True)]
    return best_of_k(is_right, scores, k)


def cons_at_k(answers: Sequence[Hashable | None], is_right: Sequence[bool], k: int) -> float:
    """Return the chance that the most frequent answer among k samples is right.

    Answers with equally many votes share: each is as likely to be taken. A sample without an answer does not
    vote; where none votes, the result is wrong.

    Args:
        answers: of each sample, None where there is none, [n].
        is_right: of each sample, [n]; samples with one answer are right or wrong together.

    Raises:
        DataError: k outside its range, lists of unequal length, or one answer both right and wrong.
    """
    num = len(answers)
    _check("cons_at_k", num, k)
    if len(is_right) != num:
        raise DataError(f"cons_at_k: {len(is_right)} verdicts for {num} answers; expected one each")
    counts: dict[Hashable, int] = {}
    verdicts: dict[Hashable, bool] = {}
    for answer, right in zip(answers, is_right, strict=True):
        if answer is None:
            continue
        counts[answer] = counts.get(answer, 0) + 1
        if verdicts.setdefault(answer, right) != right:
            raise DataError(f"cons_at_k: the answer {answer!r} is right in one sample and wrong in another")
    silent = num - sum(counts.values())
    ways = 0.0
    for answer, right in verdicts.items():
        if right:
            others = [count for name, count in counts.items() if name != answer]
            ways += _wins(counts[answer], others, silent, k)
    return ways / math.comb(num, k)


def _wins(mine: int, others: Sequence[int], silent: int, k: int) -> float:
    """Return the number of subsets of k in which an answer wins, ties counted by their share."""
    total = 0.0
    for votes in range(1, min(mine, k) + 1):
        # ways[(drawn, tied)]: choices among the other answers, none of which has more than `votes`.
        ways = {(0, 0): 1}
        for count in others:
            grown: dict[tuple[int, int], int] = {}
            for (drawn, tied), num in ways.items():
                for more in range(min(count, votes, k - votes - drawn) + 1):
                    key = (drawn + more, tied + (more == votes))
                    grown[key] = grown.get(key, 0) + num * math.comb(count, more)
            ways = grown
        for (drawn, tied), num in ways.items():
            rest = k - votes - drawn
            total += math.comb(mine, votes) * num * math.comb(silent, rest) / (1 + tied)
    return total
