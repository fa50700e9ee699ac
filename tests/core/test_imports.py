"""Who may import whom: the house's rules, read from the source with `ast`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import rollwright

SOURCE = Path(rollwright.__file__).parent
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
VOCABULARY = {f"rollwright.{name}" for name in ("tree", "ledger", "events", "errors", "rng")}
# Rooms that import neither torch nor asyncio, however deep.
PURE = (
    *sorted(VOCABULARY),
    "rollwright.stage",
    "rollwright.method",
    "rollwright.discovery",
    "rollwright.runner",
    "rollwright.methods",
    "rollwright.stages",
    "rollwright.drive.inline",
    "rollwright.drive.world",
    "rollwright.drive.virtual",
    "rollwright.store",
    "rollwright.tasks.api",
    "rollwright.testing.fake",
    "rollwright.testing.hand",
    "rollwright.testing.chaos",
)
# Room -> what it must not import, directly.
FORBIDDEN = {
    "rollwright.runner": ("drive", "engine", "learn", "store", "tasks", "cli", "lab", "stages", "methods"),
    "rollwright.stages": ("runner", "drive", "engine", "learn", "store", "tasks", "methods", "cli", "lab"),
    "rollwright.methods": ("runner", "drive", "engine", "learn", "store", "tasks", "cli", "lab"),
    "rollwright.engine": ("runner", "drive", "learn", "store", "tasks", "stages", "methods", "cli", "lab"),
    "rollwright.learn": ("runner", "drive", "store", "tasks", "methods", "cli", "lab"),
    "rollwright.store": ("drive", "engine", "learn", "tasks", "stages", "methods", "cli", "lab"),
    "rollwright.drive": ("learn", "store", "stages", "methods", "cli", "lab", "training"),
    "rollwright.tasks": ("runner", "drive", "learn", "store", "stages", "methods", "cli", "lab"),
    "rollwright.grade": ("runner", "drive", "engine", "learn", "store", "stages", "methods", "cli", "lab"),
    "rollwright.lab": ("cli",),
    "rollwright.training": ("cli",),
}


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules that running ``module``'s top level imports, TYPE_CHECKING blocks left out."""
    found: set[str] = set()
    for node in at_import(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            base = node.module or ""
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names}
    return frozenset(found)


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run at import: neither inside functions nor for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from at_import(node)


def anywhere(module: str) -> set[str]:
    """Return what a module imports anywhere, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found |= {f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in MODULES}
    return found


def room(name: str) -> list[str]:
    """Return the modules of a room."""
    return sorted(m for m in MODULES if m == name or m.startswith(f"{name}."))


def parents(module: str) -> set[str]:
    """Importing a module runs its packages too."""
    parts = module.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))} & set(MODULES)


def reach(module: str) -> dict[str, str]:
    """Return every module that importing ``module`` loads, with the one that asks for it."""
    found = {module: ""}
    queue = [module]
    while queue:
        here = queue.pop()
        for name in imports(here) | parents(here):
            if name not in found:
                found[name] = here
                if name in MODULES:
                    queue.append(name)
    return found


@pytest.mark.parametrize("name", PURE)
def test_pure_rooms_load_neither_torch_nor_asyncio(name):
    """Transitively: the message says through which of our modules it comes in."""
    for module in room(name):
        found = reach(module)
        for heavy in ("torch", "asyncio", "transformers", "ray"):
            bad = [m for m in found if m == heavy or m.startswith(f"{heavy}.")]
            assert not bad, f"{module} loads {heavy} through {found[bad[0]]}"


@pytest.mark.parametrize("module", sorted(VOCABULARY))
def test_the_vocabulary_knows_only_itself(module):
    """It stands below everything else."""
    ours = {name for name in anywhere(module) if name.startswith("rollwright.")}
    assert ours <= VOCABULARY, f"{module} imports {sorted(ours - VOCABULARY)}"


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_rooms_keep_to_themselves(name):
    """No import from a room that stands above or beside, not even inside a function."""
    for module in room(name):
        for other in FORBIDDEN[name]:
            bad = [
                m
                for m in anywhere(module)
                if m.startswith(f"rollwright.{other}.") or m == f"rollwright.{other}"
            ]
            assert not bad, f"{module} imports {bad[0]}; {name} must not know {other}"


def test_no_cycles_between_modules():
    """No module is loaded by what it loads: an import order that works by luck breaks later."""
    state: dict[str, int] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        if state.get(module) == 2:
            return
        assert state.get(module) != 1, f"import cycle: {' -> '.join([*path[path.index(module) :], module])}"
        state[module] = 1
        for name in sorted(imports(module)):
            if name in MODULES and name != module:
                visit(name, (*path, module))
        state[module] = 2

    for module in sorted(MODULES):
        visit(module, ())


def test_the_reader_sees_imports():
    """The rules would be empty if the reader found nothing."""
    assert "rollwright.tree" in imports("rollwright.events")
    assert "torch" in reach("rollwright.engine.model")
    assert "rollwright.runner.settings" in imports("rollwright.runner.view")
    assert len(MODULES) > 50
