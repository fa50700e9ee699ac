"""Warm starts: small decoders trained from scratch on an imperfect solver's demonstrations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.rng import generator
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Task
from rollwright.tasks.tokenizer import EOS_ID
from rollwright.tree import TaskId

Progress = Callable[[int, int, float], None]  # steps done, steps in all, loss


def decoder_config(recipe: Recipe, vocab_size: int) -> DecoderConfig:
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
        max_positions=1024,
        eos_ids=(EOS_ID,),
    )


def encode_episode(
    task: Task, tokenizer: Tokenizer, task_id: TaskId, episode: Sequence[str]
) -> tuple[list[int], list[bool]]:
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


def batches(
    task: Task, tokenizer: Tokenizer, recipe: Recipe, seed: int
) -> Iterator[list[tuple[list[int], list[bool]]]]:
    """Yield batches of encoded demonstrations on random training instances, without end."""
    rng = generator(seed, "warmstart", task.name)
    ids = task.ids("train")
    while True:
        chosen = [ids[int(k)] for k in rng.integers(len(ids), size=recipe.batch)]
        yield [encode_episode(task, tokenizer, i, task.demonstrate(i, rng, recipe.noise)) for i in chosen]


def demonstration_loss(model: Decoder, batch: Sequence[tuple[list[int], list[bool]]]) -> torch.Tensor:
    """Return the mean of -log p over the tokens that a policy would sample, a scalar."""
    tokens_N = torch.tensor([token for tokens, _ in batch for token in tokens])
    lengths = [len(tokens) for tokens, _ in batch]
    is_target_N = torch.tensor([flag for _, flags in batch for flag in flags])
    at = torch.nonzero(is_target_N).flatten()  # a prompt comes first, so at - 1 is in the same sequence
    hidden_ND = model.hidden_packed(tokens_N, lengths)
    return F.cross_entropy(model.logits(hidden_ND[at - 1]), tokens_N[at])


def train(
    task: Task, tokenizer: Tokenizer, recipe: Recipe, seed: int, progress: Progress | None = None
) -> Decoder:
    """Train a new decoder on demonstrations.

    AdamW, 20 warm-up steps, then a cosine to zero; gradients clipped to norm 1.
    """
    model = new_model(decoder_config(recipe, tokenizer.get_vocab_size()), seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    data = batches(task, tokenizer, recipe, seed)
    for step in range(recipe.steps):
        factor = min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * factor
        loss = demonstration_loss(model, next(data))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if progress is not None:
            progress(step + 1, recipe.steps, loss.item())
    return model
