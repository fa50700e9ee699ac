"""Warm starts: small decoders trained from scratch on an imperfect solver's demonstrations."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from rollwright.engine.checkpoint import save_model
from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.errors import ConfigError, DataError, ModelError
from rollwright.rng import generator
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Task
from rollwright.tasks.registry import load_task
from rollwright.tasks.tokenizer import EOS_ID, byte_tokenizer, character_tokenizer, save_tokenizer
from rollwright.tree import TaskId

Episode = tuple[list[int], list[bool]]  # tokens, and which of them a policy samples
Progress = Callable[[int, int, float], None]  # steps done, steps in all, loss of the last
RECORD = "warmstart.json"


def warmstart(
    task: str,
    out_dir: str | Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    noise: float | None = None,
    batch: int | None = None,
    num_eval: int = 400,
    num_samples: int = 4,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a small decoder from scratch on demonstrations, save it, and measure it on held-out tasks.

    The same arguments on the same machine give the same weights.

    Args:
        task: the task's name, for example ``"countdown"``.
        out_dir: folder of the checkpoint, in Hugging Face form, with ``warmstart.json`` beside it.
        seed: of the weights and of the demonstrations.
        steps, noise, batch: where given, replace the task's recipe.
        num_eval, num_samples: held-out tasks, and samples of each at temperature 1.
        progress: called after each step with (steps done, steps in all, loss).

    Returns:
        What ``warmstart.json`` holds: the command, the recipe, and success sampled and greedy.

    Raises:
        ConfigError, UnknownName, DataError: a task or setting that cannot run.
    """
    built = load_task(task)
    asked = {"steps": steps, "noise": noise, "batch": batch}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    recipe = replace(getattr(built, "recipe", Recipe()), **given)
    _check(recipe)
    if not built.ids("test"):
        raise DataError(f"task {task!r} holds no instance out to measure on; give it a larger test share")
    tokenizer = byte_tokenizer() if recipe.is_bytes else character_tokenizer()
    began = time.monotonic()
    model = train(built, tokenizer, recipe, seed, progress)
    seconds = round(time.monotonic() - began, 1)
    out = Path(out_dir)
    save_model(model, out)
    save_tokenizer(tokenizer, out)
    command = ["rollwright", "warmstart", task, "--seed", str(seed)]
    command += [part for name, value in given.items() for part in (f"--{name}", str(value))]
    record: dict[str, Any] = {
        "command": shlex.join(command),
        "task": task,
        "seed": seed,
        "recipe": asdict(recipe),
        "num_parameters": model.num_parameters,
        "seconds": seconds,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "held_out": measure(task, out, num_eval, num_samples),
    }
    text = msgspec.json.format(msgspec.json.encode(record), indent=2)
    (out / RECORD).write_bytes(text + b"\n")
    return record


def _check(recipe: Recipe) -> None:
    if recipe.steps < 1 or recipe.batch < 1 or not 0 <= recipe.noise <= 1:
        raise ConfigError(
            f"warm start with steps={recipe.steps}, batch={recipe.batch}, noise={recipe.noise}: expected at"
            " least one step and one demonstration a step, and noise in [0, 1]"
        )


def decoder_config(recipe: Recipe, vocab_size: int, context: int = 0) -> DecoderConfig:
    """Return the decoder's shape: Llama family, tied embeddings."""
    return DecoderConfig(
        family="llama",
        vocab_size=vocab_size,
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_layers=recipe.num_layers,
        num_heads=recipe.num_heads,
        num_kv_heads=recipe.num_heads,
        head_dim=recipe.width // recipe.num_heads,
        max_positions=max(1024, context),
        eos_ids=(EOS_ID,),
    )


