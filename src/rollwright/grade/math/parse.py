"""Tokens to an expression, by precedence climbing; depth is bounded."""

from __future__ import annotations

from fractions import Fraction

from rollwright.grade.math.expression import Expr, TooLarge, Unreadable, number
from rollwright.grade.math.tokens import Token, tokens

MAX_DEPTH = 60
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|", "⟦": "⟧"}
_END = Token("end", "")
_COMMANDS = {"frac", "binom", "dbinom", "tbinom", "lfloor", "lceil"}
_ALIAS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}


def parse(text: str) -> Expr:
    """Return the expression of a clean text.

    Raises:
        Unreadable: it is no expression that we know.
        TooLarge: it is nested too deeply, or too long.
    """
    return _Parser(tokens(text)).whole()


class _Parser:
    def __init__(self, given: list[Token]) -> None:
        self._tokens, self._at, self._depth = given, 0, 0
        self._bars = 0  # inside |...|, a bar closes

    def whole(self) -> Expr:
        expr = self._sum()
        if self._peek().kind != "end":
            raise Unreadable(f"unexpected {self._peek().text!r}")
        return expr

    def _peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self, kind: str = "") -> Token:
        token = self._peek()
        if kind and token.kind != kind:
            raise Unreadable(f"expected {kind!r}, found {token.text!r}")
        self._at += 1
        return token

    def _sum(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooLarge(f"nested more than {MAX_DEPTH} deep")
        terms = [self._signed()]
        while (kind := self._peek().kind) in ("+", "-", "±", "∓"):
            self._take()
            right = self._signed()
            if kind in "±∓":
                name = "plusminus" if kind == "±" else "minusplus"
                terms = [Expr(name, (_added(terms), right))]
            else:
                terms.append(right if kind == "+" else Expr("neg", (right,)))
        self._depth -= 1
        return _added(terms)

    def _signed(self) -> Expr:
        kind = self._peek().kind
        if kind in ("+", "-", "±", "∓"):
            self._take()
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise TooLarge(f"nested more than {MAX_DEPTH} deep")
            inner = self._signed()
            self._depth -= 1
            return (
                inner
                if kind == "+"
                else Expr({"-": "neg", "±": "plusminus", "∓": "minusplus"}[kind], (inner,))
            )
        return self._product()

    def _product(self) -> Expr:
        left = self._juxtaposed()
        while (kind := self._peek().kind) in ("*", "/"):
            self._take()
            right = self._signed_factor()
            left = Expr("mul" if kind == "*" else "div", (left, right))
            while self._starts_factor():
                left = Expr("mul", (left, self._power()))
        return left

    def _signed_factor(self) -> Expr:
        if self._peek().kind in ("+", "-"):
            sign = self._take().kind
            inner = self._power()
            return inner if sign == "+" else Expr("neg", (inner,))
        return self._power()

    def _juxtaposed(self) -> Expr:
        factors = [self._power()]
        while self._starts_factor():
            factors.append(self._power())
        return factors[0] if len(factors) == 1 else Expr("mul", tuple(factors))

    def _starts_factor(self) -> bool:
        token = self._peek()
        if token.kind == "|":
            return not self._bars
        if token.kind == "command":
            return token.text in _COMMANDS
        return token.kind in ("number", "name", "function", "(", "[", "{", "⟦", "π", "∞")

    def _power(self) -> Expr:
        base = self._postfixed(self._atom())
        if self._peek().kind == "^":
            self._take()
            base = self._postfixed(Expr("pow", (base, self._exponent())))
        return base

    def _exponent(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooLarge(f"nested more than {MAX_DEPTH} deep")
        if self._peek().kind in ("+", "-"):
            sign = self._take().kind
            inner = self._exponent()
            self._depth -= 1
            return Expr("neg", (inner,)) if sign == "-" else inner
        expr = self._power()
        self._depth -= 1
        return expr

    def _postfixed(self, expr: Expr) -> Expr:
        while True:
            kind = self._peek().kind
            if kind == "!":
                expr = Expr("factorial", (expr,))
            elif kind == "%":
                expr = Expr("div", (expr, number(100)))
            elif kind == "°":
                expr = Expr("mul", (expr, Expr("div", (Expr("constant", name="pi"), number(180)))))
            else:
                return expr
            self._take()

    def _atom(self) -> Expr:
        token = self._take()
        if token.kind == "number":
            return number(token.value, token.is_decimal)
        if token.kind == "name":
            return self._symbol(token.text)
        if token.kind in ("π", "∞"):
            return Expr("constant", name="pi" if token.kind == "π" else "oo")
        if token.kind in _CLOSING:
            return self._bracketed(token.kind)
        if token.kind == "function":
            return self._function(token.text)
        if token.kind == "command":
            return self._command(token.text)
        raise Unreadable(f"unexpected {token.text!r}")

    def _bracketed(self, kind: str) -> Expr:
        outer, self._bars = self._bars, int(kind == "|")
        inner = self._sum()
        self._take(_CLOSING[kind])
        self._bars = outer
        return Expr("abs", (inner,)) if kind in "|⟦" else inner

    def _symbol(self, name: str) -> Expr:
        if self._peek().kind == "_":
            self._take()
            name += "_" + self._subscript()
        while self._peek().kind == "'":
            self._take()
            name += "'"
        if name in ("e", "i"):
            return Expr("constant", name=name)
        return Expr("symbol", name=name)

    def _subscript(self) -> str:
        if self._peek().kind != "{":
            return self._take().text
        self._take()
        parts = []
        while self._peek().kind not in ("}", "end"):
            parts.append(self._take().text)
        self._take("}")
        return "".join(parts)

    def _function(self, name: str) -> Expr:
        if name == "sqrt":
            return self._root()
        base = None
        if name == "log" and self._peek().kind == "_":
            self._take()
            base = self._group()
        power = None
        if self._peek().kind == "^":
            self._take()
            power = self._exponent()
        args = self._arguments()
        expr = self._applied(_ALIAS.get(name, name), args, base)
        if power is None:
            return expr
        if power == Expr("neg", (number(1),)):
            if name not in ("sin", "cos", "tan"):
                raise Unreadable(f"{name} to the -1 may be an inverse or a reciprocal")
            return self._applied("arc" + name, args, None)
        return Expr("pow", (expr, power))

    def _applied(self, name: str, args: tuple[Expr, ...], base: Expr | None) -> Expr:
        if base is not None:
            return Expr("div", (Expr("ln", args), Expr("ln", (base,))))
        if name == "lg":
            return Expr("div", (Expr("ln", args), Expr("ln", (number(10),))))
        if name == "cbrt":
            return Expr("root", (args[0], number(3)))
        if name == "exp":
            return Expr("pow", (Expr("constant", name="e"), args[0]))
        if len(args) != 1 and name not in ("gcd", "lcm", "max", "min"):
            raise Unreadable(f"{name} of {len(args)} values")
        return Expr(name, args)

    def _arguments(self) -> tuple[Expr, ...]:
        """Return what stands in brackets, or else the product that follows: sin 2x is sin(2x)."""
        kind = self._peek().kind
        if kind in ("(", "{", "["):
            self._take()
            outer, self._bars = self._bars, 0
            args = [self._sum()]
            while self._peek().kind == ",":
                self._take()
                args.append(self._sum())
            self._take(_CLOSING[kind])
            self._bars = outer
            return tuple(args)
        factors = [self._power()]
        while self._starts_factor() and self._peek().kind not in ("function", "(", "["):
            factors.append(self._power())
        return (factors[0] if len(factors) == 1 else Expr("mul", tuple(factors)),)

    def _root(self) -> Expr:
        index = None
        if self._peek().kind == "[":
            self._take()
            index = self._sum()
            self._take("]")
        inner = self._group(is_tex=False)
        return Expr("sqrt", (inner,)) if index in (None, number(2)) else Expr("root", (inner, index))

    def _group(self, is_tex: bool = True) -> Expr:
        """Return a command's argument: a group, or one digit or symbol as TeX takes it."""
        token = self._peek()
        if token.kind in ("{", "("):
            self._take()
            outer, self._bars = self._bars, 0
            expr = self._sum()
            self._take(_CLOSING[token.kind])
            self._bars = outer
            return expr
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1 and is_tex:
            rest = token.text[1:]
            self._tokens[self._at] = Token("number", rest, Fraction(int(rest)))
            return number(int(token.text[0]))
        return self._atom()

    def _command(self, name: str) -> Expr:
        if name in ("frac", "binom", "dbinom", "tbinom"):
            top, bottom = self._group(), self._group()
            return Expr("div" if name == "frac" else "binomial", (top, bottom))
        if name in ("lfloor", "lceil"):
            inner = self._sum()
            closing = self._take("command").text
            if closing != name.replace("l", "r", 1):
                raise Unreadable(f"\\{name} closed by \\{closing}")
            return Expr("floor" if name == "lfloor" else "ceil", (inner,))
        raise Unreadable(f"\\{name} is not known")


def _added(terms: list[Expr]) -> Expr:
    return terms[0] if len(terms) == 1 else Expr("add", tuple(terms))
