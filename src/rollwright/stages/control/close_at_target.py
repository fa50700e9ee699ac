"""End a step's rollouts once its batch can be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollwright.events import Event
from rollwright.stage import Action, Close, StepView


@dataclass(frozen=True, slots=True)
class CloseAtTarget:
    """Close the step once ``num_tasks`` groups passed the filters or are held from earlier steps.

    What is still in flight is carried over: its tokens stay, with their logprobs and versions, and it
    goes on in the next step. Which groups a batch is made of then depends on which finish first: early
    steps hold shorter rollouts than the policy makes.

    Source: APRIL (2509.18521).
    """

    def __call__(self, event: Event, view: StepView) -> Sequence[Action]:
        if view.num_kept + view.num_held < view.num_tasks:
            return ()
        return (Close(f"{view.num_tasks} groups are ready"),)
