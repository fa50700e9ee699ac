"""APRIL: more groups in flight than a batch needs; unfinished ones are carried over, never thrown away."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from methods_help import Run, SlotEngine, run, sampled

from rollwright.methods.april import april
from rollwright.methods.grpo import grpo
from rollwright.testing.fake import FakeEngine, ToyTask, toy_logits
from rollwright.tree import Group, Origin, Trajectory

LONG = ToyTask(num_tasks=40, max_tokens=100, context=128)


def by_name(result: Run) -> dict[tuple[str, str], tuple[tuple[int, ...], tuple[float, ...]]]:
    """Return what each trained rollout sampled, by group and stream."""
    return {(g.id, g.nodes[t.leaf].stream): sampled(g, t) for g, t in result.trained()}


def versions(group: Group, t: Trajectory) -> list[int]:
    return group.response(t).versions.tolist()


def test_no_token_is_discarded() -> None:
    """Oracle: ledger law. Every sampled token was trained or still waits; every batch is of one size."""
    result = run(april(each=4), task=LONG, engine=SlotEngine(16), num_steps=12, chunk=1)
    fates = result.ledger.fates
    assert fates["trained"] + fates["held"] == result.ledger.spent["sampled_tokens"]
    assert fates["trained"] > 0 < fates["held"]
    assert result.ledger.reasons == {}
    assert [len(batch.groups) for batch in result.batches] == [4] * 12
    assert [len(g.trajectories) for batch in result.batches for g in batch.groups] == [4] * 48


def test_resumed_output_equals_uninterrupted_output() -> None:
    """Oracle: other implementation. With unchanged weights a rollout is GRPO's own, token for token.

    The two runs visit the same tasks; a rollout is known by its group and stream.
    """
    carried = run(april(each=3), task=LONG, num_steps=10, chunk=1, publish=False)
    whole = run(grpo(each=3), task=LONG, num_steps=10, chunk=1, publish=False)
    assert any(len(group.path(t.leaf)) > 2 for group, t in carried.trained()), "nothing was interrupted"
    got, want = by_name(carried), by_name(whole)
    both = got.keys() & want.keys()
    assert len(both) > 60
    assert {name: got[name] for name in both} == {name: want[name] for name in both}


def test_mixed_versions_keep_their_own_logprobs() -> None:
    """Oracle: slow reference. Each token's logprob is that of its own version's weights at its prefix."""
    result = run(april(each=3), task=LONG, num_steps=8, chunk=1)
    num_mixed = 0
    for group, t in result.trained():
        response = group.response(t)
        num_mixed += len(set(response.versions.tolist())) > 1
        tokens = [*response.prompt, *response.tokens]
        for i, version in enumerate(response.versions.tolist()):
            at = len(response.prompt) + i
            logits = toy_logits(tokens[:at], 6, version)
            want = logits[tokens[at]] - np.logaddexp.reduce(logits)
            assert response.logp_old[i] == pytest.approx(want, abs=1e-12)
    assert num_mixed > 3


def test_every_column_is_as_long_as_the_response_after_a_resume() -> None:
    """Oracle: golden (THUDM/slime#1440). Tokens, logprobs, versions and credit have one entry a step.

    Versions never fall along a rollout, and what was sampled under old weights stays in it.
    """
    result = run(april(each=3), task=LONG, num_steps=8, chunk=1)
    mixed = [(g, t) for g, t in result.trained() if len(set(versions(g, t))) > 1]
    assert mixed
    for group, t in mixed:
        response = group.response(t)
        columns = (response.logp_old, response.versions, response.is_sampled, t.advantages)
        assert {len(column) for column in columns} == {len(response.tokens)}
        assert versions(group, t) == sorted(versions(group, t))
        assert response.is_sampled.all()
        assert np.isfinite(response.logp_old).all()


def test_steps_are_shorter_and_less_idle_on_a_long_tail() -> None:
    """Oracle: metamorphic. Decode iterations a step and idle slots, against GRPO on the same engine."""
    found = {}
    for method in (grpo(each=4), april(each=4, oversample=2.0)):
        result = run(method, task=LONG, engine=SlotEngine(16), num_steps=15, chunk=1)
        engine = result.engine
        found[method.name] = (engine.num_iterations / len(result.batches), engine.idle_share)
    print("decode iterations a step, idle share of slots:", found)
    assert found["april"][0] < 0.6 * found["grpo"][0], found
    assert found["april"][1] < 0.5 * found["grpo"][1], found


def test_carried_groups_come_first_and_new_ones_top_up() -> None:
    """Oracle: closed form. A step begins with N′ = 2·(4 − held) groups, the carried ones before new ones."""
    views = {}

    class Watch:
        def __call__(self, event, view):  # type: ignore[no-untyped-def]
            views.setdefault(view.step, view)
            return ()

    method = april(each=4, oversample=2.0)
    method = dataclasses.replace(method, control=(Watch(), *method.control))
    result = run(method, task=LONG, engine=SlotEngine(64), num_steps=10, chunk=1)
    for view in views.values():
        assert len(view.groups) == 2 * (4 - view.num_held)
        carried = [group.is_carried for group in view.groups]
        assert carried == sorted(carried, reverse=True)
    assert any(view.num_held for view in views.values())
    assert all(any(g.is_carried for g in view.groups) for view in list(views.values())[1:])
    trained = [g.id for batch in result.batches for g in batch.groups]
    assert len(set(trained)) == len(trained) == 40, "a group was trained twice"


def test_a_slow_task_is_trained_too() -> None:
    """Oracle: golden (tinker-cookbook#822). What is always slower than a step is carried until it is done.

    One task in four takes six times as many tokens as the others; each task is trained in the end.
    """

    class Uneven(SlotEngine):
        """A rollout ends at 5 tokens; those of the slow task, whose prompt begins with 4, at 30."""

        def submit(self, command, prefix):  # type: ignore[no-untyped-def]
            end = 2 + (30 if prefix[0] == 4 else 5)
            command = type(command)(**{**_fields(command), "max_tokens": max(1, end - command.start)})
            super().submit(command, prefix)

    task = ToyTask(num_tasks=4, max_tokens=40, context=64)
    result = run(
        april(each=2, oversample=2.0), task=task, engine=Uneven(64), num_tasks=2, num_steps=24, chunk=1
    )
    trained = {group.task for group, _ in result.trained()}
    assert trained == set(task.ids("train"))
    slow = [group for group, _ in result.trained() if group.task.endswith("/3")]
    assert any(len({n.version for n in g.nodes.values() if n.origin is Origin.SAMPLED}) > 2 for g in slow)


def _fields(command):  # type: ignore[no-untyped-def]
    return {name: getattr(command, name) for name in command.__struct_fields__}


def test_without_oversampling_it_is_grpo() -> None:
    """Oracle: other implementation. oversample=1 gives GRPO's batches, bit for bit."""
    assert run(april(each=4, oversample=1.0)).batches == run(grpo(each=4)).batches


def test_it_bites_and_says_what_it_breaks() -> None:
    """Oracle: metamorphic. Other batches than GRPO's; two orders of arrival may train other groups, but
    with unchanged weights a rollout is the same in both, which is what is left of law 2."""
    plain = run(grpo(each=3), task=LONG, num_steps=6, chunk=1, publish=False)
    first = run(april(each=3), task=LONG, num_steps=6, chunk=1, publish=False)
    assert by_name(first).keys() != by_name(plain).keys()
    assert {"off_policy", "arrival"} <= april().declares
    for arrival in range(3):
        engine = FakeEngine(arrival=arrival)
        other = run(april(each=3), task=LONG, engine=engine, num_steps=6, chunk=1, publish=False)
        both = by_name(first).keys() & by_name(other).keys()
        assert len(both) > 20
        assert all(by_name(first)[name] == by_name(other)[name] for name in both)


def test_the_same_order_of_arrival_gives_the_same_run() -> None:
    """Oracle: metamorphic. Nothing but arrival decides: two runs are equal, bit for bit."""
    runs = [run(april(each=3), task=LONG, engine=FakeEngine(arrival=5), num_steps=6, chunk=1) for _ in "ab"]
    assert runs[0].batches == runs[1].batches
