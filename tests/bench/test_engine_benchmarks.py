"""The engine's benchmarks: what they measure is what they say, and their targets are compared rightly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import decode
import engine_memory
import numpy as np
import pytest
import ragged
import torch
from _breakdown import measure, sampler_share
from _competitors import Timing, Workload, check_count, equal_lengths, interleave, log_normal
from _competitors.ours import Ours
from _competitors.piped import Piped, vllm
from _competitors.vllm_requirements import shared, wanted
from _floor import LAYOUTS, PACKED, Floor, num_flops, step_shapes
from _models import SHAPES, BenchModel, build, endless

from rollwright.engine.model import Decoder

PARAMETERS = {"1M": 1_050_752, "5M": 5_249_280, "25M": 25_180_672, "135M": 134_515_008}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BenchModel:
    return build("1M", tmp_path_factory.mktemp("bench"))


def row(batch: int, share: float, ours: float = 300.0, theirs: float = 100.0, size: str = "1M") -> decode.Row:
    return decode.Row(size, batch, {"rollwright": ours, "transformers": theirs}, 1.0, share, "plain")


# ---------------------------------------------------------------- the models


def test_the_models_have_the_sizes_that_are_written_down() -> None:
    """Oracle: golden, and within 6% of their names. Kills: a layer more, an untied output matrix."""
    for size, cfg in SHAPES.items():
        with torch.device("meta"):
            num = Decoder(cfg).num_parameters
        assert num == PARAMETERS[size]
        assert abs(num / (float(size[:-1]) * 1e6) - 1) < 0.06


def test_no_token_ends_a_text(model: BenchModel) -> None:
    """Oracle: hand. Kills: an end token left in the config, so that lengths differ between the sides."""
    assert endless(replace(model.cfg, eos_ids=(2, 3))) == model.cfg
    assert model.cfg.eos_ids == ()
    assert '"eos_token_id": null' in (model.folder / "config.json").read_text()


# ---------------------------------------------------------------- the floor


@pytest.mark.parametrize("size", SHAPES)
def test_the_floor_multiplies_every_matrix_of_the_model_once(size: str) -> None:
    """Oracle: the model's own parameters. Kills: the output matrix forgotten, or one product per step."""
    with torch.device("meta"):
        decoder = Decoder(SHAPES[size])
    matrices = [p for name, p in decoder.named_parameters() if p.ndim == 2 and name != "embed"]
    products = sum(p.numel() for p in [*matrices, decoder.head])
    assert sum(s.inner * s.outer for s in step_shapes(SHAPES[size])) == products
    assert num_flops(SHAPES[size], 8) == 2 * 8 * products


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_computes_the_product(layout: str) -> None:
    """Oracle: torch's own product in float64. Kills: a layout that multiplies something smaller."""
    if layout in PACKED and not PACKED[layout]():
        return  # this build of torch lacks the library, and the floor leaves the layout out
    x, weight, out = torch.randn(8, 48), torch.randn(32, 48), torch.empty(8, 32)
    with torch.inference_mode():
        got = LAYOUTS[layout](x, weight, out)()
    expected = x.double() @ weight.double().t()
    assert isinstance(got, torch.Tensor)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-4)


def test_the_best_layout_is_the_one_with_the_smallest_median() -> None:
    """Oracle: hand. Kills: the mean, the minimum over all, the first layout."""
    floor = Floor(SHAPES["1M"], 1)
    floor.layout_to_s = {"plain": [3.0, 3.0, 0.5], "transposed": [2.0, 2.0, 9.0], "mkl": [4.0, 4.0, 4.0]}
    assert floor.best() == ("transposed", 2.0)


def test_the_floor_is_measured() -> None:
    """Oracle: hand: every layout gets one more time, none of them zero."""
    floor = Floor(SHAPES["1M"], 2)
    for _ in range(2):
        floor.measure(seconds=0.001)
    assert {"plain", "transposed"} <= set(floor.layout_to_s)
    assert all(len(times) == 2 and min(times) > 0 for times in floor.layout_to_s.values())


# ---------------------------------------------------------------- the workloads


def test_ragged_lengths_are_log_normal_and_the_same_each_time() -> None:
    """Oracle: closed form of median and quartiles. Kills: a cap at the median, a seed that moves."""
    lengths = np.array(log_normal(4096, 512).lengths)
    assert lengths.min() >= 1 and lengths.max() == 256
    assert np.median(lengths) == pytest.approx(32, rel=0.08)
    assert np.quantile(lengths, 0.25) == pytest.approx(32 * np.exp(-0.6745), rel=0.1)
    assert np.quantile(lengths, 0.75) == pytest.approx(32 * np.exp(0.6745), rel=0.1)
    assert log_normal(128, 512) == log_normal(128, 512)
    assert {len(prompt) for prompt in log_normal(512, 512).prompts} == set(range(16, 33))


