"""From token ids to text as it is sampled: never half a character, never a part of a stop string.

The text of an answer is what this stream gives, whether it is sent piece by piece or at once, so both are
equal. What was sampled stays whole in the ids: the text ends before a stop string, the ids after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rollwright.tree import StopReason

_REPLACEMENT = "�"
_MOST_HELD = 3  # tokens: UTF-8 has four bytes at most, so a character that lacks one has three at most


class TextDecoder(Protocol):
    def decode(self, ids: Sequence[int], skip_special: bool = False) -> str: ...


class TextStream:
    """Decodes one sampled answer as its tokens come.

    Args:
        tokenizer: decodes ids.
        stop_strings, stop_ids: of the ask.
        skip_special: leave special tokens out of the text.

    A token is shown once the text with it no longer ends within a character. The window that is decoded
    begins at the last point where the text was whole, so the cost of a token does not grow.
    """

    def __init__(
        self,
        tokenizer: TextDecoder,
        stop_strings: Sequence[str] = (),
        stop_ids: Sequence[int] = (),
        skip_special: bool = True,
    ) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._stop_strings, self._stop_ids = tuple(stop_strings), frozenset(stop_ids)
        self._window: list[int] = []  # tokens whose text is decoded again, the last ones not shown yet
        self._num_context = 0  # how many of them are shown: some tokenizers drop a first space
        self._held = ""  # whole characters that may be the beginning of a stop string

    def push(self, tokens: Sequence[int], stop: StopReason | None = None) -> str:
        """Take tokens and return the text that may be shown now; with a ``stop``, all that is left."""
        is_by_id = stop is StopReason.STOP and bool(tokens) and tokens[-1] in self._stop_ids
        if tokens and (is_by_id or (stop is StopReason.EOS and self._skip_special)):
            tokens = tokens[:-1]  # it ends the text and is no part of it
        for token in tokens:  # one at a time, so that the text does not depend on how the tokens came
            self._window.append(token)
            self._held += self._decoded()
        if stop is not None:
            self._held += self._decoded(is_last=True)
        if stop is None:
            shown = self._held[: len(self._held) - self._num_withheld()]
        elif stop is StopReason.STOP and not is_by_id:
            shown = self._held[: self._stop_at()]
        else:
            shown = self._held
        self._held = "" if stop is not None else self._held[len(shown) :]
        return shown

    def _decoded(self, is_last: bool = False) -> str:
        """Return the new text of all tokens but those at the end that are not a whole character yet."""
        before = self._decode(self._window[: self._num_context])
        num = len(self._window) if is_last else self._num_whole()
        if num == self._num_context:
            return ""
        after = self._decode(self._window[:num])
        del self._window[: self._num_context]
        self._num_context = num - self._num_context
        return after[len(before) :]

    def _num_whole(self) -> int:
        """Return how many tokens of the window make whole characters; broken ones count as whole."""
        num = len(self._window)
        for held in range(_MOST_HELD + 1):
            if num - held <= self._num_context:
                return self._num_context
            if not self._decode(self._window[: num - held]).endswith(_REPLACEMENT):
                return num - held
        return num

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens, self._skip_special) if tokens else ""

    def _num_withheld(self) -> int:
        """Return the length of the longest end of the text that a stop string begins with."""
        longest = max(map(len, self._stop_strings), default=1) - 1
        for num in range(min(longest, len(self._held)), 0, -1):
            if any(s.startswith(self._held[-num:]) for s in self._stop_strings):
                return num
        return 0

    def _stop_at(self) -> int:
        found = [at for s in self._stop_strings if (at := self._held.find(s)) >= 0]
        return min(found, default=len(self._held))
