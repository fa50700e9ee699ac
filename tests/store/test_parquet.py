"""Parquet shards: exact, whole or absent, and queried with DuckDB."""

import math
import signal
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from rollwright.errors import DataError, StoreError
from rollwright.ledger import Fate
from rollwright.store.parquet import ShardWriter, open_run, read_groups, shards, write_shard
from rollwright.store.rows import RowFile
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory


def sampled(name, parent, tokens, at=1, **fields):
    defaults = {
        "policy": "policy",
        "version": 3,
        "logprobs": tuple(-0.1 * (t + 1) for t in tokens),
        "temperature": 0.7,
    }
    return Node(name, parent, at, Origin.SAMPLED, tokens, "s", 1, **defaults | fields)


def tree(name="t/train/1#0"):
    """A fork inside a node, an observation, a replayed leaf, a pruned leaf, every optional field."""
    nodes = [
        Node(f"{name}/root", None, 0, Origin.PROMPT, (9,)),
        sampled(
            f"{name}/a", f"{name}/root", (1, 2, 3, 4), entropies=(0.1, 0.2, 0.3, 0.4), kept_masses=(1.0,) * 4,
            top=(((1, -0.1), (2, -3.0)),) * 4, forced=1, stop=StopReason.STOP,
        ),
        Node(f"{name}/b", f"{name}/a", 4, Origin.OBSERVATION, (5, 6), reward=0.25),
        sampled(f"{name}/c", f"{name}/b", (7,), at=2, stop=StopReason.EOS, version=4),
        sampled(f"{name}/d", f"{name}/a", (8, 9), at=2, stop=StopReason.LENGTH),
        sampled(f"{name}/e", f"{name}/root", (1, 1, 1), stop=StopReason.PRUNED),
        sampled(f"{name}/f", f"{name}/root", (2, 2), stop=StopReason.EOS, version=0),
    ]  # fmt: skip
    leaves = (
        Trajectory(
            f"{name}/c", 0, 1.0, "right", {"x": 1.0, "y": math.inf}, 0.5, True, num_turns=2,
            stop=StopReason.EOS, advantages=(0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.5),
        ),
        Trajectory(f"{name}/d", 1, None, "grader_error", truncated=True, any_turn_cut=True, weight=0.125),
        Trajectory(f"{name}/f", 2, 1.0, "right", score=1.0, replayed=True, advantages=(1.0, -0.0)),
    )  # fmt: skip
    return Group(name, "t/train/1", {node.id: node for node in nodes}, leaves, baseline=0.1 + 0.2)


def fates(name="t/train/1#0"):
    return {
        f"{name}/c": (Fate.TRAINED, ""),
        f"{name}/f": (Fate.TRAINED, ""),
        f"{name}/d": (Fate.FAILED, "not_scored:grader_error"),
        f"{name}/e": (Fate.PRUNED, "entropy"),
    }


def test_groups_read_back_exactly(tmp_path):
    """Oracle: the groups themselves, bit for bit (repr tells -0.0 and infinity)."""
    bare = Group("h#0", "h", {"h/root": Node("h/root", None, 0, Origin.PROMPT, ())})
    made = [tree("g#1"), tree("g#0"), bare, tree("g#1")]  # a replayed group may come twice
    write_shard(tmp_path, 4, made, fates("g#0") | fates("g#1"), version=4)
    read = list(read_groups(tmp_path))
    assert [step for step, _ in read] == [4] * 4
    assert [repr(group) for _, group in read] == [repr(group) for group in made]


def test_token_fates_add_up(tmp_path):
    """Enumeration by hand: node a's first 4 tokens are trained by c; d adds 2, e 3; replays count aside."""
    write_shard(tmp_path, 0, [tree()], fates(), version=4)
    run = open_run(tmp_path)
    rows = run.execute(
        "SELECT node, replayed, fates FROM nodes WHERE origin = 'sampled' ORDER BY node"
    ).fetchall()
    assert [(node[-1], replayed, dict(found)) for node, replayed, found in rows] == [
        ("a", False, {"trained": 4}),
        ("c", False, {"trained": 1}),
        ("d", False, {"failed": 2}),
        ("e", False, {"pruned": 3}),
        ("f", True, {"trained": 2}),
    ]
    shared = "SELECT replayed FROM nodes WHERE origin = 'prompt'"
    assert run.execute(shared).fetchall() == [(False,)], "a node of a fresh path is no replay"
    sums = "sum(list_sum(map_values(fates))), sum(num_steps)"
    total = f"SELECT {sums} FROM nodes WHERE origin = 'sampled' AND NOT replayed"
    assert run.execute(total).fetchone() == (10, 10)


