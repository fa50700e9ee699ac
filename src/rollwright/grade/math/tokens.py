"""Clean text to tokens; numbers, mixed numbers and repeating decimals become values at once."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from rollwright.grade.math.expression import TooLarge, Unreadable

MAX_DIGITS = 4000  # of one number
MAX_TOKENS = 4000

FUNCTIONS = {
    "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "ln", "log", "lg", "exp", "abs", "cbrt", "floor", "ceil", "gcd", "lcm", "max",
    "min",
}  # fmt: skip
GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota",
    "kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi",
    "omega",
    "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Psi", "Omega", "ell", "hbar",
}  # fmt: skip

_D = r"\d+"
_TOKEN = re.compile(
    rf"""
      (?P<mixedtex>({_D})\s*\\frac\s*(?:\{{\s*({_D})\s*\}}\s*\{{\s*({_D})\s*\}}|(\d)\s*(\d)))
    | (?P<mixed>({_D})\s+({_D})\s*/\s*({_D})(?![\d.]))
    | (?P<repeat>(\d*)\.(\d*)\\overline\s*\{{(\d+)\}})
    | (?P<number>(?:\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d{{1,3}}(?:\ \d{{3}})+(?!\d)|\d+)
       (?:\.\d+|\.(?![\d.…]))?|\.\d+)
      (?P<exponent>[eE][-+]?\d+(?![\d.]))?
    | (?P<command>\\[A-Za-z]+)
    | (?P<word>[A-Za-zα-ορ-ωΑ-Ω]+)
    | (?P<space>\s+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """kind: ``number`` (with a value), ``name``, ``function``, ``command`` or the character itself."""

    kind: str
    text: str
    value: Fraction = Fraction(0)
    is_decimal: bool = False


def tokens(text: str) -> list[Token]:
    """Return the tokens of a clean text.

    Raises:
        Unreadable: an improper "mixed number", or two numbers side by side.
        TooLarge: too many tokens or digits.
    """
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative takes any character
        if match.lastgroup == "exponent" and match["number"] is None:
            raise Unreadable(text)
        new = _tokens_of(match)
        if (
            new
            and new[0].kind == "number"
            and found
            and found[-1].kind == "number"
            and not _is_argument(found)
        ):
            raise Unreadable(f"two numbers side by side in {text[:80]!r}")
        found += new
        at = match.end()
        if len(found) > MAX_TOKENS:
            raise TooLarge(f"more than {MAX_TOKENS} symbols")
    return found


def _is_argument(found: list[Token]) -> bool:
    """Whether the last number is a subscript or a command's first argument: log_2 8, \\frac 1 2."""
    return len(found) > 1 and (found[-2].kind == "_" or found[-2].kind == "command")


def _tokens_of(match: re.Match[str]) -> list[Token]:
    if match["mixedtex"] or match["mixed"]:
        return [_mixed(match)]
    if match["repeat"]:
        return [_repeating(match)]
    if match["number"]:
        return [_number(match["number"], match["exponent"])]
    if match["space"]:
        return []
    if match["command"]:
        return [_command(match["command"])]
    if match["word"]:
        return _word(match["word"])
    return [Token(match["other"], match["other"])]


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number of {len(digits)} digits")
    return int(digits)


def _mixed(match: re.Match[str]) -> Token:
    whole, top, bottom = (_whole(text) for text in re.findall(r"\d+", _spread(match)))
    if not 0 < top < bottom:
        raise Unreadable(f"{match[0]!r} is neither a mixed number nor a product")
    return Token("number", match[0], whole + Fraction(top, bottom))


def _spread(match: re.Match[str]) -> str:
    """Return a mixed number's digits apart: 2\\frac12 is 2 1 2."""
    if match["mixedtex"] and "{" not in match[0]:
        whole, _, rest = match[0].partition("\\frac")
        digits = rest.replace(" ", "")
        return f"{whole} {digits[0]} {digits[1]}"
    return match[0]


def _repeating(match: re.Match[str]) -> Token:
    whole, _, rest = match[0].partition(".")
    fixed, _, repeated = rest.partition("\\overline")
    repeated = re.sub(r"\D", "", repeated)
    scale = 10 ** len(fixed)
    value = Fraction(_whole((whole + fixed) or "0"), scale)
    value += Fraction(_whole(repeated), scale * (10 ** len(repeated) - 1))
    return Token("number", match[0], value)


def _number(text: str, exponent: str | None) -> Token:
    digits = text.replace(",", "").replace(" ", "")
    if len(digits) > MAX_DIGITS or (exponent and abs(int(exponent[1:9])) > MAX_DIGITS):
        raise TooLarge(f"a number of more than {MAX_DIGITS} digits")
    value = Fraction(digits.rstrip(".") if digits.endswith(".") else digits)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    return Token("number", text + (exponent or ""), value, "." in text or bool(exponent))


def _command(text: str) -> Token:
    name = text[1:]
    if name in FUNCTIONS:
        return Token("function", name)
    if name in GREEK:
        return Token("name", name)
    return Token("command", name)


def _word(text: str) -> list[Token]:
    """A known word is one token; other letters are a product of symbols."""
    if text in FUNCTIONS:
        return [Token("function", text)]
    if text in ("pi", "Pi"):
        return [Token("π", text)]
    if text in ("oo", "inf", "infinity", "Infinity"):
        return [Token("∞", text)]
    if text in GREEK:
        return [Token("name", text)]
    if len(text) > 3:
        for name in sorted(FUNCTIONS, key=len, reverse=True):
            if len(name) > 2 and text.endswith(name):
                return [*_word(text[: -len(name)]), Token("function", name)]
        raise Unreadable(f"{text!r} is a word")
    return [Token("name", letter) for letter in text]
