"""Every registered method obeys every law."""

import inspect

import pytest

from rollwright.discovery import load_method, method_factories
from rollwright.testing import check_method
from rollwright.testing import laws_of_learning as _  # noqa: F401  (imports torch before any test is timed)

NAMES = sorted(method_factories())
# Options with which a method does on the toy what it does at scale.
OPTIONS = {
    "vigor": {"first": 2},
    "latr": {"tau_abs": 0.2, "tau_rel": 0.3, "lookahead": 3, "tau_ed": 0.5},
    "dapo": {"max_rounds": 3},
    "copris": {"num_flying": 10},
    "seer": {"chunk": 3},
}


def build(name):
    """Return the method with groups of four."""
    parameters = inspect.signature(method_factories()[name]).parameters
    options = {"each": 4} if "each" in parameters else {}
    return load_method(name, **options, **OPTIONS.get(name, {}))


@pytest.mark.parametrize("law", range(1, 10))
@pytest.mark.parametrize("name", NAMES)
def test_law(name, law):
    """Oracle: the law's own; see `rollwright.testing.laws`. GRPO is the parent of all six."""
    method = build(name)
    parent = None if name == "grpo" else build("grpo")
    check_method(method, parent=parent, only=[law])
