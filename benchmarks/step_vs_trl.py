"""One GRPO step, rollwright against TRL's GRPOTrainer: same weights, prompts, lengths, reward, threads.

python benchmarks/step_vs_trl.py [--threads 2] [--repeats 7]

8 prompts x 8 samples, 0.85M parameters in Qwen2 shape. ``ragged``: log-normal lengths, sigma 1, median 48,
cap 256; ``equal``: 64 sequences of 256 tokens. Both sides sample at temperature 1 from the full vocabulary
and are told where each sequence ends (TRL by a logits processor that forces the end token there, ours by
the ask's limit), so both make and train the same number of tokens. One TRL step and one of ours alternate in
one process; medians are compared. Neither side writes anything to disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import print_report
from datasets import Dataset
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedTokenizerFast,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.engine.checkpoint import Tokenizer, save_model
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import DecoderConfig, new_model
from rollwright.events import EmitBatch, Published, Report, Started
from rollwright.learn.learner import Learner, LearnerConfig
from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.runner import Runner, Settings
from rollwright.stage import Ask, AskScore, Plan, PlanView, Want
from rollwright.tasks.api import Observation, Verdict

NUM_WORDS, PAD, EOS = 512, 0, 1
NUM_PROMPTS, EACH, PROMPT_LENGTH, CAP = 8, 8, 16, 256
LR = 1e-5


def reward_of(ids: Sequence[int]) -> float:
    """The share of even tokens: the same function on both sides."""
    return sum(token % 2 == 0 for token in ids) / max(len(ids), 1)


def word_ids(text: str) -> list[int]:
    """Read a decoded text back; the two special tokens are 0 and 1."""
    special = {"<pad>": PAD, "<eos>": EOS}
    return [special[word] if word in special else int(word[1:]) for word in text.split()]


def lengths_of(kind: str) -> list[int]:
    """Return the 64 output lengths."""
    if kind == "equal":
        return [CAP] * (NUM_PROMPTS * EACH)
    drawn = np.random.default_rng(0).lognormal(np.log(48), 1.0, NUM_PROMPTS * EACH)
    return [int(min(max(length, 2), CAP)) for length in drawn]


def prompts() -> list[list[int]]:
    drawn = np.random.default_rng(1).integers(2, NUM_WORDS, (NUM_PROMPTS, PROMPT_LENGTH))
    return [[int(token) for token in row] for row in drawn]


# ---------------------------------------------------------------- ours


@dataclass(frozen=True, slots=True)
class Fixed:
    """Independent rollouts whose lengths are given."""

    lengths: tuple[int, ...]

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        first = int(view.task.rpartition("/")[2]) * EACH
        asks = [Ask(view.root, max_tokens=self.lengths[first + i]) for i in range(num)]
        nodes = yield Want(asks)
        yield Want([AskScore(node.id) for node in nodes])


class EvenTokens:
    """The task: prompts of words, reward by `reward_of`."""

    name, grader_version = "even", "1"
    max_turns, max_tokens, context = 1, CAP, PROMPT_LENGTH + CAP
    stop_strings = ()

    def ids(self, split: str) -> list[str]:
        return [f"even/{split}/{i}" for i in range(NUM_PROMPTS)]

    def prompt(self, task_id: str) -> str:
        return " ".join(f"w{token}" for token in prompts()[int(task_id.rpartition("/")[2])])

    def reset(self, task_id: str) -> None:
        return None

    def step(self, state: Any, text: str) -> tuple[Any, Observation]:
        raise NotImplementedError

    def grade(self, task_id: str, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        return Verdict(reward_of(word_ids(turns[0])), "right")

    def demonstrate(self, task_id: str, rng: Any, noise: float) -> list[str]:
        raise NotImplementedError


class Ours:
    """A run of ours that makes one step at a time."""

    def __init__(self, folder: Path, lengths: list[int], num_steps: int) -> None:
        from rollwright.engine.checkpoint import load_model, load_tokenizer

        model = load_model(folder)
        base = grpo(EACH)
        method = Method(
            "bench", base.select, base.allocate, Fixed(tuple(lengths)), base.replay, base.objective,
            base.reduce, credit=base.credit, declares=base.declares,
        )  # fmt: skip
        task = EvenTokens()
        settings = Settings(0, tuple(task.ids("train")), num_steps, NUM_PROMPTS, task.context, CAP, chunk=0)
        self.learner = Learner(model, method.objective, method.reduce, LearnerConfig(lr=LR))
        self.reports: list[Report] = []
        tokenizer: Tokenizer = load_tokenizer(folder)
        # Lengths are forced by the asks, so no token ends a sequence by itself.
        object.__setattr__(model.cfg, "eos_ids", ())
        self.driver = InlineDriver(
            Runner(method, settings),
            LocalEngine(model),
            World(task, tokenizer),
            self.train,
            on_report=self.reports.append,
        )
        self.num_tokens = sum(lengths)

    def train(self, batch: EmitBatch) -> Published:
        metrics = self.learner.update(batch.groups, batch.version)
        return Published(step=batch.step, version=batch.version + 1, metrics=metrics)

    def step(self) -> None:
        """Make one step: roll out, grade, train."""
        num = len(self.reports)
        if num == 0:
            self.driver.feed([Started()])
        while len(self.reports) == num:
            self.driver.feed(self.driver.engine.step())
        metrics = self.reports[-1].metrics
        assert metrics["learn_num_trained_tokens"] == self.num_tokens, metrics


# ---------------------------------------------------------------- TRL


class ForceLengths(LogitsProcessor):
    """Make row r end with the end token at its length, and not before."""

    def __init__(self, lengths: list[int], prompt_length: int) -> None:
        self.ends = torch.tensor(lengths) + prompt_length - 1

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, EOS] = -torch.inf
        is_end = self.ends == input_ids.shape[1]
        scores[is_end] = -torch.inf
        scores[is_end, EOS] = 0.0
        return scores


class Alternate(TrainerCallback):
    """Time TRL's steps, and make one of ours after each."""

    def __init__(self, ours: Ours) -> None:
        self.ours, self.theirs_s, self.ours_s = ours, [], []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.started = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        now = time.perf_counter()
        self.theirs_s.append(now - self.started)
        self.ours.step()
        self.ours_s.append(time.perf_counter() - now)


