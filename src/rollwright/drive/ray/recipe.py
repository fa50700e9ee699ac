"""How the actors make their parts. A recipe travels: what it holds must pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rollwright.drive.world import World
from rollwright.engine.api import Engine
from rollwright.events import EmitBatch, Published

Weights = Mapping[str, Any]  # arrays by name; the object store shares them within a machine
Files = Mapping[str, bytes]  # a checkpoint


class Sampler(Engine, Protocol):
    """An engine that can be given weights."""

    def load(self, weights: Weights) -> None:
        """Copy whole weights into place. They may be read-only; `publish` follows."""
        ...


class Trainer(Protocol):
    """A learner with its optimizer, whole: given the same files and batches it is the same again."""

    def train(self, batch: EmitBatch) -> Published:
        """Make the update of a batch."""
        ...

    def weights(self) -> tuple[int, Weights]:
        """Return (version, a copy of the weights)."""
        ...

    def save(self) -> Files:
        """Return everything that `load` needs."""
        ...

    def load(self, files: Files) -> None:
        """Become what was saved."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """Makers of each actor's part, called once in the actor's process.

    Args:
        sampler: of each rollout worker. Its first weights come from the learner too.
        world: of each grader.
        trainer: of the learner.
    """

    sampler: Callable[[], Sampler]
    world: Callable[[], World]
    trainer: Callable[[], Trainer]
