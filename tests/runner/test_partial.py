"""Partial rollouts: carried over, interrupted, resumed, and still the same tokens."""

from dataclasses import dataclass

import pytest

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.events import Abort, EnvStep, Published, Reset, Sampled, Score, Submit, WorkerLost
from rollwright.runner import Runner
from rollwright.stage import Ask, AskScore, Carry, Close, ForkAt, Stop, Want
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.testing.hand import Hand, plain_method, plain_settings
from rollwright.tree import StopReason


@dataclass(frozen=True, slots=True)
class CloseAfter:
    """End the first step once ``num`` groups are complete."""

    num: int = 1

    def __call__(self, event, view):
        return (Close("enough"),) if view.step == 0 and view.num_complete >= self.num else ()


def carried(version=1, **settings):
    """Return a hand in its second step with one rollout of three tokens carried into it."""
    hand = Hand(plain_method(1, control=(CloseAfter(),)), **settings)
    hand.runner.version = version
    hand.start()
    quick, slow = hand.asks(Submit)
    hand.sample(slow, (3, 4, 5), stop=None)
    hand.sample(quick, (3, 0))
    hand.score(hand.asks(Score)[0], 1.0)
    assert list(hand.aborts) == [slow]
    hand.sample(slow, (), stop=StopReason.INTERRUPTED)
    hand.publish()
    return hand, slow


def test_s01_a_rollout_over_a_weight_update():
    """Case S01, exact: versions [1, 1, 1, 2, 2], every column of length 5, all sampled."""
    hand, slow = carried()
    assert hand.owed[slow].start == 5 and hand.owed[slow].max_tokens == 5
    hand.sample(slow, (6, 0))
    hand.reset()
    hand.finish_rollouts([1.0])
    group = next(group for group in hand.batch.groups if group.id == "t/4#0")
    assert hand.response_versions(group, 0) == [1, 1, 1, 2, 2]
    response = group.response(group.trajectories[0])
    assert response.tokens == (3, 4, 5, 6, 0)
    for column in (response.is_sampled, response.logp_old, response.temperatures, response.turns):
        assert len(column) == 5
    assert response.is_sampled.all()
    # with mask_old_policy_tokens, the tokens of the version before are the ones to mask
    assert (response.versions == hand.runner.version).tolist() == [False, False, False, True, True]
    assert group.trajectories[0].num_turns == 1 and len(group.trajectories[0].advantages) == 5


def test_a_carried_group_counts_towards_its_next_step():
    """Two tasks a step: with one carried over only one new task begins."""
    hand, _ = carried()
    assert len(hand.asks(Reset)) == 1
    view = hand.runner.view()
    assert [group.is_carried for group in view.groups] == [True, False]
    assert [group.oldest_version for group in view.groups] == [1, -1]


def test_max_age_counts_from_the_oldest_token():
    """Age = version trained on - oldest version of any token; too old is stale, not filtered."""
    hand, slow = carried(max_age=0, num_tasks=2)
    hand.sample(slow, (6, 0))
    hand.reset()
    hand.finish_rollouts([1.0])
    assert [group.id for group in hand.batch.groups] == ["t/6#0"]
    assert hand.runner.ledger.fates["stale"] == 5
    assert hand.runner.ledger.reasons == {"stale:max_age": 5}


def test_max_age_takes_single_trajectories_out_of_a_group():
    """The young ones of a group are trained, and the baseline is theirs alone."""
    hand = Hand(plain_method(2, control=(CloseAfter(),)), max_age=0)
    hand.start()
    first, second, third, fourth = hand.asks(Submit)
    hand.sample(third, (3,), stop=None)
    for ask in (first, second):
        hand.sample(ask, (3, 0))
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    hand.sample(third, (), stop=StopReason.INTERRUPTED)
    hand.sample(fourth, (), stop=StopReason.INTERRUPTED)
    hand.publish()
    hand.reset()
    hand.finish_rollouts([1.0, 0.0])
    group = next(group for group in hand.batch.groups if group.id == "t/4#0")
    assert [t.index for t in group.trajectories] == [1]
    assert set(group.trajectories[0].advantages) == {0.0}, "a group of one has no baseline"
    hand.publish()
    assert hand.runner.ledger.reasons == {"stale:max_age": 3}


