"""New weights for a server that runs: read aside, put in place whole between two steps, then published."""

from __future__ import annotations

from pathlib import Path

import torch

from rollwright.engine.checkpoint import load_model
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder
from rollwright.errors import ModelError
from rollwright.serve.loop import EngineLoop
from rollwright.serve.refusals import Refused


def update(loop: EngineLoop, path: Path, version: int) -> int:
    """Replace the weights and return the tokens that were in flight.

    Nothing changes, the version least of all, unless the whole checkpoint was read and fits. Sequences in
    flight go on under the new weights; each chunk says which version sampled it.

    Raises:
        Refused: the checkpoint cannot be read, is of another shape, or the version does not move up.
    """
    try:
        fresh = load_model(path)
    except (ModelError, OSError) as error:
        raise Refused(f"{error}; the old weights serve on", param="path") from error
    return loop.call(lambda engine: _put(engine, fresh, path, version)).result()  # type: ignore[arg-type]


@torch.no_grad()
def _put(engine: LocalEngine, fresh: Decoder, path: Path, version: int) -> int:
    if version <= engine.version:
        raise Refused(
            f"version {version} was given, and version {engine.version} serves; a version only moves up",
            status=409,
            param="version",
        )
    old, new = dict(engine.model.named_parameters()), dict(fresh.named_parameters())
    if _shapes(old) != _shapes(new):
        differing = sorted(name for name, _ in _shapes(old).items() ^ _shapes(new).items())
        raise Refused(
            f"{path} holds another architecture: {differing[0]} differs; the old weights serve on",
            param="path",
        )
    for name, parameter in old.items():
        parameter.copy_(new[name])
    engine.publish(version)
    return engine.num_live


def _shapes(parameters: dict[str, torch.nn.Parameter]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in parameters.items()}
