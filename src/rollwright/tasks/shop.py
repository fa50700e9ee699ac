"""Shop: serve customers with tools and by rules; what counts is the database at the end, and the replies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rollwright.envs.tool_calls import FORMATS, ToolCall, parse_tool_calls
from rollwright.envs.tool_text import render_call, render_result, render_tools
from rollwright.errors import ConfigError, EnvironmentFault, UnknownName
from rollwright.tasks import _shop
from rollwright.tasks._content import Ids, draw, parse_id
from rollwright.tasks._recipe import Recipe
from rollwright.tasks._shop import Database, Request
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

_LONGEST_RESULT = 96  # characters of a tool's answer; complaints about calls may quote the model at length
_WORDS = frozenset(("done", "no", "pending", "shipped", "delivered", "cancelled", "refunded"))


@dataclass(frozen=True, slots=True)
class Scenario:
    """The database at the start, and what the customer asks for, one after another."""

    database: Database
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class State:
    """The database as it is, and the replies that were given."""

    scenario: Scenario
    database: Database
    replies: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        return len(self.replies) == len(self.scenario.requests)


def says(reply: str, word: str) -> bool:
    """Whether a reply says ``word`` and nothing that contradicts it.

    Of the words done, no, and the statuses, and of numbers where a number is asked for, it must hold this
    one only: a reply that lists several is no reply.

    Example:
        >>> says("All done!", "done"), says("done, or no", "done"), says("order 12: no", "no")
        (True, False, True)
    """
    found = set(re.findall(r"[a-z]+", reply.lower())) & _WORDS
    if word.isdecimal():
        return not found and set(re.findall(r"\d+(?:[.,]\d+)*", reply)) == {word}
    return found == {word}


def expected(scenario: Scenario) -> tuple[Database, tuple[str, ...]]:
    """Return the database and the replies that the rules lead to."""
    database, replies = scenario.database, []
    for request in scenario.requests:
        database, word = _shop.settled(database, request)
        replies.append(word)
    return database, tuple(replies)


@dataclass(frozen=True, slots=True)
class Shop:
    """See `shop`."""

    max_requests: int
    num_orders: int
    format: str
    explain: bool
    num_train: int
    num_test: int
    name: str = field(default="shop", init=False)
    grader_version: str = field(default="1", init=False)
    recipe: Recipe = field(default=Recipe(noise=0.4, steps=2000, learning_rate=3e-3), init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.max_requests <= 4 or not 2 <= self.num_orders <= 40:
            raise ConfigError(
                f"max_requests={self.max_requests} must lie in 1..4, num_orders={self.num_orders} in 2..40"
            )
        if self.format not in FORMATS:
            raise UnknownName("format of tool calls", self.format, FORMATS)

    @property
    def max_turns(self) -> int:
        return 5 * self.max_requests + 2

    @property
    def max_tokens(self) -> int:
        return 40 if self.format == "pythonic" else 128

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """A call in Python's form is a line; the other forms may have several, and end with the end token."""
        return ("\n",) if self.format == "pythonic" else ()

    @property
    def context(self) -> int:
        result = _LONGEST_RESULT + len(render_result(ToolCall("refund", {}, ""), "", self.format))
        return len(self._explained()) + 50 + self.max_turns * (self.max_tokens + result)

    def _explained(self) -> str:
        return _shop.POLICY + render_tools(_shop.tools(), self.format) if self.explain else ""

    def num_instances(self, split: str) -> int:
        return {"train": self.num_train, "test": self.num_test}.get(split, 0)

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def draw_scenario(self, rng: np.random.Generator) -> Scenario:
        now = first = _shop.draw_database(rng, self.num_orders)
        user = first.orders[int(rng.integers(self.num_orders))].owner
        requests = []
        for _ in range(int(rng.integers(1, self.max_requests + 1))):
            requests.append(_shop.draw_request(rng, now, user))
            now, _ = _shop.settled(now, requests[-1])
        return Scenario(first, tuple(requests))

    def scenario(self, task_id: TaskId) -> Scenario:
        """Return the database and the requests of an id; the first request alone decides the split."""
        return _instance(self, task_id)

    def prompt(self, task_id: TaskId) -> str:
        return self._explained() + self.scenario(task_id).requests[0].text

    def reset(self, task_id: TaskId) -> State:
        scenario = self.scenario(task_id)
        return State(scenario, scenario.database)

    def step(self, state: State, text: str) -> tuple[State, Observation]:
        """Carry out the turn's tool calls and give their answers; a turn without any is a reply.

        A call that cannot be read, of a tool that there is not, or with wrong arguments changes nothing and
        is answered by what is wrong with it. After a reply the next request comes, or the end.
        """
        if state.is_over:
            raise EnvironmentFault("shop: the customer has left; the episode takes no further turn")
        calls = parse_tool_calls(text, self.format, _shop.tools())
        if not calls:
            after = replace(state, replies=(*state.replies, text.strip()))
            if after.is_over:
                return after, Observation("", terminated=True)
            return after, Observation(after.scenario.requests[len(after.replies)].text)
        database, said = state.database, []
        for call in calls:
            if call.error is not None:
                answer = f"error: {call.error}"
            else:
                database, answer = _shop.call(database, call.name, call.arguments or {})
            said.append(render_result(call, _plain(answer), self.format))
        return replace(state, database=database), Observation("".join(said))

    def grade(self, task_id: TaskId, state: State, turns: Sequence[str], truncated: bool) -> Verdict:
        """Right if the database is the one that the rules lead to and each reply says what it must."""
        database, words = expected(state.scenario)
        if not state.is_over:
            detail = f"replied to {len(state.replies)} of {len(words)} requests"
            return Verdict(0.0, "truncated", None, detail)
        is_said = [says(reply, word) for reply, word in zip(state.replies, words, strict=True)]
        parts = {"database": float(state.database == database), "replies": sum(is_said) / len(words)}
        wrong = [f"reply {k + 1} must say {words[k]}" for k, is_right in enumerate(is_said) if not is_right]
        wrong += [] if state.database == database else ["the database is not as the rules have it"]
        status = "wrong" if wrong else "right"
        return Verdict(float(not wrong), status, " / ".join(state.replies), "; ".join(wrong), parts)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Look up what the rules ask about, act, and reply.

        With probability ``noise`` a request is served carelessly: what is asked is done, whatever the rules.
        """
        state, episode = self.reset(task_id), []
        end = "\n" if self.stop_strings else ""
        for request in state.scenario.requests:
            is_careless = rng.random() < noise
            looks = _look_ups(state, request)
            turns = [render_call(name, arguments, self.format) for name, arguments in looks]
            word = _shop.settled(state.database, request)[1]
            if is_careless and request.kind in ("cancel", "refund", "swap"):
                turns, word = turns[: 1 + bool(request.by_item)], "done"
            if word == "done":
                turns.append(render_call(request.kind, _shop.arguments_of(request), self.format))
            for turn in [*turns, word]:
                state, seen = self.step(state, turn + end)
                episode += [turn + end, seen.text]
        return episode


def _look_ups(state: State, request: Request) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls that tell what the rules ask about."""
    if request.kind == "price":
        yield "item", {"name": request.item}
        return
    if request.by_item:
        yield "orders", {"user": request.user}
    yield "order", {"id": request.number}
    order = state.database.order(request.number or 0)
    if request.kind == "swap" and order and order.owner == request.user and order.status == "pending":
        yield "item", {"name": request.item}


