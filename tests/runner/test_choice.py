"""What each step's batch was chosen from, in its metrics: against the journal's own account, and by hand."""

from __future__ import annotations

import msgspec
import pytest

from rollwright.discovery import load_method
from rollwright.events import Published, Score, Started, Submit
from rollwright.lab.bias import _there
from rollwright.lab.distance import selection_distance
from rollwright.lab.population import Population
from rollwright.lab.records import decoded
from rollwright.store.codec import decision_bytes
from rollwright.testing.fake import ToyTask
from rollwright.testing.hand import Hand
from rollwright.testing.scenarios import Scenario, play
from rollwright.tree import StopReason

LONG_TAIL = Scenario(
    "long tail", ToyTask(num_tasks=9, max_tokens=40, context=60), {"chunk": 2, "num_steps": 5}
)
DIALOGUE = Scenario("dialogue", ToyTask(num_tasks=9, max_turns=3), {"num_steps": 5})
METHODS = {
    "grpo": {"each": 4},
    "april": {"each": 4},
    "dapo": {"each": 4, "max_rounds": 3},
    "copris": {"each": 4, "num_flying": 10},
    "rlep": {"each": 4},
}


def said_by_the_journal(population: Population, step: int) -> dict[str, float | None]:
    """Return what the journal so far says of the close of ``step`` (`rollwright.lab.bias`)."""
    k = population.closes.index(step)
    samples = [s for s in population.samples.values() if population._is_there(s)]
    here = _there(population, samples)[k]
    sampled = [s for s in here if s.spans]
    found: dict[str, float | None] = {
        "choice_num_there": len(sampled),
        "choice_num_trained": sum(s.trained_in == k for s in sampled),
    }
    rows = {
        "length": [(float(s.num_tokens), s) for s in sampled],
        "seconds": [(s.seconds, s) for s in here if s.seconds is not None],
        "reward": [(s.reward, s) for s in here if s.reward is not None],
    }
    for name, pairs in rows.items():
        values, chosen = [value for value, _ in pairs], [s.trained_in == k for _, s in pairs]
        trained = [value for value, is_in in zip(values, chosen, strict=True) if is_in]
        found[f"choice_{name}_there"] = sum(values) / len(values) if values else None
        found[f"choice_{name}_trained"] = sum(trained) / len(trained) if trained else None
        found[f"choice_{name}_distance"] = selection_distance(values, chosen)
    tasks = {s.task for s in population.samples.values() if s.spans and s.first <= k}
    done = {s.task for s in population.samples.values() if s.is_trained}
    found["num_tasks_sampled"], found["num_tasks_never_trained"] = len(tasks), len(tasks - done)
    return found


@pytest.mark.parametrize("scenario", [LONG_TAIL, DIALOGUE], ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("name", METHODS)
def test_every_step_says_what_the_journal_says(name: str, scenario: Scenario):
    """Oracle: other implementation. The journal up to each update, read by `rollwright.lab.population`.

    Kills: rollouts under way left out, groups of later steps counted, trained ones counted from the batch."""
    outcome = play(load_method(name, **METHODS[name]), scenario)
    population, num_biased, num_steps = Population(), 0, 0
    for event, commands in outcome.events:
        population.take(event, decoded(decision_bytes(commands)))
        for report in (c for c in commands if type(c).__name__ == "Report"):
            if not isinstance(event, Published):
                continue  # no batch: nothing was chosen
            want = said_by_the_journal(population, report.step)
            assert {key: report.metrics[key] for key in want} == pytest.approx(want), report.step
            num_biased += report.metrics["choice_length_distance"] > 0.1
            num_steps += 1
    assert num_steps >= 3
    if name == "grpo":
        assert num_biased == 0, "it trains on all that it samples"
    if name in ("april", "copris") and scenario is LONG_TAIL:
        assert num_biased > 0, "an early close prefers short ones"


def test_an_early_close_by_hand():
    """Oracle: hand. Of four rollouts two are graded, 5 and 9 seconds after their prompt; one has 4 tokens,
    and one none, when the step closes at its first complete group."""
    hand = Hand(load_method("april", each=2), num_tasks=1, num_steps=2, chunk=2)

    def at(seconds: float, answer, *args, **fields) -> None:
        step = hand.runner.step
        hand.runner.step = lambda event: step(msgspec.structs.replace(event, at=seconds))
        answer(*args, **fields)
        hand.runner.step = step

    at(1.0, hand.send, Started())
    at(2.0, hand.reset)
    first, second, third, _ = hand.asks(Submit)
    at(3.0, hand.sample, third, (3, 3), stop=None)
    at(3.5, hand.sample, third, (4,), stop=None)
    at(4.0, hand.sample, first, (3, 0))
    at(5.0, hand.sample, second, (3, 3, 3, 3, 0))
    one, two = hand.asks(Score)
    at(7.0, hand.score, one, 1.0)
    at(11.0, hand.score, two, 0.0)
    for ask in list(hand.aborts):
        tokens = (5,) if ask == third else ()
        at(11.5, hand.sample, ask, tokens, stop=StopReason.INTERRUPTED)
    at(12.0, hand.publish)
    metrics = hand.reports[0].metrics
    assert (metrics["choice_num_there"], metrics["choice_num_trained"]) == (3, 2)
    assert metrics["choice_length_there"] == pytest.approx((2 + 5 + 4) / 3)
    assert metrics["choice_length_trained"] == 3.5
    assert metrics["choice_length_distance"] == pytest.approx(1 / 6)
    assert (metrics["choice_seconds_there"], metrics["choice_seconds_trained"]) == (7.0, 7.0)
    assert (metrics["choice_reward_there"], metrics["choice_reward_distance"]) == (0.5, 0.0)
    assert (metrics["num_tasks_sampled"], metrics["num_tasks_never_trained"]) == (2, 1)
