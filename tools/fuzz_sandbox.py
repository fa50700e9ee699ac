"""Run random hostile programs in the sandbox: no crash, no hang, no escape, nothing left behind.

python tools/fuzz_sandbox.py [--minutes 10] [--seed 0] [--isolation auto] [--slots 6]

Programs are put together from pieces that fork, start threads, open sockets, write files, signal whom they
can, look through /proc, trace, recurse, print without end and leave by odd ways. After each batch the
machine's processes, descriptors, folders and a file that they try to change are compared with what was there
before. Each broken rule is printed with its program; the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rollwright.grade.sandbox import kernel
from rollwright.grade.sandbox.pool import Isolation, Sandbox
from rollwright.grade.sandbox.processes import descendants
from rollwright.grade.sandbox.program import Call, Ending, Limits, Outcome, Program

TIMEOUT_S = 0.8
SLACK_S = 20.0  # on a busy machine
BATCH = 24
# The word HOST stands for a folder of the machine that every user may write to.
PIECES = """
os.fork()
[os.fork() for _ in range(4)]
os.fork() or (os.setsid(), os.fork(), time.sleep(99))
os.fork() or os.execvp('sleep', ['sleep', '99'])
subprocess.Popen(['sh', '-c', 'sleep 99 & sleep 99'], start_new_session=True)
subprocess.Popen([sys.executable, '-c', 'while True: pass'])
subprocess.run(['sh', '-c', 'kill -9 -1; kill -9 1; kill -9 $PPID'])
threading.Thread(target=time.sleep, args=(99,)).start()
threading.Thread(target=spin, daemon=True).start()
[threading.Thread(target=time.sleep, args=(99,)).start() for _ in range(200)]
socket.create_connection(('1.1.1.1', 80), 1)
socket.socket(socket.AF_INET, socket.SOCK_RAW)
socket.socket(socket.AF_UNIX).connect('/run/docker.sock')
socket.socket(socket.AF_UNIX).bind('\\0rollwright')
socket.create_server(('127.0.0.1', 0))
open('HOST/marker', 'w').write('changed')
open('HOST/new', 'w').write('made')
os.symlink('HOST', 'way-out')
os.remove('HOST/marker')
shutil.rmtree('HOST', ignore_errors=True)
open('/etc/passwd').read()
open('/proc/1/environ').read()
open('/proc/sysrq-trigger', 'w').write('b')
open('/proc/self/oom_score_adj', 'w').write('-1000')
open('/dev/mem', 'rb').read(1)
[open(f'/proc/{p}/mem', 'r+b').write(b'x') for p in os.listdir('/proc') if p.isdigit()]
[os.kill(int(p), 9) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]
os.kill(-1, signal.SIGKILL)
os.kill(os.getppid(), signal.SIGKILL)
os.kill(os.getppid(), signal.SIGSTOP)
os.kill(os.getpid(), random.choice([signal.SIGSTOP, signal.SIGSEGV, signal.SIGTERM, signal.SIGXCPU]))
os.killpg(0, signal.SIGTERM)
[signal.signal(s, signal.SIG_IGN) for s in (2, 3, 13, 15, 17, 24, 25)]
signal.setitimer(signal.ITIMER_REAL, 0.01)
libc.ptrace(16, os.getppid(), 0, 0)
libc.ptrace(0, 0, 0, 0)
libc.unshare(0x10000000)
libc.mount(b'none', b'/', b'tmpfs', 0, None)
libc.chroot(b'.')
libc.prctl(15, b'[kworker/0:1]', 0, 0, 0)
libc.prctl(4, 0, 0, 0, 0)
libc.syscall(435, 0, 0)
libc.syscall(random.randrange(600), 0, 0, 0, 0, 0, 0)
libc.syscall(random.randrange(600), *[random.randrange(-9, 99) for _ in range(6)])
libc.free(ctypes.c_void_p(12345))
ctypes.string_at(random.randrange(2**40))
os.setuid(0)
os.nice(-20)
os.sched_setaffinity(0, {0})
resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999))
resource.setrlimit(resource.RLIMIT_AS, (1 << 16, 1 << 16))
sys.stdout.write('x' * 10**7)
[print('y' * 10**5, file=sys.stderr) for _ in range(100)]
os.write(1, os.urandom(10**5))
os.write(3, os.urandom(random.randrange(200)))
os.write(3, struct.pack('<I', random.randrange(2**32)) + b'{}')
send({'kind': 'value', 'number': '', 'value': 1})
send({'kind': random.choice(['begin', 'loaded', 'done', 'exited', 'raised', 'failed', 'timeout']), 'code': 0})
send({'kind': 'raised', 'limit': 'infrastructure', 'text': 'x' * 10**5, 'line': {}})
os.read(3, 100)
os.closerange(0, random.randrange(9))
os.dup2(1, 3)
os.close(3)
keep.append(bytearray(10**8))
keep.append([0] * 10**7)
mmap.mmap(-1, 10**8).write(b'z' * 10**8)
deep(10**6)
sys.setrecursionlimit(10**8)
eval('(' * 5000 + ')' * 5000)
7 ** 7 ** 8
re.match('(a+)+$', 'a' * 40 + 'b')
[open(f'f{k}', 'wb').write(b'0' * 10**6) for k in range(60)]
[os.makedirs('/'.join(['d' * 100] * k)) for k in range(1, 30)]
os.mkfifo('pipe') or open('pipe')
os.chmod('.', 0)
os.truncate(open('sparse', 'w').name, 10**9)
[keep.append(open('/dev/null')) for _ in range(1000)]
atexit.register(spin)
atexit.register(os.fork)
sys.settrace(lambda *a: None)
sys.modules.clear()
builtins.__dict__.clear()
gc.collect()
[o for o in gc.get_objects() if isinstance(o, dict) and o.clear()]
setattr(sys, random.choice(['stdout', 'stderr', 'stdin', 'exit', 'modules', 'path']), None)
sys.exit(random.choice([0, 1, None, 'text', 10**30, object()]))
os._exit(random.randrange(256))
os.abort()
raise_(random.choice([KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit, StopIteration, Odd]))
multiprocessing.Pool(2).map(abs, range(4))
asyncio.run(asyncio.sleep(0.01))
os.posix_spawn('/bin/sh', ['sh', '-c', 'while :; do :; done'], {})
os.memfd_create('x') and os.truncate(os.memfd_create('y'), 10**12)
os.environ.clear() or os.putenv('LD_PRELOAD', '/tmp/x.so')
spin()
time.sleep(99)
""".strip().splitlines()
HEAD = """
import asyncio, atexit, builtins, ctypes, gc, json, mmap, multiprocessing, os, random, re, resource, shutil
import signal, socket, struct, subprocess, sys, threading, time
random.seed(SEED)
libc, keep = ctypes.CDLL(None), []
class Odd(BaseException):
    def __str__(self): raise Odd
    __repr__ = __str__
