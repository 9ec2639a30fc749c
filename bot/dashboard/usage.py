"""What was used: `/usage` is a page of it, `/api/usage` the same for the owner's programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import Any, Final

from aiohttp import web

from bot.channel.visitor import shared, visitor_of
from bot.clock import Clock, to_the_minute
from bot.context.report import grouped
from bot.dashboard import charts, pages
from bot.dashboard.charts import Chart, Picture, Series
from bot.dashboard.pages import Visits
from bot.i18n import text
from bot.identity.routing import OWNER
from bot.money import Heading, counts, days, prices
from bot.money.allowance import Allowance
from bot.money.counts import Line
from bot.money.days import DayUsage, UsageDays, Used
from bot.money.limits import Standing
from bot.storage import Database

DAYS: Final = 30
HEADINGS: Final[tuple[Heading, ...]] = ("person", "model", "day", "purpose")
OWN_HEADINGS: Final = HEADINGS[1:]
MOST_PEOPLE: Final = 50  # of the table; the others are summed up in one row
MOST_LIMITED: Final = 200  # people whose limits are looked at: those who used most
_NUMBERS: Final = ("runs", "input", "cached", "written", "output", "cost")


class UsagePages:
    """Numbers and names of people, never a word of what they said.

    The owner sees what everybody used; whoever else looks what is theirs.
    """

    def __init__(
        self, database: Database, clock: Clock, allowance: Allowance, visits: Visits
    ) -> None:
        self._database = database
        self._clock = clock
        self._allowance = allowance
        self._prices = allowance.prices
        self._visits = visits
        self._days = UsageDays(visits.zone, allowance.prices)

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [*shared([web.get("/usage", self._page)]), web.get("/api/usage", self._json)]

    async def _page(self, request: web.Request) -> web.Response:
        if visitor_of(request).is_owner:
            return await self._everybodys(request)
        return await self._own(request)

    async def _everybodys(self, request: web.Request) -> web.Response:
        language, zone = pages.language(request), self._visits.of(request).zone
        used = await self._look()
        most = sorted(used.people, key=lambda line: -line.bill.usage.context_tokens)
        limited = await self._allowance.of_people([line.name for line in most[:MOST_LIMITED]])
        standings = [(person, each) for person, own in limited.items() for each in own]
        standings.sort(key=lambda found: -found[1].used / found[1].limit.most)
        used = _with_you(language, used)
        people = _bounded(used.people, text(language, "usage.others"))
        return self._drawn(
            request,
            used,
            {"person": people, **self._lines(used.days)},
            lead="lead",
            limits=[_limit(language, zone, each) for each in await self._allowance.in_all()],
            people=[
                {"person": _name(language, person), **_limit(language, zone, each)}
                for person, each in standings[:MOST_PEOPLE]
            ],
            others=max(0, len(standings) - MOST_PEOPLE),
        )

    async def _own(self, request: web.Request) -> web.Response:
        language, visit = pages.language(request), self._visits.of(request)
        found = days.last_days(self._clock(), visit.zone, DAYS)
        used = await self._database.read(lambda tx: days.days_of(tx, visit.person, found))
        own = await self._allowance.of_people([visit.person])
        limits = [each for standings in own.values() for each in standings]
        return self._drawn(
            request,
            Used(tuple(used), (), ()),
            self._lines(used),
            lead="own_lead",
            limits=[_limit(language, visit.zone, each) for each in limits],
            people=[],
            others=0,
        )

    def _drawn(
        self,
        request: web.Request,
        used: Used,
        lines: Mapping[Heading, Sequence[Line]],
        **values: Any,
    ) -> web.Response:
        language, is_used = pages.language(request), any(lines.values())
        return pages.page(
            request,
            "usage.html",
            days=DAYS,
            date=prices.LOOKED_UP,
            pictures=self._pictures(language, used) if is_used else [],
            tables=[_table(language, by, lines[by]) for by in lines] if is_used else [],
            unpriced=counts.total(lines["model"]).bill.unpriced,
            **values,
        )

    async def _json(self, _request: web.Request) -> web.Response:
        used = await self._look()
        lines = {"person": used.people, **self._lines(used.days)}
        body: dict[str, Any] = {
            "days": DAYS,
            "prices_of": str(prices.LOOKED_UP),
            **{f"by_{name}": [counts.plain(line) for line in lines[name]] for name in HEADINGS},
        }
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def _look(self) -> Used:
        if self._days.zone != self._visits.zone:
            self._days = UsageDays(self._visits.zone, self._prices)
        most = charts.MOST_SERIES - 1
        return await self._database.read(lambda tx: self._days.look(tx, self._clock(), DAYS, most))

    def _lines(self, used: Sequence[DayUsage]) -> dict[Heading, Sequence[Line]]:
        return {by: days.lines(used, by, self._prices) for by in OWN_HEADINGS}

    def _pictures(self, language: str, found: Used) -> list[Picture]:
        """Tokens and money, by model, and by person where there are several."""
        labels = tuple(each.day.name for each in found.days)
        others = text(language, "usage.others")
        whole = [
            (
                sum(usage.context_tokens for usage in each.models.values()),
                sum(self._prices.cost(model, usage) or 0 for model, usage in each.models.items()),
            )
            for each in found.days
        ]
        drawn: list[Picture] = []
        for at, what in enumerate(("tokens", "dollars")):
            shown = partial(_shown, what)
            names = dict.fromkeys(model for each in found.days for model in each.models)
            by_model = [
                Series(name, tuple(self._amount(each, name, at) for each in found.days))
                for name in names
            ]
            by_person = [Series(name, tuple(day[at] for day in used)) for name, used in found.most]
            rest = tuple(
                max(0.0, day[at] - sum(each.values[place] or 0 for each in by_person))
                for place, day in enumerate(whole)
            )
            if len(found.people) > len(by_person):
                by_person.append(Series(others, rest))
            for by, series in (("model", charts.largest(by_model, others)), ("person", by_person)):
                name = f"{what}_{by}"
                title = text(language, f"usage.picture.{name}")
                chart = Chart(title, labels, tuple(series), shown)
                if not chart.is_empty:
                    drawn.append(charts.picture(chart, "bars", text(language, "usage.day")))
        return drawn

    def _amount(self, each: DayUsage, model: str, at: int) -> float:
        usage = each.models.get(model)
        if usage is None:
            return 0.0
        return self._prices.cost(model, usage) or 0.0 if at else float(usage.context_tokens)


def _shown(what: str, value: float) -> str:
    return prices.shown(value) if what == "dollars" else grouped(round(value))


def _with_you(language: str, used: Used) -> Used:
    """The same for the owner's eyes."""
    return replace(
        used,
        people=[replace(line, name=_name(language, line.name)) for line in used.people],
        most=[(_name(language, person), amounts) for person, amounts in used.most],
    )