def test_tokens_of_a_cut_branch_are_left_behind(tmp_path):
    """A node trained only up to its fork: the rest has a fate too. Enumeration by hand."""
    group = tree()
    forked = Group(group.id, group.task, group.nodes, (group.trajectories[1],))
    leaf = group.trajectories[1].leaf
    write_shard(tmp_path, 0, [forked], {leaf: (Fate.TRAINED, "")}, version=4)
    rows = (
        open_run(tmp_path)
        .execute("SELECT right(node, 1), fates FROM nodes WHERE origin = 'sampled'")
        .fetchall()
    )
    assert {node: dict(found) for node, found in rows} == {
        "a": {"trained": 2, "pruned": 2},
        "c": {"pruned": 1},
        "d": {"trained": 2},
        "e": {"pruned": 3},
        "f": {"pruned": 2},
    }


def test_trajectory_columns(tmp_path):
    """Golden: lengths come from sampled tokens, versions from the path, text from the tokenizer."""
    extras = {"t/train/1#0/c": {"n": np.int64(3), "p": np.float32(0.5), "bad": float("nan")}}
    decode = lambda tokens: "".join(chr(97 + token) for token in tokens)  # noqa: E731
    write_shard(tmp_path, 7, [tree()], fates(), version=6, extras=extras, decode=decode)
    run = open_run(tmp_path)
    columns = (
        'step, kind, "index", fate, reason, reward, num_prompt, num_response, num_sampled, '
        "oldest_version, newest_version, batch_version, extras, extras_non_finite, prompt_text, response_text"
    )
    rows = run.execute(f'SELECT {columns} FROM trajectories ORDER BY "index"').fetchall()
    assert rows[0] == (
        *(7, "train", 0, "trained", "", 1.0, 1, 7, 5, 3, 4, 6),
        *('{"n":3,"p":0.5,"bad":null}', ["bad=nan"], "j", "bcdefgh"),
    )
    assert rows[2][8:11] == (2, 0, 0)
    assert rows[1][:10] == (7, "train", 1, "failed", "not_scored:grader_error", None, 1, 4, 4, 3)
    assert run.execute("SELECT rewards['y'] FROM trajectories WHERE \"index\" = 0").fetchone() == (math.inf,)


