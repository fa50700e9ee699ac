"""Find methods and stages by file and by entry point; there is no central list to edit.

``methods/<name>.py`` exports one factory ``<name>()``. Third parties use the entry-point groups
``rollwright.methods`` and ``rollwright.stages``. A duplicate name is an error.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import rollwright.methods
import rollwright.stages
from rollwright.ablation import without
from rollwright.config_checks import convert, convert_options
from rollwright.errors import ConfigError, UnknownName
from rollwright.method import Method

Factory = Callable[..., Method]


def method_factories() -> dict[str, Factory]:
    """Return every method's factory by name.

    Raises:
        ConfigError: two places give the same name, or a file lacks its factory.
    """
    found: dict[str, Factory] = {}
    for info in pkgutil.iter_modules(rollwright.methods.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"rollwright.methods.{info.name}")
        factory = getattr(module, info.name, None)
        if factory is None:
            raise ConfigError(f"methods/{info.name}.py has no factory {info.name}(); add one of that name")
        found[info.name] = factory
    return _with_entry_points(found, "rollwright.methods")


def stage_classes() -> dict[str, type]:
    """Return every stage class by ``"<kind>/<ClassName>"``."""
    found: dict[str, type] = {}
    for kind in pkgutil.iter_modules(rollwright.stages.__path__):
        package = importlib.import_module(f"rollwright.stages.{kind.name}")
        for info in pkgutil.iter_modules(getattr(package, "__path__", [])):
            if info.name.startswith("_"):
                continue
            module = importlib.import_module(f"rollwright.stages.{kind.name}.{info.name}")
            for name, value in vars(module).items():
                is_own = inspect.isclass(value) and value.__module__ == module.__name__
                if is_own and not name.startswith("_") and hasattr(value, "__dataclass_fields__"):
                    found[f"{kind.name}/{name}"] = value
    return _with_entry_points(found, "rollwright.stages")


def _with_entry_points(found: dict[str, Any], group: str) -> dict[str, Any]:
    for entry in entry_points(group=group):
        if entry.name in found:
            raise ConfigError(
                f"{group}: the name {entry.name!r} is given twice, the second time by {entry.value};"
                " rename or uninstall one of them"
            )
        try:
            found[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{group}: the entry point {entry.name} = {entry.value} does not load ({error});"
                " fix or uninstall its package"
            ) from error
    return found


def load_method(name: str, **options: Any) -> Method:
    """Build the method ``name`` with ``options`` for its factory.

    Every method has the option ``without``: a part to leave out (`rollwright.ablation.without`).

    Raises:
        UnknownName: no such method or option, with a suggestion.
        ConfigError: an option is of the wrong type or has a value that the method refuses.
    """
    factories = method_factories()
    if name not in factories:
        raise UnknownName("method", name, factories)
    known = inspect.signature(factories[name]).parameters
    part = None if "without" in known else options.pop("without", None)
    for option in options:
        if option not in known:
            raise UnknownName(f"option of method {name}", option, [*known, "without"])
    method = factories[name](**convert_options(f"method {name}", factories[name], options))
    return method if part is None else without(method, convert("option without", part, str))
