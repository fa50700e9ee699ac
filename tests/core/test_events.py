"""Events and commands go through JSON as themselves, and the union holds every one of them."""

import typing

import msgspec
import pytest

from rollwright import events
from rollwright.events import AnyCommand, AnyEvent, Command, EmitBatch, Event, Fork, Sampled, Submit
from rollwright.tree import Group, Node, Origin, Sampling, StopReason, Trajectory

NODE = Node("g/0.0", "g/root", 2, Origin.SAMPLED, (3, 0), "0/0", 2, "policy", 1, (-0.1, -0.25), (1.5, 0.5))
ROOT = Node("g/root", None, 0, Origin.PROMPT, (1, 2))
GROUP = Group("g", "t", {"g/root": ROOT, "g/0.0": NODE}, (Trajectory("g/0.0", 0, 1.0, "right"),))
VALUES = {
    str: "x",
    int: 3,
    float: 0.1,
    tuple[int, ...]: (1, 2),
    tuple[float, ...]: (0.1, -1e-9),
    tuple[str, ...]: ("a", "b"),
    dict[str, float]: {"a": 0.1},
    dict[str, int]: {"a": 2},
    dict[str, float | None]: {"a": None},
    tuple[Group, ...]: (GROUP,),
    Sampling: Sampling(temperature=0.7, stop_strings=("\n",)),
    StopReason | None: StopReason.STOP,
    tuple[float, ...] | None: (0.5,),
    tuple[tuple[tuple[int, float], ...], ...] | None: (((1, -0.5),),),
    bool: True,
    float | None: 0.3,
    int | None: 7,
}


def kinds(base):
    return sorted(
        (c for c in vars(events).values() if isinstance(c, type) and issubclass(c, base) and c is not base),
        key=lambda c: c.__name__,
    )


def filled(cls):
    """Return a value of a kind with no field at its default."""
    hints = typing.get_type_hints(cls)
    return cls(**{name: VALUES[hints[name]] for name in cls.__struct_fields__})


@pytest.mark.parametrize("cls", kinds(Event), ids=lambda c: c.__name__)
def test_events_round_trip(cls):
    """Every kind, with every field set, and as small as it may be."""
    event = filled(cls)
    assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=AnyEvent) == event


@pytest.mark.parametrize("cls", kinds(Command), ids=lambda c: c.__name__)
def test_commands_round_trip(cls):
    """Every kind; groups with their nodes included."""
    command = filled(cls)
    again = msgspec.json.decode(msgspec.json.encode(command), type=AnyCommand)
    assert again == command and type(again) is cls


def test_the_unions_hold_every_kind():
    """A kind that is missing in its union could not be read from a journal."""
    assert set(typing.get_args(AnyEvent)) == set(kinds(Event))
    assert set(typing.get_args(AnyCommand)) == set(kinds(Command))


def test_a_fork_is_a_submit_but_not_the_same():
    """Drivers may treat it as a submit; the journal keeps the difference."""
    submit = filled(Submit)
    fork = Fork(**msgspec.structs.asdict(submit))
    assert isinstance(fork, Submit) and fork != submit
    assert msgspec.json.encode(fork) != msgspec.json.encode(submit)


def test_numbers_survive_to_the_last_bit():
    """Logprobs that JSON could shorten."""
    logprobs = (-0.1, -1 / 3, -5e-324, -1.7976931348623157e308, -0.0)
    event = Sampled(ask="a", tokens=(1,) * 5, logprobs=logprobs)
    again = msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent)
    assert [x.hex() for x in again.logprobs] == [x.hex() for x in logprobs]


def test_values_are_frozen():
    """What was recorded cannot be changed afterwards."""
    with pytest.raises(AttributeError):
        filled(EmitBatch).step = 5
