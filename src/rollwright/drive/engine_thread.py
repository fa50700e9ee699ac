"""An engine in a thread of its own: orders in, chunks out, weights changed between its steps only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rollwright.engine.api import Engine, ended
from rollwright.errors import EngineError
from rollwright.events import Failed, Sampled, Submit
from rollwright.tree import StopReason

Publish = Literal["interrupt", "drain"]


@dataclass(frozen=True, slots=True)
class Chunks:
    """What the engine's step gave."""

    events: Sequence[Sampled | Failed]


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine did not take an ask."""

    event: Failed


@dataclass(frozen=True, slots=True)
class Aborted:
    """An abort was carried out; None if the ask had ended before."""

    ask: str
    event: Sampled | None


@dataclass(frozen=True, slots=True)
class InPlace:
    """New weights are in place, whole: nothing is sampled by older ones from now on.

    What was sampled by older ones and not reported comes after this, with its own version.
    """

    version: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The thread ended with an error."""

    error: BaseException


Said = Chunks | Refused | Aborted | InPlace | Broken


class EngineThread:
    """Runs an engine's steps; does what it is told between two of them.

    What it posts is in the order in which it happened: an ask's chunks before the answer to its abort.

    Args:
        engine: nobody else may touch it from now on.
        post: takes what it has to say, in its thread.
        load: copies the learner's weights into the engine's model, whole.
        publish: ``"interrupt"`` lets sequences go on under new weights at once; ``"drain"`` lets those that
            run end under the old ones first, and holds new asks back until then.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        engine: Engine,
        post: Callable[[Said], None],
        load: Callable[[], None] = lambda: None,
        publish: Publish = "interrupt",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine, self.clock = engine, clock
        self._post, self._load, self._is_draining = post, load, publish == "drain"
        self._orders: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._live: set[str] = set()
        self._pending: int | None = None  # the version that waits for running sequences to end
        self._held: dict[str, tuple[Submit, Sequence[int]]] = {}
        self._is_closed = False
        self.busy_since: float | None = None  # by the clock; None while it waits for orders
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ orders, from any thread

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        """Have an ask sampled."""
        self._order(lambda: self._submit(command, prefix))

    def abort(self, ask: str) -> None:
        """Have an ask aborted; answered by `Aborted`."""
        self._order(lambda: self._abort(ask))

    def retire(self, group: str) -> None:
        """Have a group's keys forgotten."""
        self._order(lambda: self.engine.retire(group))

    def publish(self, version: int) -> None:
        """Have the learner's weights taken over; answered by `InPlace`."""
        self._order(lambda: self._begin_publish(version))

    def close(self, seconds: float = 10.0) -> bool:
        """End the thread after the step it is in; say whether it ended in time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _order(self, order: Callable[[], None]) -> None:
        with self._changed:
            self._orders.append(order)
            self._changed.notify()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self.busy_since = None
                    while not (self._orders or self._has_work or self._is_closed):
                        self._changed.wait()
                    if self._is_closed:
                        return
                    orders, self._orders = self._orders, []
                    self.busy_since = self.clock()
                for order in orders:
                    order()
                if self._pending is not None and not self._live:
                    self._publish(self._pending)
                elif self._live:
                    self._step()
        except BaseException as error:
            self._post(Broken(error))

    @property
    def _has_work(self) -> bool:
        return bool(self._live) or self._pending is not None

    def _step(self) -> None:
        chunks = self.engine.step()
        self._live -= ended(chunks)
        if chunks:
            self._post(Chunks(chunks))

    def _submit(self, command: Submit, prefix: Sequence[int]) -> None:
        if self._pending is not None:
            self._held[command.ask] = (command, prefix)
            return
        try:
            self.engine.submit(command, prefix)
        except EngineError as error:
            self._post(Refused(Failed(ask=command.ask, kind="engine", message=str(error))))
            return
        self._live.add(command.ask)

    def _abort(self, ask: str) -> None:
        event = None
        if ask in self._live:
            self._live.discard(ask)
            event = self.engine.abort(ask)
        elif ask in self._held:
            command, _ = self._held.pop(ask)
            event = Sampled(
                ask=ask,
                tokens=(),
                logprobs=(),
                version=self.engine.version,
                policy=command.policy,
                stop=StopReason.INTERRUPTED,
                attempt=command.attempt,
            )
        self._post(Aborted(ask, event))

    def _begin_publish(self, version: int) -> None:
        if self._is_draining and self._live:
            self._pending = version
        else:
            self._publish(version)

    def _publish(self, version: int) -> None:
        self._load()
        self.engine.publish(version)
        self._pending = None
        self._post(InPlace(version))
        held, self._held = self._held, {}
        for command, prefix in held.values():
            self._submit(command, prefix)
