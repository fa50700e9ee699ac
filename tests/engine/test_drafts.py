"""Drafts change how fast tokens come, never which: any drafter, batch, memory, interruption."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from engine_help import ask, characters, config, lively_model, run
from test_exact import exact, interrupted, mixed_asks

from rollwright.engine.checkpoint import load_model, load_tokenizer
from rollwright.engine.drafts.previous import PreviousDrafter
from rollwright.engine.drafts.race import Noise
from rollwright.engine.drafts.suffix import SuffixDrafter, SuffixTree
from rollwright.engine.drafts.switch import Switch
from rollwright.engine.inprocess import LocalEngine
from rollwright.errors import EngineError
from rollwright.rng import exponential, noise_bits, step_words, stream_key
from rollwright.tasks.registry import load_task, shipped_checkpoint
from rollwright.tree import Sampling


@pytest.fixture(params=["native", "torch"], autouse=True)
def kernel(request, monkeypatch):
    """Run every test with the compiled kernel and with torch."""
    monkeypatch.setenv("ROLLWRIGHT_KERNEL", request.param)
    return request.param


def plain_asks(rng: random.Random, num_groups: int):
    """Groups of samples without cuts: hot, cold, greedy, with stop strings and ids, in chunks."""
    samplings = (
        Sampling(),
        Sampling(0.7),
        Sampling(0),
        Sampling(stop_strings=("A", "+B")),
        Sampling(stop_ids=(7, 8)),
    )
    asks = []
    for g in range(num_groups):
        prefix = [rng.randrange(3, 64) for _ in range(rng.choice([1, 2, 15, 16, 17, 33, 70]))]
        for k in range(rng.randint(1, 6)):
            more = {"max_tokens": rng.choice([1, 3, 20, 50]), "sampling": rng.choice(samplings)}
            asks.append(ask(f"{g}.{k}", prefix, f"g{g}", chunk=rng.choice([0, 0, 4, 7]), **more))
    return asks


class Knowing:
    """Knows the true answers and tells them, each token wrong with some probability.

    What it says depends on nothing but ask and position, so that a failure can be repeated.
    """

    name = "knowing"

    def __init__(self, answers, error: float, num_words: int) -> None:
        self.answers, self.error, self.num_words = answers, error, num_words
        self.made: dict[str, list[int]] = {}

    def begin(self, command, prefix):
        self.made[command.ask] = []

    def extend(self, ask, tokens):
        self.made[ask] += tokens.tolist()

    def propose(self, asks, most):
        found = []
        for name, num in zip(asks, most, strict=True):
            truth, at = self.answers[name].tokens, len(self.made[name])
            rng = random.Random(f"{name} {at}")
            true = [*truth[at : at + num], *(0 for _ in range(num))][:num] if rng.random() < 0.8 else []
            wrong = [rng.randrange(self.num_words) if rng.random() < self.error else t for t in true]
            found.append(np.array(wrong, np.int64))
        return found

    def end(self, ask):
        self.made.pop(ask, None)


def with_drafts(model, drafter, **settings):
    engine = LocalEngine(model, characters(eos=(3,)), drafter=drafter, **settings)
    engine.drafting.switch.is_forced = True
    return engine


@pytest.mark.parametrize(("error", "settings"), [(0.0, {}), (0.3, {"max_batch": 7, "draft_tokens": 3})])
def test_output_with_drafts_is_output_without(error, settings):
    """Metamorphic: plain decoding, for asks of every kind (stop strings, ends, chunks), then with some that
    cannot be drafted (cuts, alternatives) among them.

    Broken by: noise of the first position for all; keeping the token after the first wrong guess; not giving
    places back; looking past an end token."""
    model = lively_model()
    for asks in (plain_asks(random.Random(1), 8), mixed_asks(random.Random(1), 8, 64)):
        answers = run(LocalEngine(model, characters(eos=(3,))), asks)
        engine = with_drafts(model, Knowing(answers, error, 64), **settings)
        assert exact(run(engine, asks, random.Random(2))) == exact(answers)
        report = engine.drafting.report
        assert report.passes >= 2 and (report.accepted > 0.9 * report.proposed) == (error == 0)


class Wrong:
    """Gives what a test says; its ``begin`` raises if told so."""

    name = "wrong"

    def __init__(self, gives, is_closed: bool = False) -> None:
        self.gives, self.is_closed = gives, is_closed

    def begin(self, command, prefix):
        if self.is_closed:
            raise ValueError("no more")

    def extend(self, ask, tokens): ...

    def end(self, ask): ...

    def propose(self, asks, most):
        return self.gives(asks, most)


@pytest.mark.parametrize(
    ("gives", "said"),
    [
        (lambda asks, most: [np.full(n, 64) for n in most], r"tokens 64 to 64 .* \[0, 64\)"),
        (lambda asks, most: [np.full(n, -1) for n in most], r"tokens -1 to -1 .* \[0, 64\)"),
        (lambda asks, most: [np.full(n + 1, 5) for n in most], "expected at most"),
        (lambda asks, most: [np.full(n, 5.5) for n in most], "expected an array of token ids"),
        (lambda asks, most: [[5] * n for n in most], "expected an array of token ids"),
        (lambda asks, most: [], "gave 0 drafts for 1 asks"),
    ],
)
def test_what_is_no_draft_is_refused(gives, said):
    """By hand: each is refused by name, nothing is lost, and plain steps go on to the same answer.

    Before, the compiled kernel read memory outside the model for an id outside the vocabulary."""
    model, asks = lively_model(), [ask("c", [4, 5, 6], max_tokens=12)]
    engine = with_drafts(model, Wrong(gives))
    for command, prefix in asks:
        engine.submit(command, prefix)
    with pytest.raises(EngineError, match=said):
        while engine.num_live:
            engine.step()
    engine.drafting.drafter.gives = lambda asks, most: [np.zeros(0, np.int64) for _ in asks]
    made = [token for event in iter_steps(engine) for token in event.tokens]
    assert made == list(run(LocalEngine(model, characters(eos=(3,))), asks)["c"].tokens)


def iter_steps(engine):
    """Every event until nothing is live."""
    while engine.num_live:
        yield from engine.step()


def test_an_ask_at_which_the_drafter_raises_was_not_taken():
    """By hand: a drafter's error comes out and leaves no ask that nobody would ever answer."""
    engine = with_drafts(lively_model(), Wrong(None, is_closed=True))
    (command, prefix) = ask("c", [4, 5, 6], max_tokens=12)
    with pytest.raises(ValueError, match="no more"):
        engine.submit(command, prefix)
    assert engine.num_live == 0
    engine.drafting.drafter.is_closed = False
    engine.drafting.drafter.gives = lambda asks, most: [np.zeros(0, np.int64) for _ in asks]
    engine.submit(command, prefix)
    assert sum(len(event.tokens) for event in iter_steps(engine)) > 0


