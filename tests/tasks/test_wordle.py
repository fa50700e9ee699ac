"""Wordle: its marks by hand and by another definition, its games by enumeration."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.tasks._words import WORDS
from rollwright.tasks.wordle import State, consistent, feedback, wordle

TASK = wordle()

BY_HAND = [
    ("leaf", "feel", "~+-~"),
    ("ease", "bead", "~~--"),  # one e in the secret: the second e of the guess is not there
    ("eels", "else", "+~~~"),  # the first e is in place; the second stands for the e at the end
    ("noon", "onto", "~~~-"),  # two o and one n: the second n is one too many
    ("need", "edge", "-~~~"),
    ("tttt", "test", "+--+"),  # in place before elsewhere, wherever it stands
    ("seed", "deed", "-+++"),
    ("llll", "able", "--+-"),
    ("aabb", "bbaa", "~~~~"),
    ("abab", "baaa", "~~+-"),
]


def reference(guess: str, secret: str) -> str:
    """The marks letter by letter: of each letter's places, as many are marked as the secret has it."""
    marks = ["+" if g == s else "-" for g, s in zip(guess, secret, strict=True)]
    for letter in set(guess):
        num = sum(s == letter and g != s for g, s in zip(guess, secret, strict=True))
        for place in [k for k, g in enumerate(guess) if g == letter and marks[k] == "-"][:num]:
            marks[place] = "~"
    return "".join(marks)


@pytest.mark.parametrize("guess, secret, marks", BY_HAND)
def test_marks_by_hand(guess, secret, marks):
    """Oracle: hand; kills marking a letter more often than the secret holds it."""
    assert feedback(guess, secret) == marks


def test_marks_of_all_short_words():
    """Oracle: another definition, over all 6,561 pairs of words of a, b and c."""
    words = ["".join(letters) for letters in itertools.product("abc", repeat=4)]
    for guess, secret in itertools.product(words, words):
        marks = feedback(guess, secret)
        assert marks == reference(guess, secret)
        shared = (Counter(guess) & Counter(secret)).total()
        assert marks.count("+") + marks.count("~") == shared


def test_the_words():
    """Oracle: their form; kills a word given twice, which would be right twice as often."""
    assert len(set(WORDS)) == len(WORDS) > 600
    assert all(len(word) == 4 and word.isascii() and word.islower() and word.isalpha() for word in WORDS)


def test_games_list_the_secret_once_and_do_not_give_it_away():
    """Oracle: closed form: the place of the secret is uniform (χ² below its 99.9% point)."""
    counts = np.zeros(12)
    for task_id in TASK.ids("train")[:300]:
        words, secret = TASK.game(task_id)
        assert len(set(words)) == 12 and words.count(secret) == 1
        counts[words.index(secret)] += 1
        assert TASK.prompt(task_id) == " ".join(words) + "\n"
    assert ((counts - 25) ** 2 / 25).sum() < 31.3


def test_the_secret_is_alike_with_the_others_as_often_as_any_word():
    """Oracle: metamorphic: another word of the list in its place; kills a secret that is the centre."""

    def closeness(words, word):
        return sum(a == b for other in words for a, b in zip(word, other, strict=True))

    ranks = []
    for task_id in TASK.ids("train")[:300]:
        words, secret = TASK.game(task_id)
        ranks.append(np.mean([closeness(words, secret) > closeness(words, word) for word in words]))
    others = [
        np.mean([closeness(words, words[0]) > closeness(words, word) for word in words])
        for words, _ in map(TASK.game, TASK.ids("train")[:300])
    ]
    assert abs(np.mean(ranks) - np.mean(others)) < 4 * np.std(ranks) * (2 / 300) ** 0.5


def test_what_the_answers_leave_open_is_every_possible_secret():
    """Oracle: enumeration: play the same guesses against each listed word as the secret."""
    rng = np.random.default_rng(0)
    for task_id in TASK.ids("test")[:60]:
        words, secret = TASK.game(task_id)
        guesses = [str(word) for word in rng.choice(WORDS, 2)]
        heard = {}
        for word in words:
            state, texts = State(words, word), []
            for guess in guesses:
                state, seen = TASK.step(state, guess + "\n")
                texts.append(seen.text)
            heard[word] = (texts, state)
        same = [word for word in words if heard[word][0] == heard[secret][0]]
        assert consistent(heard[secret][1]) == same


def test_how_a_game_ends():
    """Oracle: the documented table; kills a won game that goes on, and a lost one called truncated."""
    words, secret = TASK.game("wordle/train/3")
    state, wrong = TASK.reset("wordle/train/3"), next(word for word in words if word != secret)
    won, seen = TASK.step(state, secret + "\n")
    assert (seen.text, seen.terminated, seen.truncated) == ("++++\n", True, False)
    assert TASK.grade("wordle/train/3", won, [secret], False).score == 1.0
    with pytest.raises(EnvironmentFault, match="over"):
        TASK.step(won, wrong)
    assert TASK.grade("wordle/train/3", state, [], True).status == "no_answer"
    for number, (turn, said) in enumerate([("LAKE\n", "?"), ("lakes\n", "?"), (wrong, None)]):
        state, seen = TASK.step(state, turn)
        assert seen.text == (said or feedback(wrong, secret)) + "\n"
        assert seen.terminated == (number == 2)
        expected = "no_answer" if said else "wrong"
        verdict = TASK.grade("wordle/train/3", state, [], False)
        assert (verdict.score, verdict.status) == (0.0, expected)
    one, _ = TASK.step(TASK.reset("wordle/train/3"), wrong)
    assert TASK.grade("wordle/train/3", one, [wrong], True).status == "truncated"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400), st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=3))
def test_a_branch_equals_a_replay(number, turns):
    """Oracle: metamorphic: every state taken up again gives what a replay from the start gives."""
    task_id = f"wordle/train/{number}"
    states, texts = [TASK.reset(task_id)], []
    for turn in turns:
        if TASK.is_over(states[-1]):
            break
        state, seen = TASK.step(states[-1], turn)
        states.append(state)
        texts.append(seen)
    for place in reversed(range(len(texts))):  # later turns must not have changed what earlier ones saw
        assert TASK.step(states[place], turns[place]) == (states[place + 1], texts[place])
    assert 0 <= TASK.grade(task_id, states[-1], turns, False).score <= 1


def test_demonstrations_and_chance():
    """Oracle: closed form: guessing at random finds a word of 12 in 3 tries with 1 - (11/12)³ = 23%."""
    rng = np.random.default_rng(0)
    share = {}
    for noise in (0.0, 1.0):
        scores = []
        for task_id in TASK.ids("test")[:250]:
            episode = TASK.demonstrate(task_id, rng, noise)
            state = TASK.reset(task_id)
            for turn, said in zip(episode[::2], episode[1::2], strict=True):
                state, seen = TASK.step(state, turn)
                assert seen.text == said
            assert seen.terminated
            scores.append(TASK.grade(task_id, state, episode[::2], False).score)
        share[noise] = np.mean(scores)
    chance = 1 - (11 / 12) ** 3
    assert abs(share[1.0] - chance) < 4 * (chance * (1 - chance) / 250) ** 0.5
    assert share[0.0] > 0.8


def test_bad_options_are_refused():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match="num_words=1 "):
        wordle(num_words=1)
