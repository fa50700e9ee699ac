"""`rollwright view`."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from rollwright.errors import ConfigError


def view(
    runs: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    port: int = 0,
    browser: bool = True,
    tui: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Look at runs in a browser: curves, where the tokens went, groups, trees and single tokens.

    The page is served on this machine only, at an address that nobody can guess, and reads the run folders
    without changing them, while the runs go on too. Press ? on it for its keys. `--tui` shows one run in the
    terminal instead.

    For example:

    `rollwright view runs/first`

    `rollwright view runs/first runs/second --port 8900 --no-browser`

    `rollwright view runs/first --tui`

    Args:
        runs: Run folders; two of them can be laid side by side.
        port: The port; 0 takes a free one.
        browser: Open the page in this machine's browser.
        tui: Show the first run in the terminal.
    """
    if not runs:
        raise ConfigError("no run was named; give run folders, as in `rollwright view runs/first`")
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port is {port}; expected 0 to 65535")
    from rollwright.view.run import open_runs

    found = open_runs(runs[:1] if tui else runs)
    if tui:
        from rollwright.view.terminal import look

        found[0].ready()
        return look(found[0])
    from rollwright.view.server import Viewer

    viewer = Viewer(found, port)
    Console().print(f"{viewer.url} (Ctrl-C ends it)", highlight=False, soft_wrap=True, markup=False)
    if browser:
        webbrowser.open(viewer.url)
    viewer.run()
    return 0
