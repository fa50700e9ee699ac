r"""LaTeX and plain text to one notation: delimiters away, one character for each operator.

``\{`` and ``\}`` become ``⦃`` and ``⦄``, so that every brace that is left groups.
"""

from __future__ import annotations

import re

LONGEST = 20_000  # characters of an answer

_CHARACTERS = str.maketrans(
    {"−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "∗": "*", "∕": "/", "⁄": "/"}
    | {"（": "(", "）": ")", "，": ",", "：": ":", "；": ";", "％": "%", "＝": "=", "。": ".", "、": ","}
    | {"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " ", "⟨": "⟨", "⟩": "⟩", "′": "'", "~": " "}
    | dict(zip("０１２３４５６７８９", "0123456789", strict=True))
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_COMMANDS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "±", "mp": "∓", "le": "≤", "leq": "≤",
    "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "ne": "≠", "neq": "≠", "lt": "<", "gt": ">",
    "cup": "∪", "cap": "∩", "in": "∈", "infty": "∞", "pi": "π", "approx": "≈", "degree": "°", "lbrace": "⦃",
    "rbrace": "⦄", "langle": "⟨", "rangle": "⟩", "lvert": "⟦", "rvert": "⟧", "vert": "|", "mid": "|",
    "emptyset": "∅", "varnothing": "∅", "setminus": "∖", "lbrack": "[", "rbrack": "]", "colon": ":",
    "land": ",", "lor": ",", "implies": "⇒", "dots": "…", "ldots": "…", "cdots": "…",
}  # fmt: skip
_DROPPED = {
    "displaystyle", "textstyle", "scriptstyle", "limits", "nolimits", "bigl", "bigr", "Bigl", "Bigr", "big",
    "Big", "left", "right", "bigg", "Bigg", "biggl", "biggr", "thinspace", "hfill", "boldmath",
    "rm", "bf", "it",
}  # fmt: skip
_SPACES = {"quad", "qquad", "space", "enspace", "newline"}
_WRAPPERS = {
    "mathbf",
    "mathit",
    "boldsymbol",
    "bm",
    "mathsf",
    "mathnormal",
    "ensuremath",
    "underline",
    "emph",
}
_TEXTS = {
    "text",
    "textbf",
    "textit",
    "textrm",
    "mbox",
    "hbox",
    "mathrm",
    "textnormal",
    "texttt",
    "textup",
    "rm",
}
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?|\\(.)", re.DOTALL)


def clean(text: str) -> str:
    """Return the text in one notation. It never fails."""
    text = _undelimit(text.translate(_CHARACTERS).strip())
    text = re.sub(r"(\d)\s*([½⅓⅔¼¾⅕⅛])", lambda m: f"{m[1]} {_VULGAR[m[2]]}", text)
    text = re.sub(r"[½⅓⅔¼¾⅕⅛]", lambda m: _VULGAR[m[0]], text)
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = re.sub(r"√\s*(\d+|[a-z]\b|\{[^{}]*\})", r"\\sqrt{\1}", text).replace("√", "\\sqrt")
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b|º", "°", text)
    text = re.sub(r"\\(?:left|right)\s*\.", "", text)
    text = re.sub(r"\\left\s*\\?\|", "⟦", text)
    text = re.sub(r"\\right\s*\\?\|", "⟧", text)
    text = re.sub(r"(?<=\d)(?:\{,\}|\\[,!;:]|\{\\[,!;:]\})\s*(?=\d{3}(?!\d))", "\u2063", text)
    text = _COMMAND.sub(_one, text)
    text = _unwrap(text).replace("≤=", "≤").replace("<=", "≤").replace(">=", "≥").replace("!=", "≠")
    text = text.replace("**", "^").replace("\u2063", "")
    text = re.sub(r"[ \t\r\n]+", " ", text).strip()
    text = re.sub(r"(?<=[^.\s])[.,;:]+$", "", text) if not text.endswith("…") else text
    return text.strip()


def _undelimit(text: str) -> str:
    """Take the math delimiters away: dollars in pairs, and brackets with a backslash."""
    text = re.sub(r"\\[()]|(?<!\\)\\[\[\]]", " ", text)
    text = re.sub(r"^\s*([*_]{1,3})(?=\S)(.*?)(?<=\S)\1\s*$", r"\2", text, flags=re.DOTALL)
    num = len(re.findall(r"(?<!\\)\$", text))
    return re.sub(r"(?<!\\)\${1,2}", " ", text) if num % 2 == 0 else text


def _one(match: re.Match[str]) -> str:
    name, character = match[1], match[2]
    if name is None:
        return {
            "{": "⦃",
            "}": "⦄",
            "|": "|",
            "%": "%",
            "$": "$",
            "&": "&",
            "#": "#",
            "\\": "\\\\",
            "_": "_",
        }.get(character, " ")
    if name in _COMMANDS:
        return _COMMANDS[name]
    if name in _DROPPED:
        return ""
    if name in _SPACES:
        return " "
    if name in ("dfrac", "tfrac", "cfrac"):
        return "\\frac"
    return f"\\{name}"


def _unwrap(text: str) -> str:
    """Resolve commands that only change the font; words stay as ``\\text{...}``, but for and, or, letters."""

    def plain(match: re.Match[str]) -> str:
        inner = match[2].strip()
        if inner.lower() in ("and", "or", ",", "") or (inner.lower() in ("and", "or")):
            return f" {inner.lower()} "
        if match[1] == "mathrm" and len(inner) == 1 and inner in "eidx":
            return inner
        return "\\text{" + inner + "}"

    names = "|".join(sorted(_TEXTS))
    text = re.sub(r"\\operatorname\s*\{\s*([A-Za-z]+)\s*\}", r"\\\1 ", text)
    text = re.sub(r"\\(?:" + "|".join(sorted(_WRAPPERS)) + r")\s*\{([^{}]*)\}", r"\1", text)
    return re.sub(rf"\\({names})\s*\{{([^{{}}]*)\}}", plain, text)
