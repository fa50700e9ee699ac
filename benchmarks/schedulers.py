"""Schedulers on the virtual clock: throughput over the synchronous baseline, beside their papers' figures.

python benchmarks/schedulers.py [--only NAME ...] [--out FOLDER] [--common | --papers]

Two tables. The first one puts all schedulers on one setting: 64 workers (H800, Qwen3-8B), GRPO batches of
128 x 8, log-normal lengths with sigma 1 (median 2,000, limit 16,384). The second one gives each paper the
setting that its abstract, or what is said of its experiments elsewhere, names; what neither names is assumed
and printed. Nothing was fitted to the papers' figures: a miss is printed as a miss.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

from _report import Figure, print_report

from rollwright.drive.place.cache_aware import CacheAware
from rollwright.drive.place.round_robin import RoundRobin
from rollwright.drive.virtual.accelerators import training
from rollwright.drive.virtual.distributions import Constant, LogNormal
from rollwright.drive.virtual.engine_model import Broadcast, EngineModel
from rollwright.drive.virtual.model import Hard, LearnerModel, Model, ServiceModel, TaskModel
from rollwright.lab.simulate import simulate
from rollwright.lab.simulation.capacity import Demand, num_needed
from rollwright.lab.simulation.compare import Row, compare
from rollwright.lab.simulation.picture import draw_rows
from rollwright.lab.simulation.setup import Scheduler, Setup, standard
from rollwright.methods.grpo import grpo
from rollwright.runner import Settings
from rollwright.stages.generate.lockstep import Lockstep

NOTHING = ServiceModel(Constant(0.0), Constant(0.0), Constant(0.0))


def chat(median: float, prompt: float = 256, alike: float = 0.0) -> TaskModel:
    """Return single turns with log-normal lengths, sigma 1."""
    return TaskModel(Constant(prompt), LogNormal(median, 1.0), alike=alike)


def agent(median: float, end_share: float = 0.12, prompt: float = 1500, say: float = 400) -> TaskModel:
    """Return dialogues with tools, of which a tenth is hard: more turns, more errors."""
    hard = Hard(0.1, end_share / 4, 0.7, 0.1)
    return TaskModel(Constant(prompt), LogNormal(median, 1.0), Constant(say), end_share=end_share, hard=hard)


WAITS = ServiceModel(Constant(0.0), LogNormal(3.0, 1.0), Constant(0.5))  # tools: median 3 s, sigma 1


@dataclass(frozen=True, slots=True)
class Case:
    """A paper's figure and the setting in which it is looked for.

    Args:
        name: of the scheduler.
        claim: the paper's words, in short.
        low, high: the figure as a ratio over the baseline.
        measure: field of `rollwright.lab.simulation.compare.Row`.
        setup: the setting.
        schedulers: baselines, of which the best counts, and last the one that is measured.
        assumed: what the paper does not say.
    """

    name: str
    claim: str
    low: float
    high: float
    measure: str
    setup: Setup
    schedulers: tuple[Scheduler, ...]
    assumed: str


def known(setup: Setup, *names: str) -> tuple[Scheduler, ...]:
    return tuple(standard(setup)[name] for name in names)


def cases() -> list[Case]:
    """Return every paper's case."""
    return [*_partial(), *_asynchronous(), *_agents(), *_mixed(), *_placed()]


