"""The toy task as a file of the user's own, so that a run of it can be folded from its config."""

from rollwright.testing.fake import ToyTask


def toy() -> ToyTask:
    return ToyTask(num_tasks=12, max_turns=2, bad="44")
