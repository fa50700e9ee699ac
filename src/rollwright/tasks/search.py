"""Search: answer questions of several hops by searching a small corpus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.grade.text import normalised
from rollwright.rng import generator
from rollwright.tasks._bm25 import Index
from rollwright.tasks._content import Ids, parse_id, split_of
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

# kind of thing -> (what it has, and of which kind that is). No relation has the name of a kind, so that a
# name and a relation together are in one document only.
RELATIONS = {
    "person": (("birthplace", "city"), ("employer", "firm")),
    "firm": (("head", "person"), ("seat", "city")),
    "city": (("country", "land"), ("mayor", "person")),
    "land": (("capital", "city"),),
}
_SHARES = {"person": 4, "firm": 2, "city": 2, "land": 1}  # of nine things
_SLIPS = ("bare name", "wrong thing", "too early")
_TURN = re.compile(r"\s*([?=])\s*(\S.*?)\s*", re.DOTALL)
_EXPLAINED = (
    'Write "? WORDS" to search a corpus (one line comes back for each document found), or "= NAME" to answer'
    " and end. One line a turn.\n"
)


@dataclass(frozen=True, slots=True)
class Question:
    """A chain of relations from a thing: ``("employer", "head")`` from Mira is her employer's head."""

    start: str
    chain: tuple[str, ...]
    path: tuple[str, ...]  # the things on the way; the last one is the answer

    @property
    def text(self) -> str:
        return f"{' of the '.join(reversed(self.chain))} of {self.start}?"

    @property
    def answer(self) -> str:
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class State:
    """The question, and the answer once it is given. Searching changes nothing."""

    question: Question
    answer: str | None = None


@dataclass(frozen=True)
class Corpus:
    """Things, their facts, and a document for each."""

    kinds: dict[str, str]
    facts: dict[str, dict[str, str]]
    documents: tuple[str, ...]
    index: Index


