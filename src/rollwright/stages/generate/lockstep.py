"""Rollouts of a group take their turns together: what systems without asynchronous environments do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollwright.stage import AnyAsk, Ask, Plan, PlanView, Want, next_ask


@dataclass(frozen=True, slots=True)
class Lockstep:
    """Sample ``num`` rollouts with a barrier after each turn and after each environment step.

    What is sampled is what `Independent` samples, token for token; it only takes longer. It is the baseline
    that WebGym (2026), AsyncWebRL (2026) and DART (2509.23866) measure against.
    """

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        asks: list[AnyAsk] = [Ask(view.root, num=num)]
        while nodes := (yield Want(asks)):
            asks = [ask for node in nodes if (ask := next_ask(view, node)) is not None]