def test_schema_is_versioned_and_globbed(tmp_path):
    """Oracle: the metadata, and DuckDB's own glob over the files."""
    for step in (0, 1):
        write_shard(tmp_path, step, [tree(f"g#{step}")], fates(f"g#{step}"))
    for name, num in (("nodes", 14), ("trajectories", 6)):
        files = sorted(tmp_path.glob(f"shards/*/{name}.parquet"))
        metadata = pq.read_metadata(files[0]).metadata
        assert metadata[b"rollwright.schema_version"] == b"1"
        assert metadata[b"rollwright.table"] == name.encode()
        counted = duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/shards/*/{name}.parquet'").fetchone()
        assert counted == (num,)


def test_newer_schema_is_refused(tmp_path):
    """Oracle: the message, for a query and for reading groups."""
    path = write_shard(tmp_path, 0, [tree()], fates())
    for name in ("nodes", "trajectories"):
        file = path / f"{name}.parquet"
        content = pq.read_table(file)
        newer = content.replace_schema_metadata(
            {**content.schema.metadata, b"rollwright.schema_version": b"2"}
        )
        pq.write_table(newer, file)
    for attempt in (lambda: open_run(tmp_path), lambda: list(read_groups(tmp_path))):
        with pytest.raises(StoreError, match="schema version 2"):
            attempt()


def test_missing_fates_and_foreign_extras_are_refused(tmp_path):
    """Never a silent drop (case F01's last sentence). Oracle: the message; nothing is written."""
    some = fates()
    del some["t/train/1#0/d"]
    with pytest.raises(StoreError, match="t/train/1#0/d has no fate"):
        write_shard(tmp_path, 0, [tree()], some)
    with pytest.raises(DataError, match=r"extras for \['nobody'\]"):
        write_shard(tmp_path, 0, [tree()], fates(), extras={"nobody": {}})
    assert shards(tmp_path) == []


def test_writer_collects_steps_and_passes_over_what_is_there(tmp_path):
    """Metamorphic: giving every step again after a crash changes nothing and repeats nothing."""

    def give(writer, steps):
        for step in steps:
            writer.add(step, [tree(f"g#{step}")], fates(f"g#{step}"))

    writer = ShardWriter(tmp_path, steps_per_shard=3)
    give(writer, range(5))
    assert [path.name for path in shards(tmp_path)] == ["train-00000000-00000002"]
    assert writer.has(4) and not writer.has(5) and not writer.has(2, "evaluation")
    writer = ShardWriter(tmp_path, steps_per_shard=3)  # steps 3 and 4 died with the first
    assert writer.has(2) and not writer.has(3)
    give(writer, range(7))
    writer.add(6, [tree("e#0")], fates("e#0"), kind="evaluation")
    writer.flush()
    names = [path.name for path in shards(tmp_path)]
    assert names == [
        *("train-00000000-00000002", "train-00000003-00000005"),
        *("evaluation-00000006-00000006", "train-00000006-00000006"),
    ]
    assert [group.id for _, group in read_groups(tmp_path)] == [f"g#{step}" for step in range(7)]
    assert [group.id for _, group in read_groups(tmp_path, "evaluation")] == ["e#0"]
    writer.add(9, [], {})
    for step in (8, 9):
        with pytest.raises(StoreError, match=f"step {step} came after step 9"):
            writer.add(step, [tree()], fates())


def test_failed_write_leaves_no_half_shard(tmp_path, monkeypatch):
    """The second file fails. Oracle: no shard, no draft, the steps still held and written later."""
    writer = ShardWriter(tmp_path, steps_per_shard=9)
    writer.add(0, [tree()], fates())
    whole = pq.write_table

    def full(content, file, **options):
        if len(content) == 3:
            raise OSError(28, "No space left on device")
        whole(content, file, **options)

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(StoreError, match=r"No space left.*no half shard|No space left.*No half shard"):
        writer.flush()
    assert list((tmp_path / "shards").iterdir()) == []
    monkeypatch.undo()
    writer.flush()
    assert [path.name for path in shards(tmp_path)] == ["train-00000000-00000000"]


def test_kill_nine_leaves_whole_shards_only(tmp_path):
    """A writer killed between its two files. Oracle: the shards it had finished; the draft is cleared."""
    code = (
        "import os, signal, sys\n"
        "import pyarrow.parquet as pq\n"
        "from rollwright.store.parquet import ShardWriter\n"
        "whole, calls = pq.write_table, []\n"
        "def killed(content, file, **options):\n"
        "    calls.append(1)\n"
        "    whole(content, file, **options)\n"
        "    if len(calls) == 4: os.kill(os.getpid(), signal.SIGKILL)\n"
        "pq.write_table = killed\n"
        "writer = ShardWriter(sys.argv[1], steps_per_shard=1)\n"
        "for step in range(3): writer.add(step, [], {})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in shards(tmp_path)] == ["train-00000000-00000000"]
    assert len(list((tmp_path / "shards").iterdir())) == 2
    writer = ShardWriter(tmp_path, steps_per_shard=1)
    assert len(list((tmp_path / "shards").iterdir())) == 1 and not writer.has(1)


def test_empty_run_has_its_views(tmp_path):
    """Oracle: the schema; a run without a finished step can be asked too."""
    run = open_run(tmp_path)
    assert run.execute("SELECT count(fates), count(logprobs) FROM nodes").fetchone() == (0, 0)
    assert run.execute("SELECT sum(reward) FROM trajectories").fetchone() == (None,)
    assert run.execute("SELECT count(step) FROM metrics").fetchone() == (0,)
    with pytest.raises(StoreError, match="no run folder"):
        open_run(tmp_path / "nowhere")


def test_metrics_are_a_view(tmp_path):
    """Golden: one row a step and kind, later values win, what a row lacks is null."""
    rows = RowFile(tmp_path / "metrics.jsonl")
    rows.append({"step": 0, "reward_mean": 1, "note": "x"})
    rows.append({"step": 1, "reward_mean": None, "loss": 2.0})
    rows.append({"step": 1, "loss": math.nan, "dropped:zero_variance": 3})
    rows.append({"kind": "evaluation", "step": 1, "reward_mean": 0.5})
    (tmp_path / "metrics.jsonl").open("ab").write(b'{"step": 2, "lo')
    columns = 'step, reward_mean, note, loss, "dropped:zero_variance", non_finite'
    assert open_run(tmp_path).execute(
        f"SELECT {columns} FROM metrics ORDER BY step, kind NULLS FIRST"
    ).fetchall() == [
        (0, 1.0, "x", None, None, None),
        (1, None, None, None, 3.0, ["loss=nan"]),
        (1, 0.5, None, None, None, None),
    ]