def test_little_memory_and_interruptions_change_nothing():
    """Metamorphic: plain decoding against drafts with room for few pages, preempted, aborted and resumed.

    Afterwards every page is free again. Broken by: not giving an emptied page back to the pool."""
    model = lively_model()
    asks = plain_asks(random.Random(4), 6)
    answers = run(LocalEngine(model, characters(eos=(3,))), asks)
    bytes_per_page = LocalEngine(model).kv.bytes_per_page
    drafter = Knowing(answers, 0.2, 64)
    engine = with_drafts(model, drafter, kv_budget_bytes=14 * bytes_per_page, max_batch=9)
    assert exact(run(engine, asks)) == exact(answers)
    engine = with_drafts(model, SuffixDrafter(), max_batch=9, token_budget=23)
    assert exact(interrupted(engine, asks, random.Random(5))) == exact(answers)
    for group in {command.group for command, _ in asks}:
        engine.retire(group)
    report = engine.memory_report()
    assert report["kv_live_bytes"] == report["kv_cached_bytes"] == 0
    assert not engine.drafting._ask_to_heard


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["knowing", "suffix", "previous"])
def test_ten_thousand_sequences_with_drafts(drafter, capsys):
    """Metamorphic: 10,000 sequences, in two epochs, with and without drafts; ties are counted."""
    model = lively_model(config(num_layers=1))
    rng, asks = random.Random(6), []
    for epoch in range(2):
        for g in range(625):
            prompt = [random.Random(g).randrange(3, 64) for _ in range(random.Random(g).randint(1, 20))]
            for k in range(8):
                stream = stream_key(0, f"g{g}", str(k))
                more = {"max_tokens": rng.randint(1, 24), "stream": stream}
                asks.append(ask(f"{epoch}.{g}.{k}", prompt, f"{epoch}.g{g}", **more))
    answers = run(LocalEngine(model, characters(eos=(3,))), asks)
    made = {
        "knowing": lambda: Knowing(answers, 0.2, 64),
        "suffix": SuffixDrafter,
        "previous": PreviousDrafter,
    }[drafter]()
    engine = with_drafts(model, made, max_batch=64)
    got = run(engine, asks)
    differing = sum(got[name].exact != answers[name].exact for name in answers)
    ties = sum(len(set(a.logprobs)) < len(a.logprobs) for a in answers.values())
    with capsys.disabled():
        print(
            f"\n{drafter}: {len(asks)} sequences, {differing} differ, {ties} with equal logprobs twice,",
            end=" ",
        )
        print(f"acceptance {engine.drafting.report.acceptance:.2f}")
    assert differing == 0


