"""Decoding in static batches of equal lengths, against transformers and against the machine's floor.

python benchmarks/decode.py [--sizes 1M,5M,25M,135M] [--batches 1,8,32,128] [--threads 1] [--tokens 64]
    [--repeats 5] [--against transformers,greedy,vllm,llama.cpp] [--clock wall] [--breakdown]

All sides hold the same float32 weights and threads, sample at temperature 1 from the full vocabulary and
make the same number of tokens after prompts of 16; ours with every record on. Runs of all sides interleave in
one process (vLLM and llama.cpp in one of their own, which sleeps meanwhile); medians are compared. The floor
is the step's matrix products alone (`_floor.py`), timed between the runs. llama.cpp runs SmolLM2 only, with
weights of 4 bits, so its ratio compares users' choices, not engines.

Exit status 0 also where a target is missed; the row then says "below target".
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from _arguments import names, numbers
from _breakdown import print_breakdown
from _competitors import Side, Timing, Workload, clock_name, equal_lengths, interleave, use_clock
from _floor import Floor
from _models import SHAPES, BenchModel, build, smollm2_gguf
from _report import Figure, print_report

OPPONENTS = ("transformers", "greedy", "vllm", "llama.cpp")
WARM_TOKENS = 4
MIN_SHARE, MIN_SHARE_BATCHES = 0.65, (32, 128)
SIZE_TO_TARGETS = {  # size -> batch -> tokens/s over those of transformers
    "1M": {1: 5.0, 8: 5.0, 32: 3.0, 128: 2.8},
    "5M": {1: 2.0, 8: 1.8, 32: 1.5, 128: 1.5},
    "25M": {1: 1.3, 8: 1.3, 32: 1.2, 128: 1.2},
    "135M": {1: 1.0, 8: 1.0, 32: 1.0, 128: 1.0},
}


@dataclass(slots=True)
class Row:
    """What one batch of one size gave.

    Args:
        size, batch: what was measured.
        tokens_per_s: by side; the whole call, prompts included.
        step_s: a step of ours, in the second half of the tokens.
        floor_s: the same step's matrix products alone.
        floor_name: the layout that was fastest there.
    """

    size: str
    batch: int
    tokens_per_s: dict[str, float]
    step_s: float
    floor_s: float
    floor_name: str
    ratios: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        ours = self.tokens_per_s["rollwright"]
        self.ratios = {k: ours / v for k, v in self.tokens_per_s.items() if k != "rollwright"}

    @property
    def target(self) -> float | None:
        return SIZE_TO_TARGETS[self.size].get(self.batch)

    @property
    def share_of_floor(self) -> float:
        return self.floor_s / self.step_s

    @property
    def misses(self) -> list[str]:
        """Return the targets that were missed, in words."""
        found = []
        ratio = self.ratios.get("transformers")
        if ratio is not None and self.target is not None and ratio < self.target:
            found.append("ratio below target")
        if self.batch in MIN_SHARE_BATCHES and self.share_of_floor < MIN_SHARE:
            found.append(f"share of floor below target {MIN_SHARE}")
        return found

    def figures(self) -> dict[str, Figure]:
        at = f"{self.size}_b{self.batch}"
        return {
            **{f"{at}_{_key(side)}_per_s": rate for side, rate in self.tokens_per_s.items()},
            **{f"ratio_{at}_{_key(side)}": ratio for side, ratio in self.ratios.items()},
            f"{at}_step_s": self.step_s,
            f"{at}_floor_s": self.floor_s,
            f"{at}_share_of_floor": self.share_of_floor,
        }


def _key(side: str) -> str:
    return side.replace(" ", "_").replace(".", "_")


def min_share(rows: Sequence[Row]) -> float | None:
    """Return the smallest share of the floor at the batches that have a target, or None without any."""
    shares = [row.share_of_floor for row in rows if row.batch in MIN_SHARE_BATCHES]
    return min(shares, default=None)


def measure(model: BenchModel, batch: int, sides: Sequence[Side], arguments: argparse.Namespace) -> Row:
    """Let every side make the batch in turn and time the floor in between."""
    words = model.cfg.vocab_size
    workload = equal_lengths(batch, arguments.tokens, words)
    for side in sides:
        side.run(equal_lengths(batch, WARM_TOKENS, words))
    floor = Floor(model.cfg, batch)
    timings = interleave(sides, workload, arguments.repeats, floor.measure)
    floor_name, floor_s = floor.best()
    step_s = timings["rollwright"].step_s
    assert step_s is not None
    rates = {name: _rate(workload, timing) for name, timing in timings.items()}
    return Row(model.size, batch, rates, step_s, floor_s, floor_name)


def _rate(workload: Workload, timing: Timing) -> float:
    return workload.num_tokens / timing.seconds


def measure_size(model: BenchModel, arguments: argparse.Namespace) -> list[Row]:
    """Measure every batch of one model and print a row for each."""
    from _competitors.hf import Static, load
    from _competitors.ours import Ours
    from _competitors.piped import llama_cpp, site_packages, started, vllm

    against, threads = arguments.against, arguments.threads
    sides: list[Side] = [Ours(model.decoder, threads, max(arguments.batches))]
    if "transformers" in against or "greedy" in against:
        theirs = load(model.folder)
        sides += [Static(theirs)] if "transformers" in against else []
        sides += [Static(theirs, do_sample=False)] if "greedy" in against else []
    if "vllm" in against:
        most = max(arguments.batches)
        sides += started("vllm", lambda: vllm(model, arguments.vllm_venv, threads, most))
    file = smollm2_gguf(*site_packages(arguments.llama_venv)) if model.size == "135M" else None
    rows = []
    for batch in arguments.batches:
        extra: list[Side] = []
        if "llama.cpp" in against and file is not None:
            new = partial(llama_cpp, file, arguments.llama_venv, threads, batch)
            extra = started("llama.cpp", new)
        rows.append(measure(model, batch, sides + extra, arguments))
        print_row(rows[-1])
        for side in extra:
            side.close()
    for side in sides:
        side.close()
    return rows


HEAD = (
    f"{'size':>5} {'batch':>5} {'ours tok/s':>11} {'theirs':>9} {'greedy':>9} {'ratio':>6} {'target':>6} "
    f"{'step ms':>8} {'floor ms':>8} {'share':>6}  floor by"
)


def print_row(row: Row) -> None:
    """Print one line of the table, and one for each further opponent."""
    rates, ratio, target = row.tokens_per_s, row.ratios.get("transformers"), row.target
    print(
        f"{row.size:>5} {row.batch:>5} {rates['rollwright']:>11,.0f} {_cell(rates.get('transformers')):>9} "
        f"{_cell(rates.get('transformers greedy')):>9} {_cell(ratio, 2):>6} {_cell(target, 1):>6} "
        f"{row.step_s * 1e3:>8.3f} {row.floor_s * 1e3:>8.3f} {row.share_of_floor:>6.2f}  {row.floor_name}"
        + "".join(f"; {miss}" for miss in row.misses),
        flush=True,
    )
    for side in ("vllm", "llama.cpp"):
        if side in rates:
            print(
                f"{'':>11} {side} {rates[side]:,.0f} tok/s, ours over it {row.ratios[side]:.2f}", flush=True
            )


def _cell(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: an unknown size or opponent, or numbers that cannot be measured.
    """
    from _competitors.piped import CACHE

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=names(SHAPES), default=["1M", "5M", "25M"])
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32, 128])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each sequence, even")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", type=names(OPPONENTS), default=["transformers", "greedy"])
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--vllm-venv", type=Path, default=CACHE / "vllm")
    parser.add_argument("--llama-venv", type=Path, default=CACHE / "llama")
    parser.add_argument("--breakdown", action="store_true", help="only: what of a step is not the model")
    arguments = parser.parse_args(words)
    if arguments.tokens < 2 or arguments.tokens % 2 or arguments.repeats < 1:
        parser.error("--tokens must be even and at least 2, --repeats at least 1")
    if arguments.clock == "cpu" and arguments.threads != 1:
        parser.error("--clock cpu needs --threads 1: processor time of two threads is no duration")
    return arguments


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    use_clock(arguments.clock)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        if arguments.breakdown:
            print_breakdown(Path(folder), arguments)
            return
        for number, size in enumerate(arguments.sizes):
            model = build(size, Path(folder))
            gc.freeze()
            print(f"{size}: {model.note}", *([HEAD] if number == 0 else []), sep="\n", flush=True)
            rows += measure_size(model, arguments)
    figures: dict[str, Figure] = {"threads": arguments.threads, "clock": clock_name()}
    for row in rows:
        figures |= row.figures()
    print_report("decode", figures, ("torch", "transformers"))
    share = min_share(rows)
    print(f"min_share_of_floor_b32_128 = {'none' if share is None else format(share, '.2f')}")


if __name__ == "__main__":
    main()