@pytest.mark.parametrize("turns", [1, 3])
def test_an_interruption_at_any_token_changes_no_token(turns):
    """Metamorphic: interrupt one rollout after k tokens, for every k; the batches are the same."""

    def play(k):
        task = ToyTask(max_turns=turns)
        settings = plain_settings(
            tasks=tuple(task.ids("train")),
            context=task.context,
            max_tokens=task.max_tokens,
            max_turns=turns,
            is_dialogue=turns > 1,
            chunk=1,
        )
        runner = Runner(plain_method(2), settings)
        engine = FakeEngine()
        batches = []

        def train(batch):
            batches.append(tokens_of(batch))
            return Published(step=batch.step, version=batch.version + 1)

        driver = InlineDriver(runner, engine, World(task, ToyTokenizer(), (0,)), train)
        count = 0
        step = engine.step

        def step_with_interruption():
            nonlocal count
            chunks = step()
            live = next(iter(engine.live), None)
            count += 1
            if count == k and live is not None:
                given_back = engine.abort(live)
                return [c for c in chunks if c.ask != live or c.stop is None] + [given_back]
            return chunks

        engine.step = step_with_interruption
        driver.run()
        return batches, count

    whole, num = play(-1)
    for k in range(1, num + 1):
        assert play(k)[0] == whole, f"interrupted at engine step {k}"


def tokens_of(batch):
    rows = []
    for group in batch.groups:
        for t in group.trajectories:
            response = group.response(t)
            rows.append((group.id, t.index, response.tokens, response.logp_old.tobytes(), t.advantages))
    return rows


def test_a_submit_says_where_its_turn_began():
    """A stop string may begin before an interruption, a segment or a fork, but never before its turn."""
    hand = Hand(plain_method(1), num_tasks=1, is_dialogue=True, max_turns=3)
    hand.start()
    [ask] = hand.asks(Submit)
    assert hand.owed[ask].turn_start is None
    hand.sample(ask, (3, 4), stop=None)
    for start in (4, 5):
        hand.resume()
        assert (hand.owed[ask].start, hand.owed[ask].turn_start) == (start, 2)
        hand.sample(ask, (5,), stop=StopReason.STOP if start == 5 else None)
    hand.observe(hand.asks(EnvStep)[0], (9, 9))
    [ask] = hand.asks(Submit)
    assert (hand.owed[ask].start, hand.owed[ask].turn_start) == (8, None)
    hand.sample(ask, (3,), stop=None)
    hand.resume()
    assert (hand.owed[ask].start, hand.owed[ask].turn_start) == (9, 8)


def test_a_lost_worker_costs_nothing_that_was_acknowledged():
    """The ask goes on from its last token, in one piece for the learner."""
    hand = Hand(plain_method(1), num_tasks=1)
    hand.start()
    [ask] = hand.asks(Submit)
    hand.sample(ask, (3, 4), stop=None)
    [again] = hand.send(WorkerLost(worker="w", asks=(ask,)))
    assert (again.start, again.max_tokens, again.stream) == (4, 6, hand.owed[ask].stream)
    hand.sample(ask, (5, 0))
    hand.score(hand.asks(Score)[0], 1.0)
    group = hand.batch.groups[0]
    assert group.response(group.trajectories[0]).tokens == (3, 4, 5, 0)


def test_a_chunk_under_new_weights_closes_the_node():
    """A node never mixes versions, though the engine went on without a pause."""
    hand = Hand(plain_method(1), num_tasks=1)
    hand.start()
    [ask] = hand.asks(Submit)
    hand.sample(ask, (3, 4), stop=None, version=0)
    hand.sample(ask, (5,), stop=None, version=1)
    hand.sample(ask, (6, 0), version=1)
    nodes = list(hand.runner.groups["t/0#0"].nodes.values())[1:]
    assert [(node.tokens, node.version, node.start) for node in nodes] == [((3, 4), 0, 2), ((5, 6, 0), 1, 4)]
    assert [node.stop for node in nodes] == [StopReason.INTERRUPTED, StopReason.EOS]


def test_a_forced_first_token_is_forced_once():
    """The choice of the method is asked again only if it was not made yet."""

    class Forced:
        def plan(self, view, num, rng):
            [node] = yield Want([Ask(view.root, first=9)])
            yield Want([AskScore(node.id)])

    hand = Hand(plain_method(1, generate=Forced()), num_tasks=1)
    hand.start()
    [ask] = hand.asks(Submit)
    assert hand.owed[ask].first == 9
    hand.resume()
    assert hand.owed[ask].first == 9
    hand.sample(ask, (9, 3), stop=None)
    hand.resume()
    assert hand.owed[ask].first is None and hand.owed[ask].start == 4
    hand.sample(ask, (0,))
    nodes = list(hand.runner.groups["t/0#0"].nodes.values())[1:]
    assert [node.forced for node in nodes] == [1, 0]


