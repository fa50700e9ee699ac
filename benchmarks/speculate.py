"""Rollouts of two epochs over the same prompts, with drafts and without: seconds for the second epoch.

python benchmarks/speculate.py [--models countdown,smollm2] [--batches 1,8,32] [--drafters suffix,previous]
    [--prompts 4] [--samples 8] [--tokens 48] [--repeats 3] [--threads 1] [--same-noise]

The model samples at temperature 1, with new noise in the second epoch (`--same-noise`: the noise of a sample
is the same in both, and so, with the same weights, is the sample: the most that reuse can give). Sides take
turns, each with an engine of its own that has seen the first epoch; medians are compared, and every token of
every side is compared with plain decoding's. A side whose switch turns drafts off does plain steps.
`countdown` is the task's trained model (0.85M parameters), `smollm2` SmolLM2-135M-Instruct on sums.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from _arguments import names, numbers
from _report import Figure, print_report

from rollwright.engine.checkpoint import Tokenizer, load_model, load_tokenizer
from rollwright.engine.drafts.registry import DRAFTERS, new_drafter
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder
from rollwright.engine.shipped import find_model
from rollwright.events import Submit
from rollwright.rng import stream_key
from rollwright.tasks.registry import load_task, shipped_checkpoint
from rollwright.tree import Sampling

MODELS = ("countdown", "smollm2")


def load(name: str, num_prompts: int) -> tuple[Decoder, Tokenizer, list[list[int]]]:
    """Return a model, its tokenizer and prompts as ids."""
    path = find_model("smollm2") if name == "smollm2" else shipped_checkpoint(name)
    assert path is not None
    tokenizer, task = load_tokenizer(path), load_task("sums" if name == "smollm2" else name)
    prompts = [task.prompt(one) for one in task.ids("train")[:num_prompts]]
    if name == "smollm2":
        from rollwright.chat import ChatFormat, load_template

        template = load_template(path)
        assert template is not None
        chat = ChatFormat(template, tokenizer)
        return load_model(path), tokenizer, [list(chat.prompt(text)) for text in prompts]
    return load_model(path), tokenizer, [tokenizer.encode(text) for text in prompts]


class Side:
    """An engine with or without a drafter."""

    def __init__(self, name: str, model: Decoder, tokenizer: Tokenizer, batch: int, threads: int) -> None:
        drafter = new_drafter(name) if name in DRAFTERS else None
        self.name = name
        self.engine = LocalEngine(model, tokenizer, max_batch=batch, threads=threads, drafter=drafter)

    def epoch(
        self, number: int, noise: int, prompts: list[list[int]], num: int, tokens: int
    ) -> tuple[float, dict]:
        """Sample ``num`` rollouts of each prompt; return seconds, and the tokens by sample."""
        engine, made = self.engine, dict[str, tuple[int, ...]]()
        started = time.perf_counter()
        for p, prompt in enumerate(prompts):
            for k in range(num):
                command = Submit(
                    ask=f"{number}.{p}.{k}",
                    group=f"{number}.{p}",
                    parent="root",
                    at=len(prompt),
                    stream=stream_key(noise, str(p), str(k)),
                    start=len(prompt),
                    max_tokens=tokens,
                    sampling=Sampling(),
                )
                engine.submit(command, prompt)
        while engine.num_live:
            for event in engine.step():
                name = event.ask.partition(".")[2]
                made[name] = made.get(name, ()) + event.tokens
        seconds = time.perf_counter() - started
        for p in range(len(prompts)):
            engine.retire(f"{number}.{p}")
        return seconds, made


def measure(name: str, given: argparse.Namespace) -> dict[str, Figure]:
    """Return the figures of one model."""
    model, tokenizer, prompts = load(name, given.prompts)
    figures: dict[str, Figure] = {}
    for batch in given.batches:
        seconds: dict[str, list[float]] = {}
        for repeat in range(given.repeats):
            want = None
            for kind in ("plain", *given.drafters):
                side = Side(kind, model, tokenizer, batch, given.threads)
                side.epoch(0, 2 * repeat, prompts, given.samples, given.tokens)
                noise = 2 * repeat + (0 if given.same_noise else 1)
                took, made = side.epoch(1, noise, prompts, given.samples, given.tokens)
                want = made if want is None else want
                if made != want:
                    raise SystemExit(f"{kind}: other tokens than plain decoding")
                seconds.setdefault(kind, []).append(took)
                if side.engine.drafting is not None:
                    report = side.engine.drafting.report
                    row = f"{name}_b{batch}_{kind}"
                    figures[f"{row}_acceptance"] = report.acceptance
                    figures[f"{row}_tokens_a_pass"] = report.kept / max(1, report.passes) / batch
                    figures[f"{row}_checked_share"] = report.passes / max(
                        1, report.passes + report.plain_passes
                    )
        plain = statistics.median(seconds["plain"])
        for kind in given.drafters:
            figures[f"ratio_{name}_b{batch}_{kind}"] = plain / statistics.median(seconds[kind])
            print(
                f"{name} batch {batch} {kind}: {figures[f'ratio_{name}_b{batch}_{kind}']:.2f} of plain",
                flush=True,
            )
        figures[f"{name}_b{batch}_plain_s"] = plain
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS))
    parser.add_argument("--batches", type=numbers, default=[1, 8, 32])
    parser.add_argument("--drafters", type=names(DRAFTERS), default=list(DRAFTERS))
    for flag, number in (("prompts", 4), ("samples", 8), ("tokens", 48), ("repeats", 3), ("threads", 1)):
        parser.add_argument(f"--{flag}", type=int, default=number)
    parser.add_argument("--same-noise", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    figures: dict[str, Figure] = {"same_noise": given.same_noise}
    for name in given.models:
        figures |= measure(name, given)
    print_report("speculate", figures, ("torch",))


if __name__ == "__main__":
    main()
