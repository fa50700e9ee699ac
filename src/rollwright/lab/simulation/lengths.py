"""Lengths of turns by a short text, or as a run measured them."""

from __future__ import annotations

from pathlib import Path

from rollwright.drive.virtual.distributions import Constant, Distribution, Empirical, LogNormal, Pareto
from rollwright.errors import ConfigError, DataError
from rollwright.lab.population import read_population
from rollwright.store.layout import JOURNAL

FORMS = "lognormal:MEDIAN:SIGMA, pareto:LEAST:TAIL, constant:TOKENS or run:FOLDER"


def parse_lengths(text: str) -> Distribution:
    """Return the distribution that a text names, such as ``lognormal:2000:1`` or ``run:runs/first``.

    Raises:
        ConfigError: a text of another form, or a number outside its range.
        DataError: a run without a finished turn.
    """
    kind, _, rest = text.partition(":")
    if kind == "run":
        return lengths_of(rest)
    try:
        numbers = [float(part) for part in rest.split(":")]
        if kind == "constant":
            return Constant(*numbers)
        if kind == "lognormal":
            return LogNormal(*numbers)
        if kind == "pareto":
            return Pareto(*numbers)
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"lengths {text!r}; expected {FORMS}, with numbers of tokens")


def lengths_of(run: str | Path) -> Empirical:
    """Return the lengths of the turns that a run sampled to their end, from its journal.

    Raises:
        DataError: it has none.
    """
    population = read_population(Path(run) / JOURNAL)
    done = [sample for sample in population.samples.values() if not sample.is_open]
    lengths = [end - start for sample in done for start, end in sample.spans if end > start]
    if not lengths:
        raise DataError(f"{run}: no turn was sampled to its end; give a run with finished rollouts")
    return Empirical(tuple(float(length) for length in sorted(lengths)))
