"""Tool calls: read as they were meant, kept as they were sampled, and never an exception."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollwright.envs import FORMATS, Effect, Tool, parse_tool_calls
from rollwright.envs.tool_text import render_call, render_result, render_tools
from rollwright.errors import ConfigError, UnknownName

# Each by hand, after the formats' descriptions: (format, text, [(name, arguments)]).
RIGHT: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [
    ("hermes", 'I look.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>', [("f", {"x": 1})]),
    (
        "hermes",
        '<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>{"arguments":{"y":[2]},"name":"g"}</tool_call>',
        [("f", {}), ("g", {"y": [2]})],
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"x": "</tool_call>"}}</tool_call>',
        [("f", {"x": "</tool_call>"})],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>', [("f", {"x": 1})]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": 1}}', [("f", {"x": 1})]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"code": "a\nb"}}</tool_call>',
        [("f", {"code": "a\nb"})],
    ),
    ("qwen", '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>', [("f", {"x": 1})]),
    (
        "qwen",
        "<tool_call><function=f>\n<parameter=code>\n  if a:\n\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        [("f", {"code": "  if a:\n", "n": "3"})],
    ),
    ("llama", '{"name": "f", "parameters": {"x": "y"}}<|eot_id|>', [("f", {"x": "y"})]),
    (
        "llama",
        '<|python_tag|>{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}<|eom_id|>',
        [("f", {"x": 1}), ("g", {})],
    ),
    (
        "llama",
        '<|python_tag|>brave_search.call(query="two words")<|eom_id|>',
        [("brave_search", {"query": "two words"})],
    ),
    ("llama", "<|python_tag|>print(1 + 1)\n", [("python", {"code": "print(1 + 1)"})]),
    ("llama", '<function=f>{"x": 1}</function>', [("f", {"x": 1})]),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}, "id": "a"}]',
        [("f", {"x": 1}), ("g", {})],
    ),
    (
        "mistral",
        'Well.[TOOL_CALLS]f[ARGS]{"x": "[TOOL_CALLS]"}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}',
        [("f", {"x": "[TOOL_CALLS]"}), ("g", {})],
    ),
    ("mistral", '[TOOL_CALLS]f{"x": 1}', [("f", {"x": 1})]),
    (
        "xml",
        "<function=f><parameter=x>1</parameter></function> <function=g></function>",
        [("f", {"x": "1"}), ("g", {})],
    ),
    (
        "xml",
        '<invoke name="f">\n<parameter name="x">a < b && c</parameter>\n</invoke>',
        [("f", {"x": "a < b && c"})],
    ),
    (
        "pythonic",
        '[f(x=1, y="é"), m.g(z=[None, True])]',
        [("f", {"x": 1, "y": "é"}), ("m.g", {"z": [None, True]})],
    ),
    (
        "openai",
        '[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\\"x\\": 1}"}}]',
        [("f", {"x": 1})],
    ),
    (
        "openai",
        '{"content": null, "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}',
        [("f", {})],
    ),
    ("openai", '{"name": "f", "arguments": {"x": 1.5}}', [("f", {"x": 1.5})]),
]
# No calls at all: answers that only look a little like one.
NONE = [
    ("hermes", "The answer is 4."),
    ("hermes", '{"name": "f", "arguments": {}}'),
    ("llama", 'The set {1, 2} has a "name".'),
    ("llama", "{1, 2}"),
    ("mistral", '[{"name": "f"}]'),
    ("openai", '{"answer": 4}'),
    ("openai", "[1, 2]"),
    ("openai", "{1, 2}"),
    ("pythonic", "[1, 2]"),
    ("pythonic", "f(x=1)"),
    ("xml", "if a < b: f(x)"),
]
# What is wrong, in words for the model: (format, text, name, part of the message).
WRONG = [
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": }}</tool_call>', "", "not valid JSON"),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "f", "array; expected an object"),
    ("hermes", '<tool_call>{"name": "f", "arguments": "x"}</tool_call>', "f", "not valid JSON"),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>', "", 'no "name"'),
    ("hermes", '<tool_call>{"name": 3}</tool_call>', "", 'no "name"'),
    ("hermes", "<tool_call>f(x=1)</tool_call>", "", "not a JSON object"),
    ("hermes", "<tool_call>", "", "not a JSON object"),
    ("hermes", '<tool_call>{"name": "f"', "", "end of the text"),
    ("hermes", '<tool_call>{"name": "f"} and so on', "f", "</tool_call>"),
    ("hermes", '<tool_call>{"name": "f", "name": "g"}</tool_call>', "", "'name' is given twice"),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"x": 1, "x": 2}}</tool_call>',
        "",
        "'x' is given twice",
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>', "", "NaN"),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": 1e999}}</tool_call>', "", "too large"),
    ("qwen", "<tool_call><function=f><parameter=x>1</function></tool_call>", "f", "not closed"),
    ("xml", "<function=f><parameter=x>1</parameter>", "f", "not closed"),
    ("xml", "<function=><parameter=x>1</parameter></function>", "", "no name"),
    (
        "xml",
        "<function=f><parameter=x>1</parameter><parameter=x>2</parameter></function>",
        "f",
        "given twice",
    ),
    ("llama", '{"name": "f", "parameters": {"x": 1}', "", "not valid JSON"),
    ("llama", '{"name": "f", "parameters": {}} and so on', "f", "behind the tool call"),
    ("llama", "<|python_tag|>brave_search.call(open('x'))", "brave_search", "not plain values"),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"x"', "f", "not valid JSON"),
    ("mistral", '[TOOL_CALLS][{"name": "f"', "", "not valid JSON"),
    ("mistral", "[TOOL_CALLS]", "", "neither"),
    ("pythonic", "[f(1)]", "f", "need names"),
    ("pythonic", "[f(x=1, x=2)]", "f", "given twice"),
    ("pythonic", "[f(x=open('y'))]", "f", "not plain values"),
    ("pythonic", "[f(x=1)", "", "list of Python calls"),
    ("openai", '{"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}', "f", "not valid JSON"),
]


@pytest.mark.parametrize(("format", "text", "calls"), RIGHT)
def test_calls_are_read(format, text, calls):
    """Oracle: by hand. Broken by: searching for the close tag first, so that one in a text ends the call."""
    found = parse_tool_calls(text, format)
    assert [(call.name, call.arguments, call.error) for call in found] == [(*call, None) for call in calls]
    assert all(text[call.start :].startswith(call.raw) and call.raw for call in found)


@pytest.mark.parametrize(("format", "text"), NONE)
def test_answers_are_no_calls(format, text):
    """Oracle: by hand. Broken by: taking any JSON for a call."""
    assert parse_tool_calls(text, format) == ()


@pytest.mark.parametrize(("format", "text", "name", "says"), WRONG)
def test_bad_calls_come_back_as_text(format, text, name, says):
    """Oracle: by hand. Broken by: dropping what cannot be read, or guessing at it."""
    (call,) = parse_tool_calls(text, format)
    assert (call.name, call.arguments) == (name, None) and says in call.error
    assert text[call.start :].startswith(call.raw)


def test_a_bad_call_does_not_take_the_next_with_it():
    """Oracle: by hand."""
    text = '<tool_call>{"name": }</tool_call> <tool_call>{"name": "g"}</tool_call>'
    first, second = parse_tool_calls(text, "hermes")
    assert first.error and first.raw == '<tool_call>{"name": }</tool_call>'
    assert (second.name, second.arguments, second.error) == ("g", {}, None)
    unclosed = '<tool_call>{"name": "f"} <tool_call>{"name": "g"}</tool_call>'
    first, second = parse_tool_calls(unclosed, "hermes")
    assert first.error and first.raw == '<tool_call>{"name": "f"} '
    assert second.name == "g" and second.error is None


@pytest.mark.parametrize("format", ["hermes", "qwen"])
def test_thoughts_are_no_calls(format):
    """Oracle: by hand. Broken by: running a call that the model only considered."""
    call = '<tool_call>{"name": "%s", "arguments": {}}</tool_call>'
    for thought in (
        f"<think>maybe {call % 'f'}</think>",
        f"maybe {call % 'f'}</think>",
        "<think>a <tool_call></think>",
    ):
        text = f"{thought}\n{call % 'g'}"
        assert [(c.name, text[c.start :]) for c in parse_tool_calls(text, format)] == [("g", call % "g")]
    assert parse_tool_calls(f"<think>maybe {call % 'f'}", format) == ()
    inside = '<tool_call>{"name": "write", "arguments": {"text": "</think>"}}</tool_call>'
    assert parse_tool_calls(inside, format)[0].arguments == {"text": "</think>"}


TOOLS = (
    Tool(
        "f", "Does f.", {"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}}
    ),
    Tool("g", parameters={"type": "object", "properties": {"y": {"type": "array"}}, "required": ["y"]}),
)


def test_calls_are_held_against_the_tools():
    """Oracle: JSON Schema, by hand. Broken by: leaving xml's values as text."""

    def complaint(text, format="hermes"):
        return parse_tool_calls(text, format, TOOLS)[0]

    call = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'
    assert complaint(call % ("f", '{"x": 3}')).error is None
    assert "'3' is not of type 'integer'" in complaint(call % ("f", '{"x": "3"}')).error
    assert "'y' is a required property" in complaint(call % ("g", "{}")).error
    assert complaint(call % ("h", "{}")).error == "there is no tool 'h'; the tools are f, g"
    typed = complaint("<function=f><parameter=x>3</parameter><parameter=s>3</parameter></function>", "xml")
    assert (typed.arguments, typed.error) == ({"x": 3, "s": "3"}, None)
    assert "'three'" in complaint("<function=f><parameter=x>three</parameter></function>", "xml").error
    listed = complaint("<tool_call><function=g><parameter=y>[1]</parameter></function></tool_call>", "qwen")
    assert listed.arguments == {"y": [1]}
    with pytest.raises(ConfigError, match="no JSON schema"):
        Tool("bad", parameters={"type": "objekt"})
    assert Tool("f").effect is Effect.CHANGE, "who does not say is not taken to be harmless"