def test_prompts_differ_so_that_no_cache_helps() -> None:
    """Oracle: hand. Kills: one prompt repeated, whose keys could be shared."""
    workload = equal_lengths(32, 8, 512)
    assert len(set(workload.prompts)) == 32 and set(workload.lengths) == {8} and workload.num_tokens == 256


def test_a_side_that_makes_too_few_tokens_is_refused() -> None:
    """Oracle: hand. Kills: tokens a second of tokens that were never made."""
    with pytest.raises(RuntimeError, match="made 7 tokens where 16"):
        check_count("x", 7, equal_lengths(2, 8, 512))


def test_medians_are_of_interleaved_runs() -> None:
    """Oracle: hand. Kills: all runs of one side first, and the mean."""
    order: list[str] = []

    class Side:
        def __init__(self, name: str, seconds: list[float]) -> None:
            self.name, self.seconds = name, iter(seconds)

        def run(self, workload: Workload) -> Timing:
            order.append(self.name)
            return Timing(next(self.seconds), None)

        def close(self) -> None: ...

    sides = [Side("a", [1.0, 5.0, 2.0]), Side("b", [9.0, 3.0, 4.0])]
    timings = interleave(sides, equal_lengths(1, 2, 512), 3, lambda: order.append("-"))
    assert "".join(order) == "a-b-a-b-a-b-"
    assert [timings[name].seconds for name in "ab"] == [2.0, 4.0]


def test_ours_makes_ragged_and_equal_workloads(model: BenchModel) -> None:
    """Oracle: the counts inside `run`; a step of the second half is timed for equal lengths only."""
    ours = Ours(model.decoder, 1, max_batch=4)
    assert ours.run(equal_lengths(4, 8, 512)).step_s is not None
    assert ours.run(log_normal(4, 512, middle=4)).step_s is None


# ---------------------------------------------------------------- targets and tables


def test_targets_of_decode() -> None:
    """Oracle: hand. Kills: a ratio turned over, a share asked of small batches, misses not said."""
    assert row(32, 0.7).misses == []
    assert row(32, 0.7, theirs=101.0).misses == ["ratio below target"]
    assert row(128, 0.64).misses == ["share of floor below target 0.65"]
    assert row(8, 0.1, ours=500.0).misses == []
    assert row(32, 0.7).ratios == {"transformers": 3.0}


def test_the_smallest_share_is_over_batches_32_and_128() -> None:
    """Oracle: hand. Kills: a minimum over every batch."""
    rows = [row(8, 0.1), row(32, 0.8), row(128, 0.7), row(32, 0.9, size="5M")]
    assert decode.min_share(rows) == pytest.approx(0.7)
    assert decode.min_share(rows[:1]) is None


def test_targets_of_ragged() -> None:
    """Oracle: hand, from the issue's numbers. Kills: a target of another size, a miss that is not said."""
    assert ragged.verdict("1M", "transformers", 5.9) == " (target 6: below target)"
    assert ragged.verdict("5M", "vllm", 1.3) == " (target 1.3)"
    assert ragged.verdict("25M", "transformers", 0.1) == ""


def test_the_share_of_the_sampler() -> None:
    """Oracle: hand. Kills: the layers counted as sampling."""
    phases = {"step": 10.0, "layers": 7.0, "head": 1.0, "sampling": 0.5, "noise": 0.25, "records": 0.25}
    assert sampler_share(phases) == pytest.approx(0.1)


def test_the_breakdown_reads_every_phase_and_puts_the_engine_back(model: BenchModel) -> None:
    """Oracle: the functions themselves, before and after; in the second half, when rows go on together,
    every phase but torch's drawing takes time, and all together less than the step."""
    import rollwright.engine.decoding as decoding

    before = (decoding.step_words, decoding._drawing, decoding._check, decoding._stops)
    ours = Ours(model.decoder, 1, max_batch=4)
    phases = measure(ours, 4, 40, 512)
    assert {"noise", "stops", "records"} <= {name for name, seconds in phases.items() if seconds > 0}
    assert sum(seconds for name, seconds in phases.items() if name != "step") < phases["step"]
    assert before == (decoding.step_words, decoding._drawing, decoding._check, decoding._stops)


# ---------------------------------------------------------------- memory


def test_buffers_are_counted_once_each() -> None:
    """Oracle: hand. Kills: views counted twice, buffers behind a list missed."""

    class Holder:
        pass

    Holder.__module__ = "rollwright.test"
    holder = Holder()
    holder.base = torch.zeros(10)
    holder.parts = [holder.base[:5], np.zeros(4)[1:]]
    assert engine_memory.buffer_bytes(holder) == 10 * 4 + 4 * 8


