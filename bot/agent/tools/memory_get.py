"""`memory_get`: a part of one Markdown file, by its name and lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from bot.agent.tools import Recalled, ToolContext
from bot.agent.tools.parameters import Parameters, Words
from bot.facts import Quote, Quoted
from bot.memory import markdown
from bot.memory.files import MAX_CHARACTERS, MAX_LINES, SpaceFiles
from bot.memory.notes import Place

MAX_PATH = 500  # characters
LAST_LINE = 10_000_000


class Lines(Parameters):
    """Lines of a file."""

    path: Words = Field(max_length=MAX_PATH, description="The file, such as memory/2026-07-01.md.")
    first: int = Field(
        1, alias="from", ge=1, le=LAST_LINE, description="The first line to show; 1 if left out."
    )
    lines: int = Field(
        MAX_LINES, ge=1, le=MAX_LINES, description=f"How many lines; {MAX_LINES} if left out."
    )


class MemoryGet:
    """Shows files of the view, and tells nothing of any others."""

    spec = Lines.spec(
        "memory_get",
        "Read a part of a memory file that memory_search or the person named: MEMORY.md, "
        "memory/….md or shared/….md. At most "
        f"{MAX_LINES} lines and {MAX_CHARACTERS} characters at a time; it says when there is more.",
        tells_origins=True,
    )

    def __init__(self, files: SpaceFiles) -> None:
        self._files = files

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Quoted:
        """Read, and quote the lines.

        Raises:
            ToolError: wrong arguments, no such file in this view, or it cannot be read.
        """
        asked = Lines.of(arguments)
        path = asked.path
        part = await self._files.read(context.view, path, asked.first, asked.lines)
        if part.last < part.first:
            return Quoted((), head=f"{path} has no line {asked.first}.")
        context.memory.foreign.extend(markdown.untrusted_lines(part.text))
        context.memory.recalled.append(Recalled(Place(path, part.first), part.text))
        facts = (f"{path}:{part.first}-{part.last}", "file", *part.notes)
        quote = Quote(facts, markdown.readable(part.text) or " ", path, part.first)
        more = f"There is more from line {part.last + 1}." if part.more else ""
        return Quoted((quote,), foot=more)