def _name(language: str, person: str) -> str:
    return text(language, "usage.you") if person == OWNER else person


def _bounded(people: Sequence[Line], others: str) -> Sequence[Line]:
    if len(people) <= MOST_PEOPLE:
        return people
    rest = counts.total(people[MOST_PEOPLE:])
    return [*people[:MOST_PEOPLE], Line(others, rest.runs, rest.bill)]


def _limit(language: str, zone: tzinfo, standing: Standing) -> Mapping[str, Any]:
    """A limit as the template takes it; `until` is a time of whoever looks."""
    limit = standing.limit
    what = f"{limit.whose}.{limit.span}"
    shown = partial(_shown, "dollars" if limit.unit == "usd" else "tokens")
    used, most = shown(standing.used), shown(limit.most)
    if limit.unit == "tokens":
        most = text(language, "limit.tokens", count=most)
    return {
        "name": text(language, f"limit.{what}"),
        "span": text(language, f"usage.spans.{limit.span}"),
        "used": used,
        "most": most,
        "amounts": text(language, "limit.amounts", used=used, most=most),
        "percent": standing.percent,
        "until": to_the_minute(standing.period.end, zone),
    }


def _table(language: str, by: Heading, lines: Sequence[Line]) -> Mapping[str, Any]:
    """A table as the template takes it: rows of words, the first of which names the row."""
    return {
        "caption": text(language, f"usage.by.{by}"),
        "head": [text(language, f"usage.{name}") for name in (by, *_NUMBERS)],
        "rows": [_row(language, line, line.name) for line in lines],
        "total": _row(language, counts.total(lines), text(language, "usage.total")),
    }


def _row(language: str, line: Line, name: str) -> Sequence[str]:
    usage = line.bill.usage
    numbers = (
        line.runs,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    )
    return (name, *map(grouped, numbers), counts.cost_in_words(language, line))
