"""Notices what nobody looks at: a message that no open page of its person says it has shown.

A page says so only while it can be seen (`seen`). So a page in the background, on a phone that
sleeps or behind a broken connection counts as none, on whichever node it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bot.channel import Piece

SEEN_SECONDS = 4.0  # that a page has to say so, also one on another node
MOST = 100  # messages of one person that are waited for at once
KINDS = frozenset({"reply", "reminder"})


class Away:
    """The messages of one person that were sent a moment ago."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` is given the text of each message that nobody has seen."""
        self._tell = tell
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def sent(self, piece: Piece) -> None:
        """A message is shown on all pages there are."""
        if piece.kind not in KINDS or piece.id in self._waiting or len(self._waiting) >= MOST:
            return
        loop = asyncio.get_running_loop()
        self._waiting[piece.id] = loop.call_later(SEEN_SECONDS, self._unseen, piece.id, piece.text)

    def seen(self, message_id: str) -> None:
        """A page has shown it."""
        waiting = self._waiting.pop(message_id, None)
        if waiting is not None:
            waiting.cancel()

    def end(self) -> None:
        """Wait for nothing more."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def _unseen(self, message_id: str, text: str) -> None:
        del self._waiting[message_id]
        self._tell(text)
