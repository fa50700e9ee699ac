"""Bugs that no shown test sees; `tests/tasks/test_repair.py` checks the list against the sandbox."""

from __future__ import annotations

UNSEEN = frozenset(
    (
        "bank/account.py:7:    return first + [entry for entry in second if entry[1] > 1]",
        "bank/ledger.py:10:    low = 1",
        "bank/ledger.py:11:    for count in range(0, len(entries) + 1):",
        "bank/ledger.py:11:    for count in range(1, len(entries) + 2):",
        "dates/calendar_days.py:5:    return 0 <= month <= 12 and 1 <= day <= days_in(year, month)",
        "dates/calendar_days.py:5:    return 1 <= month < 12 and 1 <= day <= days_in(year, month)",
        "dates/calendar_days.py:5:    return 1 <= month <= 12 and 0 <= day <= days_in(year, month)",
        "dates/year.py:2:    return year % 4 == 0 and (year % 10 != 0 or year % 400 == 0)",
        "grid/move.py:11:        return [column, column - 1]",
        "grid/move.py:11:        return [row, column + 1]",
        "grid/move.py:11:        return [row, column - 2]",
        "grid/move.py:11:        return [row, row - 1]",
        "grid/move.py:7:        return [column - 1, column]",
        "grid/move.py:7:        return [row - 1, row]",
        "grid/walk.py:19:    return abs(first[0] - second[0]) + abs(first[0] - second[1])",
        "grid/walk.py:19:    return abs(first[1] - second[0]) + abs(first[1] - second[1])",
        "scores/rank.py:6:    if len(ordered) // 2 == 1:",
        "scores/rank.py:8:    return (ordered[middle - 1] + ordered[middle]) / 3",
        "scores/rank.py:8:    return (ordered[middle - 1] + ordered[middle]) // 2",
        "scores/rank.py:8:    return (ordered[middle - 2] + ordered[middle]) / 2",
        "stock/orders.py:11:    for item in list(stock):",
        "stock/orders.py:12:        if stock[item] <= least:",
        "stock/store.py:3:    after[item] = after.get(item, 1) + num",
        "stock/store.py:6:    if stock.get(item, 0) <= num:",
        "words/count.py:12:    return 1 if not every else 100 * every.count(word) // len(every)",
        "words/split.py:14:        if len(word) >= len(best):",
    )
)