# ------------------------------------------------------------------ drafters


def brute_force(sequences, suffix_of, depth, most):
    """The most frequent continuation of the longest suffix that occurs with something behind it."""
    made = list(suffix_of)
    for length in range(min(depth, len(made)), 0, -1):
        tail, out = made[len(made) - length :], []
        while len(out) < most:
            run_ = tail + out
            counts = Counter(
                s[i + len(run_)]
                for s in sequences
                for i in range(len(s) - len(run_))
                if s[i : i + len(run_)] == run_ and len(run_) <= depth
            )
            if not counts:
                break
            out.append(min(counts, key=lambda t: (-counts[t], t)))
        if out:
            return out
    return []


def test_suffix_matches_equal_brute_force():
    """Slow reference: counting every occurrence in every sequence."""
    rng = random.Random(7)
    for _ in range(60):
        depth = rng.randint(1, 5)
        sequences = [[rng.randrange(3) for _ in range(rng.randint(1, 14))] for _ in range(rng.randint(1, 5))]
        tree, nodes = SuffixTree(depth), []
        for sequence in sequences:
            nodes = [tree.root]
            for token in sequence:
                nodes = tree.add(nodes, token)
        node = tree.match(nodes)
        got = [] if node is None else tree.likeliest(node, 4, 0.0)
        assert got == brute_force(sequences, sequences[-1], depth, 4)


def test_trees_take_no_more_than_they_may():
    """Closed form: at most 13 new nodes a token of a text without repeats; what is too much goes when an ask
    begins, the oldest prompt first, and one prompt's tree begins anew. Broken by: counting what is forgotten,
    which asks that go on still add to, until nothing is kept or the count never falls."""
    drafter = SuffixDrafter(most_nodes=1000)
    for k in range(40):
        drafter.begin(ask(f"a{k}", [k], f"g{k}")[0], np.array([k]))
        assert drafter.num_nodes <= 1000 + 13
        for earlier in range(max(0, k - 3), k + 1):  # also those whose prompt is forgotten by now
            drafter.extend(f"a{earlier}", np.arange(1000 * k + 100 * earlier, 1000 * k + 100 * earlier + 20))
    assert len(list(drafter._families)) >= 2
    drafter.extend("a39", np.arange(10**6, 10**6 + 200))
    assert drafter._ask_to_open["a39"].tree.num_nodes == 0
    assert len(drafter.propose(["a39"], [4])) == 1


def test_a_way_is_followed_while_its_share_is_large_enough():
    """Closed form: after a: b three times of four, then c always; shares 0.75 and 0.75."""
    tree = SuffixTree(3)
    for sequence in ("abc", "abc", "abc", "axc"):
        nodes = [tree.root]
        for letter in sequence:
            nodes = tree.add(nodes, ord(letter))
    after_a = tree.root.children[ord("a")]
    assert tree.likeliest(after_a, 8, 0.75) == [ord("b"), ord("c")]
    assert tree.likeliest(after_a, 8, 0.76) == []
    assert tree.likeliest(after_a, 1, 0.0) == [ord("b")]


def test_with_noise_ways_end_where_the_unseen_begins():
    """Closed form: Good and Turing: after a 1 - 1/5, after b or x 1 - 0 or 1 - 1/2; and the race is run with
    the counts: b wins three times of four. Broken by: taking the likeliest."""
    tree = SuffixTree(3)
    for sequence in ("abc", "abc", "abc", "axc"):
        nodes = [tree.root]
        for letter in sequence:
            nodes = tree.add(nodes, ord(letter))
    after_a = tree.root.children[ord("a")]
    ways = Counter(
        "".join(map(chr, tree.continuation(after_a, 8, 0.5, lambda k, stream=stream: Noise(stream, k))))
        for stream in range(4000)
    )
    assert set(ways) == {"bc", "x"} and abs(ways["bc"] / 4000 - 0.75) < 0.03
    assert tree.continuation(after_a, 8, 0.81, lambda k: Noise(0, k)) == []


