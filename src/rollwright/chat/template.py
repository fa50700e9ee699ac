"""A model's chat template: messages to text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rollwright.errors import DataError, ModelError

Message = Mapping[str, Any]


class ChatTemplate:
    """Turns messages into the text that a model was trained on.

    Args:
        text: the template, in the Jinja dialect of Hugging Face's ``chat_template``.
        bos, eos: what the template's ``bos_token`` and ``eos_token`` stand for.
        now: what its ``strftime_now`` reads. It is fixed here, so that no dialogue changes at midnight.

    Raises:
        ModelError: the template is not valid Jinja.

    Example:
        >>> template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}")
        >>> template.render([{"role": "user", "content": "Hi"}])
        'user: Hi\\n'
    """

    def __init__(self, text: str, bos: str = "", eos: str = "", now: datetime | None = None) -> None:
        self.text, self.bos, self.eos, self.now = text, bos, eos, now or datetime.now()
        try:
            self._template = _environment(self.now).from_string(text)
        except TemplateSyntaxError as error:
            raise ModelError(f"the chat template is not valid Jinja, line {error.lineno}: {error}") from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """Return the text of ``messages``.

        Args:
            messages: each with a ``role`` and what else the template reads, mostly ``content``.
            tools: descriptions of tools, where the model knows any.
            add_generation_prompt: begin the assistant's turn at the end, for the model to go on.
            variables: others that the template reads, such as ``enable_thinking``.

        Raises:
            DataError: the template refuses the messages, or they lack what it reads.
        """
        given = {"bos_token": self.bos, "eos_token": self.eos, **variables}
        try:
            return self._template.render(
                messages=list(messages),
                tools=None if tools is None else list(tools),
                add_generation_prompt=add_generation_prompt,
                **given,
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise DataError(
                f"the chat template refuses these messages ({error}); the roles were: {roles or 'none'}. "
                "Each needs a role that the model knows, and content that is text"
            ) from error


class _Generation(Extension):
    """``{% generation %}`` marks what the model says, for mask-making; here it only shows its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(now: datetime) -> ImmutableSandboxedEnvironment:
    """Return the environment that templates of Hugging Face models expect; they are foreign code."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = now.strftime
    return environment


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """Return JSON as models saw it in training: no HTML escapes, other characters as they are."""
    options.setdefault("ensure_ascii", False)
    return json.dumps(value, indent=indent, **options)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
