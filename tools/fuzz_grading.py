"""Feed nonsense to the extractor and to equality: no crash, no hang, symmetric, deterministic.

python tools/fuzz_grading.py [--minutes 10] [--seed 0]

Each input that breaks a rule is printed; the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from rollwright.grade.answers import extract
from rollwright.grade.math import MathSettings, Sameness, compare, grade

SLOW_S = 5.0  # of processor time, for one input
_PIECES = """
0 1 2 9 10 1/2 0.5 1,234 1{,}000 x y n e i \\pi + - * / ^ _ ! % = < > \\le \\ge ( ) [ ] { } \\{ \\} | , ; :
\\frac \\frac{1}{2} \\sqrt \\sqrt[3]{2} \\boxed{ \\boxed{7} \\fbox{ \\text{cm} \\text{and} \\pm \\cup \\infty
$ $$ \\( \\) \\sin \\log_2 \\binom{5}{2} \\left( \\right) \\begin{pmatrix} \\end{pmatrix} \\\\ & ° ½ ² − ×
cm m/s dollars <think> </think> **Answer:** #### Final and or 9^{9^{9}} ^{ 1e9 10! ... \\overline{3} 12:00
\\int \\sum
"""
PIECES = _PIECES.split()
MIRROR = {
    Sameness.EQUAL: {Sameness.EQUAL},
    Sameness.DIFFERENT: {Sameness.DIFFERENT},
    Sameness.FIRST_TOO_LARGE: {Sameness.SECOND_TOO_LARGE, Sameness.FIRST_TOO_LARGE},
    Sameness.SECOND_TOO_LARGE: {Sameness.FIRST_TOO_LARGE, Sameness.SECOND_TOO_LARGE},
}


def nonsense(rng: random.Random) -> str:
    """Return up to a dozen pieces, with or without spaces, and sometimes a stray character."""
    parts = [rng.choice(PIECES) for _ in range(rng.randint(1, 12))]
    text = rng.choice(["", "", " ", "\n"]).join(parts)
    if rng.random() < 0.1:
        at = rng.randint(0, len(text))
        text = text[:at] + chr(rng.choice([0, 9, 39, 92, 8242, 65297, 128512, 0xD800])) + text[at:]
    return text


def broken_rule(a: str, b: str, settings: MathSettings) -> str | None:
    """Return which rule two texts break, or None."""
    start = time.process_time()
    found = extract(a)
    if found != extract(a) or (found.answer is None) == (found.status is None):
        return "extraction is not deterministic, or has no status"
    first, second = compare(a, b, settings), compare(b, a, settings)
    if second[0] not in MIRROR[first[0]]:
        return f"not symmetric: {first}, {second}"
    if compare(a, b, settings) != first:
        return "not deterministic"
    verdict = grade(a, b, settings)
    if verdict.score not in (None, 0.0, 1.0):
        return f"score {verdict.score}"
    if (seconds := time.process_time() - start) > SLOW_S:
        return f"slow: {seconds:.1f} s"
    return None


def main() -> int:
    """Run until the time is up; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng, settings = random.Random(args.seed), MathSettings()
    counts: Counter[str] = Counter()
    end = time.monotonic() + 60 * args.minutes
    while time.monotonic() < end:
        a = nonsense(rng)
        b = nonsense(rng) if rng.random() < 0.7 else a.replace(" ", "")
        try:
            rule = broken_rule(a, b, settings)
        except Exception as error:  # whatever it is, it is a finding
            rule = f"{type(error).__name__}: {error}"
        counts["inputs"] += 1
        if rule:
            counts["findings"] += 1
            print(f"{rule}\n  a = {a!r}\n  b = {b!r}", flush=True)
    num, findings = counts["inputs"], counts["findings"]
    print(f"{num:,} inputs, {findings} findings, {args.minutes:g} minutes, seed {args.seed}")
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
