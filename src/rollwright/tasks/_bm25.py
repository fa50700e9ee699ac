"""Okapi BM25 over a small list of documents."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"[a-z0-9]+")


def words(text: str) -> list[str]:
    """Return a text's words: runs of letters and digits, in small letters."""
    return _WORD.findall(text.lower())


class Index:
    """An index of documents.

    The score of a document d for a query is

        Σ_w ln(1 + (N - n_w + ½)/(n_w + ½)) · f_wd (k₁ + 1) / (f_wd + k₁ (1 - b + b |d|/mean))

    over the distinct words w of the query: N documents, n_w of them with w, f_wd times w in d.

    Args:
        documents: texts.
        k1: how soon a word's repetitions stop to count, ≥ 0.
        b: how much long documents are marked down, in [0, 1].

    Source: Robertson and Zaragoza, The Probabilistic Relevance Framework (2009), with the idf of Lucene,
    which is never negative.
    """

    def __init__(self, documents: Sequence[str], k1: float = 1.5, b: float = 0.75) -> None:
        counts = [Counter(words(text)) for text in documents]
        lengths = [count.total() for count in counts]
        mean = sum(lengths) / max(len(lengths), 1)
        self._weights: dict[str, dict[int, float]] = {}
        for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            for word, times in count.items():
                weight = times * (k1 + 1) / (times + k1 * (1 - b + b * length / mean))
                self._weights.setdefault(word, {})[number] = weight
        for found in self._weights.values():
            rarity = math.log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            for number in found:
                found[number] *= rarity

    def search(self, query: str, num: int) -> list[int]:
        """Return the numbers of the best documents, best first; of equal ones the earlier goes first.

        Documents without any word of the query are left out.
        """
        scores: dict[int, float] = {}
        for word in sorted(set(words(query))):
            for number, weight in self._weights.get(word, {}).items():
                scores[number] = scores.get(number, 0.0) + weight
        return sorted(scores, key=lambda number: (-scores[number], number))[:num]
