"""What was sampled against what was trained, on runs by hand, simulated runs and toy runs with trees."""

from __future__ import annotations

import pytest
from lab_help import (
    Record,
    batch,
    learning,
    opened,
    prompted,
    published,
    report,
    reset,
    sampled,
    score,
    scored,
    simulated,
    submit,
    toy,
    write,
)

from rollwright.errors import StoreError
from rollwright.events import Finish, Published, Resumed, Retire, Started
from rollwright.lab.bias import Bias, Comparison
from rollwright.lab.bias import report as full_report
from rollwright.lab.population import Population, read_population
from rollwright.ledger import Fate
from rollwright.store.journal import read
from rollwright.store.layout import JOURNAL
from rollwright.tree import Origin, StopReason


def bias_of(folder, num_permutations: int = 100) -> Bias:
    return full_report(folder, num_permutations)


def step(number: int, groups: dict[str, list[tuple[int, float | None]]], trained: list[str]) -> list[Record]:
    """One step in ten seconds: each group's rollouts as (tokens, reward), and the streams to train on."""
    at = 10.0 * number
    records: list[Record] = [
        (
            Started(at=at) if number == 0 else Published(step=number - 1, version=number, at=at),
            [*(report(number - 1) if number else []), opened(number), *map(reset, groups)],
        )
    ]
    for group in groups:
        names = [f"{group}/{k}" for k in range(len(groups[group]))]
        records.append((prompted(group, at + 1), [submit(name) for name in names]))
        for name, (num, reward) in zip(names, groups[group], strict=True):
            records.append((sampled(name, num, at + 2), [score(name)]))
            records.append((scored(name, reward, at + 2 + num / 10), []))
    last, commands = records.pop()
    return [*records, (last, [*commands, *learning(number), batch(number, trained)])]


def end(number: int, retired: list[str]) -> list[Record]:
    commands = [*map(lambda g: Retire(group=g), retired), *report(number), Finish(reason="all steps done")]
    return [(published(number, 10.0 * number + 10), commands)]


def of(bias: Bias, measure: str) -> Comparison:
    return next(one for one in bias.comparisons if one.measure == measure)


ONE = {"t/1#0": [(2, 1.0), (4, 0.0)], "t/2#0": [(10, 1.0), (20, None)], "t/3#0": [(6, 0.0), (6, 0.0)]}


def test_a_run_by_hand(tmp_path) -> None:
    """Oracle: by hand. t/1 and half of t/2 are trained; t/3 is dropped, one rollout has no score.

    Lengths 2 4 10 20 6 6 against 2 4 10: F differs most from 4 on, by 2/3 - 2/6. Rewards 1 0 1 0 0
    against 1 0 1.
    """
    records = [*step(0, ONE, ["t/1#0/0", "t/1#0/1", "t/2#0/0"]), *end(0, list(ONE))]
    bias = bias_of(write(tmp_path, records))
    assert (bias.num_sampled, bias.num_trained, bias.num_unfinished, bias.num_undecided) == (6, 3, 0, 0)
    length = of(bias, "length")
    assert (length.mean_sampled, length.mean_trained) == (8.0, pytest.approx(16 / 3))
    assert length.distance == pytest.approx(2 / 3 - 2 / 6)
    reward = of(bias, "reward")
    assert (reward.num_sampled, reward.num_trained) == (5, 3)
    assert (reward.mean_sampled, reward.mean_trained) == (pytest.approx(2 / 5), pytest.approx(2 / 3))
    assert reward.distance == pytest.approx(2 / 3 - 2 / 5)
    seconds = of(bias, "seconds")
    assert seconds.mean_trained == pytest.approx((1.2 + 1.4 + 2.0) / 3)
    assert seconds.mean_sampled == pytest.approx((1.2 + 1.4 + 2.0 + 3.0 + 1.6 + 1.6) / 6)
    ends = {e.end: (e.num, e.num_tokens, e.reward_mean) for e in bias.ends}
    assert ends == {
        "trained": (3, 16, pytest.approx(2 / 3)),
        "scored, not trained": (2, 12, 0.0),
        "not scored": (1, 20, None),
    }
    assert bias.tokens_trained_share == pytest.approx(16 / 48)
    assert (bias.num_tasks, bias.num_tasks_trained, bias.num_never_trained) == (3, 2, 1)
    (never,) = bias.never_trained
    assert (never.task, never.num_rollouts, never.num_tokens, never.reward_mean) == ("t/3", 2, 12, 0.0)
    # Sampled 1/3 each; trained 2/3, 1/3, 0.
    assert bias.task_distance == pytest.approx((1 / 3 + 0 + 1 / 3) / 2)


