"""The filter of system calls. Oracle: a slow reference that says of each call whether it may pass."""

from __future__ import annotations

import os
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwright.grade.sandbox import landlock, seccomp

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x50026
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PID = 4321


def run(code: list[seccomp.Instruction], arch: int, number: int, argument: int) -> int:
    """Interpret a filter as the kernel does (classic BPF: load, jumps, return)."""
    words, at, value = {0: number, 4: arch, 16: argument & 0xFFFFFFFF}, 0, 0
    while True:
        kind, if_true, if_false, operand = code[at]
        at += 1
        if kind == 0x20:
            value = words[operand]
        elif kind == 0x06:
            return operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[kind]
            at += if_true if holds else if_false


def right(machine: str, number: int, argument: int, local: bool, own: bool, signals: bool) -> int:
    """Say what must become of a call: the reference."""
    column = list(MACHINES).index(machine)
    names = {numbers[column]: name for name, numbers in seccomp._REFUSED.items()}
    of_processes = {numbers[column] for numbers in seccomp._OF_PROCESSES.values()}
    kills = {numbers[column] for numbers in seccomp._SIGNALS.values()}
    queued = {numbers[column] for numbers in seccomp._QUEUED.values()}
    if number >= 0x40000000:
        return KILL
    if number in names or (own and number == seccomp._SETPRIORITY[column]):
        return EPERM
    if own and not signals and number in queued:
        return EPERM
    if own and (number in of_processes or (number in kills and not signals)):
        return ALLOW if argument in (0, PID) else EPERM
    if number == 435:
        return ENOSYS
    if number == seccomp._CLONE[column]:
        return EPERM if argument & 0x7E020000 else ALLOW
    if number == seccomp._SOCKET[column]:
        return ALLOW if local and argument == 1 else EPERM
    return ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(("own", "signals"), [(False, True), (True, True), (True, False)])
def test_the_filter_equals_the_reference(
    machine: str, local: bool, own: bool, signals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow reference: every call of both processors, telling arguments. Kills: a jump that is one off."""
    monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(machine=machine))
    code = seccomp.program(local, PID if own else None, signals)
    for number in [*range(470), 0x3FFFFFFF, 0x40000000, 0x40000029]:
        for argument in (0, 1, 2, 17, PID, PID + 1, 0x10000000, 0x00020011, 0x7E020000, 0xFFFFFFFF):
            expected = right(machine, number, argument, local, own, signals)
            assert run(code, MACHINES[machine], number, argument) == expected, (number, argument)
    assert run(code, 0x40000003, 1, 0) == KILL, "another processor's numbers"


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_it_always_ends(number: int, argument: int) -> None:
    """Property: every path ends in a return within the program."""
    code = seccomp.program(False, PID, False)
    assert run(code, MACHINES[os.uname().machine], number, argument) in (ALLOW, KILL, EPERM, ENOSYS)


def test_numbers_are_each_their_own() -> None:
    """By hand: no call stands twice in a column, which would hide a slip of the pen."""
    tables = (seccomp._REFUSED, seccomp._OF_PROCESSES, seccomp._SIGNALS, seccomp._QUEUED)
    for column in (0, 1):
        numbers = [pair[column] for table in tables for pair in table.values()]
        assert len(set(numbers)) == len(numbers)
    assert landlock.version() >= 0