def test_the_races_noise_is_the_samplers():
    """Other implementation: rollwright.rng in numpy."""
    for stream, t in ((0, 0), (stream_key(3, "a", "b"), 7), ((1 << 63) - 1, 40)):
        want = exponential(noise_bits(step_words(stream, t), 300))
        got = [Noise(stream, t).time(token) for token in range(300)]
        assert np.allclose(got, want, rtol=1e-3)


def epochs(drafter, noise_is_kept: bool, prompts=6, samples=4):
    """Two epochs over the same prompts; return the reports of each."""
    model = lively_model(gain=8.0)
    engine = with_drafts(model, drafter)
    reports = []
    for epoch in range(2):
        before = (engine.drafting.report.proposed, engine.drafting.report.accepted)
        asks = []
        for p in range(prompts):
            for k in range(samples):
                stream = stream_key(0 if noise_is_kept else epoch, f"p{p}", str(k))
                prompt = [5 + p, 9, 30 + p]
                asks.append(ask(f"{epoch}.{p}.{k}", prompt, f"{epoch}.{p}", stream=stream, max_tokens=24))
        run(engine, asks)
        after = engine.drafting.report
        reports.append((after.proposed - before[0], after.accepted - before[1]))
    return reports


def test_the_last_epochs_rollouts_are_drafts():
    """Closed form: with the same noise and weights the old rollout is the new one, so all is accepted; with
    other noise only a part. Nothing is proposed in the first epoch. Broken by: drafts in another order."""
    (first, _), (proposed, accepted) = epochs(PreviousDrafter(), noise_is_kept=True)
    assert first == 0 and proposed == accepted > 200
    (first, _), (proposed, accepted) = epochs(PreviousDrafter(), noise_is_kept=False)
    assert first == 0 and 0 < accepted < proposed


def test_siblings_are_better_drafts_than_strangers():
    """Metamorphic: the same rollouts of a trained model, drafted from those of the same prompt and from as
    many of other prompts. Broken by: one tree for all prompts."""
    path = shipped_checkpoint("countdown")
    model, tokenizer, task = load_model(path), load_tokenizer(path), load_task("countdown")
    prompts = [tokenizer.encode(task.prompt(name)) for name in task.ids("test")[:12]]
    accepted = {}
    for name in ("own", "others"):
        engine = LocalEngine(model, tokenizer, drafter=SuffixDrafter())
        engine.drafting.switch.is_forced = True
        for p, prompt in enumerate(prompts):
            source = prompt if name == "own" else prompts[p - 1]
            run(engine, [ask(f"{name}{p}.{k}", source, f"{name}{p}", max_tokens=40) for k in range(6)])
        engine.drafting.drafter._families.of = _as_if_before(engine.drafting.drafter._families, prompts, name)
        engine.drafting.report.accepted = 0
        run(engine, [ask(f"new{p}", prompt, f"new{p}", max_tokens=40) for p, prompt in enumerate(prompts)])
        accepted[name] = engine.drafting.report.accepted
    assert accepted["own"] > accepted["others"] > 0


def _as_if_before(families, prompts, name):
    """Find for a prompt the tree that was filled for it: its own, or its neighbour's."""
    of, order = families.of, [tuple(prompt) for prompt in prompts]

    def find(group, prefix):
        p = order.index(tuple(prefix.tolist()))
        return of(f"{name}{p}", prefix)

    return find


# ------------------------------------------------------------------ the switch


def costs_of(plain: float, drafted: float, num: int):
    """Let a switch choose ``num`` times with these seconds a token; return how often it chose drafts."""
    switch, chosen = Switch(), 0
    for _ in range(num):
        is_drafted = switch.wants_drafts(4)
        chosen += is_drafted
        switch.tell(4, 10, 10 * (drafted if is_drafted else plain), is_drafted)
    return chosen


def test_the_switch_takes_the_faster_way_at_each_size():
    """Hand: drafts that save time are used but for the first pass; ones that cost are tried four times, then
    after pauses that double: 1 + 4 + 32 + 4 + 64 + 4 ... Broken by: no pause after a loss."""
    assert costs_of(2.0, 1.0, 1000) == 999
    assert costs_of(1.0, 2.0, 1000) == 4 * 5
    switch = Switch()
    switch.tell(4, 1, 1.0, False)
    assert switch.wants_drafts(5) and not switch.wants_drafts(200)
