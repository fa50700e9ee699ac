"""Wordle: find which of the listed words is meant, by guesses that are answered letter by letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.tasks._content import Ids, draw, parse_id
from rollwright.tasks._recipe import Recipe
from rollwright.tasks._words import WORDS
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

_LENGTH = 4
NO_GUESS = ""  # stands among the guesses for a turn that was none


@dataclass(frozen=True, slots=True)
class State:
    """The listed words, the one that is meant, and the guesses so far."""

    words: tuple[str, ...]
    secret: str
    guesses: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        return self.secret in self.guesses


def feedback(guess: str, secret: str) -> str:
    """Return a mark for each letter of the guess: ``+`` in place, ``~`` elsewhere, ``-`` not there.

    A letter is marked as often as the secret holds it: first where it is in place, then from the left.

    Example:
        >>> feedback("leaf", "feel"), feedback("ease", "bead")
        ('~+-~', '~~--')
    """
    left = Counter(s for g, s in zip(guess, secret, strict=True) if g != s)
    marks = []
    for g, s in zip(guess, secret, strict=True):
        if g == s:
            marks.append("+")
        elif left[g]:
            left[g] -= 1
            marks.append("~")
        else:
            marks.append("-")
    return "".join(marks)


def is_guess(text: str) -> bool:
    """Whether a turn's text is a guess: four small letters, listed or not."""
    return len(text) == _LENGTH and text.isascii() and text.isalpha() and text.islower()


def consistent(state: State) -> list[str]:
    """Return the listed words that every answer so far leaves open."""
    tries = [guess for guess in state.guesses if guess != NO_GUESS]
    answers = [feedback(guess, state.secret) for guess in tries]
    return [
        word
        for word in state.words
        if all(feedback(guess, word) == said for guess, said in zip(tries, answers, strict=True))
    ]


@dataclass(frozen=True, slots=True)
class Wordle:
    """See `wordle`."""

    num_words: int
    num_guesses: int
    num_train: int
    num_test: int
    name: str = field(default="wordle", init=False)
    grader_version: str = field(default="1", init=False)
    max_tokens: int = field(default=8, init=False)
    stop_strings: tuple[str, ...] = field(default=("\n",), init=False)
    recipe: Recipe = field(
        default=Recipe(noise=0.6, steps=1200, clean_share=0.5, learning_rate=3e-3), init=False
    )

    def __post_init__(self) -> None:
        if not 2 <= self.num_words <= 40 or self.num_guesses < 1:
            raise ConfigError(
                f"num_words={self.num_words} must lie in 2..40, num_guesses={self.num_guesses} be 1 or more"
            )

    @property
    def max_turns(self) -> int:
        return self.num_guesses

    @property
    def context(self) -> int:
        return (_LENGTH + 1) * self.num_words + self.max_turns * (self.max_tokens + _LENGTH + 1) + 4

    def num_instances(self, split: str) -> int:
        return {"train": self.num_train, "test": self.num_test}.get(split, 0)

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def draw_game(self, rng: np.random.Generator) -> tuple[tuple[str, ...], str]:
        """Draw the list, half of it words that are like one another, then the secret among all alike."""
        letters_WL = _letters()
        mixed_W = rng.permutation(len(WORDS))
        num_shared_W = (letters_WL[mixed_W] == letters_WL[rng.integers(len(WORDS))]).sum(1)
        alike = mixed_W[np.argsort(-num_shared_W, kind="stable")[: self.num_words // 2]]
        others = mixed_W[~np.isin(mixed_W, alike)][: self.num_words - len(alike)]
        words = tuple(WORDS[int(k)] for k in rng.permutation([*alike, *others]))
        return words, words[int(rng.integers(self.num_words))]

    def game(self, task_id: TaskId) -> tuple[tuple[str, ...], str]:
        """Return the listed words of an id and the one that is meant.

        The list alone decides the split, and says nothing about which of its words is meant.
        """
        return _instance(self, task_id)

    def prompt(self, task_id: TaskId) -> str:
        return " ".join(self.game(task_id)[0]) + "\n"

    def reset(self, task_id: TaskId) -> State:
        return State(*self.game(task_id))

    def is_over(self, state: State) -> bool:
        return state.is_found or len(state.guesses) >= self.num_guesses

    def step(self, state: State, text: str) -> tuple[State, Observation]:
        """Answer a guess with a mark for each letter (see `feedback`); the last guess ends the game.

        A turn that is not a word of four small letters uses up a guess, and is answered by ``?``.
        """
        if self.is_over(state):
            raise EnvironmentFault("wordle: the game is over; it takes no further guess")
        guess = text.strip()
        if not is_guess(guess):
            after = replace(state, guesses=(*state.guesses, NO_GUESS))
            return after, Observation("?\n", terminated=self.is_over(after))
        after = replace(state, guesses=(*state.guesses, guess))
        return after, Observation(feedback(guess, state.secret) + "\n", terminated=self.is_over(after))

    def grade(self, task_id: TaskId, state: State, turns: Sequence[str], truncated: bool) -> Verdict:
        """Right if the word was found, wrong if the guesses ran out, truncated if turns or tokens did."""
        tries = [guess for guess in state.guesses if guess != NO_GUESS]
        if state.is_found:
            return Verdict(1.0, "right", state.secret, f"with guess {len(state.guesses)}")
        if not tries:
            return Verdict(0.0, "no_answer", None, "no turn was a word of four small letters")
        if self.is_over(state):
            return Verdict(0.0, "wrong", tries[-1], f"the word is {state.secret}")
        return Verdict(0.0, "truncated", tries[-1], "cut before the last guess")

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Guess a listed word that the answers leave open; with probability ``noise`` any listed word."""
        state, episode = self.reset(task_id), []
        while not self.is_over(state):
            pool = list(state.words) if rng.random() < noise else consistent(state)
            turn = pool[int(rng.integers(len(pool)))] + "\n"
            state, seen = self.step(state, turn)
            episode += [turn, seen.text]
        return episode


@lru_cache(maxsize=1)
def _letters() -> np.ndarray:
    """Return the letters of all words, [W, 4]."""
    return np.array([list(word) for word in WORDS])


@lru_cache(maxsize=4096)
def _instance(task: Wordle, task_id: TaskId) -> tuple[tuple[str, ...], str]:
    split, _ = parse_id(task.name, task_id, task.num_instances)
    return draw(task_id, split, task.draw_game, lambda game: " ".join(game[0]))


def wordle(
    *,
    num_words: int = 12,
    num_guesses: int = 3,
    num_train: int = 20000,
    num_test: int = 1000,
) -> Wordle:
    """Find which of the listed words of four letters is meant; a mark answers each letter of a guess.

    Args:
        num_words: how many words are listed.
        num_guesses: guesses in a game, and its turns.
        num_train, num_test: how many instances each split offers.
    """
    return Wordle(num_words=num_words, num_guesses=num_guesses, num_train=num_train, num_test=num_test)
