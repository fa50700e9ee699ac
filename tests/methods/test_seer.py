"""Seer: the same rollouts in chunks, placed anew, the longest groups first after a probe of each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from methods_help import run

from rollwright import rng as randomness
from rollwright.drive.virtual import (
    Constant,
    EngineModel,
    LearnerModel,
    LogNormal,
    Model,
    ServiceModel,
    TaskModel,
)
from rollwright.drive.virtual.content import ModelledContent
from rollwright.errors import ConfigError
from rollwright.events import Submit
from rollwright.lab.simulate import simulate
from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.methods.seer import seer
from rollwright.runner import Settings
from rollwright.stage import Ask, AskScore, Plan, PlanView, Want
from rollwright.testing.fake import ToyTask

# 16 places for 256 rollouts; a step's cost does not depend on the batch, so that only the order counts.
ENGINE = EngineModel(num_workers=4, num_slots=4, step_seconds=0.01, sequence_seconds=0.0, prefill_seconds=0.0)


def model(alike: float = 0.95, **engine: Any) -> Model:
    return Model(
        engine=dataclasses.replace(ENGINE, **engine),
        tasks=TaskModel(Constant(16), LogNormal(200, 1), alike=alike),
        services=ServiceModel(Constant(0), Constant(0), Constant(0)),
        learner=LearnerModel(0.0, 0.0),
    )


def settings(**changes: Any) -> Settings:
    fields: dict[str, Any] = {"seed": 0, "tasks": tuple(f"t/{i}" for i in range(96)), "num_steps": 3}
    fields |= {"num_tasks": 32, "context": 8192, "max_tokens": 4096, "chunk": 0}
    return Settings(**{**fields, **changes})


@dataclass(frozen=True, slots=True)
class Oracle:
    """Knows every length: rollouts by true length, the longest first (LPT), as chunks cannot be better."""

    model: Any

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        content, visit = ModelledContent(self.model), view.group.rpartition("#")[2]
        keys = [randomness.stream_key(0, view.task, f"{visit}/{k}") for k in range(num)]
        lengths = [content.length(view.task, key, 16, 0) for key in keys]
        nodes = yield Want([Ask(view.root, priority=length) for length in lengths])
        yield Want([AskScore(node.id) for node in nodes])


@cache
def seconds(name: str, alike: float = 0.95) -> float:
    """Return the mean time of a step."""
    oracle = dataclasses.replace(grpo(), generate=Oracle(model(alike)))
    methods: dict[str, Method] = {"fifo": grpo(), "oracle": oracle, "seer": seer(chunk=64)}
    methods["no probe"] = seer(chunk=64, probe=False)
    return simulate(methods[name], settings(), model(alike)).seconds / 3


def test_a_step_is_shorter_than_first_come_first_served_and_near_the_oracle() -> None:
    """Oracle: list scheduling by the true lengths (LPT). Where a group's lengths are alike, a probe tells
    them: Seer's step is shorter than FIFO's and within 15% of the one that knows every length."""
    print({name: round(seconds(name), 2) for name in ("fifo", "no probe", "seer", "oracle")})
    assert seconds("seer") < 0.9 * seconds("fifo")
    assert seconds("seer") < 1.15 * seconds("oracle")


def test_the_probe_is_what_tells() -> None:
    """Oracle: metamorphic. Without a probe, and where lengths of a group have nothing in common, less is
    gained over FIFO."""
    gain = seconds("fifo") / seconds("seer")
    assert seconds("no probe") > seconds("seer")
    assert seconds("fifo", 0.0) / seconds("seer", 0.0) < gain


def test_chunked_is_unchunked() -> None:
    """Oracle: other implementation. Tokens, logprobs, rewards and credit are GRPO's for any chunk."""

    def rows(method: Method) -> list[Any]:
        result = run(method, task=ToyTask(num_tasks=8, max_tokens=30, context=48), num_steps=3)
        return [(g.id, t.index, g.response(t).tokens, tuple(g.response(t).logp_old), t.advantages, t.stop)
                for g, t in result.trained()]  # fmt: skip

    want = rows(grpo(each=4))
    for chunk in (1, 3, 7, 100):
        assert rows(seer(each=4, chunk=chunk)) == want


def test_turns_of_a_dialogue_are_chunked_too() -> None:
    """Oracle: other implementation. Dialogues are GRPO's, and no ask is for more than a chunk."""
    task = ToyTask(max_turns=3, max_tokens=9, context=60)
    found = []
    for method in (grpo(each=4), seer(each=4, chunk=2)):
        result = run(method, task=task, num_steps=2)
        found.append([(g.id, t.index, g.response(t).tokens, t.num_turns, t.any_turn_cut)
                      for g, t in result.trained()])  # fmt: skip
    assert found[0] == found[1]
    assert any(row[3] > 1 for row in found[0])


def test_priorities_follow_the_probe() -> None:
    """Oracle: by hand. The first rollout leads; the others get the limit until one of the group has ended,
    then the longest that was seen."""
    seen: list[tuple[str, int]] = []

    class Journal:
        def append(self, event: Any, commands: Any) -> None:
            seen.extend((c.ask, c.priority) for c in commands if isinstance(c, Submit))

        def flush(self) -> None:
            pass

    from rollwright.drive.virtual import VirtualDriver
    from rollwright.runner import Runner

    one = settings(tasks=("t/0",), num_tasks=1, num_steps=1)
    engine = dataclasses.replace(ENGINE, num_workers=1, num_slots=1)
    content = ModelledContent(model())
    lengths = [content.length("t/0", randomness.stream_key(0, "t/0", f"0/{k}"), 16, 0) for k in range(2)]
    driver = VirtualDriver(Runner(seer(2, chunk=50), one), Model(engine, model().tasks), journal=Journal())
    driver.run()
    probes = [priority for ask, priority in seen if ask.split("/")[-1].startswith("0:")]
    others = [priority for ask, priority in seen if ask.split("/")[-1].startswith("1:")]
    assert probes == [(1 << 30) + 4096 - 50 * k for k in range(-(-lengths[0] // 50))]
    assert others[0] == 4096
    for k, priority in enumerate(others[1:], start=1):
        assert priority == max(lengths[0], 50 * k)


def test_what_cannot_be_is_refused() -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError, match="chunk = 0"):
        seer(chunk=0)
