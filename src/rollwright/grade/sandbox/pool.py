"""A sandbox: warm slots that run programs, from threads or from an event loop."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from rollwright.errors import ConfigError, GraderError
from rollwright.grade.sandbox.program import Ending, Limits, Outcome, Program, Protection
from rollwright.grade.sandbox.protections import NAMES, describe
from rollwright.grade.sandbox.slot import Lost, Refused, Settings, Slot

Isolation = Literal["auto", "namespaces", "plain"]
T = TypeVar("T")
_THREADS = "rollwright-sandbox"


@dataclass(frozen=True, slots=True)
class _Kind:
    """How slots are made here, found out with the first one."""

    settings: Settings
    refusal: str
    facts: dict[str, Any]


class Sandbox:
    """Runs programs that nobody trusts.

    Args:
        num_slots: programs at one time; None is two for each core, so that one that sleeps costs little.
        limits: of each program, unless `run` is given others.
        isolation: ``namespaces``, ``plain`` (limits, an own user where we are root, a filter of system
            calls), or ``auto``: namespaces where the kernel allows them.
        require: names of protections without which nothing is run; see `protections`.
        preload: modules that are imported once, before the programs.
        packages: whether programs can import the installed packages.
        landlock: whether to use Landlock, where there are no namespaces and the kernel has it.

    Raises:
        ConfigError: a setting is wrong, or a required protection cannot be had.
        GraderError: no slot can be started.
    """

    def __init__(
        self,
        num_slots: int | None = None,
        limits: Limits | None = None,
        isolation: Isolation = "auto",
        require: Sequence[str] = (),
        preload: Sequence[str] = (),
        packages: bool = True,
        landlock: bool = True,
    ) -> None:
        num = num_slots if num_slots is not None else 2 * len(os.sched_getaffinity(0))
        if num < 1:
            raise ConfigError(f"a sandbox of {num} slots; expected at least 1")
        if unknown := set(require) - set(NAMES):
            raise ConfigError(f"require={sorted(unknown)}: the protections are {', '.join(NAMES)}")
        self.num_slots, self.limits, self._is_closed = num, limits or Limits(), False
        self._lock = threading.Lock()
        self._slots: set[Slot] = set()
        self._idle: queue.Queue[Slot | None] = queue.Queue()
        self._threads = ThreadPoolExecutor(num, thread_name_prefix=_THREADS)
        first, self._kind = self._probe(isolation, Settings(True, tuple(preload), packages, landlock))
        self._slots.add(first)
        self._idle.put(first)
        for _ in range(num - 1):
            self._idle.put(None)  # started when first needed
        missing = [name for name in require if not self.protections()[name].is_on]
        if missing:
            reasons = "; ".join(f"{name}: {self.protections()[name].how}" for name in missing)
            self.close()
            raise ConfigError(f"required protections that this machine does not give: {reasons}")

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _probe(isolation: Isolation, wanted: Settings) -> tuple[Slot, _Kind]:
        refusal = "not asked for"
        if isolation != "plain":
            try:
                slot = _started(wanted)
                return slot, _Kind(wanted, "", slot.facts)
            except Refused as error:
                refusal = str(error)
                if isolation == "namespaces":
                    raise ConfigError(
                        f"isolation='namespaces' cannot be had here ({refusal}); use 'auto' or 'plain'"
                    ) from error
        plain = replace(wanted, namespaces=False)
        try:
            slot = _started(plain)
        except Refused as error:
            raise GraderError(f"the sandbox does not start: {error}") from error
        return slot, _Kind(plain, refusal, slot.facts)

    def protections(self) -> dict[str, Protection]:
        """Return which protections are on, by name, as found out when the first slot was started."""
        return describe(self._kind.settings.namespaces, self._kind.facts, self._kind.refusal)

    def warm(self) -> None:
        """Start all slots now, instead of when they are first needed."""
        slots = [self._idle.get() for _ in range(self.num_slots)]
        for slot in slots:
            self._idle.put(slot or self._start())

    def run(self, program: Program, limits: Limits | None = None) -> Outcome:
        """Run a program in the next free slot, and wait for it.

        A slot that is lost is replaced and the program run once more; if that fails too, the ending is
        ``infrastructure``.

        Raises:
            ConfigError: the sandbox is closed.
            GraderError: no slot can be started.
        """
        if self._is_closed:
            raise ConfigError("the sandbox is closed; make another one")
        slot, reason = self._idle.get(), ""
        try:
            for _ in range(2):
                slot = slot or self._start()
                try:
                    outcome = slot.run(program, limits or self.limits)
                    if outcome.ending is not Ending.INFRASTRUCTURE:
                        return outcome
                    reason = outcome.detail
                except Lost as error:
                    reason = str(error)
                    self._end(slot)
                    slot = None
            return Outcome(Ending.INFRASTRUCTURE, f"twice: {reason}")
        except BaseException:
            if slot:  # interrupted: what it runs is unknown
                self._end(slot)
                slot = None
            raise
        finally:
            self._idle.put(slot)

    def map(self, programs: Sequence[Program], limits: Limits | None = None) -> list[Outcome]:
        """Run programs in all slots; outcomes come in the order of the programs."""
        return list(self._threads.map(lambda program: self.run(program, limits), programs))

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Call a function, which may use `run`, in one of the sandbox's threads."""
        return self._threads.submit(function, *args)

    async def run_async(self, program: Program, limits: Limits | None = None) -> Outcome:
        """Run a program without holding up the event loop."""
        import asyncio

        return await asyncio.wrap_future(self._threads.submit(self.run, program, limits))

    @property
    def num_alive(self) -> int:
        """How many slots' processes run now."""
        with self._lock:
            return sum(slot.process.poll() is None for slot in self._slots)

    def close(self) -> None:
        """End all slots and all that they run. What waits is not run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_closed = True
            slots, self._slots = self._slots, set()
        for slot in slots:
            slot.close()
        # Whoever was about to start another slot closes it again; that takes a moment.
        self._threads.shutdown(wait=not threading.current_thread().name.startswith(_THREADS))

    def _start(self) -> Slot:
        if self._is_closed:
            raise ConfigError("the sandbox was closed while it worked")
        slot = _started(self._kind.settings)
        with self._lock:
            if not self._is_closed:
                self._slots.add(slot)
                return slot
        slot.close()
        raise ConfigError("the sandbox was closed while it worked")

    def _end(self, slot: Slot) -> None:
        with self._lock:
            self._slots.discard(slot)
        slot.close()


def _started(settings: Settings) -> Slot:
    try:
        return Slot(settings)
    except Lost as error:
        raise GraderError(f"{error}; its error output stands above") from error


_shared: Sandbox | None = None
_shared_lock = threading.Lock()


def shared_sandbox() -> Sandbox:
    """Return this process's own sandbox, which stays warm until the process ends."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared._is_closed:
            _shared = Sandbox()
            atexit.register(_shared.close)
        return _shared