def _partial() -> list[Case]:
    found = []
    april = Setup(8, "H100", "Qwen3-4B", num_tasks=128, tasks=chat(2000), max_tokens=16384)
    assumed = "8 x H100, Qwen3-4B, 128 x 8, median 2,000, limit 16,384, twice as many groups as needed"
    claim = "+22.5% on average to +44% rollout throughput"
    found.append(
        Case("april", claim, 1.225, 1.44, "rollout_speedup", april, known(april, "sync", "april"), assumed)
    )
    copris = Setup(8, "H800", "Qwen2.5-7B", num_tasks=64, tasks=chat(4000), max_tokens=16384)
    assumed = "8 x H800, Qwen2.5-7B, 64 x 8, median 4,000, limit 16,384, 64 in flight a worker"
    found.append(
        Case(
            "copris",
            "1.94x training",
            1.94,
            1.94,
            "speedup",
            copris,
            known(copris, "sync", "copris"),
            assumed,
        )
    )
    seer = Setup(
        32, "H800", "Moonlight-16B-A3B", num_tasks=400, tasks=chat(15000, alike=0.9), max_tokens=65536,
        num_steps=3, num_warm=1,
    )  # fmt: skip
    assumed = (
        "32 x H800, 16B-A3B, 400 x 8, limit 65,536 as reported; median 15,000, groups alike (0.9),"
        " 3 drafts at 0.6 below 32 live"
    )
    both = known(seer, "sync", "seer")
    claim = "+74% to +97% rollout throughput"
    found.append(Case("seer", claim, 1.74, 1.97, "rollout_speedup", seer, both, assumed))
    claim = "tail latency -75% to -93% (ratio to the baseline's)"
    found.append(Case("seer_tail", claim, 0.07, 0.25, "tail_ratio", seer, both, assumed))
    return found


def _asynchronous() -> list[Case]:
    areal = Setup(
        128, "H800", "Qwen2.5-7B", num_tasks=512, each=16, tasks=chat(6000), max_tokens=30000,
        num_steps=9, num_warm=4,
    )  # fmt: skip
    flash = Setup(64, "H800", "Qwen3-8B", num_tasks=256, each=16, tasks=chat(4000), max_tokens=30000)
    tools = Setup(64, "H800", "Qwen3-8B", tasks=agent(300), max_tokens=4096, max_turns=20, services=WAITS)
    return [
        Case("areal", "2.57x training", 2.57, 2.57, "speedup", areal, known(areal, "sync", "areal"),
             "128 x H800, Qwen2.5-7B, 512 x 16, median 6,000, limit 30,000, a quarter of the workers train"),
        Case("roll_flash", "2.24x on verifiable tasks", 2.24, 2.24, "speedup", flash,
             known(flash, "sync", "roll_flash"),
             "64 x H800, Qwen3-8B, 256 x 16, median 4,000, limit 30,000, a quarter train, 1.25 x groups"),
        Case("roll_flash_agents", "2.72x on agentic tasks", 2.72, 2.72, "speedup", tools,
             known(tools, "sync", "roll_flash"),
             "64 x H800, Qwen3-8B, 128 x 8 dialogues of up to 20 turns, tools log-normal (3 s, sigma 1)"),
    ]  # fmt: skip


def _agents() -> list[Case]:
    libra = Setup(
        48, "A800", "Qwen3-8B", tasks=dataclasses.replace(agent(400, say=200), growth=0.05), max_tokens=8192,
        max_turns=30, services=WAITS, num_steps=14,
    )  # fmt: skip
    web = Setup(
        16, "H100", "Qwen2.5-7B", num_tasks=1, each=256, tasks=agent(200, 0.1, 2500, 1500), max_tokens=1024,
        max_turns=20, services=ServiceModel(Constant(0), LogNormal(5.0, 1.0), Constant(1.0)), num_steps=4,
        num_warm=1,
    )  # fmt: skip
    sync = Scheduler("lockstep", generate=Lockstep())
    overlap = Scheduler("async", "areal", num_training=4, num_ahead=1)
    pool = (
        "16 x H100, Qwen2.5-7B, 256 browser tasks of up to 20 pages, pages log-normal (median 5 s, sigma 1)"
    )
    return [
        Case("libra", "up to 3.0x throughput", 3.0, 3.0, "speedup", libra, known(libra, "sync", "libra"),
             "48 x A800 as reported; Qwen3-8B, 128 x 8 dialogues, a tenth hard, lengths +5% a step"),
        Case("webgym", "4-5x rollout speed over naive rollouts", 4.0, 5.0, "rollout_speedup", web,
             (sync, Scheduler("sync")), pool + "; naive: a barrier after each page"),
        Case("asyncwebrl", "up to 2.9x over the fastest synchronous pipeline", 2.9, 2.9, "speedup", web,
             (Scheduler("sync"), overlap), pool),
        Case("dart", "1.9x training throughput", 1.9, 1.9, "speedup", web, (sync, overlap), pool),
    ]  # fmt: skip


