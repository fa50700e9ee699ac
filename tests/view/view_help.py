"""Run folders for the viewer's tests: a recorded toy run, and one by hand with a tree and hostile texts."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rollwright.config import RunConfig
from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.events import EmitBatch, Published, Report
from rollwright.ledger import Fate
from rollwright.runner import Runner
from rollwright.store.layout import CHECKPOINTS, SHARDS
from rollwright.store.parquet import write_shard
from rollwright.store.run import RunFolder
from rollwright.testing.fake import FakeEngine, ToyTokenizer
from rollwright.training.parts import plan_of
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory

TOY = f"{Path(__file__).with_name('view_task.py')}:toy"


def record(path: Path, method: str = "dapo", num_steps: int = 5, steps_per_shard: int = 2) -> Path:
    """Record a whole run of the toy task, as `Training` would but without a model, shards included."""
    config = RunConfig(task=TOY, method=method, num_steps=num_steps, num_tasks=2, chunk=8)
    chosen, task, settings = plan_of(config)
    runner = Runner(chosen, settings)
    with RunFolder.create(path, config) as folder, folder.journal() as journal:
        metrics, shards = folder.metrics(), folder.shards(steps_per_shard, ToyTokenizer().decode)

        def report(report: Report) -> None:
            closed = runner.take_closed(report.step)
            for step in sorted({c.step for c in closed}):
                mine = [c for c in closed if c.step == step]
                fates = {leaf: fate for c in mine for leaf, fate in c.fates.items()}
                shards.add(step, [c.group for c in mine], fates, version=mine[0].version)
            metrics.append({"kind": "step", "step": report.step, **report.metrics})

        def train(batch: EmitBatch) -> Published:
            return Published(step=batch.step, version=batch.version + 1)

        InlineDriver(runner, FakeEngine(), World(task, ToyTokenizer(), (0,)), train, journal, report).run()
        shards.flush()
        metrics.close()
    return path


def byte_tokenizer(*special: str) -> Tokenizer:
    """A tokeniser with one token a byte: any text goes in, and most characters take several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: k for k, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    return tokenizer


# What a model could write to harm whoever looks at it, and what it could not be seen to write.
HOSTILE = (
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'><b>bold</b>"
    "<svg onload=window.hurt=3>&lt;&#106;javascript:window.hurt=4 \x1b[31mred\x1b[2J\x07 \u202eevil\u202c "
    "שלום مرحبا 👩‍💻 é é \u200b.\x00."
)
# Case V01, exactly.
V01 = "<think>2 * 3 * 4</think><script>alert(1)</script>\nA_b_c <|im_end|>"
TOOL = 'I look.<tool_call>{"name": "look"}</tool_call>'


def hostile(path: Path, num_steps: int = 2) -> Path:
    """Write a run by hand: a branched group of three turns, texts that want to be markup, odd values."""
    tokenizer = byte_tokenizer("<|im_end|>")
    config = RunConfig(task="<img src=x onerror=window.hurt=9>", method="grpo", num_steps=num_steps)
    with RunFolder.create(path, config):
        pass
    checkpoint = path / CHECKPOINTS / "v00000001"
    checkpoint.mkdir(parents=True)
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    rows = []
    for step in range(num_steps):
        groups = [tree(tokenizer, step), texts(tokenizer, step)]
        fates = {t.leaf: _fate(t) for group in groups for t in group.trajectories}
        fates[f"{groups[0].id}/0~2.0"] = (Fate.PRUNED, "low_value")
        extras = {groups[1].trajectories[0].leaf: {"note": HOSTILE, "distance": float("nan")}}
        write_shard(path, step, groups, fates, version=step + 1, extras=extras, decode=tokenizer.decode)
        rows.append({"kind": "step", "step": step, "reward_mean": 0.5, "num_rollouts": 5, "version": step + 2,
                     "fate_trained": 300, "fate_pruned": 20, "fate_filtered": 9,
                     "reason_pruned:low_value": 20, "reason_filtered:<i>why</i>": 9})  # fmt: skip
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _fate(t: Trajectory) -> tuple[Fate, str]:
    return (Fate.FILTERED, "<i>why</i>") if t.reward is None else (Fate.TRAINED, "")


