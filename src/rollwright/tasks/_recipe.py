"""How a task's warm-started model is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of a warm start. A task may carry its own as ``recipe``.

    Args:
        noise: how imperfect the demonstrations are, passed to ``Task.demonstrate``, in [0, 1].
        steps: optimiser steps.
        clean_share: share of the steps, from the first, that learn from perfect demonstrations (noise 0).
        batch: demonstrations a step.
        learning_rate: peak of the cosine schedule.
        width, num_layers, num_heads, inner: the decoder's shape.
        is_bytes: use the byte tokeniser, for text of any kind.
    """

    noise: float = 0.3
    steps: int = 600
    clean_share: float = 0.0
    batch: int = 64
    learning_rate: float = 2e-3
    width: int = 96
    num_layers: int = 3
    num_heads: int = 3
    inner: int = 192
    is_bytes: bool = False
