"""A run's door to a swarm, from its config and parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rollwright.config import RunConfig
from rollwright.errors import ConfigError
from rollwright.stage import Receives
from rollwright.swarm.folder import SharedFolder
from rollwright.swarm.text import Speech

if TYPE_CHECKING:
    from rollwright.training.parts import Parts


def shared_folder(config: RunConfig, parts: Parts) -> SharedFolder | None:
    """Return the folder that the run shares rollouts through; None where it shares none.

    Raises:
        ConfigError: the method takes no rollouts of others, or dialogues go through a chat template, whose
            marks are no text that another model could read.
        StoreError: the folder cannot be made.
    """
    if not config.swarm.folder:
        return None
    if not isinstance(parts.method.replay, Receives):
        raise ConfigError(
            f"swarm: method {config.method!r} takes no rollouts of other runs; choose sapo, or another whose"
            " replay stage receives, or leave [swarm] out"
        )
    world, settings = parts.world, parts.settings
    if world.chat is not None and settings.is_dialogue:
        raise ConfigError(
            "swarm: dialogues through a chat template cannot be shared as text; set chat = 'off'"
        )
    speech = Speech(
        encode=parts.tokenizer.encode,
        decode=world.text,
        prompt=parts.tokenizer.encode if world.chat is None else world.chat.prompt,
        eos_ids=(*parts.tokenizer.eos_ids, *sorted(world.eos_ids.difference(parts.tokenizer.eos_ids))),
        context=settings.context,
        temperature=settings.sampling.temperature,
    )
    return SharedFolder(Path(config.swarm.folder), config.swarm.node, speech)
