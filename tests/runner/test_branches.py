"""Branches: forks of live and finished nodes, hints, prunes, and an order that does not depend on arrival."""

from dataclasses import dataclass

import pytest

from rollwright.errors import ConfigError
from rollwright.events import EnvStep, Fork, Sampled, Score, Submit
from rollwright.stage import Ask, AskEnv, AskScore, ForkAt, Hint, Prune, Verdict, Want
from rollwright.testing.hand import Hand, plain_method
from rollwright.tree import Origin, Sampling, StopReason


@dataclass(frozen=True, slots=True)
class ForkOnce:
    """Fork the first ask after ``at`` of its steps when its first chunk arrives."""

    at: int
    num: int = 1

    def __call__(self, event, view):
        if (
            isinstance(event, Sampled)
            and event.ask.endswith("/0:0")
            and event.stop is None
            and view.step == 0
        ):
            return (ForkAt(event.ask, self.at, self.num),)
        return ()


def forked(at=1, num=1, **settings):
    hand = Hand(plain_method(1, control=(ForkOnce(at, num),)), **{"num_tasks": 1, "num_steps": 1, **settings})
    hand.start()
    hand.sample("t/0#0/0:0", (3, 4), stop=None)
    return hand


def test_a_fork_of_a_live_ask_is_a_rollout_of_its_own():
    """Both branches are finished, graded and trained; the shared token is stored and counted once."""
    hand = forked()
    [fork] = [command for command in hand.owed.values() if isinstance(command, Fork)]
    node = hand.runner.groups["t/0#0"].nodes[fork.parent]
    assert (node.tokens, fork.at, fork.start, fork.max_tokens) == ((3, 4), 1, 3, 7)
    hand.sample("t/0#0/0:0", (5, 0))
    hand.sample(fork.ask, (2, 0))
    assert len(hand.asks(Score)) == 2
    for i, ask in enumerate(hand.asks(Score)):
        hand.score(ask, float(i))
    [group] = hand.batch.groups
    assert [group.response(t).tokens for t in group.trajectories] == [(3, 4, 5, 0), (3, 2, 0)]
    hand.publish()
    assert hand.runner.ledger.fates["trained"] == hand.runner.ledger.spent["sampled_tokens"] == 6


def test_a_fork_before_the_first_token_continues_the_same_parent():
    """At step 0 there is nothing to share but the prompt: a new sample of it."""
    hand = forked(at=0, num=2)
    forks = [command for command in hand.owed.values() if isinstance(command, Fork)]
    assert [(f.parent, f.at, f.start) for f in forks] == [("t/0#0/root", 2, 2)] * 2
    assert len({command.stream for command in hand.owed.values()}) == 3


def test_a_fork_keeps_the_asks_policy_sampling_and_tops():
    """What was asked of the ask holds for its branch, also after a crash."""

    @dataclass(frozen=True, slots=True)
    class Tops:
        def plan(self, view, num, rng):
            cold = Sampling(temperature=0.5)
            [node] = yield Want([Ask(view.root, sampling=cold, policy="small", num_top=3)], wait="any")
            [other] = yield Want(wait="any")
            yield Want([AskScore(node.id), AskScore(other.id)])

    hand = Hand(plain_method(1, control=(ForkOnce(1),), generate=Tops()), num_tasks=1)
    hand.start()
    tops = (((3, -0.5), (1, -1.0)),) * 2
    hand.sample("t/0#0/0:0", (3, 4), stop=None, top=tops, policy="small")
    hand.resume()
    for command in hand.owed.values():
        assert (command.policy, command.num_top, command.sampling.temperature) == ("small", 3, 0.5)


def test_a_fork_that_fills_the_context_is_cut_by_the_context():
    """Closed form: context 8, prompt 2, fork after 1: 5 more steps fit, and their end is CONTEXT."""
    hand = forked(context=8, max_tokens=20)
    [fork] = [command for command in hand.owed.values() if isinstance(command, Fork)]
    assert fork.max_tokens == 5
    hand.sample(fork.ask, (5,) * 5, stop=StopReason.LENGTH)
    hand.sample("t/0#0/0:0", (5,) * 4, stop=StopReason.LENGTH)
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    assert [t.stop for t in hand.batch.groups[0].trajectories] == [StopReason.CONTEXT] * 2


@dataclass(frozen=True, slots=True)
class Segments:
    """Ask for a segment of ``length`` tokens again and again until the model ends or the context is full."""

    length: int

    def plan(self, view, num, rng):
        nodes = yield Want([Ask(view.root, num=num, max_tokens=self.length, more=True)])
        while nodes:
            asks = []
            for node in nodes:
                is_over = node.stop in (StopReason.EOS, StopReason.CONTEXT)
                more = Ask(node.id, max_tokens=self.length, more=True)
                asks.append(AskScore(node.id) if is_over else more)
            nodes = yield Want(asks)


