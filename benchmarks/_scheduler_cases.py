"""The settings in which each paper's figure is looked for (benchmarks/schedulers.py)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from rollwright.drive.place.cache_aware import CacheAware
from rollwright.drive.place.round_robin import RoundRobin
from rollwright.drive.virtual.accelerators import training
from rollwright.drive.virtual.distributions import Constant, LogNormal
from rollwright.drive.virtual.model import Hard, ServiceModel, TaskModel
from rollwright.lab.simulation.setup import Scheduler, Setup, standard
from rollwright.stages.generate.lockstep import Lockstep


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
        measure: field of `rollwright.lab.simulation.compare.Row` whose ratio is meant.
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
    april = Setup(4, "H100", "Qwen3-4B", num_devices=2, num_tasks=32, tasks=chat(2000), max_tokens=16384)
    copris = Setup(16, "H800", "Qwen2.5-1.5B", num_tasks=64, tasks=chat(4000), max_tokens=15360)
    seer = Setup(
        32, "H800", "Moonlight-16B-A3B", num_tasks=400, tasks=chat(15000, alike=0.9), max_tokens=65536,
        num_steps=2, num_warm=0,
    )  # fmt: skip
    pool = Scheduler("copris", "copris", {"num_flying": 1024})
    both, assumed = (
        known(seer, "sync", "seer"),
        (
            "as reported: 32 x H800, 16B-A3B, 400 x 8, limit 65,536; assumed: median 15,000, groups alike"
            " (0.9), 3 drafts at 0.6 below 32 live"
        ),
    )
    return [
        Case("april", "+22.5% on average to +44% rollout throughput", 1.225, 1.44, "rollout_rate", april,
             known(april, "sync", "april"),
             "as in its code: 4 engines of 2 devices, Qwen3-4B, 32 x 8, 64 groups in flight, limit 16,384;"
             " assumed: H100, median 2,000"),
        Case("copris", "1.58x to 1.94x training", 1.58, 1.94, "tokens_per_second", copris,
             (Scheduler("sync"), pool),
             "as in its code: 16 devices, 1.5B, 64 x 8, limit 15,360, 1,024 in flight; assumed: H800,"
             " median 4,000"),
        Case("seer", "+74% to +97% rollout throughput", 1.74, 1.97, "rollout_rate", seer, both, assumed),
        Case("seer_tail", "tail latency -75% to -93%", 0.07, 0.25, "tail_seconds", seer, both, "the same"),
    ]  # fmt: skip


def _asynchronous() -> list[Case]:
    areal = Setup(
        16, "H800", "Qwen2.5-7B", num_tasks=64, each=16, tasks=chat(6000), max_tokens=27648, num_steps=8
    )
    flash = Setup(16, "H800", "Qwen3-8B", num_tasks=64, each=16, tasks=chat(4000), max_tokens=30000)
    flash = dataclasses.replace(flash, num_steps=8)
    tools = Setup(16, "H800", "Qwen3-8B", num_tasks=32, tasks=agent(300), max_tokens=4096, max_turns=20,
                  services=WAITS, num_steps=7, num_warm=3)  # fmt: skip
    return [
        Case("areal", "2.57x training", 2.57, 2.57, "tokens_per_second", areal, known(areal, "sync", "areal"),
             "an eighth of 128 x H800 and 512 x 16; assumed: Qwen2.5-7B, median 6,000, limit 27,648,"
             " a quarter of the workers train"),
        Case("roll_flash", "2.24x on verifiable tasks", 2.24, 2.24, "tokens_per_second", flash,
             known(flash, "sync", "roll_flash"),
             "a quarter of 64 devices and 256 x 16; assumed: H800, Qwen3-8B, median 4,000, limit 30,000, a"
             " quarter of the workers train, 1.25 times as many groups"),
        Case("roll_flash_agents", "2.72x on agentic tasks", 2.72, 2.72, "tokens_per_second", tools,
             known(tools, "sync", "roll_flash"),
             "assumed: 16 x H800, Qwen3-8B, 32 x 8 dialogues of up to 20 turns, tools log-normal"
             " (3 s, sigma 1)"),
    ]  # fmt: skip


def _agents() -> list[Case]:
    libra = Setup(
        48, "A800", "Qwen3-8B", num_tasks=64, tasks=dataclasses.replace(agent(400, say=200), growth=0.05),
        max_tokens=8192, max_turns=30, services=WAITS, num_steps=8, num_warm=3,
    )  # fmt: skip
    web = Setup(
        16, "H100", "Qwen2.5-7B", num_tasks=1, each=256, tasks=agent(200, 0.1, 2500, 1500), max_tokens=1024,
        max_turns=20, services=ServiceModel(Constant(0), LogNormal(5.0, 1.0), Constant(1.0)), num_steps=4,
        num_warm=1,
    )  # fmt: skip
    lockstep, sync = Scheduler("lockstep", generate=Lockstep()), Scheduler("sync")
    overlap = Scheduler("async", "areal", num_training=4, num_ahead=1)
    pages = "assumed: 16 x H100, Qwen2.5-7B, 256 browser tasks of up to 20 pages, log-normal (5 s, sigma 1)"
    return [
        Case("libra", "up to 3.0x throughput", 3.0, 3.0, "tokens_per_second", libra,
             known(libra, "sync", "libra"),
             "as reported: 48 x A800; assumed: Qwen3-8B, 64 x 8 dialogues, a tenth hard, lengths +5% a step"),
        Case("webgym", "4-5x rollout speed over naive rollouts", 4.0, 5.0, "rollout_rate", web,
             (lockstep, sync), pages + "; naive: a barrier after each page"),
        Case("asyncwebrl", "up to 2.9x over the fastest synchronous pipeline", 2.9, 2.9, "tokens_per_second",
             web, (sync, overlap), pages),
        Case("dart", "1.9x training throughput", 1.9, 1.9, "tokens_per_second", web, (sync, overlap), pages),
    ]  # fmt: skip


def _mixed() -> list[Case]:
    kinds = ("rlvr", "rlhf", "agent")
    setup = Setup(
        16, "H800", "Qwen2.5-32B", num_devices=2, num_tasks=96, tasks=chat(3000), max_tokens=8192,
        max_turns=16, num_steps=4, num_warm=0,
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
        "assumed: 16 pairs of H800, Qwen2.5-32B, three classes in equal shares, three steps in flight,"
        " rollouts alone; the router's balance is the best of three"
    )
    claim = "+43.6% to +53.3% rollout throughput over a tuned cache-aware router"
    whole = "report.trained_per_second"
    return [Case("misa_t", claim, 1.436, 1.533, whole, setup, (*routers, misa), assumed)]


def _placed() -> list[Case]:
    tasks = agent(300, 0.08, 3000, 1500)
    low = Setup(
        32, "H800", "Qwen3-8B", num_tasks=16, tasks=tasks, max_tokens=2048, max_turns=24, services=WAITS,
        num_steps=4, num_warm=1,
    )  # fmt: skip
    high = dataclasses.replace(low, num_workers=4, num_tasks=64)
    turn = Scheduler("round robin", placement=RoundRobin())
    war = (
        "assumed: {} x H800, Qwen3-8B, dialogues of up to 24 turns, 1,500 tokens from each tool, {} a worker"
    )
    # A reference pass takes 2 of then 10 operations; of a prompt's token forward, logprobs and reference can
    # go ahead, the 4 of the backward pass cannot.
    work = {"token_seconds": training("H800", "Qwen2.5-32B").token_seconds * 1.25, "prefix_share": 0.6}
    video = Setup(
        8, "H800", "Qwen2.5-32B", num_devices=4, num_tasks=64, tasks=chat(400, 8000), max_tokens=2048,
        num_steps=5, num_warm=2, learner=work,
    )  # fmt: skip
    return [
        Case("war_low", "1.4x rollout throughput at low load", 1.4, 1.4, "rollout_rate", low,
             (turn, *known(low, "war")), war.format(32, 4) + "; 3 drafts at 0.6 below 32 live"),
        Case("war_high", "up to 1.6x at high load", 1.6, 1.6, "rollout_rate", high,
             (turn, Scheduler("war", placement=CacheAware())), war.format(4, 128)),
        Case("rollplex", "1.23x to 1.30x over serial colocation", 1.23, 1.30, "tokens_per_second", video,
             known(video, "sync", "rollplex"),
             "as reported: 32 x H800, 32B; assumed: by fours, 64 x 8, prompts of 8,000 tokens, answers of"
             " median 400, a reference pass, half of the free arithmetic of the rollouts usable"),
    ]  # fmt: skip
