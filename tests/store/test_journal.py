"""The journal survives: kills at any byte, damage, a second writer, a full disk."""

import os
import resource
import signal
import subprocess
import sys
import zlib

import pytest

from rollwright.errors import JournalCorrupt, LawBroken, StoreError
from rollwright.events import Finish, Sampled, Score, Scored, TimerFired
from rollwright.store.journal import Journal, check_replay, cut_before, read

WRITER = """
import sys, time
from rollwright.store.journal import Journal
with Journal.open(sys.argv[1]) as journal:
    print("open", flush=True)
    time.sleep(60)
"""

KILLS = """
import os, random, signal, sys, time
from rollwright.events import Sampled
from rollwright.store.journal import Journal, read

num_kills = int(sys.argv[2])

def write(pipe, seed):
    rng = random.Random(seed)
    if seed % 2:  # the kernel may take a write in parts; here it always does, so that kills fall between
        whole = os.pwrite
        def in_parts(fd, data, offset):
            time.sleep(0.0002)
            return whole(fd, data[:512], offset)
        os.pwrite = in_parts
    with Journal.open(path) as journal:
        number = journal.num_records
        while True:
            for _ in range(rng.randint(1, 4)):
                num = rng.choice([1, 30, 300, 1000])
                logprobs = tuple(-rng.random() for _ in range(num))
                journal.append(Sampled(ask=str(number), tokens=tuple(range(num)), logprobs=logprobs), [])
                number += 1
            journal.flush()
            os.write(pipe, b"%d\\n" % number)

total, rng = 0, random.Random(7)
for seed in range(num_kills):
    if seed % 20 == 0:  # a new journal, before reading the old one takes all the time
        path, total = f"{sys.argv[1]}-{seed}", 0
    ours, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        write(pipe, seed)
    os.close(pipe)
    with open(ours, "rb") as answers:
        first = answers.readline()
        assert first, "the writer must open what the last kill left"
        time.sleep(rng.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        acknowledged = int((first + answers.read()).split()[-1])
    os.waitpid(child, 0)
    names = [event.ask for event, _ in read(path)]
    assert names == [str(number) for number in range(len(names))], "a record is lost or repeated"
    assert len(names) >= acknowledged > total, (len(names), acknowledged, total)
    total = len(names)
"""


def event(number):
    return Scored(ask=str(number), reward=number / 7, status="right", detail="é\nü")


def fill(path, num):
    with Journal.open(path) as journal:
        for number in range(num):
            journal.append(event(number), [Score(ask=str(number), group="g", leaf="x")])


def events_of(path):
    return [found for found, _ in read(path)]


def test_reads_back_what_was_appended(tmp_path):
    """Oracle: the events themselves, in order, over two openings."""
    path = tmp_path / "journal.jsonl"
    fill(path, 5)
    with Journal.open(path) as journal:
        assert (journal.num_records, journal.torn) == (5, None)
        journal.append(TimerFired(timer="t"), [Finish(reason="done")])
        journal.flush()
        assert journal.num_records == 6
        assert len(events_of(path)) == 6, "a reader sees what was flushed while the writer lives"
    assert events_of(path) == [event(number) for number in range(5)] + [TimerFired(timer="t")]
    assert [decisions for _, decisions in read(path)][-1] == b'[{"type":"Finish","reason":"done"}]'


def test_cut_at_every_byte(tmp_path):
    """Enumeration: a crash after any byte leaves exactly the records whose newline was written."""
    path = tmp_path / "journal.jsonl"
    fill(path, 2)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        torn = folder / "journal.jsonl"
        torn.write_bytes(whole[:size])
        num = max(0, whole[:size].count(b"\n") - 1)
        assert events_of(torn) == [event(number) for number in range(num)], "readers pass a torn tail over"
        with Journal.open(torn) as journal:
            rest = whole[whole[:size].rfind(b"\n") + 1 : size]
            assert journal.num_records == num
            assert (journal.torn.num_bytes if journal.torn else 0) == len(rest)
            if journal.torn:
                assert journal.torn.kept_in.read_bytes() == rest
            journal.append(event(num), [])
        assert events_of(torn) == [event(number) for number in range(num + 1)]