def fresh_model(cfg: DecoderConfig, seed: int) -> Decoder:
    """Return a decoder whose matrices have deviation 1/√(inputs), the embedding apart.

    At width 96 these start to copy and to add after a few hundred steps; with the usual 0.02, which is
    meant for wide models, it takes several times as long.
    """
    model = new_model(cfg, seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 2 and name != "embed":
                value.mul_(1 / (0.02 * math.sqrt(value.shape[1])))
    return model


def encode_episode(task: Task, tokenizer: Tokenizer, task_id: TaskId, episode: Sequence[str]) -> Episode:
    """Return the tokens of prompt and episode, and which of them a policy samples, [T] each.

    Turns stand at even places of ``episode``; one that does not end in a stop string ends in the end
    token.
    """

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    tokens = encode(task.prompt(task_id))
    is_sampled = [False] * len(tokens)
    for place, text in enumerate(episode):
        piece, is_turn = encode(text), place % 2 == 0
        if is_turn and not (task.stop_strings and text.endswith(task.stop_strings)):
            piece.append(EOS_ID)
        tokens += piece
        is_sampled += [is_turn] * len(piece)
    return tokens, is_sampled


def batches(task: Task, tokenizer: Tokenizer, recipe: Recipe, seed: int) -> Iterator[list[Episode]]:
    """Yield ``recipe.steps`` batches of encoded demonstrations on random training instances."""
    rng = generator(seed, "warmstart", task.name)
    ids = task.ids("train")
    for step in range(recipe.steps):
        noise = 0.0 if step < recipe.clean_share * recipe.steps else recipe.noise
        chosen = [ids[int(k)] for k in rng.integers(len(ids), size=recipe.batch)]
        yield [encode_episode(task, tokenizer, i, task.demonstrate(i, rng, noise)) for i in chosen]


def demonstration_loss(model: Decoder, batch: Sequence[Episode]) -> torch.Tensor:
    """Return the mean of -log p over the tokens that a policy would sample, a scalar."""
    tokens_N = torch.tensor([token for tokens, _ in batch for token in tokens])
    is_target_N = torch.tensor([flag for _, flags in batch for flag in flags])
    at = torch.nonzero(is_target_N).flatten()  # a prompt comes first, so at - 1 is in the same sequence
    hidden_ND = model.hidden_packed(tokens_N, [len(tokens) for tokens, _ in batch])
    return F.cross_entropy(model.logits(hidden_ND[at - 1]), tokens_N[at])


def train(
    task: Task, tokenizer: Tokenizer, recipe: Recipe, seed: int, progress: Progress | None = None
) -> Decoder:
    """Train a new decoder on demonstrations.

    AdamW, 20 warm-up steps, then a cosine to zero; gradients clipped to norm 1.

    Raises:
        ModelError: the loss is not finite any more.
    """
    model = fresh_model(decoder_config(recipe, tokenizer.get_vocab_size(), task.context), seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    for step, batch in enumerate(batches(task, tokenizer, recipe, seed)):
        factor = min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * factor
        loss = demonstration_loss(model, batch)
        if not math.isfinite(loss.item()):
            raise ModelError(f"warm start of {task.name}: the loss is {loss.item()} at step {step + 1}")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress is not None:
            progress(step + 1, recipe.steps, loss.item())
    return model


def measure(task: str, folder: Path, num_tasks: int, num_samples: int) -> dict[str, Any]:
    """Return success on held-out tasks, sampled at temperature 1 and greedy, with 95% intervals."""
    from rollwright.config import from_values
    from rollwright.training.evaluate import evaluate
    from rollwright.training.parts import build
    from rollwright.tree import Sampling

    threads = torch.get_num_threads()
    parts = build(from_values({"task": task, "model": str(folder), "threads": threads}))
    ids = parts.task.ids("test")[:num_tasks]
    stops = parts.settings.sampling.stop_strings
    found = {}
    for name, temperature, samples in (("sampled", 1.0, num_samples), ("greedy", 0.0, 1)):
        sampling = Sampling(temperature, stop_strings=stops)
        result, _ = evaluate(parts.engine, parts.world, parts.settings, ids, samples, sampling)
        found[name] = {key: value for key, value in asdict(result).items() if key not in ("right", "scored")}
    return found
