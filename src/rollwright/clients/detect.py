"""Which server is it, and what does it really give? Found out by asking, before anything is sampled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rollwright.clients.dialect import Ask, Dialect, Json, Part, Passing
from rollwright.clients.gives import Gives
from rollwright.clients.llamacpp import LlamaCpp
from rollwright.clients.rollwright import Rollwright
from rollwright.clients.sglang import SGLang
from rollwright.clients.vllm import VLLM
from rollwright.clients.wire import Wire
from rollwright.errors import EngineError, UnknownName
from rollwright.events import Submit
from rollwright.tree import Sampling

_OWNER_TO_NAME = {"rollwright": "rollwright", "vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
_PROBE = (1, 2)  # ids that every vocabulary has
_CLEAR = 0.05  # nats by which two alternatives must differ to tell temperatures apart


@dataclass(frozen=True, slots=True)
class Found:
    """A server that can be used.

    Args:
        dialect: how to talk to it.
        gives: what it gives.
        version: of the weights it serves.
        ask_version: asks it for that; None if it does not know.
        load_weights: lets it load a checkpoint (path, version); None if it cannot.
    """

    dialect: Dialect
    gives: Gives
    version: int
    ask_version: Callable[[], Awaitable[int]] | None = None
    load_weights: Callable[[str, int], Awaitable[None]] | None = None


async def find(
    wire: Wire, server: str | None, model: str | None, client: str, has_priority: bool, version: int
) -> Found:
    """Look at a server and return how to use it.

    Args:
        wire: the way to it.
        server: its kind, if known.
        model: the served model's name; None takes the only one.
        client: a word of this client's own.
        has_priority: whether it schedules by priority.
        version: of its weights, where it does not say.

    Raises:
        EngineError: it cannot be reached, or gives no token ids or logprobs.
        UnknownName: no such kind of server.
    """
    if server not in (None, *_OWNER_TO_NAME.values()):
        raise UnknownName("server", str(server), _OWNER_TO_NAME.values())
    try:
        owner, model = await _model(wire, model)
        kind = server or _OWNER_TO_NAME.get(owner, "unknown")
        if kind == "rollwright":
            return await _ours(wire, client)
        if kind == "sglang":
            return await _sglang(wire, has_priority, version)
        dialect: Dialect = LlamaCpp() if kind == "llama.cpp" else VLLM(model, has_priority)
        return Found(dialect, await _probed(wire, dialect, kind), version)
    except Passing as error:
        raise EngineError(f"{error}; is the server up, and is this its address?") from error


async def _model(wire: Wire, wanted: str | None) -> tuple[str, str]:
    """Return who owns the served model, by the server's own word, and its name."""
    status, answer = await wire.ask("GET", "/v1/models")
    if status != 200 or not isinstance(answer, dict):
        raise EngineError(
            f"GET {wire.root}/v1/models: status {status}; expected the list of models of an "
            "OpenAI-compatible server (an API key may be missing)"
        )
    models = {str(entry.get("id")): str(entry.get("owned_by")) for entry in answer.get("data") or ()}
    if wanted is None and len(models) == 1:
        wanted = next(iter(models))
    if wanted not in models:
        given = "no model was named" if wanted is None else f"no model {wanted!r}"
        raise EngineError(f"{wire.root}: {given}; it serves: {', '.join(models) or 'none'}")
    return models[wanted], wanted


async def _ours(wire: Wire, client: str) -> Found:
    async def ask_version() -> int:
        status, answer = await wire.ask("GET", "/version")
        if status != 200:
            raise EngineError(f"GET {wire.root}/version: status {status}: {answer}")
        return int(answer["weights"])

    async def load_weights(path: str, version: int) -> None:
        await _post(wire, "/rollwright/weights", {"path": path, "version": version})

    dialect = Rollwright(client)
    return Found(dialect, dialect.gives(), await ask_version(), ask_version, load_weights)


async def _sglang(wire: Wire, has_priority: bool, version: int) -> Found:
    async def load_weights(path: str, version: int) -> None:
        body = {"model_path": path, "weight_version": str(version)}
        answer = await _post(wire, "/update_weights_from_disk", body)
        if not answer.get("success", False):
            raise EngineError(f"{wire.root} did not load {path}: {answer.get('message')}")

    dialect = SGLang(has_priority)
    messages = await _sample(wire, dialect, 1.0)
    told = str(messages[-1].get("meta_info", {}).get("weight_version"))
    if told.isdigit():
        dialect, version = SGLang(has_priority, has_version=True), int(told)
    return Found(dialect, await _probed(wire, dialect, "sglang"), version, load_weights=load_weights)


async def _post(wire: Wire, path: str, body: Json) -> Json:
    status, answer = await wire.ask("POST", path, body)
    if status != 200 or not isinstance(answer, dict):
        raise EngineError(f"POST {wire.root}{path}: status {status}: {answer}")
    return answer


# ------------------------------------------------------------------ probing


async def _probed(wire: Wire, dialect: Dialect, kind: str) -> Gives:
    """Sample a token warm and cold and return what the answers show.

    Two alternatives differ by d nats at temperature 1. At temperature 0.5 they differ by 2·d in the
    distribution that is sampled from, and still by d before temperature.
    """
    gives = dialect.gives()
    warm, cold = [await _tops(wire, dialect, temperature, kind) for temperature in (1.0, 0.5)]
    both = sorted(warm.keys() & cold.keys(), key=lambda token: -warm[token])
    if len(both) < 2 or abs(warm[both[0]] - warm[both[-1]]) < _CLEAR:
        return dataclasses.replace(gives, logprobs="raw")  # it cannot be told: take the safe reading
    first, last = both[0], both[-1]
    ratio = (cold[first] - cold[last]) / (warm[first] - warm[last])
    return dataclasses.replace(gives, logprobs="sampled" if abs(ratio - 2) < abs(ratio - 1) else "raw")


async def _tops(wire: Wire, dialect: Dialect, temperature: float, kind: str) -> dict[int, float]:
    """Return the alternatives at the probe's first token.

    Raises:
        EngineError: there are no ids or logprobs in the answer.
    """
    reader = dialect.reader(_ask(temperature))
    try:
        parts: list[Part] = []
        for message in await _sample(wire, dialect, temperature):
            parts += reader.read(message)
    except EngineError as error:
        raise EngineError(
            f"the {kind} server at {wire.root} does not give token ids with logprobs, without which nothing "
            f"can be recorded exactly: {error}"
        ) from error
    sampled = [part for part in parts if part.tokens]
    if not sampled or any(len(part.tokens) != len(part.logprobs) for part in sampled):
        raise EngineError(
            f"the {kind} server at {wire.root} sampled nothing, or gave no logprobs, when asked"
        )
    return dict(sampled[0].top[0]) if sampled[0].top else {}


def _ask(temperature: float) -> Ask:
    command = Submit(
        ask="probe",
        group="probe",
        parent="probe",
        at=len(_PROBE),
        stream=1,
        start=len(_PROBE),
        max_tokens=1,
        sampling=Sampling(temperature),
        num_top=5,
    )
    return Ask(command, _PROBE, 0, 1)


async def _sample(wire: Wire, dialect: Dialect, temperature: float) -> list[Json]:
    until = time.monotonic() + wire.waits.total
    return [m async for m in wire.stream(dialect.path, dialect.body(_ask(temperature)), until)]
