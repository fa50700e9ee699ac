"""The formats that can be imported, by name, with what each cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rollwright.errors import DataError, UnknownName
from rollwright.interop import chats, ids, texts
from rollwright.interop.dump import Notes, Rollout, write_dump
from rollwright.interop.read import Row, rows_of


@dataclass(frozen=True, slots=True)
class Format:
    """One format: rows to rollouts, and what it cannot hold, by column."""

    read: Callable[[Iterable[Row], Notes], Iterator[Rollout]]
    lacks: dict[str, str]


_NO_TEXT = {"text": "text", "version": "the version that sampled each token"}
_TEXT = dict(texts.TEXT_LACKS)
_PROMPTS = {"rollouts": "rollouts: it is a list of prompts"} | _TEXT
_BEST = {"groups": "the whole group: only the best are kept, and none with a negative score"}
FORMATS: dict[str, Format] = {
    "verl": Format(
        texts.verl, _TEXT | {"extras": "extras of another length than the batch: they were dropped"}
    ),
    "verl-data": Format(texts.verl_data, _PROMPTS),
    "trl": Format(texts.trl, _TEXT | {"reward": "the total reward: weights are in the run's config"}),
    "openrlhf": Format(texts.openrlhf, _PROMPTS),
    "slime": Format(ids.slime, {"kept_masses": "the mass that the sampling kept"}),
    "verifiers": Format(chats.verifiers, _TEXT),
    "verifiers-v1": Format(ids.verifiers_v1, {"version": "the version that sampled each token"}),
    "prime-rl-tokens": Format(
        ids.prime_rl_tokens, _NO_TEXT | {"reward": "rewards", "groups": "groups; sequences without loss"}
    ),
    "atropos": Format(
        ids.atropos,
        _NO_TEXT | {"groups": "groups of equal scores or with a too long member: pass rates are biased"},
    ),
    "atropos-sft": Format(texts.atropos_sft, _TEXT | _BEST),
    "skyrl": Format(texts.skyrl, _TEXT | {"turns": "turns of one rollout: a row each in step-wise runs"}),
    "tau-bench": Format(chats.tau_bench, _TEXT),
    "swe-agent": Format(chats.swe_agent, _TEXT | {"reward": "the reward: it is in the evaluation's report"}),
    "openai-chat": Format(chats.openai_chat, _TEXT | {"reward": "rewards, unless a line adds them"}),
    "sharegpt": Format(chats.sharegpt, _TEXT | {"reward": "rewards"}),
    "areal": Format(
        texts.areal, _TEXT | {"groups": "samples whose last token is not trained: they were left out"}
    ),
    "roll": Format(texts.roll, _TEXT),
    "nemo-rl": Format(ids.nemo_rl, {"version": "the version that sampled each token", "groups": "groups"}),
    "tinker": Format(texts.tinker, _TEXT | {"text": "text: lengths and rewards only"}),
}


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: counts, notes with how often, and what the format cannot hold."""

    num_groups: int
    num_rollouts: int
    notes: dict[str, int]
    lacks: dict[str, str]


def import_dump(name: str, path: Path, out: Path) -> Imported:
    """Read a foreign dump and write it as one of ours.

    Raises:
        UnknownName: no such format.
        ConfigError: no such file, or ``out`` is there already.
        DataError: the file does not hold what the format says.
    """
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS)
    if name == "prime-rl-tokens" and not any(
        (folder / "STABLE").exists() for folder in (path.parent, path.parent.parent)
    ):
        raise DataError(f"{path.parent} has no STABLE marker: the step is still being written")
    chosen, notes = FORMATS[name], Notes()
    try:
        rollouts = list(chosen.read(rows_of(path, notes), notes))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{path} does not hold rows of {name!r}: {error!r}") from error
    if not rollouts:
        raise DataError(f"{path} holds no rollouts of {name!r}; nothing was written")
    num_groups, num = write_dump(out, name, chosen.lacks, rollouts)
    return Imported(num_groups, num, dict(notes.counts), chosen.lacks)
