"""The law suite: what every method must obey, whoever wrote it.

    from rollwright.testing.laws import check_method

    def test_my_method_obeys_the_laws():
        check_method(my_method)

Each law runs the method through small scenarios on a fake engine (and, for the laws of learning, on a tiny
real decoder) and compares with an oracle: a count by hand, another order of arrival, a slow reference, an
enumeration. What a method declares (`Method.declares`) exempts it from a law, and is tested itself.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence

import msgspec

from rollwright.errors import LawBroken
from rollwright.ledger import Unit
from rollwright.method import Method
from rollwright.runner import Runner
from rollwright.testing.laws_of_credit import law_baseline, law_not_sampled
from rollwright.testing.scenarios import SCENARIOS, Outcome, Scenario, broken, play, played

ARRIVALS = (3, 11)
Law = Callable[[Method], None]


def check_method(
    method_or_factory: Method | Callable[[], Method],
    trigger: Scenario | Sequence[Scenario] = SCENARIOS,
    parent: Method | None = None,
    only: Sequence[int] = range(1, 10),
) -> None:
    """Check a method against the nine laws.

    Args:
        method_or_factory: the method, or what builds it.
        trigger: scenarios in one of which it must differ from its parent (law 3).
        parent: the method that it derives from; None leaves law 3 out.
        only: the numbers of the laws to check.

    Raises:
        LawBroken: with every law that does not hold: its number and name, the method, what was seen and
            what was expected.
    """
    method = method_or_factory if isinstance(method_or_factory, Method) else method_or_factory()
    triggers = (trigger,) if isinstance(trigger, Scenario) else tuple(trigger)
    broken = []
    for number, law in laws(triggers, parent):
        if number not in only:
            continue
        try:
            law(method)
        except LawBroken as error:
            broken.append(str(error))
    if broken:
        raise LawBroken("\n".join(broken))


def laws(triggers: Sequence[Scenario], parent: Method | None) -> Iterator[tuple[int, Law]]:
    """Yield (number, law) in order."""
    from rollwright.testing import laws_of_learning as learning

    yield 1, law_ledger
    yield 2, law_determinism
    if parent is not None:
        yield 3, lambda method: law_bite(method, parent, triggers)
    yield 4, law_baseline
    yield 5, law_not_sampled
    yield 5, learning.law_no_gradient
    yield 6, learning.law_invariance
    yield 7, learning.law_reinforce
    yield 8, learning.law_bias
    yield 9, law_value


# ---------------------------------------------------------------- 1: ledger


def law_ledger(method: Method) -> None:
    """For each unit spent + left = granted; the fates add up; the trained tokens are those trained.

    The runs check the sum of the fates after every event; here the ledger is compared with a count of the
    recorded events and of the batches.
    """
    budget = {unit.value: 1e9 for unit in Unit}
    ledger = play(method, SCENARIOS[0], budget=budget).runner.ledger
    for unit in Unit:
        total = ledger.spent[unit.value] + ledger.left(unit)
        if total != budget[unit.value]:
            raise broken(1, "ledger", method, f"{unit.value}: spent + left = {total}", "1e9, as granted")
    for scenario in SCENARIOS:
        outcome = played(method, scenario.name)
        ledger = outcome.runner.ledger
        where = f" in scenario {scenario.name!r}"
        for unit_name, amount in outcome.spent_by_hand().items():
            if ledger.spent[unit_name] != amount:
                seen = f"{ledger.spent[unit_name]} {unit_name}{where}"
                raise broken(1, "ledger", method, seen, f"{amount}, counted from the events")
        trained = ledger.fates["trained"]
        if trained != outcome.trained_by_hand():
            expected = f"{outcome.trained_by_hand()}, the steps on trained paths"
            raise broken(1, "ledger", method, f"{trained} tokens with the fate trained{where}", expected)


# ---------------------------------------------------------------- 2: determinism


def law_determinism(method: Method) -> None:
    """Same seed, same rollouts, bit for bit, in any order of arrival; another seed, other ones.

    A method that declares ``arrival`` may train other rollouts, but each samples the same.
    """
    for scenario in SCENARIOS[:3]:
        for arrival in ARRIVALS:
            if "arrival" in method.all_declared:
                _same_samples(method, scenario, arrival)
            else:
                _same_batches(method, scenario, arrival)
    scenario = SCENARIOS[0]
    one, again = played(method, scenario.name), play(method, scenario)
    if one.rows != again.rows:
        raise broken(2, "determinism", method, "two runs with one seed differ", "the same rows")
    other = play(method, scenario, seed=scenario.seed + 1)
    if {row[3] for row in one.rows} == {row[3] for row in other.rows}:
        raise broken(2, "determinism", method, "two seeds sample the same tokens", "other samples")


def _same_batches(method: Method, scenario: Scenario, arrival: int) -> None:
    one, two = played(method, scenario.name), play(method, scenario, arrival)
    where = f"in scenario {scenario.name!r} with arrivals shuffled by {arrival}"
    if one.batches != two.batches:
        seen = f"other batches {where}: {_first_difference(one, two)}"
        hint = "the same batches; if which rollouts are trained may depend on arrival, declare 'arrival'"
        raise broken(2, "determinism", method, seen, hint)
    fates = (one.runner.ledger.fates, two.runner.ledger.fates)
    if fates[0] != fates[1]:
        raise broken(2, "determinism", method, f"fates {fates[1]} {where}", str(fates[0]))


def _same_samples(method: Method, scenario: Scenario, arrival: int) -> None:
    """With weights that never move, every rollout that both runs trained has the same tokens."""
    one, two = (play(method, scenario, order, is_frozen=True) for order in (None, arrival))
    known = {row[1:3]: row[3:5] for row in one.rows}
    shared = [row for row in two.rows if row[1:3] in known]
    if not shared:
        raise broken(2, "determinism", method, "no rollout that two runs share", "at least one to compare")
    for row in shared:
        if row[3:5] != known[row[1:3]]:
            seen = f"rollout {row[1:3]} samples {row[3]} with arrivals shuffled by {arrival}"
            raise broken(2, "determinism", method, seen, str(known[row[1:3]][0]))


def _first_difference(one: Outcome, two: Outcome) -> str:
    for a, b in zip(one.rows, two.rows, strict=False):
        if a != b:
            return f"{a} against {b}"
    if len(one.rows) != len(two.rows):
        return f"{len(one.rows)} against {len(two.rows)} trained trajectories"
    return "the same tokens under other names or in other nodes"


# ---------------------------------------------------------------- 3: bite


def law_bite(method: Method, parent: Method, triggers: Sequence[Scenario]) -> None:
    """On a trigger the method differs from its parent: in what it trains, or in how it learns from it.

    One that declares ``schedule`` trains the same in all of them, by other commands in one.
    """
    from rollwright.testing.laws_of_learning import learns_differently

    if "schedule" in method.all_declared:
        return _only_schedules(method, parent, triggers)

    for scenario in triggers:
        one, two = play(method, scenario), play(parent, scenario)
        if one.rows != two.rows or one.runner.ledger.fates != two.runner.ledger.fates:
            return
    if not learns_differently(method, parent):
        names = [scenario.name for scenario in triggers]
        seen = f"the same batches, fates and losses as {parent.name} in {names}"
        raise broken(3, "bite", method, seen, "a difference in one of them; give a trigger scenario")


def _only_schedules(method: Method, parent: Method, triggers: Sequence[Scenario]) -> None:
    is_other = False
    for scenario in triggers:
        one, two = play(method, scenario), play(parent, scenario)
        if one.rows != two.rows or one.runner.ledger.fates != two.runner.ledger.fates:
            seen = f"other batches or fates than {parent.name} in scenario {scenario.name!r}"
            raise broken(3, "bite", method, seen, "the same ones: it declares 'schedule'")
        is_other |= [c for _, commands in one.events for c in commands] != [
            c for _, commands in two.events for c in commands
        ]
    if not is_other:
        names = [scenario.name for scenario in triggers]
        raise broken(3, "bite", method, f"the commands of {parent.name} in {names}", "other commands in one")


# ---------------------------------------------------------------- 9: values


def law_value(method: Method) -> None:
    """Pickle, copy and JSON give an equal method, and the copy decides the same, byte for byte."""
    copies = {
        "pickle": pickle.loads(pickle.dumps(method)),
        "deepcopy": copy.deepcopy(method),
        "JSON": Method.from_json(method.to_json()),
    }
    for what, value in copies.items():
        if value != method:
            raise broken(9, "round trip", method, f"another method after {what}: {value}", repr(method))
    outcome = played(method, SCENARIOS[0].name)
    _replays(method, copies["JSON"], outcome)
    try:
        msgspec.json.encode(outcome.runner.replay_state)
    except TypeError as error:
        raise broken(
            9, "round trip", method, f"a replay state that does not encode: {error}", "JSON"
        ) from error


def _replays(method: Method, copied: Method, outcome: Outcome) -> None:
    """Fold the run's events through a runner of the copy, pickled on the way."""
    runner = Runner(copied, outcome.runner.settings)
    for i, (event, commands) in enumerate(outcome.events):
        if i % 7 == 3:
            runner = pickle.loads(pickle.dumps(runner))
        if msgspec.json.encode(runner.step(event)) != msgspec.json.encode(commands):
            raise broken(
                9, "round trip", method, f"other decisions at event {i} of a replay", "the same bytes"
            )
