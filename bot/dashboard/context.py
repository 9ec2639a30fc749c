"""`/context`: how full a person's conversation is and of what, and making room in it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from aiohttp import web

from bot.channel import Inbound
from bot.channel.visitor import shared
from bot.clock import Clock
from bot.commands.context import ContextCommands
from bot.context.budget import percent_full
from bot.context.report import Part, Report, grouped
from bot.dashboard import charts, pages
from bot.dashboard.forms import sent
from bot.dashboard.visits import Visits
from bot.errors import StorageError
from bot.i18n import text
from bot.identity import Conversation
from bot.sessions import store
from bot.storage import Database

COMMANDS: Final = {"compact": "/compact", "new": "/new"}
MOST_DETAILS: Final = 12  # of one part; the others are summed up
_ONCE: Final = re.compile(r"[0-9a-f]{32}")

Receive = Callable[[Inbound], Awaitable[None]]


class ContextPages:
    """Each visitor's own conversation, the one that the chat page goes on with."""

    def __init__(
        self,
        visits: Visits,
        commands: ContextCommands,
        database: Database,
        receive: Receive,
        clock: Clock,
    ) -> None:
        """`receive` takes what a visitor says: the buttons say what could be typed."""
        self._visits = visits
        self._commands = commands
        self._database = database
        self._receive = receive
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return shared([web.get("/context", self._page), web.post("/context", self._press)])

    async def _page(self, request: web.Request) -> web.Response:
        language, conversation = pages.language(request), self._visits.of(request)
        found = await self._report(conversation)
        values = _values(language, found) if found is not None else {}
        return pages.page(request, "context.html", found=values, once=uuid4().hex)

    async def _press(self, request: web.Request) -> web.Response:
        form = await sent(request)
        command, once = COMMANDS.get(form.get("do", "")), form.get("once", "")
        if command is None or not _ONCE.fullmatch(once):
            return pages.refuse(request, 400, "bad_request")
        origin = self._visits.of(request).origin
        try:
            await self._receive(
                Inbound(
                    channel=origin.channel,
                    account=origin.account,
                    chat=origin.chat,
                    chat_type="direct",
                    sender=origin.sender,
                    # The same form sent twice is one message.
                    message_id=f"page-{once}",
                    text=command,
                    sent_at=self._clock(),
                    locale=origin.locale,
                )
            )
        except StorageError:
            return pages.refuse(request, 503, "failed")
        return pages.see("/")

    async def _report(self, conversation: Conversation) -> Report | None:
        """What fills it; None while nothing was said."""
        key = conversation.place.key
        session = await self._database.read(lambda tx: store.current(tx, key))
        if session is None:
            return None
        return await self._commands.report_of(session, conversation)


def _values(language: str, found: Report) -> dict[str, Any]:
    """A report as the template takes it."""
    limit = found.budget.compact_above
    parts = [part for part in found.fitted() if part.tokens]
    names = [text(language, f"context.part.{part.name}") for part in parts]
    sizes = tuple((name, part.tokens) for name, part in zip(names, parts, strict=True))
    title = text(
        language,
        "context.page.full",
        percent=found.percent,
        used=grouped(found.used),
        limit=grouped(limit),
    )
    return {
        "title": title,
        "shares": charts.shares(sizes, limit, _whole),
        "rows": [
            {
                "name": name,
                "tokens": grouped(part.tokens),
                "percent": percent_full(part.tokens, found.budget),
                "detail": _detail(language, part),
            }
            for name, part in zip(names, parts, strict=True)
        ],
        "how": text(language, "context.measured" if found.measured else "context.estimated"),
        "then": text(language, "context.then", limit=grouped(limit)),
        "model": found.model,
        "window": grouped(found.window.tokens),
    }


def _whole(value: float) -> str:
    return grouped(round(value))


def _detail(language: str, part: Part) -> list[tuple[str, str]]:
    """What a part is made of, the largest first."""
    largest = sorted(part.detail, key=lambda each: (-each[1], each[0]))
    shown, rest = largest[:MOST_DETAILS], largest[MOST_DETAILS:]
    found = [(name, grouped(size)) for name, size in shown]
    if rest:
        found.append((text(language, "usage.others"), grouped(sum(size for _, size in rest))))
    return found
