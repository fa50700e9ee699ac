"""Drive one training run from the command line: show it, stop it cleanly, say how to go on."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rollwright.cli.progress import Display, Row
from rollwright.config import RunConfig

if TYPE_CHECKING:
    from rollwright.training import Training

STOPPED = 130
_FIRST = "stopping after what is being done now; press Ctrl-C again to stop at once"


class Interrupts:
    """Turns Ctrl-C (and SIGTERM) into a clean stop the first time and an immediate one the second.

    Until `training` is set there is nothing to stop cleanly, so the first one is immediate.
    """

    def __init__(self) -> None:
        self.training: Training | None = None
        self.display: Display | None = None
        self.count = 0
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.training is None or self.count > 1:
            raise KeyboardInterrupt
        self.training.stop()
        if self.display is not None and self.display.console.is_terminal:
            self.display.message = _FIRST
        else:
            # Not through Python's buffers: the signal may have come in the middle of a print.
            os.write(2, f"rollwright: {_FIRST}\n".encode())


def new_folder(config: RunConfig) -> Path:
    """Return the run folder of a new run: the config's, or a new one under ``runs/``."""
    if config.out is not None:
        return Path(config.out)
    task = re.sub(r"[^\w.-]+", "-", config.task).strip("-")
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{task}-{config.method}-{config.seed}"
    path, number = Path("runs") / name, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path


def start(config: RunConfig, console: Console, title: str = "") -> tuple[int, Path]:
    """Train a new run to its end or until it is stopped.

    Returns:
        (exit code, run folder).
    """
    from rollwright.training import Training

    out = new_folder(config)
    title = title or f"{config.task} with {config.method}, seed {config.seed}, into {out}"
    with Interrupts() as interrupts:
        display = Display(console, title, config.num_steps, config.budget)
        training = Training.start(config, out, display.row)
        return _run(training, display, interrupts), out


def resume(path: Path, num_steps: int | None, console: Console, address: str | None = None) -> int:
    """Go on with a run, on another Ray cluster where an address is given; return the exit code."""
    from rollwright.training import Training

    with Interrupts() as interrupts:
        rows: list[Row] = []
        with console.status("reading the journal"):
            training = Training.resume(path, rows.append, num_steps, address)
        config, num_done = training.config, max(0, training.runner.step_number)
        last = num_steps or training.runner.num_steps
        title = f"{config.task} with {config.method}, seed {config.seed}, going on in {path}"
        display = Display(console, title, last, config.budget, is_fresh=False, num_done=num_done)
        training.on_row = display.row
        return _run(training, display, interrupts)


def _run(training: Training, display: Display, interrupts: Interrupts) -> int:
    path = training.folder.path
    try:
        with display:
            interrupts.training, interrupts.display = training, display
            reason = training.run()
    except KeyboardInterrupt:
        display.say(f"stopped at once; what was acknowledged is kept. {how_to_resume(path)}")
        return STOPPED
    if reason is None:
        display.say(f"stopped. {how_to_resume(path)}")
        return STOPPED
    display.say(f"{reason}. Look at it with: rollwright show {path}")
    return 0


def how_to_resume(path: Path) -> str:
    """Return the sentence that says how to go on."""
    return f"Go on with: rollwright train --resume {path}"
