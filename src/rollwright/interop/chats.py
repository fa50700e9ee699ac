"""Dumps of messages: verifiers, tau-bench, SWE-agent, OpenAI chat lines, ShareGPT."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rollwright.errors import DataError
from rollwright.interop.dump import Notes, Part, Rollout
from rollwright.interop.read import Row, need, number, rest
from rollwright.interop.texts import Rows

_SHAREGPT = {"human": "prompt", "system": "prompt", "observation": "observation", "gpt": "sampled",
             "function_call": "sampled"}  # fmt: skip


def of_messages(messages: Sequence[Row]) -> list[Part]:
    """Return the parts of a dialogue: the messages before the first answer are the prompt.

    Messages are kept as they are; a tool call's arguments stay the text that the model wrote.
    """
    first = next((k for k, one in enumerate(messages) if one.get("role") == "assistant"), len(messages))
    parts = [Part("prompt", message=list(messages[:first]))]
    for one in messages[first:]:
        parts.append(Part("sampled" if one.get("role") == "assistant" else "observation", message=one))
    return parts


def verifiers(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Rollouts of examples; one with an error has no reward, whatever stands there."""
    for row in rows:
        if "outputs" in row and "metadata" in row:
            yield from verifiers(row["outputs"], notes)
            continue
        prompt, answer = row.get("prompt") or [], row.get("completion") or []
        messages = [*_messages(prompt, "user"), *_messages(answer, "assistant")]
        is_failed = bool(row.get("error"))
        if is_failed:
            notes.add("rollouts with an error: they are failed, their reward is not taken")
        metrics = row.get("metrics") or {}
        yield Rollout(
            f"verifiers/{need(row, 'example_id')}",
            of_messages(messages),
            None if is_failed else number(need(row, "reward"), "reward"),
            "failed" if is_failed else "scored",
            {name: number(value, name) for name, value in metrics.items()},
            kind="evaluation",
            terminated=bool(row.get("is_completed")) and not row.get("is_truncated"),
            truncated=bool(row.get("is_truncated")),
            extras=rest(row, "prompt", "completion", "metrics"),
        )


def _messages(given: Any, role: str) -> list[Row]:
    return [{"role": role, "content": given}] if isinstance(given, str) else list(given)


def tau_bench(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Trials of a task; a run that crashed stands there with reward 0 and is failed."""
    for row in rows:
        info = row.get("info") or {}
        is_failed = "error" in info
        if is_failed:
            notes.add("crashed runs with reward 0: they are failed, their reward is not taken")
        yield Rollout(
            f"tau-bench/{need(row, 'task_id')}",
            of_messages(need(row, "traj", list)),
            None if is_failed else number(need(row, "reward"), "reward"),
            "failed" if is_failed else "scored",
            kind="evaluation",
            extras=rest(row, "traj"),
        )


def swe_agent(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """One trajectory a file; its answers are raw model text. The reward is in another file."""
    for row in rows:
        steps, history = need(row, "trajectory", list), row.get("history") or []
        prompt = steps[0].get("query") if steps else None
        if prompt is None:  # older files
            prompt = [one for one in history if one.get("role") != "assistant"][:2]
            notes.add("older files without the query of each call: the prompt is the head of the history")
        parts = [Part("prompt", message=prompt)]
        for one in steps:
            parts.append(Part("sampled", text=need(one, "response", str)))
            parts.append(Part("observation", text=one.get("observation") or ""))
        status = str((row.get("info") or {}).get("exit_status"))
        replay = row.get("replay_config")
        extras = rest(row, "replay_config") | {"replay_config": json.loads(replay) if replay else None}
        is_done = status.startswith("submitted")
        yield Rollout(
            "swe-agent", parts, None, "unknown", kind="evaluation", terminated=is_done, extras=extras
        )


def openai_chat(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Messages of a line, or the choices of a response; ids are there only where a vendor adds them."""
    for place, row in enumerate(rows):
        group = f"openai-chat/{row.get('task') or row.get('id') or place}"
        if "messages" in row:
            reward = number(row.get("reward"), "reward")
            status = "unknown" if "reward" not in row else "not_scored" if reward is None else "scored"
            parts = of_messages(need(row, "messages", list))
            yield Rollout(group, parts, reward, status, extras=rest(row, "messages", "reward"))
            continue
        for choice in need(row, "choices", list):
            yield _choice(row, choice, group, notes)


def _choice(row: Row, choice: Row, group: str, notes: Notes) -> Rollout:
    tokens = choice.get("token_ids")
    content = (choice.get("logprobs") or {}).get("content") or []
    logprobs = [one["logprob"] for one in content]
    if -9999.0 in logprobs:
        notes.add("logprobs of -9999 (too small to say): they are null")
    logprobs = [None if value <= -9999.0 else value for value in logprobs]
    if logprobs and tokens is None:
        notes.add("logprobs without token ids: they stay in the extras")
    prompt = Part("prompt", row.get("prompt_token_ids") if tokens is not None else None)
    answer = Part("sampled", tokens if prompt.tokens is not None else None, message=choice.get("message"))
    if answer.tokens is not None and len(logprobs) == len(answer.tokens):
        answer.logprobs = logprobs
    reason = choice.get("finish_reason")
    stop = {"stop": "stop", "length": "length", "tool_calls": "stop"}.get(reason or "")
    extras = rest(row, "choices") | {"choice": rest(choice, "message")}
    return Rollout(
        group, [prompt, answer], None, "unknown", stop=stop, truncated=stop == "length", extras=extras
    )


def sharegpt(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Turns of people and models, or a pair of answers of which one is better."""
    for place, row in enumerate(rows):
        turns = need(row, "conversations", list)
        head = [{"role": "system", "content": row["system"]}] if row.get("system") else []
        parts: list[Part] = []
        for one in turns:
            origin = _SHAREGPT.get(one["from"])
            if origin is None:
                raise DataError(f"'from' is {one['from']!r}; expected one of {', '.join(_SHAREGPT)}")
            if not parts:
                first = [*head, one] if origin == "prompt" else head
                parts.append(Part("prompt", message=first))
                if origin == "prompt":
                    continue
            parts.append(Part("observation" if origin == "prompt" else origin, message=one))
        extras = rest(row, "conversations", "chosen", "rejected")
        parts = parts or [Part("prompt", message=head)]
        pair = [(name, row[name]) for name in ("chosen", "rejected") if name in row]
        for name, answer in pair:
            chosen = [*parts, Part("sampled", message=answer)]
            yield Rollout(f"sharegpt/{place}", chosen, None, "unknown", extras=extras | {"preference": name})
        if not pair:
            yield Rollout(f"sharegpt/{place}", parts, None, "unknown", extras=extras)