@lru_cache(maxsize=8)
def corpus(num_things: int, seed: int) -> Corpus:
    """Make the corpus of a seed: things with names of their own, and what each has."""
    rng = generator(seed, "search", num_things)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    names = [(one + two).capitalize() for one in syllables for two in syllables]
    pool = iter([names[int(k)] for k in rng.permutation(len(names))])
    by_kind = {kind: [next(pool) for _ in range(num_things * share // 9)] for kind, share in _SHARES.items()}

    def any_of(kind: str) -> str:
        return by_kind[kind][int(rng.integers(len(by_kind[kind])))]

    facts: dict[str, dict[str, str]] = {}
    for kind, things in by_kind.items():
        for number, name in enumerate(things):
            facts[name] = {relation: any_of(to) for relation, to in RELATIONS[kind]}
            if kind == "city":  # each land has a city, which is its capital
                facts[name]["country"] = by_kind["land"][number % len(by_kind["land"])]
            if kind == "land":
                facts[name]["capital"] = by_kind["city"][number]
    kinds = {name: kind for kind, things in by_kind.items() for name in things}
    order = [list(facts)[int(k)] for k in rng.permutation(len(facts))]
    documents = tuple(_document(name, kinds[name], facts[name]) for name in order)
    return Corpus(kinds, facts, documents, Index(documents))


def _document(name: str, kind: str, facts: dict[str, str]) -> str:
    return f"{name} is a {kind} with {' and '.join(f'{key} {value}' for key, value in facts.items())}."


def questions_from(world: Corpus, start: str, min_hops: int, max_hops: int) -> list[Question]:
    """Return all questions about a thing. One whose way comes to a thing twice would have a short cut."""
    found, open_ways = [], [Question(start, (), ())]
    while open_ways:
        way = open_ways.pop()
        for relation, to in world.facts[way.path[-1] if way.path else start].items():
            if to != start and to not in way.path:
                longer = Question(start, (*way.chain, relation), (*way.path, to))
                found += [longer] if len(longer.chain) >= min_hops else []
                open_ways += [longer] if len(longer.chain) < max_hops else []
    return found


@lru_cache(maxsize=8)
def _questions(num_things: int, seed: int, min_hops: int, max_hops: int) -> dict[str, tuple[Question, ...]]:
    """Return each split's questions in a fixed, mixed order; all about one thing are in the same split."""
    world = corpus(num_things, seed)
    splits: dict[str, list[Question]] = {"train": [], "test": []}
    for start in world.facts:
        splits[split_of(f"{seed}/{start}")] += questions_from(world, start, min_hops, max_hops)
    order = {split: generator(seed, "search", split).permutation(len(all)) for split, all in splits.items()}
    return {split: tuple(all[int(k)] for k in order[split]) for split, all in splits.items()}


@dataclass(frozen=True, slots=True)
class Search:
    """See `search`."""

    min_hops: int
    max_hops: int
    num_things: int
    num_results: int
    seed: int
    explain: bool
    name: str = field(default="search", init=False)
    grader_version: str = field(default="1", init=False)
    max_tokens: int = field(default=32, init=False)
    stop_strings: tuple[str, ...] = field(default=("\n",), init=False)
    recipe: Recipe = field(default=Recipe(noise=0.3, steps=2000, learning_rate=3e-3), init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.min_hops <= self.max_hops <= 5:
            raise ConfigError(f"hops {self.min_hops}..{self.max_hops} must lie in 1..5")
        if not 18 <= self.num_things <= 4000 or not 1 <= self.num_results <= 10:
            raise ConfigError(
                f"num_things={self.num_things} must lie in 18..4000, num_results={self.num_results} in 1..10"
            )

    @property
    def max_turns(self) -> int:
        return self.max_hops + 3

    @property
    def context(self) -> int:
        longest = max(map(len, self.corpus.documents)) + 1
        asked = 24 * self.max_hops + (len(_EXPLAINED) if self.explain else 0)
        return asked + self.max_turns * (self.max_tokens + longest * self.num_results)

    @property
    def corpus(self) -> Corpus:
        """The documents, the facts that they were made from, and the index."""
        return corpus(self.num_things, self.seed)

    def _all(self) -> dict[str, tuple[Question, ...]]:
        return _questions(self.num_things, self.seed, self.min_hops, self.max_hops)

    def num_instances(self, split: str) -> int:
        return len(self._all().get(split, ()))

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def question(self, task_id: TaskId) -> Question:
        """Return the question of an id, with the way to its answer."""
        split, number = parse_id(self.name, task_id, self.num_instances)
        return self._all()[split][number]

    def prompt(self, task_id: TaskId) -> str:
        return (_EXPLAINED if self.explain else "") + self.question(task_id).text + "\n"

    def reset(self, task_id: TaskId) -> State:
        return State(self.question(task_id))

    def step(self, state: State, text: str) -> tuple[State, Observation]:
        """Answer ``? words`` with the best documents, a line each; ``= name`` is the answer and ends it.

        Where nothing is found the observation is ``nothing``; any other turn is answered by ``error``.
        """
        if state.answer is not None:
            raise EnvironmentFault("search: the answer was given; the episode takes no further turn")
        turn = _TURN.fullmatch(text)
        if turn is None:
            return state, Observation("error\n")
        if turn[1] == "=":
            return replace(state, answer=turn[2]), Observation("", terminated=True)
        world = self.corpus
        found = [world.documents[k] for k in world.index.search(turn[2], self.num_results)]
        return state, Observation("\n".join(found or ["nothing"]) + "\n")

    def grade(self, task_id: TaskId, state: State, turns: Sequence[str], truncated: bool) -> Verdict:
        """Compare the answer with the name at the chain's end; case and punctuation around do not matter."""
        right = state.question.answer
        if state.answer is None:
            return Verdict(0.0, "truncated", None, "no answer before the turns ran out")
        is_right = normalised(state.answer) == normalised(right)
        detail = "" if is_right else f"it is {right}, by {', '.join(state.question.path)}"
        return Verdict(float(is_right), "right" if is_right else "wrong", state.answer, detail)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Search for each thing on the way together with what is asked of it, then answer.

        With probability ``noise`` a hop is careless: it searches for the name alone, or takes the wrong
        thing from the document, or answers with what it has.
        """
        state, episode = self.reset(task_id), []
        here, facts, num_spare = state.question.start, self.corpus.facts, 2
        for relation in state.question.chain:
            if relation not in facts[here]:  # a slip led to another kind of thing
                break
            slip = _SLIPS[int(rng.integers(3))] if rng.random() < noise else ""
            if slip == "bare name" and num_spare:
                state, seen = self.step(state, f"? {here}\n")
                episode += [f"? {here}\n", seen.text]
                num_spare -= 1
            if slip != "bare name" or not episode[-1].startswith(f"{here} "):
                state, seen = self.step(state, f"? {here} {relation}\n")
                episode += [f"? {here} {relation}\n", seen.text]
            wrong = [to for key, to in facts[here].items() if key != relation]
            here = wrong[0] if slip == "wrong thing" and wrong else facts[here][relation]
            if slip == "too early":
                break
        return [*episode, f"= {here}\n"]


def search(
    *,
    min_hops: int = 2,
    max_hops: int = 3,
    num_things: int = 180,
    num_results: int = 1,
    seed: int = 0,
    explain: bool = False,
) -> Search:
    """Answer a question of several hops by searching a small corpus that was made for it.

    Args:
        min_hops, max_hops: how many documents an answer needs.
        num_things: how many things the corpus tells of, a document each.
        num_results: documents that a search gives.
        seed: of the corpus.
        explain: begin the prompt with how to search and answer, for pretrained models.
    """
    return Search(
        min_hops=min_hops,
        max_hops=max_hops,
        num_things=num_things,
        num_results=num_results,
        seed=seed,
        explain=explain,
    )
