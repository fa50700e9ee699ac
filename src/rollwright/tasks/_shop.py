"""The shop's database, its tools, its policy, and what customers ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rollwright.envs.tools import Effect, Tool

USERS = ("ann", "bob", "cat", "dan", "eve", "flo", "gus", "ida", "jim", "kay", "leo", "may")
ITEMS = ("bag", "book", "clock", "cup", "hat", "kite", "lamp", "mug", "pen", "rug", "scarf", "vase")
REFUND_DAYS = 14
_KIND_TO_SHARE = {"cancel": 0.25, "refund": 0.25, "swap": 0.25, "status": 0.15, "price": 0.1}  # of draws
POLICY = f"""You serve the customers of a shop.
- Look things up before you change anything.
- Help only with orders that belong to the customer who asks.
- Cancel an order only while it is pending.
- Swap an order's item only while it is pending, and only for an item in stock.
- Refund an order only if it was delivered at most {REFUND_DAYS} days ago.
- If a rule forbids what is asked, change nothing and reply: no
- After you did what was asked, reply: done
- Asked for a price, reply with the number; asked where an order is, with its status.
- A reply is a turn without a tool call. A customer may then ask for something else.
"""


@dataclass(frozen=True, slots=True)
class Order:
    """An order. ``days``: since it was delivered; 0 before."""

    number: int
    owner: str
    item: str
    status: str  # pending, shipped, delivered, cancelled, refunded
    days: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """Something the shop sells."""

    name: str
    price: int
    stock: int


@dataclass(frozen=True, slots=True)
class Database:
    """All that the shop knows. Two that hold the same are equal."""

    orders: tuple[Order, ...]
    items: tuple[Item, ...]

    def order(self, number: int) -> Order | None:
        return next((order for order in self.orders if order.number == number), None)

    def item(self, name: str) -> Item | None:
        return next((item for item in self.items if item.name == name), None)

    def with_order(self, changed: Order) -> Database:
        same = tuple(changed if order.number == changed.number else order for order in self.orders)
        return replace(self, orders=same)

    def with_stock(self, name: str, more: int) -> Database:
        """Return the database with ``more`` pieces of an item on stock."""
        items = tuple(
            replace(item, stock=item.stock + more) if item.name == name else item for item in self.items
        )
        return replace(self, items=items)


class Refused(Exception):
    """A tool cannot do what it was asked to; its words are for the model."""


def _found(database: Database, number: int) -> Order:
    order = database.order(number)
    if order is None:
        raise Refused(f"no order {number}")
    return order


def _open(database: Database, number: int) -> Order:
    order = _found(database, number)
    if order.status in ("cancelled", "refunded"):
        raise Refused(f"order {number} is {order.status}")
    return order


def _orders(database: Database, user: str) -> str:
    mine = [f"{order.number} {order.item}" for order in database.orders if order.owner == user]
    return ", ".join(mine) or "none"


def _order(database: Database, id: int) -> str:
    order = _found(database, id)
    days = f" {order.days} days ago" if order.status == "delivered" else ""
    return f"{order.owner} {order.item} {order.status}{days}"


def _item(database: Database, name: str) -> str:
    item = database.item(name)
    if item is None:
        raise Refused(f"no item {name}")
    return f"price {item.price} stock {item.stock}"


def _cancel(database: Database, id: int) -> Database:
    order = _open(database, id)
    return database.with_order(replace(order, status="cancelled")).with_stock(order.item, 1)


def _refund(database: Database, id: int) -> Database:
    return database.with_order(replace(_open(database, id), status="refunded"))


def _swap(database: Database, id: int, item: str) -> Database:
    order, new = _open(database, id), database.item(item)
    if new is None or new.stock < 1:
        raise Refused(f"no {item} in stock")
    swapped = database.with_order(replace(order, item=item))
    return swapped.with_stock(order.item, 1).with_stock(item, -1)


_READ = {"orders": _orders, "order": _order, "item": _item}
_CHANGE = {"cancel": _cancel, "refund": _refund, "swap": _swap}


def call(database: Database, name: str, arguments: Mapping[str, Any]) -> tuple[Database, str]:
    """Carry a call out: the database after it, and the answer's text.

    What reads cannot change anything: it is given the database and returns a text only.
    """
    try:
        if name in _READ:
            return database, _READ[name](database, **arguments)
        return _CHANGE[name](database, **arguments), "ok"
    except Refused as refused:
        return database, f"error: {refused}"


@lru_cache(maxsize=1)
def tools() -> tuple[Tool, ...]:
    """Return the tools, those that only look first."""
    number = {"id": {"type": "integer", "description": "number of an order"}}
    name = {"type": "string", "description": "name of an item"}
    user = {"user": {"type": "string", "description": "a customer's name"}}

    def tool(called: str, effect: Effect, does: str, properties: dict[str, Any]) -> Tool:
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return Tool(called, does, schema, effect)

    return (
        tool("orders", Effect.READ, "List a customer's orders: number and item.", user),
        tool("order", Effect.READ, "Show an order: owner, item, status.", number),
        tool("item", Effect.READ, "Show an item's price and stock.", {"name": name}),
        tool("cancel", Effect.CHANGE, "Cancel an order.", number),
        tool("refund", Effect.CHANGE, "Take an order back and refund it.", number),
        tool("swap", Effect.CHANGE, "Put another item into an order.", {**number, "item": name}),
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What a customer asks for.

    Args:
        kind: cancel, refund, swap, status or price.
        number: of the order, None for a price.
        by_item: the order is named by its item, not by its number.
        item: the new item of a swap, or the one whose price is asked.
    """

    user: str
    kind: str
    number: int | None = None
    by_item: str | None = None
    item: str | None = None

    @property
    def text(self) -> str:
        which = f"my {self.by_item}" if self.by_item else f"order {self.number}"
        wanted = {
            "price": f"price of a {self.item}?",
            "status": f"where is {which}?",
            "swap": f"swap {which} for a {self.item}",
        }
        return f"{self.user}: {wanted.get(self.kind, f'{self.kind} {which}')}\n"


