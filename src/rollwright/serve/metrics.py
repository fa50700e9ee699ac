"""Counters and histograms in Prometheus' text format, under vLLM's names with a prefix of our own."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rollwright.events import Sampled
from rollwright.tree import StopReason

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_FINISHED = {
    StopReason.EOS: "stop",
    StopReason.STOP: "stop",
    StopReason.LENGTH: "length",
    StopReason.CONTEXT: "length",
    StopReason.INTERRUPTED: "abort",
}


class Histogram:
    """Counts by upper bound, in seconds."""

    def __init__(self, bounds: Sequence[float] = _SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """What a server counts. Touched on the event loop's thread only."""

    def __init__(self) -> None:
        self.prompt_tokens = self.prefilled_tokens = self.generation_tokens = self.refused = 0
        self.finished: Counter[str] = Counter(dict.fromkeys(_FINISHED.values(), 0))
        self.time_to_first_token, self.latency = Histogram(), Histogram()

    def sampled(self, event: Sampled) -> None:
        """Count a chunk."""
        self.generation_tokens += len(event.tokens)
        self.prefilled_tokens += event.prefilled

    def ended(self, stop: StopReason, num_prompt: int, seconds: float, to_first: float | None) -> None:
        """Count an ask that ended."""
        self.finished[_FINISHED.get(stop, "error")] += 1
        self.prompt_tokens += num_prompt
        self.latency.observe(seconds)
        if to_first is not None:
            self.time_to_first_token.observe(to_first)

    def text(self, model: str, memory: Mapping[str, int], version: int, num_rollouts: int) -> str:
        """Return the page.

        Args:
            model: the model's name, a label of every line.
            memory: the engine's own report (`LocalEngine.memory_report`).
            version: of the weights.
            num_rollouts: rollouts that are recorded.
        """
        label = 'model_name="{}"'.format(model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        budget = memory.get("kv_budget_bytes", 0)
        gauges = {
            "num_requests_running": ("Sequences that decode.", memory.get("num_decoding", 0)),
            "num_requests_waiting": ("Sequences that wait for room.", memory.get("num_waiting", 0)),
            "kv_cache_usage_perc": (
                "Share of the budget for keys and values in use, from 0 to 1.",
                memory.get("kv_live_bytes", 0) / budget if budget else 0.0,
            ),
            "weights_version": ("Version of the weights.", version),
            "num_rollouts": ("Rollouts that are recorded.", num_rollouts),
        }
        counters = {
            "prompt_tokens": ("Tokens of prompts.", self.prompt_tokens),
            "prefilled_tokens": ("Tokens of prompts computed, not found in a cache.", self.prefilled_tokens),
            "generation_tokens": ("Tokens sampled.", self.generation_tokens),
            "requests_refused": ("Requests refused because too many were open.", self.refused),
        }
        lines = [
            line
            for name, (text, value) in gauges.items()
            for line in _plain(name, "gauge", text, label, value)
        ]
        for name, (text, value) in counters.items():
            lines += _plain(f"{name}_total", "counter", text, label, value)
        name = "rollwright:request_success_total"
        lines += [f"# HELP {name} Completions by why they ended.", f"# TYPE {name} counter"]
        lines += [f'{name}{{finished_reason="{why}",{label}}} {num}' for why, num in self.finished.items()]
        lines += _buckets(
            "time_to_first_token_seconds", "Seconds to the first token.", label, self.time_to_first_token
        )
        lines += _buckets("e2e_request_latency_seconds", "Seconds of whole completions.", label, self.latency)
        return "\n".join(lines) + "\n"


def _plain(name: str, kind: str, text: str, label: str, value: float) -> list[str]:
    name = f"rollwright:{name}"
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{{{label}}} {value}"]


def _buckets(name: str, text: str, label: str, histogram: Histogram) -> Iterator[str]:
    name = f"rollwright:{name}"
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} histogram"
    num = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        num += count
        yield f'{name}_bucket{{le="{bound}",{label}}} {num}'
    yield f"{name}_sum{{{label}}} {histogram.total}"
    yield f"{name}_count{{{label}}} {num}"
