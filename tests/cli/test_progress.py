"""What a run shows while it goes on."""

from __future__ import annotations

import io
import os
import signal

import pytest
from rich.console import Console

from rollwright.cli.launch import Interrupts
from rollwright.cli.progress import Display, Pace, evaluation_line, step_line, success


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def row(step: int, **more: float) -> dict:
    return {
        "kind": "step",
        "step": step,
        "num_rollouts": 8,
        "spent_sampled_tokens": 100.0 * (step + 1),
        **more,
    }


EVALUATION = {
    "kind": "evaluation",
    "step": 4,
    "sampled_success": 0.5,
    "sampled_low": 0.4,
    "sampled_high": 0.6,
    "greedy_success": None,
    "greedy_low": None,
    "greedy_high": None,
    "sampled_num_tasks": 20,
}


def test_rates_and_time_left() -> None:
    """Oracle: closed form: 100 tokens and 8 rollouts in 2 s, and seven more steps of 2 s."""
    clock = Clock()
    pace = Pace(10, {}, clock=clock)
    for step in range(3):
        clock.now += 2.0
        rates = pace.step(row(step))
    assert (rates.tokens_per_s, rates.rollouts_per_s, rates.seconds_left) == (50.0, 4.0, 14.0)


def test_an_evaluation_is_no_rollout_time() -> None:
    """Oracle: closed form. Kills: a rate that halves in the step after an evaluation."""
    clock = Clock()
    pace = Pace(10, {}, clock=clock)
    clock.now += 50.0
    pace.evaluation()
    clock.now += 2.0
    assert pace.step(row(0)).tokens_per_s == 50.0


def test_a_budget_can_end_it_earlier() -> None:
    """Oracle: closed form: 100 of 350 tokens a step leave 1.5 steps of 2 s after the second."""
    clock = Clock()
    pace = Pace(1000, {"sampled_tokens": 350.0}, clock=clock)
    for step in range(2):
        clock.now += 2.0
        rates = pace.step(row(step))
    assert rates.seconds_left == pytest.approx(3.0)


def test_a_resumed_run_does_not_count_old_tokens() -> None:
    """Oracle: nothing is known of the tokens before the first row. Kills: a huge first rate."""
    clock = Clock()
    pace = Pace(10, {}, is_fresh=False, clock=clock)
    clock.now += 2.0
    first = pace.step(row(5))
    assert (first.tokens_per_s, first.rollouts_per_s) == (None, 4.0)
    clock.now += 2.0
    assert pace.step(row(6)).tokens_per_s == 50.0


def test_success_is_of_the_scored() -> None:
    """Oracle: closed form. Kills: unscored rollouts in the denominator; 0 where nothing was scored."""
    assert success({"num_scored": 4, "status:right": 3.0}) == 0.75
    assert success({"num_scored": 4}) == 0.0
    assert success({"num_scored": 0}) is None


def test_lines_say_what_is_missing() -> None:
    """Oracle: golden."""
    clock = Clock()
    pace = Pace(10, {}, clock=clock)
    clock.now += 2.0
    given = row(0, reward_mean=0.5, num_scored=6, num_not_scored=2, skipped_update=1, **{"status:right": 3})
    assert step_line(given, pace.step(given), 10) == (
        "step 1/10  reward 0.5  right 50.0%  length -  50 tokens/s  4 rollouts/s  2 not scored  "
        "no update (nothing to learn from)  left -"
    )
    assert evaluation_line(EVALUATION) == (
        "held-out at version 4: sampled 50.0% [40.0, 60.0]  greedy -  (20 tasks)"
    )


def test_without_a_terminal_every_row_is_one_line() -> None:
    """Oracle: the number of lines. Kills: wrapping at 80 columns, control characters in a log file."""
    out = io.StringIO()
    with Display(Console(file=out, width=40), "title " * 20, 10, {}) as display:
        for step in range(3):
            display.row(row(step, reward_mean=0.25, num_scored=8))
        display.row(EVALUATION)
    lines = out.getvalue().splitlines()
    assert len(lines) == 5 and "\x1b" not in out.getvalue()
    assert [line.split()[1] for line in lines[1:4]] == ["1/10", "2/10", "3/10"]


def test_a_terminal_gets_a_panel() -> None:
    """Oracle: the panel's own text: bar, rates, curve, evaluations, message."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with Display(console, "lake with grpo", 10, {}) as display:
        display.row(EVALUATION)
        for step in range(4):
            display.row(row(step, reward_mean=step / 4, num_scored=8, **{"status:right": 2.0 * step}))
        display.message = "stopping"
        with console.capture() as capture:
            console.print(display.render())
    text = capture.get()
    for part in ("lake with grpo", "step 4/10", "reward 0.75", "success", "▁▂▄▆", "held-out", "stopping"):
        assert part in text, part


class FakeTraining:
    num_stops = 0

    def stop(self) -> None:
        self.num_stops += 1


def test_ctrl_c_once_stops_cleanly_twice_at_once() -> None:
    """Oracle: real signals. Kills: an exception at the first one, deafness at the second."""
    before = signal.getsignal(signal.SIGINT)
    training = FakeTraining()
    with Interrupts() as interrupts:
        interrupts.training = training  # type: ignore[assignment]
        os.kill(os.getpid(), signal.SIGINT)
        assert training.num_stops == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert training.num_stops == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_the_run_is_built_is_immediate() -> None:
    """Oracle: real signal. Kills: a Ctrl-C that is lost while the model loads."""
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
