"""`rollwright serve`."""

from __future__ import annotations

import os
from ipaddress import ip_address

from rich.console import Console

from rollwright.errors import ConfigError

_MIB = 1 << 20


def serve(
    model: str,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    api_key: str | None = None,
    open_to_all: bool = False,
    max_batch: int = 64,
    kv_budget: int = 1024,
    max_waiting: int = 512,
    timeout: float = 600.0,
    version: int = 0,
    threads: int | None = None,
) -> int:
    """Serve a model over HTTP: OpenAI's completions and chat, with exact tokens and logprobs.

    Any OpenAI client works with http://HOST:PORT/v1. A client that is given
    http://HOST:PORT/rollout/NAME/v1 instead is recorded: GET /rollout/NAME returns what it had sampled as
    trees of tokens. docs/serve.md has the fields, the record and the metrics.

    For example:

    `rollwright serve countdown`

    `rollwright serve path/to/model --port 8080 --max-batch 32`

    `rollwright serve model.gguf --host 0.0.0.0 --api-key "$KEY"`

    Args:
        model: A checkpoint folder, a `.gguf` file, or the name of a model that is shipped.
        host: The address to listen on; this machine alone by default.
        port: The port; 0 takes a free one.
        name: The model's name for clients; its folder's or file's name without it.
        api_key: What clients must send as a bearer token; `ROLLWRIGHT_API_KEY` without it.
        open_to_all: Listen beyond this machine without a key.
        max_batch: Sequences that decode at once.
        kv_budget: MiB for keys and values.
        max_waiting: Completions that may wait for a place; beyond it, requests are refused with 429.
        timeout: Seconds after which a request is given up.
        version: The version of these weights, for records.
        threads: Of PyTorch; one per core without it.
    """
    key = api_key or os.environ.get("ROLLWRIGHT_API_KEY") or None
    _check(host, key is not None or open_to_all, max_batch, kv_budget, max_waiting, timeout)

    import torch

    from rollwright.serve.jobs import Limits
    from rollwright.serve.server import load

    torch.set_num_threads(threads or os.cpu_count() or 1)
    console = Console(stderr=True)
    with console.status(f"loading {model}"):
        server = load(
            model,
            name=name,
            host=host,
            port=port,
            api_key=key,
            version=version,
            max_batch=max_batch,
            kv_budget_bytes=kv_budget * _MIB,
            limits=Limits(max_open=max_batch + max_waiting, request_timeout_s=timeout),
        )
    console.print(
        f"{server.service.name} at {server.url}/v1 (Ctrl-C ends it)", highlight=False, soft_wrap=True
    )
    server.run()
    return 0


def _check(
    host: str, is_allowed: bool, max_batch: int, kv_budget: int, max_waiting: int, timeout: float
) -> None:
    if not is_allowed and not _is_this_machine(host):
        raise ConfigError(
            f"--host {host} lets other machines use the model and replace its weights; give --api-key, or "
            "--open-to-all to accept that"
        )
    for flag, value, least in (
        ("max-batch", max_batch, 1),
        ("kv-budget", kv_budget, 1),
        ("max-waiting", max_waiting, 0),
    ):
        if value < least:
            raise ConfigError(f"--{flag} is {value}; expected at least {least}")
    if not timeout > 0:
        raise ConfigError(f"--timeout is {timeout}; expected a number of seconds above 0")


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
