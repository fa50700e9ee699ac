"""One decode step of the in-process engine, by batch size.

python benchmarks/engine_step.py [--threads 1] [--repeats 5]

Two random models: ``demo`` (0.34M parameters: width 96, 3 layers, 3 heads, 64 words) and ``grpo`` (0.85M:
width 128, 4 layers, 4 heads, 2 key heads, 512 words, the shape of ``step_vs_trl.py``). Prompts of 16 tokens;
the step is the median over steps 17 to 48 in chunks of 8, sampling, records and stop checks included.
``grpo_64x256_s`` is the generation of one GRPO step: 8 prompts x 8 samples of 256 tokens, prefill included.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import torch
from _report import print_report

from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.events import Submit
from rollwright.tree import Sampling

PROMPT_LENGTH, FIRST, LAST, CHUNK = 16, 16, 48, 8
CONFIGS = {
    "demo": DecoderConfig("qwen2", 64, 96, 256, 3, 3, 3, 32, 1024, qkv_bias=True),
    "grpo": DecoderConfig("qwen2", 512, 128, 384, 4, 4, 2, 32, 1024, qkv_bias=True),
}


def submit_groups(engine: LocalEngine, num: int, max_tokens: int, chunk: int) -> None:
    """Submit ``num`` sequences in groups of eight."""
    for i in range(num):
        group = i // 8
        command = Submit(
            ask=f"a{i}",
            group=f"g{group}",
            parent="root",
            at=PROMPT_LENGTH,
            stream=i * 0x9E3779B97F4A7C1 % 2**63,
            start=PROMPT_LENGTH,
            max_tokens=max_tokens,
            sampling=Sampling(),
            chunk=chunk,
        )
        engine.submit(command, [(group * 7 + j) % 60 for j in range(PROMPT_LENGTH)])


def step_ms(model: Decoder, num: int) -> float:
    """Return the median milliseconds of one step with ``num`` live sequences."""
    engine = LocalEngine(model)
    submit_groups(engine, num, LAST, CHUNK)
    seconds = []
    while engine.num_live:
        started = time.perf_counter()
        engine.step()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[FIRST // CHUNK :]) / CHUNK * 1e3


def generation_s(model: Decoder) -> float:
    """Return the seconds to make 8 x 8 sequences of 256 tokens."""
    engine = LocalEngine(model)
    started = time.perf_counter()
    submit_groups(engine, 64, 256, chunk=0)
    while engine.num_live:
        engine.step()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures: dict[str, float | int] = {"threads": arguments.threads}
    gc.freeze()
    for name, cfg in CONFIGS.items():
        model = new_model(cfg, 0)
        for num in (1, 8, 32, 64, 256):
            times = [step_ms(model, num) for _ in range(arguments.repeats)]
            figures[f"{name}_b{num}_ms"] = statistics.median(times)
            figures[f"{name}_b{num}_best_ms"] = min(times)
    times = [generation_s(new_model(CONFIGS["grpo"], 0)) for _ in range(arguments.repeats)]
    figures["grpo_64x256_s"] = statistics.median(times)
    figures["grpo_64x256_best_s"] = min(times)
    print_report("engine_step", figures, ("torch",))


if __name__ == "__main__":
    main()
