"""Law 1: spent + left = granted for each unit; the fates add up to the tokens sampled."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwright.errors import ConfigError, LawBroken
from rollwright.ledger import Fate, Ledger, Unit


@given(st.lists(st.tuples(st.sampled_from(list(Fate)), st.integers(0, 20)), max_size=30))
def test_fates_add_up_whatever_happens(moves):
    """Slow reference: a count of tokens by hand beside the ledger's."""
    ledger, held, by_fate = Ledger(), 0, dict.fromkeys(Fate, 0)
    for fate, num in moves:
        if fate is Fate.HELD:
            ledger.sample(num)
            held += num
        elif num <= held:
            ledger.settle(num, fate, "why")
            held -= num
            by_fate[fate] += num
        else:
            with pytest.raises(LawBroken, match=f"{num} tokens to settle as {fate.value}, only {held}"):
                ledger.settle(num, fate, "why")
        ledger.check()
    assert ledger.fates[Fate.HELD.value] == held
    for fate, num in by_fate.items():
        if fate is not Fate.HELD:
            assert ledger.fates[fate.value] == num
    assert sum(ledger.fates.values()) == ledger.spent[Unit.SAMPLED.value]
    untrained = sum(num for fate, num in by_fate.items() if fate not in (Fate.HELD, Fate.TRAINED))
    assert sum(ledger.reasons.values()) == untrained


@pytest.mark.parametrize("unit", list(Unit))
def test_spent_and_left_are_granted(unit):
    """For each unit; a unit without a limit has infinitely much left; an overrun is negative."""
    ledger = Ledger()
    assert ledger.left(unit) == math.inf and ledger.exhausted is None
    ledger.grant({unit.value: 10})
    ledger.spend(unit, 4)
    assert ledger.spent[unit.value] + ledger.left(unit) == 10
    assert ledger.exhausted is None
    ledger.spend(unit, 6)
    assert ledger.exhausted == unit.value
    ledger.spend(unit, 3)
    assert ledger.left(unit) == -3


def test_a_check_finds_what_does_not_add_up():
    """A token without a fate is a broken law, with the sums in the message."""
    ledger = Ledger()
    ledger.sample(5)
    ledger.fates["trained"] += 1
    with pytest.raises(LawBroken, match="fates add up to 6, sampled were 5"):
        ledger.check()


def test_every_drop_has_a_reason():
    """Reasons are counted per fate; trained tokens have none; none given is said so."""
    ledger = Ledger()
    ledger.sample(10)
    ledger.settle(3, Fate.TRAINED)
    ledger.settle(2, Fate.FILTERED, "zero_variance")
    ledger.settle(1, Fate.FILTERED, "zero_variance")
    ledger.settle(4, Fate.STALE)
    assert ledger.reasons == {"filtered:zero_variance": 3, "stale:unnamed": 4}


@pytest.mark.parametrize(
    ("granted", "message"),
    [
        ({"token": 5}, "unit 'token' is unknown"),
        ({"rollouts": -1}, "rollouts = -1"),
        ({"rollouts": math.nan}, "rollouts = nan"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(granted, message):
    """And the old limits stay."""
    ledger = Ledger(granted={"rollouts": 7})
    with pytest.raises(ConfigError, match=message):
        ledger.grant(granted)
    assert ledger.granted == {"rollouts": 7}


def test_two_ledgers_share_nothing():
    """A mutable default that is shared would mix two runs."""
    one, two = Ledger(), Ledger()
    one.sample(3)
    one.settle(3, Fate.FAILED, "x")
    assert two.spent[Unit.SAMPLED.value] == 0 and two.reasons == {} and sum(two.fates.values()) == 0
