"""Lists of rollouts and groups against the same lists made slowly, from the groups themselves."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import pytest
from view_help import record

from rollwright.errors import UnknownName
from rollwright.store.parquet import read_groups
from rollwright.view.database import Database
from rollwright.view.query import Lists, QueryError
from rollwright.view.run import Run


def slow_rows(path: Path) -> list[dict]:
    """Return each rollout of the shards in order, read by the store's own reader."""
    rows, seen = [], {}
    for step, group in read_groups(path):
        number = seen[step] = seen.get(step, -1) + 1
        for t in group.trajectories:
            response = group.response(t)
            rows.append({
                "step": step, "group_index": number, "group": group.id, "index": t.index, "reward": t.reward,
                "status": t.status, "num_sampled": int(response.is_sampled.sum()), "num_turns": t.num_turns,
                "truncated": t.truncated, "leaf": t.leaf, "advantages": t.advantages,
            })  # fmt: skip
    return rows


def page(run: Run, table: str = "rollouts", where: str = "", sort: str = "", desc: bool = False,
         offset: int = 0, limit: int = 1000) -> list[dict]:  # fmt: skip
    found = run.lists.page(table, where, sort, desc, offset, limit)
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def key(row: dict) -> tuple:
    return row["step"], row["group_index"], row["index"]


def test_the_list_is_the_run_in_its_order(toy: Run, toy_path: Path):
    """Oracle: the store's reader, over three shards. Kills: shards out of order, a rollout lost."""
    slow = slow_rows(toy_path)
    found = page(toy)
    assert len(slow) > 60 and len({row["step"] for row in slow}) == 5
    assert [key(row) for row in found] == [key(row) for row in slow]
    for name in ("group", "reward", "status", "num_sampled", "num_turns", "truncated"):
        assert [row[name] for row in found] == [row[name] for row in slow], name


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("reward = 1 and num_sampled > 6", lambda r: r["reward"] == 1 and r["num_sampled"] > 6),
        ("status <> 'right' -- a comment", lambda r: r["status"] != "right"),
        ("leaf like '%/1.%'", lambda r: "/1." in r["leaf"]),  # not in memory: from the shards
        ("list_max(advantages) > 0", lambda r: r["advantages"] is not None and max(r["advantages"]) > 0),
        ("false", lambda r: False),
    ],
)
def test_a_condition_keeps_what_it_says(toy: Run, toy_path: Path, where: str, keep):
    """Oracle: the same condition in Python. Kills: ids of the shards that are not those in memory."""
    wanted = [key(row) for row in slow_rows(toy_path) if keep(row)]
    assert [key(row) for row in page(toy, where=where)] == wanted


def test_pages_of_an_order_are_the_order(toy: Run, toy_path: Path):
    """Oracle: sorted() with ties in the run's order. Kills: a page that begins one row too late."""
    slow = sorted(slow_rows(toy_path), key=lambda r: -r["num_sampled"])
    found = [row for at in range(0, len(slow), 7)
             for row in page(toy, sort="num_sampled", desc=True, offset=at, limit=7)]  # fmt: skip
    assert [key(row) for row in found] == [key(row) for row in slow]
    assert page(toy, offset=len(slow)) == []


def test_what_is_not_scored_comes_last(odd: Run):
    """Oracle: hand. Kills: null taken for a number, in either direction."""
    for desc in (False, True):
        rewards = [row["reward"] for row in page(odd, sort="reward", desc=desc)]
        assert rewards[-2:] == [None, None] and None not in rewards[:-2], rewards


def test_groups_are_sums_over_their_rollouts(toy: Run, toy_path: Path):
    """Oracle: the same sums in Python. Kills: not scored counted as 0, groups of two steps joined."""
    members: dict[tuple, list[dict]] = {}
    for row in slow_rows(toy_path):
        members.setdefault((row["step"], row["group_index"]), []).append(row)
    found = page(toy, table="groups")
    assert [(row["step"], row["group_index"]) for row in found] == list(members)
    for row, rollouts in zip(found, members.values(), strict=True):
        rewards = [r["reward"] for r in rollouts if r["reward"] is not None]
        assert (row["num_rollouts"], row["num_scored"]) == (len(rollouts), len(rewards))
        assert row["num_right"] == sum(r["status"] == "right" for r in rollouts)
        assert row["length_max"] == max(r["num_sampled"] for r in rollouts)
        assert row["reward_mean"] == (pytest.approx(math.fsum(rewards) / len(rewards)) if rewards else None)


@pytest.mark.parametrize("where", ["reward =", "1; drop table rollouts", "true) or (true", "no_such = 1",
                                   "reward = 'x'", "", "count(*) > 1"])  # fmt: skip
