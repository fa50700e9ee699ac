"""The parts of a run on Ray: makers for its actors, checkpoints that come and go as bytes.

Nothing but the config's task has to be found on every machine: models and tokenisers travel.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
from tokenizers import Tokenizer as InnerTokenizer

from rollwright.chat import ChatFormat
from rollwright.chat.template import ChatTemplate
from rollwright.config import RunConfig
from rollwright.drive.inline import Sink
from rollwright.drive.ray.cluster import connected
from rollwright.drive.ray.crew import Crew
from rollwright.drive.ray.driver import RayDriver
from rollwright.drive.ray.recipe import Files, Recipe, Weights
from rollwright.drive.ray.settings import Limits
from rollwright.drive.world import World
from rollwright.engine.api import Engine
from rollwright.engine.checkpoint import Tokenizer, load_model
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder, DecoderConfig
from rollwright.errors import EngineError, LearnerError
from rollwright.events import EmitBatch, Published, Report
from rollwright.learn.checkpoint import STATE, files_of, keep_files, load_checkpoint, save_checkpoint
from rollwright.learn.learner import Learner
from rollwright.method import Method
from rollwright.runner import Runner
from rollwright.training.parts import Parts, build_here, device_of, make_learner, published_of, task_of
from rollwright.tree import GroupId


@dataclass(frozen=True, slots=True)
class Text:
    """A tokeniser that travels."""

    source: str
    name: str
    eos_ids: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Text:
        """Return the tokeniser's text."""
        return cls(tokenizer.inner.to_str(), tokenizer.name, tokenizer.eos_ids)

    def tokenizer(self) -> Tokenizer:
        """Return the tokeniser again."""
        return Tokenizer(InnerTokenizer.from_str(self.source), self.name, self.eos_ids)


class LoadedEngine(LocalEngine):
    """The in-process engine, which can be given weights (`rollwright.drive.ray.recipe.Sampler`)."""

    def load(self, weights: Weights) -> None:
        """Copy weights into the model.

        Raises:
            EngineError: they are of another model.
        """
        key_to_parameter = dict(self.model.named_parameters())
        if odd := sorted(key_to_parameter.keys() ^ weights.keys()):
            raise EngineError(f"weights of another model were sent: only one side has {', '.join(odd)}")
        with torch.no_grad(), warnings.catch_warnings():
            # They lie in shared memory, which no one may write to; they are only read here.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            for name, parameter in key_to_parameter.items():
                parameter.copy_(torch.from_numpy(weights[name]))


@dataclass(frozen=True, slots=True)
class MakeSampler:
    """Makes a rollout worker's engine, whose weights come later."""

    cfg: DecoderConfig
    text: Text
    threads: int
    device: str

    def __call__(self) -> LoadedEngine:
        torch.set_num_threads(self.threads)
        return LoadedEngine(Decoder(self.cfg).to(device_of(self.device)), self.text.tokenizer())


@dataclass(frozen=True, slots=True)
class MakeWorld:
    """Makes a grader's world. Files that the config names are looked for from the driver's folder."""

    config: RunConfig
    text: Text
    eos_ids: tuple[int, ...]
    chat: tuple[str, str, str, datetime] | None  # a chat template's arguments
    folder: str

    def __call__(self) -> World:
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        task = task_of(self.config)
        tokenizer = self.text.tokenizer()
        chat = None if self.chat is None else ChatFormat(ChatTemplate(*self.chat), tokenizer)
        return World(task, tokenizer, self.eos_ids, chat)


@dataclass(frozen=True, slots=True)
class MakeTrainer:
    """Makes the learner of a run (`rollwright.drive.ray.recipe.Trainer`)."""

    config: RunConfig
    method: Method

    def __call__(self) -> LearnerTrainer:
        torch.set_num_threads(self.config.threads or os.cpu_count() or 1)
        return LearnerTrainer(self.config, self.method)