def make_checkpoint(folder: Path) -> None:
    """Write the model and a word tokeniser that both sides load."""
    cfg = DecoderConfig("qwen2", NUM_WORDS, 128, 384, 4, 4, 2, 32, 1024, qkv_bias=True, eos_ids=(EOS,))
    vocab = {"<pad>": PAD, "<eos>": EOS, **{f"w{i}": i for i in range(2, NUM_WORDS)}}
    raw = RawTokenizer(models.WordLevel(vocab, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = new_model(cfg, seed=0)
    save_model(model, folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>")
    fast.save_pretrained(folder)
    print(f"{model.num_parameters:,} parameters")


def measure(kind: str, folder: Path, repeats: int) -> dict[str, float]:
    """Return medians and their ratio for one kind of lengths."""
    lengths = lengths_of(kind)
    warm = 2
    ours = Ours(folder, lengths, repeats + warm + 1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    texts = [" ".join(f"w{token}" for token in row) for row in prompts()]
    generate = model.generate

    def forced(*args: Any, **kwargs: Any) -> Any:
        forcing = LogitsProcessorList([ForceLengths(lengths, PROMPT_LENGTH)])
        return generate(*args, **{**kwargs, "logits_processor": forcing})

    model.generate = forced
    alternate = Alternate(ours)
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=NUM_PROMPTS * EACH,
        num_generations=EACH,
        max_completion_length=CAP,
        max_steps=repeats + warm,
        learning_rate=LR,
        lr_scheduler_type="constant",
        beta=0.0,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )

    def reward(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        assert sorted(map(len, completion_ids)) == sorted(lengths), "TRL did not make the given lengths"
        return [reward_of(ids) for ids in completion_ids]

    trainer = GRPOTrainer(
        model, reward, args, Dataset.from_dict({"prompt": texts}), processing_class=tokenizer,
        callbacks=[alternate],
    )  # fmt: skip
    trainer.train()
    theirs_s = statistics.median(alternate.theirs_s[warm:])
    ours_s = statistics.median(alternate.ours_s[warm:])
    return {
        f"tokens_{kind}": float(sum(lengths)),
        f"trl_step_{kind}_s": theirs_s,
        f"rollwright_step_{kind}_s": ours_s,
        f"ratio_{kind}": theirs_s / ours_s,
    }


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    figures: dict[str, float] = {"threads": given.threads, "repeats": given.repeats}
    with tempfile.TemporaryDirectory() as folder:
        make_checkpoint(Path(folder))
        for kind in ("ragged", "equal"):
            figures |= measure(kind, Path(folder), given.repeats)
    print_report("step_vs_trl", figures, ("torch", "transformers", "trl"))


if __name__ == "__main__":
    main()
