"""A run whose tokens are sampled by a server, which is given the learner's weights after each update."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from rollwright.clients.openai import OpenAIEngine
from rollwright.config import RunConfig
from rollwright.engine.api import Engine
from rollwright.engine.checkpoint import save_model
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder
from rollwright.errors import ConfigError
from rollwright.events import Failed, Sampled, Submit
from rollwright.training.parts import Parts

API_KEY = "ROLLWRIGHT_API_KEY"
E = TypeVar("E", Sampled, Failed)


class ServedEngine:
    """A server that follows a learner. Implements `rollwright.engine.api.Engine`.

    The server counts its weights on from whatever it served before; the run's versions begin at 0 (or where
    it was resumed). One number is added between the two, and taken off each chunk again.

    Args:
        client: the way to the server.
        model: the learner's weights, read at each `publish`.
        folder: where checkpoints are handed over; the server must see it under the same path.
        version: of the weights that ``model`` holds now. They are handed over before the first ask.
    """

    def __init__(self, client: OpenAIEngine, model: Decoder, folder: Path, version: int = 0) -> None:
        self.client, self.model, self.folder, self.version = client, model, folder, version
        self._offset: int | None = None

    @property
    def num_live(self) -> int:
        return self.client.num_live

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        if self._offset is None:
            self.publish(self.version)
        self.client.submit(command, prefix)

    def abort(self, ask: str) -> Sampled:
        return self._told(self.client.abort(ask))

    def step(self) -> list[Sampled | Failed]:
        return [self._told(event) for event in self.client.step()]

    def retire(self, group: str) -> None:
        self.client.retire(group)

    def publish(self, version: int) -> None:
        """Hand the learner's weights over, as this version.

        Raises:
            EngineError: the server does not take them; it serves the old ones on.
        """
        if self._offset is None:
            self._offset = self.client.version + 1 - version
        path = self.folder / f"v{version:08d}"
        save_model(self.model, path)
        try:
            self.client.update_weights(path.resolve(), version + self._offset)
        finally:
            shutil.rmtree(path)
        self.version = version

    def close(self) -> None:
        """Close every connection."""
        self.client.close()

    def _told(self, event: E) -> E:
        if isinstance(event, Failed):
            return event
        assert self._offset is not None
        return msgspec.structs.replace(event, version=event.version - self._offset)


@dataclasses.dataclass
class ServedParts(Parts):
    """Parts whose engine is a server."""

    @classmethod
    def of(cls, parts: Parts) -> ServedParts:
        """Return parts that sample from the server of the config, instead of in this process.

        Raises:
            ConfigError: the server takes no weights, or several policies learn.
            EngineError: it cannot be reached, or cannot give what the method needs.
        """
        cfg = parts.config.server
        if len(parts.method.policies) > 1:
            raise ConfigError(f"server: method {parts.config.method!r} has several policies; expected one")
        client = OpenAIEngine(
            cfg.url, cfg.model or None, parts.tokenizer, api_key=os.environ.get(API_KEY) or None
        )
        try:
            client.require(parts.method.engine_needs)
            if client.found.load_weights is None:
                raise ConfigError(
                    f"server.url: the {client.dialect.name} server at {cfg.url} takes no weights, so "
                    "it cannot follow a learner; expected `rollwright serve` or SGLang"
                )
            engine = ServedEngine(client, parts.model, _folder(parts.config), parts.learner.version)
        except BaseException:
            client.close()
            raise
        fields = {f.name: getattr(parts, f.name) for f in dataclasses.fields(Parts)}
        return cls(**{**fields, "engine": engine})

    def copy_weights(self) -> None:
        """Nothing to do: `ServedEngine.publish` hands them over."""

    def evaluator(self) -> Engine:
        """Return an engine of this process, so that what is measured does not hang on the server."""
        return LocalEngine(self.model, self.tokenizer, version=self.learner.version)

    def close(self) -> None:
        engine = self.engine
        assert isinstance(engine, ServedEngine)
        engine.close()
        if not self.config.server.weights:
            shutil.rmtree(engine.folder, ignore_errors=True)


def _folder(config: RunConfig) -> Path:
    if not config.server.weights:
        return Path(tempfile.mkdtemp(prefix="rollwright-weights-"))
    folder = Path(config.server.weights)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
