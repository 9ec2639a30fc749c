"""`artifact_get`: more of a tool result that was too long to be shown whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from bot.agent.models import ToolSpec
from bot.agent.tools import ToolContext, arguments
from bot.errors import NotVisible
from bot.scope import MemoryView

MAX_CHARACTERS = 12_000  # of one answer
MAX_ID = 100
WINDOW_SHARE = 8  # one answer takes at most this part (one eighth) of the window

SPEC: Final = ToolSpec(
    name="artifact_get",
    description=(
        "Read on in a tool result that was cut, by the id that stands where it was cut. At most "
        f"{MAX_CHARACTERS} characters at a time; it says when there is more."
    ),
    schema={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id, such as a-0123456789ab."},
            "from": {
                "type": "integer",
                "minimum": 0,
                "description": "The first character to show; 0 if left out.",
            },
        },
        "required": ["id"],
        "additionalProperties": False,
    },
)


class ArtifactReader(Protocol):
    """Where whole results are kept."""

    async def read(self, view: MemoryView, session_id: str, id_: str) -> str | None:
        """A text of this session or of one the view may see; None for every other."""
        ...


class ArtifactGet:
    """Shows whole results of the person's own conversations."""

    def __init__(self, artifacts: ArtifactReader) -> None:
        self._artifacts = artifacts

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        return SPEC

    async def run(self, arguments_: Mapping[str, Any], context: ToolContext) -> str:
        """Read a part.

        Raises:
            ToolError: wrong arguments, or there is no such result here.
        """
        arguments.only(arguments_, "id", "from")
        id_ = arguments.text(arguments_, "id", longest=MAX_ID)
        text = await self._artifacts.read(context.view, context.session_id, id_)
        if text is None:
            raise NotVisible
        first = arguments.integer(arguments_, "from", default=0, low=0, high=max(0, len(text) - 1))
        most = max(500, min(MAX_CHARACTERS, context.window // WINDOW_SHARE))
        part = text[first : first + most]
        left = len(text) - first - len(part)
        return f"{part}\n[{left} more from character {first + len(part)}]" if left else part
