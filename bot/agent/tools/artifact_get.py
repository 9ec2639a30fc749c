"""`artifact_get`: more of a tool result that was too long to be shown whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import Field

from bot.agent.tools import ToolContext
from bot.agent.tools.parameters import Parameters, Words
from bot.errors import NotVisible, ToolError
from bot.scope import MemoryView

MAX_CHARACTERS = 12_000  # of one answer
MAX_ID = 100
WINDOW_SHARE = 8  # one answer takes at most this part (one eighth) of the window


class ReadOn(Parameters):
    """A part of a result."""

    id: Words = Field(max_length=MAX_ID, description="The id, such as a-0123456789ab.")
    first: int = Field(
        0, alias="from", ge=0, description="The first character to show; 0 if left out."
    )


class ArtifactReader(Protocol):
    """Where whole results are kept."""

    async def read(self, view: MemoryView, session_id: str, id_: str) -> str | None:
        """A text of this session or of one the view may see; None for every other."""
        ...


class ArtifactGet:
    """Shows whole results of the person's own conversations."""

    spec = ReadOn.spec(
        "artifact_get",
        "Read on in a tool result that was cut, by the id that stands where it was cut. At most "
        f"{MAX_CHARACTERS} characters at a time; it says when there is more.",
    )

    def __init__(self, artifacts: ArtifactReader) -> None:
        self._artifacts = artifacts

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Read a part.

        Raises:
            ToolError: wrong arguments, or there is no such result here.
        """
        asked = ReadOn.of(arguments)
        text = await self._artifacts.read(context.view, context.session_id, asked.id)
        if text is None:
            raise NotVisible
        first, last = asked.first, max(0, len(text) - 1)
        if first > last:
            raise ToolError(f"'from' must be a whole number from 0 to {last}")
        most = max(500, min(MAX_CHARACTERS, context.window // WINDOW_SHARE))
        part = text[first : first + most]
        left = len(text) - first - len(part)
        return f"{part}\n[{left} more from character {first + len(part)}]" if left else part
