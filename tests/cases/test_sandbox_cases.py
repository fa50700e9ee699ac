"""Real cases of running programs: what other sandboxes and graders did wrong. Oracle: worked out by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rollwright.grade.code import CallTest, CodeSettings, StdinTest, Test, grade, grade_async, grade_code
from rollwright.grade.sandbox.pool import Sandbox
from rollwright.grade.sandbox.processes import descendants
from rollwright.grade.sandbox.program import Ending, Limits, Program
from rollwright.grade.sandbox.slot import Lost, Slot
from rollwright.grade.verdict import Verdict

OWN = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "own_sandbox_cases.jsonl").read_text().splitlines())
}
SPECIAL = {"Y14", "Y16", "Y17", "Y18", "Y19", "Y20"}
OURS = {"passed": "right", "no_tests": "bad_data"}  # the case file's words, and ours


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(5) as sandbox:
        sandbox.warm()
        yield sandbox


def make_test(test: dict[str, Any]) -> Test:
    if "function" in test:
        return CallTest(test["function"], tuple(test["args"]), test["expected"])
    return StdinTest(**test)


def graded(case: dict[str, Any], sandbox: Sandbox) -> Verdict:
    given = case["input"]
    tests = [make_test(test) for test in given["tests"]]
    settings = CodeSettings(**given.get("settings", {}))
    limits = Limits(**given["limits"]) if "limits" in given else None
    if "response" in given:
        return grade(given["response"], tests, sandbox=sandbox, limits=limits, settings=settings)
    return grade_code(given["code"], tests, sandbox=sandbox, limits=limits, settings=settings)


def pids_of(command: str) -> list[int]:
    """Return the processes of the whole machine with this command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() == command:
                found.append(int(path.parent.name))
    return found


async def side_by_side(
    items: list[tuple[str, StdinTest, float]], sandbox: Sandbox
) -> tuple[list[Verdict], float, float]:
    """Grade (code, test, time) at once; return verdicts, seconds, and the event loop's longest delay."""
    delays, start = [0.0], time.monotonic()

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            delays.append(time.monotonic() - before - 0.01)

    watcher = asyncio.create_task(watch())
    jobs = [
        grade_async(f"```python\n{code}\n```", [test], sandbox=sandbox, limits=Limits(timeout_s=seconds))
        for code, test, seconds in items
    ]
    verdicts = await asyncio.gather(*jobs)
    watcher.cancel()
    assert len(delays) > 20
    return verdicts, time.monotonic() - start, max(delays)


def test_x01_a_busy_loop_holds_nobody_up(sandbox: Sandbox) -> None:
    """Case X01 (verl#288), exact: the loop ends by timeout, 99 others pass, the event loop is never late.

    3 s and 0.2 s hold where the 99 alone take at most a second. Where the machine is too busy even for
    those, it may take as much longer as they do.
    """
    quick = [("print(int(input()) + 1)", StdinTest(f"{k}", f"{k + 1}"), 60.0) for k in range(99)]
    loop = ("while True:\n    pass", StdinTest("", ""), 1.0)
    _, alone, late = asyncio.run(side_by_side(quick, sandbox))
    verdicts, wall, latest = asyncio.run(side_by_side([loop, *quick], sandbox))
    assert (verdicts[0].status, verdicts[0].score) == ("timeout", 0.0)
    assert sum(verdict.score == 1.0 for verdict in verdicts[1:]) == 99
    assert wall < 3.0 * max(1.0, alone)
    assert latest < 0.2 * max(1.0, 2 * late / 0.2)


def test_x02_nothing_outlives_its_program(sandbox: Sandbox) -> None:
    """Case X02 (rllm#915), exact: 20 timeouts, each with a grandchild; no process and no zombie is left."""
    code = "import subprocess,time\nsubprocess.Popen(['sleep','60'])\ntime.sleep(60)"
    before, sleepers = set(descendants(os.getpid())), set(pids_of("sleep 60"))
    outcomes = sandbox.map([Program(code)] * 20, Limits(timeout_s=1.0))
    assert [outcome.ending for outcome in outcomes] == [Ending.TIMEOUT] * 20
    assert set(descendants(os.getpid())) == before
    assert set(pids_of("sleep 60")) <= sleepers, "one that found another parent"


def test_x03_no_verdict_without_evidence(sandbox: Sandbox) -> None:
    """Case X03 (verl#7853), exact: swallowed errors, two ways to leave early, a true pass, no tests."""
    programs = [
        ("def solve(x): raise ValueError('no')", [CallTest("solve", ("1",), "")]),
        ("import os; os._exit(0)", [CallTest("solve", ("1",), "")] * 3),
        ("import sys; sys.exit(0)", [CallTest("solve", ("1",), "")] * 3),
        ("def solve(x): return ''", [CallTest("solve", ("1",), "")]),
        ("def solve(x): return x", []),
    ]
    verdicts = [grade_code(code, tests, sandbox=sandbox) for code, tests in programs]
    assert [verdict.score for verdict in verdicts] == [0.0, 0.0, 0.0, 1.0, None]
    words = ["runtime_error", "no_verdict", "no_verdict", "passed", "no_tests"]
    assert [verdict.status for verdict in verdicts] == [OURS.get(word, word) for word in words]
    assert verdicts[4].detail == "no tests"
    silent = [grade_code(code, [StdinTest("1", "")], sandbox=sandbox) for code, _ in programs[1:2]]
    assert [(one.score, one.status) for one in silent] == [(0.0, "no_verdict")], "silence equals no output"


