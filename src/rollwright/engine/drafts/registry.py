"""Drafters by name."""

from __future__ import annotations

from collections.abc import Callable

from rollwright.engine.drafts.api import Drafter
from rollwright.engine.drafts.previous import PreviousDrafter
from rollwright.engine.drafts.suffix import SuffixDrafter
from rollwright.errors import UnknownName

DRAFTERS: dict[str, Callable[[], Drafter]] = {"suffix": SuffixDrafter, "previous": PreviousDrafter}


def new_drafter(name: str) -> Drafter:
    """Return a drafter of this kind.

    Raises:
        UnknownName: there is none.
    """
    if name not in DRAFTERS:
        raise UnknownName("drafter", name, DRAFTERS)
    return DRAFTERS[name]()
