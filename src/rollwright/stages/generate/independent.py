"""Independent rollouts: each goes its own way until it ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollwright.stage import AnyAsk, Ask, Plan, PlanView, Want, next_ask


@dataclass(frozen=True, slots=True)
class Independent:
    """Sample ``num`` rollouts from the root; turns and environment steps alternate in a dialogue."""

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        asks: list[AnyAsk] = [Ask(view.root, num=num)]
        # A control may add branches, so the end is when nothing is in flight, not a count.
        while nodes := (yield Want(asks, wait="any")):
            asks = [ask for node in nodes if (ask := next_ask(view, node)) is not None]
