"""`rollwright check`: silent on clean runs, and each planted corruption is found where it was put."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rollwright.check.run import check_source, context_of
from rollwright.check.source import open_source
from rollwright.cli.main import main
from rollwright.store.parquet import shards
from rollwright.store.schema import NODES, TRAJECTORIES, table

Rows = list[dict]
_BOS = 999


def tables(run: Path) -> tuple[Rows, Rows]:
    return tuple(pq.read_table(shards(run)[0] / f"{name}.parquet").to_pylist()
                 for name in ("nodes", "trajectories"))  # fmt: skip


def corrupted(run: Path, target: Path, plant: Callable[[Rows, Rows], None]) -> Path:
    """Copy a run and write its shard again with something planted."""
    shutil.copytree(run, target, ignore=shutil.ignore_patterns("lock", "plots"))
    nodes, trajectories = tables(target)
    plant(nodes, trajectories)
    for name, rows, schema in (("nodes", nodes, NODES), ("trajectories", trajectories, TRAJECTORIES)):
        pq.write_table(table(rows, schema), shards(target)[0] / f"{name}.parquet")
    return target


def words(run: Path, **more) -> dict[str, str]:
    source = open_source(run)
    found = check_source(source, context_of(source, _BOS, **more))
    return {verdict.invariant: verdict.word for verdict in found}


def sampled(nodes: Rows, num: int = 2) -> dict:
    """A sampled node of some steps that is no leaf."""
    parents = {row["parent"] for row in nodes}
    inner = [row for row in nodes if row["node"] in parents and row["origin"] == "sampled"]
    return next(row for row in inner if row["num_steps"] >= num)


def seen(nodes: Rows) -> dict:
    return next(row for row in nodes if row["origin"] == "observation" and row["tokens"])


def credited(trajectories: Rows) -> dict:
    return next(row for row in trajectories if row["advantages"] and any(row["advantages"]))


def shift(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["start"] += 1


def drop_token(nodes: Rows, _: Rows) -> None:
    row = seen(nodes)
    row["tokens"] = row["tokens"][1:]


def decode_again(nodes: Rows, _: Rows) -> None:
    row = seen(nodes)
    row["tokens"], row["num_steps"] = [*row["tokens"], 7], row["num_steps"] + 1


def lose_parent(nodes: Rows, _: Rows) -> None:
    nodes.remove(sampled(nodes))


def swap_order(nodes: Rows, _: Rows) -> None:
    place = nodes.index(sampled(nodes))
    child = next(k for k, row in enumerate(nodes) if row["parent"] == nodes[place]["node"])
    nodes[place], nodes[child] = nodes[child], nodes[place]


def fork_outside(nodes: Rows, _: Rows) -> None:
    seen(nodes)["at"] = 99


def train_observation(nodes: Rows, trajectories: Rows) -> None:
    row = credited(trajectories)
    place = next(t for t, value in enumerate(row["advantages"]) if value == 0)
    row["advantages"][place] = 0.5


def short_credit(_: Rows, trajectories: Rows) -> None:
    credited(trajectories)["advantages"].pop()


def observation_sampled(nodes: Rows, _: Rows) -> None:
    seen(nodes)["policy"] = "policy"


def miscount(_: Rows, trajectories: Rows) -> None:
    trajectories[0]["num_sampled"] += 1


def drop_logprob(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["logprobs"].pop()


def no_logprobs(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["logprobs"] = None


def nan_logprob(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["logprobs"][0] = float("nan")


def probability(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["logprobs"][0] = 0.5


def logprob_of_observation(nodes: Rows, _: Rows) -> None:
    seen(nodes)["logprobs"] = [0.0] * seen(nodes)["num_steps"]


def no_mass(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["kept_masses"] = None


def mass_above_one(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["kept_masses"] = [1.5] * sampled(nodes)["num_steps"]


def lose_rollout(_: Rows, trajectories: Rows) -> None:
    trajectories.pop(1)


def double_rollout(_: Rows, trajectories: Rows) -> None:
    trajectories.insert(1, dict(trajectories[0]))


def same_number(_: Rows, trajectories: Rows) -> None:
    trajectories[1]["index"] = trajectories[0]["index"]


def foreign_row(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["task"] = "lake/train/other"


def nan_reward(_: Rows, trajectories: Rows) -> None:
    trajectories[0]["reward"] = float("nan")


def failure_as_zero(_: Rows, trajectories: Rows) -> None:
    trajectories[0] |= {"reward": 0.0, "status": "grader_error"}


def no_reward(_: Rows, trajectories: Rows) -> None:
    trajectories[0]["reward"] = None


def token_without_fate(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["fates"] = [("trained", 1)]


def trained_twice(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["fates"] = [("trained", sampled(nodes)["num_steps"]), ("stale", 1)]


def flip_advantage(_: Rows, trajectories: Rows) -> None:
    row = credited(trajectories)
    row["advantages"] = [-value for value in row["advantages"]]


def other_score(_: Rows, trajectories: Rows) -> None:
    row = credited(trajectories)
    row["score"] = 1.0 - row["score"]


def future_version(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["version"] = 9


def batch_goes_back(_: Rows, trajectories: Rows) -> None:
    trajectories[0]["batch_version"] = 5


def double_begin(nodes: Rows, _: Rows) -> None:
    nodes[0]["tokens"][:2] = [_BOS, _BOS]


def end_token_missing(nodes: Rows, _: Rows) -> None:
    row = sampled(nodes)
    row["stop"], row["tokens"] = "eos", [*row["tokens"][:-1], 5]


def goes_on_after_end(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["tokens"][0] = 3


def both_ends(_: Rows, trajectories: Rows) -> None:
    row = trajectories[0]
    row["terminated"], row["truncated"] = True, True


def hidden_cut(nodes: Rows, _: Rows) -> None:
    sampled(nodes)["stop"] = "length"


PLANTED = {
    "tree": (lose_parent, swap_order, fork_outside),
    "joins": (shift, drop_token, decode_again),
    "masks": (train_observation, short_credit, observation_sampled, miscount),
    "logprobs": (drop_logprob, no_logprobs, nan_logprob, probability, logprob_of_observation),
    "kept_mass": (no_mass, mass_above_one),
    "groups": (lose_rollout, double_rollout, same_number, foreign_row),
    "rewards": (nan_reward, failure_as_zero, no_reward),
    "fates": (token_without_fate, trained_twice),
    "advantages": (flip_advantage, other_score),
    "versions": (future_version, batch_goes_back),
    "begin_token": (double_begin,),
    "end_tokens": (end_token_missing, goes_on_after_end),
    "ends": (both_ends, hidden_cut),
}
_CASES = [(name, plant) for name, plants in PLANTED.items() for plant in plants]


@pytest.mark.parametrize("run", ["turns", "branches"])
def test_a_clean_run_is_proved(run, request):
    """Oracle: the run itself, which the runner's own laws hold for. Kills: an invariant that cries wolf."""
    path = request.getfixturevalue(run)
    assert set(words(path, eos=frozenset({3})).values()) - {"proved"} == {
        "unknown"
    }  # the ratio, with no model
    nodes, _ = tables(path)
    sampled_to_steps = {row["node"]: row["num_steps"] for row in nodes if row["origin"] == "sampled"}
    inside = [row for row in nodes if row["at"] < sampled_to_steps.get(row["parent"], 0)]
    assert run == "turns" or inside, "no node forks inside another, so the run shows nothing of trees"


