"""Tools: what they are called, what they take, and whether they change anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rollwright.errors import ConfigError


class Effect(StrEnum):
    """What a call may do to the environment."""

    READ = "read"  # looks only: it may be repeated, cached or dropped
    CHANGE = "change"  # changes the state: it must happen once, in order


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the model is told of it.

    Args:
        name: what a call names.
        description: for the model.
        parameters: JSON schema of the arguments, an object.
        effect: whether a call may change the state.

    Raises:
        ConfigError: the schema is not one.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    effect: Effect = Effect.CHANGE

    def __post_init__(self) -> None:
        import jsonschema  # a sixth of a second, which not every command needs

        try:
            jsonschema.Draft202012Validator.check_schema(dict(self.parameters))
        except jsonschema.SchemaError as error:
            raise ConfigError(
                f"tool {self.name!r}: its parameters are no JSON schema: {error.message}"
            ) from error

    def as_openai(self) -> dict[str, Any]:
        """Return the description that chat templates and servers take."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}

    def complaint(self, arguments: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a call's arguments, in words for the model, or None."""
        import jsonschema

        errors = jsonschema.Draft202012Validator(dict(self.parameters)).iter_errors(dict(arguments))
        found = sorted(errors, key=lambda error: (list(map(str, error.absolute_path)), error.message))
        if not found:
            return None
        where = ".".join(map(str, found[0].absolute_path))
        return f"{where}: {found[0].message}" if where else found[0].message
