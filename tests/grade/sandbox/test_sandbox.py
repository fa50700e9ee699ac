"""The sandbox from outside: what it runs, refuses and replaces. Oracle: by hand, and the system."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rollwright.errors import ConfigError
from rollwright.grade.sandbox import pool as pool_module
from rollwright.grade.sandbox import root
from rollwright.grade.sandbox.pool import Sandbox, shared_sandbox
from rollwright.grade.sandbox.processes import descendants
from rollwright.grade.sandbox.program import Call, Ending, Limits, Outcome, Program
from rollwright.grade.sandbox.protections import NAMES


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(2, Limits(timeout_s=10)) as sandbox:
        yield sandbox


def called(sandbox: Sandbox, code: str, *args: object, function: str = "solve", **kwargs: object) -> Outcome:
    return sandbox.run(Program(code, call=Call(function, args, kwargs)))


def test_streams_are_apart(sandbox: Sandbox) -> None:
    """By hand: input, output, errors and the value each take their own way, whatever is printed."""
    code = "import sys\nprint('{\"kind\": \"value\"}')\nprint('oh', file=sys.stderr)\n"
    outcome = called(sandbox, code + "def solve(x): print(x); return x + 1", 1)
    assert (outcome.ending, outcome.value, outcome.exit_code) == (Ending.DONE, 2, 0)
    assert outcome.stdout == "" or '"kind"' in outcome.stdout
    outcome = sandbox.run(Program(code + "print(input()[::-1])", stdin="abc\n"))
    assert outcome.stdout.splitlines()[1] == "cba" and outcome.stderr == "oh\n"


def test_large_input_and_odd_text(sandbox: Sandbox) -> None:
    """By hand: 3 MB in, counted; characters beyond ASCII, half a character and bytes that are no text."""
    text = "ä€😀\ud800\n" * 300_000
    outcome = sandbox.run(Program("import sys; print(len(sys.stdin.buffer.read()))", stdin=text))
    assert int(outcome.stdout) == len(text.encode("utf-8", "surrogatepass"))
    outcome = sandbox.run(Program("import sys; sys.stdout.buffer.write(b'\\xff\\xfe'); print('é')"))
    assert (outcome.ending, outcome.stdout) == (Ending.DONE, "��é\n")


def test_what_can_be_called(sandbox: Sandbox) -> None:
    """By hand: a function, keywords, a method of an instance, a file beside the program; else an error."""
    assert called(sandbox, "def solve(a, *, b): return a - b", 5, b=3).value == 2
    code = "class Solution:\n    k = 3\n    def add(self, x): return x + self.k"
    assert called(sandbox, code, 4, function="Solution.add").value == 7
    files = {"pack/__init__.py": "", "pack/one.py": "def f(x): return x * 2", "data.txt": "7"}
    program = Program("", call=Call("pack.one:f", (4,)), files=files)
    assert sandbox.run(program).value == 8
    assert sandbox.run(Program("print(open('data.txt').read())", files=files)).stdout == "7\n"
    missing = called(sandbox, "x = 1")
    assert missing.ending is Ending.RAISED and "defines no 'solve'" in missing.detail
    assert called(sandbox, "def solve(: pass").ending is Ending.RAISED


def test_forged_results_do_not_count(sandbox: Sandbox) -> None:
    """By hand: a value that is sent before the number is known, or with another one, is none."""
    send = (
        "import json, os, struct\ndef send(m):\n    d = json.dumps(m).encode()\n"
        "    os.write(3, struct.pack('<I', len(d)) + d)\n"
    )
    early = send + "send({'kind': 'value', 'number': '', 'value': True})\ndef solve(): return False"
    assert called(sandbox, early).ending is Ending.EXITED
    guess = send + "def solve():\n    send({'kind': 'value', 'number': 'abc', 'value': True}); return False"
    assert called(sandbox, guess).ending is Ending.EXITED
    done = send + "send({'kind': 'done'})\ndef solve(): return False"
    assert called(sandbox, done).ending is Ending.EXITED
    twice = send + "send({'kind': 'begin'})\nsend({'kind': 'loaded'})\ndef solve(): return 5"
    assert called(sandbox, twice).ending is Ending.EXITED, "it spoke in the harness's place"
    assert called(sandbox, send + "def solve(): return 5").value == 5


@pytest.mark.parametrize(
    "noise",
    [
        "b'\\xff\\xff\\xff\\xff'",
        "b'\\x02\\x00\\x00\\x00{]'",
        "b'\\x02\\x00\\x00\\x0042'",
        "b'\\x00\\x00\\x0f\\x00' + b'[' * 983040",
        "b'\\x04\\x00\\x00\\x00\\xff\\xfe\\xfd\\xfc'",
    ],
)
def test_noise_on_the_channel(sandbox: Sandbox, noise: str) -> None:
    """By hand: a huge length, no JSON, no object, deep nesting, no text: an ending, and the next one runs."""
    code = f"import os, time\nos.set_blocking(3, True)\nos.write(3, {noise})\ntime.sleep(20)\n"
    assert sandbox.run(Program(code), Limits(timeout_s=5)).ending is Ending.EXITED
    assert sandbox.run(Program("print(1)")).stdout == "1\n"


def test_the_end_of_a_program_is_pythons(sandbox: Sandbox) -> None:
    """Oracle: Python's own order at exit: threads first, then exit handlers, then what is left to write."""
    code = (
        "import atexit, threading, time\natexit.register(print, 'handler')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')"
    )
    outcome = sandbox.run(Program(code))
    real = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (outcome.ending, outcome.stdout) == (Ending.DONE, real.stdout)


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("import atexit\ndef f():\n    while True: pass\natexit.register(f)", Ending.TIMEOUT),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()", Ending.TIMEOUT),
        ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()", None),
        ("def f(): return f()\nf()", Ending.RAISED),
        ("class E(BaseException):\n    def __str__(self): raise E\nraise E", Ending.RAISED),
        ("import sys\nsys.stdout.close()", Ending.DONE),
        ("import sys\nsys.stdout = None\nsys.stderr = None", Ending.DONE),
        ("import os\nif os.fork() == 0: print('child')\nelse:\n    os.wait(); print('parent')", Ending.DONE),
        ("import sys; sys.exit('bad')", Ending.EXITED),
        ("raise SystemExit(256)", Ending.EXITED),
    ],
)
def test_odd_ends(sandbox: Sandbox, code: str, ending: Ending | None) -> None:
    """By hand; endless recursion may end by several limits, but not by our failure."""
    outcome = sandbox.run(Program(code), Limits(timeout_s=1.5))
    if ending is None:
        assert outcome.ending in (Ending.MEMORY, Ending.CRASHED, Ending.RAISED, Ending.TIMEOUT)
    else:
        assert outcome.ending is ending, outcome


