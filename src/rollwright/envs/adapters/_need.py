"""Packages that are installed for an adapter only."""

from __future__ import annotations

import importlib
from types import ModuleType

from rollwright.errors import ConfigError


def need(module: str, extra: str) -> ModuleType:
    """Return a module of another package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{module} cannot be imported ({error}): install rollwright with its extra {extra!r}"
        ) from error
