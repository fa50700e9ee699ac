"""Several policies that learn in one run: every step is trained by the policy that sampled it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollwright.errors import ConfigError
from rollwright.learn.learner import Learner
from rollwright.tree import Group


class SeveralLearners:
    """Give every batch to the learners of all policies; each trains the steps of its own.

    All of them publish at once: version v of a run is version v of each policy, so that what a group holds of
    two policies is equally old. A policy without a trained step in a batch keeps its weights.

    Args:
        learners: by policy. Each is told its policy's name and those of the others (`LearnerConfig`).

    Raises:
        ConfigError: a learner does not know its own name or that of another.
    """

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        names = set(learners)
        for name, learner in learners.items():
            cfg = learner.cfg
            if cfg.policy != name or set(cfg.others) != names - {name}:
                raise ConfigError(
                    f"the learner of {name!r} has policy={cfg.policy!r}, others={cfg.others}; expected"
                    f" policy={name!r}, others={tuple(sorted(names - {name}))}"
                )
        self.learners = dict(learners)

    @property
    def version(self) -> int:
        return next(iter(self.learners.values())).version

    def update(self, groups: Sequence[Group], version: int) -> dict[str, float]:
        """Improve every policy on the groups; return the figures of each as ``<policy>_<figure>``.

        ``learner_tokens`` is also there as the sum, which is what the ledger books.

        Raises:
            LearnerError: as `Learner.update`; policies before the failing one have moved: go back to the last
                checkpoint.
        """
        figures: dict[str, float] = {}
        for name, learner in self.learners.items():
            found = learner.update(groups, version)
            figures.update({f"{name}_{key}": value for key, value in found.items()})
        total = sum(figures[f"{name}_learner_tokens"] for name in self.learners)
        return {**figures, "learner_tokens": total}
