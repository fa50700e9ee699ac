"""Our client and our server together are the engine in this process, bit for bit."""

from __future__ import annotations

import random

import pytest
from client_help import (
    MODEL,
    SlowEngine,
    ask,
    characters,
    config,
    connected,
    run_to_end,
    serve,
    wait_until,
)

from rollwright.discovery import load_method
from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.engine.checkpoint import save_model
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import new_model
from rollwright.errors import EngineError
from rollwright.events import EmitBatch, Failed, Published, Scored
from rollwright.rng import stream_key
from rollwright.runner import Runner
from rollwright.testing.decoded import tiny_decoder
from rollwright.testing.fake import ToyTask, ToyTokenizer
from rollwright.testing.hand import plain_method
from rollwright.testing.scenarios import Scenario
from rollwright.tree import Sampling, StopReason

SAMPLINGS = (
    Sampling(),
    Sampling(0.7),
    Sampling(0.0),
    Sampling(0.0, top_p=0.5),
    Sampling(0.9, 0.8, 20, 0.01),
    Sampling(stop_strings=("A", "((")),
    Sampling(stop_ids=(11, 14)),
)


def asks_of(num: int, seed: int):
    """Asks of all kinds: groups, chunks, alternatives, forced tokens, carried turns."""
    rng = random.Random(seed)
    asks = []
    for i in range(num):
        group = f"g{rng.randrange(3)}"
        prefix = [5 + ord(group[1]) % 7, 9, 30, 7][: rng.randint(1, 4)] + [
            rng.randint(3, 60) for _ in range(3)
        ]
        command, prefix = ask(
            f"{group}/{i}",
            prefix,
            group,
            max_tokens=rng.randint(1, 40),
            sampling=rng.choice(SAMPLINGS),
            num_top=rng.choice((0, 0, 3)),
            chunk=rng.choice((0, 1, 4, 7, 11, 16)),
            first=rng.choice((None, None, 13)),
            turn_start=rng.choice((None, len(prefix) - 2)),
            attempt=rng.randrange(3),
            priority=rng.randrange(3),
        )
        asks.append((command, prefix))
    # The turn's "(" was sampled before; the forced "(" completes the stop string at once.
    more = {"turn_start": 4, "first": 11, "sampling": Sampling(stop_strings=("((",))}
    asks.append(ask("g0/turn", [5, 9, 30, 7, 11], "g0", max_tokens=9, **more))
    return asks


def merged(events):
    """Return events without what may depend on the schedule: what was prefilled."""
    return [
        (e.tokens, e.logprobs, e.entropies, e.kept_masses, e.top, e.stop, e.version, e.attempt)
        for e in events
    ]


def test_every_event_is_the_engines_own():
    """Other implementation: `LocalEngine` given the same submits, event by event, chunk by chunk."""
    asks = asks_of(60, 0)
    expected = {command.ask: [] for command, _ in asks}
    engine = LocalEngine(MODEL, characters())
    for command, prefix in asks:
        engine.submit(command, prefix)
    while engine.num_live:
        for event in engine.step():
            expected[event.ask].append(event)
    with (
        serve(LocalEngine(MODEL, characters(), max_batch=8)).running() as server,
        connected(server.url) as remote,
    ):
        events, failures = run_to_end(remote, asks)
    assert not failures
    for command, _ in asks:
        assert merged(events[command.ask]) == merged(expected[command.ask]), command
    stops = {e.stop for found in events.values() for e in found}
    assert stops == {None, StopReason.EOS, StopReason.STOP, StopReason.LENGTH}


def test_what_an_abort_returns_goes_on_as_if_nothing_had_been():
    """Metamorphic: aborted and asked again from there, a stream gives what it gives at once."""
    command, prefix = ask("a", [5, 9, 30], max_tokens=120, sampling=Sampling(stop_strings=("ZZZ",)))
    whole = LocalEngine(MODEL, characters(()))
    whole.submit(command, prefix)
    (expected,) = whole.step()
    with serve(SlowEngine(MODEL, characters(()))).running() as server, connected(server.url) as remote:
        made, logprobs, parts = [], [], 0
        while len(made) < 120:
            ids = prefix + made
            part, _ = ask(
                f"a{parts}",
                ids,
                stream=command.stream,
                max_tokens=120 - len(made),
                sampling=command.sampling,
                turn_start=len(prefix) if made else None,
            )
            remote.submit(part, ids)
            goal = server.jobs.metrics.generation_tokens + 20
            wait_until(
                lambda goal=goal: server.jobs.metrics.generation_tokens >= goal or remote._fleet._ready
            )
            event = remote.abort(part.ask)
            assert event.stop is (
                StopReason.INTERRUPTED if len(made) + len(event.tokens) < 120 else StopReason.LENGTH
            )
            assert remote.num_live == 0
            made += event.tokens
            logprobs += event.logprobs
            parts += 1
        wait_until(lambda: server.engine.num_live == 0)
    assert parts > 2 and tuple(made) == expected.tokens and tuple(logprobs) == expected.logprobs


