"""Shop: its rules by hand, its grader by enumeration, its tools by what they may and may not change."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.envs.tool_calls import FORMATS
from rollwright.envs.tool_text import render_call
from rollwright.envs.tools import Effect
from rollwright.errors import ConfigError, EnvironmentFault, UnknownName
from rollwright.tasks import _shop
from rollwright.tasks._shop import Database, Item, Order, Request, is_allowed
from rollwright.tasks.shop import Scenario, State, says, shop

TASK = shop()
BASE = Database(
    (
        Order(10, "ann", "mug", "pending"),
        Order(11, "bob", "hat", "pending"),
        Order(12, "ann", "hat", "delivered", 14),
        Order(13, "ann", "pen", "delivered", 15),
        Order(14, "ann", "pen", "shipped"),
    ),
    (Item("mug", 7, 0), Item("hat", 12, 2), Item("pen", 3, 1)),
)
RULES = [
    # request, what the rules say, the reply's word
    (Request("ann", "cancel", 10), True, "done"),
    (Request("ann", "cancel", 11), False, "no"),  # bob's
    (Request("ann", "cancel", 12), False, "no"),  # delivered
    (Request("ann", "cancel", 14), False, "no"),  # shipped
    (Request("ann", "cancel", 99), False, "no"),  # there is none
    (Request("ann", "refund", 12), True, "done"),  # on the last day
    (Request("ann", "refund", 13), False, "no"),  # a day late
    (Request("ann", "refund", 10), False, "no"),  # not delivered
    (Request("bob", "refund", 12), False, "no"),
    (Request("ann", "swap", 10, item="pen"), True, "done"),
    (Request("ann", "swap", 10, item="mug"), False, "no"),  # none in stock
    (Request("ann", "swap", 14, item="hat"), False, "no"),  # shipped
    (Request("bob", "swap", 11, item="pen"), True, "done"),
    (Request("ann", "swap", 11, item="pen"), False, "no"),
    (Request("ann", "status", 14), True, "shipped"),
    (Request("ann", "status", 11), False, "no"),
    (Request("cat", "price", item="hat"), True, "12"),
]
DONE = {  # what allowed changes leave, by hand: (order's number, its new item or status), stocks
    ("cancel", 10): ((10, "mug", "cancelled"), (1, 2, 1)),
    ("refund", 12): ((12, "hat", "refunded"), (0, 2, 1)),
    ("swap", 10): ((10, "pen", "pending"), (1, 2, 0)),
    ("swap", 11): ((11, "pen", "pending"), (0, 3, 0)),
}


@pytest.mark.parametrize("request_, allowed, word", RULES, ids=lambda value: getattr(value, "text", None))
def test_the_rules_by_hand(request_, allowed, word):
    """Oracle: hand; kills an off-by-one in days, another's order, and stock that is not moved."""
    assert is_allowed(BASE, request_) == allowed
    after, said = _shop.settled(BASE, request_)
    assert said == word
    if (request_.kind, request_.number) not in DONE or not allowed:
        assert after == BASE
        return
    (number, item, status), stocks = DONE[request_.kind, request_.number]
    changed = after.order(number)
    assert (changed.item, changed.status) == (item, status)
    assert tuple(item.stock for item in after.items) == stocks
    assert [o for o in after.orders if o.number != number] == [o for o in BASE.orders if o.number != number]


def every_change():
    """Every call that may change the database, and none."""
    yield ""
    for number in (10, 11, 12, 13, 14, 99):
        yield render_call("cancel", {"id": number}, "pythonic")
        yield render_call("refund", {"id": number}, "pythonic")
        for item in ("mug", "hat", "pen"):
            yield render_call("swap", {"id": number, "item": item}, "pythonic")