def test_own_cases_are_what_they_say() -> None:
    """By hand: at least fifteen, each with all fields."""
    fields = {"id", "ref", "kind", "severity", "check", "symptom", "input", "expected", "why"}
    assert len(OWN) >= 15 and all(set(case) == fields for case in OWN.values())


@pytest.mark.parametrize("name", sorted(set(OWN) - SPECIAL))
def test_own_cases(name: str, sandbox: Sandbox) -> None:
    """Cases Y01 to Y21 (own_sandbox_cases.jsonl): score and status as worked out by hand."""
    verdict = graded(OWN[name], sandbox)
    assert (verdict.score, verdict.status) == (
        OWN[name]["expected"]["score"],
        OWN[name]["expected"]["status"],
    )


def test_y12_exact_comparison_is_exact(sandbox: Sandbox) -> None:
    """Case Y12 (judge0#30): the same output is wrong where white space was asked for."""
    given = OWN["Y12"]["input"]
    tests = [make_test(test) for test in given["tests"]]
    verdict = grade_code(given["code"], tests, sandbox=sandbox, settings=CodeSettings(compare="exact"))
    assert verdict.status == "wrong"


def test_y14_from_another_thread(sandbox: Sandbox) -> None:
    """Case Y14 (code-r1#10), exact."""
    with ThreadPoolExecutor(1) as threads:
        verdict = threads.submit(graded, OWN["Y14"], sandbox).result()
    assert (verdict.score, verdict.status) == (1.0, "right")


def test_y16_the_parent_holds_no_more_than_the_limit(sandbox: Sandbox) -> None:
    """Case Y16 (snekbox#81), exact; the parent's highest memory before and after."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    verdict = graded(OWN["Y16"], sandbox)
    assert (verdict.score, verdict.status) == (0.0, "limit_hit")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < OWN["Y16"]["expected"]["parent_grows_mb_max"]


def test_y17_over_the_limit_is_said(sandbox: Sandbox) -> None:
    """Case Y17 (inspect_ai#4778), exact: one byte more than the limit is another ending."""
    given, right = OWN["Y17"]["input"], OWN["Y17"]["expected"]
    programs = [Program(f"import sys; sys.stdout.write('x' * {size})") for size in given["sizes"]]
    outcomes = sandbox.map(programs, Limits(output_kb=given["output_kb"]))
    assert [outcome.ending for outcome in outcomes] == right["endings"]
    assert [len(outcome.stdout) for outcome in outcomes] == right["lengths"]


def test_y18_classes_lead_nowhere(sandbox: Sandbox, tmp_path: Path) -> None:
    """Case Y18 (deepeval#3011): the call to the shell works, in a world without the host's folder."""
    target = tmp_path / "escaped"
    target.parent.chmod(0o777)
    outcome = sandbox.run(Program(OWN["Y18"]["input"]["code"].replace("{target}", str(target))))
    assert outcome.ending is Ending.DONE and outcome.stdout == "False\n"
    assert not target.exists()


def test_y19_our_failure_is_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case Y19 (NeMo Gym#2015): a slot whose process dies under every program gives no score."""

    def lost(self: Slot, job: dict[str, Any], fds: list[int]) -> None:
        self.process.kill()
        raise Lost("killed")

    with Sandbox(1) as sandbox:
        monkeypatch.setattr(Slot, "_send", lost)
        verdict = graded(OWN["Y19"], sandbox)
        assert (verdict.score, verdict.status) == (None, "infrastructure_error")
        monkeypatch.undo()
        assert graded(OWN["Y19"], sandbox).score == 1.0, "and the sandbox lives on"


def test_y20_no_folder_is_left() -> None:
    """Case Y20 (agent-os#1154): the folders for temporary files before and after, whatever the endings."""

    def folders() -> set[str]:
        return {path.name for path in Path(tempfile.gettempdir()).glob(f"rollwright-sandbox-{os.getpid()}-*")}

    given, before = OWN["Y20"]["input"], folders()
    with Sandbox(1, Limits(timeout_s=given["timeout_s"])) as sandbox:
        outcomes = sandbox.map([Program(code) for code in given["codes"]])
        own = folders() - before
    assert [str(outcome.ending) for outcome in outcomes] == ["done", "raised", "exited", "timeout", "output"]
    assert own and not folders() & own
