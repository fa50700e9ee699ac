"""Reward functions that hang, exit or crash cost their own verdict and nothing else. Oracle: the system."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rollwright.errors import ConfigError
from rollwright.grade.reward import Call, RewardSettings, load_reward, load_rewards
from rollwright.tasks.registry import load_task

FILE = """
import ctypes, os, signal, subprocess, sys, time
calls = 0

def reward(completion, **row):
    global calls
    calls += 1
    if completion == "hang":
        time.sleep(600)
    if completion == "spin":
        while True:
            pass
    if completion == "sys.exit":
        sys.exit(0)
    if completion == "os._exit":
        os._exit(0)
    if completion == "segfault":
        ctypes.string_at(0)
    if completion == "memory":
        bytearray(1 << 40)
    if completion == "alarm":  # as math-verify does: only a main thread may
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.alarm(1)
        signal.alarm(0)
        return 0.5
    if completion == "child":
        child = subprocess.Popen(["sleep", "600"])
        open(row["note"], "w").write(str(child.pid))
        time.sleep(600)
    if completion == "read":
        return float(len(sys.stdin.read()))
    if completion == "print":
        print("x" * 100_000)
        return 1.0
    if completion == "pid":
        return float(os.getpid())
    if completion == "count":
        return float(calls)
    return 1.0

def listed(completions, **columns):
    return [reward(c) for c in completions]

def scaled(completion):
    return 10.0
"""
QUICK = RewardSettings(timeout_s=2.0, workers=1, memory_mb=4000)


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("rewards") / "rewards.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    "said, words",
    [
        ("spin", "within 2 s"),
        ("sys.exit", "SystemExit"),
        ("os._exit", "took its process down"),
        pytest.param("segfault", "took its process down", marks=pytest.mark.slow),
        ("memory", "MemoryError"),
    ],
)
def test_each_way_to_end_a_process_is_a_grader_error(file, said, words):
    """By hand: the verdict says what happened, in time, and the next call is scored."""
    reward = load_reward(f"{file}:reward", QUICK)
    began = time.monotonic()
    verdict = reward("p", said)
    assert time.monotonic() - began < 20
    assert (verdict.score, verdict.status, verdict.rewards) == (None, "grader_error", {})
    assert words in verdict.detail and "reward reward" in verdict.detail
    assert reward("p", "fine").score == 1.0


def test_a_batch_loses_only_the_bad_ones(file):
    """By hand, for one number a call and for lists: good verdicts around one that ends its process."""
    for name, bad in (("reward", "hang"), ("listed", "os._exit")):
        said = ["a", "b", "c", bad, "d", "e", "f", "g"]
        verdicts = load_reward(f"{file}:{name}", QUICK).many([Call("p", (s,)) for s in said])
        assert [v.score for v in verdicts] == [1.0] * 3 + [None] + [1.0] * 4, name


def test_signals_prints_and_input_belong_to_the_worker(file):
    """By hand: alarms work as in a main thread, prints and reads do not get between jobs and answers."""
    reward = load_reward(f"{file}:reward", QUICK)
    assert [reward("p", said).score for said in ("alarm", "print", "read", "x")] == [0.5, 1.0, 0.0, 1.0]
    assert reward("p", "pid").score != os.getpid()


def test_what_a_killed_function_started_is_ended_too(file, tmp_path):
    """Oracle: the system: the child's process is gone. Kills killing the worker alone."""
    note = tmp_path / "pid"
    verdict = load_reward(f"{file}:reward", QUICK)("p", "child", {"note": str(note)})
    assert verdict.status == "grader_error"
    pid = int(note.read_text())
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} runs on")


def test_a_file_may_import_what_lies_beside_it(tmp_path):
    """By hand: here and in the worker."""
    (tmp_path / "helper_of_mine.py").write_text("WORTH = 0.25\n")
    path = tmp_path / "uses.py"
    path.write_text("import helper_of_mine\ndef f(completion):\n    return helper_of_mine.WORTH\n")
    verdict = load_reward(f"{path}:f", QUICK)("p", "c")
    assert (verdict.score, verdict.settings["isolation"]) == (0.25, "process")


def test_an_edited_file_is_loaded_again(file, tmp_path):
    """By hand: workers stay warm between rewards, and do not keep an old version of the file."""
    path = tmp_path / "one.py"
    path.write_text("def f(completion):\n    return 1.0\n")
    assert load_reward(f"{path}:f", QUICK)("p", "c").score == 1.0
    path.write_text("def f(completion):\n    return 22.0\n")
    os.utime(path, ns=(1, 1))
    assert load_reward(f"{path}:f", QUICK)("p", "c").score == 22.0


def test_threads_are_for_what_no_process_can_import():
    """By hand: a closure runs here; it may exit and hang as well, and a process for it is refused."""
    seen = []

    def closure(completion):
        seen.append(completion)
        if completion == "exit":
            raise SystemExit(3)
        time.sleep(3 if completion == "hang" else 0)
        return 1.0

    reward = load_reward(closure, RewardSettings(timeout_s=0.3))
    verdicts = [reward("p", said) for said in ("a", "exit", "hang", "b")]
    assert [v.score for v in verdicts] == [1.0, None, None, 1.0] and seen == ["a", "exit", "hang", "b"]
    assert "SystemExit" in verdicts[1].detail and "thread was given up" in verdicts[2].detail
    assert verdicts[0].settings["isolation"] == "thread"
    with pytest.raises(ConfigError, match="another process"):
        load_reward(closure, RewardSettings(isolation="process"))


def test_functions_of_a_package_run_in_a_process():
    """By hand: what pickles by name needs no file; the verdict says where it ran."""
    reward = load_reward(brief, RewardSettings(timeout_s=20, workers=1, memory_mb=4000))
    verdict = reward("p", "four")
    assert (verdict.score, verdict.settings["isolation"]) == (4.0, "process")


def brief(completion):
    return float(len(completion))


def test_weights_and_several_in_one_text(file):
    """By hand: 1·0.5 + 10·2 = 20.5; each own number is kept as it was; wrong names are refused."""
    settings = RewardSettings(timeout_s=20, workers=1, memory_mb=4000, weights={"reward": 0.5, "scaled": 2.0})
    rewards = load_rewards(f"{file}:reward, {file}:scaled", settings)
    verdict = load_task("countdown", reward=rewards).grade("countdown/train/0", None, ["x"], False)
    assert verdict.score == 20.5 and verdict.rewards == {"reward": 1.0, "scaled": 10.0}
    assert verdict.settings["reward:scaled.isolation"] == "process"
    with pytest.raises(ConfigError, match=r"weights\.rewrd"):
        load_rewards(f"{file}:reward", RewardSettings(weights={"rewrd": 1.0}))
    with pytest.raises(ConfigError, match="differ"):
        load_rewards(f"{file}:reward,{file}:reward")


def test_a_file_that_exits_while_it_is_loaded(tmp_path):
    """Oracle: the error tree; kills an exit that ends the command without a word."""
    (tmp_path / "bad.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(ConfigError, match="SystemExit"):
        load_reward(f"{tmp_path / 'bad.py'}:f")
