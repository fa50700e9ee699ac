"""Train from a config, record everything, evaluate along the way, and resume after any end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rollwright.config import RunConfig
from rollwright.events import AnyCommand, EmitBatch, Published, Received, Report
from rollwright.learn.checkpoint import checkpoints, newest
from rollwright.runner import Runner
from rollwright.store.journal import check_replay
from rollwright.store.layout import CHECKPOINTS
from rollwright.store.run import RunFolder
from rollwright.training.evaluate import Evaluation, evaluate
from rollwright.training.parts import Driver, Parts, build, published_of
from rollwright.training.swarm import shared_folder
from rollwright.tree import Sampling

Row = dict[str, Any]


class Training:
    """One run in one folder.

    Args:
        config: the resolved config.
        folder: its run folder, held by this process.
        on_row: called with each row of metrics as it is written: kinds ``step`` and ``evaluation``.

    Use `start` or `resume` to make one, then `run`.
    """

    def __init__(
        self, config: RunConfig, folder: RunFolder, parts: Parts, on_row: Callable[[Row], None]
    ) -> None:
        self.config, self.folder, self.parts, self.on_row = config, folder, parts, on_row
        self.journal = folder.journal()
        self.metrics = folder.metrics()
        self.shards = folder.shards(decode=self.parts.tokenizer.decode)
        self.runner = Runner(self.parts.method, self.parts.settings)
        self.driver: Driver | None = None
        self.swarm = shared_folder(config, parts)
        self.is_resumed = False
        self.extend_to: int | None = None
        self.started_at = 0.0
        self.checkpoints = folder.path / CHECKPOINTS
        rows = self.metrics.loaded.rows
        self._done = {(row["kind"], row["step"]) for row in rows}

    @classmethod
    def start(cls, config: RunConfig, out: Path, on_row: Callable[[Row], None]) -> Training:
        """Begin a new run in ``out``. What cannot be built leaves no run folder behind."""
        parts = build(config)
        folder = RunFolder.create(out, config)
        try:
            return cls(config, folder, parts, on_row)
        except BaseException:
            folder.close()
            raise

    @classmethod
    def resume(
        cls,
        path: Path,
        on_row: Callable[[Row], None],
        num_steps: int | None = None,
        address: str | None = None,
    ) -> Training:
        """Go on with a run: the same next prompts, partial rollouts and samples.

        Args:
            num_steps: a new last step, to train for longer; None keeps the run's own.
            address: of the Ray cluster to go on with; None is as the run was started.

        Raises:
            ConfigError: an address for a run that is not driven by Ray.
        """
        folder = RunFolder.open(path)
        try:
            config = folder.config()
            if address is not None:
                config = dataclasses.replace(config, address=address)
            training = cls(config, folder, build(config), on_row)
            training._fold()
            training.extend_to = num_steps
            return training
        except BaseException:
            folder.close()
            raise

    # ------------------------------------------------------------ running

    def run(self) -> str | None:
        """Run to the end and return its reason; None when it was stopped before."""
        parts = self.parts
        self.driver = parts.driver(self.runner, self._train, self.journal, self._report, self.started_at)
        if self.swarm is not None:
            self.driver.arrivals, self.driver.arrivals_s = self.swarm.collect, self.config.swarm.every_s
        if not self.is_resumed:
            self._save()
        self._evaluate(0 if not self.is_resumed else self.runner.version)
        try:
            reason = self.driver.run(self.is_resumed, self.extend_to)
            if reason is not None and not self.runner.batch:  # else the learner did not answer
                self._finish()
            return reason
        finally:
            self.close()

    def stop(self) -> None:
        """Stop soon. What was acknowledged stays in the journal; `resume` goes on from there."""
        if self.driver is not None:
            self.driver.stop()

    def close(self) -> None:
        """Write what is collected and give the folder free."""
        try:
            self.shards.flush()
        finally:
            self.parts.close()
            self.metrics.close()
            self.journal.close()
            self.folder.close()

    def _train(self, batch: EmitBatch) -> Published:
        return published_of(batch, self.parts.learner.update(batch.groups, batch.version))

    def _report(self, report: Report) -> None:
        self._record(report)
        version = int(report.metrics["version"] or 0)
        every = self.config.checkpoint_every
        if every and version % every == 0:
            self._save()
        if self.config.eval_every and version % self.config.eval_every == 0:
            self._evaluate(version)

    def _finish(self) -> None:
        """Keep and measure the policy that came out, whatever ended the run: steps, a budget, a failure."""
        saved = checkpoints(self.checkpoints)
        if not saved or saved[-1].name != f"v{self.runner.version:08d}":
            self._save()
        self._evaluate(self.runner.version)

    def _record(self, report: Report) -> None:
        """Write a step's metrics row and groups, unless they are there already."""
        closed = self.runner.take_closed(report.step)
        for step in sorted({c.step for c in closed}):
            mine = [c for c in closed if c.step == step]
            fates = {leaf: fate for c in mine for leaf, fate in c.fates.items()}
            self.shards.add(step, [c.group for c in mine], fates, version=mine[0].version)
        if self.swarm is not None:
            told, prompt = self.swarm.speech.told, self.parts.task.prompt
            self.swarm.publish(report.step, [told(c.group, prompt(c.group.task)) for c in closed])
        self._row({"kind": "step", "step": report.step, **report.metrics, **self.parts.engine_metrics()})

    def _row(self, row: Row) -> None:
        key = (row["kind"], row["step"])
        if key not in self._done:
            self._done.add(key)
            self.metrics.append(row)
            self.on_row(row)

    # ------------------------------------------------------------ evaluations and checkpoints

    def _evaluate(self, version: int) -> None:
        if not self.config.eval_every or ("evaluation", version) in self._done:
            return
        sampled, greedy = self.evaluate()
        row: Row = {"kind": "evaluation", "step": version, "seconds": self.runner.last_at}
        for name, result in (("sampled", sampled), ("greedy", greedy)):
            row.update({f"{name}_{key}": value for key, value in dataclasses.asdict(result).items()})
        self._row(row)

    def evaluate(self) -> tuple[Evaluation, Evaluation]:
        """Return success on held-out tasks, sampled at temperature 1 and greedy."""
        parts, config = self.parts, self.config
        tasks = parts.task.ids("test")[: config.eval_tasks]
        stops = parts.settings.sampling.stop_strings
        results, engine = [], parts.evaluator()
        for temperature, samples in ((1.0, config.eval_samples), (0.0, 1)):
            sampling = Sampling(temperature, stop_strings=stops)
            drive = partial(parts.drive_evaluation, engine=engine)
            policies = parts.method.policies
            result, _ = evaluate(
                engine, parts.world, parts.settings, tasks, samples, sampling, drive, policies
            )
            results.append(result)
        return results[0], results[1]

    def _save(self) -> None:
        self.journal.sync()  # a checkpoint must never be ahead of the journal
        self.parts.save(self.checkpoints, self.config.keep_checkpoints)

    # ------------------------------------------------------------ resuming

    def _fold(self) -> None:
        """Fold the journal, then train again what the last checkpoint lacks."""
        self.is_resumed = True
        path = newest(self.checkpoints)
        if path is None:
            # It ended before its first checkpoint, so before anything was sampled.
            self.is_resumed = False
            return
        version = self.parts.load(path)
        # By version: a run that was resumed before its learner answered was given the batch again.
        batches: dict[int, EmitBatch] = {}

        def fold(event: Any) -> list[AnyCommand]:
            commands = self.runner.step(event)
            if isinstance(event, Received) and self.swarm is not None:
                self.swarm.known.add(event.source)
            for command in commands:
                if isinstance(command, EmitBatch) and command.version >= version:
                    batches[command.version] = command
                elif isinstance(command, Report):
                    self._record(command)
            if isinstance(event, Published):
                # Not the next batch, which may have been given out in the same breath: the learner still
                # owes that one.
                done = [number for number in batches if number < self.runner.version]
                self.parts.catch_up([batches.pop(number) for number in done])
            return commands

        if not check_replay(self.folder.journal_path, fold):
            self.is_resumed = False
        self.parts.publish(self.runner.version)
        self.started_at = self.runner.last_at