BITS = (
    '<tool_call> </tool_call> { } "name" : "f" , "arguments" [ ] \\ " <think> </think> [TOOL_CALLS] [ARGS]'
    " <|python_tag|> <function=f> <parameter=x> </parameter> </function> f ( ) x=1 1 1e999 NaN é .call"
    ' \ud800 \x00 <invoke-name="f"> "tool_calls" ; - \n'
)
PIECES = st.sampled_from(BITS.split(" ")).map(lambda piece: piece.replace("-", " "))


@pytest.mark.parametrize("format", FORMATS)
@given(text=st.one_of(st.lists(PIECES, max_size=25).map("".join), st.text(max_size=40)))
@example(text="[" * 5000)
@example(text='{"name": "f", "arguments": ' + '{"x": ' * 5000)
@example(text='<tool_call>{"name": "f", "arguments": {"x": ' + "1" * 5000 + "}}</tool_call>")
@example(text="[f(x=" + "(" * 5000)
@settings(max_examples=150, deadline=None)
def test_no_text_raises(format, text):
    """Oracle: the places of what is found. Broken by: letting RecursionError or a lone surrogate through."""
    end = 0
    for call in parse_tool_calls(text, format, TOOLS):
        assert (call.arguments is None and call.error) or isinstance(call.arguments, dict)
        assert call.start >= end and text[call.start : call.start + len(call.raw)] == call.raw
        end = call.start + len(call.raw)


