"""A method is a value: it checks its chain, compares, prints, pickles and goes through JSON exactly."""

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from typing import ClassVar

import pytest

from rollwright.discovery import load_method, method_factories, stage_classes
from rollwright.errors import ConfigError
from rollwright.method import ENGINE_CAN_GIVE, Method
from rollwright.testing.hand import plain_method


@dataclass(frozen=True, slots=True)
class Gives:
    gives: ClassVar[frozenset[str]] = frozenset({"difficulty"})

    def __call__(self, group):
        return group


@dataclass(frozen=True, slots=True)
class Needs:
    needs: ClassVar[frozenset[str]] = frozenset({"difficulty"})
    threshold: float = 0.1

    def __call__(self, group):
        return group


@dataclass(frozen=True, slots=True)
class Odd:
    """Values that JSON and pickle like to change."""

    numbers: tuple[float, ...] = (0.1, 1e-300, 1e300, -0.0, 1 / 3)
    whole: int = 3
    real: float = 3.0
    nested: tuple[tuple[int, ...], ...] = ((1,), ())
    names: frozenset[str] = frozenset({"b", "a"})
    nothing: None = None
    flag: bool = True
    text: str = 'é"\n\u2028'

    def __call__(self, group):
        return group


def test_what_a_stage_needs_must_come_before_it():
    """The message names the stage, what is missing, and what there is."""
    assert plain_method(credit=(Gives(), Needs()))
    for credit in ((Needs(),), (Needs(), Gives())):
        with pytest.raises(ConfigError, match=r"credit Needs needs \['difficulty'\], which no stage before"):
            plain_method(credit=credit)


def test_a_filter_cannot_use_what_a_credit_gives():
    """The order is that of the data, not of the arguments."""
    with pytest.raises(ConfigError, match="filter Needs"):
        plain_method(filters=(Needs(),), credit=(Gives(),))


def test_engine_needs_are_collected():
    """A driver can refuse a method before the engine starts."""
    latr = load_method("latr")
    assert latr.engine_needs == {"top", "fork"} <= ENGINE_CAN_GIVE
    assert load_method("grpo").engine_needs == frozenset()


def test_json_is_exact_for_odd_values():
    """Round trip: equal value, equal types, equal text."""
    method = plain_method(credit=(Odd(),))
    again = Method.from_json(method.to_json())
    assert again == method and again.to_json() == method.to_json()
    one, two = again.credit[0], method.credit[0]
    for field in dataclasses.fields(Odd):
        mine, other = getattr(one, field.name), getattr(two, field.name)
        if isinstance(mine, frozenset):  # whose order hangs on the hash seed and on how it was filled
            assert sorted(map(repr, mine)) == sorted(map(repr, other)), field.name
        else:
            assert repr(mine) == repr(other), field.name
        assert type(mine) is type(other)


@pytest.mark.parametrize("name", sorted(method_factories()))
def test_registered_methods_are_values(name):
    """Equal when built twice, unequal when changed; pickle, copy and JSON give an equal value; frozen."""
    method = load_method(name)
    assert method == load_method(name) and hash(method) == hash(load_method(name))
    assert pickle.loads(pickle.dumps(method)) == method == copy.deepcopy(method)
    assert Method.from_json(method.to_json()) == method
    assert method.name == name and name in repr(method)
    assert dataclasses.replace(method, name="other") != method
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.name = "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"class": "rollwright.nowhere:Thing"}', "rollwright.nowhere:Thing"),
        ('{"class": "rollwright.method:Thing"}', "rollwright.method:Thing"),
        ('{"class": "rollwright.stages.allocate.even:Even", "many": 4}', "unexpected keyword"),
        ('{"class": "rollwright.stages.allocate.even:Even", "each": 4}', "expected a method, got Even"),
        ("[1]", "expected a method, got list"),
    ],
)
def test_json_that_is_no_method_is_refused(text, message):
    """A clear error, not an AttributeError somewhere later."""
    with pytest.raises(ConfigError, match=message):
        Method.from_json(text)


def test_json_names_only_stages(tmp_path):
    """A recorded method must not be able to call anything: only dataclasses are built."""
    text = '{"class": "os:system", "command": "touch %s"}' % (tmp_path / "made")
    with pytest.raises(ConfigError, match="os:system"):
        Method.from_json(text)
    assert not (tmp_path / "made").exists()


def test_a_stage_with_state_is_refused():
    """Lists, dicts and arrays are not plain values: the config would not be the stage."""

    @dataclass(frozen=True)
    class Bad:
        values: list

        def __call__(self, group):
            return group

    with pytest.raises(ConfigError, match="expected plain values"):
        plain_method(credit=(Bad([1]),)).to_json()


@pytest.mark.parametrize("name", sorted(stage_classes()))
def test_registered_stages_are_frozen_and_slotted(name):
    """A strategy is its own config: a frozen, slotted dataclass with a docstring."""
    stage = stage_classes()[name]
    parameters = stage.__dataclass_params__
    assert parameters.frozen, f"{name} is not frozen"
    assert "__slots__" in vars(stage), f"{name} has no slots"
    assert stage.__doc__ and not stage.__doc__.startswith(f"{stage.__name__}("), f"{name} has no docstring"


def test_only_known_exceptions_are_declared():
    """A typo would exempt from nothing, or hide that it does; stages may declare too."""
    with pytest.raises(ConfigError, match="exception from the laws 'biassed', did you mean 'biased'"):
        plain_method(declares=frozenset({"biassed"}))
    assert plain_method(declares=frozenset({"arrival"})).all_declared == {"arrival"}
    assert "biased" in load_method("latr").all_declared
