"""How rollouts look: too long, looping, cut, equal to each other, all behind one branch."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from rollwright.diagnose.evidence import Evidence, Tree
from rollwright.diagnose.finding import Finding, cannot_tell
from rollwright.diagnose.thresholds import MIN_GROUPS, MIN_LEAVES, MIN_ROLLOUTS, MIN_STEPS, limit
from rollwright.diagnose.windows import Window, judge_share

Path = tuple[tuple[str, int], ...]  # nodes from the root, with the steps taken of each
_MAX_PERIOD = 32
_MAX_LOOKED_AT = 2000  # rollouts of the sample that are searched for loops


def length_inflation(evidence: Evidence) -> Finding:
    """Rollouts get longer and the reward does not rise with them."""
    rows = evidence.rows(
        'SELECT min(step), max(step), avg(num_sampled), avg(reward) FROM fresh GROUP BY "window" ORDER BY 1'
    )
    if evidence.num_steps < MIN_STEPS or rows[0][3] is None or rows[-1][3] is None:
        return cannot_tell(f"{evidence.num_steps} steps with scores are too few (at least {MIN_STEPS})")
    low, high = evidence.one("SELECT min(reward), max(reward) FROM fresh")
    start, end = float(rows[0][2]), float(rows[-1][2])
    ratio = end / start if start else 1.0
    gain = (rows[-1][3] - rows[0][3]) / (high - low) if high > low else 0.0
    text = (
        f"mean length went from {start:.1f} to {end:.1f} sampled tokens ({ratio:.2f} times), the mean reward "
        f"from {rows[0][3]:.3g} to {rows[-1][3]:.3g}"
    )
    numbers = {"start": start, "end": end, "ratio": ratio, "gain": float(gain)}
    if ratio < limit("length_inflation.ratio") or gain >= limit("length_inflation.gain"):
        return Finding("clear", text, numbers=numbers)
    names = evidence.rows(
        f"""SELECT leaf FROM fresh WHERE step >= {rows[-1][0]} AND reward < {high if high > low else "1e300"}
            ORDER BY num_sampled DESC, leaf LIMIT 3"""
    )
    steps = (int(rows[0][0]), int(rows[-1][1]))
    return Finding("found", text, "likely", numbers, steps, tuple(name for (name,) in names))


def truncation(evidence: Evidence) -> Finding:
    """Many rollouts are cut before they end, which makes their reward say little."""
    source = 'SELECT step, "window", truncated AS hit, leaf AS name FROM fresh'
    found = judge_share(
        evidence.windows(source), limit("truncation.share"), MIN_ROLLOUTS, "rollouts", "were cut"
    )
    if found.status != "found":
        return found
    cut, whole, trained = evidence.one(
        """SELECT avg(reward) FILTER (truncated), avg(reward) FILTER (NOT truncated),
                  avg((fate = 'trained')::INT) FILTER (truncated) FROM fresh"""
    )
    words = [f"{100 * trained:.0f}% of them were trained"]
    if cut is not None and whole is not None:
        words.append(f"their mean reward is {cut:.3g}, that of the others {whole:.3g}")
        found.numbers.update(reward_cut=float(cut), reward_whole=float(whole))
    text = f"{found.evidence}; {', '.join(words)}"
    return Finding("found", text, found.sure, found.numbers, found.steps, found.examples)


def loops(tokens: NDArray[np.int32]) -> bool:
    """Return whether a stretch of 1 to 32 tokens stands several times in a row somewhere.

    A stretch of p tokens stands k times in a row where (k − 1)·p tokens in a row equal the one p before.
    """
    copies, least = int(limit("repetition.copies")), int(limit("repetition.tokens"))
    for period in range(1, _MAX_PERIOD + 1):
        need = max(copies * period, least) - period
        if len(tokens) < need + period:
            break
        is_new = np.flatnonzero(tokens[period:] != tokens[:-period])
        edges = np.concatenate([[-1], is_new, [len(tokens) - period]])
        if int(np.diff(edges).max()) - 1 >= need:
            return True
    return False


def repetition(evidence: Evidence) -> Finding:
    """Rollouts that say one thing again and again (of a sample)."""
    leaves = [(tree.step, leaf) for tree in evidence.sample for leaf in tree.leaves]
    every = max(1, -(-len(leaves) // _MAX_LOOKED_AT))
    windows = []
    for step, leaf in leaves[::every]:
        hit = loops(leaf.sampled)
        windows.append(Window(step, step, int(hit), 1, (leaf.name,) if hit else ()))
    return judge_share(windows, limit("repetition.share"), MIN_ROLLOUTS, "rollouts of a sample", "loop")


def duplicates(evidence: Evidence) -> Finding:
    """Rollouts that equal an earlier one of their group, token for token (of a sample)."""
    windows = []
    for tree in evidence.sample:
        seen: set[bytes] = set()
        equal = []
        for leaf in tree.leaves:
            key = leaf.response.tobytes()
            if key in seen:
                equal.append(leaf.name)
            seen.add(key)
        windows.append(Window(tree.step, tree.step, len(equal), len(tree.leaves), tuple(equal[:1])))
    what = "equal an earlier one of their group"
    return judge_share(windows, limit("duplicates.share"), MIN_ROLLOUTS, "rollouts of a sample", what)


def first_fork(tree: Tree) -> list[int] | None:
    """Return how many leaves lie behind each branch of a tree's first fork; None where nothing is shared.

    The first fork is the first step at which not all rollouts have the same node; it may lie inside a node,
    or at the prompt where a group has several roots.
    """
    paths = [leaf.path[1:] for leaf in tree.leaves]
    if len({path[0][0] if path else "" for path in paths}) == len(paths):
        return None  # each has its own first node: independent rollouts
    # Shared lengths are an ultrametric: the least of all pairs is the least of the pairs with the first.
    first = min(_num_shared(paths[0], path) for path in paths[1:])
    return list(Counter(_owner(path, first) for path in paths).values())


def _num_shared(one: Path, other: Path) -> int:
    """Return how many steps two paths have in common."""
    shared = 0
    for (node, num), (other_node, other_num) in zip(one, other, strict=False):
        if node != other_node:
            break
        shared += min(num, other_num)
        if num != other_num:
            break
    return shared


def _owner(path: Path, step: int) -> str:
    """Return the node that holds a step of a path, counted after the prompt; "" if it ends before."""
    for node, num in path:
        if step < num:
            return node
        step -= num
    return ""


def tree_collapse(evidence: Evidence) -> Finding:
    """Trees whose leaves nearly all lie behind one branch of their first fork (of a sample)."""
    windows = []
    for tree in evidence.sample:
        branches = first_fork(tree) if len(tree.leaves) >= MIN_LEAVES else None
        if branches is not None:
            hit = max(branches) / sum(branches) >= limit("tree_collapse.leaves")
            windows.append(Window(tree.step, tree.step, int(hit), 1, (tree.group,) if hit else ()))
    if not windows:
        return cannot_tell(f"no group of {MIN_LEAVES} or more rollouts branches")
    what = "have nearly all leaves behind one branch"
    return judge_share(windows, limit("tree_collapse.share"), MIN_GROUPS, "branched groups of a sample", what)