def spin():
    while True: pass
def deep(n): return n and deep(n - 1)
def raise_(kind): raise kind
def send(message):
    data = json.dumps(message).encode()
    os.write(3, struct.pack('<I', len(data)) + data)
"""


def hostile(rng: random.Random, host: Path) -> Program:
    """Return up to six pieces, each guarded or not, as a program or behind a call."""
    lines = []
    for piece in rng.sample(PIECES, rng.randint(1, 6)):
        piece = piece.replace("HOST", str(host))
        guard = rng.random() < 0.6
        lines.append(f"try: {piece}\nexcept BaseException: pass" if guard else piece)
    body, head = "\n".join(lines), HEAD.replace("SEED", str(rng.randrange(10**6)))
    if rng.random() < 0.5:
        return Program(head + body)
    indented = "\n".join("    " + line for line in body.splitlines())
    return Program(f"{head}def solve(x):\n{indented}\n    return x + 1", call=Call("solve", (41,)))


class Watch:
    """What must be the same after a batch as before."""

    def __init__(self, host: Path) -> None:
        self.marker = host / "marker"
        self.marker.write_text("as it was")
        self.marker.chmod(0o666)
        self.host = host

    def changed(self, num_own: int, num_fds: int) -> list[str]:
        """Return the rules that are broken now."""
        found = []
        if not self.marker.is_file() or self.marker.read_text() != "as it was":
            found.append("a file of the machine was changed")
        if extra := sorted(path.name for path in self.host.iterdir() if path.name != "marker"):
            found.append(f"files were made on the machine: {extra}")
        if left := settled(num_own):
            found.append(f"processes are left: {left}")
        if (now := len(os.listdir("/proc/self/fd"))) > num_fds:  # noqa: PTH208
            found.append(f"{now - num_fds} descriptors are left open")
        return found


def settled(num_own: int) -> list[str]:
    """Return our descendants if there are more than the slots' own, once those that are going had time to."""
    for _ in range(50):
        found = descendants(os.getpid())
        if len(found) <= num_own:
            return []
        time.sleep(0.1)
    return [f"{pid} {name_of(pid)}" for pid in found]


