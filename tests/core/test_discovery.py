"""Methods and stages are found by file and by entry point; names are unique; unknown ones get a hint."""

import pickle
import sys
import types
from importlib.metadata import EntryPoint

import pytest

import rollwright.methods
from rollwright import discovery
from rollwright.discovery import load_method, method_factories, stage_classes
from rollwright.errors import ConfigError, UnknownName
from rollwright.stage import Filter
from rollwright.stages.filter.zero_variance import ZeroVariance
from rollwright.testing.hand import plain_method


@pytest.fixture
def plugin(monkeypatch):
    """Register fake entry points: name -> object, by group."""
    module = types.ModuleType("fake_plugin")
    monkeypatch.setitem(sys.modules, "fake_plugin", module)
    entries = []

    def register(group, name, value):
        setattr(module, name, value)
        entries.append(EntryPoint(name, f"fake_plugin:{name}", group))

    monkeypatch.setattr(discovery, "entry_points", lambda group: [e for e in entries if e.group == group])
    return register


def test_every_method_file_is_found():
    """The file's name is the method's; the six of the first release are there."""
    found = method_factories()
    assert {"grpo", "dapo", "vigor", "april", "rlep", "latr"} <= set(found)
    assert all(factory.__module__ == f"rollwright.methods.{name}" for name, factory in found.items())


def test_stages_are_found_by_kind():
    """Kind and class name; helpers and imported classes are not stages."""
    found = stage_classes()
    assert {"select/Shuffled", "allocate/Even", "credit/GroupNorm", "objective/PPOClip"} <= set(found)
    assert all(cls.__module__.startswith("rollwright.stages.") for cls in found.values())
    assert not any(name.split("/")[1].startswith("_") for name in found)


def test_an_entry_point_adds_a_method(plugin):
    """A third party's method is loaded by its name like any other."""
    plugin("rollwright.methods", "mine", lambda each=2: plain_method(each))
    assert load_method("mine", each=5).allocate.each == 5


def test_an_entry_point_adds_a_stage(plugin):
    """Stages too, under the name that the entry point gives."""
    plugin("rollwright.stages", "credit_mine", dict)
    assert stage_classes()["credit_mine"] is dict


def test_a_duplicate_name_is_an_error(plugin):
    """Never one silently instead of the other; the message says which package to look at."""
    plugin("rollwright.methods", "grpo", plain_method)
    with pytest.raises(ConfigError, match=r"'grpo' is given twice, the second time by fake_plugin:grpo"):
        method_factories()


def test_two_plugins_with_one_name_are_an_error(plugin):
    """Also when both are strangers."""
    plugin("rollwright.methods", "mine", plain_method)
    plugin("rollwright.methods", "mine", plain_method)
    with pytest.raises(ConfigError, match="'mine' is given twice"):
        method_factories()


def test_a_plugin_that_does_not_import_is_named(plugin, monkeypatch):
    """One broken package must say which it is."""
    plugin("rollwright.methods", "broken", plain_method)
    monkeypatch.delattr(sys.modules["fake_plugin"], "broken")
    with pytest.raises(ConfigError, match=r"fake_plugin:broken"):
        method_factories()


def test_a_method_file_without_its_factory_is_an_error(tmp_path, monkeypatch):
    """The message says what to add."""
    (tmp_path / "empty_method.py").write_text("x = 1\n")
    (tmp_path / "_helper.py").write_text("raise RuntimeError('helpers are not imported')\n")
    monkeypatch.setattr(rollwright.methods, "__path__", [*rollwright.methods.__path__, str(tmp_path)])
    with pytest.raises(ConfigError, match=r"methods/empty_method.py has no factory empty_method\(\)"):
        method_factories()
    sys.modules.pop("rollwright.methods.empty_method")


@pytest.mark.parametrize(("given", "hint"), [("grop", "grpo"), ("dappo", "dapo"), ("LATR", None)])
def test_unknown_methods_get_a_suggestion(given, hint):
    """The nearest name, and the list of known ones."""
    with pytest.raises(UnknownName) as caught:
        load_method(given)
    text = str(caught.value)
    assert f"unknown method {given!r}" in text and "known: april" in text
    assert (f"did you mean {hint!r}" in text) if hint else True


def test_unknown_options_get_a_suggestion():
    """An option that is not the factory's is refused before anything is built."""
    with pytest.raises(UnknownName, match=r"option of method grpo 'eachh', did you mean 'each'"):
        load_method("grpo", eachh=4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"each": 2.5}, "a whole number"),
        ({"each": "x"}, "a whole number"),
        ({"scale": "maybe"}, "true or false"),
    ],
)
def test_options_of_the_wrong_type_are_refused(options, expected):
    """Oracle: the factory's own types. Kills: a text that passes for true, a half rollout."""
    ((name, value),) = options.items()
    with pytest.raises(ConfigError, match=f"option {name} of method grpo: given {value!r}.*{expected}"):
        load_method("grpo", **options)


def test_options_without_a_plain_type_pass(plugin):
    """A stage, or an option that names no type, goes to the factory as it is."""
    seen = []

    def mine(filters: Filter | None = None, other="x"):
        seen.append((filters, other))
        return plain_method()

    plugin("rollwright.methods", "mine", mine)
    stage = ZeroVariance()
    load_method("mine", filters=stage, other=3)
    assert seen == [(stage, 3)]


def test_unknown_name_pickles():
    """An error that crosses a process boundary arrives as itself."""
    error = UnknownName("method", "grop", ["grpo", "dapo"])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is UnknownName and str(again) == str(error)
