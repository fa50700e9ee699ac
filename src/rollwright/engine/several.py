"""Several policies behind one engine: an engine for each, asks go to the one whose policy they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollwright.engine.api import Engine, ended
from rollwright.errors import ConfigError, EngineError
from rollwright.events import Failed, Sampled, Submit
from rollwright.tree import GroupId, NodeId


class SeveralEngines:
    """An `Engine` that samples each ask with the engine of its policy.

    Args:
        engines: by policy; all of one version.

    Raises:
        ConfigError: there is none, or their versions differ.
    """

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        versions = {name: engine.version for name, engine in engines.items()}
        if len(set(versions.values())) != 1:
            raise ConfigError(f"engines of several policies have versions {versions}; expected one for all")
        self.engines = dict(engines)
        self.version = next(iter(versions.values()))
        self._places: dict[NodeId, str] = {}

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        """Take an ask.

        Raises:
            EngineError: nobody has its policy, or its engine refuses it.
        """
        engine = self.engines.get(command.policy)
        if engine is None:
            raise EngineError(
                f"no engine samples policy {command.policy!r}; there are {sorted(self.engines)}"
            )
        engine.submit(command, prefix)
        self._places[command.ask] = command.policy

    def abort(self, ask: NodeId) -> Sampled:
        """Stop the ask now."""
        return self.engines[self._places.pop(ask)].abort(ask)

    def step(self) -> Sequence[Sampled | Failed]:
        """Let every engine that has work make a step; return all chunks."""
        chunks: list[Sampled | Failed] = []
        for engine in self.engines.values():
            if engine.num_live:
                chunks += engine.step()
        for ask in ended(chunks):
            self._places.pop(ask, None)
        return chunks

    @property
    def num_live(self) -> int:
        return sum(engine.num_live for engine in self.engines.values())

    def retire(self, group: GroupId) -> None:
        """Forget the group's caches, in every engine."""
        for engine in self.engines.values():
            engine.retire(group)

    def publish(self, version: int) -> None:
        """New weights are in place for every policy."""
        for engine in self.engines.values():
            engine.publish(version)
        self.version = version
