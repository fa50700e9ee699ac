"""Two policies in one run: each samples its turns, each is trained on its own tokens and on no other."""

from __future__ import annotations

import copy
import dataclasses

import msgspec
import numpy as np
import pytest
import torch

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.several import SeveralEngines
from rollwright.errors import ConfigError
from rollwright.events import EmitBatch, Published
from rollwright.learn.config import LearnerConfig
from rollwright.learn.learner import Learner
from rollwright.learn.several import SeveralLearners
from rollwright.learn.stream import Stream
from rollwright.methods.grpo import grpo
from rollwright.runner import Runner
from rollwright.stages.generate.independent import Independent
from rollwright.stages.generate.take_turns import TakeTurns
from rollwright.testing.decoded import tiny_decoder
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.testing.scenarios import Outcome, Scenario, play
from rollwright.tree import Group, Origin

NAMES = ("solver", "critic")
DIALOGUE = Scenario(
    "dialogue", ToyTask(num_tasks=6, max_turns=4, max_tokens=6), {"num_steps": 3, "num_tasks": 3}
)
METHOD = dataclasses.replace(grpo(each=4, reduce="token_mean"), generate=TakeTurns(NAMES))


def learners_of(models) -> SeveralLearners:
    return SeveralLearners(
        {
            name: Learner(
                model,
                METHOD.objective,
                METHOD.reduce,
                LearnerConfig(lr=1e-2, policy=name, others=tuple(other for other in NAMES if other != name)),
            )
            for name, model in models.items()
        }
    )


def fresh_models():
    return {name: tiny_decoder(seed=seed) for seed, name in enumerate(NAMES)}


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def train_both():
    """Run two learning policies on real decoders; return models, learners, outcome."""
    models = fresh_models()
    learners = learners_of(models)
    engines = SeveralEngines({name: LocalEngine(model) for name, model in models.items()})
    outcome = Outcome(Runner(METHOD, DIALOGUE.settings_of()))

    def train(batch: EmitBatch) -> Published:
        outcome.batches.append(batch)
        figures = learners.update(batch.groups, batch.version)
        tokens = int(figures["learner_tokens"])
        return Published(step=batch.step, version=batch.version + 1, learner_tokens=tokens, metrics=figures)

    world = World(DIALOGUE.task, ToyTokenizer(), (0,))
    InlineDriver(outcome.runner, engines, world, train, outcome, outcome.reports.append, lambda: 0.0).run()
    return models, learners, outcome


@pytest.fixture(scope="module")
def trained():
    return train_both()


def others_as_context(group: Group, name: str) -> Group:
    """Return the group as if all but one policy's steps came from the environment, without credit."""
    nodes = {
        node.id: node
        if node.policy in (None, name)
        else msgspec.structs.replace(
            node,
            origin=Origin.OBSERVATION,
            logprobs=None,
            entropies=None,
            top=None,
            policy=None,
            version=None,
        )
        for node in group.nodes.values()
    }
    bare = msgspec.structs.replace(group, nodes=nodes)
    trajectories = []
    for t in bare.trajectories:
        is_own = bare.response(t).is_sampled
        advantages = tuple(np.where(is_own, t.advantages, 0.0).tolist())
        trajectories.append(msgspec.structs.replace(t, advantages=advantages))
    return msgspec.structs.replace(bare, trajectories=tuple(trajectories))


def test_turns_alternate_and_every_node_says_who_sampled_it(trained):
    """Oracle: hand. Turn k is of policy k mod 2, with one version for both; the ledger balances."""
    _, _, outcome = trained
    num_turns = set()
    for batch in outcome.batches:
        for group in batch.groups:
            for t in group.trajectories:
                sampled = [node for node, _ in group.path(t.leaf) if node.origin is Origin.SAMPLED]
                assert [node.policy for node in sampled] == [NAMES[k % 2] for k in range(len(sampled))]
                assert {node.version for node in sampled} == {batch.version}
                num_turns.add(len(sampled))
    assert max(num_turns) > 2
    outcome.runner.ledger.check()
    assert outcome.runner.ledger.fates["trained"] == outcome.trained_by_hand()