def _plain(text: str) -> str:
    """Return a tool's answer as one short line of ASCII, which every tokeniser can read."""
    line = " ".join(text.encode("ascii", "backslashreplace").decode().split())
    return line if len(line) <= _LONGEST_RESULT else line[: _LONGEST_RESULT - 3] + "..."


@lru_cache(maxsize=4096)
def _instance(task: Shop, task_id: TaskId) -> Scenario:
    split, _ = parse_id(task.name, task_id, task.num_instances)
    return draw(task_id, split, task.draw_scenario, lambda scenario: scenario.requests[0].text)


def shop(
    *,
    max_requests: int = 2,
    num_orders: int = 5,
    format: str = "pythonic",
    explain: bool = False,
    num_train: int = 20000,
    num_test: int = 1000,
) -> Shop:
    """Serve a shop's customers with tools that look up or change orders, and by rules that may forbid it.

    Args:
        max_requests: the most that a customer asks for, one after another.
        num_orders: orders in the database.
        format: of tool calls: pythonic, hermes, qwen, llama, mistral, openai or xml.
        explain: begin the prompt with the rules and the tools, for pretrained models.
        num_train, num_test: how many instances each split offers.
    """
    return Shop(
        max_requests=max_requests,
        num_orders=num_orders,
        format=format,
        explain=explain,
        num_train=num_train,
        num_test=num_test,
    )
