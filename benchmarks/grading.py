"""Math verdicts a second, ours in a warm pool and math-verify's on the same pairs, and where they differ.

python benchmarks/grading.py [--num 10000] [--workers 2] [--compare 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import time
from collections.abc import Callable
from fractions import Fraction

from _report import print_report

from rollwright.grade.math import grade_many
from rollwright.grade.pool import Pool

Pair = tuple[str, str, bool]  # response, gold, whether it is right


def make_pairs(num: int, seed: int) -> list[Pair]:
    """Return pairs whose right verdicts are known from how they are made; a third of them are wrong."""
    rng = random.Random(seed)
    makers: list[Callable[[random.Random, bool], tuple[str, str]]] = [
        _fraction, _mixed, _root, _polynomial, _set, _interval, _equation, _unit, _thousands, _product,
    ]  # fmt: skip
    pairs = []
    for index in range(num):
        is_right = rng.random() < 2 / 3
        answer, gold = makers[index % len(makers)](rng, is_right)
        working = " ".join(f"{rng.randint(1, 99)} + {rng.randint(1, 99)} is more." for _ in range(30))
        pairs.append((f"<think>{working}</think>So the answer is $\\boxed{{{answer}}}$.", gold, is_right))
    return pairs


def _off(rng: random.Random, is_right: bool) -> int:
    return 0 if is_right else rng.randint(1, 3)


def _fraction(rng: random.Random, is_right: bool) -> tuple[str, str]:
    value, scale = Fraction(rng.randint(1, 99), rng.randint(2, 99)), rng.randint(2, 5)
    top = value.numerator * scale + _off(rng, is_right)
    return f"\\frac{{{top}}}{{{value.denominator * scale}}}", f"{value.numerator}/{value.denominator}"


def _mixed(rng: random.Random, is_right: bool) -> tuple[str, str]:
    whole, bottom = rng.randint(1, 20), rng.randint(3, 12)
    top = rng.randint(1, bottom - 1)
    return f"{whole} {top}/{bottom}", f"\\frac{{{whole * bottom + top + _off(rng, is_right)}}}{{{bottom}}}"


def _root(rng: random.Random, is_right: bool) -> tuple[str, str]:
    a, b = rng.randint(2, 9), rng.choice([2, 3, 5, 7])
    return f"\\sqrt{{{a * a * b + _off(rng, is_right)}}}", f"{a}\\sqrt{{{b}}}"


def _polynomial(rng: random.Random, is_right: bool) -> tuple[str, str]:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return f"x^2 + {a + b}x + {a * b + _off(rng, is_right)}", f"(x+{a})(x+{b})"


def _set(rng: random.Random, is_right: bool) -> tuple[str, str]:
    values = rng.sample(range(1, 90), 3)
    shuffled = rng.sample(values, 3) if is_right else rng.sample(values, 2)
    return "\\{" + ", ".join(map(str, shuffled)) + "\\}", ", ".join(map(str, values))


def _interval(rng: random.Random, is_right: bool) -> tuple[str, str]:
    low = rng.randint(-9, 9)
    high = low + rng.randint(1, 9)
    return f"{low} < x \\le {high}", f"({low}, {high}]" if is_right else f"[{low}, {high}]"


def _equation(rng: random.Random, is_right: bool) -> tuple[str, str]:
    a, b, c, k = (rng.randint(2, 9) for _ in range(4))
    return f"{a * k}x + {b * k}y = {c * k + _off(rng, is_right)}", f"{a}x + {b}y = {c}"


def _unit(rng: random.Random, is_right: bool) -> tuple[str, str]:
    value = rng.randint(1, 900)
    return f"{value * 100 if is_right else value} \\text{{ cm}}", f"{value} \\text{{ m}}"


def _thousands(rng: random.Random, is_right: bool) -> tuple[str, str]:
    value = rng.randint(1000, 9_999_999)
    return f"{value + _off(rng, is_right):,}", str(value)


def _product(rng: random.Random, is_right: bool) -> tuple[str, str]:
    a, b = rng.randint(2, 40), rng.randint(2, 12)
    return f"\\frac{{{a}\\pi}}{{{b}}} + e^{{{_off(rng, is_right)}}} - 1", f"\\pi \\cdot {a}/{b}"


def math_verify(pairs: list[Pair]) -> tuple[list[bool], float]:
    """Return math-verify's verdicts in this process and the seconds they took, its imports left out."""
    from math_verify import parse, verify

    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    parse("$1$", parsing_timeout=None)
    start = time.perf_counter()
    verdicts = []
    for response, gold, _ in pairs:
        sides = parse(f"${gold}$", parsing_timeout=None), parse(response, parsing_timeout=None)
        verdicts.append(bool(verify(*sides, timeout_seconds=None)))
    return verdicts, time.perf_counter() - start


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--num", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compare", type=int, default=1_000, help="pairs that math-verify grades too")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    pairs = make_pairs(args.num, args.seed)
    with Pool(args.workers) as pool:
        pool.warm()
        start = time.perf_counter()
        ours = [verdict.score == 1.0 for verdict in grade_many([pair[:2] for pair in pairs], pool=pool)]
        seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    subset = pairs[: args.compare]
    theirs, their_seconds = math_verify(subset)
    truth = [is_right for _, _, is_right in pairs]
    differ = [i for i, verdict in enumerate(theirs) if verdict != ours[i]]
    for i in differ[:12]:
        answer = subset[i][0].partition("boxed")[2]
        print(f"differ: gold {subset[i][1]!r}, answer {answer!r}: ours {ours[i]}, math-verify {theirs[i]}")
    figures = {
        "num_verdicts": len(pairs),
        "workers": args.workers,
        "math_s": seconds,
        "math_verdicts_per_s": len(pairs) / seconds,
        "math_cpu_s_with_start": used.ru_utime + used.ru_stime,  # of the workers; no other load changes it
        "math_wrong_verdicts": sum(a != b for a, b in zip(ours, truth, strict=True)),
        "math_verify_num": len(subset),
        "math_verify_s": their_seconds,
        "math_verify_verdicts_per_s_per_core": len(subset) / their_seconds,
        "math_verify_wrong_verdicts": sum(a != b for a, b in zip(theirs, truth, strict=False)),
        "math_verify_differs": len(differ),
    }
    print_report("grading", figures, ("math-verify", "sympy"))


if __name__ == "__main__":
    main()
