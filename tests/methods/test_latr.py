"""LATR: branch where the model hesitates, look ahead, prune what rejoins, fill by plain sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from methods_help import run, sampled

import rollwright.testing.fake as fake
from rollwright.errors import ConfigError
from rollwright.methods.grpo import grpo
from rollwright.methods.latr import latr
from rollwright.stages.generate.lookahead_tree import LookaheadTree, edit_distance
from rollwright.testing.fake import FakeEngine, ToyTask
from rollwright.tree import Group

TASK = ToyTask(max_tokens=20, context=64)
TALK = ToyTask(max_tokens=10, context=128, max_turns=3)
BUSY = {"tau_abs": 0.15, "tau_rel": 0.2, "tau_ed": 0.8, "lookahead": 4}


# ---------------------------------------------------------------- reductions


@pytest.mark.parametrize("task", [TASK, TALK])
@pytest.mark.parametrize("lookahead", [1, 3, 50])
def test_thresholds_off_equals_plain_sampling(task: ToyTask, lookahead: int) -> None:
    """Oracle: other implementation. tau_abs=1 gives GRPO's rollouts, token for token, in its order."""
    plain = run(grpo(each=5), task=task)
    tree = run(latr(each=5, tau_abs=1.0, lookahead=lookahead), task=task)
    assert [sampled(*x) for x in tree.trained()] == [sampled(*x) for x in plain.trained()]
    assert [t.advantages for _, t in tree.trained()] == [t.advantages for _, t in plain.trained()]
    assert "pruned" not in "".join(tree.ledger.reasons)


def test_share_zero_is_plain_sampling() -> None:
    """Oracle: other implementation. Without a tree the nodes themselves are GRPO's."""
    assert run(latr(each=5, share=0.0)).batches == run(grpo(each=5)).batches


# ---------------------------------------------------------------- a language with paraphrases

A, B, X, Y, U, V, E = 1, 2, 3, 4, 5, 6, 0


def language(prefix: Sequence[int], num_words: int, version: int = 0) -> np.ndarray:
    """A or B say the same: both go on with X Y X Y ... Then U or V, which go on unlike each other.

    After the two prompt tokens: A|B (0.52, 0.48), X Y X Y, U|V (0.52, 0.48), then U's or V's own four
    tokens and the end.
    """
    said = list(prefix)[2:]
    script: list[dict[int, float]] = [{A: 0.52, B: 0.48}, {X: 1.0}, {Y: 1.0}, {X: 1.0}, {Y: 1.0}]
    script.append({U: 0.52, V: 0.48})
    tail = [X, X, X, X] if len(said) > 5 and said[5] == U else [Y, Y, Y, Y]
    script += [{token: 1.0} for token in [*tail, E]]
    p = np.full(num_words, 1e-9)
    for token, mass in script[len(said)].items():
        p[token] = mass
    return np.log(p)


def run_language(monkeypatch: pytest.MonkeyPatch, each: int, **options: Any) -> Any:
    monkeypatch.setattr(fake, "toy_logits", language)
    method = latr(each=each, tau_abs=0.25, tau_rel=0.15, tau_ed=0.4, lookahead=4, **options)
    return run(method, task=TASK, engine=FakeEngine(num_words=7), num_steps=3)


def test_rejoining_branches_are_pruned_and_diverging_ones_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: closed form. Of four rollouts one began in the tree; at A|B its branch differs in 1 of 4
    tokens (0.25 < 0.4) and is pruned; at U|V it differs in all 4 and is kept. Two are sampled plainly."""
    result = run_language(monkeypatch, each=4)
    assert result.ledger.reasons == {"pruned:similar": 4 * 12}
    for group in (g for batch in result.batches for g in batch.groups):
        forced = [node for node in group.nodes.values() if node.forced]
        assert [node.start for node in forced] == [2, 2 + 5]
        pruned, kept = forced
        leaves = {t.leaf for t in group.trajectories}
        assert pruned.tokens[1:] == (X, Y, X) and pruned.id not in leaves
        first = group.nodes[kept.parent].tokens[kept.at]
        assert {first, kept.tokens[0]} == {U, V}
        assert len(leaves) == 4
        assert sum(len(node.tokens) for node in (pruned,)) == 4


def test_a_lenient_threshold_keeps_what_rejoins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: closed form. Distance 1 of 4 is not below 0.25, so nothing is pruned."""
    monkeypatch.setattr(fake, "toy_logits", language)
    method = latr(each=4, tau_ed=0.25, lookahead=4)
    result = run(method, task=TASK, engine=FakeEngine(num_words=7), num_steps=2)
    assert result.ledger.fates["pruned"] == 0


