"""A modelled learner: when an update ends, beside what the workers do meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from rollwright.drive.virtual.model import LearnerModel
from rollwright.events import EmitBatch, Published
from rollwright.tree import Group, GroupId


class LearnerTime:
    """Tells when updates end; one at a time.

    Attributes:
        num_lent: workers that help it beside its own.
        busy_seconds: seconds in which it worked.
        token_seconds: what its tokens took, times the workers that took part.
    """

    def __init__(self, model: LearnerModel) -> None:
        self.model = model
        self.num_lent = 0
        self.busy_seconds = self.token_seconds = 0.0
        self._free_at = 0.0
        self._is_done: set[GroupId] = set()  # groups whose gradients are made

    @property
    def num_workers(self) -> int:
        return self.model.num_workers + self.num_lent

    def work_ahead(self, group: GroupId, num_tokens: int, now: float) -> None:
        """A group is complete: with ``streams`` its gradients are made while others roll out."""
        if self.model.streams and group not in self._is_done:
            self._is_done.add(group)
            self._work(now, num_tokens * self.model.token_seconds / self.num_workers, 0.0)

    def update(self, batch: EmitBatch, now: float, free_seconds: float) -> float:
        """Return when the update of a batch that arrives now ends.

        Args:
            free_seconds: time since the last update in which the rollouts' arithmetic was free, the mean
                over their workers: what was done beside them took place there.
        """
        model = self.model
        left = [group for group in batch.groups if group.id not in self._is_done]
        self._is_done.clear()
        seconds = num_tokens(left) * model.token_seconds / self.num_workers
        if model.prefix_early:
            early = num_prompt_tokens(left) * model.prefix_share * model.token_seconds / self.num_workers
            seconds -= min(early, model.spare * free_seconds)
        return self._work(now, seconds, model.step_seconds)

    def _work(self, now: float, token_seconds: float, step_seconds: float) -> float:
        seconds = token_seconds + step_seconds
        self._free_at = max(now, self._free_at) + seconds
        self.busy_seconds += seconds
        self.token_seconds += token_seconds * self.num_workers
        return self._free_at


def next_version(batch: EmitBatch) -> Published:
    """Return the answer to a batch: the next version, and the tokens that were read."""
    return Published(step=batch.step, version=batch.version + 1, learner_tokens=num_tokens(batch.groups))


def num_tokens(groups: Sequence[Group]) -> int:
    """Return the tokens that a learner reads: prompt and response of every trajectory."""
    return sum(num for group in groups for t in group.trajectories for _, num in group.path(t.leaf))


def num_prompt_tokens(groups: Sequence[Group]) -> int:
    """Return the tokens of the prompts alone, once for each trajectory."""
    return sum(group.root.num_steps * len(group.trajectories) for group in groups)
