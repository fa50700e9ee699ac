"""Dumps that hold token ids: slime, Atropos, NeMo RL, prime-rl, verifiers v1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollwright.errors import DataError
from rollwright.interop.dump import Notes, Part, Rollout, by_mask
from rollwright.interop.read import Row, need, number, rest
from rollwright.interop.texts import Rows


def slime(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Samples of one rollout step; mask and logprobs cover the response only."""
    for batch in rows:
        for row in need(batch, "samples", list):
            yield _slime(row, int(batch.get("rollout_id") or 0), notes)


def _slime(row: Row, step: int, notes: Notes) -> Rollout:
    tokens, num = need(row, "tokens", list), need(row, "response_length", int)
    num_prompt = len(tokens) - num
    mask = row.get("loss_mask") or [1] * num
    logprobs = row.get("rollout_log_probs")
    for name, given in (("loss_mask", mask), ("rollout_log_probs", logprobs)):
        if given is not None and len(given) != num:
            raise DataError(f"{name!r} has {len(given)} values for {num} response tokens")
    versions = set(row.get("weight_versions") or ())
    version = int(next(iter(versions))) if len(versions) == 1 and next(iter(versions)).isdigit() else None
    if len(versions) > 1:
        notes.add("samples of several versions: which token is whose is not said")
    padded = None if logprobs is None else [0.0] * num_prompt + list(logprobs)
    parts = by_mask(tokens, [0] * num_prompt + list(mask), padded, version=version)
    if parts[0].tokens and len(parts[0].tokens) > num_prompt:  # the response begins with masked tokens
        head = parts[0].tokens
        parts[:1] = [Part("prompt", head[:num_prompt]), Part("observation", head[num_prompt:])]
    given, status = row.get("reward"), row.get("status")
    is_failed = status in ("failed", "aborted", "pending")
    rewards = {k: number(v, k) for k, v in given.items()} if isinstance(given, dict) else {}
    if rewards:
        notes.add("rewards kept apart: which of them counts (reward_key) is in the config of the run")
    reward = None if is_failed or rewards else number(given, "reward")
    word = (
        "failed" if is_failed else "unknown" if rewards else "scored" if reward is not None else "not_scored"
    )
    kept = rest(row, "tokens", "loss_mask", "rollout_log_probs", "reward")
    cut = status == "truncated"
    group = f"slime/{row.get('group_index')}"
    return Rollout(group, parts, reward, word, rewards, step, stop="length" if cut else None,
                   terminated=status == "completed", truncated=cut, extras=kept)  # fmt: skip


