"""The terminal view: keys in, lines out; and once in a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

from rollwright.view.run import Run
from rollwright.view.terminal import Screen, visible


def shown(screen: Screen) -> list[str]:
    return [line.plain for line in screen.lines()]


def press(screen: Screen, *keys: str) -> list[str]:
    for key in keys:
        assert screen.press(key)
    return shown(screen)


def test_the_list_moves_and_opens(odd: Run):
    """Oracle: hand. Kills: a chosen row that is not the one opened."""
    screen = Screen(odd, 14, 100)
    lines = shown(screen)
    assert len(lines) <= 14 and "4 groups" in lines[1] and "rooms/train/0#0" in lines[3]
    assert "texts/train/0#0, rollout 0 of 2" in press(screen, "j", "enter")[1]
    assert "rollout 1 of 2: not scored, grader_error, filtered: <i>why</i>" in press(screen, "n")[1]
    assert "rollout 0 of 2" in press(screen, "n")[1]
    assert "4 groups" in press(screen, "b")[1]
    assert screen.chosen == 1 and not screen.press("q")


def test_a_condition_filters_and_a_wrong_one_is_told(odd: Run):
    """Oracle: hand. Kills: a wrong condition that empties the list, or ends the program."""
    screen = Screen(odd, 14, 100)
    lines = press(screen, "/", *"num_right = 0x", "backspace", "enter")
    assert "0 groups where num_right = 0" in lines[1]
    lines = press(screen, "/", *" or", "enter")
    assert "is no condition" in lines[-1] and "0 groups where num_right = 0" in lines[1]
    assert "4 groups" in press(screen, "/", *["backspace"] * 20, "enter")[1]
    assert "q" in press(screen, "/", "q")[-1] and screen.typing == "q"
    press(screen, "escape")
    assert ", by reward_mean" in press(screen, "s")[1]


def test_long_lists_and_long_rollouts_scroll(toy: Run):
    """Oracle: the list itself. Kills: a row that no key reaches."""
    screen = Screen(toy, 12, 90)
    total = screen.total
    assert total > 12
    press(screen, "end")
    assert screen.chosen == total - 1
    last = toy.lists.page("groups", "", "", False, total - 1, 1)["rows"][0]
    assert last[3] in "".join(shown(screen))
    press(screen, "home", "pagedown", "pageup", "up")
    assert screen.chosen == 0
    press(screen, "enter", "j", "k", "pageup", "c", "c", "c", "c", "c")
    assert len(shown(screen)) <= 12


@pytest.mark.parametrize(
    "text", ["\x1b[2J\x1b]0;title\x07", "a\u202eb\u2066", "\x00\x7f\x9b31m", "plain\tשלום\n"]
)
def test_no_character_is_obeyed(text: str):
    """Oracle: no control is left but tab and newline. Kills: text that clears the screen."""
    found = visible(text)
    assert not [c for c in found if (ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0 or ord(c) in
                (0x202E, 0x2066)]  # fmt: skip
    if text.startswith("plain"):
        assert found == text
    assert len(found) >= len(text)


def test_hostile_text_stays_text(odd: Run):
    """Oracle: hand: the escape is shown as a picture, and rich takes no markup from it."""
    screen = Screen(odd, 40, 100)
    lines = "\n".join(press(screen, "j", "enter", "n"))
    assert "␛[31mred" in lines and "⟨U+202E⟩evil" in lines and "\x1b" not in lines
    assert "<img src=x onerror=window.hurt=9>" in lines


@pytest.mark.slow
def test_in_a_real_terminal(hostile_path: Path):
    """Oracle: what the terminal received. Kills: keys that are not read, a terminal left in raw mode."""
    import termios

    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="30")
        words = ["-m", "rollwright.cli.main", "view", str(hostile_path), "--tui"]
        os.execv(sys.executable, [sys.executable, *words])
    before = termios.tcgetattr(fd)

    def wait(text: str) -> None:
        seen, deadline = "", time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < deadline, seen[-500:]
            if select.select([fd], [], [], 0.2)[0]:
                seen += os.read(fd, 65536).decode("utf-8", "replace")

    try:
        wait("rooms/train/0#0")
        os.write(fd, b"\x1b[B\r")
        wait("texts/train/0#0, rollout 0 of 2")
        os.write(fd, b"n")
        wait("grader_error")
        assert termios.tcgetattr(fd)[3] != before[3]
        os.write(fd, b"q")
        wait("\x1b[?1049l")  # the other screen is left
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert termios.tcgetattr(fd)[3] == before[3]
    finally:
        os.close(fd)
