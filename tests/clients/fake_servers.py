"""Answers in the shape that vLLM, SGLang and llama.cpp document, over a fixed next-token table."""

from __future__ import annotations

import math
from typing import Any

from client_help import Script

# p(token) ∝ exp(LOGITS[token] / temperature), whatever came before.
LOGITS = {3: 2.0, 4: 1.0, 5: 0.0, 6: -1.0, 7: -2.0}


def logprobs(temperature: float = 1.0) -> dict[int, float]:
    total = math.log(sum(math.exp(v / temperature) for v in LOGITS.values()))
    return {token: v / temperature - total for token, v in LOGITS.items()}


def top(temperature: float, num: int) -> list[tuple[int, float]]:
    return sorted(logprobs(temperature).items(), key=lambda pair: -pair[1])[:num]


class FakeVLLM(Script):
    """``/v1/completions`` of vLLM; ``mode`` is its --logprobs-mode."""

    def __init__(self, *answers, mode: str = "processed_logprobs", has_ids: bool = True) -> None:
        super().__init__("vllm", "/v1/completions", *answers)
        self.mode, self.has_ids = mode, has_ids

    def probe(self, body):
        return [self.message(body, [3], "length")]

    def message(self, body, tokens, finish=None, stop_reason=None, **changes) -> dict[str, Any]:
        temperature = body["temperature"] or 1.0
        temperature = temperature if self.mode == "processed_logprobs" else 1.0
        values = logprobs(temperature)
        tops = [dict((f"token_id:{t}", p) for t, p in top(temperature, body["logprobs"])) for _ in tokens]
        for token, row in zip(tokens, tops, strict=True):
            row[f"token_id:{token}"] = values[token]
        choice = {
            "index": 0,
            "text": "x" * len(tokens),
            "logprobs": {
                "tokens": [f"token_id:{t}" for t in tokens],
                "token_logprobs": [values[t] for t in tokens],
                "top_logprobs": tops,
                "text_offset": [0] * len(tokens),
            },
            "finish_reason": finish,
            "stop_reason": stop_reason,
            "prompt_token_ids": body["prompt"],
        }
        if self.has_ids and body.get("return_token_ids"):
            choice["token_ids"] = list(tokens)
        return {"id": "cmpl-1", "object": "text_completion", "choices": [choice | changes]}

    def says(self, *runs, finish="stop", stop_reason=None, **changes):
        """Return an answer: one message for each run of tokens."""

        def answer(body):
            last = len(runs) - 1
            return [
                run
                if isinstance(run, (str, float, bytes))
                else self.message(
                    body, run, finish if i == last else None, stop_reason if i == last else None, **changes
                )
                for i, run in enumerate(runs)
            ]

        return answer


class FakeSGLang(Script):
    """``/generate`` of SGLang."""

    def __init__(self, *answers, is_incremental: bool = False, version="default", is_original: bool = False):
        super().__init__("sglang", "/generate", *answers)
        self.is_incremental, self.version, self.is_original = is_incremental, version, is_original

    def probe(self, body):
        return [self.message(body, [], [3], {"type": "length", "length": 1})]

    def message(self, body, before, tokens, finish=None, **changes) -> dict[str, Any]:
        temperature = 1.0 if self.is_original else body["sampling_params"]["temperature"] or 1.0
        values, num = logprobs(temperature), body["top_logprobs_num"]
        shown = tokens if self.is_incremental else [*before, *tokens]
        meta = {
            "id": "r",
            "finish_reason": finish,
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(before) + len(tokens),
            "cached_tokens": 1,
            "weight_version": self.version,
            "output_token_logprobs": [[values[t], t, None] for t in shown],
            "output_top_logprobs": [[[p, t, None] for t, p in top(temperature, num)] for _ in shown],
        }
        return {"text": "x", "output_ids": list(shown), "meta_info": meta | changes}

    def says(self, *runs, finish=None, versions=None, **changes):
        def answer(body):
            before, messages = [], []
            for i, run in enumerate(runs):
                if isinstance(run, (str, float, bytes)):
                    messages.append(run)
                    continue
                self.version = versions[i] if versions else self.version
                end = finish if i == len(runs) - 1 else None
                messages.append(self.message(body, before, run, end, **changes))
                before = [*before, *run]
            return messages

        return answer


class FakeLlamaCpp(Script):
    """``/completion`` of llama.cpp: a token a message, then the end."""

    def __init__(self, *answers) -> None:
        super().__init__("llamacpp", "/completion", *answers)

    def probe(self, body):
        return self.says([3], kind="limit")(body)

    def says(self, tokens, kind="eos", unsent=0, truncated=False, after=()):
        def answer(body):
            is_post = body["post_sampling_probs"]
            values = logprobs(body["temperature"] if is_post else 1.0)
            messages: list[Any] = []
            for token in tokens:
                value, others = ("prob", "top_probs") if is_post else ("logprob", "top_logprobs")
                rows = [
                    (t, math.exp(p) if is_post else p)
                    for t, p in top(body["temperature"] if is_post else 1.0, body["n_probs"])
                ]
                entry = {
                    "id": token,
                    "token": "x",
                    "bytes": [120],
                    value: math.exp(values[token]) if is_post else values[token],
                    others: [{"id": t, "token": "x", value: p} for t, p in rows],
                }
                messages.append(
                    {"content": "x", "tokens": [token], "stop": False, "completion_probabilities": [entry]}
                )
            messages += after
            end = {"content": "", "tokens": [], "stop": True, "stop_type": kind, "truncated": truncated}
            return [*messages, end | {"tokens_predicted": len(tokens) + unsent, "stopping_word": ""}]

        return answer
