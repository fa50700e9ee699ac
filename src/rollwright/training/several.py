"""The parts of a run in which several policies learn: weights, engine, learner and checkpoints for each."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import torch

from rollwright.engine.api import Engine
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder
from rollwright.engine.several import SeveralEngines
from rollwright.learn.checkpoint import load_checkpoint, save_checkpoint
from rollwright.learn.learner import Learner
from rollwright.learn.several import SeveralLearners
from rollwright.training.parts import Parts


@dataclass
class SeveralParts(Parts):
    """Parts for a method whose asks name several policies; all start from the same checkpoint.

    Args:
        models: the learners' weights, by policy. The first one's are `model`.
    """

    models: dict[str, Decoder] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Parts) -> SeveralParts:
        """Return parts for each policy of the method, from those for one."""
        names = parts.method.policies
        is_apart = parts.engine.model is not parts.model  # engines have copies of their own
        models = {name: parts.model if k == 0 else copy.deepcopy(parts.model) for k, name in enumerate(names)}
        engines = {
            name: LocalEngine(copy.deepcopy(model) if is_apart else model, parts.tokenizer)
            for name, model in models.items()
        }
        cfg, method = parts.learner.cfg, parts.method
        learners = {
            name: Learner(
                model,
                method.objective,
                method.reduce,
                dataclasses.replace(cfg, policy=name, others=tuple(one for one in names if one != name)),
            )
            for name, model in models.items()
        }
        fields = {f.name: getattr(parts, f.name) for f in dataclasses.fields(Parts)}
        changed = {"engine": SeveralEngines(engines), "learner": SeveralLearners(learners), "models": models}
        return cls(**{**fields, **changed})

    def copy_weights(self) -> None:
        """Give every engine its learner's weights, whole."""
        for name, engine in self.engine.engines.items():
            if engine.model is not self.models[name]:
                with torch.no_grad():
                    for to, source in zip(
                        engine.model.parameters(), self.models[name].parameters(), strict=True
                    ):
                        to.copy_(source)

    def evaluator(self) -> Engine:
        """Return an engine of all policies that has nothing of the training in flight."""
        if self.config.driver == "inline" and not self.settings.num_ahead:
            return self.engine
        version = self.learner.version
        return SeveralEngines(
            {name: LocalEngine(model, self.tokenizer, version=version) for name, model in self.models.items()}
        )

    def save(self, folder: Path, keep: int) -> None:
        """Write a checkpoint of every policy, the first one's last: once it is there, all are."""
        first, *others = self.learner.learners.items()
        for name, learner in others:
            # One more than of the first: a crash in between must leave one of a version that both have.
            save_checkpoint(_beside(folder, name), learner, {}, keep + 1, self.path)
        save_checkpoint(folder, first[1], {}, keep, self.path)

    def load(self, checkpoint: Path) -> int:
        """Fill every learner from its checkpoint of one version; return it."""
        first, *others = self.learner.learners.items()
        load_checkpoint(checkpoint, first[1])
        for name, learner in others:
            load_checkpoint(_beside(checkpoint.parent, name) / checkpoint.name, learner)
        return self.learner.version


def _beside(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}-{name}")
