"""`memory_get`: a part of one Markdown file, by its name and lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bot.agent.models import ToolSpec
from bot.agent.tools import Recalled, ToolContext, arguments
from bot.agent.tools.quotes import Quote, render
from bot.memory import markdown
from bot.memory.files import MAX_CHARACTERS, MAX_LINES, SpaceFiles
from bot.memory.notes import Place

MAX_PATH = 500  # characters
LAST_LINE = 10_000_000

SPEC: Final = ToolSpec(
    name="memory_get",
    description=(
        "Read a part of a memory file that memory_search or the person named: MEMORY.md, "
        "memory/….md or shared/….md. At most "
        f"{MAX_LINES} lines and {MAX_CHARACTERS} characters at a time; it says when there is more."
    ),
    schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, such as memory/2026-07-01.md."},
            "from": {
                "type": "integer",
                "minimum": 1,
                "description": "The first line to show; 1 if left out.",
            },
            "lines": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LINES,
                "description": f"How many lines; {MAX_LINES} if left out.",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    tells_origins=True,
)


class MemoryGet:
    """Shows files of the view, and tells nothing of any others."""

    def __init__(self, files: SpaceFiles) -> None:
        self._files = files

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        return SPEC

    async def run(self, arguments_: Mapping[str, Any], context: ToolContext) -> str:
        """Read, and quote the lines.

        Raises:
            ToolError: wrong arguments, no such file in this view, or it cannot be read.
        """
        arguments.only(arguments_, "path", "from", "lines")
        path = arguments.text(arguments_, "path", longest=MAX_PATH)
        first = arguments.integer(arguments_, "from", default=1, low=1, high=LAST_LINE)
        lines = arguments.integer(arguments_, "lines", default=MAX_LINES, low=1, high=MAX_LINES)
        part = await self._files.read(context.view, path, first, lines)
        if part.last < part.first:
            return f"{path} has no line {first}."
        context.memory.foreign.extend(markdown.untrusted_lines(part.text))
        context.memory.recalled.append(Recalled(Place(path, part.first), part.text))
        facts = (f"{path}:{part.first}-{part.last}", "file", *part.notes)
        more = f"\n\nThere is more from line {part.last + 1}." if part.more else ""
        return f"{render([Quote(facts, markdown.readable(part.text) or ' ')])}{more}"