def _mixed() -> list[Case]:
    kinds = ("rlvr", "rlhf", "agent")
    setup = Setup(
        16, "H800", "Qwen2.5-32B", num_devices=2, num_tasks=96, tasks=chat(3000), max_tokens=8192,
        max_turns=16, num_steps=6, num_warm=2,
        services=ServiceModel(Constant(0), LogNormal(2.0, 1.0), Constant(0)),
        switch_seconds=0.0, learner={"token_seconds": 0.0}, kinds=kinds,
        mix=(("rlvr", dataclasses.replace(chat(3000), end_share=1.0, observation=Constant(1))),
             ("rlhf", dataclasses.replace(chat(500), end_share=1.0, observation=Constant(1))),
             ("agent", agent(300, 0.1, 2500, 800))),
    )  # fmt: skip
    routers = [
        Scheduler(f"router {balance:g}", num_ahead=2, placement=CacheAware(balance, False))
        for balance in (1024.0, 8192.0, 65536.0)
    ]
    misa = dataclasses.replace(standard(setup)["misa_t"], num_ahead=2)
    assumed = (
        "16 pairs of H800, Qwen2.5-32B, three classes in equal shares, three steps in flight, rollouts alone;"
        " the router's balance is the best of three"
    )
    claim = "+43.6% to +53.3% rollout throughput over a tuned cache-aware router"
    return [Case("misa_t", claim, 1.436, 1.533, "speedup", setup, (*routers, misa), assumed)]


def _placed() -> list[Case]:
    tasks = agent(300, 0.08, 3000, 1500)
    low = Setup(
        32, "H800", "Qwen3-8B", num_tasks=16, tasks=tasks, max_tokens=2048, max_turns=24, services=WAITS
    )
    low = dataclasses.replace(low, num_steps=6, num_warm=2)
    high = dataclasses.replace(low, num_workers=8, num_tasks=128)
    turn = Scheduler("round robin", placement=RoundRobin())
    war = "H800, Qwen3-8B, dialogues of up to 24 turns with 1,500 tokens from each tool"
    video = Setup(
        32, "H800", "Qwen2.5-32B", num_devices=1, num_tasks=64, tasks=chat(400, 8000), max_tokens=2048
    )
    reference = training("H800", "Qwen2.5-32B").token_seconds * 1.25
    video = dataclasses.replace(video, learner={"token_seconds": reference}, num_steps=6, num_warm=2)
    rollplex = known(video, "sync", "rollplex")
    return [
        Case("war_low", "1.4x rollout throughput at low load", 1.4, 1.4, "rollout_speedup", low,
             (turn, *known(low, "war")), "32 x " + war + ", 4 a worker; 3 drafts at 0.6 below 32 live"),
        Case("war_high", "up to 1.6x at high load", 1.6, 1.6, "rollout_speedup", high,
             (turn, Scheduler("war", placement=CacheAware())), "8 x " + war + ", 128 a worker"),
        Case("rollplex", "1.23x to 1.30x over serial colocation", 1.23, 1.30, "speedup", video, rollplex,
             "32 x H800 as reported; 32B, 64 x 8, prompts of 8,000 tokens, answers of median 400, a reference"
             " pass, half of the rollouts' time free for arithmetic"),
    ]  # fmt: skip


# ---------------------------------------------------------------- the two tables


