"""What a tool takes, as one model: the schema a language model is sent and the check it passes.

A tool from elsewhere that brings a JSON Schema of its own needs none of this: it gives that to its
`ToolSpec`, and checks its arguments itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from bot.agent.models import ToolSpec
from bot.errors import ToolError

MOST_TOLD = 3  # mistakes that are told at once


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


Words = Annotated[str, AfterValidator(_not_blank)]
"""A text with something in it."""

Stripped = Annotated[str, AfterValidator(str.strip)]
"""A text without the blanks around it; it may be empty."""


class _PlainSchema(GenerateJsonSchema):
    """Only what a language model needs: no titles, no defaults, and nothing that may be null."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


class Parameters(BaseModel):
    """A tool's parameters: a field each, with its bounds and its description.

    An argument that is null counts as left out, and a number of 2.0 as 2.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _whole(value) for name, value in given.items() if value is not None}

    @classmethod
    def spec(
        cls,
        name: str,
        description: str,
        *,
        tells_origins: bool = False,
        built_in: bool = False,
        short: str = "",
        few: tuple[str, ...] = (),
    ) -> ToolSpec:
        """The tool as a language model sees it; the same bytes every time.

        `short` is its description for a small model, which is told of a `few` parameters only.
        """
        schema = cls.model_json_schema(schema_generator=_PlainSchema)
        plain = {key: schema[key] for key in ("type", "properties", "required") if key in schema}
        plain["additionalProperties"] = False
        if not short:
            return ToolSpec(name, description, plain, tells_origins, built_in)
        fields = {each: {"type": plain["properties"][each]["type"]} for each in few}
        needed = [each for each in plain.get("required", ()) if each in few]
        brief = {"type": "object", "properties": fields, "required": needed}
        return ToolSpec(
            name,
            description,
            plain,
            tells_origins,
            built_in,
            short=ToolSpec(name, short, brief, tells_origins, built_in),
        )

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """The arguments a language model gave.

        Raises:
            ToolError: some are wrong; it says which, and what they must be.
        """
        try:
            return cls.model_validate(dict(arguments))
        except ValidationError as error:
            mistakes = dict.fromkeys(cls._told(each) for each in error.errors(include_url=False))
            raise ToolError("; ".join([*mistakes][:MOST_TOLD])) from None

    @classmethod
    def _told(cls, error: ErrorDetails) -> str:
        """A mistake in words for the language model, none of which it made up.

        What a tool answers counts as shown to it: an address that stood there could be opened.
        """
        about, given, context = error["loc"], error["input"], error.get("ctx", {})
        if not about:  # of the arguments together
            return str(context["error"])
        name = str(about[0])
        fields = {field.alias or key: field for key, field in cls.model_fields.items()}
        if name not in fields:
            return f"there is an unknown argument; known: {', '.join(fields)}"
        match error["type"]:
            case "missing":
                return f"{name!r} is missing"
            case "string_too_long":
                most = context["max_length"]
                return f"{name!r} has {len(given)} characters; at most {most} are taken"
            case "value_error":
                return f"{name!r} {context['error']}"
            case _:
                return f"{name!r} must be {cls._kind(name)}"

    @classmethod
    def _kind(cls, name: str) -> str:
        """What an argument must be, as its schema says."""
        wanted = cls.model_json_schema(schema_generator=_PlainSchema)["properties"][name]
        match wanted["type"]:
            case "boolean":
                return "true or false"
            case "integer":
                low, high = wanted.get("minimum"), wanted.get("maximum")
                bounds = f" from {low}" if low is not None else ""
                return f"a whole number{bounds}{f' to {high}' if high is not None else ''}"
            case _:
                return "text"
