"""The one tree of errors. Every message says what was given, what was expected and what to do.

RollwrightError
├── ConfigError          a setting, key, name or combination of stages that cannot run
│   └── UnknownName      an unknown method, task, stage or key, with a suggestion
├── DataError            a dataset row, prompt or checkpoint that is not what it must be
├── ModelError           a model that is missing, of the wrong shape or of an unknown family
├── EngineError          the decode engine refused or failed a request
├── GraderError          a grader or reward function failed (never a reward)
├── EnvironmentFault     an environment failed (never a reward)
├── LearnerError         the learner failed, or its input breaks a law
├── StoreError           the run folder cannot be written or read
│   └── JournalCorrupt   a journal record before the end is damaged
└── LawBroken            an internal law (ledger, determinism) does not hold: a bug of ours
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RollwrightError(Exception):
    """Base of all errors that rollwright raises on purpose."""


class ConfigError(RollwrightError):
    """A setting, key, name or combination of stages that cannot run."""


class UnknownName(ConfigError):
    """An unknown method, task, stage or key.

    Args:
        kind: what was looked up, for example ``"method"``.
        given: the name that was given.
        known: the names that exist.
    """

    def __init__(self, kind: str, given: str, known: Iterable[str]) -> None:
        self.kind, self.given, self.known = kind, given, sorted(known)
        close = difflib.get_close_matches(given, self.known, n=1, cutoff=0.5)
        hint = f", did you mean {close[0]!r}?" if close else ""
        some = ", ".join(self.known[:12]) + (", ..." if len(self.known) > 12 else "")
        super().__init__(f"unknown {kind} {given!r}{hint} (known: {some or 'none'})")

    def __reduce__(self) -> tuple[type[UnknownName], tuple[str, str, list[str]]]:
        return type(self), (self.kind, self.given, self.known)


class DataError(RollwrightError):
    """A dataset row, prompt or checkpoint that is not what it must be."""


class ModelError(RollwrightError):
    """A model that is missing, of the wrong shape or of an unknown family."""


class EngineError(RollwrightError):
    """The decode engine refused or failed a request."""


class GraderError(RollwrightError):
    """A grader or reward function failed. It is never turned into a reward."""


class EnvironmentFault(RollwrightError):
    """An environment failed. It is never turned into a reward."""


class LearnerError(RollwrightError):
    """The learner failed, or its input breaks a law."""


class StoreError(RollwrightError):
    """The run folder cannot be written or read."""


class JournalCorrupt(StoreError):
    """A journal record before the end of the file is damaged."""


class LawBroken(RollwrightError):
    """An internal law does not hold: a bug of rollwright, not of its user."""
