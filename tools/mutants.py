"""Apply each mutation of tests/mutants/mutants.toml to a copy of the source; its tests must fail.

    python tools/mutants.py [--room ROOM] [--every N] [NAME ...]

A mutant survives if its tests pass. A mutation whose old text is not found exactly once, and a test that
cannot be collected, are errors. The copy is made of hard links; each mutant runs in a fork of a process
that has imported pytest (and torch, where the room asks for it) but nothing of rollwright.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import shutil
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants" / "mutants.toml"
ROOM_TO_IMPORTS = {"core": ("hypothesis", "numpy", "msgspec"), "torch": ("hypothesis", "msgspec", "torch")}
FAILED = 1  # pytest's exit status for tests that ran and failed
Mutant = dict[str, Any]


def main() -> int:
    """Run the chosen mutants; return 0 if each one is killed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="mutants by name; all by default")
    parser.add_argument("--room", choices=sorted(ROOM_TO_IMPORTS), help="only the mutants of one room")
    parser.add_argument("--every", type=int, default=1, help="only each N-th mutant of the list")
    options = parser.parse_args()
    mutants = tomllib.loads(LIST.read_text())["mutant"]
    chosen = [m for m in mutants[:: options.every] if options.room in (None, m["room"])]
    if options.names:
        chosen = [m for m in chosen if m["name"] in options.names]
    if not chosen:
        print(f"no such mutant; known: {', '.join(m['name'] for m in mutants)}")
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for room in sorted({m["room"] for m in chosen}):
        for name in ("pytest", *ROOM_TO_IMPORTS[room]):
            importlib.import_module(name)
    verdicts = [judge(mutant) for mutant in chosen]
    print(f"{sum(verdicts)} of {len(verdicts)} mutants killed")
    return 0 if all(verdicts) else 1


def judge(mutant: Mutant) -> bool:
    """Run one mutant and print what came of it; return whether it was killed as it must be."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        problem = mutate(mutant, Path(folder))
        status, output = (None, problem) if problem else run(mutant, Path(folder))
    seconds = time.monotonic() - start
    if status == FAILED:
        print(f"killed   {mutant['name']} ({seconds:.1f} s)", flush=True)
        return True
    word = "SURVIVED" if status == 0 else "ERROR"
    print(
        f"{word} {mutant['name']}: {mutant['file']}, {mutant['tests']} (status {status})\n{output}",
        flush=True,
    )
    return False


def mutate(mutant: Mutant, folder: Path) -> str:
    """Make the mutated copy in ``folder``; return what is wrong with the mutation, or an empty text."""
    ignore = shutil.ignore_patterns("checkpoints")
    package = folder / "rollwright"
    shutil.copytree(ROOT / "src" / "rollwright", package, copy_function=os.link, ignore=ignore)
    checkpoints = ROOT / "src" / "rollwright" / "tasks" / "checkpoints"
    if checkpoints.exists():
        (package / "tasks" / "checkpoints").symlink_to(checkpoints)
    path = package / mutant["file"]
    if not path.exists():
        return f"{mutant['file']} does not exist"
    text = path.read_text()
    if text.count(mutant["old"]) != 1:
        return f"the old text occurs {text.count(mutant['old'])} times in {mutant['file']}, not once"
    path.unlink()  # a link to the real source: never write through it
    path.write_text(text.replace(mutant["old"], mutant["new"]))
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
    return ""


def run(mutant: Mutant, folder: Path) -> tuple[int, str]:
    """Run the mutant's tests in a fork that sees the copy; return pytest's status and output."""
    log = folder / "output"
    child = os.fork()
    if child == 0:
        status = 99
        with contextlib.suppress(BaseException):
            status = run_tests(mutant, folder, log)
        os._exit(status)
    _, code = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(code), log.read_text()[-2000:] if log.exists() else ""


def run_tests(mutant: Mutant, folder: Path, log: Path) -> int:
    """Run in the child: put the copy first on the path and call pytest."""
    import pytest

    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    os.chdir(ROOT)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
        status = int(pytest.main([*options, *mutant["tests"]]))
        import rollwright

        if not str(rollwright.__file__).startswith(str(folder)):
            print(f"the tests ran on {rollwright.__file__}, not on the mutant")
            return 98
        return status


if __name__ == "__main__":
    sys.exit(main())
