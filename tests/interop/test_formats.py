"""Every foreign format comes in, with its traps; ours goes out and comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rollwright.check.run import check_source, context_of
from rollwright.check.source import RawGroup, open_source
from rollwright.cli.main import main
from rollwright.errors import DataError
from rollwright.interop.export import export_dump
from rollwright.interop.formats import FORMATS, Imported, import_dump

# The formats' examples, in the order of the file, by our names.
_NAMES = [
    *(
        "verl",
        "verl",
        "verl-data",
        "trl",
        "openrlhf",
        "slime",
        "verifiers",
        "verifiers-v1",
        "prime-rl-tokens",
    ),
    *(
        "atropos",
        "atropos-sft",
        "skyrl",
        "tau-bench",
        "swe-agent",
        "openai-chat",
        "sharegpt",
        "areal",
        "roll",
    ),
    *("nemo-rl", "tinker"),
]
_EXAMPLES = [
    json.loads(line)["example"]
    for line in Path(__file__).with_name("examples.jsonl").read_text().splitlines()
]


def save(folder: Path, name: str, rows: list) -> Path:
    if name == "slime":
        torch.save(rows[0], folder / "in.pt")
        return folder / "in.pt"
    if name in ("trl", "verl-data"):
        pq.write_table(pa.Table.from_pylist(rows), folder / "in.parquet")
        return folder / "in.parquet"
    (folder / "STABLE").touch()
    path = folder / ("in.traj" if name == "swe-agent" else "in.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bring(folder: Path, name: str, *rows) -> tuple[list[RawGroup], Imported]:
    flat = [one for row in rows for one in (row if isinstance(row, list) else [row])]
    out = folder / "out.jsonl"
    done = import_dump(name, save(folder, name, flat), out)
    return list(open_source(out).groups()), done


def leaves(groups: list[RawGroup]) -> list[dict]:
    return [leaf for group in groups for leaf in group.trajectories]


def example(name: str) -> dict:
    return json.loads(json.dumps(_EXAMPLES[_NAMES.index(name)]))


# What is checked of each example: invariants that its format can prove, and some that it cannot.
_TOLD = {
    "slime": ({"joins", "masks", "logprobs", "versions", "rewards"}, {"fates", "advantages"}),
    "verifiers-v1": ({"joins", "masks", "logprobs", "rewards"}, {"versions", "fates"}),
    "prime-rl-tokens": ({"joins", "masks", "logprobs"}, {"rewards", "versions"}),
    "atropos": ({"joins", "masks", "rewards"}, {"logprobs", "versions"}),
    "nemo-rl": ({"joins", "masks", "logprobs", "rewards"}, {"versions", "ends"}),
    "trl": ({"tree", "groups"}, {"rewards", "logprobs"}),
    "tinker": ({"tree", "rewards", "versions"}, {"joins", "logprobs"}),
}


@pytest.mark.parametrize("place", range(len(_NAMES)), ids=[f"{k}-{name}" for k, name in enumerate(_NAMES)])
def test_each_example_comes_in(place, tmp_path):
    """Oracle: the example of the format's own source. Kills: what nobody knows, called proved."""
    name = _NAMES[place]
    groups, done = bring(tmp_path, name, _EXAMPLES[place])
    assert done.num_rollouts >= 1 and done.lacks == FORMATS[name].lacks
    source = open_source(tmp_path / "out.jsonl")
    found = {verdict.invariant: verdict.word for verdict in check_source(source, context_of(source))}
    assert "refuted" not in found.values(), found
    proved, unknown = _TOLD.get(name, ({"tree", "groups"}, {"joins", "masks", "logprobs"}))
    assert {found[one] for one in proved} == {"proved"}, found
    assert {found[one] for one in unknown} == {"unknown"}, found
    assert source.came_from == name and groups


def test_all_formats_are_tested():
    """Oracle: enumeration."""
    assert set(_NAMES) == set(FORMATS) and len(_EXAMPLES) == len(_NAMES)


def test_verl_groups_and_words(tmp_path):
    """Hand: 'True' is 1, and the group is the uid without its last two parts (a uid may hold '_')."""
    row = {"input": "a", "output": "b", "gts": None, "step": 1}
    given = [("True", "x_y_0_0"), ("3", "x_y_0_1"), (0.0, "x_z_0_0")]
    groups, _ = bring(tmp_path, "verl", *[row | {"score": score, "uid": uid} for score, uid in given])
    assert [[leaf["reward"] for leaf in group.trajectories] for group in groups] == [[1.0, 3.0], [0.0]]


def test_trl_keeps_every_column(tmp_path):
    """Hand: NaN is not scored, other columns are rewards or extras, runs of one prompt are groups."""
    row = example("trl") | {"format_reward": float("nan"), "note": "x"}
    groups, _ = bring(tmp_path, "trl", row, row, row | {"prompt": "other"}, row)
    assert [len(group.trajectories) for group in groups] == [2, 1, 1]
    leaf = groups[0].trajectories[0]
    assert leaf["rewards"] == {"accuracy_reward": 1.0, "format_reward": None} and leaf["reward"] is None
    assert leaf["extras"] == {"note": "x", "advantage": 0.57725}


