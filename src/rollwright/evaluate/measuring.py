"""Sample a model on tasks under several conditions, and keep what the measures need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rollwright.config import RunConfig, parse_override
from rollwright.drive.world import World
from rollwright.errors import ConfigError, UnknownName
from rollwright.evaluate.perturbed import Composition, compose, match
from rollwright.evaluate.samples import Sample
from rollwright.tree import Group, Sampling, TaskId

if TYPE_CHECKING:
    from rollwright.engine.model import Decoder
    from rollwright.evaluate.decoding import NextLogp
    from rollwright.tasks.api import Task
    from rollwright.training.evaluate import Evaluation
    from rollwright.training.parts import Parts

_SAMPLING = ("temperature", "top_p", "top_k", "min_p")
_LIMITS = ("max_tokens", "max_turns", "context")
_TEXT = ("prefix", "suffix")
_OPTION = "task_options."
JOINT = "all together"


@dataclass(frozen=True, slots=True)
class Condition:
    """Under which samples are taken; nothing is changed without a change.

    Args:
        name: what it is called.
        changes: by key: of the sampling (``temperature``, ``top_p``, ``top_k``, ``min_p``), limits
            (``max_tokens``, ``max_turns``, ``context``), texts around every prompt (``prefix``, ``suffix``),
            or an option of the task (``task_options.<name>``), under which an id must stay the same instance.

    Raises:
        UnknownName: another key.
    """

    name: str
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.changes:
            if key not in (*_SAMPLING, *_LIMITS, *_TEXT) and not key.startswith(_OPTION):
                raise UnknownName("perturbation", key, (*_SAMPLING, *_LIMITS, *_TEXT, f"{_OPTION}NAME"))

    def of(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the changes of these keys."""
        return {key: value for key, value in self.changes.items() if key in names}


def parse_perturbations(texts: Sequence[str]) -> list[Condition]:
    """Return a condition for each of ``key=value``, and the joint one at last.

    Raises:
        ConfigError: fewer than two, one key twice, or no value.
    """
    singles = []
    for text in texts:
        key, value = parse_override(text)
        key = key.replace("-", "_")
        singles.append(Condition(text, {key: str(value) if key in _TEXT else value}))
    joint = {key: value for single in singles for key, value in single.changes.items()}
    if len(singles) < 2 or len(joint) < len(singles):
        raise ConfigError(f"perturbations {list(texts)}; expected at least two, each of another key")
    return [*singles, Condition(JOINT, joint)]


class _NotedTask:
    """A task that remembers the answer that it graded last, with texts around its prompts."""

    def __init__(self, task: Task, prefix: str = "", suffix: str = "") -> None:
        self._task, self._prefix, self._suffix = task, prefix, suffix
        self.extracted: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def prompt(self, task_id: TaskId) -> str:
        return self._prefix + self._task.prompt(task_id) + self._suffix

    def grade(self, *given: Any) -> Any:
        verdict = self._task.grade(*given)
        self.extracted = verdict.extracted
        return verdict


class _NotedWorld(World):
    """A world that keeps the graded answer of each leaf."""

    def __init__(
        self, parts: Parts, task: Task, changes: Mapping[str, str], on_graded: Callable[[], object]
    ) -> None:
        self.noted = _NotedTask(task, **changes)
        super().__init__(self.noted, parts.world.tokenizer, tuple(parts.world.eos_ids), parts.world.chat)
        self.answers: dict[str, str | None] = {}
        self.on_graded = on_graded

    def score(self, command: Any, *given: Any) -> Any:
        self.noted.extracted = None
        event = super().score(command, *given)
        self.answers[command.leaf] = self.noted.extracted
        self.on_graded()
        return event


@dataclass
class Taken:
    """Samples of one condition: their summary, and themselves by task and number."""

    evaluation: Evaluation
    samples: dict[tuple[TaskId, int], Sample]

    @property
    def success(self) -> dict[tuple[TaskId, int], bool]:
        """Whether each scored sample was right."""
        return {key: one.is_right for key, one in self.samples.items() if one.is_right is not None}