def test_segments_that_end_at_the_context_are_delivered_together():
    """Wait "all" holds when an ask has no room at all: the plan gets both nodes, each cut by the context."""
    hand = Hand(plain_method(2, generate=Segments(3)), num_tasks=1, context=8)
    hand.start()
    for _ in range(2):
        for ask in hand.asks(Submit):
            hand.sample(ask, (5,) * 3, stop=StopReason.LENGTH)
    assert len(hand.asks(Score)) == 2
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    group = hand.batch.groups[0]
    assert [t.stop for t in group.trajectories] == [StopReason.CONTEXT] * 2
    assert [t.any_turn_cut for t in group.trajectories] == [True, True]
    assert [len(group.response(t).tokens) for t in group.trajectories] == [6, 6]
    assert [t.num_turns for t in group.trajectories] == [1, 1]


@dataclass(frozen=True, slots=True)
class Hinted:
    """One rollout after a hint, one without, one hint after a continued turn."""

    def plan(self, view, num, rng):
        [hint, plain] = yield Want([Hint(view.root, (9, 8)), Ask(view.root)])
        [late, answer] = yield Want([Hint(plain.id, (7,)), Ask(hint.id)])
        [last] = yield Want([Ask(late.id)])
        yield Want([AskScore(plain.id), AskScore(answer.id), AskScore(last.id)])


def test_hints_are_on_the_path_but_not_sampled():
    """A hint may follow the prompt or a turn; its tokens are in the prefix and get no credit."""
    hand = Hand(plain_method(1, generate=Hinted()), num_tasks=1)
    hand.start()
    hand.sample(hand.asks(Submit)[0], (3, 0))
    streams = {}
    for tokens in ((4, 0), (5, 0)):
        [ask] = hand.asks(Submit)
        streams[ask] = hand.owed[ask].stream
        hand.sample(ask, tokens)
    for i, ask in enumerate(hand.asks(Score)):
        hand.score(ask, float(i % 2))
    group = hand.batch.groups[0]
    answers = {group.response(t).tokens: t for t in group.trajectories}
    assert set(answers) == {(3, 0), (9, 8, 4, 0), (3, 0, 7, 5, 0)}
    response = group.response(answers[(9, 8, 4, 0)])
    assert response.is_sampled.tolist() == [False, False, True, True]
    assert answers[(9, 8, 4, 0)].advantages[:2] == (0.0, 0.0)
    assert answers[(9, 8, 4, 0)].num_turns == 1
    assert len(set(streams.values())) == len(streams)


@dataclass(frozen=True, slots=True)
class TwoWorlds:
    """The same turn given to the environment twice, each answer continued."""

    def plan(self, view, num, rng):
        [node] = yield Want([Ask(view.root)])
        first, second = yield Want([AskEnv(node.id), AskEnv(node.id)])
        nodes = yield Want([Ask(first.id), Ask(second.id)])
        yield Want([AskScore(node.id) for node in nodes])


def test_two_answers_to_one_turn_do_not_share_noise():
    """Each continuation has a stream of its own, though both begin at the same position."""
    hand = Hand(plain_method(1, generate=TwoWorlds()), num_tasks=1, is_dialogue=True, max_turns=3)
    hand.start()
    hand.sample(hand.asks(Submit)[0], (3, 0))
    for ask in hand.asks(EnvStep):
        hand.observe(ask, (5,))
    first, second = [command for command in hand.owed.values() if isinstance(command, Submit)]
    assert first.start == second.start and first.stream != second.stream


@dataclass(frozen=True, slots=True)
class Sprout:
    """Fork each rollout after its first token as soon as it ends."""

    def plan(self, view, num, rng):
        asks = [Ask(view.root, num=num)]
        while nodes := (yield Want(asks, wait="any")):
            asks = [AskScore(node.id) for node in nodes]
            asks += [Ask(node.id, at=1, num=2) for node in nodes if "~" not in node.stream]


def sprouted(order):
    hand = Hand(plain_method(3, generate=Sprout()), num_tasks=1)
    hand.start()
    asks = hand.asks(Submit)
    for i in order:
        hand.sample(asks[i], (3 + i, 7, 0))
    while hand.asks(Submit):
        some = hand.asks(Submit)
        ask = some[order[0] % len(some)]
        hand.sample(ask, (hand.owed[ask].stream % 5, 0))
    scores = hand.asks(Score)
    for ask in scores if order[0] == 0 else reversed(scores):
        hand.score(ask, 1.0 if hand.owed[ask].leaf in hand.runner.groups["t/0#0"].nodes else 0.0)
    return hand.batch


