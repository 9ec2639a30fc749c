"""Results too long for a conversation: cut, kept whole, and read on with `artifact_get`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import Field

from bot.agent.tools import ToolContext
from bot.agent.tools.parameters import Parameters, Words
from bot.context import tokens
from bot.errors import NotVisible, ToolError
from bot.sessions.artifacts import ArtifactStore

SHARE = 0.3  # of the window that one result may take
LEAST, MOST = 2_000, 400_000  # characters that are never, and always, too long
CHARACTERS_PER_TOKEN = 4
HEAD_SHARE, TAIL_SHARE = 0.7, 0.2  # of the characters that are left


class Artifacts(Protocol):
    """Where whole results are kept."""

    async def keep(self, session_id: str, tool: str, text: str) -> str:
        """Keep a text; returns its id.

        Raises:
            StorageError: it could not be stored.
        """
        ...


async def fitted(
    text: str, tool: str, context: ToolContext, artifacts: Artifacts
) -> tuple[str, str]:
    """A result as the conversation takes it, and the artifact that holds all of it if it was cut.

    Raises:
        StorageError: it is too long, and all of it could not be kept.
    """
    limit = limit_of(text, context.window)
    if len(text) <= limit:
        return text, ""
    kept = await artifacts.keep(context.session_id, tool, text)
    return shortened(text, limit, kept), kept


def limit_of(text: str, window: int) -> int:
    """How many characters of a text may stay, for a window of so many tokens. Pure.

    It is a share of the window at four characters a token; of a script with more tokens to the
    character, fewer may stay.
    """
    limit = max(LEAST, min(int(window * CHARACTERS_PER_TOKEN * SHARE), MOST))
    if len(text) <= LEAST or text.isascii():
        return limit
    weight = tokens.estimate(text) / len(text)  # tokens a character
    return min(limit, max(LEAST // 2, int(window * SHARE / weight)))


def shortened(text: str, limit: int, artifact: str) -> str:
    """The head and the tail of a text, and where to read on between them. Pure."""
    head, tail = text[: int(limit * HEAD_SHARE)], text[len(text) - int(limit * TAIL_SHARE) :]
    note = (
        f"[… {len(text) - len(head) - len(tail)} of {len(text)} characters are left out here; "
        f'artifact_get {{"id": "{artifact}", "from": {len(head)}}} shows them …]'
    )
    return f"{head}\n{note}\n{tail}"


# --- artifact_get --------------------------------------------------------------------------------

MAX_CHARACTERS = 12_000  # of one answer
MAX_ID = 100
WINDOW_SHARE = 8  # one answer takes at most this part (one eighth) of the window


class ReadOn(Parameters):
    """A part of a result."""

    id: Words = Field(max_length=MAX_ID, description="The id, such as a-0123456789ab.")
    first: int = Field(
        0, alias="from", ge=0, description="The first character to show; 0 if left out."
    )


class ArtifactGet:
    """Shows whole results of the person's own conversations."""

    spec = ReadOn.spec(
        "artifact_get",
        "Read on in a tool result that was cut, by the id that stands where it was cut. At most "
        f"{MAX_CHARACTERS} characters at a time; it says when there is more.",
        built_in=True,
    )

    def __init__(self, artifacts: ArtifactStore) -> None:
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
