"""The token tree: paths, forks inside nodes, exact columns."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwright.errors import LawBroken
from rollwright.tree import (
    Group,
    Node,
    Origin,
    Response,
    Sampling,
    StopReason,
    Trajectory,
    path_to,
    path_tokens,
)


def node(name, parent, at, tokens, origin=Origin.SAMPLED, **fields):
    logprobs = tuple(-0.1 * t for t in tokens) if origin is Origin.SAMPLED else None
    if origin is Origin.SAMPLED:
        fields = {"policy": "policy", "version": 0, "temperature": 1.0, **fields}
    return Node(name, parent, at, origin, tuple(tokens), logprobs=logprobs, **fields)


ROOT = node("g/root", None, 0, (1, 2), Origin.PROMPT)


def tree(*nodes):
    return {n.id: n for n in (ROOT, *nodes)}


def test_a_path_takes_the_shared_part_of_a_forked_node():
    """Closed form: a fork after one step of a node of three shares one step of it."""
    nodes = tree(node("a", "g/root", 2, (3, 4, 5)), node("b", "a", 1, (6, 7)), node("c", "b", 2, (8,)))
    assert [(n.id, num) for n, num in path_to(nodes, "c")] == [("g/root", 2), ("a", 1), ("b", 2), ("c", 1)]
    assert list(path_tokens(nodes, "c")) == [1, 2, 3, 6, 7, 8]
    assert list(path_tokens(nodes, "a")) == [1, 2, 3, 4, 5]


def test_response_columns_by_hand():
    """Golden: two turns with an observation between, two versions inside the first turn."""
    nodes = tree(
        node("a", "g/root", 2, (3, 4), version=1, temperature=0.5),
        node("b", "a", 2, (5,), version=2),
        node("o", "b", 1, (9, 9), Origin.OBSERVATION),
        node("c", "o", 2, (6,), version=2),
    )
    got = Response.of(path_to(nodes, "c"))
    assert got.prompt == (1, 2) and got.tokens == (3, 4, 5, 9, 9, 6)
    assert got.is_sampled.tolist() == [True, True, True, False, False, True]
    assert got.versions.tolist() == [1, 1, 2, -1, -1, 2]
    assert got.temperatures.tolist() == [0.5, 0.5, 1, 1, 1, 1]
    assert got.turns.tolist() == [0, 0, 0, 0, 0, 1]
    assert got.logp_old[:3].tolist() == pytest.approx([-0.3, -0.4, -0.5])
    assert [math.isnan(x) for x in got.logp_old] == [False, False, False, True, True, False]


def test_a_response_may_be_empty():
    """The prompt alone, and a sampled node of no steps, give columns of length 0."""
    for leaf, nodes in (("g/root", tree()), ("a", tree(node("a", "g/root", 2, ())))):
        got = Response.of(path_to(nodes, leaf))
        assert got.tokens == () and len(got.logp_old) == len(got.is_sampled) == len(got.turns) == 0


@given(st.data())
def test_random_trees_against_a_naive_walk(data):
    """Slow reference: every path is its parent's path cut at the fork, plus the node's own steps."""
    nodes = tree()
    whole = {"g/root": [1, 2]}
    sampled = {"g/root": [False, False]}
    for i in range(data.draw(st.integers(1, 8))):
        parent = data.draw(st.sampled_from(list(nodes)))
        at = data.draw(st.integers(0, nodes[parent].num_steps))
        if parent == "g/root":
            at = 2
        origin = data.draw(st.sampled_from([Origin.SAMPLED, Origin.OBSERVATION, Origin.HINT]))
        tokens = tuple(data.draw(st.lists(st.integers(0, 9), max_size=4)))
        nodes[f"n{i}"] = node(f"n{i}", parent, at, tokens, origin)
        keep = len(whole[parent]) - nodes[parent].num_steps + at
        whole[f"n{i}"] = whole[parent][:keep] + list(tokens)
        sampled[f"n{i}"] = sampled[parent][:keep] + [origin is Origin.SAMPLED] * len(tokens)
    group = Group("g", "t", nodes)
    for leaf in list(nodes)[1:]:
        response = group.response(Trajectory(leaf, 0))
        assert [*response.prompt, *response.tokens] == whole[leaf] == list(path_tokens(nodes, leaf))
        assert response.is_sampled.tolist() == sampled[leaf][2:]
        assert len(response.logp_old) == len(response.versions) == len(response.tokens)
        assert (~response.is_sampled == [math.isnan(x) for x in response.logp_old]).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"origin": Origin.SAMPLED, "logprobs": None}, "exactly for sampled"),
        ({"origin": Origin.OBSERVATION, "logprobs": (-0.1, -0.2)}, "exactly for sampled"),
        ({"origin": Origin.SAMPLED, "logprobs": (-0.1,)}, "1 logprobs for 2 steps"),
        ({"origin": Origin.SAMPLED, "logprobs": (-0.1, -0.2), "entropies": (1.0,)}, "1 entropies for 2"),
        ({"origin": Origin.SAMPLED, "logprobs": (-0.1, -0.2), "kept_masses": ()}, "0 kept_masses for 2"),
        ({"origin": Origin.SAMPLED, "logprobs": (-0.1, -0.2), "top": ((),)}, "1 top for 2"),
    ],
)
def test_a_node_is_whole_or_refused(fields, message):
    """Law: one logprob per sampled step, none elsewhere, and columns of one length."""
    with pytest.raises(LawBroken, match=message):
        Node("x", None, 0, tokens=(1, 2), **fields)


def test_the_root_is_the_first_node():
    """The group's prompt is found without a name."""
    assert Group("g", "t", tree(node("a", "g/root", 2, (3,)))).root is ROOT


@pytest.mark.parametrize(
    ("sampling", "cuts"),
    [
        (Sampling(), False),
        (Sampling(temperature=0.3), False),
        (Sampling(top_p=0.9), True),
        (Sampling(top_k=5), True),
        (Sampling(min_p=0.1), True),
    ],
)
def test_which_sampling_cuts(sampling, cuts):
    """Only a cut of the kept set makes kept masses necessary."""
    assert sampling.cuts is cuts


def test_stop_reasons_are_an_enum():
    """Each reason has its own word; the words are what the record holds."""
    assert len({reason.value for reason in StopReason}) == len(StopReason) == 10
