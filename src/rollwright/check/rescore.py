"""Score saved rollouts again: a new dump beside the old, and what would have changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollwright.check.invariants import Context
from rollwright.check.source import DUMP_FORMAT, DUMP_VERSION, RawGroup, Row, Source
from rollwright.errors import ConfigError, DataError, RollwrightError
from rollwright.interop.export import decoder_of, pieces_of, plain_row, text_of
from rollwright.store.strict import dumps

if TYPE_CHECKING:
    from rollwright.grade.reward import Reward


@dataclass(slots=True)
class Rescored:
    """What a rescoring did.

    Args:
        num: rollouts.
        changed: (rollout, old reward, new reward, new status) of each whose reward differs.
        num_groups: groups.
        num_groups_changed: groups with other advantages; None where the method is not known.
        why_unknown: why it is not.
    """

    num: int = 0
    changed: list[tuple[str, float | None, float | None, str]] = field(default_factory=list)
    num_groups: int = 0
    num_groups_changed: int | None = 0
    why_unknown: str = ""


def rescore(source: Source, rewards: Sequence[Reward], out: Path, context: Context) -> Rescored:
    """Write the dump with the verdicts of other reward functions.

    Advantages in the new dump are those of the new rewards; null where the method is not known.

    Args:
        source: the rollouts.
        rewards: as in a run's config; the reward is their weighted sum.
        out: the file to write.
        context: gives the method's credit (`check.run.context_of`).

    Raises:
        ConfigError: ``out`` is there already, or cannot be written.
        DataError: a rollout's text cannot be had.
    """
    done = Rescored(why_unknown="" if context.credit else context.no_credit)
    if context.credit is None:
        done.num_groups_changed = None
    row_of, decode = _rows_of(source), decoder_of(source)
    header = {"format": DUMP_FORMAT, "version": DUMP_VERSION, "from": source.came_from, "lacks": source.lacks}
    header["rescored_by"] = [reward.name for reward in rewards]
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(dumps(header)[0] + "\n")
            for group in source.groups():
                file.write(dumps(_group(group, rewards, row_of, decode, context, done))[0] + "\n")
    except FileExistsError as error:
        raise ConfigError(f"{out} is there already; it is left as it is, give another name") from error
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from error
    except RollwrightError:
        out.unlink()
        raise
    return done


def _group(
    group: RawGroup,
    rewards: Sequence[Reward],
    row_of: Callable[[Row], Mapping[str, Any]],
    decode: Callable[[list[int]], str] | None,
    context: Context,
    done: Rescored,
) -> Row:
    from rollwright.grade.reward import Call

    nodes = {row["node"]: row for row in group.nodes}
    calls = []
    for leaf in group.trajectories:
        pieces = pieces_of(nodes, leaf, decode)
        if pieces is None:
            raise DataError(f"rollout {leaf['leaf']} has no text, and there is no tokeniser to make it")
        turns = tuple(text_of([piece]) for piece in pieces[1:] if piece[0] == "sampled")
        calls.append(Call(text_of(pieces[:1]), turns, row_of(leaf), leaf["task"].split("/")[0]))
    verdicts = [reward.many(calls) for reward in rewards]
    leaves = []
    for place, leaf in enumerate(group.trajectories):
        mine = [each[place] for each in verdicts]
        failed = [one for one in mine if one.score is None and str(one.status) != "not_scored"]
        pairs = [(r.weight, v.score) for r, v in zip(rewards, mine, strict=True) if v.score is not None]
        score = math.fsum(w * s for w, s in pairs) if pairs and not failed else None
        status = str((failed or mine)[0].status)
        own = {r.name: v.score for r, v in zip(rewards, mine, strict=True) if v.score is not None}
        if score != leaf["reward"]:
            done.changed.append((leaf["leaf"], leaf["reward"], score, status))
        leaves.append(leaf | {"reward": score, "score": score, "status": status, "rewards": own})
    done.num += len(leaves)
    done.num_groups += 1
    _credit(RawGroup(group.key, group.nodes, leaves), context, done)
    first = (group.nodes or group.trajectories)[0]
    kind, step, place = group.key
    key = {"kind": kind, "step": step, "group_index": place, "group": first["group"], "task": first["task"]}
    return key | {"nodes": list(map(plain_row, group.nodes)), "trajectories": list(map(plain_row, leaves))}


def _credit(group: RawGroup, context: Context, done: Rescored) -> None:
    """Put the advantages of the new rewards in the place of the old ones."""
    new = context.credit(group) if context.credit is not None else {}
    is_other = False
    for leaf in group.trajectories:
        old, leaf["advantages"] = leaf["advantages"], new.get(leaf["leaf"])
        if old is not None and leaf["advantages"] is not None:
            pairs = zip(old, leaf["advantages"], strict=False)
            is_other |= any(not math.isclose(a, b, abs_tol=1e-9) for a, b in pairs)
    if done.num_groups_changed is not None:
        done.num_groups_changed += is_other


def _rows_of(source: Source) -> Callable[[Row], Mapping[str, Any]]:
    """Return what gives the fields of a rollout's task: its run's task, or what an import kept."""
    if source.run is None:
        return lambda leaf: leaf["extras"] if isinstance(leaf["extras"], dict) else {}
    from rollwright.store.run import RunFolder
    from rollwright.training.parts import plan_of

    task: Any = plan_of(RunFolder.view(source.run).config())[1]
    return lambda leaf: task.row(leaf["task"]) if hasattr(task, "row") else {}
