"""Plans: words of budgets, arms and seeds; what may be added to a comparison; methods without a part."""

from __future__ import annotations

from pathlib import Path

import pytest
from compare_help import plan_of

from rollwright.ablation import parts, without
from rollwright.compare.budget import Budget, parse_budget, short
from rollwright.compare.plan import Arm, ablate, as_seeds, check, extend, load, parse_arms, save
from rollwright.discovery import load_method, method_factories
from rollwright.errors import ConfigError, StoreError, UnknownName
from rollwright.stages.allocate.even import Even
from rollwright.stages.credit.group_norm import GroupNorm


def test_budgets_as_words() -> None:
    """Oracle: hand. Kills: k as 1024, minutes as seconds, learner tokens taken as sampled ones."""
    for text, unit, amount in (
        ("200k-tokens", "sampled_tokens", 2e5),
        ("1.5M sampled-tokens", "sampled_tokens", 1.5e6),
        ("500-rollouts", "rollouts", 500),
        ("1e6-learner-tokens", "learner_tokens", 1e6),
        ("20,000 learner_tokens", "learner_tokens", 2e4),
        ("90-seconds", "seconds", 90),
        ("2-min", "seconds", 120),
    ):
        assert parse_budget(text) == Budget(unit, amount), text
    for text in ("200k", "tokens", "k-tokens", "5-apples", "-5-tokens", "0-tokens", "1.2.3-tokens", ""):
        with pytest.raises(ConfigError, match="budget"):
            parse_budget(text)
    assert [short(x) for x in (950, 42_100, 999_900, 1.2e6, 0.5, 0)] == [
        "950",
        "42.1k",
        "1M",
        "1.2M",
        "0.5",
        "0",
    ]
    assert str(Budget("sampled_tokens", 2e5)) == "200k tokens"


def test_arms_as_words() -> None:
    """Oracle: hand. Kills: options that stay text, a setting of the run that goes to the method."""
    found = parse_arms("grpo, dapo:hold=true:each=4@lr=1e-3, rlep@sampling.top-p=0.9")
    assert found[0] == Arm("grpo", "grpo")
    assert found[1].options == {"hold": True, "each": 4} and found[1].settings == {"lr": 1e-3}
    assert found[2].settings == {"sampling.top_p": 0.9}
    assert found[1].slug == "dapo_hold=true_each=4_lr=1e-3"
    for text in (":each=4", "grpo:each"):
        with pytest.raises(ConfigError):
            parse_arms(text)
    assert as_seeds("3") == (0, 1, 2) and as_seeds("7,3") == (7, 3) and as_seeds("7,") == (7,)
    for text in ("0", "x", "", "1.5", ","):
        with pytest.raises(ConfigError, match="seeds"):
            as_seeds(text)


def test_the_config_of_a_run() -> None:
    """Oracle: hand. Kills: a setting of an arm that loses to the shared one, a budget that is dropped."""
    plan = plan_of("grpo:each=4@lr=1e-3,dapo", settings={"lr": 2e-4, "num_tasks": 4})
    first, second = (plan.config(arm, 7) for arm in plan.arms)
    assert (first.lr, second.lr, first.seed, first.num_tasks) == (1e-3, 2e-4, 7, 4)
    assert first.method_options == {"each": 4} and second.method_options == {}
    assert first.budget == {"sampled_tokens": 100.0} and first.num_steps > 1000
    assert plan.points() == [50.0, 100.0]
    for given in ({"settings": {"seed": 3}}, {"settings": {"budget.rollouts": 3}}, {"num_points": 0}):
        with pytest.raises(ConfigError, match="compare"):
            plan_of(**given)
    for methods in ("grpo,grpo", "grpo@seed=3", ""):
        with pytest.raises(ConfigError, match="compare"):
            plan_of(methods)
    with pytest.raises(ConfigError, match="compare"):
        plan_of(num_seeds=0)