def test_the_same_program_gives_the_same_output(sandbox: Sandbox) -> None:
    """Metamorphic: the order of a set of words does not depend on the slot."""
    code = "print({str(k) for k in range(50)}, hash('x'))"
    assert len({outcome.stdout for outcome in sandbox.map([Program(code)] * 8)}) == 1


def test_shared_pages_count_once(sandbox: Sandbox) -> None:
    """By hand: 20 forks of a process of 60 MB hold no more than it, until they write to their pages."""
    head = "import os, time\nx = bytearray(60_000_000)\nfor _ in range(20):\n    if os.fork() == 0:\n"
    tail = "        time.sleep(0.4); os._exit(0)\ntime.sleep(0.3); print('well')"
    limits = Limits(timeout_s=20, memory_mb=256)
    assert sandbox.run(Program(head + tail), limits).stdout == "well\n"
    written = head + "        x[::4096] = x[::4096]\n" + "        time.sleep(30)\ntime.sleep(30)"
    assert sandbox.run(Program(written), limits).ending is Ending.MEMORY


def test_order_and_slots(sandbox: Sandbox) -> None:
    """By hand: outcomes come in the order of the programs, though the first one is the slowest."""
    codes = ["import time; time.sleep(0.5); print(0)", *(f"print({k})" for k in range(1, 9))]
    outcomes = sandbox.map([Program(code) for code in codes])
    assert [int(outcome.stdout) for outcome in outcomes] == list(range(9))


def test_async_runs_side_by_side(sandbox: Sandbox) -> None:
    """By hand: two sleeping programs take the time of one; only the wait is shared, so times stay loose."""

    async def both() -> float:
        start = time.monotonic()
        program = Program("import time; time.sleep(1)")
        await asyncio.gather(sandbox.run_async(program), sandbox.run_async(program))
        return time.monotonic() - start

    assert 1.0 <= asyncio.run(both()) < 1.9


def test_environment_and_files_are_empty(sandbox: Sandbox) -> None:
    """By hand: nothing of our environment, and an empty folder, also for the next program in the slot."""
    os.environ["ROLLWRIGHT_SECRET"] = "s"
    try:
        code = "import os; print(sorted(os.environ), os.listdir()); open('left', 'w').write('x')"
        outcomes = [sandbox.run(Program(code)) for _ in range(4)]
    finally:
        del os.environ["ROLLWRIGHT_SECRET"]
    has_own_tmp = sandbox.protections()["signals"].is_on
    # The interpreter is shown there if it lies below /tmp.
    shown = sorted({path.parts[2] for path in root.below_tmp()}) if has_own_tmp else []
    assert all("SECRET" not in one.stdout and one.stdout.endswith(f"{shown}\n") for one in outcomes)


