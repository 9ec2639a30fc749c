"""`/overview`: how it goes, for the owner. Numbers and names, never a word of what was said."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import uuid4

from aiohttp import web

from bot.channel import Inbound
from bot.channel.visitor import shared
from bot.clock import Clock
from bot.commands.context import ContextCommands
from bot.context.budget import percent_full
from bot.context.report import Part, Report, grouped
from bot.coordination import Standing
from bot.dashboard import charts, pages
from bot.dashboard.charts import Chart, Picture, Series
from bot.dashboard.pages import Visits, sent
from bot.errors import StorageError
from bot.i18n import text
from bot.identity import Conversation
from bot.memory.growth import MemoryGrowth
from bot.money.days import SETTLED_MS, Day, last_days
from bot.sessions import inbox, store
from bot.sessions.inbox import Traffic, Waiting
from bot.storage import Database, Transaction

DAYS: Final = 30
MOST_GROWTH: Final = 60  # days of memory that are drawn

_Found = tuple[Sequence[tuple[Day, Traffic]], Waiting]


class OverviewPages:
    """Messages, reply times, memory, what waits and who is there.

    A day that is over is asked for once and kept: two numbers and one for each channel.
    """

    def __init__(
        self,
        database: Database,
        growth: MemoryGrowth,
        visits: Visits,
        clock: Clock,
        standing: Callable[[], Standing] | None,
    ) -> None:
        """`standing` says how this node stands among many."""
        self._database = database
        self._growth = growth
        self._visits = visits
        self._zone = visits.zone
        self._clock = clock
        self._standing = standing
        self._settled: Mapping[int, Traffic] = {}

    def routes(self) -> list[web.RouteDef]:
        """Where it is."""
        return [web.get("/overview", self._page)]

    async def _page(self, request: web.Request) -> web.Response:
        language = pages.language(request)
        found, waits = await self._database.read(self._look)
        drawn = [
            _messages(language, found),
            _times(language, found),
            _memory(language, await self._growth.days()),
        ]
        return pages.page(
            request,
            "overview.html",
            days=DAYS,
            waits=_waits(language, waits, self._standing),
            pictures=[picture for picture in drawn if picture is not None],
        )

    def _look(self, tx: Transaction) -> _Found:
        if self._zone != self._visits.zone:
            self._zone, self._settled = self._visits.zone, dict[int, Traffic]()
        now, known = self._clock(), self._settled
        found = [
            (day, known.get(day.start) or inbox.traffic(tx, day.start, day.end))
            for day in last_days(now, self._zone, DAYS)
        ]
        self._settled = {day.start: each for day, each in found if day.end + SETTLED_MS <= now}
        return found, inbox.backlog(tx)


def _messages(language: str, found: Sequence[tuple[Day, Traffic]]) -> Picture | None:
    names = sorted({name for _, each in found for name in each.channels})
    series = [
        Series(name, tuple(float(each.channels.get(name, 0)) for _, each in found))
        for name in names
    ]
    kept = charts.largest(series, text(language, "usage.others"))
    title = text(language, "overview.picture.messages")
    return _drawn(language, Chart(title, _names(found), kept, _whole), "bars")


def _times(language: str, found: Sequence[tuple[Day, Traffic]]) -> Picture | None:
    slow = tuple(_seconds(each.slow) for _, each in found)
    middle = tuple(_seconds(each.middle) for _, each in found)
    series = (
        Series(text(language, "overview.slow"), slow),
        Series(text(language, "overview.middle"), middle),
    )
    title = text(language, "overview.picture.times")
    chart = Chart(title, _names(found), series, partial(_in_seconds, language))
    return _drawn(language, chart, "lines")


def _memory(language: str, found: Mapping[str, tuple[int, int]]) -> Picture | None:
    days = list(found)[-MOST_GROWTH:]
    series = (
        Series(text(language, "overview.passages"), tuple(float(found[day][1]) for day in days)),
        Series(text(language, "overview.notes"), tuple(float(found[day][0]) for day in days)),
    )
    title = text(language, "overview.picture.memory")
    return _drawn(language, Chart(title, tuple(days), series, _whole), "lines")


def _drawn(language: str, chart: Chart, kind: charts.Kind) -> Picture | None:
    """A picture; None when there is nothing to see."""
    return None if chart.is_empty else charts.picture(chart, kind, text(language, "usage.day"))


def _waits(
    language: str, waits: Waiting, standing: Callable[[], Standing] | None
) -> list[tuple[str, str]]:
    """What there is to say about now: each with its number."""
    found: list[tuple[str, Any]] = [
        ("overview.waits.messages", waits.messages),
        ("overview.waits.texts", waits.texts),
        ("overview.waits.unsent", waits.unsent),
        ("overview.waits.reminders", waits.reminders),
    ]
    if standing is not None:
        now = standing()
        found += [("overview.waits.nodes", now.nodes), ("overview.waits.jobs", now.jobs)]
    return [(text(language, name), grouped(number)) for name, number in found]


def _names(found: Sequence[tuple[Day, Traffic]]) -> tuple[str, ...]:
    return tuple(day.name for day, _ in found)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _whole(value: float) -> str:
    return grouped(round(value))


def _in_seconds(language: str, value: float) -> str:
    return text(language, "overview.seconds", seconds=f"{value:.2f}")


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


def _detail(language: str, part: Part) -> list[tuple[str, str]]:
    """What a part is made of, the largest first."""
    largest = sorted(part.detail, key=lambda each: (-each[1], each[0]))
    shown, rest = largest[:MOST_DETAILS], largest[MOST_DETAILS:]
    found = [(name, grouped(size)) for name, size in shown]
    if rest:
        found.append((text(language, "usage.others"), grouped(sum(size for _, size in rest))))
    return found
