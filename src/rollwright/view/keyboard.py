"""Keys of a Unix terminal, one by one."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rollwright.errors import ConfigError

_NAMES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "pageup", "\x1b[6~": "pagedown", "\x1b[H": "home",
    "\x1b[F": "end", "\x1bOA": "up", "\x1bOB": "down", "\r": "enter", "\n": "enter", "\x1b": "escape",
    "\x7f": "backspace", "\x08": "backspace", "\x03": "q",
}  # fmt: skip


@contextmanager
def keys() -> Iterator[Callable[[float], str | None]]:
    """A function that waits for a key, at most so many seconds; the terminal is as before at the end."""
    try:
        import termios
        import tty
    except ImportError as error:
        raise ConfigError("--tui needs a Unix terminal; leave it out to look in a browser") from error
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    waiting: list[str] = []

    def read(timeout_s: float) -> str | None:
        if not waiting:
            if not select.select([fd], [], [], timeout_s)[0]:
                return None
            text = os.read(fd, 1024).decode("utf-8", "replace")
            waiting.extend(re.findall(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Z])?|.", text, re.DOTALL))
        key = waiting.pop(0)
        return _NAMES.get(key, key)

    try:
        tty.setcbreak(fd)
        yield read
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