def name_of(pid: int) -> str:
    """Return a process's command line, or what is left of it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
    except OSError:
        return "gone"


def broken_rule(program: Program, outcome: Outcome, is_slow: bool) -> str | None:
    """Return which rule an outcome breaks."""
    if outcome.ending is Ending.INFRASTRUCTURE:
        return f"our side failed: {outcome.detail}"
    if is_slow or outcome.wall_s > TIMEOUT_S + SLACK_S:
        return f"took {outcome.wall_s:.1f} s"
    if program.call and outcome.ending is Ending.DONE and outcome.value != 42:
        return f"a forged value counted: {outcome.value!r}"
    if max(len(outcome.stdout), len(outcome.stderr)) > 64 << 10:
        return "more output than the limit"
    return None


def main() -> int:
    """Run until the time is up; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--isolation", choices=["auto", "namespaces", "plain"], default="auto")
    args = parser.parse_args()
    rng, counts, isolation = random.Random(args.seed), Counter[str](), args.isolation
    findings, start = 0, time.monotonic()
    kernel.adopt_orphans()  # whatever gets away becomes a child of this process, and is seen
    with tempfile.TemporaryDirectory() as host:
        Path(host).chmod(0o777)
        findings = fuzz(rng, Path(host), isolation, args.slots, start + 60 * args.minutes, counts)
    folders = list(Path(tempfile.gettempdir()).glob(f"rollwright-sandbox-{os.getpid()}-*"))
    if folders or descendants(os.getpid()):
        findings += 1
        print(f"left at the end: {folders}, {descendants(os.getpid())}")
    total = sum(counts.values())
    endings = ", ".join(f"{name} {num:,}" for name, num in counts.most_common())
    print(f"{total:,} programs, {findings} findings, {args.minutes:g} minutes, seed {args.seed}: {endings}")
    return 1 if findings else 0


def fuzz(
    rng: random.Random, host: Path, isolation: Isolation, slots: int, end: float, counts: Counter[str]
) -> int:
    """Run batches until the time is up; return how many rules were broken."""
    findings, watch = 0, Watch(host)
    limits = Limits(TIMEOUT_S, memory_mb=256, output_kb=64, num_processes=24, file_mb=16)
    with Sandbox(slots, limits, isolation) as sandbox:
        sandbox.warm()
        sandbox.map([Program("pass")] * slots)
        num_own, num_fds = len(descendants(os.getpid())), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        while time.monotonic() < end:
            batch = [hostile(rng, host) for _ in range(BATCH)]
            began = time.monotonic()
            outcomes = sandbox.map(batch)
            is_slow = time.monotonic() - began > BATCH * (TIMEOUT_S + SLACK_S)
            for program, outcome in zip(batch, outcomes, strict=True):
                counts[str(outcome.ending)] += 1
                if rule := broken_rule(program, outcome, is_slow):
                    findings += 1
                    print(f"{rule}\n{program.code[len(HEAD) :]}\n", flush=True)
            for rule in watch.changed(num_own, num_fds):
                findings += 1
                print(
                    f"{rule}, after one of:", *(p.code[len(HEAD) :] for p in batch), sep="\n---\n", flush=True
                )
                num_own = max(num_own, len(descendants(os.getpid())))
            if sandbox.run(Program("print(6 * 7)")).stdout != "42\n":
                findings += 1
                print("a plain program does not run any more", flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())