def test_a_lost_slot_is_replaced() -> None:
    """By hand: a slot's process is killed from outside, idle and at work; programs still give results."""
    with Sandbox(1) as sandbox:
        [slot] = sandbox._slots
        slot.process.kill()
        slot.process.wait()
        assert sandbox.run(Program("print(1)")).stdout == "1\n"
        [slot] = sandbox._slots
        future = sandbox.submit(sandbox.run, Program("import time; time.sleep(1); print(2)"))
        time.sleep(0.5)
        slot.process.kill()
        assert future.result(30).stdout == "2\n"
        assert sandbox.num_alive == 1


def test_closing_leaves_nothing() -> None:
    """Oracle: the system: neither processes nor folders, though a program was at work."""
    before = set(descendants(os.getpid()))
    with Sandbox(2) as sandbox:
        future = sandbox.submit(sandbox.run, Program("import time; time.sleep(60)"))
        time.sleep(0.5)
        folders = [slot.folder for slot in sandbox._slots]
        assert len(set(descendants(os.getpid())) - before) > 2
    assert set(descendants(os.getpid())) <= before
    assert not any(folder.exists() for folder in folders)
    assert future.exception(10) or future.result(0).ending is not Ending.DONE
    with pytest.raises(ConfigError, match="closed"):
        sandbox.run(Program("print(1)"))


def test_it_ends_with_its_owner(tmp_path: Path) -> None:
    """Oracle: the system: the owner is killed, so it can clean up nothing; all its processes end."""
    code = (
        "import os, sys, threading, time\nfrom rollwright.grade.sandbox.pool import Sandbox\n"
        "from rollwright.grade.sandbox.processes import descendants\n"
        "from rollwright.grade.sandbox.program import Limits, Program\n"
        "s = Sandbox(1, Limits(timeout_s=90))\n"
        "s.submit(s.run, Program('import os, time\\nif not os.fork(): os.setsid()\\ntime.sleep(90)'))\n"
        "time.sleep(1)\nprint(*descendants(os.getpid()), flush=True)\ntime.sleep(90)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert owner.stdout
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) >= 3
    owner.kill()
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 20
    while time.monotonic() < end and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_protections_are_named_and_can_be_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: a name that is unknown, and a protection that is off, refuse before anything runs."""
    before = set(descendants(os.getpid()))
    with Sandbox(1, require=("time", "network", "cleanup")) as sandbox:
        assert tuple(sandbox.protections()) == NAMES
        json.dumps({name: one.how for name, one in sandbox.protections().items()})
    with pytest.raises(ConfigError, match="netwrok"):
        Sandbox(1, require=("netwrok",))
    true = pool_module.describe

    def off(*args: object) -> dict[str, object]:
        found = true(*args)  # type: ignore[arg-type]
        return {**found, "network": replace(found["network"], is_on=False, how="no such thing")}

    monkeypatch.setattr(pool_module, "describe", off)
    with pytest.raises(ConfigError, match="network: no such thing"):
        Sandbox(1, require=("network",))
    assert set(descendants(os.getpid())) <= before


@pytest.mark.parametrize(
    "bad",
    [{"timeout_s": 0}, {"memory_mb": 10}, {"output_kb": -1}, {"num_open": 3}, {"timeout_s": float("nan")}],
)
def test_limits_that_make_no_sense(bad: dict[str, float]) -> None:
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Limits(**bad)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="slots"):
        Sandbox(0)


def test_packages_and_preload() -> None:
    """By hand: numpy can be imported, hidden, or be there before the program."""
    code = "import sys; print('numpy' in sys.modules); import numpy; print(numpy.arange(3).tolist())"
    with Sandbox(1) as plain:
        assert plain.run(Program(code)).stdout == "False\n[0, 1, 2]\n"
    with Sandbox(1, preload=("numpy",)) as warm:
        assert warm.run(Program(code)).stdout == "True\n[0, 1, 2]\n"
    with Sandbox(1, packages=False) as bare:
        outcome = bare.run(Program(code))
        assert (outcome.ending, "numpy" in outcome.detail) == (Ending.RAISED, True)


def test_the_shared_one_is_one() -> None:
    """By hand: one for the process, made anew after it was closed; signals of ours do not reach it."""
    first = shared_sandbox()
    assert shared_sandbox() is first
    [slot] = first._slots
    assert os.getsid(slot.process.pid) != os.getsid(0), "Ctrl-C goes to a session"
    first.close()
    second = shared_sandbox()
    assert second is not first and second.run(Program("print(3)")).stdout == "3\n"
    second.close()
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    assert Path(tempfile.gettempdir()).is_dir()
