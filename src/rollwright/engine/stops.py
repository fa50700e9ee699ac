"""Stop strings, checked without decoding the text at every step.

A token can complete a stop string only if its own text holds the string's last character (or a part
of a character, which cannot be told). That is one table look-up for the whole batch; the text is
decoded only for the sequences that it flags, and only as much of it as the string can span.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_REPLACEMENT = "�"
_MARGIN = 4  # tokens decoded before the string could begin: a character may be spread over several


class TextDecoder(Protocol):
    @property
    def vocab_size(self) -> int: ...

    def decode(self, ids: list[int]) -> str: ...


class StopStrings:
    """Tells which tokens may complete a stop string and whether one is complete."""

    def __init__(self, tokenizer: TextDecoder, num_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._num_tokens = num_tokens
        self._pieces: list[str] | None = None
        self._strings_to_index: dict[tuple[str, ...], int] = {}
        self.may_complete = np.zeros((0, num_tokens), np.bool_)

    def index(self, strings: tuple[str, ...]) -> int:
        """Return the number by which `flagged` knows these strings."""
        if strings not in self._strings_to_index:
            self._strings_to_index[strings] = len(self._strings_to_index)
            self.may_complete = np.vstack([self.may_complete, self._table(strings)])
        return self._strings_to_index[strings]

    def flagged(self, index_B: NDArray[np.int64], tokens_B: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the rows whose token may complete one of their strings; index -1 has none."""
        return np.flatnonzero((index_B >= 0) & self.may_complete[index_B, tokens_B])

    def _table(self, strings: tuple[str, ...]) -> NDArray[np.bool_]:
        """Return which tokens may complete one of ``strings``, [V]."""
        if self._pieces is None:
            self._pieces = self._read_pieces()
        lasts = {s[-1] for s in strings} | {_REPLACEMENT}
        may = [not lasts.isdisjoint(piece) for piece in self._pieces]
        return np.array(may + [False] * (self._num_tokens - len(may)), dtype=np.bool_)

    def _read_pieces(self) -> list[str]:
        """Return each token's text behind another token: some tokenizers drop a first space."""
        decode = self._tokenizer.decode
        known = range(min(self._tokenizer.vocab_size, self._num_tokens))
        first = next((i for i in known if (text := decode([i])).isascii() and text.strip()), None)
        if first is None:
            return [_REPLACEMENT] * len(known)
        before = decode([first])
        texts = [decode([first, i]) for i in known]
        return [t.removeprefix(before) if t.startswith(before) else _REPLACEMENT for t in texts]

    def is_complete(self, tokens: Sequence[int], strings: tuple[str, ...]) -> bool:
        """Say whether the text of ``tokens`` ends in a token that completes one of ``strings``.

        The text before the last token is known to hold none of them.
        """
        longest = max(len(s) for s in strings)
        num = longest + _MARGIN
        while True:
            text = self._tokenizer.decode(list(tokens[-num:]))
            if any(s in text for s in strings):
                return True
            whole = text.lstrip(_REPLACEMENT)  # the window may begin within a character
            if num >= len(tokens) or len(whole) >= longest + len(self._tokenizer.decode([tokens[-1]])):
                return False
            num *= 2