def test_each_policy_is_trained_on_its_own_tokens(trained):
    """Oracle: slow reference. A learner alone, to which the other's turns are the environment's, has the same
    weights, bit for bit; and the two differ. Kills: all steps trained by both."""
    models, _, outcome = trained
    start = fresh_models()
    for name in NAMES:
        alone = Learner(start[name], METHOD.objective, METHOD.reduce, LearnerConfig(lr=1e-2, policy=name))
        before = weights(start[name]).clone()
        for batch in outcome.batches:
            alone.update([others_as_context(group, name) for group in batch.groups], batch.version)
        assert torch.equal(weights(start[name]), weights(models[name]))
        assert not torch.equal(before, weights(models[name]))


def test_figures_are_by_policy_and_add_up(trained):
    """Oracle: recount. Trained tokens of both policies are the scored rollouts' sampled tokens."""
    _, learners, outcome = trained
    for batch, report in zip(outcome.batches, outcome.reports, strict=True):
        counts = dict.fromkeys(NAMES, 0)
        for group in batch.groups:
            for t in (t for t in group.trajectories if t.score is not None):
                for node, num in group.path(t.leaf):
                    if node.policy:
                        counts[node.policy] += num
        for name in NAMES:
            assert report.metrics[f"learn_{name}_num_trained_tokens"] == counts[name] > 0
            assert report.metrics[f"learn_{name}_ratio_max_dev"] < 1e-3, "its own tokens are on-policy"
    assert learners.version == len(outcome.batches)


def test_it_replays_and_runs_again_to_the_bit(trained):
    """Oracle: metamorphic. The events folded again give the same commands; a second run the same weights."""
    models, _, outcome = trained
    runner = Runner(METHOD, outcome.runner.settings)
    for event, commands in outcome.events:
        assert runner.step(event) == commands
    again, _, _ = train_both()
    assert all(torch.equal(weights(again[name]), weights(models[name])) for name in NAMES)


def test_micro_batches_of_both_policies_as_they_arrive():
    """Oracle: other implementation. Groups given to both streams one by one, in other orders, end in the
    weights of one update on the whole batch."""
    _, _, outcome = train_both()
    batch = outcome.batches[0]
    whole, streamed = fresh_models(), fresh_models()
    learners_of(whole).update(batch.groups, 0)
    streams = {name: Stream(learner) for name, learner in learners_of(streamed).learners.items()}
    for k in range(len(batch.groups)):
        streams["solver"].add([batch.groups[k]])
        streams["critic"].add([batch.groups[-1 - k]])
    for name, stream in streams.items():
        assert stream.finish()["num_trained_tokens"] > 0
        assert torch.allclose(weights(streamed[name]), weights(whole[name]), rtol=0, atol=1e-6)


def test_one_policy_is_the_independent_plan():
    """Oracle: other implementation. TakeTurns with one policy gives `Independent`'s batches, bit for bit."""
    assert METHOD.generate != Independent()
    single = dataclasses.replace(METHOD, generate=TakeTurns())
    plain = dataclasses.replace(METHOD, generate=Independent())
    assert play(single, DIALOGUE).batches == play(plain, DIALOGUE).batches


def test_arrival_changes_nothing_with_two_engines():
    """Oracle: metamorphic. Chunks of two engines in any order: the same batches."""

    def run(arrival: int | None):
        engines = SeveralEngines({name: FakeEngine(4 + k, arrival) for k, name in enumerate(NAMES)})
        return play(METHOD, DIALOGUE, engine=engines).batches

    want = run(None)
    assert run(3) == run(11) == want


def test_names_that_do_not_fit_are_refused():
    """Oracle: enumeration. An ask of a policy that nobody has, learners without names, versions."""
    engines = SeveralEngines({"solver": FakeEngine()})
    outcome = play(METHOD, DIALOGUE, engine=engines, retries=0)
    said = [note for report in outcome.reports for note in report.notes]
    assert any("no engine samples policy 'critic'" in note for note in said)
    model = tiny_decoder()
    alone = Learner(model, METHOD.objective, METHOD.reduce, LearnerConfig(policy="solver"))
    with pytest.raises(ConfigError, match="others"):
        SeveralLearners({"solver": alone, "critic": copy.copy(alone)})
    with pytest.raises(ConfigError, match="among others"):
        LearnerConfig(policy="solver", others=("solver",))
    with pytest.raises(ConfigError, match="expected one for all"):
        SeveralEngines({"solver": FakeEngine(), "critic": FakeEngine(version=1)})
    with pytest.raises(ConfigError, match="at least one"):
        TakeTurns(())