def test_a_bad_arm_is_refused_before_anything_runs() -> None:
    """Oracle: the errors of a run. Kills: one bad arm that is found after hours."""
    for methods, match in (("grpo,grop", "grpo"), ("grpo:eech=4", "each"), ("grpo@lr=-1", "lr")):
        with pytest.raises(ConfigError, match=match):
            check(plan_of(methods))
    check(plan_of("grpo,dapo:each=4"))


def test_a_plan_comes_back_from_its_folder(tmp_path: Path) -> None:
    """Oracle: metamorphic: read what was written. Kills: options or tuples that come back otherwise."""
    plan = plan_of(
        "grpo:each=4@lr=1e-3,dapo:hold=true", settings={"betas": [0.8, 0.9], "sampling.top_p": 0.5}
    )
    save(plan, tmp_path)
    assert load(tmp_path) == plan
    with pytest.raises(StoreError, match="no comparison"):
        load(tmp_path / "nothing")
    (tmp_path / "compare.toml").write_text("task = 3\n")
    with pytest.raises(StoreError, match="does not hold"):
        load(tmp_path)


def test_what_may_be_added() -> None:
    """Oracle: hand. Kills: runs of two learning rates in one comparison."""
    old = plan_of("grpo,dapo", 2)
    grown = extend(old, plan_of("grpo,rlep", 4))
    assert [arm.label for arm in grown.arms] == ["grpo", "dapo", "rlep"] and grown.seeds == (0, 1, 2, 3)
    assert extend(old, old) == old
    for given in ({"settings": {"lr": 1.0}}, {"num_points": 3}):
        with pytest.raises(ConfigError, match="differ"):
            extend(old, plan_of("grpo,dapo", 2, **given))


def test_parts_of_methods() -> None:
    """Oracle: hand, from each method's paper.

    Kills: parts that are plain GRPO's own, parts that are missed.
    """
    assert parts(load_method("grpo")) == []
    assert parts(load_method("dapo", max_tokens=40)) == [
        *("Refill", "ZeroVariance", "Overlong", "FullBatch", "PPOClip", "TokenMean"),
    ]
    assert parts(load_method("vigor", clip_high=0.2)) == ["VarianceRounds"]


def test_a_method_without_a_part() -> None:
    """Oracle: hand, and the law of round trips.

    Kills: another part that goes with it, a default that moves.
    """
    dapo = load_method("dapo", each=4)
    less = load_method("dapo", each=4, without="ZeroVariance")
    assert less.filters == () and less.allocate == dapo.allocate and less.name == "dapo~ZeroVariance"
    assert load_method("dapo", each=4, without="Refill").allocate == Even(4)
    assert without(load_method("sao"), "FixedBaseline").credit == (GroupNorm(),)
    two = load_method("dapo", without="Refill+TokenMean")
    assert two.allocate == Even(8) and type(two.reduce).__name__ == "SequenceMean"
    assert two.from_json(two.to_json()) == two
    with pytest.raises(UnknownName, match="did you mean 'Refill'"):
        load_method("dapo", without="refil")
    with pytest.raises(ConfigError, match="without"):
        load_method("dapo", without=3)


def test_every_part_of_every_method_can_be_left_out_or_says_who_needs_it() -> None:
    """Oracle: the chain's own check, and `parts` of what is left. Kills: a part that stays."""
    num = 0
    for name in method_factories():
        method = load_method(name)
        for part in parts(method):
            try:
                rest = without(method, part)
            except ConfigError as error:
                assert f"does not work without {part}" in str(error) and "needs" in str(error)
                continue
            assert part not in parts(rest), (name, part)
            num += 1
    assert num > 15


def test_arms_of_an_ablation() -> None:
    """Oracle: hand. Kills: an ablation of an ablation, a label that does not name the part."""
    arms = ablate(parse_arms("dapo:each=4")[0], ["Refill", "TokenMean"])
    assert [arm.label for arm in arms] == ["dapo:each=4", "dapo:each=4~Refill", "dapo:each=4~TokenMean"]
    assert arms[1].options == {"each": 4, "without": "Refill"}
    with pytest.raises(ConfigError, match="already"):
        ablate(arms[1], ["TokenMean"])
