"""Search: BM25 against its formula, questions against a walk over the documents' texts."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.tasks._bm25 import Index, words
from rollwright.tasks.search import RELATIONS, search

TASK = search()


def reference_scores(documents, query, k1=1.5, b=0.75):
    """BM25 of every document by its formula, term by term."""
    texts = [words(document) for document in documents]
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        score = 0.0
        for word in set(words(query)):
            num_with = sum(word in other for other in texts)
            times = text.count(word)
            idf = math.log(1 + (len(texts) - num_with + 0.5) / (num_with + 0.5))
            score += idf * times * (k1 + 1) / (times + k1 * (1 - b + b * len(text) / mean))
        scores.append(score)
    return scores


def test_a_score_by_hand():
    """Oracle: hand: N = 2, n = 1, |d| = mean, f = 1: ln(1 + 1.5/1.5) · 2.5/2.5 = ln 2."""
    index = Index(["red fish", "blue bird"])
    assert index._weights["fish"][0] == pytest.approx(math.log(2))
    assert index.search("Fish!", 5) == [0] and index.search("green", 5) == []
    assert index.search("red blue blue", 2) == [0, 1]  # a word counts once, and of equal ones the first leads
    assert Index([]).search("fish", 3) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("abc ", max_size=12), min_size=1, max_size=8),
    st.text("abcd ", max_size=8),
    st.integers(1, 4),
)
def test_ranking_agrees_with_the_formula(documents, query, num):
    """Oracle: slow reference; kills a wrong idf, length or order, and documents without a word found."""
    scores = reference_scores(documents, query) if any(map(words, documents)) else [0.0] * len(documents)
    found = Index(documents).search(query, num)
    assert len(found) == min(num, sum(score > 0 for score in scores))
    best = sorted(scores, reverse=True)
    assert [scores[k] for k in found] == pytest.approx(best[: len(found)])


def facts_of(document):
    """Read a document's facts from its text alone."""
    name, kind, rest = re.fullmatch(r"(\w+) is a (\w+) with (.*)\.", document).groups()
    return name, kind, dict(part.split() for part in rest.split(" and "))


def test_answers_follow_from_the_documents_alone():
    """Oracle: a walk over the documents' texts, read by a pattern; kills an answer that no document has."""
    facts = {name: facts for name, _, facts in map(facts_of, TASK.corpus.documents)}
    assert len(facts) == len(TASK.corpus.documents) > 150
    for split in ("train", "test"):
        for task_id in TASK.ids(split):
            text = TASK.prompt(task_id)
            *relations, here = text.removesuffix("?\n").split(" of the ")
            last, here = here.split(" of ")
            for relation in [last, *reversed(relations)]:
                here = facts[here][relation]
            assert TASK.question(task_id).answer == here
            verdict = TASK.grade(task_id, TASK.step(TASK.reset(task_id), f"= {here}\n")[0], [], False)
            assert verdict.score == 1.0


def test_every_fact_is_found_by_its_name_and_relation():
    """Oracle: the documents; kills a relation that is a kind's word too, so that others are found first."""
    for document in TASK.corpus.documents:
        name, kind, facts = facts_of(document)
        assert set(facts) == {relation for relation, _ in RELATIONS[kind]}
        for relation in facts:
            [best] = TASK.corpus.index.search(f"{name} {relation}", 1)
            assert TASK.corpus.documents[best] == document


def test_questions_have_no_short_cut_and_are_asked_once():
    """Oracle: enumeration; kills a way that comes back to where it was, and a thing in both splits."""
    starts = {"train": set(), "test": set()}
    for split in starts:
        texts = [TASK.prompt(i) for i in TASK.ids(split)]
        assert len(set(texts)) == len(texts) > 100
        for task_id in TASK.ids(split):
            question = TASK.question(task_id)
            assert len({question.start, *question.path}) == len(question.path) + 1
            assert len(question.path) == len(question.chain) in (2, 3)
            starts[split].add(question.start)
    assert not starts["train"] & starts["test"]


