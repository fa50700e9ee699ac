"""A run that stands still wherever the test wants: a real training process with a gate in each phase.

    python stuck.py FOLDER CONFIG GATE...

At each gate, in this order, it writes FOLDER.at with the gate's number and waits until FOLDER.go holds at
least that number.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rollwright.learn.checkpoint as checkpoint
from rollwright.config import load_config
from rollwright.training import Training

FOLDER, CONFIG, *GATES = sys.argv[1:]
AT, GO = Path(f"{FOLDER}.at"), Path(f"{FOLDER}.go")
passed = 0
is_evaluating = False  # it samples and grades as well, but not for the step


def gate(name: str) -> None:
    """Stand here if this gate is the next."""
    global passed
    if passed == len(GATES) or GATES[passed] != name or is_evaluating:
        return
    passed += 1
    draft = AT.with_suffix(".draft")
    draft.write_text(str(passed))
    draft.rename(AT)
    while not GO.exists() or int(GO.read_text() or 0) < passed:
        time.sleep(0.01)


def gated(owner: Any, attribute: str, name: str) -> None:
    inner: Callable[..., Any] = getattr(owner, attribute)

    def call(*args: Any, **more: Any) -> Any:
        gate(name)
        return inner(*args, **more)

    setattr(owner, attribute, call)


def main() -> None:
    # The last thing that a checkpoint does, when its draft is there.
    gated(checkpoint, "_put_in_place", "checkpoint")
    evaluate = Training.evaluate

    def measured(training: Training) -> Any:
        global is_evaluating
        gate("evaluation")
        is_evaluating = True
        try:
            return evaluate(training)
        finally:
            is_evaluating = False

    Training.evaluate = measured  # type: ignore[method-assign]
    path = Path(FOLDER)
    if path.exists():
        gated(Training, "_fold", "resuming")
        training = Training.resume(path, lambda row: None)
    else:
        training = Training.start(load_config(CONFIG), path, lambda row: None)
    world = training.parts.world
    gated(world, "reset", "prompt")
    gated(training.parts.engine, "step", "tokens")
    gated(world, "env_step", "environment")
    gated(world, "score", "grade")
    gated(training.parts.learner, "update", "learning")
    gated(training.metrics, "append", "recording")
    training.run()


main()
