"""128 requests with log-normal output lengths: useful tokens a second, against five ways to serve them.

python benchmarks/ragged.py [--sizes 1M,5M,25M] [--threads 1] [--repeats 3] [--requests 128]
    [--against static,continuous,vllm] [--vllm-venv FOLDER] [--clock wall]

Lengths have sigma 1, median 32 and cap 256, prompts 16 to 32 tokens; both are the same for all sides, which
sample at temperature 1 with the same float32 weights and threads. Ours, transformers' own continuous
batching and vLLM may keep all requests in flight; ``static`` is transformers' `generate` on batches of 32 in
the order of arrival, each running until its longest ends. Ours has every record on; vLLM gives no logprobs
here, which favours it. Repeats interleave; medians are compared. vLLM needs the environment that
`_competitors/make_vllm_env.sh` makes; a side that is not there is left out and said so.

Exit status 0 also where a target is missed; the row then says "below target".
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from _arguments import names
from _competitors import Side, clock_name, interleave, log_normal, use_clock
from _models import SHAPES, BenchModel, build
from _report import Figure, print_report

OPPONENTS = ("static", "continuous", "vllm")
STATIC_BATCH = 32
SIZE_TO_TARGETS = {  # size -> side -> our tokens/s over its
    "1M": {"transformers": 6.0, "transformers continuous": 10.0, "vllm": 2.0},
    "5M": {"transformers": 4.5, "transformers continuous": 10.0, "vllm": 1.3},
    "25M": {"vllm": 1.1},
    "135M": {},
}


def measure_size(model: BenchModel, arguments: argparse.Namespace) -> dict[str, Figure]:
    """Let every side make the workload and print a line for each."""
    workload = log_normal(arguments.requests, model.cfg.vocab_size)
    sides = _sides(model, arguments)
    for side in sides:
        side.run(workload)  # once to warm up, and to compile what a side compiles
    timings = interleave(sides, workload, arguments.repeats)
    rates = {name: workload.num_tokens / timing.seconds for name, timing in timings.items()}
    figures: dict[str, Figure] = {f"{model.size}_useful_tokens": workload.num_tokens}
    for name, rate in rates.items():
        key = f"{model.size}_{name.replace(' ', '_')}"
        figures[f"{key}_per_s"] = rate
        line = f"{model.size:>5} {name:<24} {rate:>10,.0f} tok/s"
        if name != "rollwright":
            ratio = figures[f"ratio_{key}"] = rates["rollwright"] / rate
            line += f"   ours over it {ratio:>6.2f}" + verdict(model.size, name, ratio)
        print(line, flush=True)
    for side in sides:
        side.close()
    return figures


def verdict(size: str, side: str, ratio: float) -> str:
    """Say what the target is, and whether it is missed."""
    target = SIZE_TO_TARGETS[size].get(side)
    if target is None:
        return ""
    return f" (target {target:g})" if ratio >= target else f" (target {target:g}: below target)"


def _sides(model: BenchModel, arguments: argparse.Namespace) -> list[Side]:
    from _competitors.hf import Continuous, Static, load
    from _competitors.ours import Ours
    from _competitors.piped import started, vllm

    num, threads = arguments.requests, arguments.threads
    sides: list[Side] = [Ours(model.decoder, threads, num)]
    if "static" in arguments.against:
        sides.append(Static(load(model.folder), STATIC_BATCH))
    if "continuous" in arguments.against:
        sides += [Continuous(model.folder, num), Continuous(model.folder, num, is_tuned=True)]
    if "vllm" in arguments.against:
        sides += started("vllm", lambda: vllm(model, arguments.vllm_venv, threads, num))
    return sides


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: an unknown size or opponent, or numbers that cannot be measured.
    """
    from _competitors.piped import CACHE

    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--sizes", type=names(SHAPES), default=["1M", "5M", "25M"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--against", type=names(OPPONENTS), default=list(OPPONENTS))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--vllm-venv", type=Path, default=CACHE / "vllm")
    arguments = parser.parse_args(words)
    if arguments.requests < 1 or arguments.repeats < 1:
        parser.error("--requests and --repeats must be at least 1")
    if arguments.clock == "cpu" and arguments.threads != 1:
        parser.error("--clock cpu needs --threads 1: processor time of two threads is no duration")
    return arguments


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    use_clock(arguments.clock)
    figures: dict[str, Figure] = {"threads": arguments.threads, "clock": clock_name()}
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            model = build(size, Path(folder))
            gc.freeze()
            print(f"{size}: {model.note}", flush=True)
            figures |= measure_size(model, arguments)
    print_report("ragged", figures, ("torch", "transformers"))


if __name__ == "__main__":
    main()
