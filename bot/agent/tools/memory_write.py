"""`memory_write`: the model keeps something in the person's daily note."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bot.agent.models import ToolSpec
from bot.agent.tools import ToolContext, arguments
from bot.memory.notes import Notes

MAX_TEXT = 4_000  # characters

SPEC: Final = ToolSpec(
    name="memory_write",
    description=(
        "Keep something worth remembering in today's note, a Markdown file the person can read "
        "and edit. Use it when the person asks you to remember something, and for lasting facts, "
        "decisions and preferences. Write one self-contained statement. Say that something is "
        "remembered only after this tool answered that it is stored."
    ),
    schema={
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "description": f"What to keep, at most {MAX_TEXT} characters.",
            }
        },
        "required": ["text"],
        "additionalProperties": False,
    },
)


class MemoryWrite:
    """Appends to the daily note of the view's space."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        return SPEC

    async def run(self, arguments_: Mapping[str, Any], context: ToolContext) -> str:
        """Store the text; answers only when it is on disk.

        Raises:
            ToolError: wrong arguments, no space to write to, or the disk did not take it.
        """
        arguments.only(arguments_, "text")
        text = arguments.text(arguments_, "text", longest=MAX_TEXT)
        place = await self._notes.remember(context.view, text, context.now)
        return f"stored in {place.path} line {place.line}"
