"""Short programs graded in the sandbox, bare interpreters for the same programs, and five hostile ones.

python benchmarks/grading_code.py [--num 500] [--slots 4] [--compare 50] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time

from _report import Figure, print_report

from rollwright.grade.code import CallTest, StdinTest, Test, grade_many
from rollwright.grade.sandbox.pool import Sandbox
from rollwright.grade.sandbox.program import Limits, Program

Item = tuple[str, list[Test], bool]  # code, tests, whether it is right

HOSTILE = {
    "fork_bomb": ("import os\nwhile True:\n    os.fork()", "processes"),
    "memory_hog": ("x = []\nwhile True:\n    x.append(bytearray(10_000_000))", "memory"),
    "endless_printer": ("while True:\n    print('x' * 1000)", "output"),
    "endless_loop": ("while True:\n    pass", "timeout"),
    "exit_0_before_the_tests": ("import os\nos._exit(0)", "exited"),
}


def make_items(num: int, seed: int) -> list[Item]:
    """Return programs with one test each; a quarter of them are wrong by one."""
    rng, items = random.Random(seed), list[Item]()
    for index in range(num):
        is_right, off = (True, 0) if rng.random() < 0.75 else (False, 1)
        numbers = [rng.randint(-99, 99) for _ in range(rng.randint(3, 30))]
        if index % 2:
            code = (
                "import sys\nnumbers = list(map(int, sys.stdin.read().split()))\n"
                f"best = here = numbers[0]\nfor n in numbers[1:]:\n    here = max(n, here + n)\n"
                f"    best = max(best, here)\nprint(best + {off})\n"
            )
            items.append((code, [StdinTest(" ".join(map(str, numbers)), str(best_sum(numbers)))], is_right))
        else:
            code = (
                "from collections import Counter\ndef solve(numbers):\n"
                "    counts = Counter(n % 10 for n in numbers)\n"
                f"    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[{off}:]"
            )
            items.append((code, [CallTest("solve", (numbers,), digits(numbers))], is_right))
    return items


def best_sum(numbers: list[int]) -> int:
    """Return the largest sum of neighbours, by trying all."""
    return max(sum(numbers[i:j]) for i in range(len(numbers)) for j in range(i + 1, len(numbers) + 1))


def digits(numbers: list[int]) -> list[tuple[int, int]]:
    """Return (last digit, how often) by falling frequency, counted one by one."""
    last = [number % 10 for number in numbers]
    return sorted(((d, last.count(d)) for d in set(last)), key=lambda pair: (-pair[1], pair[0]))


def bare(items: list[Item]) -> float:
    """Return the seconds that bare interpreters take for the programs, without any protection."""
    start = time.perf_counter()
    for code, [test], _ in items:
        stdin = test.stdin if isinstance(test, StdinTest) else ""
        subprocess.run([sys.executable, "-I", "-c", code], input=stdin, text=True, capture_output=True)
    return time.perf_counter() - start


def hostile(sandbox: Sandbox) -> dict[str, Figure]:
    """Run each hostile program and a plain one after it; say how each ended, and after how long."""
    figures: dict[str, Figure] = {}
    for name, (code, expected) in HOSTILE.items():
        start = time.perf_counter()
        outcome = sandbox.run(Program(code), Limits(timeout_s=2.0 if expected == "timeout" else 20.0))
        figures[f"{name}_s"] = time.perf_counter() - start
        figures[name] = str(outcome.ending)
        figures[f"{name}_is_as_expected"] = outcome.ending == expected
        figures[f"{name}_next_runs"] = sandbox.run(Program("print(1)")).stdout == "1\n"
    return figures


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--num", type=int, default=500)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--compare", type=int, default=50, help="programs that bare interpreters run too")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    items = make_items(args.num, args.seed)
    responses = [(f"Here it is.\n```python\n{code}\n```\n", tests) for code, tests, _ in items]
    with Sandbox(args.slots) as sandbox:
        start = time.perf_counter()
        sandbox.warm()
        warm_s, start = time.perf_counter() - start, time.perf_counter()
        verdicts = grade_many(responses, sandbox=sandbox)
        seconds = time.perf_counter() - start
        is_on = [name for name, one in sandbox.protections().items() if one.is_on]
        hostile_figures = hostile(sandbox)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    bare_s = bare(items[: args.compare]) / max(1, args.compare)
    truth = [is_right for _, _, is_right in items]
    figures: dict[str, Figure] = {
        "code_num_programs": len(items),
        "slots": args.slots,
        "protections_on": ", ".join(is_on),
        "warm_up_s": warm_s,
        "code_s": seconds,
        "code_programs_per_s": len(items) / seconds,
        "code_cpu_s_per_program": (used.ru_utime + used.ru_stime) / len(items),
        "code_wrong_verdicts": sum((v.score == 1.0) != r for v, r in zip(verdicts, truth, strict=True)),
        "code_not_scored": sum(verdict.score is None for verdict in verdicts),
        "bare_interpreter_s_per_program": bare_s,
        **hostile_figures,
    }
    print_report("grading_code", figures)


if __name__ == "__main__":
    main()
