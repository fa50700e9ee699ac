"""Groups, rollouts and differences as the page gets them, against the trees that they came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from view_help import HOSTILE, TOOL, V01, byte_tokenizer, tree

from rollwright.errors import DataError
from rollwright.store.parquet import read_groups
from rollwright.view.diff import diff
from rollwright.view.pieces import Pieces
from rollwright.view.run import Run


def pieces_of(tokenizer: Tokenizer, tmp_path: Path) -> Pieces:
    folder = tmp_path / "checkpoints" / "v00000001"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return Pieces(tmp_path)


def test_a_rollout_is_its_path(toy: Run, toy_path: Path):
    """Oracle: Group.response of the tree. Kills: credit that is shifted, a fork's parent shown whole."""
    seen: dict[int, int] = {}
    for step, group in read_groups(toy_path):
        number = seen[step] = seen.get(step, -1) + 1
        for t in group.trajectories[1:2] if number % 3 == 0 else ():
            found = toy.rollout("train", step, number, t.index)
            response = group.response(t)
            after = found["segments"][1:]
            assert found["segments"][0]["tokens"] == list(response.prompt)
            assert [k for seg in after for k in seg["tokens"]] == list(response.tokens)
            logprobs = [v for seg in after for v in seg["logprobs"] or [np.nan] * seg["num"]]
            np.testing.assert_array_equal(logprobs, response.logp_old)
            if t.advantages is not None:
                assert [v for seg in after for v in seg["advantages"]] == list(t.advantages)
            assert (found["reward"], found["leaf"], found["group"]) == (t.reward, t.leaf, group.id)


def test_a_fork_shows_only_what_it_shares(odd: Run):
    """Oracle: hand. Rollout 1 leaves the first turn after five bytes, "I loo"."""
    found = odd.rollout("train", 0, 0, 1)
    assert ["".join(seg["pieces"]) for seg in found["segments"]] == [
        "You are in a room. ", "I loo", "n in the corner.",
    ]  # fmt: skip
    assert found["segments"][1]["num"] == 5 < found["segments"][1]["num_steps"] == len(TOOL)
    assert found["segments"][1]["advantages"] == [-0.5] * 5
    whole = odd.rollout("train", 0, 0, 0)
    assert [seg["origin"] for seg in whole["segments"]] == ["prompt", "sampled", "observation", "sampled"]
    assert set(whole["segments"][2]["advantages"]) == {0.0} and whole["segments"][2]["logprobs"] is None


def test_a_group_has_its_tree_without_the_steps(odd: Run):
    """Oracle: hand, and tree() itself. Kills: a mean that counts observations, a node that is left out."""
    found = odd.group("train", 1, 0)
    made = tree(byte_tokenizer("<|im_end|>"), 1)
    assert [n["node"] for n in found["nodes"]] == list(made.nodes)
    by_name = {n["node"].rpartition("/")[2]: n for n in found["nodes"]}
    assert (by_name["0~1.0"]["parent"], by_name["0~1.0"]["at"]) == (f"{found['group']}/0.0", 5)
    # The shared first turn: 0.75 over all of it from one rollout, -0.5 over five steps from the other.
    size = len(TOOL)
    assert by_name["0.0"]["advantage"] == pytest.approx((0.75 * size - 0.5 * 5) / (size + 5))
    assert by_name["0.1"]["advantage"] is None and by_name["0~2.0"]["advantage"] is None
    assert by_name["0~2.0"]["fates"] == {"pruned": len("never mind")}
    assert "tokens" not in by_name["0.0"]
    assert [(t["index"], t["reward"], t["fate"]) for t in found["trajectories"]] == [
        (0, 1.0, "trained"), (1, 0.0, "trained"), (2, 0.0, "trained"),
    ]  # fmt: skip


def test_a_node_can_be_opened(odd: Run):
    """Oracle: hand."""
    found = odd.node("train", 0, 0, "rooms/train/0#0/1.0")
    assert "".join(found["pieces"]) == "I wait." and len(found["top"]) == 7
    assert found["top"][1][0] == {"token": 1, "logprob": -0.1, "piece": odd.pieces.decode([1])}


@pytest.mark.parametrize(
    "call", [("group", 99, 0), ("group", 0, 99), ("rollout", 0, 0, 7), ("node", 0, 0, "x")]
)
def test_what_is_not_there_is_named(odd: Run, call: tuple):
    """Oracle: hand. Kills: an IndexError for the reader of an old link."""
    name, step, number, *rest = call
    with pytest.raises(DataError, match=r"there is no|has no rollout 7; it has \[0, 1, 2\]"):
        getattr(odd, name)("train", step, number, *rest)


@pytest.mark.parametrize("text", [V01, HOSTILE])
def test_case_v01_no_character_is_lost(odd: Run, text: str):
    """Oracle: the case's own text. Kills: a decode that skips special tokens or cleans up."""
    found = odd.rollout("train", 0, 1, 0 if text is V01 else 1)
    assert "".join(found["segments"][-1]["pieces"]) == text


