"""`/overview`: how it goes, for the owner. Numbers and names, never a word of what was said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from typing import Any, Final

from aiohttp import web

from bot.clock import Clock
from bot.config import Config
from bot.context.report import grouped
from bot.coordination import Standing
from bot.dashboard import charts, pages
from bot.dashboard.charts import Chart, Picture, Series
from bot.i18n import text
from bot.identity.zone import local_zone
from bot.memory.growth import MemoryGrowth
from bot.money.days import SETTLED_MS, Day, last_days
from bot.sessions import traffic
from bot.sessions.traffic import Traffic, Waiting
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
        zone: tzinfo,
        clock: Clock,
        standing: Callable[[], Standing] | None,
    ) -> None:
        """`standing` says how this node stands among many."""
        self._database = database
        self._growth = growth
        self._zone = zone
        self._clock = clock
        self._standing = standing
        self._settled: Mapping[int, Traffic] = {}

    def configure(self, config: Config) -> None:
        """Days are those of another time zone from now on, if it is another one."""
        zone = local_zone(config)
        if zone != self._zone:
            self._zone, self._settled = zone, {}

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
        now, known = self._clock(), self._settled
        found = [
            (day, known.get(day.start) or traffic.traffic(tx, day.start, day.end))
            for day in last_days(now, self._zone, DAYS)
        ]
        self._settled = {day.start: each for day, each in found if day.end + SETTLED_MS <= now}
        return found, traffic.waiting(tx)


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
