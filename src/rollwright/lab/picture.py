"""What all pictures share: a figure that is saved whole or not at all, and how axes look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rollwright.errors import StoreError
from rollwright.store.tail import reason

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2430", "#6b7280", "#e5e7eb"


@contextmanager
def picture(
    path: Path, size: tuple[float, float], title: str, kind: str | None = "png", font_size: int = 10
) -> Iterator[Figure]:
    """Give a figure to draw on, with a title, and save it.

    Args:
        path: where; its folder is made.
        size: inches.
        kind: png, svg, pdf; None takes it from the name.

    Raises:
        StoreError: it cannot be written, or there is no such kind of picture.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(
        {"font.size": font_size, "text.color": INK, "axes.labelcolor": MUTED, "axes.titlesize": font_size + 1}
    ):
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        yield figure
        figure.suptitle(title, fontsize=font_size + 3, fontweight="bold", x=0.01, ha="left")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=130, format=kind)
        except OSError as error:
            raise StoreError(f"cannot write the picture {path}: {reason(error)}") from error
        except ValueError as error:  # matplotlib knows no such kind of picture
            raise StoreError(f"cannot write the picture {path}: {error}") from error


def dress(axes: Axes, title: str, grid: Literal["x", "y"] = "x", has_base: bool = True) -> None:
    """Give axes a title and a quiet grid; only the line at the bottom stays, if any."""
    axes.set_title(title, loc="left")
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(has_base and side == "bottom")
        spine.set_color(GRID)
