"""Connect to a Ray cluster, or start one on this machine."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rollwright.errors import ConfigError


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Be connected to a cluster. One that this process is connected to already is used and left as it is.

    Args:
        address: of a running cluster, ``"auto"`` for the one of this machine; None starts a cluster on this
            machine, which ends with the block.

    Raises:
        ConfigError: Ray is not installed, or no cluster answers at the address.
    """
    is_ours = _connect(address)
    try:
        yield
    finally:
        if is_ours:
            import ray

            ray.shutdown()


def _connect(address: str | None) -> bool:
    """Connect, unless this process is connected; return whether it was not."""
    # Ray reports its use to its makers unless told otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _own_signals():
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                "driver 'ray' needs Ray, which is not installed: pip install 'rollwright[ray]', or choose "
                "another driver"
            ) from error
        if ray.is_initialized():
            return False
        options = {"address": address} if address else {"include_dashboard": False}
        try:
            if address not in (None, "auto"):
                _knock(address)
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except Exception as error:  # Ray raises it bare where its processes do not start in time
            raise ConfigError(_refusal(address, error)) from error
        return True


def _refusal(address: str | None, error: Exception) -> str:
    if address is None:
        return f"Ray could not be started on this machine: {error}. Try again when the machine is less busy"
    return (
        f"address: given {address!r}, where no cluster answers ({error}); expected the host:port that "
        "`ray start --head` says, or 'auto' on a machine of the cluster. Without --address this machine is "
        "used alone"
    )


def _knock(address: str) -> None:
    """Try whether anybody listens there: Ray itself would end the process, after a minute.

    Raises:
        OSError, ValueError: nobody does, or it is no address.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10.0):
        pass


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our handlers: Ray puts its own in their place when it is imported and when it connects."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
