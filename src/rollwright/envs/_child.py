"""The same episodes in another process, with another hash seed. ``python -m rollwright.envs._child``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rollwright.envs._episodes import play
from rollwright.errors import EnvironmentFault

_SECONDS = 120
_MARK = "rollwright-episodes:"  # foreign code may print, too

Told = dict[str, tuple[str, list[str], list[str]]]


def builder(spec: str) -> Callable[[], Any]:
    """Return what makes the task or environment that ``spec`` names: a task, or FILE.py:FUNCTION.

    Raises:
        UnknownName: no such task or function.
    """
    if spec.rpartition(":")[0].endswith(".py"):
        from rollwright.grade.reward import load_function

        return load_function(spec)
    from rollwright.tasks.registry import load_task

    load_task(spec)  # a wrong name is an error now
    return lambda: load_task(spec)


def ask_another_process(spec: str, turns: Mapping[str, Sequence[Any]]) -> Told:
    """Return prompt, texts and signatures of each id's episode, as another process plays it.

    Raises:
        EnvironmentFault: it fails there, or takes longer than two minutes.
    """
    env = {**os.environ, "PYTHONHASHSEED": "4242" if os.environ.get("PYTHONHASHSEED") != "4242" else "17"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rollwright.envs._child", spec],
            input=json.dumps(turns),
            env=env,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(
            f"another process took more than {_SECONDS} s for the same episodes"
        ) from error
    line = next((line for line in done.stdout.splitlines() if line.startswith(_MARK)), None)
    if done.returncode or line is None:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise EnvironmentFault(f"another process could not play the same episodes: {last}")
    return {task_id: tuple(told) for task_id, told in json.loads(line[len(_MARK) :]).items()}  # type: ignore[misc]


def main() -> None:
    from rollwright.envs.check import as_task

    turns = json.load(sys.stdin)
    task = as_task(builder(sys.argv[1]))
    told: Told = {}
    for task_id, given in turns.items():
        plain = [tuple(turn) if isinstance(turn, list) else turn for turn in given]
        episode = play(task, task.reset(task_id), plain)
        told[task_id] = (task.prompt(task_id), episode.texts, episode.marks)
    print(f"\n{_MARK}{json.dumps(told)}")


if __name__ == "__main__":
    main()