# ---------------------------------------------------------------- controls


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Return ``actions`` (by name, about the event's ask) at the first chunk of the run's first ask."""

    names: tuple[str, ...]

    def __call__(self, event, view):
        if not isinstance(event, Sampled) or event.stop is not None or view.step > 0:
            return ()
        made = {
            "carry": Carry(event.ask),
            "fork": ForkAt(event.ask, 1),
            "stop": Stop(event.ask, "why"),
            "close": Close("enough"),
        }
        return [made[name] for name in self.names]


@pytest.mark.parametrize(
    ("names", "how", "num_asks"),
    [
        (("carry",), "carry", 1),
        (("carry", "stop"), "stop", 1),
        (("carry", "fork"), "carry", 2),
        (("fork", "stop"), "stop", 1),
        (("carry", "fork", "stop", "close"), "carry", 1),
    ],
)
def test_precedence_of_controls(names, how, num_asks):
    """Close > Stop > Fork > Carry, in whatever order they were given."""
    for given in (names, tuple(reversed(names))):
        hand = Hand(plain_method(1, control=(AtOnce(given),)), num_tasks=1)
        hand.start()
        [ask] = hand.asks(Submit)
        commands = hand.sample(ask, (3, 4), stop=None)
        live = hand.runner.asks[ask]
        assert [c.ask for c in commands if isinstance(c, Abort)] == [ask]
        assert live.on_abort == how, given
        assert len(hand.asks(Submit)) == num_asks, given


def test_a_stopped_ask_is_pruned_with_its_reason():
    """What it made stays in the tree with stop PRUNED; its tokens are pruned, its siblings trained."""
    hand = Hand(plain_method(2, control=(StopFirst(),)), num_tasks=1, num_steps=1)
    hand.start()
    first, second = hand.asks(Submit)
    hand.sample(first, (3, 4), stop=None)
    hand.sample(first, (5,), stop=StopReason.INTERRUPTED)
    hand.sample(second, (3, 0))
    hand.score(hand.asks(Score)[0], 1.0)
    [group] = hand.batch.groups
    assert [t.index for t in group.trajectories] == [1]
    hand.publish()
    assert hand.runner.ledger.reasons == {"pruned:too long": 3}
    assert hand.runner.ledger.fates["trained"] == 2


@dataclass(frozen=True, slots=True)
class StopFirst:
    def __call__(self, event, view):
        is_first = isinstance(event, Sampled) and event.ask.endswith("/0:0") and event.stop is None
        return (Stop(event.ask, "too long"),) if is_first else ()


def test_a_stop_that_comes_too_late_is_no_stop():
    """The ask ended before the abort reached the engine: it is a finished rollout."""
    hand = Hand(plain_method(1, control=(StopFirst(),)), num_tasks=1)
    hand.start()
    [ask] = hand.asks(Submit)
    hand.sample(ask, (3, 4), stop=None)
    hand.sample(ask, (0,), stop=StopReason.EOS)
    assert hand.asks(Score)


def test_close_carries_what_is_not_complete():
    """Complete groups are trained, the others go on in the next step with nothing lost."""
    hand = Hand(plain_method(2, control=(CloseAfter(),)))
    hand.start()
    first, second, third, fourth = hand.asks(Submit)
    hand.sample(third, (3, 4, 0))
    for ask in (first, second):
        hand.sample(ask, (3, 0))
    scores = [ask for ask in hand.asks(Score) if ask.startswith("t/0")]
    for ask in scores:
        hand.score(ask, 1.0)
    assert list(hand.aborts) == [fourth]
    hand.sample(fourth, (3, 4), stop=StopReason.INTERRUPTED)
    assert [group.id for group in hand.batch.groups] == ["t/0#0"]
    late_score = next(ask for ask in hand.asks(Score))
    hand.score(late_score, 0.5)  # an answer while the learner works
    assert hand.runner.ledger.fates["held"] == hand.runner.ledger.spent["sampled_tokens"]
    hand.publish()
    again = hand.owed[fourth]
    assert again.start == 4
    hand.sample(fourth, (0,))
    hand.reset()
    hand.finish_rollouts([1.0, 0.0])
    assert [group.id for group in hand.batch.groups] == ["t/4#0", "t/6#0"]
    assert [t.reward for t in hand.batch.groups[0].trajectories] == [0.5, 1.0]
