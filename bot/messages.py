"""What is said in a conversation, as values: the shapes are those of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Text:
    """Words, by either side.

    `note` marks what the engine put beside a person's words (the time, a quoted message): the
    model reads it, but the person did not write it.
    """

    text: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model asks for a tool; `input` is its JSON arguments, not yet validated."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered, as text for the model."""

    tool_use_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture a person sent.

    `ref` is where the program keeps it; `data` is base64, empty when it is not at hand.
    """

    media_type: str
    ref: str
    data: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A block only the model's own service understands (thinking, say), sent back untouched."""

    data: Mapping[str, Any]


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