NAMES = st.from_regex(r"[a-z][a-z_0-9]{0,8}", fullmatch=True).filter(lambda name: name.isidentifier())
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "xml"])
@given(name=NAMES, arguments=st.dictionaries(NAMES, PLAIN, max_size=3))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(format, name, arguments):
    """Oracle: the inverse. Broken by: any loss on the way."""
    from keyword import iskeyword

    if format == "pythonic" and any(iskeyword(word) for word in [name, *arguments]):
        return
    (call,) = parse_tool_calls(render_call(name, arguments, format), format)
    assert (call.name, call.arguments, call.error) == (name, arguments, None)


@given(
    arguments=st.dictionaries(
        NAMES, st.text().filter(lambda text: "<" not in text and "\r" not in text), max_size=3
    )
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_as_elements_is_read(arguments):
    """Oracle: the inverse, for texts."""
    (call,) = parse_tool_calls(render_call("f", arguments, "xml"), "xml")
    assert (call.arguments, call.error) == (arguments, None)


def test_thousands_of_opening_tags_are_read_in_good_time():
    """Oracle: the clock; looking for a close tag again for each of them took half a minute."""
    start = time.perf_counter()
    assert len(parse_tool_calls("<tool_call>" * 30_000, "hermes")) == 30_000
    assert time.perf_counter() - start < 5


def test_what_the_model_is_told():
    """Oracle: the descriptions read back, and the example parses as a call in the format."""
    for format in FORMATS:
        text = render_tools(TOOLS, format)
        lines = [
            json.loads(line) for line in text.splitlines() if line.startswith('{"name": ') and "desc" in line
        ]
        assert [line["name"] for line in lines] == ["f", "g"]
        example_of = text.partition("looks like this:\n")[2]
        assert [call.name for call in parse_tool_calls(example_of, format)] == ["NAME"]
        assert "it is 3" in render_result(parse_tool_calls(example_of, format)[0], "it is 3", format)
    for function in (lambda: parse_tool_calls("", "xlm"), lambda: render_call("f", {}, "xlm")):
        with pytest.raises(UnknownName, match="did you mean 'xml'"):
            function()
