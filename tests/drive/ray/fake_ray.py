"""Ray in one process and on a clock of its own: actors in any order, deaths, lost machines, no waiting.

It keeps what the driver relies on: calls of one actor run in order; arguments and answers are copied; an
object is lost with the machines that hold it; a dead actor's calls fail, and so do later ones; an actor waits
for a machine with room.
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import ActorDiedError, GetTimeoutError, ObjectLostError, RayTaskError

from rollwright.drive.ray import actors, calls, crew, hire

SMALL = 100_000  # bytes: smaller answers are sent to whoever asked, larger ones stay where they were made


@dataclass(eq=False)
class Ref:
    """An answer that is on its way, or there."""

    actor: Handle
    is_ready: bool = False
    data: bytes = b""
    error: Exception | None = None
    nodes: set[str] = field(default_factory=set)  # machines that hold it, the driver's aside
    is_with_driver: bool = False


@dataclass(eq=False)
class Call:
    method: str
    args: tuple[Any, ...]
    refs: list[Ref]


class Method:
    def __init__(self, actor: Handle, name: str, num_returns: int = 1) -> None:
        self.actor, self.name, self.num_returns = actor, name, num_returns

    def options(self, num_returns: int) -> Method:
        return Method(self.actor, self.name, num_returns)

    def remote(self, *args: Any) -> Any:
        refs = [Ref(self.actor) for _ in range(self.num_returns)]
        call = Call(self.name, args, refs)
        if self.actor.is_dead:
            self.actor.fake.fail(call)
        else:
            self.actor.queue.append(call)
        return refs[0] if self.num_returns == 1 else refs


class Handle:
    def __init__(self, fake: FakeRay, kind: type, options: dict[str, Any]) -> None:
        self.fake, self.kind, self.cpus = fake, kind, options["num_cpus"]
        self.instance = kind()
        self.queue: deque[Call] = deque()
        self.node: str | None = None
        self.is_dead = self.is_hung = False
        self.number = len(fake.actors)

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)


class FakeRay:
    """Stands for the module ``ray``.

    Args:
        seed: of the order in which actors get to run.
        nodes: CPUs of each machine.
        step_s: seconds that a call takes.
    """

    ObjectRef = Ref

    def __init__(self, seed: int = 0, nodes: dict[str, float] | None = None, step_s: float = 0.01) -> None:
        self.random, self.step_s, self.now = random.Random(seed), step_s, 0.0
        self.machines = dict(nodes or {"a": 2.0, "b": 2.0})
        self.actors: list[Handle] = []
        self.log: list[tuple[str, str]] = []  # (kind, method) of each call that ran
        self.sent: list[tuple[Ref, str]] = []  # (object, machine) of each fetch from elsewhere
        self.before_call = lambda actor, call: None

    # ------------------------------------------------------------ what the driver uses

    def remote(self, kind: type) -> Any:
        fake = self

        class Kind:
            def options(self, **options: Any) -> Any:
                class Ready:
                    def remote(self) -> Handle:
                        fake.actors.append(Handle(fake, kind, options))
                        return fake.actors[-1]

                return Ready()

        return Kind()

    def kill(self, actor: Handle, no_restart: bool) -> None:
        actor.is_dead = True
        while actor.queue:
            self.fail(actor.queue.popleft())

    def wait(self, refs: list[Ref], num_returns: int, timeout: float) -> tuple[list[Ref], list[Ref]]:
        end = self.now + timeout
        while not any(ref.is_ready for ref in refs):
            if not self.step():
                self.now = max(self.now, end)
                break
        ready = [ref for ref in refs if ref.is_ready][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, ref: Ref, timeout: float | None = None) -> Any:
        while not ref.is_ready:
            if not self.step():
                self.now += timeout or 0.0
                raise GetTimeoutError("no answer")
        return self.value(ref)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": cpus}, "NodeID": n} for n, cpus in self.machines.items()]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": sum(self.machines.values())}

    # ------------------------------------------------------------ the world

    def clock(self) -> float:
        return self.now

    def lose_machine(self, node: str) -> None:
        """A machine is gone, with its actors and objects."""
        del self.machines[node]
        for actor in self.actors:
            if actor.node == node:
                self.kill(actor, True)

    def living(self, kind: str = "") -> list[Handle]:
        """Return the actors that live on a machine, of one kind or all."""
        return [a for a in self.actors if a.node and not a.is_dead and kind in ("", a.kind.__name__)]

    def step(self) -> bool:
        """Let one actor do one call; return whether any could."""
        self._place()
        able = [actor for actor in self.living() if actor.queue and not actor.is_hung]
        if not able:
            return False
        actor = self.random.choice(able)
        call = actor.queue[0]
        self.before_call(actor, call)
        if not actor.is_dead and not actor.is_hung:
            actor.queue.popleft()
            self._run(actor, call)
        return True

    def _place(self) -> None:
        for actor in self.actors:
            if actor.node is None and not actor.is_dead:
                used = {node: 0.0 for node in self.machines}
                for other in self.living():
                    used[other.node] += other.cpus
                free = [n for n, cpus in self.machines.items() if used[n] + actor.cpus <= cpus]
                actor.node = min(free, key=lambda n: used[n], default=None)

    def _run(self, actor: Handle, call: Call) -> None:
        self.now += self.step_s
        self.log.append((actor.kind.__name__, call.method))
        try:
            args = [self.value(a, actor.node) if isinstance(a, Ref) else a for a in call.args]
            args = pickle.loads(pickle.dumps(args))
            answer = getattr(actor.instance, call.method)(*args)
        except SystemExit:
            actor.is_dead = True
            self.kill(actor, True)
            return self.fail(call)
        except Exception as error:
            shown = RayTaskError(call.method, f"Traceback\n{type(error).__name__}: {error}", error)
            return self.fail(call, shown.as_instanceof_cause())
        answers = [answer] if len(call.refs) == 1 else answer
        for ref, value in zip(call.refs, answers, strict=True):
            ref.data, ref.is_ready, ref.nodes = pickle.dumps(value), True, {actor.node}
            ref.is_with_driver = len(ref.data) < SMALL

    def fail(self, call: Call, error: Exception | None = None) -> None:
        for ref in call.refs:
            ref.is_ready, ref.error = True, error or ActorDiedError()

    def value(self, ref: Ref, node: str | None = None) -> Any:
        """Return an object's value; whoever asks holds it from now on."""
        if ref.error is not None:
            raise ref.error
        if not ref.is_with_driver and not ref.nodes & set(self.machines):
            raise ObjectLostError("0" * 56, None, "")
        if node is None:
            ref.is_with_driver = True
        elif node not in ref.nodes:
            ref.nodes.add(node)
            self.sent.append((ref, node))
        return pickle.loads(ref.data)


def install(monkeypatch: Any, fake: FakeRay) -> FakeRay:
    """Put the fake in the place of Ray."""
    for module in (calls, crew, hire):
        monkeypatch.setattr(module, "ray", fake)
    monkeypatch.setattr(actors, "place", lambda: actors.Place("machine", 1))
    return fake
