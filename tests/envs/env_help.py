"""Small environments for the tests: one that is right, and ways to break just one thing in it."""

from __future__ import annotations

from typing import Any

from rollwright.envs import Observation


class Walk:
    """Walk from 0 to 3 with ``+``, ``-`` and ``?`` (a random step); six turns at most."""

    max_turns, max_tokens, context = 8, 4, 200
    forking = "replay"

    def __init__(self) -> None:
        self.place, self.num, self.dice = 0, 0, 0

    def reset(self, seed: int) -> str:
        self.dice = seed
        self.place, self.num = self.throw(3) - 1, 0
        return f"Walk from {self.place} to 3.\n"

    def step(self, turn: str) -> Observation:
        self.num += 1
        turn = turn.strip()
        if turn not in ("+", "-", "?"):
            return self.seen("what?")
        self.place += {"+": 1, "-": -1, "?": 2 * self.throw(2) - 1}[turn]
        return self.seen(f"at {self.place}")

    def throw(self, num: int) -> int:
        self.dice = (self.dice * 1103515245 + 12345) % 2**31
        return self.dice // 65536 % num

    def seen(self, text: str) -> Observation:
        is_there = self.place == 3
        is_late = self.num >= 6 and not is_there
        reward = 1.0 if is_there else 0.0
        return Observation(text + "\n", is_there, is_late, reward if is_there or is_late else None)

    def sample_turn(self, rng: Any) -> str:
        return "++-?x"[int(rng.integers(5))]

    def snapshot(self) -> tuple[Any, ...]:
        return self.place, self.num, self.dice

    def restore(self, state: tuple[Any, ...]) -> None:
        self.place, self.num, self.dice = state


class CopiedWalk(Walk):
    forking = "copy"


class OwnWalk(Walk):
    forking = "own"


WALKS = (Walk, CopiedWalk, OwnWalk)