def test_what_is_no_condition_is_refused_in_words(toy: Run, where: str):
    """Oracle: hand. Kills: a statement behind a condition, a traceback instead of words."""
    total = len(page(toy))
    if not where:
        assert len(page(toy, where="  ")) == total
        return
    with pytest.raises(QueryError):
        page(toy, where=where)
    assert len(page(toy)) == total


def test_an_unknown_column_is_named(toy: Run):
    """Oracle: hand."""
    with pytest.raises(UnknownName, match="did you mean 'reward'"):
        page(toy, sort="rewad")
    with pytest.raises(UnknownName, match="groups"):
        page(toy, table="group")
    with pytest.raises(QueryError, match="limit"):
        page(toy, limit=10**6)


@pytest.mark.parametrize(
    "what",
    ["read_text('{outside}')", "read_csv('{outside}')", "read_text('{run}/shards/../config.toml')",
     "read_parquet('{outside}')", "glob('/*')", "read_json('http://127.0.0.1:9/')"],
)  # fmt: skip
def test_a_condition_reads_nothing_but_the_shards(toy: Run, toy_path: Path, tmp_path: Path, what: str):
    """Oracle: the content of a file outside never comes out. Kills: a connection that is not locked down."""
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    table = what.format(outside=outside, run=toy_path)
    with pytest.raises(QueryError, match=r"Permission|disabled|cannot access"):
        page(toy, where=f"(select count(*) from {table}) >= 0")


@pytest.mark.parametrize("statement", ["SET enable_external_access = true", "SET threads = 1", "LOAD httpfs",
                                       "COPY (SELECT 1) TO '{outside}'", "ATTACH '{outside}' AS other",
                                       "INSTALL httpfs"])  # fmt: skip
def test_the_connection_itself_is_locked(toy: Run, tmp_path: Path, statement: str):
    """Oracle: hand; even a whole statement, which no condition can be, gets nowhere."""
    import duckdb

    outside = tmp_path / "out"
    with pytest.raises(duckdb.Error):
        toy.database.cursor().execute(statement.format(outside=outside))
    assert not outside.exists()


def test_a_query_that_takes_too_long_is_given_up(toy: Run):
    """Oracle: the clock. Kills: a timer that nobody started, or that stops the next query too."""
    lists = Lists(toy.database, time_limit_s=0.3)
    began = time.monotonic()
    with pytest.raises(QueryError, match=r"0\.3 s"):
        slow = "(select sum(a.range * b.range) from range(10000000) a, range(10000000) b) > id"
        lists.page("rollouts", slow, "", False, 0, 10)
    assert time.monotonic() - began < 10
    assert lists.page("rollouts", "", "", False, 0, 1)["total"] == len(page(toy))


def test_lists_are_answered_side_by_side(toy: Run):
    """Oracle: each thread's answer is the one that it gets alone. Kills: one cursor for all."""
    alone = {k: page(toy, where=f"step % 3 = {k}") for k in range(3)}
    found: dict[int, list] = {}

    def ask(number: int) -> None:
        found[number] = page(toy, where=f"step % 3 = {number % 3}")

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(found[k] == alone[k % 3] for k in range(12))


def test_the_order_of_the_run_is_there_before_anything_is_read(toy: Run, toy_path: Path):
    """Oracle: the list once it is read. Kills: a page over two shards that is cut short."""
    database = Database(toy_path)
    assert database.scan() and database.generation == 0
    lists, total = Lists(database), len(page(toy))
    for offset, limit in ((0, 10), (0, 1000), (total // 2, 150), (total - 3, 10), (total, 10), (5, 0)):
        early = lists.page("rollouts", "", "", False, offset, limit)
        late = toy.lists.page("rollouts", "", "", False, offset, limit)
        assert (early["total"], early["columns"], early["rows"]) == (total, late["columns"], late["rows"])
    database.close()


def test_new_shards_are_taken_in(tmp_path: Path):
    """Oracle: a fresh look at the whole folder. Kills: rows that stand twice, or in another order."""
    whole = record(tmp_path / "whole")
    later = sorted((whole / "shards").iterdir())[1:]
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in later:
        path.rename(aside / path.name)
    (whole / "journal.jsonl").rename(aside / "journal.jsonl")  # else the rest is read from it
    run = Run(whole)
    run.ready()
    before = page(run)
    assert len(page(run, table="groups")) == len({(r["step"], r["group_index"]) for r in before})
    for path in sorted(aside.glob("train-*")):
        path.rename(whole / "shards" / path.name)
    run.refresh()
    fresh = Run(whole)
    fresh.ready()
    assert len(page(run)) > len(before)
    for table in ("rollouts", "groups"):
        assert page(run, table=table) == page(fresh, table=table)
    assert [key(r) for r in page(run, where="leaf <> ''")] == [key(r) for r in slow_rows(whole)]
    run.close()
    fresh.close()
