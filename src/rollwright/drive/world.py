"""Carry out what the runner asks of tasks: prompts, environment steps and grades, token-exact.

Text is decoded for environments and graders only; what the model sees next is the sampled ids plus the
encoding of new observation text, never text encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rollwright.events import EnvStep, Event, Failed, Observed, Reset, Score, Scored
from rollwright.tasks.api import Observation, Record, Task
from rollwright.tree import Node, NodeId, Origin, TaskId, path_to

Nodes = dict[NodeId, Node]


class Encoder(Protocol):
    """What the world needs of a tokeniser."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


class Chat(Protocol):
    """How a chat model is told things (`rollwright.chat.ChatFormat`)."""

    def prompt(self, text: str) -> Sequence[int]: ...
    def reply(self, prompt: str, said: Sequence[int], text: str) -> Sequence[int]: ...


class World:
    """A task's environment and grader behind the runner's commands.

    Args:
        task: the task.
        tokenizer: encodes prompts and observations, decodes turns.
        eos_ids: end tokens, left out of the text that environments and graders see.
        chat: puts prompts and observations into a user's turns; None leaves them as they are.
    """

    def __init__(
        self, task: Task, tokenizer: Encoder, eos_ids: Sequence[int] = (), chat: Chat | None = None
    ) -> None:
        self.task, self.tokenizer, self.eos_ids = task, tokenizer, frozenset(eos_ids)
        self.chat = chat
        self._states: dict[NodeId, Any] = {}

    def reset(self, command: Reset) -> Event:
        """Answer with the encoded prompt."""
        return self._guard(command.ask, "data", lambda: self._reset(command))

    def env_step(self, command: EnvStep, task: TaskId, nodes: Nodes) -> Event:
        """Give the turn that ends at ``command.parent`` to the environment."""
        return self._guard(command.ask, "environment", lambda: self._env_step(command, task, nodes))

    def score(self, command: Score, task: TaskId, nodes: Nodes, truncated: bool) -> Event:
        """Grade a finished trajectory. A grader that raises is a failure of ours, not a reward."""
        return self._guard(command.ask, "grader", lambda: self._score(command, task, nodes, truncated))

    def retire(self, group: str) -> None:
        """Forget the states of a closed group."""
        for node in [node for node in list(self._states) if node.startswith(f"{group}/")]:
            self._states.pop(node, None)  # a thread that was given up may still add some

    def _guard(self, ask: str, kind: str, work: Callable[[], Event]) -> Event:
        try:
            return work()
        except Exception as error:
            return Failed(ask=ask, kind=kind, message=_text(f"{type(error).__name__}: {error}"))

    def _reset(self, command: Reset) -> Event:
        text = self.task.prompt(command.task)
        tokens = self.tokenizer.encode(text) if self.chat is None else self.chat.prompt(text)
        return Observed(ask=command.ask, tokens=tuple(tokens))

    def _env_step(self, command: EnvStep, task: TaskId, nodes: Nodes) -> Event:
        turns, state = self._replay(task, nodes, command.parent)
        state, observation = self.task.step(state, turns[-1])
        self._states[command.parent] = state
        return Observed(
            ask=command.ask,
            tokens=tuple(self._observe(task, nodes, command.parent, observation)),
            terminated=bool(observation.terminated),
            truncated=bool(observation.truncated),
            reward=_number(observation.reward),
        )

    def _observe(self, task: TaskId, nodes: Nodes, turn: NodeId, observation: Observation) -> Sequence[int]:
        if observation.tokens is not None:
            return observation.tokens
        is_over = observation.terminated or observation.truncated
        if self.chat is None or (is_over and not observation.text):
            return self.tokenizer.encode(observation.text)
        said: list[int] = []
        for node, num in path_to(nodes, turn):
            said = [*said, *node.tokens[:num]] if node.origin is Origin.SAMPLED else []
        return self.chat.reply(self.task.prompt(task), said, observation.text)

    def _score(self, command: Score, task: TaskId, nodes: Nodes, truncated: bool) -> Event:
        turns, state = self._replay(task, nodes, command.leaf, upto_last=True)
        more = {"record": _record(nodes, command.leaf)} if getattr(self.task, "wants_record", False) else {}
        verdict = self.task.grade(task, state, turns, truncated, **more)
        return Scored(
            ask=command.ask,
            reward=_number(verdict.score),
            status=_text(verdict.status),
            rewards={_text(name): float(value) for name, value in verdict.rewards.items()},
            detail=_text(verdict.detail),
        )

    def _replay(
        self, task: TaskId, nodes: Nodes, leaf: NodeId, upto_last: bool = False
    ) -> tuple[list[Any], Any]:
        """Return the sampled turns (as the task takes them) and the state that the last meets (or leaves)."""
        turns: list[list[int]] = []
        ends: list[NodeId] = []  # the node that each turn ends with
        is_answered: list[bool] = []
        previous = Origin.PROMPT
        for node, num in path_to(nodes, leaf):
            if node.origin is Origin.SAMPLED:
                if previous is not Origin.SAMPLED:
                    turns.append([])
                    ends.append(node.id)
                    is_answered.append(False)
                turns[-1] += node.tokens[:num]
                ends[-1] = node.id
            elif node.origin is Origin.OBSERVATION and turns:
                is_answered[-1] = True
            previous = node.origin
        takes_tokens = getattr(self.task, "takes_tokens", False)
        texts: list[Any] = [tuple(turn) if takes_tokens else self.text(turn) for turn in turns]
        state = self.task.reset(task)
        num_done = len(texts) if upto_last and is_answered and is_answered[-1] else len(texts) - 1
        for text, end in zip(texts[: max(num_done, 0)], ends, strict=False):
            if end not in self._states:
                self._states[end] = self.task.step(state, text)[0]
            state = self._states[end]
        return texts, state

    def text(self, tokens: Sequence[int]) -> str:
        """Decode a turn without its end token."""
        tokens = list(tokens)
        while tokens and tokens[-1] in self.eos_ids:
            tokens.pop()
        return self.tokenizer.decode(tokens)


def _record(nodes: Nodes, leaf: NodeId) -> Record:
    """Return the sampled tokens of a path and the newest version among them."""
    path = [(node, num) for node, num in path_to(nodes, leaf) if node.origin is Origin.SAMPLED]
    ids = tuple(token for node, num in path for token in node.tokens[:num])
    return Record(ids, max((node.version or 0 for node, _ in path), default=-1))


def _number(value: float | None) -> float | None:
    """Return a plain float: graders may give whole or numpy numbers, and the journal is exact."""
    return None if value is None else float(value)


def _text(value: str) -> str:
    """Return the text with what UTF-8 cannot hold escaped: foreign code may say anything."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