def test_damage_before_the_end_is_named(tmp_path):
    """Oracle: the line whose byte was changed; reading, opening and replaying all refuse."""
    path = tmp_path / "journal.jsonl"
    fill(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    for number in range(len(lines)):
        for place in (0, 8, 9, len(lines[number]) // 2, len(lines[number]) - 2):
            line = bytearray(lines[number])
            line[place] ^= 0x15
            path.write_bytes(b"".join([*lines[:number], bytes(line), *lines[number + 1 :]]))
            for attempt in (lambda: Journal.open(path), lambda: list(read(path))):
                with pytest.raises(JournalCorrupt, match=rf"line {number + 1} \(byte \d+\) is damaged"):
                    attempt()
    path.write_bytes(b"".join(lines))
    assert Journal.open(path).num_records == 4, "a refused opening frees the lock"


def test_cut_before_goes_on_from_the_last_whole_record(tmp_path):
    """What the message advises works. Oracle: the records before the damage, the bytes cut off."""
    path = tmp_path / "journal.jsonl"
    fill(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"right", b"wrong")
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalCorrupt, match=r"The 1 records before it.*cut_before\('.*', 3\)"):
        Journal.open(path)
    assert cut_before(path, 3).read_bytes() == b"".join(lines[2:])
    with Journal.open(path) as journal:
        assert journal.num_records == 1
    for line in (1, 9):
        with pytest.raises(StoreError, match="cut"):
            cut_before(path, line)


def test_unknown_versions_and_files_are_refused(tmp_path):
    """Oracle: the message; a newer journal and a foreign file are never appended to."""
    path = tmp_path / "journal.jsonl"
    with pytest.raises(StoreError, match="cannot read the journal"):
        list(read(path))
    path.write_text('{"step": 1}\n')
    with pytest.raises(StoreError, match="line 1"):
        Journal.open(path)
    body = b'{"format": "rollwright-journal", "version": 2}'
    path.write_bytes(b"%08x %b\n" % (zlib.crc32(body), body))
    with pytest.raises(StoreError, match="journal format 2"):
        Journal.open(path)


@pytest.mark.parametrize("num_kills", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_kill_nine_loses_no_acknowledged_record(tmp_path, num_kills):
    """Kill real writers at random moments. Oracle: the count that each had acknowledged."""
    path = tmp_path / "journal.jsonl"
    command = [sys.executable, "-c", KILLS, str(path), str(num_kills)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    num_torn = len(list(tmp_path.glob("journal.jsonl*.torn-*")))
    print(f"{num_torn} of {num_kills} kills tore a record")
    assert num_torn > 0, "no kill fell into a write: the test no longer tests that"


def test_second_writer_is_refused_by_pid(tmp_path):
    """Oracle: the pid of the process that holds the folder; its death frees it."""
    path = tmp_path / "journal.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline()
        with pytest.raises(StoreError, match=f"being written by pid {writer.pid} "):
            Journal.open(path)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    with Journal.open(path), pytest.raises(StoreError, match=f"this process \\(pid {os.getpid()}\\)"):
        Journal.open(path)


def test_orphan_that_holds_the_lock_is_explained(tmp_path):
    """A fork outlives its killed writer and still holds the lock. Oracle: the message."""
    code = (
        "import os, sys, time\n"
        "from rollwright.store.lock import WriterLock\n"
        "lock = WriterLock(sys.argv[1])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(1)\n"
        "    time.sleep(60)\n"
        "os.write(1, b'%d\\n' % child)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, check=True)
    child = int(done.stdout)
    try:
        with pytest.raises(StoreError, match="has ended: a child process"):
            Journal.open(tmp_path / "journal.jsonl")
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.fixture(params=["tmpfs", "rlimit"])
def small_disk(request, tmp_path):
    """A folder in which about 64 kB can be written: a tmpfs, or a limit on the size of files."""
    if request.param == "tmpfs":
        folder = tmp_path / "disk"
        folder.mkdir()
        mounted = os.geteuid() == 0 and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True
        ).returncode == 0  # fmt: skip
        if not mounted:
            pytest.skip("no right to mount a tmpfs; the other parameter covers full files")
        try:
            yield (
                folder,
                lambda: subprocess.run(
                    ["mount", "-o", "remount,size=1m", str(folder)], check=True, capture_output=True
                ),
            )
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
    else:
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, old[1]))
        try:
            yield tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, old)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_full_disk_keeps_whole_records_and_goes_on(small_disk):
    """Fill a real small disk, free space, go on. Oracle: every event, once, in order."""
    folder, free = small_disk
    path = folder / "journal.jsonl"
    long = [Sampled(ask=str(n), tokens=(1,) * 99, logprobs=(-0.123456789,) * 99) for n in range(200)]
    with Journal.open(path) as journal:
        for number, made in enumerate(long):
            journal.append(made, [])
            if number % 7 == 6:
                try:
                    journal.flush()
                except StoreError as error:
                    message = str(error)
                    break
        kept = journal.num_records
        assert f"Kept: {kept} records" in message and "free some space" in message
        assert f"{number + 1 - kept} are in memory" in message
        assert path.read_bytes().endswith(b"\n"), "no half record is left behind"
        assert events_of(path) == long[:kept]
        free()
        for made in long[number + 1 :]:
            journal.append(made, [])
    assert events_of(path) == long


def test_crash_on_a_full_disk_keeps_whole_records(small_disk):
    """The process dies while the disk is full. Oracle: the acknowledged events."""
    folder, free = small_disk
    path = folder / "journal.jsonl"
    journal = Journal.open(path)
    with pytest.raises(StoreError):
        for number in range(10_000):
            journal.append(event(number), [])
            journal.flush()
    acknowledged = journal.num_records
    journal._release()  # as the kernel does when the process dies
    free()
    with Journal.open(path) as again:
        assert again.num_records == acknowledged > 0
    assert events_of(path) == [event(number) for number in range(acknowledged)]


def test_close_on_a_full_disk_says_what_is_lost(small_disk):
    """Oracle: the records in the file; the folder is free for the next writer."""
    path = small_disk[0] / "journal.jsonl"
    journal = Journal.open(path)
    for number in range(2000):
        journal.append(event(number), [])
    with pytest.raises(StoreError, match="never acknowledged") as caught:
        journal.close()
    num = len(events_of(path))
    assert f"Kept: {num} whole records; lost: {2000 - num} that" in str(caught.value)
    with Journal.open(path) as again:
        assert again.num_records == num > 0


def test_closed_journal_says_so(tmp_path):
    """Oracle: the message; nothing is written after close."""
    journal = Journal.open(tmp_path / "journal.jsonl")
    journal.close()
    journal.close()
    journal.append(event(0), [])
    with pytest.raises(StoreError, match="closed"):
        journal.flush()


def test_replay_is_checked_byte_by_byte(tmp_path):
    """Metamorphic: the same decisions replay; one that differs is named with its record."""
    path = tmp_path / "journal.jsonl"
    fill(path, 5)

    def step(found, other=None):
        return [Score(ask="other" if found.ask == other else found.ask, group="g", leaf="x")]

    assert check_replay(path, step) == 5
    with pytest.raises(LawBroken, match=r"record 4 .*Scored.* does not replay.*other"):
        check_replay(path, lambda found: step(found, other="3"))