def is_allowed(database: Database, request: Request) -> bool:
    """Whether the policy allows what a request asks for."""
    if request.kind == "price":
        return True
    order = database.order(request.number or 0)
    if order is None or order.owner != request.user:
        return False
    if request.kind == "refund":
        return order.status == "delivered" and order.days <= REFUND_DAYS
    if request.kind == "swap":
        new = database.item(request.item or "")
        return order.status == "pending" and new is not None and new.stock > 0
    return request.kind == "status" or order.status == "pending"


def settled(database: Database, request: Request) -> tuple[Database, str]:
    """Return the database that the policy leads to, and the word that the reply must hold."""
    if not is_allowed(database, request):
        return database, "no"
    if request.kind == "price":
        item = database.item(request.item or "")
        return database, str(item.price if item else "no")
    if request.kind == "status":
        order = database.order(request.number or 0)
        return database, order.status if order else "no"
    return call(database, request.kind, arguments_of(request))[0], "done"


def arguments_of(request: Request) -> dict[str, Any]:
    """Return the arguments of the call that a request to change something needs."""
    new = {"item": request.item} if request.kind == "swap" else {}
    return {"id": request.number, **new}


def draw_database(rng: np.random.Generator, num_orders: int) -> Database:
    """Draw four items and some orders of three customers."""
    names = [str(name) for name in rng.choice(ITEMS, 4, replace=False)]
    prices = rng.choice(np.arange(2, 100), 4, replace=False)
    items = tuple(
        Item(name, int(price), int(rng.integers(0, 4))) for name, price in zip(names, prices, strict=True)
    )
    users = [str(user) for user in rng.choice(USERS, 3, replace=False)]
    orders = []
    for number in sorted(int(n) for n in rng.choice(np.arange(10, 100), num_orders, replace=False)):
        status = str(rng.choice(["pending", "shipped", "delivered"], p=[0.4, 0.2, 0.4]))
        days = int(rng.integers(1, 2 * REFUND_DAYS + 1)) if status == "delivered" else 0
        owner, item = users[int(rng.integers(3))], names[int(rng.integers(4))]
        orders.append(Order(number, owner, item, status, days))
    return Database(tuple(orders), items)


def draw_request(rng: np.random.Generator, database: Database, user: str) -> Request:
    """Draw a request of a customer; one that the policy forbids in two of five draws, where there is one."""
    want_allowed = rng.random() < 0.6
    request = Request(user, "price", item=database.items[0].name)
    for _ in range(20):
        kind = str(
            rng.choice(["cancel", "refund", "swap", "status", "price"], p=[0.25, 0.25, 0.25, 0.15, 0.1])
        )
        item = database.items[int(rng.integers(len(database.items)))].name
        if kind == "price":
            request = Request(user, "price", item=item)
        else:
            order = database.orders[int(rng.integers(len(database.orders)))]
            mine = [other.item for other in database.orders if other.owner == user]
            is_plain = order.owner == user and mine.count(order.item) == 1 and rng.random() < 0.4
            if kind == "swap" and order.item == item:
                continue
            by_item, new = order.item if is_plain else None, item if kind == "swap" else None
            request = Request(user, kind, order.number, by_item, new)
        if is_allowed(database, request) == want_allowed:
            break
    return request