def test_new_weights_in_the_middle(tmp_path):
    """Hand: chunks are of one version each, in order; no version can be claimed that is not served."""
    save_model(new_model(config(), 9), tmp_path / "new")
    command, prefix = ask("a", [5, 9, 30], max_tokens=150, chunk=50)
    engine = SlowEngine(new_model(config(), 8), characters(()))
    engine.pause = 0.1
    with serve(engine).running() as server, connected(server.url) as remote:
        remote.submit(command, prefix)
        wait_until(lambda: server.jobs.metrics.generation_tokens > 10)
        with pytest.raises(EngineError, match="serves version 0"):
            remote.publish(3)
        remote.update_weights(tmp_path / "new", 3)
        assert remote.version == 3
        events = []
        while remote.num_live:
            events += remote.step()
    assert [e.version for e in events] == sorted(e.version for e in events)
    assert {e.version for e in events} == {0, 3} and sum(len(e.tokens) for e in events) == 150
    assert any(len(e.tokens) < 50 for e in events[:-1])  # the old version's rest came on its own


def test_a_run_over_http_samples_the_same():
    """Other implementation: a method run by the inline driver, on the engine and over HTTP."""

    def play(engine):
        method = load_method("latr", each=3, tau_abs=0.15, tau_rel=0.3, lookahead=3)
        task = ToyTask(num_tasks=4, max_turns=1, max_tokens=8, context=40)
        settings = Scenario("engine", task, {"num_steps": 1, "num_tasks": 3, "chunk": 2}).settings_of()
        kept = []

        class Sink:
            def append(self, event, commands):
                kept.extend(c for c in commands if isinstance(c, EmitBatch))

            def flush(self): ...

        def train(batch):
            return Published(step=batch.step, version=batch.version)

        engine.publish = lambda version: None
        InlineDriver(Runner(method, settings), engine, World(task, ToyTokenizer(), (0,)), train, Sink()).run()
        return kept

    local = play(LocalEngine(tiny_decoder()))
    tokenizer = characters(())
    engine = LocalEngine(tiny_decoder(), tokenizer)
    with serve(engine).running() as server, connected(server.url) as remote:
        remote.require(load_method("latr").engine_needs)
        assert play(remote) == local
    assert local


def test_streams_are_independent_of_their_company():
    """Metamorphic: one ask alone and among 40 others gives the same event."""
    command, prefix = ask("me", [5, 9], max_tokens=30, stream=stream_key(3, "t", "0/0"))
    with serve(LocalEngine(MODEL, characters())).running() as server, connected(server.url) as remote:
        alone, _ = run_to_end(remote, [(command, prefix)])
        among, _ = run_to_end(remote, [*asks_of(40, 5), (command, prefix)])
    assert merged(alone["me"]) == merged(among["me"])


class Picky(LocalEngine):
    """Refuses some streams, whenever they are asked for."""

    def submit(self, command, prefix):
        if command.stream % 4 == 0:
            raise EngineError(f"stream {command.stream} is refused")
        super().submit(command, prefix)


def test_asks_that_fail_for_good_are_failed_rollouts_of_the_run():
    """Hand: the run goes on to its end; what failed has the server's words, no tokens and no reward."""
    task = ToyTask(num_tasks=6, max_turns=1, max_tokens=8, context=40)
    settings = Scenario("engine", task, {"num_steps": 2, "num_tasks": 3}).settings_of()
    kept, reports = [], []

    class Sink:
        def append(self, event, commands):
            kept.append(event)

        def flush(self): ...

    def train(batch):
        return Published(step=batch.step, version=batch.version)

    with serve(Picky(tiny_decoder(), characters(()))).running() as server, connected(server.url) as remote:
        remote.publish = lambda version: None
        runner = Runner(plain_method(4), settings)
        driver = InlineDriver(
            runner, remote, World(task, ToyTokenizer(), (0,)), train, Sink(), reports.append
        )
        assert driver.run()
    failed = [e for e in kept if isinstance(e, Failed)]
    assert failed and all(e.kind == "engine" and "is refused" in e.message for e in failed)
    assert len(reports) == 2 and not [
        e for e in kept if isinstance(e, Scored) and e.ask in {f.ask for f in failed}
    ]