def test_what_is_not_decided_is_left_out(tmp_path) -> None:
    """Oracle: by hand. While a batch is with the learner nothing is known of it; what a filter left out is.

    Kills: a live run whose every rollout in flight counts as one that was passed over.
    """
    records = step(0, ONE, ["t/1#0/0", "t/1#0/1"])
    bias = bias_of(write(tmp_path / "learning", records))
    assert (bias.num_sampled, bias.num_trained, bias.num_undecided) == (4, 0, 2)
    more = [*records, *step(1, {"t/4#0": [(5, 1.0)]}, ["t/4#0/0"])]
    flying = [record for record in more if not (type(record[0]).__name__ == "Scored" and record[0].at > 10)]
    bias = bias_of(write(tmp_path / "rollouts", flying))
    assert (bias.num_sampled, bias.num_trained, bias.num_undecided) == (6, 2, 1)
    rest = (Resumed(at=30.0), [Finish(reason="stopped by the user")])
    bias = bias_of(write(tmp_path / "ended", [*flying, rest]))
    assert (bias.num_sampled, bias.num_undecided, bias.num_unfinished) == (7, 0, 1)


def test_an_early_close_passes_the_long_ones_over(tmp_path) -> None:
    """Oracle: by hand. B is carried over: at the first close it is there, and longer than what is trained."""
    a, b, c = "t/1#0/0", "t/2#0/0", "t/3#0/0"
    records: list[Record] = [
        (Started(at=0.0), [opened(0), reset("t/1#0"), reset("t/2#0")]),
        (prompted("t/1#0", 1.0), [submit(a)]),
        (prompted("t/2#0", 1.0), [submit(b)]),
        (sampled(a, 2, 2.0), [score(a)]),
        (scored(a, 1.0, 2.5), []),
        (sampled(b, 3, 3.0, StopReason.INTERRUPTED), [*learning(0), batch(0, [a])]),
        (
            published(0, 5.0),
            [Retire(group="t/1#0"), *report(0), opened(1), submit(b, 5, f"{b}.0", 1), reset("t/3#0")],
        ),
        (prompted("t/3#0", 6.0), [submit(c)]),
        (sampled(b, 7, 8.0, attempt=1), [score(b)]),
        (scored(b, 0.0, 8.0), []),
        (sampled(c, 4, 9.0), [score(c)]),
        (scored(c, 0.0, 9.0), [*learning(1), batch(1, [b, c])]),
        (
            published(1, 11.0),
            [Retire(group="t/2#0"), Retire(group="t/3#0"), *report(1), Finish(reason="done")],
        ),
    ]
    bias = bias_of(write(tmp_path / "whole", records))
    assert (bias.num_sampled, bias.num_trained) == (3, 3)
    assert of(bias, "length").distance == 0.0
    assert [(s.num_there, s.num_trained, s.mean_there, s.mean_trained) for s in bias.steps] == [
        (2, 1, 6.0, 2.0),
        (2, 2, 7.0, 7.0),
    ]
    close = of(bias, "length at the close")  # 2 10 and 10 4 against 2 and 10 4
    assert (close.num_sampled, close.num_trained) == (4, 3)
    assert close.distance == pytest.approx(2 / 3 - 2 / 4)
    early = bias_of(write(tmp_path / "early", records[:7]))
    assert (early.num_sampled, early.num_trained, early.num_unfinished) == (2, 1, 1)
    assert of(early, "length").mean_sampled == 2.5, "what it has so far counts"


def test_grpo_selects_nothing(runs) -> None:
    """Oracle: closed form. Everything is trained, so every distance is exactly 0 and there is no p-value."""
    bias = bias_of(runs["grpo"][0])
    assert bias.num_sampled == bias.num_trained == 6 * 4 * 8
    assert [(one.distance, one.p_value) for one in bias.comparisons] == [(0.0, None)] * 4
    assert (bias.task_distance, bias.never_trained, bias.tokens_trained_share) == (0.0, (), 1.0)


