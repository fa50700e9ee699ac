"""Rendering, and finding the template of a model."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from chat_help import CHATML, DEFAULT_SYSTEM, SYSTEM_LAST, THOUGHTLESS, TOOLS, TRIMMING, user

from rollwright.chat import ChatTemplate, load_template
from rollwright.errors import DataError, ModelError

TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "größer <b> 'x' & \"y\"", "parameters": {}},
}
DIALOGUE = [
    {"role": "system", "content": "Be brief."},
    user("Hi é <b>"),
    {"role": "assistant", "content": "<think>\nr\n</think>\n\nHello"},
    user("  again \n"),
]
SYNTAX = (
    "{{ bos_token }}\n{%- for m in messages %}\n    {% if m.role == 'system' %}\n      {% continue %}\n"
    "    {% endif %}\n  {% generation %}{{ m.content }}{% endgeneration %}\n"
    "{% if loop.index > 2 %}{% break %}\n{% endif %}\n{% endfor %}{{ eos_token }}\n"
    "{{ more | default('none') }}\n{{ tools | tojson(indent=2) }}"
)


@pytest.mark.parametrize("text", [CHATML, DEFAULT_SYSTEM, THOUGHTLESS, TRIMMING, SYSTEM_LAST, TOOLS, SYNTAX])
@pytest.mark.parametrize("start", [True, False])
def test_renders_as_transformers_does(text, start):
    """Oracle: transformers' renderer. Broken by: escaping HTML in JSON, or keeping block newlines."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    theirs = utils._compile_jinja_template(text)
    given = {"bos_token": "<s>", "eos_token": "</s>", "tools": [TOOL], "add_generation_prompt": start}
    want = theirs.render(messages=DIALOGUE, **given)
    assert ChatTemplate(text, "<s>", "</s>").render(DIALOGUE, [TOOL], start) == want


def test_variables_reach_the_template():
    """Oracle: hand."""
    template = ChatTemplate("{{ enable_thinking }} {{ tools is none }}")
    assert template.render([], enable_thinking=False) == "False True"


def test_the_date_is_fixed():
    """Oracle: hand. Broken by: reading the clock at each rendering, so that history changes at midnight."""
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=datetime(2024, 2, 29))
    assert template.render([]) == template.render([user("later")]) == "29 Feb 2024"


def test_errors_say_what_is_wrong():
    """Oracle: the messages."""
    with pytest.raises(ModelError, match="not valid Jinja, line 2"):
        ChatTemplate("a\n{% for %}")
    refusing = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(DataError, match=r"roles must alternate.*user, user"):
        refusing.render([user("a"), user("b")])
    with pytest.raises(DataError, match="content"):
        ChatTemplate(CHATML).render([{"role": "user"}])
    with pytest.raises(DataError, match="content that is text"):
        ChatTemplate(CHATML).render([{"role": "user", "content": [{"type": "image"}]}])


@pytest.mark.parametrize("text", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_templates_are_foreign_code(text):
    """Oracle: the sandbox refuses. Broken by: a plain Jinja environment."""
    with pytest.raises(DataError):
        ChatTemplate(text).render([user("a")])


def test_where_templates_are_found(tmp_path):
    """Oracle: hand, one folder after another. The file comes before the config, as in transformers."""
    assert load_template(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "C{{ bos_token }}{{ eos_token }}"}))
    assert load_template(tmp_path).render([]) == "C"
    tokens = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    several = [
        {"name": "rag", "template": "R"},
        {"name": "default", "template": "D{{ bos_token + eos_token }}"},
    ]
    config.write_text(json.dumps({"chat_template": several, **tokens}))
    assert load_template(tmp_path).render([]) == "D<s></s>"
    (tmp_path / "chat_template.jinja").write_text("F{{ bos_token }}")
    assert load_template(tmp_path).render([]) == "F<s>"
    (tmp_path / "chat_template.jinja").unlink()
    config.write_text(json.dumps({"chat_template": several[:1]}))
    with pytest.raises(ModelError, match="named rag"):
        load_template(tmp_path)
    config.write_text("{")
    with pytest.raises(ModelError, match="not valid JSON"):
        load_template(tmp_path)
