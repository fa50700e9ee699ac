"""Small repositories for the repair task: files, and tests of which every second one is shown.

Expected values were computed by the files themselves; `tests/tasks/test_repair.py` runs them.
"""

from __future__ import annotations

from typing import Any

# name -> (path -> text, tests: function, arguments, value, whether it is shown)
REPOSITORIES: dict[str, tuple[dict[str, str], list[tuple[str, tuple[Any, ...], Any, bool]]]] = {
    "bank": (
        {
            "ledger.py": """\
def total(entries):
    result = 0
    for kind, amount in entries:
        if kind == "in":
            result = result + amount
        else:
            result = result - amount
    return result
def lowest(entries):
    low = 0
    for count in range(1, len(entries) + 1):
        low = min(low, total(entries[:count]))
    return low
""",
            "account.py": """\
from ledger import lowest, total
def can_pay(entries, amount, credit):
    return total(entries) + credit >= amount
def fee(entries, rate):
    return abs(lowest(entries)) * rate // 100
def merge(first, second):
    return first + [entry for entry in second if entry[1] > 0]
""",
        },
        [
            ("ledger:total", ([["in", 5], ["out", 2]],), 3, True),
            ("ledger:total", ([],), 0, False),
            ("ledger:total", ([["out", 4], ["in", 1], ["in", 9]],), 6, True),
            ("ledger:total", ([["in", 3]],), 3, False),
            ("account:can_pay", ([["in", 5]], 7, 2), True, True),
            ("account:can_pay", ([["in", 5]], 8, 2), False, False),
            ("account:can_pay", ([["in", 5], ["out", 1]], 1, 0), True, True),
            ("account:can_pay", ([], 1, 0), False, False),
            ("account:can_pay", ([["out", 2]], 0, 1), False, True),
            ("account:fee", ([["out", 50], ["in", 10]], 10), 5, True),
            ("account:fee", ([["in", 5]], 10), 0, False),
            ("account:fee", ([["in", 5], ["out", 205]], 5), 10, True),
            ("account:fee", ([["out", 7], ["in", 9], ["out", 11]], 50), 4, False),
            ("account:merge", ([["in", 1]], [["out", 0], ["in", 2]]), [["in", 1], ["in", 2]], True),
            ("account:merge", ([], [["in", 1]]), [["in", 1]], False),
            ("account:merge", ([["out", 3]], []), [["out", 3]], True),
        ],
    ),
    "words": (
        {
            "split.py": """\
def words(text):
    found = []
    here = ""
    for letter in text + " ":
        if letter.isalpha():
            here = here + letter.lower()
        elif here != "":
            found.append(here)
            here = ""
    return found
def longest(text):
    best = ""
    for word in words(text):
        if len(word) > len(best):
            best = word
    return best
""",
            "count.py": """\
from split import words
def counts(text):
    result = {}
    for word in words(text):
        result[word] = result.get(word, 0) + 1
    return result
def most(text, least):
    found = counts(text)
    return sorted(word for word in found if found[word] >= least)
def share(text, word):
    every = words(text)
    return 0 if not every else 100 * every.count(word) // len(every)
""",
        },
        [
            ("split:words", ("Ab, cd!",), ["ab", "cd"], True),
            ("split:words", ("",), [], False),
            ("split:words", ("one two  three",), ["one", "two", "three"], True),
            ("split:words", ("x",), ["x"], False),
            ("split:longest", ("a bcd ef",), "bcd", True),
            ("split:longest", ("ab cd",), "ab", False),
            ("split:longest", ("",), "", True),
            ("split:longest", ("Tree, house",), "house", False),
            ("count:counts", ("a b a",), {"a": 2, "b": 1}, True),
            ("count:counts", ("",), {}, False),
            ("count:counts", ("Dog dog DOG cat",), {"dog": 3, "cat": 1}, True),
            ("count:most", ("a b a c c c", 2), ["a", "c"], True),
            ("count:most", ("a b", 1), ["a", "b"], False),
            ("count:most", ("z z y y x", 2), ["y", "z"], True),
            ("count:most", ("q", 2), [], False),
            ("count:share", ("a b a b", "a"), 50, True),
            ("count:share", ("", "a"), 0, False),
            ("count:share", ("a b c", "c"), 33, True),
            ("count:share", ("a a a", "b"), 0, False),
        ],
    ),
    "grid": (
        {
            "move.py": """\
def inside(place, size):
    row, column = place
    return 0 <= row < size and 0 <= column < size
def step(place, way):
    row, column = place
    if way == "U":
        return [row - 1, column]
    if way == "D":
        return [row + 1, column]
    if way == "L":
        return [row, column - 1]
    return [row, column + 1]
""",
            "walk.py": """\
from move import inside, step
def walk(ways, size):
    place = [0, 0]
    for way in ways:
        after = step(place, way)
        if inside(after, size):
            place = after
    return place
def bumps(ways, size):
    place, num = [0, 0], 0
    for way in ways:
        after = step(place, way)
        if inside(after, size):
            place = after
        else:
            num = num + 1
    return num
def distance(first, second):
    return abs(first[0] - second[0]) + abs(first[1] - second[1])
""",
        },
        [
            ("move:inside", ([0, 0], 1), True, True),
            ("move:inside", ([1, 0], 1), False, False),
            ("move:inside", ([2, 3], 4), True, True),
            ("move:inside", ([-1, 0], 4), False, False),
            ("move:inside", ([3, 4], 4), False, True),
            ("move:inside", ([0, -1], 3), False, False),
            ("walk:walk", ("RRD", 3), [1, 2], True),
            ("walk:walk", ("LLU", 2), [0, 0], False),
            ("walk:walk", ("DRDRU", 4), [1, 2], True),
            ("walk:walk", ("RRRR", 3), [0, 2], False),
            ("walk:bumps", ("LLR", 2), 2, True),
            ("walk:bumps", ("RD", 2), 0, False),
            ("walk:bumps", ("RRRDDD", 2), 4, True),
            ("walk:bumps", ("U", 5), 1, False),
            ("walk:distance", ([0, 0], [2, 3]), 5, True),
            ("walk:distance", ([4, 1], [1, 5]), 7, False),
            ("walk:distance", ([2, 2], [2, 2]), 0, True),
            ("walk:distance", ([1, 7], [3, 2]), 7, False),
        ],
    ),
    "dates": (
        {
            "year.py": """\
def is_leap(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
def days_in(year, month):
    if month == 2:
        return 29 if is_leap(year) else 28
    return 30 if month in (4, 6, 9, 11) else 31
""",
            "calendar_days.py": """\
from year import days_in, is_leap
def day_of_year(year, month, day):
    return sum(days_in(year, before) for before in range(1, month)) + day
def is_valid(year, month, day):
    return 1 <= month <= 12 and 1 <= day <= days_in(year, month)
def days_left(year, month, day):
    return (366 if is_leap(year) else 365) - day_of_year(year, month, day)
""",
        },
        [
            ("year:is_leap", (2024,), True, True),
            ("year:is_leap", (1900,), False, False),
            ("year:is_leap", (2000,), True, True),
            ("year:is_leap", (2023,), False, False),
            ("year:is_leap", (2100,), False, True),
            ("year:days_in", (2024, 2), 29, True),
            ("year:days_in", (2023, 2), 28, False),
            ("year:days_in", (2023, 4), 30, True),
            ("year:days_in", (2023, 12), 31, False),
            ("year:days_in", (2020, 11), 30, True),
            ("calendar_days:day_of_year", (2023, 1, 1), 1, True),
            ("calendar_days:day_of_year", (2024, 3, 1), 61, False),
            ("calendar_days:day_of_year", (2023, 12, 31), 365, True),
            ("calendar_days:day_of_year", (2023, 5, 9), 129, False),
            ("calendar_days:is_valid", (2023, 2, 29), False, True),
            ("calendar_days:is_valid", (2024, 2, 29), True, False),
            ("calendar_days:is_valid", (2023, 13, 1), False, True),
            ("calendar_days:is_valid", (2023, 6, 0), False, False),
            ("calendar_days:is_valid", (2023, 6, 30), True, True),
            ("calendar_days:is_valid", (2023, 0, 5), False, False),
            ("calendar_days:is_valid", (2023, 1, 1), True, True),
            ("calendar_days:is_valid", (2023, 12, 31), True, False),
            ("calendar_days:days_left", (2023, 12, 31), 0, True),
            ("calendar_days:days_left", (2024, 1, 1), 365, False),
            ("calendar_days:days_left", (2023, 3, 3), 303, True),
        ],
    ),
    "stock": (
        {
            "store.py": """\
def add(stock, item, num):
    after = dict(stock)
    after[item] = after.get(item, 0) + num
    return after
def take(stock, item, num):
    if stock.get(item, 0) < num:
        return stock
    after = dict(stock)
    after[item] = after[item] - num
    if after[item] == 0:
        del after[item]
    return after
""",
            "orders.py": """\
from store import add, take
def serve(stock, orders):
    missed = []
    for item, num in orders:
        after = take(stock, item, num)
        if after == stock:
            missed.append(item)
        stock = after
    return [stock, missed]
def restock(stock, least):
    for item in sorted(stock):
        if stock[item] < least:
            stock = add(stock, item, least - stock[item])
    return stock
def price(stock, item_to_price):
    return sum(stock[item] * item_to_price.get(item, 1) for item in stock)
""",
        },
        [
            ("store:take", ({"a": 3}, "a", 2), {"a": 1}, True),
            ("store:take", ({"a": 3}, "a", 3), {}, False),
            ("store:take", ({"a": 3}, "a", 4), {"a": 3}, True),
            ("store:take", ({}, "b", 1), {}, False),
            ("orders:serve", ({"a": 2}, [["a", 1], ["b", 1]]), [{"a": 1}, ["b"]], True),
            ("orders:serve", ({"a": 2, "b": 1}, [["a", 2], ["a", 1], ["b", 1]]), [{}, ["a"]], False),
            ("orders:serve", ({}, []), [{}, []], True),
            ("orders:restock", ({"a": 1, "b": 5}, 3), {"a": 3, "b": 5}, True),
            ("orders:restock", ({}, 2), {}, False),
            ("orders:restock", ({"x": 2, "y": 2}, 2), {"x": 2, "y": 2}, True),
            ("orders:restock", ({"k": 0}, 4), {"k": 4}, False),
            ("orders:price", ({"a": 2, "b": 3}, {"a": 5}), 13, True),
            ("orders:price", ({}, {"a": 1}), 0, False),
            ("orders:price", ({"c": 4}, {"c": 0}), 0, True),
            ("orders:price", ({"a": 1, "b": 1}, {"a": 7, "b": 9}), 16, False),
        ],
    ),
    "scores": (
        {
            "rank.py": """\
def places(scores):
    return [1 + sum(other > score for other in scores) for score in scores]
def median(scores):
    ordered = sorted(scores)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
""",
            "report.py": """\
from rank import median, places
def winners(names, scores, num):
    return [name for name, place in zip(names, places(scores)) if place <= num]
def above(scores):
    return sum(score > median(scores) for score in scores)
def spread(scores):
    return max(scores) - min(scores)
def clip(scores, low, high):
    return [min(max(score, low), high) for score in scores]
""",
        },
        [
            ("rank:places", ([3, 9, 5],), [3, 1, 2], True),
            ("rank:places", ([4, 4, 1],), [1, 1, 3], False),
            ("rank:places", ([],), [], True),
            ("rank:places", ([7],), [1], False),
            ("rank:median", ([5, 1, 3],), 3, True),
            ("rank:median", ([1, 2, 3, 4],), 2.5, False),
            ("rank:median", ([8],), 8, True),
            ("rank:median", ([2, 10],), 6.0, False),
            ("report:winners", (["a", "b", "c"], [1, 3, 2], 2), ["b", "c"], True),
            ("report:winners", (["a", "b"], [5, 5], 1), ["a", "b"], False),
            ("report:winners", (["x"], [0], 1), ["x"], True),
            ("report:above", ([1, 2, 3],), 1, True),
            ("report:above", ([5, 5],), 0, False),
            ("report:above", ([1, 9, 2, 8],), 2, True),
            ("report:spread", ([4, 9, 2],), 7, True),
            ("report:spread", ([3],), 0, False),
            ("report:spread", ([-1, 6],), 7, True),
            ("report:clip", ([1, 5, 9], 2, 8), [2, 5, 8], True),
            ("report:clip", ([], 0, 1), [], False),
            ("report:clip", ([-3, 0, 3], -1, 1), [-1, 0, 1], True),
        ],
    ),
}