def atropos(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """A group a line; a mask is labels: -100 is not trained."""
    for place, row in enumerate(rows):
        tokens, masks = need(row, "tokens", list), need(row, "masks", list)
        scores = need(row, "scores", list)
        if not len(tokens) == len(masks) == len(scores):
            raise DataError(f"{len(tokens)} tokens, {len(masks)} masks, {len(scores)} scores; expected equal")
        for k, ids in enumerate(tokens):
            if any(label not in (-100, token) for label, token in zip(masks[k], ids, strict=True)):
                raise DataError(
                    f"group {place}, member {k}: a label is neither -100 nor the token at its place"
                )
            on = [label != -100 for label in masks[k]]
            columns = {name: (row.get(name) or [None] * len(tokens))[k]
                       for name in ("inference_logprobs", "advantages", "messages", "overrides")}  # fmt: skip
            credit = columns["advantages"]
            credit = [credit] * len(ids) if isinstance(credit, int | float) else credit
            parts = by_mask(ids, on, columns["inference_logprobs"], credit)
            group = rest(row, "tokens", "masks", "scores", "messages", "advantages", "inference_logprobs")
            extras = {"messages": columns["messages"], "overrides": columns["overrides"], "row": group}
            yield Rollout(f"atropos/{place}", parts, number(scores[k], "scores"), extras=extras)


def nemo_rl(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Micro-batches of one: lists of length 1, padded ids."""
    for row in rows:
        one = {name: value[0] if isinstance(value, list) and len(value) == 1 else value
               for name, value in row.items()}  # fmt: skip
        num = int(need(one, "input_lengths"))
        cut = {name: value[:num] if isinstance(value, list) else value for name, value in one.items()}
        if len(cut["token_ids"]) < num:
            raise DataError(f"'input_lengths' is {num}, and there are {len(cut['token_ids'])} token ids")
        parts = by_mask(cut["token_ids"], need(cut, "token_loss_mask"), cut.get("generation_logprobs"),
                        cut.get("advantages"))  # fmt: skip
        kept = rest(cut, "token_ids", "token_loss_mask", "generation_logprobs", "advantages", "rewards")
        notes.add("rows without a group: each is one of its own")
        group = f"nemo-rl/{row.get('idx')}"
        yield Rollout(group, parts, number(need(cut, "rewards"), "rewards"), extras=kept)


def prime_rl_tokens(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Trained sequences by the token; those without a trainable token are not in the file."""
    for row in rows:
        parts = by_mask(need(row, "token_ids", list), need(row, "loss_mask", list),
                        row.get("inference_logprobs"), row.get("advantages"))  # fmt: skip
        kept = rest(row, "token_ids", "loss_mask", "inference_logprobs", "advantages")
        name = f"{row.get('rank')}.{row.get('micro_step')}.{row.get('micro_sequence_idx')}"
        group = f"{row.get('env_name')}/{name}/{row.get('export_sequence_idx')}"
        yield Rollout(group, parts, None, "unknown", step=int(need(row, "step")), extras=kept)


def verifiers_v1(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Episodes whose traces are graphs of messages: every path from a root to a leaf is a rollout."""
    for row in rows:
        group = (row.get("group") or {}).get("id") or need(row, "id")
        work = ((row.get("run") or {}).get("work")) or {}
        for trace in need(row, "traces", list):
            for rollout in _trace(trace, f"{(row.get('env') or {}).get('id')}/{group}", notes):
                rollout.step = int(work.get("step") or 0)
                rollout.extras |= {"episode": rest(row, "traces")}
                yield rollout


def _trace(trace: Row, group: str, notes: Notes) -> Iterator[Rollout]:
    nodes = trace.get("nodes") or []
    parents = {node.get("parent") for node in nodes}
    rewards = {name: one for name, one in (trace.get("rewards") or {}).items()}
    is_scored = trace.get("rewards") is not None and all(one is not None for one in rewards.values())
    is_failed = not trace.get("ok", True) or bool(trace.get("errors"))
    total = sum(one["score"] * one.get("weight", 1.0) for one in rewards.values()) if is_scored else None
    leaves = [k for k in range(len(nodes)) if k not in parents]
    if len(leaves) > 1:
        notes.add("traces of several paths: each is a rollout with the reward of its trace")
    status = "failed" if is_failed else "not_scored" if total is None else "scored"
    for leaf in leaves:
        path, place = [], leaf
        while place is not None:
            path.append(place)
            place = nodes[place].get("parent")
        parts = [part for k in reversed(path) for part in _v1_parts(nodes[k], f"{trace.get('id')}.{k}")]
        parts[0].origin = "prompt"
        yield Rollout(
            group, parts, None if is_failed else total, status,
            {name: None if one is None else one["score"] for name, one in rewards.items()},
            terminated=bool(trace.get("is_completed")), extras={"trace": rest(trace, "nodes")},
        )  # fmt: skip


def _v1_parts(node: Row, key: str) -> list[Part]:
    """Cut a message at its mask; logprobs and advantages are there only where it is true."""
    ids, mask = node.get("token_ids"), node.get("mask") or []
    message: Any = node.get("message")
    if not ids:
        return [Part("sampled" if node.get("sampled") else "observation", message=message, key=key)]
    if len(mask) != len(ids):
        raise DataError(f"node {key} has {len(mask)} mask values for {len(ids)} tokens")
    if not node.get("sampled"):
        return [Part("observation", ids, message=message, mask=mask if any(mask) else None, key=key)]
    spread: dict[str, list[float] | None] = {}
    for name in ("logprobs", "advantages"):
        values = node.get(name)
        if values and len(values) != sum(mask):
            raise DataError(f"node {key} has {len(values)} {name} for {sum(mask)} sampled tokens")
        compact = iter(values or ())
        spread[name] = [next(compact) if on else 0.0 for on in mask] if values else None
    parts = by_mask(ids, mask, spread["logprobs"], spread["advantages"])
    parts = [part for part in parts if part.tokens]
    for k, part in enumerate(parts):
        part.key = f"{key}.{k}"
        if part.origin == "prompt":
            part.origin = "observation"
    parts[-1].message = message
    return parts
