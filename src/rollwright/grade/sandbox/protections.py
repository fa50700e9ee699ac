"""Which protections are on, in words."""

from __future__ import annotations

from typing import Any

from rollwright.grade.sandbox import seccomp
from rollwright.grade.sandbox.landlock import SIGNALS_SINCE
from rollwright.grade.sandbox.program import Protection

NAMES = (
    "time", "output", "memory", "processes", "files",
    "network", "filesystem", "signals", "privileges", "system calls", "cleanup",
)  # fmt: skip


def describe(has_namespaces: bool, facts: dict[str, Any], refusal: str) -> dict[str, Protection]:
    """Return every protection by name.

    Args:
        has_namespaces: the slots run in namespaces.
        facts: what the zygote found: ``uid``, and whether the user is private.
        refusal: why there are no namespaces.
    """
    watched = bool(facts["can_watch"])
    filtered, is_private = seccomp.is_known(), bool(facts["is_private"])
    no_filter = "no filter of system calls for this processor"
    no_namespaces = f"no namespaces ({refusal})"
    user = f"an own user ({facts['uid']})"
    found = {
        "time": Protection(True, "the parent's clock; processor time by the kernel"),
        "output": Protection(True, "counted by the parent"),
        "memory": Protection(
            True, "address space of each process, by the kernel" + "; all together" * watched
        ),
        "processes": Protection(True, "the kernel's limit for the user" + ", and counted" * watched),
        "files": Protection(
            True, "a private file system of fixed size" if has_namespaces else "the size of each file only"
        ),
        "filesystem": Protection(True, "only the system and the interpreter are seen, read-only"),
        "signals": Protection(True, "an own process namespace"),
        "cleanup": Protection(True, "the kernel kills the process namespace"),
        "privileges": Protection(True, f"{user}, " * is_private + "no capabilities, no new privileges"),
        "system calls": Protection(filtered, "seccomp" if filtered else no_filter),
    }
    if has_namespaces:
        how = "an empty network namespace" + ", no sockets but local ones" * filtered
        found["network"] = Protection(True, how)
    else:
        how = "no sockets, by seccomp" if filtered else f"{no_namespaces}; {no_filter}"
        found["network"] = Protection(filtered, how)
        found["filesystem"] = _files(facts, no_namespaces)
        found["signals"] = _signals(facts, user, filtered, no_namespaces)
        how = "all processes of the user are killed" if is_private else "all descendants are found and killed"
        found["cleanup"] = Protection(True, how)
    return {name: found[name] for name in NAMES}


def _files(facts: dict[str, Any], no_namespaces: str) -> Protection:
    if facts["landlock"]:
        return Protection(True, "only the system and the interpreter can be read, by Landlock")
    return Protection(False, f"{no_namespaces}, no Landlock; what user {facts['uid']} may read can be read")


def _signals(facts: dict[str, Any], user: str, filtered: bool, no_namespaces: str) -> Protection:
    if facts["is_private"]:
        return Protection(True, f"{user} may signal nobody else")
    if facts["landlock"] >= SIGNALS_SINCE:
        return Protection(True, "own descendants only, by Landlock")
    if filtered:
        return Protection(True, "the process itself only, by seccomp")
    return Protection(False, f"{no_namespaces}; programs run as the same user as we do")