@pytest.mark.parametrize("request_, allowed, word", RULES, ids=lambda value: getattr(value, "text", None))
def test_of_all_calls_and_replies_only_those_of_the_rules_are_right(request_, allowed, word):
    """Oracle: enumeration of 31 calls and 9 replies; kills a grader that looks at one of the two only."""
    right = set()
    words = ("done", "no", "pending", "shipped", "delivered", "12", "7", "", "done, or no")
    for turn in every_change():
        acted = State(Scenario(BASE, (request_,)), BASE)
        if turn:
            acted, _ = TASK.step(acted, turn + "\n")
        for reply in words:
            state, seen = TASK.step(acted, reply + "\n")
            assert seen.terminated
            verdict = TASK.grade("shop/train/0", state, [], False)
            assert verdict.score == float(verdict.status == "right")
            assert set(verdict.rewards) == {"database", "replies"}
            if verdict.score:
                right.add((turn if acted.database != BASE else "", reply))
    changes = allowed and request_.kind in ("cancel", "refund", "swap")
    arguments = {"id": request_.number, **({"item": request_.item} if request_.kind == "swap" else {})}
    needed = render_call(request_.kind, arguments, "pythonic") if changes else ""
    assert right == {(needed, word)}


@pytest.mark.parametrize(
    "reply, word, is_said",
    [
        ("done", "done", True),
        ("I have cancelled it. Done.", "done", False),  # cancelled is a status
        ("No.", "no", True),
        ("I know nothing", "no", False),
        ("done no", "no", False),
        ("it costs 42", "42", True),
        ("it costs 42.5", "42", False),
        ("42 or 43", "42", False),
        ("no, 42", "42", False),
        ("order 12 is shipped", "shipped", True),
        ("", "no", False),
    ],
)
def test_replies_by_hand(reply, word, is_said):
    """Oracle: hand; kills credit for a reply that says everything at once."""
    assert says(reply, word) == is_said


def test_what_reads_changes_nothing_and_what_changes_changes_something():
    """Oracle: the typed effects, over all arguments; kills a tool with the wrong effect."""
    values = {"integer": [9, 10, 11, 12, 13, 14], "string": ["ann", "mug", "hat", "pen", "x"]}
    for tool in _shop.tools():
        names = tool.parameters["properties"]
        options = [values[schema["type"]] for schema in names.values()]
        results = [
            _shop.call(BASE, tool.name, dict(zip(names, chosen, strict=True)))
            for chosen in itertools.product(*options)
        ]
        has_changed = any(database != BASE for database, _ in results)
        assert has_changed == (tool.effect is Effect.CHANGE), tool.name
        assert all(database == BASE for database, said in results if said.startswith("error"))


CALLS = st.sampled_from([turn for turn in every_change() if turn])


@settings(max_examples=30, deadline=None)
@given(st.lists(CALLS, max_size=8))
def test_pieces_are_neither_lost_nor_made(turns):
    """Oracle: invariant: stock and orders that are not cancelled hold as many of each item as at first."""
    state = State(Scenario(BASE, (RULES[0][0],)), BASE)

    def pieces(database):
        return {
            item.name: item.stock
            + sum(o.item == item.name for o in database.orders if o.status != "cancelled")
            for item in database.items
        }

    for turn in turns:
        state, seen = TASK.step(state, turn + "\n")
        assert seen.text == "ok\n" or seen.text.startswith("error: ")
        assert pieces(state.database) == pieces(BASE)
        assert all(item.stock >= 0 for item in state.database.items)


@pytest.mark.parametrize(
    "turn",
    [
        "[cancel(10)]",
        "[cancel(id='10')]",
        "[cancel(id=10",
        "[stop(id=10)]",
        "[swap(id=10)]",
        "[cancel(id=x)]",
    ],
)
def test_a_malformed_call_is_answered_by_text(turn):
    """Oracle: hand; kills a call that is carried out anyway, taken for a reply, or raises."""
    state = State(Scenario(BASE, (RULES[0][0],)), BASE)
    after, seen = TASK.step(state, turn + "\n")
    assert after == state and not seen.terminated
    assert seen.text.startswith("error: ") and seen.text.endswith("\n") and len(seen.text) < 110


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 200), st.lists(st.one_of(st.text(max_size=30), CALLS), max_size=6))
def test_any_text_is_a_turn_and_a_branch_equals_a_replay(number, turns):
    """Oracle: metamorphic: every state taken up again gives what a replay from the start gives."""
    task_id = f"shop/train/{number}"
    states, seen = [TASK.reset(task_id)], []
    for turn in turns:
        if states[-1].is_over:
            with pytest.raises(EnvironmentFault, match="has left"):
                TASK.step(states[-1], turn)
            break
        state, said = TASK.step(states[-1], turn)
        assert said.text.isascii() and said.terminated == state.is_over and not said.truncated
        states, seen = [*states, state], [*seen, said]
    for place in reversed(range(len(seen))):
        assert TASK.step(states[place], turns[place]) == (states[place + 1], seen[place])
    verdict = TASK.grade(task_id, states[-1], turns, True)
    assert verdict.score in (0.0, 1.0) and all(0 <= part <= 1 for part in verdict.rewards.values())
    assert hash(states[-1]) == hash(dataclasses.replace(states[-1]))