def short_language(prefix: Sequence[int], num_words: int, version: int = 0) -> np.ndarray:
    """A X Y and the end, or B X Y X and the end."""
    said = list(prefix)[2:]
    p = np.full(num_words, 1e-9)
    if not said:
        p[A], p[B] = 0.52, 0.48
    else:
        script = [X, Y, E] if said[0] == A else [X, Y, X, E]
        p[script[len(said) - 1]] = 1.0
    return np.log(p)


def test_a_branch_is_kept_if_a_turn_ends_within_its_lookahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: closed form. A X Y end and B X Y X differ in 2 of 4 tokens, below 0.8, but one has ended:
    whichever was sampled first, the other is kept, and a lookahead of 3 (1 of 3 differs) prunes it."""
    monkeypatch.setattr(fake, "toy_logits", short_language)
    for lookahead, is_pruned in ((4, False), (3, True)):
        method = latr(each=2, tau_ed=0.8, lookahead=lookahead)
        result = run(method, task=TASK, engine=FakeEngine(num_words=7), num_steps=3)
        assert (result.ledger.fates["pruned"] > 0) is is_pruned
        firsts = {group.nodes[group.path(t.leaf)[1][0].id].tokens[0] for group, t in result.trained()}
        assert firsts == {A, B}


def tree_of_answers(prefix: Sequence[int], num_words: int, version: int = 0) -> np.ndarray:
    """A paraphrase, then three choices (0.55, 0.45) with three tokens of their own each: eight answers."""
    said = list(prefix)[2:]
    place, inside = divmod(len(said) - 1, 4)
    p = np.full(num_words, 1e-9)
    if not said:
        p[A], p[B] = 0.55, 0.45
    elif place >= 3:
        p[E] = 1.0
    elif inside == 0:
        p[U], p[V] = 0.55, 0.45
    else:
        p[X if said[1 + 4 * place] == U else Y] = 1.0
    return np.log(p)


def test_equal_width_gives_more_distinct_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: enumeration. Distinct answers among eight rollouts, the paraphrase left out, over 60 groups.

    Eight independent rollouts give on average Σ over the answers of 1 − (1 − p)⁸.
    """
    monkeypatch.setattr(fake, "toy_logits", tree_of_answers)
    found = {}
    for method in (grpo(each=8), latr(each=8, lookahead=4, tau_ed=0.4)):
        result = run(method, task=TASK, engine=FakeEngine(num_words=7), num_steps=15, publish=False)
        groups = [g for batch in result.batches for g in batch.groups]
        found[method.name] = np.mean([len({answer(g, t.leaf) for t in g.trajectories}) for g in groups])
    print("distinct answers among eight rollouts:", found)
    p = [np.prod([0.55 if c else 0.45 for c in choice]) for choice in np.ndindex(2, 2, 2)]
    expected = sum(1 - (1 - q) ** 8 for q in p)
    assert found["grpo"] == pytest.approx(expected, abs=0.35)
    assert found["latr"] > expected + 1, found


def answer(group: Group, leaf: str) -> tuple[int, ...]:
    tokens = [token for node, num in group.path(leaf)[1:] for token in node.tokens[:num]]
    return tuple(tokens[1:])


def test_it_bites() -> None:
    """Oracle: metamorphic. Other rollouts than GRPO's, some of them with a prefix in common."""
    child, parent = run(latr(each=6, **BUSY), task=TASK), run(grpo(each=6), task=TASK)
    assert [sampled(*x) for x in child.trained()] != [sampled(*x) for x in parent.trained()]
    assert child.ledger.reasons["pruned:similar"] > 0
    assert latr().engine_needs == {"top", "fork"}
    assert "biased" in latr().declares


# ---------------------------------------------------------------- parts


def test_edit_distance_is_levenshteins() -> None:
    """Oracle: slow reference. The recursion by definition, on random sequences of three letters."""

    @cache
    def slow(a: tuple[int, ...], b: tuple[int, ...]) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(slow(a[1:], b) + 1, slow(a, b[1:]) + 1, slow(a[1:], b[1:]) + (a[0] != b[0]))

    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = (tuple(rng.integers(0, 3, rng.integers(0, 7)).tolist()) for _ in "ab")
        assert edit_distance(a, b) == slow(a, b)


def test_bad_numbers_are_refused() -> None:
    """Oracle: closed form."""
    makers: list[Callable[[], object]] = [
        lambda: LookaheadTree(tau_abs=1.5),
        lambda: LookaheadTree(tau_ed=-0.1),
        lambda: latr(share=2.0),
        lambda: latr(lookahead=0),
    ]
    for make in makers:
        with pytest.raises(ConfigError, match="LookaheadTree"):
            make()
