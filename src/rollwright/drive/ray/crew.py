"""The crew: rollout workers, graders and the learner of one run, hired and replaced as they come and go."""

from __future__ import annotations

import time
from collections.abc import Callable

import ray

from rollwright.drive import placement as places
from rollwright.drive.ray.actors import Job, Place, Submission
from rollwright.drive.ray.calls import HOW_TO_GO_ON, Calls, Events, Ref
from rollwright.drive.ray.graders import Graders
from rollwright.drive.ray.hire import room_for_workers
from rollwright.drive.ray.recipe import Files, Recipe
from rollwright.drive.ray.seat import Seat
from rollwright.drive.ray.settings import CrewSettings, Limits
from rollwright.drive.ray.workers import Workers
from rollwright.errors import EngineError, GraderError, LearnerError, RollwrightError
from rollwright.events import AnyEvent, Score
from rollwright.tree import GroupId, NodeId

_ROLL_CALL_S = 5.0  # how often the machines are counted


class Crew:
    """All actors of a run. Ray must be connected (`rollwright.drive.ray.cluster.connect`).

    Args:
        recipe: how each makes its part.
        cfg: how many, and limits.
        checkpoint: gives the newest checkpoint, for a learner that begins.
        limits: after how many seconds calls are given up.
        placement: which ask goes next, and to which worker.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        recipe: Recipe,
        cfg: CrewSettings,
        checkpoint: Callable[[], Files],
        limits: Limits | None = None,
        placement: places.Placement | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cfg, self.clock, limits = cfg, clock, limits or Limits()
        self.calls = Calls(clock)
        self.seat = Seat(recipe.trainer, cfg, self.calls, checkpoint, self._publish)
        self.workers = Workers(recipe.sampler, cfg, limits, self.calls, placement, self.seat.send_weights)
        self.graders = Graders(recipe.world, cfg, limits, self.calls, self.workers.placer.hear)
        self.kept: list[AnyEvent] = []  # by a guest, for the driver whose crew this is
        self.num_versions = 0  # weights that were put into the object store
        self._num_wanted = cfg.workers
        self._counted_at = -_ROLL_CALL_S
        self._served_at = {"worker": clock(), "grader": clock()}

    @property
    def version(self) -> int:
        """The version of the weights that workers serve with."""
        return self.workers.version

    @version.setter
    def version(self, version: int) -> None:
        self.workers.version = version

    def close(self) -> None:
        """End everyone."""
        self.workers.close()
        self.graders.close()
        self.seat.close()

    # ------------------------------------------------------------ work

    def submit(self, job: places.Job, submission: Submission) -> None:
        """Sample tokens (answered by Sampled, Failed or WorkerLost)."""
        self.workers.submit(job, submission)

    def abort(self, ask: NodeId) -> Events:
        """Stop an ask; return the answer if it is there at once."""
        return self.workers.abort(ask)

    def serve(self, job: Job) -> None:
        """Give a prompt, make an environment step, or grade."""
        if isinstance(job.command, Score):
            self.workers.placer.finish(job.session)
        self.graders.serve(job)

    def retire(self, group: GroupId) -> None:
        """Forget what only this group needs."""
        self.workers.retire(group)
        self.graders.retire(group)

    def wait(self, seconds: float) -> list[AnyEvent]:
        """Hire whom we lack, send out what waits, then wait for answers, so many seconds at most.

        Raises:
            RollwrightError: the crew cannot do its work: see `Workers.lose`, `Graders` and `Seat`; or
                nobody could be hired within ``start_s`` seconds.
        """
        self.seat.open()
        self._staff()
        self.workers.flush()
        self.graders.flush()
        self._check_served()
        return self.calls.wait(seconds)

    @property
    def num_owed(self) -> int:
        """Answers that will come, now or once someone was hired."""
        return self.workers.num_held + self.graders.num_held + self.seat.is_training + len(self.kept)

    # ------------------------------------------------------------ being there

    def roster(self) -> list[tuple[str, Place | None, int]]:
        """Return (name, place, what it holds) of everyone; place None has not begun."""
        return [*self.workers.roster(), *self.graders.roster(), *self.seat.roster()]

    def _publish(self, version: int, weights: Ref) -> None:
        if version < self.version:
            raise LearnerError(
                f"the learner came back with weights of version {version}, where version {self.version} was "
                f"published: a checkpoint is missing. {HOW_TO_GO_ON}"
            )
        self.num_versions += 1
        self.workers.publish(version, weights)

    def _staff(self) -> None:
        now = self.clock()
        if not self.cfg.workers and now - self._counted_at >= _ROLL_CALL_S:
            self._counted_at = now
            self._num_wanted = room_for_workers(self.cfg)
        self.workers.staff(self._num_wanted)
        self.graders.staff(self.cfg.graders)

    def _check_served(self) -> None:
        """Give up when asks wait for someone who cannot be hired."""
        now = self.clock()
        for kind, is_served, waits, error in (
            ("worker", self.workers.serving, self.workers.waiting, EngineError),
            ("grader", self.graders.serving, self.graders.waiting, GraderError),
        ):
            if is_served or not waits:
                self._served_at[kind] = now
            elif now - self._served_at[kind] > self.cfg.start_s:
                raise self._nobody(kind, len(waits), error)

    def _nobody(self, kind: str, num: int, error: type[RollwrightError]) -> RollwrightError:
        total = ray.cluster_resources()
        machines = sum(node["Alive"] for node in ray.nodes())
        need = (
            f"{self.cfg.worker_cpus:g} CPUs and {self.cfg.worker_gpus:g} GPUs"
            if kind == "worker"
            else f"{self.cfg.grader_cpus:g} CPUs"
        )
        return error(
            f"{num} asks waited {self.cfg.start_s:g} s for a {kind}, and none could begin. One needs {need}; "
            f"the cluster has {machines} machines with {total.get('CPU', 0):g} CPUs and "
            f"{total.get('GPU', 0):g} GPUs in all. Add a machine, or lower what one reserves; then resume"
        )
