"""How episodes end: terminated, truncated, cut turns, and observations that do not fit."""

from dataclasses import dataclass

import pytest

from rollwright.events import EnvStep, Score, Submit
from rollwright.testing.hand import Hand, plain_method
from rollwright.tree import Origin, StopReason

STOPS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}


def episode(hand, turns, observations):
    """Play one dialogue: (tokens, stop) of each turn, (tokens, fields) of each observation."""
    hand.start()
    for (num, stop), observation in zip(turns, [*observations, None], strict=False):
        [ask] = hand.asks(Submit)
        hand.sample(ask, (3,) * num, stop=STOPS[stop])
        if observation is None or not hand.asks(EnvStep):
            break
        num_seen, fields = observation
        hand.observe(hand.asks(EnvStep)[0], (5,) * num_seen, **fields)
    [ask] = hand.asks(Score)
    hand.score(ask, 1.0)
    return hand.batch.groups[0]


def dialogue(**settings):
    return Hand(
        plain_method(1), num_tasks=1, is_dialogue=True, **{"max_turns": 3, "num_steps": 1, **settings}
    )


@dataclass
class Episode:
    turns: list
    observations: list
    settings: dict
    terminated: bool
    truncated: bool
    any_turn_cut: bool


DONE = {"terminated": True}
N02 = [
    Episode([(4, "stop"), (4, "stop")], [(2, {}), (2, DONE)], {}, True, False, False),
    # the budget of 20 steps ends inside the second turn: 2 + 4 + 6 + 8
    Episode([(4, "stop"), (8, "length")], [(6, {})], {"context": 20, "max_tokens": 16}, False, True, True),
    Episode([(8, "length"), (4, "stop")], [(2, {}), (2, DONE)], {}, True, False, True),
    Episode([(4, "stop")], [(60, {})], {}, False, True, False),  # the tool's output fills the context
    Episode([(4, "stop")] * 3, [(2, {})] * 3, {}, False, True, False),  # turn limit 3
]


@pytest.mark.parametrize("case", N02, ids=range(len(N02)))
def test_n02_flags_of_five_episodes(case):
    """Case N02, exact: one set of flags per rollout."""
    group = episode(dialogue(**case.settings), case.turns, case.observations)
    [trajectory] = group.trajectories
    assert trajectory.terminated is case.terminated
    assert trajectory.truncated is case.truncated
    assert trajectory.any_turn_cut is case.any_turn_cut
    assert trajectory.num_turns == len(case.turns)


def test_n02_stop_reasons():
    """Each episode's last stop is an enum that says why."""
    stops = [episode(dialogue(**c.settings), c.turns, c.observations).trajectories[0].stop for c in N02]
    assert stops == [
        StopReason.TERMINATED,
        StopReason.CONTEXT,
        StopReason.TERMINATED,
        StopReason.CONTEXT,
        StopReason.TURNS,
    ]


def test_m05_an_observation_that_does_not_fit():
    """Case M05, exact: 8 + 4 + 10 + 4 = 26, and 22 more do not fit in 40: stop before the request."""
    hand = dialogue(context=40)
    hand.start(prompt=(1,) * 8)
    hand.sample(hand.asks(Submit)[0], (3,) * 4, stop=StopReason.STOP)
    hand.observe(hand.asks(EnvStep)[0], (5,) * 10)
    assert hand.owed[hand.asks(Submit)[0]].start == 22
    hand.sample(hand.asks(Submit)[0], (3,) * 4, stop=StopReason.STOP)
    hand.observe(hand.asks(EnvStep)[0], (5,) * 22)
    assert not hand.asks(Submit), "no request that the engine must refuse"
    hand.score(hand.asks(Score)[0], 0.5)
    group = hand.batch.groups[0]
    [trajectory] = group.trajectories
    assert (trajectory.truncated, trajectory.terminated, trajectory.stop) == (True, False, StopReason.CONTEXT)
    response = group.response(trajectory)
    assert response.is_sampled.sum() == 8 and len(response.tokens) == 18
    hand.publish()
    assert hand.runner.ledger.fates["trained"] == 8


@pytest.mark.parametrize(("num", "fits"), [(33, True), (34, False), (35, False)])
def test_an_observation_must_leave_room_for_a_token(num, fits):
    """Closed form: context 40, 2 + 4 before it: 33 leave one step, 34 leave none."""
    hand = dialogue(context=40)
    hand.start()
    hand.sample(hand.asks(Submit)[0], (3,) * 4, stop=StopReason.STOP)
    hand.observe(hand.asks(EnvStep)[0], (5,) * num)
    asks = hand.asks(Submit)
    assert bool(asks) is fits
    if fits:
        assert (hand.owed[asks[0]].start, hand.owed[asks[0]].max_tokens) == (39, 1)
    else:
        hand.score(hand.asks(Score)[0], 1.0)
        [trajectory] = hand.batch.groups[0].trajectories
        assert hand.batch.groups[0].response(trajectory).tokens == (3,) * 4, "it is left out whole"


@pytest.mark.parametrize(("num", "kept"), [(34, 34), (35, 0)])
def test_last_words_of_an_episode_need_no_room_for_an_answer(num, kept):
    """A terminal observation is kept if it fits whole, else left out; the episode is terminated."""
    hand = dialogue(context=40)
    group = episode(hand, [(4, "stop")], [(num, DONE)])
    [trajectory] = group.trajectories
    assert trajectory.terminated and len(group.response(trajectory).tokens) == 4 + kept


def test_the_environment_may_truncate():
    """Truncated by the environment is truncated, not terminated; both flags at once are terminated."""
    cut = episode(dialogue(), [(4, "stop")], [(2, {"truncated": True})]).trajectories[0]
    assert (cut.terminated, cut.truncated, cut.stop) == (False, True, StopReason.TRUNCATED)
    both = episode(dialogue(), [(4, "stop")], [(2, {"truncated": True, "terminated": True})]).trajectories[0]
    assert (both.terminated, both.truncated) == (True, False)


@pytest.mark.parametrize(
    ("stop", "terminated", "cut"),
    [
        (StopReason.EOS, True, False),
        (StopReason.STOP, True, False),
        (StopReason.LENGTH, False, True),
        (StopReason.CONTEXT, False, True),
    ],
)
def test_single_answers(stop, terminated, cut):
    """Without an environment the model's own end terminates, its length truncates."""
    hand = Hand(plain_method(1), num_tasks=1)
    hand.start()
    hand.sample(hand.asks(Submit)[0], (3,) * 8, stop=stop)
    hand.score(hand.asks(Score)[0], 1.0)
    [trajectory] = hand.batch.groups[0].trajectories
    assert (trajectory.terminated, trajectory.truncated) == (terminated, not terminated)
    assert trajectory.any_turn_cut is cut and trajectory.stop is stop


def test_rewards_by_the_turn_are_kept_on_the_observation():
    """What the environment gives for a step stays with its node, beside the outcome."""
    group = episode(dialogue(), [(4, "stop"), (4, "stop")], [(2, {"reward": 0.25}), (2, DONE)])
    rewards = [node.reward for node in group.nodes.values() if node.origin is Origin.OBSERVATION]
    assert rewards == [0.25, None]


def test_turns_are_told_apart_by_observations_not_by_text():
    """An environment that says nothing still separates two turns."""
    group = episode(dialogue(), [(2, "stop"), (3, "stop")], [(0, {}), (0, DONE)])
    [trajectory] = group.trajectories
    assert group.response(trajectory).turns.tolist() == [0, 0, 1, 1, 1]
    assert trajectory.num_turns == 2
