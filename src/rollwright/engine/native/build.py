"""Build the kernel with the machine's C compiler and keep it, one file for each source and processor."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from rollwright.errors import EngineError

_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC")
_TIMEOUT_S = 120
_HERE = Path(__file__).parent


def compiler() -> list[str] | None:
    """Return the command of a C compiler: ``CC``, cc, gcc, clang or the one in the package ``ziglang``."""
    chosen = os.environ.get("CC", "").split()
    for command in [chosen, ["cc"], ["gcc"], ["clang"]]:
        if command and shutil.which(command[0]):
            return command
    import importlib.util
    import sys

    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def _processor() -> str:
    """Return what the build depends on beside the source: the machine's name and features."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    about = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return " ".join([platform.system(), platform.machine(), platform.processor(), *sorted(set(about))])


def _cache() -> Path:
    root = os.environ.get("ROLLWRIGHT_CACHE") or os.environ.get("XDG_CACHE_HOME")
    folder = Path(root) if root else Path.home() / ".cache"
    return folder / "rollwright" / "native"


@functools.cache
def library() -> ctypes.CDLL:
    """Return the kernel, built if it is not there yet.

    Raises:
        EngineError: there is no compiler, or it refused; the message holds what it said.
    """
    command = compiler()
    if command is None:
        raise EngineError("no C compiler (cc, gcc, clang, or the package ziglang) was found")
    sources = sorted(_HERE.glob("*.[ch]"))
    text = b"".join(path.read_bytes() for path in sources)
    key = hashlib.sha256(text + repr((command, _FLAGS, _processor())).encode()).hexdigest()[:20]
    try:
        target = _cache() / f"{key}.so"
        if not target.exists():
            _build(command, target)
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise EngineError(f"the kernel cannot be kept or loaded: {error}") from error


def _build(command: list[str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    os.close(handle)
    try:
        words = [*command, *_FLAGS, "-pthread", str(_HERE / "decoder.c"), "-o", name, "-lm"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{command[0]} did not end within {_TIMEOUT_S} s") from error
        if done.returncode:
            raise EngineError(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
        Path(name).replace(target)  # several processes may build at once: each puts a whole file
    finally:
        Path(name).unlink(missing_ok=True)
