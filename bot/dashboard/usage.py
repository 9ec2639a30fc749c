"""What was used, for the owner: `/usage` is a page of it, `/api/usage` the same for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

from aiohttp import web

from bot.clock import DAY_MS, Clock
from bot.context.report import grouped
from bot.dashboard import pages
from bot.i18n import text
from bot.money import ledger, prices
from bot.money.ledger import Heading, Line
from bot.money.prices import Prices
from bot.storage import Database, Transaction

DAYS: Final = 30
HEADINGS: Final[tuple[Heading, ...]] = ("person", "model", "day", "purpose")
_NUMBERS: Final = ("runs", "input", "cached", "written", "output", "cost")


class UsagePages:
    """Numbers and names of people, never a word of what they said."""

    def __init__(self, database: Database, known: Prices, zone: tzinfo, clock: Clock) -> None:
        self._database = database
        self._prices = known
        self._zone = zone
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [web.get("/usage", self._page), web.get("/api/usage", self._json)]

    async def _page(self, request: web.Request) -> web.Response:
        found, language = await self._found(), pages.language(request)
        return pages.page(
            request,
            "usage.html",
            days=DAYS,
            date=prices.LOOKED_UP,
            tables=[_table(language, by, found[by]) for by in HEADINGS] if found["person"] else [],
            unpriced=ledger.total(found["model"]).bill.unpriced,
        )

    async def _json(self, _request: web.Request) -> web.Response:
        found = await self._found()
        body: dict[str, Any] = {
            "days": DAYS,
            "prices_of": str(prices.LOOKED_UP),
            **{f"by_{name}": [ledger.plain(line) for line in found[name]] for name in HEADINGS},
        }
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def _found(self) -> Mapping[Heading, Sequence[Line]]:
        since = self._clock() - DAYS * DAY_MS

        def look(tx: Transaction) -> Mapping[Heading, Sequence[Line]]:
            return {by: ledger.lines(tx, by, since, self._zone, self._prices) for by in HEADINGS}

        return await self._database.read(look)


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
