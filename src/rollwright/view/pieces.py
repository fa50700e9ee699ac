"""The text of each token, such that the pieces joined are the text of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollwright.store.layout import CHECKPOINTS

_BROKEN = "\ufffd"
_LONGEST = 8  # tokens that one character may take; what is broken for longer is no character


class Pieces:
    """Decodes tokens one by one with the tokeniser that lies in a run's newest checkpoint.

    Args:
        run_dir: the run folder. Without a tokeniser in it every piece is None.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir)
        self._tokenizer: Any = None
        self._single: dict[int, str] = {}

    @property
    def tokenizer(self) -> Any:
        """The tokeniser of the ``tokenizers`` library, or None while there is none."""
        if self._tokenizer is None:
            files = sorted((self.run_dir / CHECKPOINTS).glob("v*/tokenizer.json"))
            if files:
                from tokenizers import Tokenizer

                try:
                    self._tokenizer = Tokenizer.from_file(str(files[-1]))
                except Exception:  # the library raises bare Exception; the ids are shown instead
                    return None
                self._tokenizer.no_padding()
                self._tokenizer.no_truncation()
        return self._tokenizer

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones spelled out."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def of(self, tokens: Sequence[int]) -> list[str] | None:
        """Return one piece a token, or None without a tokeniser.

        The pieces joined are `decode` of all. A character over several tokens stands in the last of them,
        the others are empty.
        """
        if self.tokenizer is None:
            return None
        pieces = [self._one(token) for token in tokens]  # right but for what spans or needs its neighbours
        return pieces if "".join(pieces) == self.decode(tokens) else self._in_context(tokens)

    def _one(self, token: int) -> str:
        if token not in self._single:
            self._single[token] = self.decode([token])
        return self._single[token]

    def _in_context(self, tokens: Sequence[int]) -> list[str]:
        """Decode with what stands before: characters of several tokens, blanks that a beginning loses.

        A piece is what a token adds to the text of the piece before; one that ends within a character
        waits for the next token.
        """
        pieces: list[str] = []
        since = read = 0
        for place in range(len(tokens)):
            before, now = self.decode(tokens[since:read]), self.decode(tokens[since : place + 1])
            is_last = place + 1 == len(tokens) or place - read >= _LONGEST
            is_whole = not now.endswith(_BROKEN) or is_last
            if is_whole and len(now) > len(before):
                pieces.append(now[len(before) :])
                since, read = read, place + 1
            else:
                pieces.append("")
        whole = self.decode(tokens)
        if "".join(pieces) != whole and pieces:
            # What this tokeniser writes depends on what comes after: keep the text, not the places.
            pieces = [whole, *[""] * (len(tokens) - 1)]
        return pieces
