"""What was used, for the owner: `/usage` is a page of it, `/api/usage` the same for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import Any, Final

from aiohttp import web

from bot.clock import DAY_MS, Clock
from bot.config import Config
from bot.context.report import grouped
from bot.dashboard import charts, pages
from bot.dashboard.charts import Chart, Picture, Series
from bot.i18n import text
from bot.identity.zone import local_zone
from bot.money import Heading, days, ledger, prices
from bot.money.allowance import Allowance
from bot.money.days import DayUsage, UsageDays, UsagePeople
from bot.money.ledger import Line
from bot.money.limits import Standing
from bot.money.prices import Prices
from bot.storage import Database, Transaction

DAYS: Final = 30
HEADINGS: Final[tuple[Heading, ...]] = ("person", "model", "day", "purpose")
MOST_PEOPLE: Final = 50  # of the table; the others are summed up in one row
_NUMBERS: Final = ("runs", "input", "cached", "written", "output", "cost")

_PerDay = Sequence[tuple[int, float]]  # tokens and US dollars of each day


@dataclass(frozen=True, slots=True)
class _Found:
    used: Sequence[DayUsage]
    people: Sequence[Line]
    drawn: Sequence[tuple[str, _PerDay]]  # of the people who used most

    @property
    def days(self) -> tuple[str, ...]:
        return tuple(each.day.name for each in self.used)


class UsagePages:
    """Numbers and names of people, never a word of what they said."""

    def __init__(
        self,
        database: Database,
        known: Prices,
        zone: tzinfo,
        clock: Clock,
        allowance: Allowance,
    ) -> None:
        self._database = database
        self._prices = known
        self._zone = zone
        self._clock = clock
        self._allowance = allowance
        self._days = UsageDays(zone)
        self._people = UsagePeople()

    def configure(self, config: Config) -> None:
        """Days are those of another time zone from now on, if it is another one."""
        zone = local_zone(config)
        if zone != self._zone:
            self._zone, self._days = zone, UsageDays(zone)

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [web.get("/usage", self._page), web.get("/api/usage", self._json)]

    async def _page(self, request: web.Request) -> web.Response:
        found, language = await self._database.read(self._look), pages.language(request)
        standings = await self._allowance.in_all()
        lines: dict[Heading, Sequence[Line]] = {
            "person": _bounded(found.people, text(language, "usage.others")),
            **{by: days.lines(found.used, by, self._prices) for by in ("model", "day", "purpose")},
        }
        is_used = bool(found.people)
        return pages.page(
            request,
            "usage.html",
            days=DAYS,
            date=prices.LOOKED_UP,
            limits=[_limit(language, each) for each in standings],
            pictures=self._pictures(language, found) if is_used else [],
            tables=[_table(language, by, lines[by]) for by in HEADINGS] if is_used else [],
            unpriced=ledger.total(lines["model"]).bill.unpriced,
        )

    async def _json(self, _request: web.Request) -> web.Response:
        since = self._clock() - DAYS * DAY_MS

        def look(tx: Transaction) -> Mapping[Heading, Sequence[Line]]:
            return {by: ledger.lines(tx, by, since, self._zone, self._prices) for by in HEADINGS}

        found = await self._database.read(look)
        body: dict[str, Any] = {
            "days": DAYS,
            "prices_of": str(prices.LOOKED_UP),
            **{f"by_{name}": [ledger.plain(line) for line in found[name]] for name in HEADINGS},
        }
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    def _look(self, tx: Transaction) -> _Found:
        now = self._clock()
        used = self._days.look(tx, now, DAYS)
        when = [each.day for each in used]
        people = days.people(self._people.look(tx, when[0].start, now), self._prices)
        most = sorted(people, key=lambda line: -line.bill.usage.context_tokens)
        drawn = [
            (line.name, days.of_person(tx, line.name, when, self._prices))
            for line in most[: charts.MOST_SERIES - 1]
        ]
        return _Found(used, people, drawn)

    def _pictures(self, language: str, found: _Found) -> list[Picture]:
        """Tokens and money, by model and by person."""
        others = text(language, "usage.others")
        whole = [
            (
                sum(usage.context_tokens for usage in each.models.values()),
                sum(self._prices.cost(model, usage) or 0 for model, usage in each.models.items()),
            )
            for each in found.used
        ]
        drawn: list[Picture] = []
        for at, what in enumerate(("tokens", "dollars")):
            shown = partial(_shown, what)
            names = dict.fromkeys(model for each in found.used for model in each.models)
            by_model = [
                Series(name, tuple(self._amount(each, name, at) for each in found.used))
                for name in names
            ]
            by_person = [Series(name, tuple(day[at] for day in used)) for name, used in found.drawn]
            rest = tuple(
                max(0.0, day[at] - sum(each.values[place] or 0 for each in by_person))
                for place, day in enumerate(whole)
            )
            if len(found.people) > len(by_person):
                by_person.append(Series(others, rest))
            for by, series in (("model", charts.largest(by_model, others)), ("person", by_person)):
                name = f"{what}_{by}"
                title = text(language, f"usage.picture.{name}")
                chart = Chart(title, found.days, tuple(series), shown)
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


def _bounded(people: Sequence[Line], others: str) -> Sequence[Line]:
    if len(people) <= MOST_PEOPLE:
        return people
    rest = ledger.total(people[MOST_PEOPLE:])
    return [*people[:MOST_PEOPLE], Line(others, rest.runs, rest.bill)]


def _limit(language: str, standing: Standing) -> Mapping[str, Any]:
    """A limit as the template takes it."""
    limit = standing.limit
    what = f"{limit.whose}.{limit.span}"
    shown = partial(_shown, "dollars" if limit.unit == "usd" else "tokens")
    used, most = shown(standing.used), shown(limit.most)
    if limit.unit == "tokens":
        most = text(language, "limit.tokens", count=most)
    return {
        "name": text(language, f"limit.{what}"),
        "amounts": text(language, "limit.amounts", used=used, most=most),
        "percent": standing.percent,
    }


def _table(language: str, by: Heading, lines: Sequence[Line]) -> Mapping[str, Any]:
    """A table as the template takes it: rows of words, the first of which names the row."""
    return {
        "caption": text(language, f"usage.by.{by}"),
        "head": [text(language, f"usage.{name}") for name in (by, *_NUMBERS)],
        "rows": [_row(language, line, line.name) for line in lines],
        "total": _row(language, ledger.total(lines), text(language, "usage.total")),
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
    return (name, *map(grouped, numbers), ledger.cost_in_words(language, line))
