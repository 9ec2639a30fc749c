"""What is said in a conversation, as values: the shapes are those of the Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from bot.tool_results import ToolValue

# Whose words a block holds. Empty is what the block is by itself: a person's text is theirs, the
# model's its own, a note the program's.
Whose = Literal[
    "",
    "person",  # who wrote the message
    "program",
    "bot",  # the model, with nobody else's words before it
    "memory",  # notes, without what in them came from elsewhere
    "reply",  # the message that was answered
    "forwarded",
    "poll",
    "place",
    "card",
    "preview",  # of a link
    "file",  # what a file says …
    "name",  # … and what it is called
    "heard",  # said in a room, and not to the bot
    "tool",
    "mixed",  # made by the model or the program with somebody else's words in sight
    "before",  # recalled of a conversation that held somebody else's words
    "carried",  # made with only such a recall in sight
    "imported",  # said to another program, and brought here by its export
    "unknown",  # stored before this was told apart
]
CLEAN: frozenset[Whose] = frozenset({"", "person", "program", "bot", "memory"})
CARRIED: Whose = "carried"
_CARRYING: frozenset[Whose] = frozenset({"before", CARRIED})


@dataclass(frozen=True, slots=True)
class Text:
    """Words, by either side.

    `note` marks what the engine put beside a person's words (the time, a quoted message): the
    model reads it, but the person did not write it. `origin` says whose words they are, `value`
    what they tell, for the engine.
    """

    text: str
    note: bool = False
    origin: Whose = ""
    value: ToolValue | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model asks for a tool; `input` is its JSON arguments, not yet validated.

    What it sent instead of arguments, if that was no JSON object, is `garbled`; no transcript
    keeps it.
    """

    id: str
    name: str
    input: Mapping[str, Any]
    garbled: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered, as text for the model: a stranger's words unless known not to be.

    `value` is the same for the engine, if it is one of the engine's own tools; `kept` is the
    artifact that holds all of it, when the text is only its beginning and its end.
    """

    tool_use_id: str
    text: str
    is_error: bool = False
    origin: Whose = "tool"
    value: ToolValue | None = None
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture a person sent.

    `ref` is where the program keeps it; `data` is base64, empty when it is not at hand.
    """

    media_type: str
    ref: str
    data: str = field(default="", repr=False)


THOUGHTS: Final = frozenset({"thinking", "redacted_thinking", "thought"})  # kinds of such blocks


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block only the model's own service understands, sent back untouched.

    `service` is that one's name; empty is the anthropic table's, as it was before there were more.
    """

    data: Mapping[str, Any]
    service: str = ""

    @property
    def is_thought(self) -> bool:
        """True for what a model thought on its way to a reply."""
        return self.data.get("type") in THOUGHTS

    @property
    def weighed(self) -> str:
        """What of it costs tokens: of a thought the words, and not what seals them."""
        words = self.data.get("text") or self.data.get("thinking") or self.data.get("details")
        return str(words or "") if self.is_thought else str(self.data)


Block = Text | ToolUse | ToolResult | Picture | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """One side's contribution to the conversation."""

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The words of this message, without tools and the engine's notes."""
        return "".join(b.text for b in self.blocks if isinstance(b, Text) and not b.note)

    @property
    def own_text(self) -> str:
        """Of these words, those that are their sender's own."""
        return "".join(
            b.text for b in self.blocks if isinstance(b, Text) and not b.note and b.origin in CLEAN
        )

    @property
    def begins_turn(self) -> bool:
        """True when a person sent it, so that what follows stands by itself."""
        if self.role != "user":
            return False
        texts = [block for block in self.blocks if isinstance(block, Text)]
        answers = any(isinstance(block, ToolResult) for block in self.blocks)
        return any(not block.note for block in texts) or (bool(texts) and not answers)

    @property
    def origins(self) -> frozenset[Whose]:
        """Whose words it holds."""
        said = (block for block in self.blocks if isinstance(block, (Text, ToolResult)))
        return frozenset(block.origin for block in said)


def mixture(origins: Iterable[Whose]) -> Whose:
    """What comes of words of these origins, when somebody who read them writes of them.

    Empty when all of them are the person's, the program's or the bot's own.
    """
    strange = frozenset(origins) - CLEAN
    return ("carried" if strange <= _CARRYING else "mixed") if strange else ""


def without_thoughts(
    messages: Iterable[Message], *, but_of_calls: bool = False
) -> tuple[Message, ...]:
    """The messages without what the model thought; one that holds nothing else goes as well.

    What it thought before it called tools can stay: some services want it back with every request.
    """
    found: list[Message] = []
    for message in messages:
        if but_of_calls and any(isinstance(block, ToolUse) for block in message.blocks):
            found.append(message)
            continue
        kept = tuple(b for b in message.blocks if not (isinstance(b, Opaque) and b.is_thought))
        if kept or not message.blocks:
            found.append(replace(message, blocks=kept))
    return tuple(found)
