"""Whole runs of the built-in dialogues through `rollwright train`, played again turn by turn."""

from __future__ import annotations

import pytest

from rollwright.cli.main import main
from rollwright.lab.summary import summarise
from rollwright.store.parquet import read_groups
from rollwright.tasks.registry import load_task
from rollwright.tasks.tokenizer import EOS_ID, character_tokenizer
from rollwright.tree import Origin

TOKENIZER = character_tokenizer()


def text_of(tokens) -> str:
    return TOKENIZER.decode([token for token in tokens if token != EOS_ID])


def turns_of(group, leaf):
    """Return (turn's text, observation's text) in order, the sampled nodes of a turn joined."""
    found = []
    for node, num in group.path(leaf)[1:]:
        text = text_of(node.tokens[:num])
        if node.origin is Origin.SAMPLED:
            if not found or found[-1][1] is not None:
                found.append([text, None])
            else:
                found[-1][0] += text
        else:
            found[-1][1] = text
    return found


@pytest.mark.parametrize("name", ["wordle", "keys", "search", "shop"])
def test_a_run_played_again_gives_the_same_observations_and_grades(name, tmp_path) -> None:
    """Oracle: the task, step by step; kills text encoded differently, and observations that are trained."""
    words = ["train", name, "--model", "calc", "--num-steps", "2", "--num-tasks", "2", "--threads", "1"]
    words += ["--method-options.each", "3", "--seed", "5", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    books = summarise(tmp_path / "run").books
    assert sum(books.fates.values()) == books.spent["sampled_tokens"] > 0
    task, num_answers = load_task(name), 0
    for _, group in read_groups(tmp_path / "run"):
        assert text_of(group.root.tokens) == task.prompt(group.task)
        for trajectory in group.trajectories:
            state, turns = task.reset(group.task), turns_of(group, trajectory.leaf)
            for turn, observed in turns:
                if observed is not None:
                    state, seen = task.step(state, turn)
                    assert seen.text == observed
                    num_answers += 1
            verdict = task.grade(group.task, state, [turn for turn, _ in turns], trajectory.truncated)
            assert (verdict.score, verdict.status) == (trajectory.reward, trajectory.status)
            response = group.response(trajectory)
            unsampled = [
                token for token, flag in zip(response.tokens, response.is_sampled, strict=True) if not flag
            ]
            assert text_of(unsampled) == "".join(observed or "" for _, observed in turns)
    assert num_answers >= 12
