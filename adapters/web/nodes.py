"""News between the pages of several nodes.

A page is open on whichever node a proxy chose, while replies are sent by one. What a node misses
stands in the history, which every page gets when it comes back.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from bot.channel import Activity, Engine, Piece
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import Json, mapping, parse_json

CHANNEL = "web"
INTERVAL = 0.5  # seconds between two states of a draft, or a thought, that other nodes are told
MOST_TOLD = 900  # characters of a thought, its last ones, which fit whatever they are
MAX_BODY = 300_000  # characters; longer ones go without their pictures


class OtherNodes:
    """Tells the other nodes what their pages are to show."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(8)
        self.engine: Engine | None = None  # without one they are told nothing

    async def tell(self, person: str, kind: str, *, stored: bool = True, **fields: Any) -> None:
        """Tell them something for one person's pages, as far as they can be reached.

        What is not `stored` lies nowhere on its way; see `bot.channel.Engine.broadcast`.
        """
        if self.engine is not None:
            body = json.dumps({"person": person, "show": kind, **fields}, ensure_ascii=False)
            await self.engine.broadcast(CHANNEL, f"{self._name} {body}", stored=stored)

    def heard(self, body: str) -> Json:
        """The news of another node; none if it was this one."""
        name, _, said = body.partition(" ")
        return {} if name == self._name else mapping(parse_json(said))


class ToldDrafts(Drafts[str]):
    """The replies that are being written here, as other nodes hear of them."""

    def __init__(self, tell: Callable[..., Awaitable[None]]) -> None:
        super().__init__(asyncio.create_task)
        self._tell = tell

    async def put(self, draft: Draft[str]) -> float:
        """Tell of a draft; see `Drafts.put`."""
        draft.message = draft.id
        await self._tell("draft", id=draft.id, text=draft.text)
        return INTERVAL

    async def remove(self, draft: Draft[str]) -> None:
        """Tell that a draft is gone."""
        await self._tell("draft", id=draft.id, text="")


class ToldThoughts(ToldDrafts):
    """A thought of a model here, for other nodes; its place is the draft it leads to."""

    async def put(self, draft: Draft[str]) -> float:
        """Tell of a thought as far as it has come; see `Drafts.put`."""
        draft.message = draft.id
        end = draft.text[-MOST_TOLD:]
        shown = Activity(draft.id, "thinking", "begun", text=end, draft=draft.place)
        await self._tell("activity", stored=False, activity=asdict(shown))
        return INTERVAL

    async def remove(self, draft: Draft[str]) -> None:
        """Nothing: whoever ends it tells that it ended."""


# Notices what nobody looks at: a message that no open page of its person says it has shown.
#
# A page says so only while it can be seen (`seen`). So a page in the background, on a phone that
# sleeps or behind a broken connection counts as none, on whichever node it is.

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