@pytest.mark.parametrize("format", FORMATS)
def test_perfect_demonstrations_are_right_in_every_format(format):
    """Oracle: the grader; kills a format whose calls are not read, and a demonstration that is too long."""
    task, rng = shop(format=format), np.random.default_rng(0)
    for task_id in task.ids("test")[: 60 if format == "pythonic" else 8]:
        episode, state = task.demonstrate(task_id, rng, 0.0), task.reset(task_id)
        assert len(episode) // 2 <= task.max_turns
        assert all(len(turn) <= task.max_tokens for turn in episode[::2])
        assert len(task.prompt(task_id)) + sum(map(len, episode)) <= task.context
        for turn, said in zip(episode[::2], episode[1::2], strict=True):
            state, seen = task.step(state, turn)
            assert seen.text == said
        assert task.grade(task_id, state, episode[::2], False).status == "right"


def test_careless_service_and_always_refusing_fail_often():
    """Oracle: closed form for refusing: right exactly where every request is forbidden."""
    rng, careless = np.random.default_rng(0), []
    for task_id in TASK.ids("test")[:120]:
        episode, state = TASK.demonstrate(task_id, rng, 1.0), TASK.reset(task_id)
        for turn in episode[::2]:
            state, _ = TASK.step(state, turn)
        careless.append(TASK.grade(task_id, state, episode[::2], False).score)
        scenario = TASK.scenario(task_id)
        refused = State(scenario, scenario.database, ("no",) * len(scenario.requests))
        is_forbidden = all(not is_allowed(scenario.database, request) for request in scenario.requests)
        assert TASK.grade(task_id, refused, [], False).score == float(is_forbidden)
    assert 0.3 < np.mean(careless) < 0.65


def test_a_second_request_comes_after_the_first_reply():
    """Oracle: hand; kills a request that is shown early, and one that is judged by the old data."""
    requests = (Request("ann", "cancel", 10), Request("ann", "status", 10))
    state = State(Scenario(BASE, requests), BASE)
    state, seen = TASK.step(state, "[cancel(id=10)]\n")
    assert seen.text == "ok\n"
    state, seen = TASK.step(state, "done\n")
    assert (seen.text, seen.terminated) == ("ann: where is order 10?\n", False)
    assert TASK.grade("shop/train/0", state, [], True).status == "truncated"
    wrong, _ = TASK.step(state, "pending\n")
    right, seen = TASK.step(state, "cancelled\n")
    assert seen.terminated and TASK.grade("shop/train/0", right, [], False).score == 1.0
    verdict = TASK.grade("shop/train/0", wrong, [], False)
    assert (verdict.status, verdict.rewards) == ("wrong", {"database": 1.0, "replies": 0.5})


def test_prompts_and_splits():
    """Oracle: exhaustive over 550 prompts, none in both splits; the rules stand before it on demand."""
    train = {TASK.prompt(i) for i in TASK.ids("train")[:400]}
    test = {TASK.prompt(i) for i in TASK.ids("test")[:150]}
    assert len(train) > 250 and len(test) > 80 and not train & test
    long = shop(explain=True, format="hermes").prompt("shop/test/0")
    assert "at most 14 days" in long and '"swap"' in long and long.endswith(TASK.prompt("shop/test/0"))


def test_bad_options_are_refused():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match="max_requests=9"):
        shop(max_requests=9)
    with pytest.raises(UnknownName, match="did you mean 'hermes'"):
        shop(format="herms")