def test_slime_masks_cover_the_response(tmp_path):
    """Hand: 3 prompt tokens; a masked head of the response is an observation, not prompt."""
    sample = example("slime")["samples"][0] | {"loss_mask": [0, 1]}
    groups, _ = bring(tmp_path, "slime", {"rollout_id": 3, "samples": [sample]})
    parts = [(node["origin"], node["tokens"], node["logprobs"]) for node in groups[0].nodes]
    assert parts == [("prompt", [7, 8, 9], None), ("observation", [5], None), ("sampled", [2], [-0.2])]
    assert groups[0].trajectories[0]["newest_version"] == 4


def test_slime_runs_no_code(tmp_path):
    """Oracle: a pickle that would touch a file. Kills: weights_only=False."""

    class Touch:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"samples": [Touch()]}, tmp_path / "in.pt")
    with pytest.raises(DataError, match="only code could make"):
        import_dump("slime", tmp_path / "in.pt", tmp_path / "out.jsonl")
    assert not (tmp_path / "ran").exists() and not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("name", ["verifiers", "tau-bench"])
def test_failures_are_not_zero(name, tmp_path):
    """Hand: an error with reward 0.0 is failed and has no reward."""
    rows = example(name)
    if name == "verifiers":
        rows = [rows, rows | {"reward": 0.0, "error": {"error": "timeout"}}]
    groups, done = bring(tmp_path, name, rows)
    assert [(leaf["reward"], leaf["status"]) for leaf in leaves(groups)] == [
        (1.0, "scored"),
        (None, "failed"),
    ]
    assert sum(done.notes.values()) == 1


def test_a_torn_last_line_is_said(tmp_path):
    """Case C01: half a line at the end is left out and counted; elsewhere it is an error."""
    whole = json.dumps(example("verifiers"))
    (tmp_path / "in.jsonl").write_text(f"{whole}\n{whole[:20]}")
    done = import_dump("verifiers", tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert done.num_rollouts == 1 and "the last line (2) is torn: left out" in done.notes
    (tmp_path / "in.jsonl").write_text(f"{whole[:20]}\n{whole}\n")
    with pytest.raises(DataError, match="line 1"):
        import_dump("verifiers", tmp_path / "in.jsonl", tmp_path / "two.jsonl")


def test_verifiers_v1_paths(tmp_path):
    """Hand: two answers of one prompt are two paths; template tokens of an answer are not sampled."""
    row = example("verifiers-v1")
    trace = row["traces"][0]
    answer = trace["nodes"][1]
    trace["nodes"].append(answer | {"token_ids": [3, 4], "logprobs": [-0.7]})
    trace["rewards"] = {"a": {"score": 1.0, "weight": 0.5}, "b": {"score": 2.0, "weight": 1.0}}
    groups, done = bring(tmp_path, "verifiers-v1", row)
    assert [leaf["reward"] for leaf in leaves(groups)] == [2.5, 2.5] and sum(done.notes.values()) == 1
    sampled = [(n["tokens"], n["logprobs"]) for n in groups[0].nodes if n["origin"] == "sampled"]
    assert sampled == [([9], [-0.1]), ([4], [-0.7])]
    trace["rewards"] = None
    (tmp_path / "b").mkdir()
    groups, _ = bring(tmp_path / "b", "verifiers-v1", row)
    assert {leaf["reward"] for leaf in leaves(groups)} == {None}


def test_a_mask_on_an_observation_is_refuted(tmp_path):
    """Hand: a message that no model sampled, whose mask is true."""
    row = example("verifiers-v1")
    row["traces"][0]["nodes"][0]["mask"] = [True, False]
    bring(tmp_path, "verifiers-v1", row)
    assert main(["check", str(tmp_path / "out.jsonl")]) == 1


def test_atropos_labels(tmp_path):
    """Hand: -100 is not trained; a label that is neither -100 nor its token is an error."""
    row = example("atropos")
    (tmp_path / "right").mkdir()
    groups, _ = bring(tmp_path / "right", "atropos", row)
    parts = [(node["origin"], node["tokens"]) for node in groups[0].nodes]
    assert parts == [("prompt", [7, 8]), ("sampled", [5, 2]), ("sampled", [6, 2])]
    row["masks"][0][2] = 1
    with pytest.raises(DataError, match="label"):
        bring(tmp_path, "atropos", row)


def test_nemo_padding_is_cut(tmp_path):
    """Hand: input_lengths cuts the padding."""
    row = example("nemo-rl") | {"input_lengths": [4]}
    groups, _ = bring(tmp_path, "nemo-rl", row)
    assert [node["tokens"] for node in groups[0].nodes] == [[7, 8, 9], [5]]
    assert groups[0].trajectories[0]["advantages"] == [0.5]


def test_other_traps(tmp_path):
    """Hand: ROLL is transposed, SkyRL's token scores add up, tool arguments stay text, no STABLE no step."""
    for name in ("roll", "skyrl", "openai-chat", "prime"):
        (tmp_path / name).mkdir()
    groups, _ = bring(tmp_path / "roll", "roll", example("roll"))
    assert [leaf["reward"] for leaf in groups[0].trajectories] == [1.0, 0.0]
    groups, _ = bring(tmp_path / "skyrl", "skyrl", example("skyrl") | {"score": [0.5, 0.0, 1.0]})
    assert leaves(groups)[0]["reward"] == 1.5 and leaves(groups)[0]["extras"]["score"] == [0.5, 0.0, 1.0]
    row = example("openai-chat")
    row["messages"][1]["tool_calls"][0]["function"]["arguments"] = '{"a": 2,, '
    groups, _ = bring(tmp_path / "openai-chat", "openai-chat", row)
    call = groups[0].nodes[1]["message"]["tool_calls"][0]
    assert call["function"]["arguments"] == '{"a": 2,, ' and groups[0].trajectories[0]["num_turns"] == 2
    path = save(tmp_path / "prime", "prime-rl-tokens", [example("prime-rl-tokens")])
    (tmp_path / "prime" / "STABLE").unlink()
    with pytest.raises(DataError, match="STABLE"):
        import_dump("prime-rl-tokens", path, tmp_path / "prime" / "out.jsonl")


def test_openai_sentinels(tmp_path):
    """Hand: -9999 is no logprob, and logprobs without ids stay aside."""
    choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "5"},
              "logprobs": {"content": [{"token": "5", "logprob": -9999.0}]}, "token_ids": [5]}  # fmt: skip
    row = {"id": "r", "choices": [choice], "prompt_token_ids": [7]}
    groups, done = bring(tmp_path, "openai-chat", row)
    assert groups[0].nodes[1]["tokens"] == [5] and groups[0].nodes[1]["logprobs"] == [None]
    assert groups[0].trajectories[0]["truncated"] and sum(done.notes.values()) == 1


