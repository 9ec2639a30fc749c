"""`/overview` and `/backups`, for the owner: the bot in numbers and names, and its backups.

Never a word of what was said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import structlog
from aiohttp import web

from bot.channel import reveal
from bot.clock import DAY_MS
from bot.commands.info import ContextCommands
from bot.config import Settings
from bot.context.budget import Part
from bot.dashboard import usage
from bot.dashboard.pages import NO_STORE, ONCE, Pages, Receive, Visit, in_menu, route, see
from bot.dashboard.usage import Chart, Series
from bot.errors import StorageError
from bot.health import Readiness
from bot.i18n import text
from bot.memory.selftest import MemoryGrowth
from bot.money import SETTLED_MS
from bot.sessions import inbox, store
from bot.sessions.inbox import Backlog, Traffic
from bot.storage import Database, Transaction
from bot.storage.backup_state import BackupFiles
from bot.views.outcomes import named, told
from bot.views.usage import DAYS, Day, last_days

MOST_GROWTH: Final = 60  # days of memory that are drawn

_Found = tuple[Sequence[tuple[Day, Traffic]], Backlog]


@in_menu("/overview", is_owners=True)
class OverviewPages(Pages):
    """Messages, reply times, memory, what waits and who is there.

    A day that is over is asked for once and kept: two numbers and one for each channel.
    """

    def __init__(
        self,
        database: Database,
        growth: MemoryGrowth,
        report: Callable[[], Awaitable[Readiness]],
    ) -> None:
        """`report` says how each part is doing."""
        self._database = database
        self._growth = growth
        self._report = report
        self._zone: tzinfo | None = None
        self._settled: Mapping[int, Traffic] = {}

    @route("GET", "/overview")
    async def _page(self, visit: Visit) -> web.Response:
        language, zone, now = visit.language, visit.bot_zone, visit.now
        found, waits = await self._database.read(lambda tx: self._look(tx, zone, now))
        charts = _charts(language, found, await self._growth.days())
        return visit.page(
            "overview.html",
            days=DAYS,
            waits=asdict(waits),
            parts=[(each, told(each.finding, language)) for each in (await self._report()).checks],
            named=partial(named, language),
            pictures=[usage.picture(chart, kind) for kind, chart in charts if not chart.is_empty],
        )

    def _look(self, tx: Transaction, zone: tzinfo, now: int) -> _Found:
        if self._zone != zone:
            self._zone, self._settled = zone, dict[int, Traffic]()
        known = self._settled
        found = [
            (day, known.get(day.start) or inbox.traffic(tx, day.start, day.end))
            for day in last_days(now, zone, DAYS)
        ]
        self._settled = {day.start: each for day, each in found if day.end + SETTLED_MS <= now}
        return found, inbox.backlog(tx)


def _charts(
    language: str, found: Sequence[tuple[Day, Traffic]], growth: Mapping[str, tuple[int, int]]
) -> list[tuple[usage.Kind, Chart]]:
    """Messages by channel, reply times, and what memory holds."""
    say = partial(text, language)
    labels, grown = tuple(day.name for day, _ in found), list(growth)[-MOST_GROWTH:]
    channels = [
        Series(name, tuple(float(each.channels.get(name, 0)) for _, each in found))
        for name in sorted({name for _, each in found for name in each.channels})
    ]
    times = [
        Series(say(f"overview.{name}"), tuple(ms / 1000 if ms is not None else None for ms in each))
        for name, each in (
            ("slow", [each.slow for _, each in found]),
            ("middle", [each.middle for _, each in found]),
        )
    ]
    held = [
        Series(say(f"overview.{name}"), tuple(float(growth[day][at]) for day in grown))
        for name, at in (("passages", 1), ("notes", 0))
    ]

    def seconds(value: float) -> str:
        return say("overview.seconds", seconds=f"{value:.2f}")

    by_channel = usage.largest(channels, say("usage.others"))
    return [
        ("bars", Chart(say("overview.picture.messages"), labels, by_channel, usage.whole)),
        ("lines", Chart(say("overview.picture.times"), labels, tuple(times), seconds)),
        ("lines", Chart(say("overview.picture.memory"), tuple(grown), tuple(held), usage.whole)),
    ]


COMMANDS: Final = {"compact": "/compact", "new": "/new"}
MOST_DETAILS: Final = 12  # of one part; the others are summed up


@in_menu("/context")
class ContextPages(Pages):
    """Each visitor's own conversation, the one that the chat page goes on with."""

    def __init__(self, commands: ContextCommands, database: Database, receive: Receive) -> None:
        """`receive` takes what a visitor says: the buttons say what could be typed."""
        self._commands = commands
        self._database = database
        self._receive = receive

    @route("GET", "/context", shared=True)
    async def _page(self, visit: Visit) -> web.Response:
        conversation = visit.conversation
        session = await self._database.read(lambda tx: store.current(tx, conversation.place.key))
        if session is None:
            return visit.page("context.html", found=None)
        found = await self._commands.report_of(session, conversation)
        parts = [part for part in found.fitted() if part.tokens]
        named = [(visit.say(f"context.part.{part.name}"), part.tokens) for part in parts]
        return visit.page(
            "context.html",
            found=found,
            parts=parts,
            drawn=usage.shares(named, found.budget.compact_above, usage.whole),
            percents=found.percents(),
            detail=partial(_detail, visit.say("usage.others")),
            once=uuid4().hex,
        )

    @route("POST", "/context", shared=True)
    async def _press(self, visit: Visit) -> web.Response:
        form = await visit.form()
        command, once = COMMANDS.get(form.get("do", "")), form.get("once", "")
        if command is None or not ONCE.fullmatch(once):
            raise web.HTTPBadRequest
        await self._receive(visit.says(command, once))
        return see("/")


