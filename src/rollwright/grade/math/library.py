"""math-verify, for what our own reader cannot read: integrals, conditions, sums."""

from __future__ import annotations

import logging


def library_equal(first: str, second: str) -> bool:
    """Whether math-verify says yes in both orders.

    Its alarm-based timeout is off, because it only works in a main thread: limits come from the worker
    process (`rollwright.grade.pool`). Its own rounding is made tighter, and strict mode is on.
    """
    from math_verify import LatexExtractionConfig, parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    logging.getLogger("latex2sympy2_extended").setLevel(logging.CRITICAL)
    config = [LatexExtractionConfig()]
    sides = [
        parse(
            f"${_latex(text)}$", extraction_config=config, parsing_timeout=None, fallback_mode="no_fallback"
        )
        for text in (first, second)
    ]
    if not all(sides):
        return False
    one, other = sides
    return all(
        verify(x, y, float_rounding=12, strict=True, timeout_seconds=None)
        for x, y in ((one, other), (other, one))
    )


def warm_up() -> None:
    """Load the library and make its first, slow call, so that no answer's time pays for it."""
    library_equal("\\int_0^1 x dx", "\\frac{1}{2}")


_BACK = {
    "π": "\\pi ",
    "∞": "\\infty ",
    "≤": "\\le ",
    "≥": "\\ge ",
    "≠": "\\ne ",
    "∪": "\\cup ",
    "∩": "\\cap ",
}
_BACK |= {
    "∈": "\\in ",
    "⦃": "\\{",
    "⦄": "\\}",
    "⟨": "\\langle ",
    "⟩": "\\rangle ",
    "±": "\\pm ",
    "*": "\\cdot ",
}
_BACK |= {"⟦": "|", "⟧": "|", "∅": "\\emptyset ", "°": "^\\circ ", "…": "\\ldots ", "∖": "\\setminus "}


def _latex(text: str) -> str:
    """Return a clean text as LaTeX again."""
    return "".join(_BACK.get(character, character) for character in text)
