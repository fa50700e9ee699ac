"""The code inside the actors, called directly; and the placement that keeps groups together."""

from __future__ import annotations

import numpy as np
import pytest
from ray_help import ToySampler, ToyTrainer, toy_world

from rollwright.drive.place.group_home import GroupHome
from rollwright.drive.placement import Fleet, Job, Placement
from rollwright.drive.ray import actors
from rollwright.drive.ray.actors import Grader, Learner, RolloutWorker, Submission
from rollwright.drive.ray.actors import Job as Work
from rollwright.errors import EngineError, LawBroken
from rollwright.events import Abort, EmitBatch, Failed, Reset, Retire, Submit
from rollwright.tree import Sampling, StopReason


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    monkeypatch.setattr(actors, "place", lambda: actors.Place("machine", 1))


def submission(ask="g#0/0:0", **changes) -> Submission:
    fields = {"group": "g#0", "parent": "g#0/root", "at": 2, "stream": 1, "start": 2, "max_tokens": 40}
    return Submission(Submit(ask=ask, sampling=Sampling(), **{**fields, **changes}), [1, 2])


def worker(version=0) -> RolloutWorker:
    it = RolloutWorker()
    it.begin(ToySampler)
    it.publish(version, {"version": np.full(3, version)})
    return it


def test_orders_take_effect_in_order():
    """Oracle: hand. A submit and its abort in one call: it was begun and stopped; the ask is free again."""
    it = worker()
    (answer,) = it.work([submission(chunk=1), Abort(ask="g#0/0:0")]).answers
    assert answer.stop is StopReason.INTERRUPTED and it.engine.num_live == 0
    worked = it.work([Abort(ask="g#0/0:0"), submission(chunk=1, attempt=1)])
    assert worked.num_live == 1 and [a.attempt for a in worked.answers] == [1]


def test_an_abort_of_what_has_ended_is_passed_over():
    """Oracle: hand. Its last chunk is on the way already; nothing else may be said about it."""
    it = worker()
    assert it.work([submission(max_tokens=1)]).answers[0].stop is not None
    assert it.work([Abort(ask="g#0/0:0"), Retire(group="g#0")]).answers == []


def test_nothing_is_sampled_without_weights():
    """Oracle: the error. A worker that was just made has an engine of no version."""
    it = RolloutWorker()
    it.begin(ToySampler)
    with pytest.raises(LawBroken, match="has no weights yet"):
        it.work([submission()])


def test_chunks_say_which_weights_made_them():
    """Oracle: the order of calls: what was made before the new weights has the old version."""
    it = worker(4)
    first = it.work([submission(chunk=1, stream=5)])
    assert it.publish(7, {"version": np.full(3, 7)}) == 7
    second = it.work([])
    assert [a.version for a in (*first.answers, *second.answers)] == [4, 7]


def test_an_ask_that_is_refused_has_failed():
    """Oracle: hand. The engine's word, as a failure of the engine, beside the answers of the others."""

    class Picky(ToySampler):
        def submit(self, command, prefix):
            if command.ask == "bad":
                raise EngineError("too long")
            super().submit(command, prefix)

    it = worker()
    it.begin(Picky)
    it.publish(1, {"version": np.full(3, 1)})
    worked = it.work([submission("bad"), submission("good", chunk=1)])
    assert worked.answers == [Failed(ask="bad", kind="engine", message="too long")]
    assert worked.num_live == 1 and it.work([]).answers[0].ask == "good"


def test_a_grader_forgets_what_was_retired():
    """Oracle: the world's own cache."""
    it = Grader()
    it.begin(toy_world)
    it.world._states.update({"g#0/0.0": 1, "g#1/0.0": 2})
    command = Reset(ask="h#0/root", group="h#0", task="toy/train/3")
    (answer,) = it.serve([Work(command, "toy/train/3", {})], ["g#0"]).answers
    assert answer.tokens == (4, 2) and list(it.world._states) == ["g#1/0.0"]


def test_a_restored_learner_has_trained_what_came_since():
    """Oracle: one that was never restored."""
    batches = [EmitBatch(step=step, version=step, groups=()) for step in range(5)]
    whole, other = Learner(), Learner()
    whole.begin(ToyTrainer), other.begin(ToyTrainer)
    for batch in batches[:2]:
        whole.train(batch)
    files = whole.save()
    for batch in batches[2:]:
        published, weights = whole.train(batch)
    version, restored = other.restore(files, *batches[2:])
    assert version == published.version == 5 and other.trainer.steps == whole.trainer.steps == list(range(5))
    assert np.array_equal(weights["version"], restored["version"])


def job(group: str, number: int = 0, priority: int = 0) -> Job:
    return Job(ask=f"{group}/{number}", group=group, number=number, priority=priority)


def placed(placer, fleet) -> list[tuple[str, int]]:
    found = []
    while (next_one := placer.take(fleet)) is not None:
        found.append((next_one[0].ask, next_one[1]))
        fleet.seat(next_one[1])
    return found


def test_a_group_stays_where_it_began_and_spills_over():
    """Oracle: hand, on two workers with three places each."""
    assert isinstance(GroupHome(), Placement)
    fleet, placer = Fleet([3, 3]), GroupHome().make()
    for number, group in enumerate(["a", "a", "b", "a", "a"]):
        placer.enter(job(group, number))
    assert placed(placer, fleet) == [("a/0", 0), ("a/1", 0), ("b/2", 1), ("a/3", 0), ("a/4", 1)]
    fleet.free(0)
    placer.enter(job("a", 5))
    assert placed(placer, fleet) == [("a/5", 0)]  # what spilled over did not move the home
    placer.enter(job("b", 6))
    placer.enter(job("c", 7, priority=1))
    assert placed(placer, fleet) == [("c/7", 1)]  # the larger priority first; then it is full
    placer.retire("b")
    fleet.free(0)
    assert placed(placer, fleet) == [("b/6", 0)]


def test_a_group_whose_worker_is_gone_finds_another_home():
    """Oracle: hand."""
    fleet, placer = Fleet([3, 3]), GroupHome().make()
    placer.enter(job("a", 0))
    assert placed(placer, fleet) == [("a/0", 0)]
    fleet.free(0)
    fleet.set_open(0, False)
    placer.enter(job("a", 1))
    assert placed(placer, fleet) == [("a/1", 1)]
    fleet.set_open(0, True)
    placer.enter(job("a", 2))
    assert placed(placer, fleet) == [("a/2", 1)]