def _detail(others: str, part: Part) -> list[tuple[str, int]]:
    """The pieces of a part, the largest first."""
    largest = sorted(part.detail, key=lambda each: (-each[1], each[0]))
    shown, rest = largest[:MOST_DETAILS], largest[MOST_DETAILS:]
    return [*shown, (others, sum(size for _, size in rest))] if rest else shown


# --- backups: made, downloaded, put back ----------------------------------------------------------


PATH: Final = "/backups"
WAIT_SECONDS: Final = 20.0  # for one to be made; then the page says that it goes on

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class File:
    """One backup that can be downloaded; `size` is in bytes, `made_at` in ms."""

    path: Path
    made_at: int
    size: int


@in_menu(PATH, is_owners=True)
class BackupPages(Pages):
    """The page of backups, for the owner alone: a backup has everybody's data."""

    def __init__(
        self,
        files: Callable[[], Awaitable[BackupFiles]],
        make: Callable[[], Awaitable[None]],
        settings: Settings,
    ) -> None:
        """`make` makes one; why it could not is in the state of the `files` then."""
        self._files = files
        self._make_now = make
        self._settings = settings
        self._making: asyncio.Task[None] | None = None

    @route("GET", PATH)
    async def _page(self, visit: Visit) -> web.Response:
        kept, rules = await self._files(), self._settings.now.backup
        made = kept.state.made
        is_making = self._making is not None and not self._making.done()
        return visit.page(
            "backups.html",
            files=await asyncio.to_thread(_listed, kept.found),
            problem=kept.problem,
            state=kept.state,
            next_at=made.at + round(rules.every_hours * DAY_MS / 24) if made.at else 0,
            is_scheduled=rules.folder is not None,
            is_sealed=bool(reveal(rules.passphrase)),
            folder=str(kept.folder),
            is_making=is_making,
            is_done=visit.query("told") == "made" and not is_making and not made.failed_at,
        )

    @route("POST", f"{PATH}/make")
    async def _make(self, _visit: Visit) -> web.Response:
        """Make one; a second press while one is made waits for the same."""
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._made())
        await asyncio.wait({self._making}, timeout=WAIT_SECONDS)
        return see(f"{PATH}?told=made")

    async def _made(self) -> None:
        try:
            await self._make_now()
        except StorageError as error:
            log.warning("backup.failed", what="made", error=type(error).__name__)

    async def stop(self) -> None:
        """Make none any more; of one that is being made nothing is left."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait({self._making})

    @route("POST", f"{PATH}/download")  # a form, which no other site's page can send
    async def _download(self, visit: Visit) -> web.StreamResponse:
        name = (await visit.form()).get("name", "")
        found = (await self._files()).found.values()
        path = next((each for each in found if each.name == name), None)
        if path is None:
            raise web.HTTPNotFound
        log.info("backup.downloaded", name=name)
        said = {"Content-Disposition": f'attachment; filename="{path.name}"', **NO_STORE}
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream", **said})


def _listed(found: Mapping[int, Path]) -> list[File]:
    """The newest first; one that is removed meanwhile is left out."""
    files = list[File]()
    for made_at, path in sorted(found.items(), reverse=True):
        try:
            files.append(File(path, made_at, path.stat().st_size))
        except OSError:
            continue
    return files
