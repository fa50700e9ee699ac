"""TextArena's games, against TextArena itself."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.envs import env_task
from rollwright.envs.adapters.textarena import TextArenaEnv
from rollwright.envs.check import check_env
from rollwright.errors import EnvironmentFault, UnknownName
from rollwright.tasks.registry import load_task

pytestmark = pytest.mark.slow
textarena = pytest.importorskip("textarena")
GUESSES = st.lists(st.integers(1, 20).map(lambda n: f"[{n}]") | st.just("what?"), max_size=11)


def alone(seed, turns):
    """The oracle: the game itself, played once; its texts but the player's own, and how it ended."""
    game = textarena.make("GuessTheNumber-v0-raw")
    game.reset(num_players=1, seed=seed)
    texts, done = [[text for _, text, _ in game.get_observation()[1]]], False
    for turn in turns:
        done, _ = game.step(turn)
        texts.append([text for who, text, _ in game.state.observations[0] if who == -1])
        game.state.observations[0] = []
        if done:
            break
    return texts, done, game.state.rewards, game.state.game_info[0].get("reason")


@given(turns=GUESSES, others=GUESSES, at=st.integers(0, 10), number=st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_a_branch_is_a_fresh_replay(turns, others, at, number):
    """Oracle: the game alone. Broken by: games that share the process's dice."""
    task = load_task("textarena:GuessTheNumber-v0")
    task_id = f"{task.name}/train/{number}"
    random.seed(99)
    before = random.getstate()

    def play(state, given):
        states, seen = [state], []
        for turn in given:
            if states[-1].is_over:
                break
            state, observation = task.step(states[-1], turn)
            states.append(state)
            seen.append(observation)
        return states, seen

    def right(given):
        texts, done, rewards, reason = alone(2 * number, given)
        random.setstate(before)
        lines = ["\n".join(f"[GAME] {text}" for text in part) + "\n" for part in texts]
        return lines[0], lines[1:], done, rewards, reason

    states, seen = play(task.reset(task_id), turns)
    prompt, texts, done, rewards, reason = right(turns)
    assert task.prompt(task_id) == prompt
    assert [s.text for s in seen[: len(seen) - done]] == texts[: len(texts) - done]
    if done:
        last = seen[-1]
        assert last.text.startswith(texts[-1].strip()) and last.text.endswith(f"[GAME] {reason}\n")
        assert last.reward == rewards[0] and last.truncated == ("turn limit" in reason)
        assert last.terminated != last.truncated
    at = min(at, len(states) - 1)
    _, branch = play(states[at], others)
    _, whole = play(task.reset(task_id), turns[:at] + others)
    assert seen[:at] + branch == whole
    assert random.getstate() == before, "the process's own dice are left alone"


def test_a_turn_limit_is_truncated():
    """Oracle: the rules: ten guesses, of which the game counts one late.."""
    task = load_task("textarena:GuessTheNumber-v0")
    task_id = f"{task.name}/train/1"
    game = textarena.make("GuessTheNumber-v0-raw")
    game.reset(num_players=1, seed=2)
    number = game.state.game_state["game_number"]
    wrong = [f"[{n}]" for n in range(1, 21) if n != number]
    for turns, flags in ((wrong[:11], (False, True)), ([*wrong[:3], f"[{number}]"], (True, False))):
        state, seen = task.reset(task_id), None
        for turn in turns:
            assert not state.is_over
            state, seen = task.step(state, turn)
        assert (seen.terminated, seen.truncated) == flags and (seen.reward == 1) is flags[0]


def test_two_players():
    """Oracle: by hand: O takes 0, 1, 2, X the last free cells. Broken by: own moves shown again."""
    task = env_task(lambda: TextArenaEnv("TicTacToe-v0", last_free), "tictactoe")
    state, texts = task.reset("tictactoe/train/0"), []
    for turn in ("[0]", "[1]", "[2]"):
        state, seen = task.step(state, turn)
        texts.append(seen.text)
    assert "[Player 1] [8]" in texts[0] and "[Player 1] [7]" in texts[1]
    assert not any("[Player 0]" in text for text in texts)
    assert (seen.terminated, seen.truncated, seen.reward) == (True, False, 1.0)


def last_free(text):
    return re.findall(r"'(\[\d\])'", text)[-1]


def test_names_and_players():
    """Oracle: the error tree."""
    with pytest.raises(UnknownName, match="did you mean 'GuessTheNumber-v0'"):
        load_task("textarena:GuesTheNumber-v0")
    with pytest.raises(EnvironmentFault, match="give an opponent"):
        env = TextArenaEnv("TicTacToe-v0", num_players=2)
        env.reset(0)
        env.step("[4]")


@pytest.mark.parametrize("game", ["GuessTheNumber-v0", "TowerOfHanoi-v0", "Minesweeper-v0-small"])
def test_check_env(game):
    """Oracle: the checks, each of which is tested by itself."""
    report = check_env(lambda: load_task(f"textarena:{game}"), num=2, max_turns=4)
    assert report.is_right, report.findings