class LearnerTrainer:
    """A learner that begins with a checkpoint's files."""

    def __init__(self, config: RunConfig, method: Method) -> None:
        self.config, self.method = config, method
        self.home = tempfile.TemporaryDirectory(prefix="rollwright-learner-")
        self.learner: Learner | None = None
        self.first: Path | None = None  # the checkpoint that it began with; it has the tokeniser's files

    def load(self, files: Files) -> None:
        """Become what was saved."""
        self.first = keep_files(Path(self.home.name) / "first", files)
        model = load_model(self.first).to(device_of(self.config.device))
        self.learner = make_learner(model, self.method, self.config)
        load_checkpoint(self.first, self.learner)

    def train(self, batch: EmitBatch) -> Published:
        """Make the update of a batch.

        Raises:
            LearnerError: the batch is for other weights, or the update fails.
        """
        learner = self._learner()
        if batch.version != learner.version:
            raise LearnerError(f"a batch for version {batch.version} came to weights of {learner.version}")
        return published_of(batch, learner.update(batch.groups, batch.version))

    def weights(self) -> tuple[int, Weights]:
        """Return the version and the weights as they are in memory: read them before the next update."""
        learner = self._learner()
        named = learner.model.named_parameters()
        return learner.version, {name: p.detach().cpu().numpy() for name, p in named}

    def save(self) -> Files:
        """Return a checkpoint."""
        return files_of(save_checkpoint(Path(self.home.name) / "saved", self._learner(), {}, 1, self.first))

    def _learner(self) -> Learner:
        if self.learner is None:
            raise LearnerError("the learner was asked before it was given a checkpoint")
        return self.learner


class CrewEngine:
    """What a run needs to know of its engines, all of them together."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew

    @property
    def version(self) -> int:
        return self.crew.version

    def publish(self, version: int) -> None:
        """Say at which version the run goes on; the learner has the weights."""
        self.crew.version = version

    def retire(self, group: GroupId) -> None:
        """Forget what only this group needs."""
        self.crew.retire(group)


@dataclass
class RayParts(Parts):
    """The parts of a run whose learner, engines and worlds are actors.

    Attributes:
        crew: the actors; hired when they are first needed.
        ray: the connection to the cluster.
        latest: the newest checkpoint.
    """

    crew: Crew
    ray: ExitStack
    latest: Path | None = None

    def driver(
        self,
        runner: Runner,
        train: Callable[[EmitBatch], Published],
        journal: Sink,
        on_report: Callable[[Report], None],
        started_at: float,
    ) -> RayDriver:
        """Return the Ray driver; its learner trains, not ``train``."""
        return RayDriver(runner, self.crew, journal, on_report, time.monotonic, started_at)

    def publish(self, version: int) -> None:
        self.engine.publish(version)

    def evaluator(self) -> Engine:
        return self.engine

    def drive_evaluation(self, runner: Runner, engine: Engine) -> None:
        RayDriver(runner, self.crew, is_guest=True).run()

    def save(self, folder: Path, keep: int) -> None:
        if self.latest is None:
            # The run begins: what the learner is to begin with is here, and nowhere else.
            self.latest = save_checkpoint(folder, self.learner, {}, keep, self.path)
            return

        def store(files: Files) -> None:
            self.latest = keep_files(folder, files, keep)

        self.crew.seat.save(store)

    def load(self, checkpoint: Path) -> int:
        self.latest = checkpoint
        return int(json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["version"])

    def catch_up(self, batches: Sequence[EmitBatch]) -> None:
        self.crew.seat.since += batches  # it trains them when it begins

    def files(self) -> Files:
        """Return the newest checkpoint, for a learner that begins."""
        assert self.latest is not None, "a run saves before it trains"
        return files_of(self.latest)

    def close(self) -> None:
        self.crew.close()
        self.ray.close()


def build_on_ray(config: RunConfig) -> RayParts:
    """Connect to the cluster and build what a run needs on this side of it.

    Raises:
        ConfigError: Ray is missing, or no cluster answers.
        ConfigError, ModelError, DataError: a name or value that cannot run, before anything is sampled.
    """
    here = build_here(dataclasses.replace(config, device="cpu"))
    with ExitStack() as stack:
        stack.enter_context(connected(config.address))
        waits = config.deadlines
        limits = Limits(waits.grader_s, waits.environment_s, waits.engine_s)
        crew = Crew(_recipe(config, here), config.ray, lambda: parts.files(), limits)
        parts = RayParts(**{**vars(here), "config": config, "engine": CrewEngine(crew)}, crew=crew, ray=stack)
        parts.ray = stack.pop_all()
    return parts


def _recipe(config: RunConfig, here: Parts) -> Recipe:
    text = Text.of(here.tokenizer)
    threads = config.threads or max(1, int(config.ray.worker_cpus))
    template = here.world.chat.template if isinstance(here.world.chat, ChatFormat) else None
    chat = None if template is None else (template.text, template.bos, template.eos, template.now)
    return Recipe(
        sampler=MakeSampler(here.model.cfg, text, threads, config.device),
        world=MakeWorld(config, text, tuple(here.world.eos_ids), chat, str(Path.cwd())),
        trainer=MakeTrainer(config, here.method),
    )
