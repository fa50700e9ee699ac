"""Words of a command line that several benchmarks read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection


def names(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return what reads a comma-separated list of known names; anything else is an error that lists them."""

    def read(text: str) -> list[str]:
        given = [name for name in text.split(",") if name]
        unknown = [name for name in given if name not in known]
        if unknown or not given:
            raise argparse.ArgumentTypeError(f"{text!r} should be of {', '.join(known)}, with commas between")
        return given

    return read


def numbers(text: str) -> list[int]:
    """Read a comma-separated list of whole numbers from 1 on."""
    try:
        given = [int(number) for number in text.split(",")]
    except ValueError:
        given = [0]
    if min(given) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} should be whole numbers from 1 on, with commas between")
    return given