def test_a_perfect_demonstration_uses_only_what_it_has_read():
    """Oracle: the texts so far; kills a demonstrator that knows the facts without having found them."""
    rng = np.random.default_rng(0)
    for task_id in TASK.ids("test")[:150]:
        read, state = TASK.prompt(task_id), TASK.reset(task_id)
        episode = TASK.demonstrate(task_id, rng, 0.0)
        for place, turn in enumerate(episode[::2]):
            name = turn.split()[1]
            assert name in read
            state, seen = TASK.step(state, turn)
            read += seen.text
            assert 2 * place + 1 == len(episode) or seen.text == episode[2 * place + 1]
        assert TASK.grade(task_id, state, episode[::2], False).status == "right"
        assert len(episode) == 2 * len(TASK.question(task_id).chain) + 1


def test_imperfect_demonstrations_fit_and_fail_now_and_then():
    """Oracle: the limits; kills a demonstration longer than the policy's own turns."""
    rng, scores = np.random.default_rng(0), []
    for task_id in TASK.ids("test"):
        episode, state = TASK.demonstrate(task_id, rng, 0.5), TASK.reset(task_id)
        assert len(episode) // 2 + 1 <= TASK.max_turns
        assert all(len(turn) <= TASK.max_tokens for turn in episode[::2])
        assert len(TASK.prompt(task_id)) + sum(map(len, episode)) <= TASK.context
        for turn in episode[::2]:
            state, _ = TASK.step(state, turn)
        scores.append(TASK.grade(task_id, state, episode[::2], False).score)
    assert 0.2 < np.mean(scores) < 0.7


def test_turns_and_statuses():
    """Oracle: the documented table."""
    task_id = TASK.ids("train")[0]
    state, answer = TASK.reset(task_id), TASK.question(task_id).answer
    for turn in ("who is it?\n", "?\n", "= \n", ""):
        assert TASK.step(state, turn) == (state, TASK.step(state, "x")[1])
        assert TASK.step(state, turn)[1].text == "error\n"
    assert TASK.step(state, "? zzzz\n")[1].text == "nothing\n"
    assert len(search(num_results=3).step(state, "? city")[1].text.splitlines()) == 3
    assert TASK.grade(task_id, state, ["x"], True).status == "truncated"
    after, seen = TASK.step(state, f"= {answer.lower()}.\n")
    assert (seen.text, seen.terminated) == ("", True)
    assert TASK.grade(task_id, after, [], False).status == "right"
    with pytest.raises(EnvironmentFault, match="was given"):
        TASK.step(after, "= x")
    wrong = TASK.grade(
        task_id, TASK.step(state, f"= {answer} or {TASK.question(task_id).start}")[0], [], False
    )
    assert (wrong.score, wrong.status) == (0.0, "wrong")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 300), st.lists(st.one_of(st.text(max_size=12), st.just("? Buse mayor\n")), max_size=5))
def test_a_branch_equals_a_replay(number, turns):
    """Oracle: metamorphic: every state taken up again gives what a replay from the start gives."""
    task_id = f"search/test/{number}"
    states, seen = [TASK.reset(task_id)], []
    for turn in turns:
        if states[-1].answer is not None:
            break
        state, said = TASK.step(states[-1], turn)
        states, seen = [*states, state], [*seen, said]
    for place in reversed(range(len(seen))):
        assert TASK.step(states[place], turns[place]) == (states[place + 1], seen[place])
    assert TASK.grade(task_id, states[-1], turns, True).score in (0.0, 1.0)


def test_seeds_and_options():
    """Oracle: metamorphic, and the error tree; kills a seed that changes nothing."""
    other = search(seed=1)
    assert other.corpus.documents != TASK.corpus.documents == search().corpus.documents
    assert search(explain=True).prompt("search/test/0").endswith(TASK.prompt("search/test/0"))
    with pytest.raises(ConfigError, match=r"0\.\.3"):
        search(min_hops=0)
    with pytest.raises(ConfigError, match="num_things=5"):
        search(num_things=5)
