"""Tools the model may use: each one a `Tool`, all of them reading through `MemoryView`."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from bot.agent.models import ToolSpec
from bot.channel import Address, Attachment, Media
from bot.errors import ToolError
from bot.identity.access import ToolRights
from bot.identity.view import MemoryView
from bot.memory import markdown
from bot.memory.note_store import Watch
from bot.memory.notes import Place
from bot.messages import Message, Quoted, ToolUse, ToolValue
from bot.sessions.approvals import Verdict
from bot.sessions.reminders import ReplyTarget


@dataclass(frozen=True, slots=True)
class MemoryPassage:
    """A passage of memory that was put before the model in this turn."""

    place: Place
    text: str


def passages(quoted: Quoted) -> Iterator[MemoryPassage]:
    """The passages of memory files among some quotes."""
    for quote in quoted.quotes:
        if quote.path:
            text = markdown.unattributed(quote.text)
            yield MemoryPassage(Place(quote.path, quote.line), text)


@dataclass(slots=True)
class TurnMemory:
    """The reads and writes of memory by one turn, and what goes out with its reply.

    Attributes:
        words: what the person wrote in the messages it answers.
        seen: what the model was shown when it began, each block with its origin.
        foreign: somebody else's words that tools showed.
        shown: all that other tools than memory's own showed.
        recalled: passages of memory that the model was shown.
        written: the places of what was stored, once it is on disk.
        came: the files of the messages it answers.
        files: files that go out with the reply.
        elsewhere: messages to other places, which go out with it too.
    """

    words: tuple[str, ...] = ()
    seen: tuple[Message, ...] = ()
    foreign: list[str] = field(default_factory=list[str])
    shown: list[str] = field(default_factory=list[str])
    recalled: list[MemoryPassage] = field(default_factory=list[MemoryPassage])
    written: list[Place] = field(default_factory=list[Place])
    came: tuple[tuple[Address, Media], ...] = ()
    files: list[Attachment] = field(default_factory=list[Attachment])
    elsewhere: list[tuple[ReplyTarget, str]] = field(default_factory=list[tuple[ReplyTarget, str]])


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Context of a call: for whom it is.

    Attributes:
        view: the memory it may see.
        session_id: the conversation.
        now: the time, in the person's time zone.
        window: the model's window in tokens.
        memory: what the turn reads and writes.
        target: where a tool's later messages and its questions go; None where none can.
        watch: hears of what is forgotten while the work goes on.
        rights: those of everybody who is answered; by default the built-in tools alone.
        start: notes for good that a call begins which must not be made twice; without it nothing
            is run a second time.
        name: what whoever is answered is called.
    """

    view: MemoryView
    session_id: str
    now: datetime
    window: int = 200_000
    memory: TurnMemory = field(default_factory=TurnMemory)
    target: ReplyTarget | None = None
    watch: Watch = field(default_factory=Watch)
    rights: tuple[ToolRights, ...] = (ToolRights(),)
    start: Callable[[ToolUse], Awaitable[None]] | None = None
    name: str = ""

    @property
    def person(self) -> str:
        """The person whose share of the bot's work this takes."""
        return self.target.person if self.target is not None else self.session_id


class Tool(Protocol):
    """Something a model can ask for.

    One that asks the person first may have a `check` of the same parameters as `run`: what it
    refuses they are not asked about.
    """

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it; the same bytes every time."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext, /) -> str | ToolValue:
        """Do it and answer; the model is shown the answer's words, `str(answer)`.

        Raises:
            ToolError: wrong arguments, or it could not be done; the model is told the message.
        """
        ...


# What a tool takes, as one model: the schema a language model is sent and the check it passes.
#
# A tool from elsewhere that brings a JSON Schema of its own needs none of this: it gives that to
# its `ToolSpec`, and checks its arguments itself.

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
        repeatable: bool = False,
        of_memory: bool = False,
        changes: bool = False,
        short: str = "",
        few: tuple[str, ...] = (),
    ) -> ToolSpec:
        """The tool as a language model sees it; the same bytes every time.

        `short` is its description for a small model, which is told of a `few` parameters only.
        """
        schema = cls.model_json_schema(schema_generator=_PlainSchema)
        plain = {key: schema[key] for key in ("type", "properties", "required") if key in schema}
        plain["additionalProperties"] = False
        whole = ToolSpec(
            *(name, description, plain, tells_origins, built_in),
            changes=changes,
            repeatable=repeatable,
            of_memory=of_memory,
        )
        if not short:
            return whole
        fields = {each: {"type": plain["properties"][each]["type"]} for each in few}
        needed = [each for each in plain.get("required", ()) if each in few]
        brief = {"type": "object", "properties": fields, "required": needed}
        return replace(whole, short=ToolSpec(name, short, brief, tells_origins, built_in))

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> Self:
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
        """The kind of value an argument takes, from its schema."""
        wanted = cls.model_json_schema(schema_generator=_PlainSchema)["properties"][name]
        match wanted["type"]:
            case "boolean":
                return "true or false"
            case "integer":
                low, high = wanted.get("minimum"), wanted.get("maximum")
                bounds = f" from {low}" if low is not None else ""
                return f"a whole number{bounds}{f' to {high}' if high is not None else ''}"
            case _:
                return f"one of {', '.join(wanted['enum'])}" if "enum" in wanted else "text"


# Asking the person before a tool is called: what they are shown, and what they have decided.
# Pure.
#
# A call that needs their word ends its turn with a question. Their answer is a message, whose
# turn carries the call out and shows the model what came of it.

# Control and format characters (such as those that turn the direction), and other line breaks.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

MAX_SHOWN = 8_000  # characters of a call; what is longer nobody would read

ONE_AT_A_TIME: Final = (
    "nothing was done: the person is asked about one call at a time. Call this again once they "
    "have answered."
)
NOBODY_THERE: Final = (
    "nothing was done: the person has to be asked about this, and what runs by itself cannot ask. "
    "Say so; they can have it done when they talk to you."
)
TOO_LONG: Final = (
    "nothing was done: the person has to be shown the whole call, and it has more than "
    f"{MAX_SHOWN} characters. Do it in smaller parts."
)
UNDONE: Final[Mapping[Verdict, str]] = {
    "denied": "the person said no, so nothing was done. Do not call it again unless they ask.",
    "late": "the person's answer came too late to be used, so nothing was done. Call it again if "
    "they still want it.",
    "begun": "this was begun before the program was ended, and its result was lost. It is "
    "not done a second time: say so, and look what came of it if you can.",
}


@dataclass(frozen=True, slots=True)
class DecidedCall:
    """A call that a person was asked about, what they decided, and their rights now."""

    use: ToolUse
    verdict: Verdict
    rights: tuple[ToolRights, ...]


def shown_call(arguments: Mapping[str, Any]) -> str:
    """A call's arguments as a person reads them: nothing in them is unseen, or turns the rest."""
    return "".join(map(_visible, json.dumps(arguments, ensure_ascii=False, indent=2)))


def _visible(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in _UNSEEN:
        return character
    return json.dumps(character)[1:-1]
