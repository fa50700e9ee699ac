"""The engine's own thread: asks come in over a queue, what was sampled goes out to their owners.

Nobody else touches the engine. Everything that must happen between two steps (asks, aborts, new weights,
memory reports) is a piece of work in the queue; the thread does all of it, then one step, then again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from rollwright.engine.api import Engine, ended
from rollwright.errors import EngineError
from rollwright.events import Failed, Sampled, Submit
from rollwright.serve.refusals import Refused

T = TypeVar("T")
E = TypeVar("E", bound=Engine)


class Owner(Protocol):
    """Who wants to know what was sampled for an ask. Called on the engine's thread; must not block."""

    def on_sampled(self, event: Sampled) -> None: ...
    def on_error(self, error: EngineError) -> None: ...


class EngineLoop:
    """Runs an engine on a thread of its own.

    Args:
        engine: nobody else may use it from now on.
        after_step: called on the engine's thread when owners were told something, so that they can wake
            whoever waits, once for all of them.

    A step that raises fails every ask in flight with the engine's words; the engine serves on, since the
    cause (weights that diverged) may go away with the next weights. `error` holds it until then.
    """

    def __init__(self, engine: Engine, after_step: Callable[[], None] = lambda: None) -> None:
        self._engine = engine
        self.after_step = after_step
        self.error: EngineError | None = None
        self._owners: dict[str, Owner] = {}
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rollwright-engine", daemon=True)
        self._is_closed = False
        self._lock = threading.Lock()

    def start(self) -> EngineLoop:
        self._thread.start()
        return self

    def close(self, timeout: float = 30.0) -> None:
        """Fail what is in flight, stop the thread and wait for it.

        Raises:
            EngineError: a step takes longer than ``timeout`` seconds.
        """
        with self._lock:
            self._is_closed = True
            self._work.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise EngineError(
                f"the engine is in a step that takes longer than {timeout} s; the process must end"
            )

    def submit(self, command: Submit, prefix: Sequence[int], owner: Owner) -> None:
        """Hand an ask to the engine; a refusal comes as `Owner.on_error`."""
        self._put(lambda: self._submit(command, prefix, owner))

    def abort(self, ask: str) -> None:
        """Stop an ask; its owner gets the rest with stop INTERRUPTED. One that ended is left alone."""
        self._put(lambda: self._abort(ask))

    def call(self, work: Callable[[Engine], T]) -> Future[T]:
        """Do ``work`` between two steps and return a future of its result."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(self._engine))
            except BaseException as error:  # it belongs to whoever waits for the result
                future.set_exception(error)

        self._put(run)
        return future

    # ------------------------------------------------------------------ on the engine's thread

    def _put(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._is_closed:
                raise Refused("the server is shutting down; nothing new is taken", status=503)
            self._work.put(work)

    def _submit(self, command: Submit, prefix: Sequence[int], owner: Owner) -> None:
        try:
            self._engine.submit(command, prefix)
        except EngineError as error:
            owner.on_error(Refused(str(error)))  # the ask is to blame, not the server
            self.after_step()
            return
        except Exception as error:  # a bug: this ask fails, the thread lives on
            owner.on_error(EngineError(f"the engine failed: {type(error).__name__}: {error}"))
            self.after_step()
            return
        self._owners[command.ask] = owner

    def _abort(self, ask: str) -> None:
        owner = self._owners.pop(ask, None)
        if owner is not None:
            owner.on_sampled(self._engine.abort(ask))
            self.after_step()

    def _run(self) -> None:
        while self._drain():
            if not self._owners:
                continue
            try:
                events = self._engine.step()
            except EngineError as error:
                self._fail_all(error)
                continue
            except BaseException as error:  # a bug must not leave clients waiting for ever
                self._fail_all(EngineError(f"the engine failed: {type(error).__name__}: {error}"))
                continue
            if not events:
                self._fail_all(EngineError("the engine is idle although asks are in flight: it lost them"))
                continue
            self.error = None
            for event in events:
                owner = self._owners.pop(event.ask) if ended([event]) else self._owners[event.ask]
                if isinstance(event, Failed):
                    owner.on_error(EngineError(event.message))
                else:
                    owner.on_sampled(event)
            self.after_step()
        self._fail_all(Refused("the server is shutting down", status=503))

    def _drain(self) -> bool:
        """Do all the work that waits; with nothing in flight wait for some. False ends the thread."""
        while True:
            try:
                work = self._work.get(block=not self._owners)
            except queue.Empty:
                return True
            if work is None:
                return False
            work()
            if self._work.empty():
                return True

    def _fail_all(self, error: EngineError) -> None:
        self.error = error
        owners, self._owners = self._owners, {}
        for ask, owner in owners.items():
            with contextlib.suppress(Exception):  # the engine is broken; its first error is the one to tell
                owner.on_sampled(self._engine.abort(ask))
            owner.on_error(error)
        self.after_step()