def test_branches_have_the_same_names_in_any_order_of_arrival():
    """Metamorphic: ids, indices and the order of trajectories come from streams, not from arrival."""
    batches = [sprouted(order) for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0))]
    assert batches[0] == batches[1] == batches[2]
    group = batches[0].groups[0]
    assert [t.index for t in group.trajectories] == list(range(9))
    assert list(batches[1].groups[0].nodes) == list(group.nodes), "the order of nodes too"
    assert [next(iter(group.response(t).tokens)) for t in group.trajectories] == [3] * 3 + [4] * 3 + [5] * 3


@dataclass(frozen=True, slots=True)
class PruneSecond:
    def plan(self, view, num, rng):
        first, second = yield Want([Ask(view.root, num=2)])
        yield Want([AskScore(first.id), Prune(second.id, "test")])


def test_a_pruned_branch_is_neither_trained_nor_lost():
    """Its tokens get the fate pruned with the plan's reason; shared tokens keep the better fate."""
    hand = Hand(plain_method(2, generate=PruneSecond()), num_tasks=1)
    hand.start()
    for ask in hand.asks(Submit):
        hand.sample(ask, (3, 4, 0))
    hand.score(hand.asks(Score)[0], 1.0)
    hand.publish()
    assert hand.runner.ledger.fates["trained"] == 3 and hand.runner.ledger.fates["pruned"] == 3
    assert hand.runner.ledger.reasons == {"pruned:test": 3}


@dataclass(frozen=True, slots=True)
class ShareThenScore:
    """Two leaves on one shared first segment, graded in the order given."""

    order: tuple[int, int]

    def plan(self, view, num, rng):
        [stem] = yield Want([Ask(view.root, max_tokens=2)])
        leaves = yield Want([Ask(stem.id, num=2)])
        yield Want([AskScore(leaves[i].id) for i in self.order])


def test_shared_tokens_take_the_better_fate_in_any_order():
    """A stem under a scored and an unscored leaf, both untrained: its fate is the scored leaf's."""
    fates = []
    for order in ((0, 1), (1, 0)):
        hand = Hand(plain_method(1, generate=ShareThenScore(order), filters=(DropAll(),)), num_tasks=1)
        hand.start()
        hand.sample(hand.asks(Submit)[0], (3, 4), stop=StopReason.LENGTH)
        for ask in hand.asks(Submit):
            hand.sample(ask, (5, 0))
        graded = {command.leaf: ask for ask, command in hand.owed.items() if isinstance(command, Score)}
        first, second = sorted(graded)
        hand.score(graded[first], None, "grader_error")
        hand.score(graded[second], 1.0)
        fates.append({k: v for k, v in hand.runner.ledger.fates.items() if v})
    assert fates[0] == fates[1] == {"filtered": 4, "failed": 2}


@dataclass(frozen=True, slots=True)
class DropAll:
    def __call__(self, group):
        return Verdict(False, "test")


def test_prompt_nodes_are_not_sampled():
    """The root is of origin prompt, has no stream and no logprobs."""
    hand = Hand()
    hand.start()
    root = hand.runner.groups["t/0#0"].nodes["t/0#0/root"]
    assert (root.origin, root.stream, root.logprobs) == (Origin.PROMPT, "", None)


class Spin:
    """A plan that forgets that its only rollout failed."""

    def plan(self, view, num, rng):
        nodes = yield Want([Ask(view.root)])
        while nodes[0].stop is not StopReason.EOS if nodes else True:
            nodes = yield Want([])


def test_a_plan_that_waits_for_nothing_is_refused():
    """It would never end: the message names the stage and what it must do."""
    hand = Hand(plain_method(1, generate=Spin()), num_tasks=1)
    hand.start()
    with pytest.raises(ConfigError, match="plan of Spin for t/0#0 waits, but nothing"):
        hand.fail(hand.asks(Submit)[0])


class Leaves:
    """A plan that returns while its second ask is in flight."""

    def plan(self, view, num, rng):
        yield Want([Ask(view.root, num=2)], wait="any")


def test_a_plan_that_leaves_its_asks_is_refused():
    """Their answers would have nobody to go to."""
    hand = Hand(plain_method(2, generate=Leaves()), num_tasks=1)
    hand.start()
    with pytest.raises(ConfigError, match="1 of its asks were in flight"):
        hand.sample(hand.asks(Submit)[0], (3, 0))