class Bench:
    """A model and its tasks, ready to be sampled. Samples of two conditions share their noise."""

    def __init__(self, config: RunConfig, split: str = "test") -> None:
        from rollwright.training.parts import build

        self.config, self.parts = config, build(config)
        self.tasks: Sequence[TaskId] = self.parts.task.ids(split)[: config.eval_tasks]

    def take(
        self,
        num_samples: int,
        temperature: float = 1.0,
        condition: Condition | None = None,
        on_graded: Callable[[], object] = lambda: None,
    ) -> Taken:
        """Sample each task.

        Raises:
            ConfigError: a change that cannot be made.
            DataError: there are no tasks.
        """
        from rollwright.training.evaluate import evaluate
        from rollwright.training.parts import plan_of

        condition = condition or Condition("")
        task, settings = self.parts.task, self.parts.settings
        options = {k.removeprefix(_OPTION): v for k, v in condition.changes.items() if k.startswith(_OPTION)}
        if options:
            changed = {**self.config.task_options, **options}
            _, task, settings = plan_of(dataclasses.replace(self.config, task_options=changed))
        settings = dataclasses.replace(settings, **condition.of(_LIMITS))
        given = {"temperature": temperature, **condition.of(_SAMPLING)}
        sampling = Sampling(**given, stop_strings=settings.sampling.stop_strings)
        world = _NotedWorld(self.parts, task, condition.of(_TEXT), on_graded)
        found, groups = evaluate(self.parts.engine, world, settings, self.tasks, num_samples, sampling)
        return Taken(found, samples_of(groups, world.answers))

    def compose(
        self, texts: Sequence[str], num_samples: int, on_graded: Callable[[], object] = lambda: None
    ) -> Composition:
        """Sample under each perturbation alone and under all together, and count what changes."""
        conditions = parse_perturbations(texts)
        taken = {one.name: self.take(num_samples, 1.0, one, on_graded).success for one in conditions}
        runs, num_unmatched = match(taken, JOINT)
        return compose(runs, num_unmatched)

    def prompts(self) -> list[list[int]]:
        """Return the tokens of each task's prompt."""
        world = self.parts.world
        texts = [self.parts.task.prompt(task) for task in self.tasks]
        return [
            list(world.tokenizer.encode(text) if world.chat is None else world.chat.prompt(text))
            for text in texts
        ]

    def close(self) -> None:
        """Give back what the parts hold."""
        self.parts.close()


def samples_of(
    groups: Sequence[Group], answers: Mapping[str, str | None]
) -> dict[tuple[TaskId, int], Sample]:
    """Return the samples of evaluated groups by (task, number), in the order of the tasks' ids.

    Args:
        answers: what was graded, by leaf.
    """
    found = {}
    for group in sorted(groups, key=lambda group: group.task):
        for t in group.trajectories:
            response = group.response(t)
            logps = response.logp_old[response.is_sampled]
            found[group.task, t.index] = Sample(
                task=group.task,
                is_right=None if t.reward is None else t.status == "right",
                num_tokens=int(response.is_sampled.sum()),
                is_cut=t.truncated,
                logp=float(logps.mean()) if len(logps) else None,
                answer=answers.get(t.leaf),
            )
    return found


def next_logp_of(model: Decoder) -> NextLogp:
    """Return a model as decoding policies see it (`rollwright.evaluate.decoding`).

    Every text is computed anew at every step: simple and exact, for prompts of some hundred tokens.
    """
    import torch

    def next_logp(texts: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        tokens = torch.tensor([token for text in texts for token in text], device=model.embed.device)
        lengths = [len(text) for text in texts]
        ends = torch.tensor(lengths, device=model.embed.device).cumsum(0) - 1
        with torch.no_grad():
            logits = model.logits(model.hidden_packed(tokens, lengths)[ends])
        return np.asarray(torch.log_softmax(logits.double(), -1).cpu().numpy())

    return next_logp


FEATURES = ("entropy", "largest entropy", "surprise", "largest surprise", "log length")


def prompt_features(
    model: Decoder, prompts: Sequence[Sequence[int]], at_once: int = 4096
) -> NDArray[np.float64]:
    """Return features of each prompt under a frozen model, [N, F] in the order of `FEATURES`.

    Entropy (nats) is that of the next token's distribution after each token of the prompt, surprise is
    -log p of each token but the first.

    Args:
        at_once: tokens of one forward pass, at most (a single longer prompt goes alone).
    """
    import torch

    rows: list[list[float]] = []
    start = 0
    while start < len(prompts):
        end, num = start, 0
        while end < len(prompts) and (end == start or num + len(prompts[end]) <= at_once):
            num += len(prompts[end])
            end += 1
        chosen = [list(prompt) for prompt in prompts[start:end]]
        tokens = torch.tensor([token for prompt in chosen for token in prompt], device=model.embed.device)
        with torch.no_grad():
            logp = torch.log_softmax(model.logits(model.hidden_packed(tokens, [len(p) for p in chosen])), -1)
        for prompt, mine in zip(chosen, torch.split(logp, [len(p) for p in chosen]), strict=True):
            entropy = -(mine.exp() * mine).sum(-1)
            surprise = -mine[:-1].gather(-1, torch.tensor(prompt[1:], device=mine.device)[:, None])
            values = [entropy.mean(), entropy.max()]
            values += [surprise.mean(), surprise.max()] if len(prompt) > 1 else [torch.zeros(())] * 2
            rows.append([*(float(value) for value in values), float(np.log(len(prompt)))])
        start = end
    return np.array(rows)
