"""Load reward functions from files of the user."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rollwright.errors import ConfigError, UnknownName


def load_module(path: str | Path) -> ModuleType:
    """Run a Python file of the user as a module; it may import what lies beside it.

    Raises:
        ConfigError: there is no such file, or it fails while it is loaded.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no file {path}; give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"rollwright_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file; its name must end in .py")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # at the end, so that nothing of ours is hidden
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # user code may raise anything while it loads
        raise ConfigError(f"{path} failed while it was loaded: {type(error).__name__}: {error}") from error
    return module


def load_function(spec: str) -> Callable[..., Any]:
    """Return the function that ``"file.py:function"`` names.

    Raises:
        ConfigError: the text has another form, or the file cannot be loaded.
        UnknownName: the file has no such function, with a suggestion.
    """
    file, colon, name = spec.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise ConfigError(f"{spec!r} names no function: expected 'file.py:function'")
    module = load_module(file)
    function: Any = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise UnknownName(f"function in {file}", name, known)
    found: Callable[..., Any] = function
    return found
