"""Run all detectors over a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rollwright.diagnose import age, choice, hacking, shape, signal
from rollwright.diagnose.evidence import Evidence
from rollwright.diagnose.finding import Finding
from rollwright.diagnose.treatments import TREATMENTS, Treatment

DETECTORS: dict[str, Callable[[Evidence], Finding]] = {
    "zero_variance": signal.zero_variance,
    "all_fail": signal.all_fail,
    "entropy_collapse": signal.entropy_collapse,
    "length_inflation": shape.length_inflation,
    "repetition": shape.repetition,
    "truncation": shape.truncation,
    "idle_tail": age.idle_tail,
    "staleness": age.staleness,
    "ratio_tails": age.ratio_tails,
    "mismatch": age.mismatch,
    "hacked_format": hacking.hacked_format,
    "hacked_cue": hacking.hacked_cue,
    "duplicates": shape.duplicates,
    "tree_collapse": shape.tree_collapse,
    "starving": choice.starving,
    "skewed": choice.skewed,
    "grader_errors": signal.grader_errors,
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A pathology's name, what its detector says, and what treats it."""

    name: str
    finding: Finding
    treatment: Treatment


def diagnose(path: str | Path) -> list[Diagnosis]:
    """Look for every pathology in a run folder, or in its shards or metrics alone.

    Returns:
        One diagnosis a detector; what was found first.

    Raises:
        ConfigError: there is nothing to read.
        JournalCorrupt: the journal is damaged before its end.
    """
    evidence = Evidence(path)
    all_of_them = [Diagnosis(name, detect(evidence), TREATMENTS[name]) for name, detect in DETECTORS.items()]
    order = {"found": 0, "cannot tell": 1, "clear": 2}
    return sorted(all_of_them, key=lambda one: order[one.finding.status])
