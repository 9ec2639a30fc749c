"""What every tool result passes before it is stored: a limit.

A result that would fill the conversation by itself is cut to its head and tail; all of it is kept
as an artifact, which the model can read on from with `artifact_get`.
"""

from __future__ import annotations

import re
from typing import Protocol

from bot.agent.tools import ToolContext
from bot.context import tokens

SHARE = 0.3  # of the window that one result may take
LEAST, MOST = 2_000, 400_000  # characters that are never, and always, too long
CHARACTERS_PER_TOKEN = 4
HEAD_SHARE, TAIL_SHARE = 0.7, 0.2  # of the characters that are left

_NOTE = re.compile(r'\[… \d+ of \d+ characters are left out here; artifact_get \{"id": "[^"]+".*\]')


class Artifacts(Protocol):
    """Where whole results are kept."""

    async def keep(self, session_id: str, tool: str, text: str) -> str:
        """Keep a text; returns its id.

        Raises:
            StorageError: it could not be stored.
        """
        ...


class ResultGuard:
    """Applies the limit, and keeps what is too long for it."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def check(self, tool: str, text: str, context: ToolContext) -> str:
        """The result as the conversation takes it.

        Raises:
            StorageError: it is too long, and all of it could not be kept.
        """
        limit = limit_of(text, context.window)
        if len(text) <= limit:
            return text
        kept = await self._artifacts.keep(context.session_id, tool, text)
        return shortened(text, limit, kept)


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


def reference_of(text: str) -> str:
    """Where all of a shortened result is kept, in the words it says so; empty for others. Pure."""
    found = _NOTE.search(text)
    return found[0] if found else ""