def test_what_is_not_finite_is_named(odd: Run):
    """Oracle: hand. Kills: NaN that reads as null or as nothing."""
    found = odd.rollout("train", 0, 1, 0)
    assert found["extras_non_finite"] == ["distance=nan"] and '"distance":null' in found["extras"]
    assert found["baseline"] == 0.5 and odd.rollout("train", 0, 1, 1)["reward"] is None


# ---------------------------------------------------------------- the text of each token


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=30))
def test_pieces_joined_are_the_text(text: str, tmp_path_factory: pytest.TempPathFactory):
    """Oracle: the text. Kills: half a character shown as a replacement mark, or shown twice."""
    pieces = _cached_pieces(tmp_path_factory)
    tokens = pieces.tokenizer.encode(text, add_special_tokens=False).ids
    found = pieces.of(tokens)
    assert found is not None and len(found) == len(tokens)
    assert "".join(found) == text
    assert "\ufffd" not in "".join(found) or "\ufffd" in text


def _cached_pieces(factory: pytest.TempPathFactory, made: list[Pieces] = []) -> Pieces:  # noqa: B006
    if not made:
        made.append(pieces_of(byte_tokenizer("<|im_end|>"), factory.mktemp("bytes")))
    return made[0]


@given(tokens=st.lists(st.integers(0, 255), max_size=40))
@settings(max_examples=60, deadline=None)
def test_pieces_of_any_bytes_are_what_they_decode_to(
    tokens: list[int], tmp_path_factory: pytest.TempPathFactory
):
    """Oracle: decode of all. Models sample bytes that are no text; what is broken is shown as broken."""
    pieces = _cached_pieces(tmp_path_factory)
    assert "".join(pieces.of(tokens) or []) == pieces.decode(tokens)


def test_long_stretches_of_broken_bytes_take_no_longer(tmp_path_factory: pytest.TempPathFactory):
    """Oracle: the number of tokens decoded. Kills: a window that grows with the text."""
    pieces = _cached_pieces(tmp_path_factory)
    decoded, decode = [], pieces.decode
    pieces.decode = lambda tokens: (decoded.append(len(tokens)), decode(tokens))[1]  # type: ignore[method-assign]
    tokens = pieces.tokenizer.encode("é", add_special_tokens=False).ids[1:] * 600
    try:
        assert "".join(pieces.of(tokens) or []) == decode(tokens)
    finally:
        del pieces.decode
    assert sum(decoded) < 40 * len(tokens)


def test_pieces_keep_blanks_that_a_token_alone_loses(tmp_path: Path):
    """Oracle: decode of all, with a tokeniser that drops the blank before its first word."""
    words = ["▁a", "▁cat", "s", "▁sat", ".", "<0xE2>", "<0x82>", "<0xAC>"]
    tokenizer = Tokenizer(
        models.BPE(vocab={w: k for k, w in enumerate(words)}, merges=[], byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    pieces = pieces_of(tokenizer, tmp_path)
    assert pieces.of([0, 1, 2, 3, 4]) == ["a", " cat", "s", " sat", "."]
    assert pieces.of([1, 5, 6, 7, 3]) == ["cat", "", "", "€", " sat"]


def test_without_a_tokeniser_there_are_ids_and_the_text_that_was_written(toy: Run, tmp_path: Path):
    """Oracle: hand. Kills: ids passed off as text."""
    assert Pieces(tmp_path).of([1, 2]) is None
    segment = toy.rollout("train", 0, 0, 0)["segments"][0]
    assert segment["pieces"] is None and segment["text"] == "".join(map(str, segment["tokens"]))


# ---------------------------------------------------------------- differences


def steps(tokens: list[int]) -> dict:
    return {"segments": [{"tokens": tokens, "pieces": None, "origin": "sampled"}]}


tokens = st.lists(st.integers(0, 3), max_size=25)


@given(a=tokens, b=tokens)
@settings(max_examples=150, deadline=None)
def test_a_difference_gives_both_sides_back(a: list[int], b: list[int]):
    """Oracle: the two sequences. Kills: a stretch left out between head, middle and tail, or shown twice."""
    found = diff(steps(a), steps(b))
    runs = found["runs"]
    assert [s[0] for run in runs for s in run["a"]] == a and [s[0] for run in runs for s in run["b"]] == b
    for run in runs:
        same = [s[0] for s in run["a"]] == [s[0] for s in run["b"]]
        assert same == (run["op"] == "same"), run
    shared = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert found["first_difference"] == (None if a == b else shared)


def test_too_long_a_middle_is_said_to_be_too_long():
    """Oracle: hand. Kills: minutes in a comparison, or a wrong claim of one."""
    a, b = [9, *([1] * 7000), 8], [9, *([2] * 7000), 8]
    found = diff(steps(a), steps(b))
    assert not found["is_exact"] and [run["op"] for run in found["runs"]] == ["same", "changed", "same"]
    assert found["num_same"] == 2


def test_a_fork_differs_where_it_left(odd: Run):
    """Oracle: hand. Kills: a comparison without the prompt, or of texts instead of tokens."""
    found = diff(odd.rollout("train", 0, 0, 0), odd.rollout("train", 0, 0, 1))
    assert found["first_difference"] == len("You are in a room. I loo")