def test_nothing_is_written_over(tmp_path, capsys):
    """Oracle: the file's bytes, and exit code 2."""
    bring(tmp_path, "verl", example("verl"))
    before = (tmp_path / "out.jsonl").read_bytes()
    assert main(["import", "verl", str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]) == 2
    assert main(["import", "verll", str(tmp_path / "in.jsonl"), str(tmp_path / "b.jsonl")]) == 2
    assert "did you mean 'verl'" in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").read_bytes() == before


@pytest.mark.parametrize("to, back", [("verl", "verl"), ("trl", "trl"), ("openai-chat", "openai-chat")])
def test_ours_goes_out_and_comes_back(to, back, tmp_path):
    """Metamorphic: text, rewards and groups survive where the format holds them."""
    path = tmp_path / "run"
    from rollwright.ledger import Fate
    from rollwright.store.parquet import write_shard
    from rollwright.tree import Group, Node, Origin, Trajectory

    def grown(name: str, rewards: tuple) -> Group:
        nodes = [Node(f"{name}/root", None, 0, Origin.PROMPT, (1, 2))]
        for k in range(len(rewards)):
            nodes.append(Node(f"{name}/{k}.0", nodes[0].id, 2, Origin.SAMPLED, (3, k), f"{k}", 2, "policy", 0,
                              (-0.5, -0.5), temperature=1.0))  # fmt: skip
        leaves = tuple(
            Trajectory(f"{name}/{k}.0", k, reward, "right", score=reward, advantages=(reward or 0.0,) * 2)
            for k, reward in enumerate(rewards)
        )
        return Group(name, name.split("#")[0], {node.id: node for node in nodes}, leaves)

    groups = [grown("t/train/1#0", (1.0, 0.5)), grown("t/train/2#0", (0.0, None))]
    fates = {leaf.leaf: (Fate.TRAINED, "") for group in groups for leaf in group.trajectories}
    write_shard(path, 3, groups, fates, version=0, decode=lambda ids: "".join(chr(97 + one) for one in ids))
    out = tmp_path / ("out.parquet" if to == "trl" else "out-1.jsonl")
    num, notes = export_dump(open_source(path), to, out)
    assert num == 4 and (to == "openai-chat" or sum(notes.values()) == 1)
    import_dump(back, out, tmp_path / "back.jsonl")
    found = list(open_source(tmp_path / "back.jsonl").groups())
    rewards = [leaf["rewards"]["reward"] if to == "trl" else leaf["reward"] for leaf in leaves(found)]
    assert rewards == [1.0, 0.5, 0.0, None]
    answers = [node["text"] or node["message"]["content"] for group in found for node in group.nodes
               if node["origin"] == "sampled"]  # fmt: skip
    assert answers == ["da", "db", "da", "db"]
    # TRL tells groups apart by their prompts only, and these two have the same.
    assert [len(group.trajectories) for group in found] == ([4] if to == "trl" else [2, 2])
