"""Independent rollouts: each goes its own way until it ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollwright.stage import AnyAsk, Ask, AskEnv, Plan, PlanView, Want, next_ask


@dataclass(frozen=True, slots=True)
class Independent:
    """Sample ``num`` rollouts from the root; turns and environment steps alternate in a dialogue."""

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        asks: list[AnyAsk] = [Ask(view.root, num=num)]
        num_live = num
        while num_live:
            nodes = yield Want(asks, wait="any")
            asks = []
            for node in nodes:
                ask = next_ask(view, node)
                if ask is not None:
                    asks.append(ask)
                num_live -= not isinstance(ask, (Ask, AskEnv))
        if asks:
            yield Want(asks)
