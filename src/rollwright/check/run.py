"""Check a dump: every invariant over every group, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from rollwright.check.invariants import INVARIANTS, Context, Unknown
from rollwright.check.source import RawGroup, Source
from rollwright.errors import ConfigError, RollwrightError

Word = Literal["proved", "refuted", "unknown"]


@dataclass(slots=True)
class Verdict:
    """What came of one invariant.

    Args:
        invariant: its name.
        num_groups: groups in which it was looked at.
        num_wrong: counterexamples.
        first: the first one: file, row (from 0 in Parquet, the line in a .jsonl) and what is wrong.
        missing: what the dump lacks, where it cannot be told; it may also be missing in some groups only.
    """

    invariant: str
    num_groups: int = 0
    num_wrong: int = 0
    first: dict[str, Any] | None = None
    missing: str | None = None

    @property
    def word(self) -> Word:
        if self.num_wrong:
            return "refuted"
        return "unknown" if self.missing is not None or not self.num_groups else "proved"


def check_source(source: Source, context: Context) -> list[Verdict]:
    """Return a verdict for each invariant; memory does not grow with the dump.

    Raises:
        DataError: the dump cannot be read.
    """
    verdicts = {name: Verdict(name) for name in INVARIANTS}
    num = 0
    for group in source.groups():
        num += 1
        for name, verdict in verdicts.items():
            _look(name, verdict, group, context)
    if not num:
        for verdict in verdicts.values():
            verdict.missing = "any group: the dump is empty"
    return list(verdicts.values())


def _look(name: str, verdict: Verdict, group: RawGroup, context: Context) -> None:
    try:
        for row, problem in INVARIANTS[name](group, context):
            verdict.num_wrong += 1
            if verdict.first is None:
                verdict.first = {"file": row["_file"], "row": row["_row"], "problem": problem}
        verdict.num_groups += 1
    except Unknown as missing:
        verdict.missing = verdict.missing or str(missing)


def context_of(
    source: Source, bos: int | None = None, eos: frozenset[int] = frozenset(), model: Path | None = None
) -> Context:
    """Return what is known beside the rows: from the run's config and checkpoint, and from the arguments.

    Raises:
        ConfigError, ModelError, DataError: the config or the model cannot be read.
    """
    context = Context(bos=bos, eos=eos)
    if source.run is not None:
        _from_run(source.run, context)
    if model is not None:
        _from_model(model, context)
    return context


def _from_run(run: Path, context: Context) -> None:
    from rollwright.engine.checkpoint import load_config
    from rollwright.learn.checkpoint import newest
    from rollwright.store.run import RunFolder

    config = RunFolder.view(run).config()
    sampling = config.sampling
    context.cuts = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
    path = newest(run / "checkpoints")
    if path is not None:
        model = load_config(path)
        context.bos = model.bos_id if context.bos is None else context.bos
        context.eos = context.eos or frozenset(model.eos_ids)
    try:
        from rollwright.lab.replay import fresh_runner

        stages = fresh_runner(config).method.credit
    except RollwrightError as error:
        context.no_credit = f"the method: {error}"
        return
    context.credit = lambda group: _recompute(group, stages)


def _recompute(group: RawGroup, stages: Any) -> dict[str, tuple[float, ...] | None]:
    from rollwright.store.schema import group_of

    made = group_of(group.nodes, group.trajectories)
    # Those without advantages were not in the batch, so they moved no baseline.
    given = [t for t in made.trajectories if t.advantages is not None]
    bare = tuple(msgspec.structs.replace(t, advantages=None) for t in given)
    made = msgspec.structs.replace(made, trajectories=bare)
    for stage in stages:
        made = stage(made)
    return {t.leaf: t.advantages for t in made.trajectories}


def _from_model(path: Path, context: Context) -> None:
    import torch

    from rollwright.engine.checkpoint import load_model

    number = path.name.removeprefix("v")
    if not number.isdigit():
        raise ConfigError(f"--model {path}: expected a run's checkpoint, checkpoints/v<version>")
    model = load_model(path)
    context.model_version = int(number)

    def score(before: list[int], tokens: list[int], temperature: float) -> list[float]:
        with torch.no_grad():
            ids = torch.tensor([*before, *tokens])
            hidden = model.hidden_packed(ids, [len(ids)])[len(before) - 1 : -1]
            logits = model.logits(hidden).double()
        logp = torch.log_softmax(logits / temperature, -1)
        return [float(logp[place, token]) for place, token in enumerate(tokens)]

    context.score = score
