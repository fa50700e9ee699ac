"""Dialogues in which several policies speak by turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollwright.errors import ConfigError
from rollwright.stage import AnyAsk, Ask, Plan, PlanView, Want, next_ask
from rollwright.tree import Node


@dataclass(frozen=True, slots=True)
class TakeTurns:
    """Let the k-th turn of a rollout be sampled by policy k modulo their number.

    With one policy it is `rollwright.stages.generate.independent.Independent`.

    Args:
        policies: their names, in the order in which they speak, ≥ 1.

    Raises:
        ConfigError: there is none, or one twice.
    """

    policies: tuple[str, ...] = ("policy",)

    def __post_init__(self) -> None:
        if not self.policies or len(set(self.policies)) < len(self.policies):
            raise ConfigError(
                f"TakeTurns: policies = {self.policies}; expected at least one name, none twice"
            )

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        nodes: Sequence[Node] = ()
        asks: list[AnyAsk] = [Ask(view.root, num=num, policy=self.policies[0])]
        while nodes := (yield Want(asks, wait="any")):
            asks = [ask for node in nodes if (ask := self._next(view, node)) is not None]

    def _next(self, view: PlanView, node: Node) -> AnyAsk | None:
        ask = next_ask(view, node)
        if not isinstance(ask, Ask):
            return ask
        return Ask(ask.parent, policy=self.policies[view.num_turns(node.id) % len(self.policies)])