def run_common(out: Path | None) -> dict[str, Figure]:
    """Print all schedulers on the issue's setting."""
    setup = Setup()
    names = ("sync", "april", "copris", "seer", "areal", "roll_flash")
    print("64 x H800, Qwen3-8B, GRPO 128 x 8, log-normal lengths (median 2,000, sigma 1, limit 16,384)\n")
    print(f"{'scheduler':<12}{'tokens/s':>10}{'x':>7}{'x rollouts':>12}{'tail':>7}{'age':>11}{'bias':>7}")

    def show(row: Row) -> None:
        age = f"{row.age_mean:.1f}/{row.age_max}"
        bias = row.report.length_distance or 0.0
        print(
            f"{row.name:<12}{row.tokens_per_second:>10,.0f}{row.speedup:>7.2f}{row.rollout_speedup:>12.2f}"
            f"{row.tail_ratio:>7.2f}{age:>11}{bias:>7.3f}",
            flush=True,
        )

    rows = compare(setup, known(setup, *names), show)
    if out is not None:
        draw_rows(rows, out / "schedulers.png", "64 × H800, Qwen3-8B, 128 × 8 rollouts, sigma 1")
    return {f"ratio_common_{row.name}": row.speedup for row in rows}


def run_cases(only: list[str]) -> dict[str, Figure]:
    """Print every paper's figure beside what its setting gives here."""
    figures: dict[str, Figure] = {}
    print(f"\n{'scheduler':<19}{'here':>7}{'paper':>14}   verdict")
    for case in cases():
        if only and case.name not in only:
            continue
        rows = compare(case.setup, case.schedulers)
        *baselines, last = rows
        best = max(baselines, key=lambda row: getattr(row, case.measure))
        found = getattr(last, case.measure) / getattr(best, case.measure)
        paper = f"{case.low:g}" if case.low == case.high else f"{case.low:g} to {case.high:g}"
        verdict = "below" if found < case.low else "above" if found > case.high else "within"
        print(f"{case.name:<19}{found:>7.2f}{paper:>14}   {verdict}: {case.claim}")
        print(f"{'':<19}{case.assumed}", flush=True)
        figures[f"ratio_{case.name}"] = found
    return figures


def run_capacity() -> dict[str, Figure]:
    """Print ECHO-2's rule and the knee of the simulated learner."""
    cast = Broadcast(6.0, 0.2, "chain", 16)
    engine = EngineModel(
        1, 8, step_seconds=0.02, sequence_seconds=0.001, prefill_seconds=1e-5, broadcast=cast
    )
    tasks, train, ahead = TaskModel(Constant(32), LogNormal(200, 1.0)), 8.0, 10
    # Σ of min(x, 2000) over the inverse of the distribution: its mean under the limit.
    mean = sum(min(tasks.response.at((k + 0.5) / 20000), 2000) for k in range(20000)) / 20000
    predicted = num_needed(engine, Demand(128, train, mean, staleness=12))

    def busy(num: int) -> float:
        model = Model(dataclasses.replace(engine, num_workers=num), tasks, NOTHING, LearnerModel(train, 0.0))
        settings = Settings(
            seed=0, tasks=tuple(f"t/{i}" for i in range(256)), num_steps=40, num_tasks=16, context=4000,
            max_tokens=2000, chunk=0, num_ahead=ahead, rollout_deadline=1e9,
        )  # fmt: skip
        steps = simulate(grpo(8), settings, model).steps[14 : 40 - ahead]
        learning = sum(step.learn_seconds for step in steps)
        return learning / (learning + sum(step.rollouts_seconds for step in steps))

    knee = next(num for num in range(int(0.8 * predicted), 2 * predicted) if busy(num) > 0.99)
    print(f"\necho2: the rule needs {predicted} workers; the learner is always busy from {knee} on")
    return {
        "echo2_predicted": predicted,
        "echo2_knee": knee,
        "is_echo2_within_10": abs(predicted / knee - 1) <= 0.1,
    }


def main() -> None:
    """Print the tables, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of the second table")
    parser.add_argument("--out", type=Path, help="folder for the picture of the first table")
    parser.add_argument("--common", action="store_true", help="the first table alone")
    parser.add_argument("--papers", action="store_true", help="the second table alone")
    given = parser.parse_args()
    wall, cpu = time.perf_counter(), time.process_time()
    figures: dict[str, Figure] = {}
    if not given.papers and not given.only:
        figures |= run_common(given.out)
    if not given.common:
        figures |= run_cases(given.only)
        if not given.only or "echo2" in given.only:
            figures |= run_capacity()
    figures |= {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    print()
    print_report("schedulers", figures)


if __name__ == "__main__":
    main()
