"""A rule in the place of a model: it knows chains of sums, and finds, rewrites and joins their steps.

A chain has steps such as ``"3+4=7"``, one a line, each of which begins with the value before; it is right if
every step is true and follows. The rules answer what the generative graders ask, so that their mechanisms can
be tested, and shown, without a model.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from rollwright.grade.judge.chat import Scripted

_STEP = re.compile(r"(\d+)([+-])(\d+)=(-?\d+)")


def first_error(steps: Sequence[str]) -> int | None:
    """Return the index of the first step that is false, does not follow or is no step; None if all hold."""
    value: int | None = None
    for place, step in enumerate(steps):
        match = _STEP.fullmatch(step.strip())
        if match is None or (value is not None and int(match[1]) != value):
            return place
        value = _result(match)
        if value != int(match[4]):
            return place
    return None


def critic(miss_rate: float = 0.0, seed: int = 0) -> Scripted:
    """Return a critic for `fapo`: it names the first wrong step, and overlooks a share of them."""
    rng = np.random.default_rng(seed)

    def reply(prompt: str) -> str:
        steps = re.findall(r"^Step \d+: (.*)$", prompt, re.MULTILINE)
        place = first_error(steps)
        number = 0 if place is None or rng.random() < miss_rate else place + 1
        return json.dumps({"first_error": number})

    return Scripted(reply, "arithmetic critic")


def anchor() -> Scripted:
    """Return an anchor for `cat`: of the answers' steps it keeps those that are true, and joins them.

    From the start that most answers share it goes on with any true step that follows, whoever wrote it, until
    no answer has one. Its criteria for a reference are its steps, one each.
    """

    def reply(prompt: str) -> str:
        if '"criteria"' in prompt:
            reference = prompt.split("<<<reference ")[1].split("\n", 1)[1].rsplit("\nreference ", 1)[0]
            items = [f"says {line}" for line in dict.fromkeys(reference.splitlines())]
            return json.dumps({"criteria": items})
        texts = [part.split("\n", 1)[1].split("\nanswer ", 1)[0] for part in prompt.split("<<<answer ")[1:]]
        return json.dumps({"answer": "\n".join(joined([text.splitlines() for text in texts]))})

    return Scripted(reply, "arithmetic anchor")


def joined(chains: Sequence[Sequence[str]]) -> list[str]:
    """Return the longest run of true steps, by position, that the chains give together."""
    steps: list[str] = []
    starts = Counter(match[1] for chain in chains if chain and (match := _STEP.match(chain[0])))
    value = starts.most_common(1)[0][0] if starts else ""
    for place in range(max(map(len, chains), default=0)):
        asked = Counter(m[2] + m[3] for c in chains if len(c) > place and (m := _STEP.match(c[place])))
        true = [
            (step, match)
            for chain in chains
            for step in chain[place : place + 1]
            if (match := _STEP.fullmatch(step)) and match[1] == value and _result(match) == int(match[4])
        ]
        true = [pair for pair in true if pair[1][2] + pair[1][3] == asked.most_common(1)[0][0]]
        if not true:
            break
        steps.append(true[0][0])
        value = true[0][1][4]
    return steps


def ticker() -> Scripted:
    """Return a judge for the anchor's criteria: ``says X`` is met by an answer that has the line X."""

    def reply(prompt: str) -> str:
        line = prompt.split("criterion? says ")[1].split("\n")[0]
        answer = prompt.split("<<<answer ")[1].split("\n", 1)[1]
        return json.dumps({"met": line in answer.splitlines()})

    return Scripted(reply, "arithmetic judge")


@dataclass(frozen=True, slots=True)
class SumRewriter:
    """A rewriter for `rlmec`, over the characters of a chain: it corrects results and what follows from them.

    Args:
        noise: standard deviation of its probabilities, for tests of how well they rank.
        seed: of the noise.
    """

    noise: float = 0.0
    seed: int = 0

    def rewrite(self, question: str, tokens: Sequence[Hashable]) -> list[str]:
        """Return the chain with every result right; each step goes on from the one before."""
        lines, value = [], ""
        for line in "".join(map(str, tokens)).split("\n"):
            match = _STEP.fullmatch(line)
            if match is None:
                lines.append(line)
                continue
            start = value or match[1]
            value = str(int(start) + int(match[2] + match[3]))
            lines.append(f"{start}{match[2]}{match[3]}={value}")
        return list("\n".join(lines))

    def probabilities(self, question: str, tokens: Sequence[Hashable]) -> list[float]:
        """Return 0.95 for a token that it keeps and 0.05 for one that it changes, with noise."""
        from rollwright.grade.generative.rlmec import alignment

        kept = {e.before for e in alignment(tokens, self.rewrite(question, tokens)) if e.kind == "keep"}
        rng = np.random.default_rng(self.seed)
        base = np.array([0.95 if place in kept else 0.05 for place in range(len(tokens))])
        return [float(p) for p in np.clip(base + rng.normal(0, self.noise, len(base)), 0, 1)]


def _result(match: re.Match[str]) -> int:
    return int(match[1]) + int(match[2] + match[3])