def node(tokenizer: Tokenizer, name: str, parent: Node | None, at: int, origin: Origin, text: str,
         version: int = 0, **more: object) -> Node:  # fmt: skip
    """A node of a text; a sampled one has logprobs and entropies that differ from token to token."""
    tokens = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
    start = 0 if parent is None else parent.start + at
    fields: dict = {}
    if origin is Origin.SAMPLED:
        fields = {
            "policy": "policy",
            "version": version,
            "logprobs": tuple(-0.05 * (k % 40) for k in range(len(tokens))),
            "entropies": tuple(0.02 * (k % 60) for k in range(len(tokens))),
            "temperature": 1.0,
        }
    stream = name.rpartition("/")[2].rpartition(".")[0]
    return Node(name, parent.id if parent else None, at, origin, tokens, stream, start, **fields, **more)


def tree(tokenizer: Tokenizer, step: int) -> Group:
    """Two turns with a tool, a fork inside the first turn, a fork that was pruned, and a rollout without."""
    name = f"rooms/train/{step}#0"
    root = node(tokenizer, f"{name}/root", None, 0, Origin.PROMPT, "You are in a room. ")
    first = node(tokenizer, f"{name}/0.0", root, root.num_steps, Origin.SAMPLED, TOOL, step)
    seen = node(tokenizer, f"{name}/0.1", first, first.num_steps, Origin.OBSERVATION, "\nA door.\n")
    second = node(tokenizer, f"{name}/0.2", seen, seen.num_steps, Origin.SAMPLED, "I open it.", step + 1,
                  stop=StopReason.EOS)  # fmt: skip
    fork = node(tokenizer, f"{name}/0~1.0", first, 5, Origin.SAMPLED, "n in the corner.", step, forced=1,
                stop=StopReason.EOS)  # fmt: skip
    lost = node(tokenizer, f"{name}/0~2.0", first, 9, Origin.SAMPLED, "never mind", step,
                stop=StopReason.PRUNED)  # fmt: skip
    other = node(tokenizer, f"{name}/1.0", root, root.num_steps, Origin.SAMPLED, "I wait.", step,
                 top=tuple(((k, -0.1), (k + 1, -2.5)) for k in range(7)), stop=StopReason.LENGTH)  # fmt: skip
    nodes = {n.id: n for n in (root, first, seen, second, fork, lost, other)}
    credit = (0.75,) * first.num_steps + (0.0,) * seen.num_steps + (0.75,) * second.num_steps
    return Group(name, name.partition("#")[0], nodes, (
        Trajectory(second.id, 0, 1.0, "right", {"format": 1.0}, 1.0, terminated=True, num_turns=2,
                   stop=StopReason.EOS, advantages=credit),
        Trajectory(fork.id, 1, 0.0, "wrong", score=0.0, terminated=True, stop=StopReason.EOS,
                   advantages=(-0.5,) * (5 + fork.num_steps)),
        Trajectory(other.id, 2, 0.0, "wrong", score=0.0, truncated=True, any_turn_cut=True,
                   stop=StopReason.LENGTH, advantages=(-0.25,) * other.num_steps),
    ))  # fmt: skip


def texts(tokenizer: Tokenizer, step: int) -> Group:
    """Two rollouts of hostile texts; the second was not scored and has no advantages."""
    name = f"texts/train/{step}#0"
    root = node(tokenizer, f"{name}/root", None, 0, Origin.PROMPT, f"Say <b>this</b>: {HOSTILE}")
    first = node(tokenizer, f"{name}/0.0", root, root.num_steps, Origin.SAMPLED, V01, step)
    second = node(tokenizer, f"{name}/1.0", root, root.num_steps, Origin.SAMPLED, HOSTILE, step)
    return Group(name, name.partition("#")[0], {n.id: n for n in (root, first, second)}, (
        Trajectory(first.id, 0, 1.0, "right", score=1.0, terminated=True, stop=StopReason.EOS,
                   advantages=(0.5,) * first.num_steps),
        Trajectory(second.id, 1, None, "grader_error", stop=StopReason.EOS, terminated=True),
    ), baseline=0.5)  # fmt: skip


def without_shards(path: Path) -> Path:
    """Take a run's shards away, as if it had died before the first was written."""
    for folder in (path / SHARDS).iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    return path