@pytest.mark.parametrize("name, plant", _CASES, ids=[plant.__name__ for _, plant in _CASES])
def test_each_planted_corruption_is_found(name, plant, turns, tmp_path):
    """Oracle: what was planted. Kills: an invariant that looks at nothing."""
    path = corrupted(turns, tmp_path / "run", plant)
    assert words(path, eos=frozenset({3}))[name] == "refuted"


def test_there_are_enough_of_them():
    """Oracle: the number that was asked for."""
    assert len(_CASES) >= 25


def test_logprobs_are_those_of_the_version(turns, tmp_path):
    """Oracle: a forward pass of the saved checkpoint. Kills: logprobs of other tokens, or before the cut."""
    model = turns / "checkpoints" / "v00000001"
    assert words(turns, model=model)["ratio"] == "proved"

    def plant(nodes: Rows, _: Rows) -> None:
        row = next(row for row in nodes if row["version"] == 1 and row["num_steps"] >= 2)
        row["logprobs"][0] -= 0.2

    assert words(corrupted(turns, tmp_path / "run", plant), model=model)["ratio"] == "refuted"


def test_the_command_names_file_and_row(turns, tmp_path, capsys):
    """Oracle: the place where it was planted."""
    path = corrupted(turns, tmp_path / "run", nan_reward)
    assert main(["check", str(path), "--json"]) == 1
    verdicts = {one["invariant"]: one for one in json.loads(capsys.readouterr().out)["verdicts"]}
    first = verdicts["rewards"]["first"]
    assert first["file"] == f"{shards(path)[0].name}/trajectories.parquet" and first["row"] == 0
    assert main(["check", str(turns)]) == 0
    assert "cannot be told" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{}\n", '{"format": "rollwright-dump", "version": 1}\n{"kind": 1}\n'])
def test_what_is_no_dump_is_bad_input(text, tmp_path, capsys):
    """Oracle: exit code 2, never 0. Kills: a file that is cut, called clean."""
    (tmp_path / "x.jsonl").write_text(text)
    assert main(["check", str(tmp_path / "x.jsonl")]) == 2
    assert main(["check", str(tmp_path / "nothing")]) == 2
    assert "rollwright" in capsys.readouterr().err
