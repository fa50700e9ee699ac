"""The situations in which a sandbox may find itself, made where this machine allows them.

    python situations.py SITUATION < programs.json > outcomes.json

Where the tests run as root, a mount namespace that shows this interpreter to everybody lets them also be an
ordinary user. Where they do not, root's situations cannot be made, and are not in the list.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rollwright
from rollwright.errors import RollwrightError
from rollwright.grade.sandbox import kernel, root
from rollwright.grade.sandbox.pool import Sandbox
from rollwright.grade.sandbox.program import Limits, Program

USER = 41_999
SOURCE = Path(rollwright.__file__).parents[1]
# name -> (as root, isolation, with Landlock)
ALL = {
    "root, namespaces": (True, "namespaces", True),
    "root, plain": (True, "plain", True),
    "user, namespaces": (False, "namespaces", True),
    "user, plain": (False, "plain", True),
    "user, plain, no Landlock": (False, "plain", False),
}


def possible() -> list[str]:
    """Return the situations that this user can try to make."""
    return [name for name, (as_root, _, _) in ALL.items() if os.geteuid() == 0 or not as_root]


def run(
    name: str, programs: list[tuple[Program, float]], check: bool = True, **limits: Any
) -> dict[str, Any] | None:
    """Run programs, each with its time, in three slots in a situation; outcomes, and what was left behind.

    None (unless ``check``) if the kernel refuses the situation.
    """
    as_root = ALL[name][0]
    told = {"programs": [(asdict(program), seconds) for program, seconds in programs], "limits": limits}
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        done = subprocess.run(
            [sys.executable, __file__, name, base],
            input=json.dumps(told),
            capture_output=True,
            text=True,
            timeout=110,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": base},
        )
    if done.returncode == 77 and not check:
        return None
    assert done.returncode == 0, f"{name} (root: {as_root}):\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout)


def _show_everything(base: Path) -> None:
    """Go into a root where the interpreter can be read by all, wherever it is installed."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", str(base), "tmpfs", 0, "mode=755")
    shown: list[Path] = []
    for name in (*root.readable(), str(SOURCE), "/etc/passwd", str(Path(__file__).parent)):
        root._show(Path(name), base, shown)
    for name in ("proc", "dev", "sys"):
        (base / name).mkdir()
        kernel.mount(f"/{name}", str(base / name), None, kernel.MS_BIND | kernel.MS_REC)
    (base / "tmp").mkdir(exist_ok=True)  # it is there where this project lies below /tmp
    (base / "scratch").mkdir()
    kernel.mount("tmpfs", str(base / "scratch"), "tmpfs", 0, "mode=1777")
    kernel.enter_root(str(base))
    os.environ["TMPDIR"] = "/scratch"
    tempfile.tempdir = None


def _processes() -> list[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def main() -> int:
    """Run what stands on the input in the situation that the first argument names."""
    as_root, isolation, has_landlock = ALL[sys.argv[1]]
    told = json.load(sys.stdin)
    if os.geteuid() == 0:
        _show_everything(Path(sys.argv[2]))
        if not as_root:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
    kernel.adopt_orphans()  # whatever gets away becomes a child of this process, and is seen
    secret = Path(tempfile.gettempdir()) / "secret.txt"
    secret.write_text("the user's own file")
    for program, _ in told["programs"]:
        program["code"] = program["code"].replace("SECRET", str(secret))
    before = set(_processes())
    try:
        sandbox = Sandbox(3, None, isolation, landlock=has_landlock)
    except RollwrightError as error:
        print(error, file=sys.stderr)
        return 77
    with sandbox:
        futures = [
            sandbox.submit(sandbox.run, Program(**program), Limits(timeout_s=seconds, **told["limits"]))
            for program, seconds in told["programs"]
        ]
        outcomes = [future.result() for future in futures]
        during = [pid for pid in _own_descendants() if pid not in before]
        protections = {name: asdict(one) for name, one in sandbox.protections().items()}
    left = [pid for pid in _own_descendants() if pid not in before]
    secret_is_there = secret.is_file() and secret.read_text() == "the user's own file"
    secret.unlink(missing_ok=True)
    json.dump(
        {
            "outcomes": [asdict(outcome) for outcome in outcomes],
            "protections": protections,
            "num_processes_idle": len(during),
            "processes_left": left,
            "files_left": sorted(path.name for path in Path(tempfile.gettempdir()).iterdir()),
            "secret_is_there": secret_is_there,
        },
        sys.stdout,
    )
    return 0


def _own_descendants() -> list[int]:
    from rollwright.grade.sandbox.processes import descendants

    return descendants(os.getpid())


if __name__ == "__main__":
    sys.exit(main())
