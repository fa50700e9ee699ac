"""A run in the terminal: the list of its groups, and one rollout with its tokens in colour.

`Screen` is a plain state machine (keys in, lines out); `look` reads keys and draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from rollwright.cli.text import number
from rollwright.errors import ConfigError, RollwrightError
from rollwright.view.keyboard import keys
from rollwright.view.run import Run

_COLUMNS = (("step", 6), ("group", 34), ("num_rollouts", 9), ("reward_mean", 8), ("num_right", 6),
            ("fate", 10), ("length_mean", 8), ("age_max", 5))  # fmt: skip
_TITLES = ("step", "group", "rollouts", "reward", "right", "fate", "length", "age")
_SORTS = ("", "reward_mean", "length_max", "age_max", "num_rollouts")
_COLOURS = ("advantage", "logprob", "entropy", "version", "origin")
_HIDDEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069"
    "\ufeff]"
)
_HELP = "j/k move  enter open  b back  n/p next rollout  s sort  / condition  c colour  q quit"


class Screen:
    """What the terminal shows, and what each key does to it.

    Args:
        run: the run, ready.
        height, width: of the terminal, in characters.
    """

    def __init__(self, run: Run, height: int = 24, width: int = 100) -> None:
        self.run, self.height, self.width = run, height, width
        self.where, self.sort, self.colour = "", "", _COLOURS[0]
        self.chosen = self.top = self.scroll = 0
        self.rollout: dict[str, Any] | None = None
        self.typing: str | None = None
        self.message = ""
        self._load()

    # ------------------------------------------------------------ keys

    def press(self, key: str) -> bool:
        """Take one key; return whether to go on."""
        self.message = ""
        if self.typing is not None:
            self._type(key)
            return True
        if key == "q":
            return False
        action = (self._rollout_keys() if self.rollout is not None else self._list_keys()).get(key)
        if action is not None:
            try:
                action()
            except RollwrightError as error:
                self.message = str(error)
        return True

    def _list_keys(self) -> dict[str, Callable[[], None]]:
        page = self._page
        return {
            **dict.fromkeys(("j", "down"), lambda: self._move(1)),
            **dict.fromkeys(("k", "up"), lambda: self._move(-1)),
            "pagedown": lambda: self._move(page),
            "pageup": lambda: self._move(-page),
            **dict.fromkeys(("g", "home"), lambda: self._move(-self.total)),
            **dict.fromkeys(("G", "end"), lambda: self._move(self.total)),
            "enter": lambda: self._open(0),
            "s": self._next_sort,
            "/": self._start_typing,
        }

    def _rollout_keys(self) -> dict[str, Callable[[], None]]:
        return {
            **dict.fromkeys(("j", "down"), lambda: self._scroll(1)),
            **dict.fromkeys(("k", "up"), lambda: self._scroll(-1)),
            "pagedown": lambda: self._scroll(self._page),
            "pageup": lambda: self._scroll(-self._page),
            **dict.fromkeys(("b", "escape"), self._close),
            "n": lambda: self._sibling(1),
            "p": lambda: self._sibling(-1),
            "c": self._next_colour,
        }

    @property
    def _page(self) -> int:
        return max(1, self.height - 5)

    @property
    def _num_rows(self) -> int:
        return max(1, self._page - 1)  # a list has a heading

    def _move(self, by: int) -> None:
        self.chosen = max(0, min(self.chosen + by, self.total - 1))
        self.top = min(max(self.top, self.chosen - self._num_rows + 1), self.chosen)
        self._load()

    def _scroll(self, by: int) -> None:
        self.scroll = max(0, min(self.scroll + by, len(self._body()) - self._page))

    def _start_typing(self) -> None:
        self.typing = self.where

    def _next_sort(self) -> None:
        self.sort = _SORTS[(_SORTS.index(self.sort) + 1) % len(_SORTS)]
        self.chosen = self.top = 0
        self._load()

    def _next_colour(self) -> None:
        self.colour = _COLOURS[(_COLOURS.index(self.colour) + 1) % len(_COLOURS)]

    def _close(self) -> None:
        self.rollout = None

    def _sibling(self, by: int) -> None:
        assert self.rollout is not None
        known = [one["index"] for one in self.rollout["siblings"]]
        self._open(known[(known.index(self.rollout["index"]) + by) % len(known)])

    def _open(self, index: int) -> None:
        if not self.rows:
            return
        row = self.rows[self.chosen - self.top]
        place = (row["kind"], row["step"], row["group_index"])
        if index == 0:
            index = self.run.group(*place)["trajectories"][0]["index"]
        self.rollout = self.run.rollout(*place, index)
        self.scroll = 0

    def _type(self, key: str) -> None:
        assert self.typing is not None
        if key == "enter":
            before, self.where, self.typing = self.where, self.typing, None
            self.chosen = self.top = 0
            try:
                self._load()
            except RollwrightError as error:
                self.message, self.where = str(error), before
                self._load()
        elif key == "escape":
            self.typing = None
        elif key == "backspace":
            self.typing = self.typing[:-1]
        elif len(key) == 1:
            self.typing += key

    def _load(self) -> None:
        found = self.run.lists.page(
            "groups", self.where, self.sort, bool(self.sort), self.top, self._num_rows
        )
        self.total = int(found["total"])
        self.chosen = max(0, min(self.chosen, self.total - 1))
        self.rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]

    def refresh(self) -> None:
        """Take in what a live run has written."""
        self.run.refresh()
        self._load()

    # ------------------------------------------------------------ lines

    def lines(self) -> list[Text]:
        """Return the lines of the screen, at most ``height`` of them."""
        state = self.run.state()
        head = Text(f"{visible(self.run.title)}: {state['text']}", style="bold")
        body = self._list() if self.rollout is None else self._body()[self.scroll : self.scroll + self._page]
        foot = Text(self.message, style="red") if self.message else Text(_HELP, style="dim")
        if self.typing is not None:
            foot = Text(f"where {visible(self.typing)}▏")
        found = [head, self._line(), *body, *[Text("")] * (self._page - len(body)), foot]
        for line in found:
            line.truncate(self.width, overflow="ellipsis")
        return found

    def _line(self) -> Text:
        if self.rollout is None:
            where = f" where {self.where}" if self.where else ""
            sort = f", by {self.sort}" if self.sort else ""
            return Text(visible(f"{self.total:,} groups{where}{sort}"), style="cyan")
        one = self.rollout
        fate = f"{one['fate']}: {one['reason']}" if one["reason"] else one["fate"]
        reward = "not scored" if one["reward"] is None else f"reward {number(one['reward'])}"
        words = (
            f"{one['group']}, rollout {one['index']} of {len(one['siblings'])}: {reward}, {one['status']}, "
            f"{fate}, {one['num_sampled']} tokens; colour: {self.colour}"
        )
        return Text(visible(words), style="cyan")

    def _list(self) -> list[Text]:
        sizes = [size for _, size in _COLUMNS]
        found = [Text(" ".join(f"{t:<{n}}" for t, n in zip(_TITLES, sizes, strict=True)), style="bold")]
        for place, row in enumerate(self.rows):
            cells = [_cell(row[name], size) for name, size in _COLUMNS]
            is_chosen = self.top + place == self.chosen
            found.append(Text(" ".join(cells), style="reverse" if is_chosen else ""))
        return found

    def _body(self) -> list[Text]:
        """Return the lines of the rollout: a heading per stretch, then its text in colour."""
        assert self.rollout is not None
        console = Console(width=self.width, force_terminal=True)
        found: list[Text] = []
        for segment in self.rollout["segments"]:
            version = "" if segment["version"] is None else f", version {segment['version']}"
            head = f"── {segment['origin']}, {segment['num']} tokens{version} "
            found.append(Text(head.ljust(self.width, "─"), style="dim"))
            text = Text()
            pieces = segment["pieces"] or [f"⟨{token}⟩" for token in segment["tokens"]]
            for step, piece in enumerate(pieces):
                text.append(visible(piece), style=_style(self.colour, segment, step))
            if segment["pieces"] is None and segment["text"]:
                text.append("\n" + visible(segment["text"]))
            found += text.wrap(console, self.width, no_wrap=False, overflow="fold")
        return found


def visible(text: str) -> str:
    """Return text with a mark for each character that a terminal would obey instead of showing it."""
    return _HIDDEN.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 32 else f"⟨U+{code:04X}⟩"


def _cell(value: object, size: int) -> str:
    text = visible(value if isinstance(value, str) else "-" if value is None else number(float(str(value))))
    return f"{text if len(text) <= size else text[: size - 1] + '…':<{size}}"


def _style(colour: str, segment: dict[str, Any], step: int) -> str:
    if segment["origin"] != "sampled":
        return "dim"
    if colour == "origin":
        return "magenta" if step < segment["forced"] else "bold"
    if colour == "version":
        return ("cyan", "yellow", "green", "magenta", "blue", "red")[segment["version"] % 6]
    values = segment[{"advantage": "advantages", "logprob": "logprobs", "entropy": "entropies"}[colour]]
    if values is None:
        return ""
    value = values[step]
    if colour == "advantage":
        return "" if value == 0 else "black on bright_blue" if value > 0 else "black on bright_yellow"
    return ("", "yellow", "red", "black on red")[
        min(3, int(abs(value) / (1.0 if colour == "logprob" else 0.5)))
    ]


def look(run: Run) -> int:
    """Show a run in this terminal until ``q``.

    Raises:
        ConfigError: input or output is no terminal, or the system has none of the Unix kind.
    """
    import sys

    console = Console()
    if not (sys.stdin.isatty() and console.is_terminal):
        raise ConfigError("--tui needs a terminal; without one, `rollwright show RUN` prints a summary")
    from rich.live import Live

    screen = Screen(run, console.height, console.width)
    try:
        with keys() as read, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                screen.height, screen.width = console.height, console.width
                live.update(Text("\n").join(screen.lines()), refresh=True)
                key = read(2.0)
                if key is None:
                    screen.refresh()
                elif not screen.press(key):
                    return 0
    finally:
        run.close()
