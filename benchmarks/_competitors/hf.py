"""transformers as two sides: `generate` in static batches, and its own continuous batching."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)
from transformers.utils import logging

from . import Timing, Workload, check_count, now

PAD = 0
# Of continuous batching: among the fastest few that were tried, on a machine that was busy.
FASTEST_PAGE, FASTEST_TOKENS = 256, 256
MEMORY_SHARE = 0.1  # of the machine's, where it is left to itself


def load(folder: Path) -> Any:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def config(do_sample: bool, num_tokens: int) -> GenerationConfig:
    """Return settings without an end token; sampling is at temperature 1 over the full vocabulary."""
    drawn = {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if do_sample else {}
    return GenerationConfig(
        do_sample=do_sample,
        min_new_tokens=num_tokens,
        max_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=PAD,
        **drawn,
    )


class _Stamp(LogitsProcessor):
    """Notes when the logits of token number ``at`` have come; the scores pass unchanged."""

    def __init__(self, at: int) -> None:
        self.at, self.num_calls, self.time = at, 0, 0.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.num_calls == self.at:
            self.time = now()
        self.num_calls += 1
        return scores


class Static:
    """`generate` with batches of requests in the order of arrival; each runs until its longest ends.

    Args:
        model: from `load`.
        batch: requests in a batch; None takes all at once.
        do_sample: False is greedy.
    """

    def __init__(self, model: Any, batch: int | None = None, do_sample: bool = True) -> None:
        self.model, self.batch, self.do_sample = model, batch, do_sample
        self.name = "transformers" if do_sample else "transformers greedy"

    @torch.inference_mode()
    def run(self, workload: Workload) -> Timing:
        size = self.batch or len(workload.lengths)
        steps, made = [], 0
        started = now()
        for first in range(0, len(workload.lengths), size):
            lengths = workload.lengths[first : first + size]
            steps.append(self._generate(workload.prompts[first : first + size], max(lengths)))
            made += sum(lengths)
        seconds = now() - started
        check_count(self.name, made, workload)
        return Timing(seconds, steps[0] if len(steps) == 1 else None)

    def _generate(self, prompts: tuple[tuple[int, ...], ...], num_tokens: int) -> float:
        """Generate and return the seconds of a mean step of the second half."""
        width = max(map(len, prompts))
        ids = torch.tensor([(PAD,) * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([(0,) * (width - len(p)) + (1,) * len(p) for p in prompts])
        stamp = _Stamp(num_tokens // 2)
        out = self.model.generate(
            ids,
            attention_mask=mask,
            generation_config=config(self.do_sample, num_tokens),
            logits_processor=LogitsProcessorList([stamp]),
        )
        ended = now()
        wanted = (len(prompts), width + num_tokens)
        if tuple(out.shape) != wanted:
            raise RuntimeError(f"transformers made tokens of shape {tuple(out.shape)}; {wanted} asked for")
        return (ended - stamp.time) / (num_tokens - num_tokens // 2)

    def close(self) -> None:
        """Nothing to give back."""


class Continuous:
    """transformers' continuous batching, its manager kept between runs of one workload.

    Args:
        folder: the checkpoint; the model is loaded anew, as the manager changes its attention.
        max_batch: requests in flight at most.
        is_tuned: with the fastest settings that were found, and room for just the workload; else with its
            own settings but for the memory, of which it would take most and spend minutes on that.
    """

    def __init__(self, folder: Path, max_batch: int, is_tuned: bool = False) -> None:
        self.model, self.max_batch, self.is_tuned = load(folder), max_batch, is_tuned
        self.name = "transformers continuous" + (", tuned" if is_tuned else "")
        self.manager: Any = None

    def run(self, workload: Workload) -> Timing:
        if self.manager is None:
            self.manager = self._start(workload)
        started = now()
        for prompt, length in zip(workload.prompts, workload.lengths, strict=True):
            self.manager.add_request(list(prompt), max_new_tokens=length, eos_token_id=-1)
        num_left, made = len(workload.lengths), 0
        while num_left:
            result = self.manager.get_result(timeout=60)
            if result is None or result.error is not None:
                raise RuntimeError(f"transformers' continuous batching stopped: {result and result.error}")
            if result.is_finished():
                num_left -= 1
                made += len(result.generated_tokens)
        seconds = now() - started
        check_count(self.name, made, workload)
        return Timing(seconds)

    def _start(self, workload: Workload) -> Any:
        sizes = [len(p) + n for p, n in zip(workload.prompts, workload.lengths, strict=True)]
        settings = (
            ContinuousBatchingConfig(
                page_size=FASTEST_PAGE,
                num_blocks=sum(-(-size // FASTEST_PAGE) for size in sizes) + 1,
                max_batch_tokens=max(FASTEST_TOKENS, self.max_batch),
                max_requests_per_batch=self.max_batch,
            )
            if self.is_tuned
            else ContinuousBatchingConfig(max_memory_percent=MEMORY_SHARE)
        )
        manager = self.model.init_continuous_batching(config(True, max(workload.lengths)), settings)
        manager.start()
        return manager

    def close(self) -> None:
        if self.manager is not None:
            self.manager.stop(block=True, timeout=30)
            self.manager.destroy()
            self.manager = None
