"""Dumps that hold text or numbers, and no tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rollwright.errors import DataError
from rollwright.interop.dump import Notes, Part, Rollout
from rollwright.interop.read import Row, need, number, rest

Rows = Iterable[Row]


def scored(group: str, prompt: Any, answer: Any, reward: float | None, **more: Any) -> Rollout:
    """Return a rollout of one turn."""
    status = "scored" if reward is not None else "not_scored"
    return Rollout(group, [text_part("prompt", prompt), text_part("sampled", answer)], reward, **
                   {"status": status} | more)  # fmt: skip


def text_part(origin: str, content: Any) -> Part:
    """Return text as it is, and messages as messages."""
    return Part(origin, text=content) if isinstance(content, str) else Part(origin, message=content)


def verl(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Rows of one sample; a group shares its input or (newer) its uid without the last two parts."""
    for row in rows:
        uid = row.get("uid")
        group = need(row, "input", str) if uid is None else str(uid).rsplit("_", 2)[0]
        more = {"step": int(row.get("step") or 0), "extras": rest(row, "input", "output", "score", "step")}
        yield scored(
            group, row["input"], need(row, "output", str), number(need(row, "score"), "score"), **more
        )


def verl_data(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Prompts to roll out, with what their grader needs."""
    for place, row in enumerate(rows):
        name = f"{row.get('data_source', 'verl')}/{place}"
        message = [dict(one) for one in need(row, "prompt")]
        yield Rollout(name, [Part("prompt", message=message)], None, "unknown", extras=rest(row, "prompt"))


def trl(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Neighbouring rows with one prompt are a group; every other numeric column is a reward or an extra."""
    run, last = 0, None
    for row in rows:
        place = (row.get("step"), json.dumps(need(row, "prompt"), default=str))
        run += place != last
        last = place
        others = rest(row, "step", "prompt", "completion", "advantage")
        names = [k for k, v in others.items() if v is None or (isinstance(v, int | float) and v is not True)]
        parts = {name: number(others[name], name) for name in names}
        kept = {name: value for name, value in others.items() if name not in parts}
        notes.add("rows without their total reward: its weights are in the config of the run")
        yield Rollout(
            f"trl/{run}",
            [text_part("prompt", row["prompt"]), text_part("sampled", need(row, "completion"))],
            None,
            "unknown",
            parts,
            int(row.get("step") or 0),
            extras=kept | {"advantage": row.get("advantage")},
        )


def openrlhf(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Prompts: `input` and `label`, the default names; it writes no rollouts."""
    for place, row in enumerate(rows):
        part = text_part("prompt", need(row, "input"))
        yield Rollout(f"openrlhf/{place}", [part], None, "unknown", extras=rest(row, "input"))


def atropos_sft(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """A prefix and its completion, or messages; one of the best of its group each."""
    for place, row in enumerate(rows):
        score = number(need(row, "score"), "score")
        if "messages" in row:
            from rollwright.interop.chats import of_messages

            kept = rest(row, "messages", "score")
            yield Rollout(f"atropos-sft/{place}", of_messages(row["messages"]), score, extras=kept)
        else:
            more = rest(row, "prefix", "completion", "score")
            yield scored(
                f"atropos-sft/{place}", need(row, "prefix"), need(row, "completion"), score, extras=more
            )


def skyrl(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Evaluation rows; a score by the token adds up to the total."""
    for row in rows:
        score = need(row, "score")
        if isinstance(score, list):
            notes.add("scores by the token: the reward is their sum")
        total = number(sum(score) if isinstance(score, list) else score, "score")
        stop = {"length": "length", "stop": "stop"}.get(row.get("stop_reason") or "")
        ends = {
            "stop": stop,
            "terminated": stop == "stop",
            "truncated": stop == "length",
            "kind": "evaluation",
        }
        kept = rest(row, "input_prompt", "output_response") if isinstance(score, list) else rest(
            row, "input_prompt", "output_response", "score")  # fmt: skip
        prompt, answer = need(row, "input_prompt"), need(row, "output_response")
        yield scored(json.dumps(prompt), prompt, answer, total, extras=kept, **ends)


def areal(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """A sample of a task; segments tell prompt, generated text and context apart."""
    origins = {"prompt": "prompt", "gen": "sampled", "context": "observation"}
    for row in rows:
        parts = [text_part(origins[one["role"]], one["text"]) for one in row.get("segments") or ()]
        if not parts:
            parts = [text_part("prompt", need(row, "prompt")), text_part("sampled", need(row, "completion"))]
        reward = number(need(row, "reward"), "reward")
        kept = rest(row, "prompt", "completion", "segments", "reward")
        step = int(need(row, "tail_version"))
        yield Rollout(f"areal/{need(row, 'task_id')}", parts, reward, step=step, extras=kept)


def roll(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """One line of columns."""
    for columns in rows:
        lists = {name: value for name, value in columns.items() if isinstance(value, list)}
        num = len(need(lists, "responses"))
        odd = [name for name, value in lists.items() if len(value) != num]
        if odd:
            raise DataError(
                f"the columns {odd} do not have {num} values, as 'responses' has; is the file cut?"
            )
        if len(lists) < len(columns):
            notes.add(f"columns that are no lists: {sorted(columns.keys() - lists.keys())}")
        for place in range(num):
            row = {name: value[place] for name, value in lists.items()}
            row["sampling_params"] = _json_or_text(row.get("sampling_params"))
            kept = rest(row, "prompt", "responses", "scores", "global_step")
            more = {"step": int(row.get("global_step") or 0), "extras": kept}
            reward = number(need(row, "scores"), "scores")
            yield scored(f"roll/{need(row, 'id')}", need(row, "prompt"), row["responses"], reward, **more)


def _json_or_text(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def tinker(rows: Rows, notes: Notes) -> Iterator[Rollout]:
    """Lengths and rewards only: each turn is an empty part, its lengths stand in the extras."""
    for row in rows:
        steps = need(row, "steps", list)
        parts = [Part(origin, text=None, message={"length": one[f"{name}_len"]})
                 for one in steps for origin, name in (("observation", "ob"), ("sampled", "ac"))]  # fmt: skip
        if not parts:
            parts = [Part("prompt")]
        parts[0].origin = "prompt"
        kind = "train" if row.get("split") == "train" else "evaluation"
        is_done = bool(steps) and bool(steps[-1].get("episode_done"))
        version = row.get("sampling_client_step")
        for part in parts:
            part.version = version if part.origin == "sampled" else None
        yield Rollout(
            f"tinker/{need(row, 'group_idx')}", parts, number(need(row, "total_reward"), "total_reward"),
            step=int(need(row, "iteration")), kind=kind, terminated=is_done, extras=rest(row, "total_reward"),
        )  # fmt: skip


TEXT_LACKS: Mapping[str, str] = {
    "tokens": "token ids: text only; it is never encoded again",
    "masks": "which tokens were trained",
    "logprobs": "logprobs of the sampled tokens",
    "version": "the version that sampled each token",
}
