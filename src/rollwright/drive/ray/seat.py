"""The learner's seat: one learner at a time; when it ends, the next one is made the same again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from ray.exceptions import RayError

from rollwright.drive.ray.actors import Place
from rollwright.drive.ray.calls import (
    FOREVER,
    HOW_TO_GO_ON,
    Calls,
    Events,
    Overdue,
    Ref,
    check_code,
    fetch,
    reason_of,
)
from rollwright.drive.ray.hire import Actor, dismiss, hire_learner
from rollwright.drive.ray.recipe import Files, Trainer
from rollwright.drive.ray.settings import CrewSettings
from rollwright.errors import LearnerError, RollwrightError
from rollwright.events import EmitBatch, Failed, Published

_log = logging.getLogger(__name__)
NAME = "learner"


class Seat:
    """The learner of a crew.

    The weights are a second answer of each call that changes them. The driver owns them and never fetches
    them, so they outlive the learner and go from its machine straight to the workers'.

    Args:
        make: the maker of the trainer.
        cfg: limits.
        calls: the driver's calls.
        checkpoint: gives the newest checkpoint, for a learner that begins.
        on_weights: called with (version, reference) when there are weights for the workers.

    Attributes:
        since: the batches that were trained after the newest checkpoint.
        error: why the learner failed, once it has.
    """

    def __init__(
        self,
        make: Callable[[], Trainer],
        cfg: CrewSettings,
        calls: Calls,
        checkpoint: Callable[[], Files],
        on_weights: Callable[[int, Ref], None],
    ) -> None:
        self.make, self.cfg, self.calls = make, cfg, calls
        self.checkpoint, self.on_weights = checkpoint, on_weights
        self.since: list[EmitBatch] = []
        self.error: Exception | None = None
        self.actor: Actor | None = None
        self.place: Place | None = None
        self.num_lost = 0
        self._num_barren = 0  # learners in a row that did nothing that was asked of them
        self._batch: EmitBatch | None = None  # what it is at
        self._start: list[Ref] = []

    def open(self) -> None:
        """Hire a learner if there is none, and bring it to where the last one was."""
        if self.actor is not None:
            return
        actor = self.actor = hire_learner(self.cfg)
        begun = actor.begin.remote(self.make)
        # A batch at a time: each is an object of its own and need not be copied into one list.
        version, weights = actor.restore.options(num_returns=2).remote(self.checkpoint(), *self.since)
        self._start = [begun, version]
        self._call(begun, self._began, self.cfg.setup_s)
        self._call(version, lambda version: self._has_weights(version, weights), self.cfg.setup_s)

    def close(self) -> None:
        """End it."""
        if self.actor is not None:
            self.calls.drop(NAME)
            dismiss(self.actor)
            self.actor = self.place = None

    def train(self, batch: EmitBatch) -> None:
        """Begin an update; it is answered by Published. The runner has the timer of it."""
        self._batch = batch
        self.open()
        assert self.actor is not None
        published, weights = self.actor.train.options(num_returns=2).remote(batch)
        self._call(published, lambda value: self._trained(batch, value, weights), FOREVER)

    def save(self, keep: Callable[[Files], None]) -> None:
        """Keep a checkpoint of where it is; a learner that begins later begins there.

        Raises:
            LearnerError: several learners ended over it.
            RollwrightError: what the learner or ``keep`` raised.
        """
        while True:
            self.open()
            assert self.actor is not None
            try:
                for ref in self._start:  # what went wrong then is told first
                    fetch(ref, self.cfg.setup_s, "the learner's start")
                files = fetch(self.actor.save.remote(), self.cfg.setup_s, "saving the learner")
            except (RayError, Overdue) as error:
                self._lose(error)
                continue
            keep(files)
            self.since.clear()
            return

    def send_weights(self) -> None:
        """Give the current weights once more: those that were given are lost."""
        if self.actor is None:
            self.open()  # which gives them
            return
        version, weights = self.actor.weights.options(num_returns=2).remote()
        self._call(version, lambda version: self._has_weights(version, weights), self.cfg.setup_s)

    @property
    def is_training(self) -> bool:
        return self._batch is not None

    # ------------------------------------------------------------ answers

    def _call(self, ref: Ref, done: Callable[[Any], Events], seconds: float) -> None:
        self.calls.add(ref, NAME, done, self._failed, seconds)

    def _began(self, place: Place) -> Events:
        self.place = place
        return ()

    def _has_weights(self, version: int, weights: Ref) -> Events:
        self.on_weights(version, weights)
        return ()

    def _trained(self, batch: EmitBatch, published: Published, weights: Ref) -> Events:
        self._batch, self._num_barren = None, 0
        self.since.append(batch)
        self.on_weights(published.version, weights)
        return (published,)

    def _failed(self, error: Exception) -> Events:
        batch = self._batch
        try:
            self._lose(error)
        except RollwrightError as failure:
            self._batch, self._num_barren = None, 0
            if batch is None:
                raise
            self.error = failure
            said = f"{type(failure).__name__}: {failure}"
            return (Failed(ask=f"learn:{batch.step}", kind="learner", message=said),)
        self.open()
        if batch is not None:
            self.train(batch)
        return ()

    def _lose(self, error: Exception) -> None:
        """Give the learner up.

        Raises:
            RollwrightError: its own code refused what it was given; another one would do the same.
        """
        self.close()
        check_code(error, "learner")
        why = reason_of(error)
        self.num_lost += 1
        self._num_barren += 1
        _log.warning("the learner is lost: %s", why)
        if self._num_barren >= self.cfg.losses:
            raise LearnerError(
                f"{self._num_barren} learners in a row ended before they made an update; the last one: "
                f"{why}. {HOW_TO_GO_ON}"
            ) from error

    def roster(self) -> Iterator[tuple[str, Place | None, int]]:
        """Yield (name, place, number of batches that it is at)."""
        if self.actor is not None:
            yield NAME, self.place, int(self._batch is not None)