def test_what_is_not_as_wanted_is_said() -> None:
    """Oracle: hand: one figure at a time is spoilt. Kills: a check that never speaks."""
    good = {
        "children_prefilled_tokens": 0,
        "children_kv_overhead": 0.01,
        "kv_bytes_reported": 100,
        "kv_bytes_held": 100,
        "kv_bytes_after_sleep": 0,
        "sleep_bytes_said": 1000,
        "sleep_bytes_gone": 990,
    }
    assert engine_memory.verdicts(good) == []
    spoilt = {
        "children_prefilled_tokens": 1,
        "children_kv_overhead": 0.02,
        "kv_bytes_held": 101,
        "kv_bytes_after_sleep": 1,
        "sleep_bytes_gone": 900,
    }
    for name, value in spoilt.items():
        assert len(engine_memory.verdicts({**good, name: value})) == 1, name


# ---------------------------------------------------------------- command lines and other environments


@pytest.mark.parametrize(
    ("parse", "words"),
    [
        (decode.parse, ["--sizes", "2M"]),
        (decode.parse, ["--against", "tgi"]),
        (decode.parse, ["--tokens", "7"]),
        (decode.parse, ["--batches", "0"]),
        (decode.parse, ["--clock", "cpu", "--threads", "2"]),
        (ragged.parse, ["--against", "transformers"]),
        (ragged.parse, ["--repeats", "0"]),
        (engine_memory.parse, ["--prefix", "1"]),
    ],
)
def test_what_cannot_be_measured_is_refused(parse: Callable[[list[str]], object], words: list[str]) -> None:
    """Oracle: exit status 2 of argparse. Kills: an argument that is taken and ignored."""
    with pytest.raises(SystemExit) as caught:
        parse(words)
    assert caught.value.code == 2


def test_lists_are_read() -> None:
    """Oracle: hand."""
    arguments = decode.parse(["--sizes", "1M,25M", "--batches", "1,32", "--against", "vllm"])
    assert (arguments.sizes, arguments.batches, arguments.against) == (["1M", "25M"], [1, 32], ["vllm"])


def test_an_environment_that_was_not_made_is_named(model: BenchModel, tmp_path: Path) -> None:
    """Oracle: the message. Kills: a worker started with another python."""
    with pytest.raises(FileNotFoundError, match=r"make_vllm_env\.sh"):
        vllm(model, tmp_path, threads=1, max_batch=1)


def test_a_worker_that_ends_early_is_told_with_its_errors() -> None:
    """Oracle: the message. Kills: waiting for ever, and losing what the worker said."""
    with pytest.raises(RuntimeError, match=r"(?s)x ended early.*boom"):
        Piped("x", ["sh", "-c", "echo boom >&2"], {})


def test_a_worker_answers_line_by_line() -> None:
    """Oracle: hand: a worker that claims every token, and one that claims one. Kills: an unchecked count."""
    loop = 'echo {}; while read line; do echo "{\\"wall\\": 2.0, \\"cpu\\": 1.0, \\"made\\": 16}"; done'
    worker = Piped("x", ["sh", "-c", loop], {})
    try:
        assert worker.run(equal_lengths(2, 8, 512)) == Timing(2.0)
        with pytest.raises(RuntimeError, match="made 16 tokens where 8"):
            worker.run(equal_lengths(1, 8, 512))
    finally:
        worker.close()


def test_requirements_leave_out_what_does_not_load() -> None:
    """Oracle: hand. Kills: torchvision kept, extras taken, another machine's line taken, torch unpinned."""
    lines = [
        "torch==2.13.0+cpu",
        "torchvision; platform_machine != 'riscv64'",
        "scipy; extra == 'bench'",
        "lark==1.2.2; python_version < '3'",
        "numba==0.65.0",
    ]
    assert [r.name for r in wanted(lines)] == ["torch", "numba"]
    assert shared(["numpy==2.4.6\n", "torch==2.13.0\n", "torchdata==1.0\n"]) == ["torch==2.13.0"]


# ---------------------------------------------------------------- the other sides


@pytest.mark.slow
def test_transformers_makes_the_tokens_asked_for(model: BenchModel) -> None:
    """Oracle: the counts inside `run`. Kills: an end token, a limit that is one off."""
    from _competitors.hf import Continuous, Static, load

    ragged_lengths, equal = log_normal(5, 512, middle=4), equal_lengths(3, 6, 512)
    assert Static(load(model.folder)).run(equal).step_s is not None
    assert Static(load(model.folder), batch=2).run(ragged_lengths).step_s is None
    continuous = Continuous(model.folder, 4)
    try:
        continuous.run(ragged_lengths)
    finally:
        continuous.close()
