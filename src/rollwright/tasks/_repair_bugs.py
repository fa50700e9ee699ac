"""Bugs of one token: where a file of a repository can be broken, and how."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from functools import lru_cache

from rollwright.tasks._repair_repositories import REPOSITORIES

_SWAPS = {
    "<": ("<=",), "<=": ("<",), ">": (">=",), ">=": (">",), "==": ("!=",), "!=": ("==",),
    "+": ("-",), "-": ("+",), "*": ("+",), "//": ("%",), "%": ("//",), "/": ("//",),
    "and": ("or",), "or": ("and",), "min": ("max",), "max": ("min",), "True": ("False",), "False": ("True",),
    "0": ("1",), "1": ("0", "2"), "2": ("1", "3"), "100": ("10",), "4": ("3",),
    "28": ("29",), "365": ("364",),
    "row": ("column",), "column": ("row",), "first": ("second",), "low": ("high",), "sorted": ("list",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bug:
    """One token that stands in the place of the right one.

    Args:
        repository: its name.
        path: of the file.
        line: its number, from 1.
        broken, right: the whole line with and without the bug.
    """

    repository: str
    path: str
    line: int
    broken: str
    right: str

    @property
    def content(self) -> str:
        return f"{self.repository}/{self.path}:{self.line}:{self.broken}"

    def files(self) -> dict[str, str]:
        """Return the repository's files with the bug."""
        files = dict(REPOSITORIES[self.repository][0])
        lines = files[self.path].splitlines()
        lines[self.line - 1] = self.broken
        return {**files, self.path: "\n".join(lines) + "\n"}


@lru_cache(maxsize=1)
def all_bugs() -> tuple[Bug, ...]:
    """Return every bug that a swap of one token makes, whether a test sees it or not."""
    found = []
    for name, (files, _) in REPOSITORIES.items():
        for path, text in files.items():
            lines = text.splitlines()
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                number, first = token.start
                swaps = _SWAPS.get(token.string, ())
                line = lines[number - 1] if swaps else ""
                for swap in swaps if not line.startswith(("def ", "from ")) else ():
                    broken = line[:first] + swap + line[token.end[1] :]
                    found.append(Bug(name, path, number, broken, line))
    return tuple(found)
