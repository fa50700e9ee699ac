"""What the runner's drivers need of anything that samples tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rollwright.events import Failed, Sampled, Submit
from rollwright.tree import GroupId, NodeId


class Engine(Protocol):
    """A source of sampled tokens: the in-process engine, a client of a server, or a model of one.

    The answer to a submit depends on its prefix, stream, start and sampling and on the weights, never
    on what else is in flight.
    """

    version: int

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        """Take an ask; ``prefix`` is the whole path of token ids before its first new token.

        Raises:
            EngineError: it can never fit, or asks for what this engine cannot give.
        """
        ...

    def abort(self, ask: NodeId) -> Sampled:
        """Stop the ask now and return the tokens not reported yet, with stop INTERRUPTED."""
        ...

    def step(self) -> Sequence[Sampled | Failed]:
        """Decode until at least one chunk is due and return every chunk that is; [] when idle.

        An ask that this engine gives up for good is answered by a Failed of kind ``engine``.
        """
        ...

    @property
    def num_live(self) -> int: ...

    def retire(self, group: GroupId) -> None:
        """Forget caches that only this group could use."""
        ...

    def publish(self, version: int) -> None:
        """New weights are in place, whole, under this version; caches of older ones are dropped."""
        ...


def ended(answers: Sequence[Sampled | Failed]) -> set[NodeId]:
    """Return the asks that come to their end with these answers."""
    return {a.ask for a in answers if isinstance(a, Failed) or a.stop is not None}