def test_steps_that_overlap_select_nothing_either(runs, tmp_path) -> None:
    """Oracle: closed form. Two steps ahead, grpo trains on everything all the same, at every moment.

    Kills: rollouts of a later step that count as passed over by the close of an earlier one.
    """
    folder = runs["ahead"][0]
    bias = bias_of(folder)
    assert [(one.distance, one.p_value) for one in bias.comparisons] == [(0.0, None)] * 4
    records = list(read(folder / JOURNAL))
    for place in (len(records) // 3, len(records) // 2, len(records) - 40):
        part = tmp_path / str(place) / JOURNAL
        part.parent.mkdir()
        data = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
        part.write_bytes(b"".join(data[: place + 1]))
        bias = bias_of(part)
        assert bias.num_sampled == bias.num_trained and bias.num_undecided > 0
        assert all(one.distance in (0.0, None) for one in bias.comparisons)


def test_april_trains_on_shorter_rollouts_than_it_samples(tmp_path) -> None:
    """Oracle: the mechanism. An early close takes the groups that finish first: the shorter ones.

    Kills: a report that only looks at what is lost in the end, which is next to nothing.
    """
    simulated(tmp_path, "april", num_steps=12, num_tasks=8, tasks=tuple(f"t/{k}" for k in range(400)))
    bias = bias_of(tmp_path, 1000)
    close = of(bias, "length at the close")
    assert close.mean_trained is not None and close.mean_sampled is not None and close.p_value is not None
    assert close.mean_trained < 0.9 * close.mean_sampled
    assert close.p_value < 0.01
    first = bias.steps[0]
    assert first.num_there > first.num_trained and first.mean_trained < 0.8 * first.mean_there
    assert bias.num_unfinished > 0


def test_dynamic_sampling_drops_whole_tasks(runs) -> None:
    """Oracle: the ledger and the recorder of the same run. Kills: dropped groups that nobody counts."""
    folder, driver, recorder = runs["dapo"]
    bias = bias_of(folder, 50)
    leaves = recorder.leaves
    assert bias.num_trained == leaves["trained"].num
    assert bias.num_sampled == sum(one.num for one in leaves.values())
    ends = {e.end: e for e in bias.ends}
    assert ends["trained"].num_tokens == driver.runner.ledger.fates["trained"]
    assert ends["scored, not trained"].num_tokens == driver.runner.ledger.fates["filtered"]


@pytest.mark.parametrize(
    ("method", "turns", "bad"), [("grpo", 2, "\n"), ("grpo", 1, "4"), ("latr", 1, "\n"), ("april", 2, "\n")]
)
def test_it_is_what_the_runner_knows(tmp_path, method, turns, bad) -> None:
    """Oracle: other implementation. The same journal folded through a runner: its groups, leaf by leaf.

    Kills: a fork without its parent's tokens, tokens of observations, a trained stream taken for another.
    """
    runner = toy(tmp_path, method, max_turns=turns, bad=bad)
    for event, _ in read(tmp_path / JOURNAL):
        runner.step(event)
    population = read_population(tmp_path / JOURNAL)
    num = 0
    for closed in runner.take_closed():
        group = closed.group
        for trajectory in group.trajectories:
            path = group.path(trajectory.leaf)
            tokens = sum(n for node, n in path if node.origin is Origin.SAMPLED)
            name = trajectory.leaf.rpartition(".")[0]
            sample = population.samples[name]
            assert (sample.num_tokens, sample.reward) == (tokens, trajectory.reward), name
            fate = closed.fates[trajectory.leaf][0]
            assert sample.is_trained == (fate is Fate.TRAINED), name
            assert sample.is_graded and (population.end_of(sample) == "not scored") == (sample.reward is None)
            num += 1
    assert num > 40
    trained = {s.name for s in population.samples.values() if s.is_trained}
    fates = runner.ledger.fates
    if method != "latr":  # in a tree the paths share tokens
        assert sum(population.samples[name].num_tokens for name in trained) == fates["trained"]


def test_case_s08_a_task_that_is_never_trained_is_named(tmp_path) -> None:
    """Oracle: golden (thinking-machines-lab/tinker-cookbook#822). A slow task that is discarded each time.

    Three fast tasks are trained in every step; the fourth is begun again and again and never trained.
    """
    records: list[Record] = []
    for k in range(6):
        groups = {f"t/{task}#{k}": [(3, 1.0)] for task in range(3)} | {f"t/3#{k}": [(60, 0.0)]}
        records += step(k, groups, [f"t/{task}#{k}/0" for task in range(3)])
    bias = bias_of(write(tmp_path, [*records, *end(5, [])]), 1000)
    assert [(one.task, one.num_rollouts, one.num_tokens) for one in bias.never_trained] == [("t/3", 6, 360)]
    length = of(bias, "length")
    assert length.distance == pytest.approx(1 / 4) and length.p_value is not None and length.p_value < 0.01
    assert bias.task_distance == pytest.approx(1 / 4)


def test_nothing_yet(tmp_path) -> None:
    """Oracle: the contract. No rollout, no number; no journal, an error of ours."""
    bias = bias_of(write(tmp_path, [(Started(), [opened(0), reset("t/1#0")])]))
    assert (bias.num_sampled, bias.ends, bias.task_distance, bias.tokens_trained_share) == (0, (), None, None)
    assert all(one.distance is None and one.mean_sampled is None for one in bias.comparisons)
    with pytest.raises(StoreError, match="cannot read the journal"):
        bias_of(tmp_path / "none")
    assert Population().decided() == []
