"""One run of a comparison, in a process of its own: ``python -m rollwright.compare.worker``.

The first line of its input is the job as JSON. It writes one line of JSON for each row of metrics, and at
last ``{"done": reason}`` or ``{"failed": message}``. When its input ends, whoever started it is gone: it
stops cleanly.
"""

from __future__ import annotations

import bisect
import json
import os
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from rollwright.compare.plan import DONE
from rollwright.config import from_values
from rollwright.errors import RollwrightError
from rollwright.events import Report
from rollwright.store.layout import CONFIG
from rollwright.store.strict import dumps
from rollwright.store.tail import write_atomic
from rollwright.training import Training
from rollwright.training.evaluate import Evaluation

Row = dict[str, Any]


class Paced(Training):
    """A run that is measured at amounts of a budget instead of numbers of steps.

    Attributes:
        unit: of the amounts.
        points: amounts after which it is measured, rising.
    """

    unit: str = ""
    points: Sequence[float] = ()
    evaluation_s: float = 0.0  # spent on measuring since the last row
    spent: float = 0.0

    def _report(self, report: Report) -> None:
        super()._report(report)
        before, self.spent = self.spent, float(report.metrics.get(f"spent_{self.unit}") or 0)
        if bisect.bisect_right(self.points, self.spent) > bisect.bisect_right(self.points, before):
            self._evaluate(int(report.metrics["version"] or 0))

    def _record(self, report: Report) -> None:
        super()._record(report)
        if self.driver is None:  # folding: these steps were measured before the run was stopped
            self.spent = float(report.metrics.get(f"spent_{self.unit}") or 0)

    def evaluate(self) -> tuple[Evaluation, Evaluation]:
        began = time.monotonic()
        try:
            return super().evaluate()
        finally:
            self.evaluation_s = time.monotonic() - began

    def _row(self, row: Row) -> None:
        # The clock of the run goes on while it is measured, which is no part of a method's cost.
        super()._row({**row, "evaluation_s": self.evaluation_s} if row["kind"] == "evaluation" else row)


def run(job: Row, say: Callable[[Row], None], over: threading.Event) -> None:
    """Start the run of a job, or go on with it, and say how it ended."""
    path = Path(job["folder"])
    # Of the class, not the object: a run that goes on folds its journal while it is made.
    kind: type[Paced] = type("Paced", (Paced,), {"unit": job["unit"], "points": tuple(job["points"])})
    if (path / CONFIG).is_file():
        training = kind.resume(path, say)
    else:
        training = kind.start(from_values(tomllib.loads(job["config"])), path, say)
    threading.Thread(target=_stop_with, args=(over, training), daemon=True).start()
    reason = training.run()
    if reason is None:
        say({"stopped": True})
        return
    text, _ = dumps({"reason": reason})
    write_atomic(path / DONE, text.encode())
    say({"done": reason})


def _stop_with(over: threading.Event, training: Training) -> None:
    over.wait()
    while True:  # again and again: what there is to stop may only be made after this
        training.stop()
        time.sleep(0.5)


def _watch(words: IO[str], over: threading.Event) -> None:
    words.read()
    over.set()


def main() -> int:
    """Read a job, run it, say how it ended."""
    # What libraries print must not stand between our lines.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(row: Row) -> None:
        text, _ = dumps(row)
        try:
            out.write(text + "\n")
            out.flush()
        except BrokenPipeError:
            over.set()

    over = threading.Event()
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_watch, args=(sys.stdin, over), daemon=True).start()
    try:
        run(job, say, over)
    except RollwrightError as error:
        say({"failed": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
