"""Every command and program in README.md and docs/ is run as it stands there.

In a document, blocks run from top to bottom in one empty folder:

- ```` ```sh ```` is run line by line; ```` ```python ```` is run as a program;
- a block with a title (```` ```python title=reward.py ````) is written to that file instead;
- ```` ```console ```` is not run: it may only set things up (`git`, `cd`, `make TARGET`), and its targets
  must exist.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from rollwright.cli.main import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.is_file()]
# Pages whose commands take longest: they train, compare or start many processes.
LONG = ("guide-agent", "guide-researcher", "compare", "evaluate", "sandbox", "drafts", "explain", "check")
_FENCE = re.compile(r"^```(?P<head>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = set("|&;<>()$`\\*?~#=%\n")


class Block(NamedTuple):
    kind: str
    title: str
    body: str


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a document, in order."""
    found = []
    for match in _FENCE.finditer(text):
        kind, _, rest = match["head"].strip().partition(" ")
        title = re.search(r"title=(\S+)", rest)
        found.append(Block(kind, title[1] if title else "", match["body"]))
    return found


def commands(body: str) -> list[str]:
    """Return the commands of a shell block; a backslash at its end joins a line with the next."""
    lines = body.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def run_command(line: str, folder: Path) -> None:
    """Run one command of a document; a plain `rollwright` call runs in this process, which is quicker."""
    words = shlex.split(line)
    if words[0] == "rollwright" and not _SHELL & set(line):
        assert main(words[1:]) == 0, f"this command of the document fails: {line}"
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"this command of the document fails: {line}\n{done.stdout}\n{done.stderr}"


def run_block(block: Block, folder: Path) -> None:
    if block.title:
        (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
        (folder / block.title).write_text(block.body)
    elif block.kind == "sh":
        for line in commands(block.body):
            run_command(line, folder)
    elif block.kind == "python":
        exec(compile(block.body, "<document>", "exec"), {"__name__": "__main__"})
    elif block.kind == "console":
        check_setup(block.body)


def check_setup(body: str) -> None:
    """Check that a block that is not run only sets things up, with targets that exist."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in commands(body):
        words = shlex.split(line)
        assert words[0] in ("git", "cd", "make"), f"a command that no test runs: {line}"
        assert words[0] != "make" or set(words[1:]) <= targets, f"no such target: {line}"


def _param(path: Path) -> object:
    marks = [pytest.mark.slow] if path.parent.name == "docs" and path.stem in LONG else []
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("document", [_param(path) for path in DOCUMENTS])
def test_commands(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: exit code 0 of every command. Kills: a flag that was renamed, a file that moved."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(document.read_text()):
        run_block(block, tmp_path)


def test_blocks_are_found() -> None:
    """Oracle: golden. Kills: a pattern that finds nothing, so that nothing is run."""
    text = "a\n\n```sh\nls \\\n  -l\n# no\n\npwd\n```\n\n```python title=x/y.py\nz = 1\n```\n`` `a` ``\n"
    found = blocks(text)
    assert found == [Block("sh", "", "ls \\\n  -l\n# no\n\npwd\n"), Block("python", "x/y.py", "z = 1\n")]
    assert commands(found[0].body) == ["ls    -l", "pwd"]


def test_a_failing_command_fails(tmp_path: Path) -> None:
    """Oracle: both ways of running report it."""
    for line in ("rollwright nothing", "false | cat", "rollwright nothing | cat"):
        with pytest.raises(AssertionError, match="fails"):
            run_command(line, tmp_path)
    with pytest.raises(AssertionError, match="no test runs"):
        check_setup("pip install x\n")
    with pytest.raises(AssertionError, match="no such target"):
        check_setup("make nothing\n")
