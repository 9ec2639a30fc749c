"""What was used, for the owner: `/usage` is a page of it, `/api/usage` the same for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from html import escape
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
        lead = text(language, "usage.lead", days=DAYS, date=prices.LOOKED_UP)
        parts = [f"<h1>{escape(text(language, 'usage.title'))}</h1><p>{escape(lead)}</p>"]
        if found["person"]:
            parts += [_table(language, by, found[by]) for by in HEADINGS]
        else:
            parts.append(f"<p>{escape(text(language, 'usage.nothing'))}</p>")
        if unpriced := ledger.total(found["model"]).bill.unpriced:
            said = text(language, "usage.unpriced", models=", ".join(unpriced))
            parts.append(f"<p>{escape(said)}</p>")
        parts.append(f'<p><a href="/">{escape(text(language, "page.back"))}</a></p>')
        return pages.html(request, "".join(parts), wide=True)

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


def _table(language: str, by: Heading, lines: Sequence[Line]) -> str:
    head = "".join(
        f'<th scope="col">{escape(text(language, f"usage.{name}"))}</th>'
        for name in (by, *_NUMBERS)
    )
    body = "".join(_row(language, line, line.name) for line in lines)
    foot = _row(language, ledger.total(lines), text(language, "usage.total"))
    caption = escape(text(language, f"usage.by.{by}"))
    # What scrolls can be reached by the keyboard, and says what it is.
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody><tfoot>{foot}</tfoot></table></div>"
    )


def _row(language: str, line: Line, name: str) -> str:
    usage = line.bill.usage
    numbers = (
        line.runs,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    )
    cells = "".join(f"<td>{escape(each)}</td>" for each in map(grouped, numbers))
    cost = escape(ledger.cost_in_words(language, line))
    return f'<tr><th scope="row">{escape(name)}</th>{cells}<td>{cost}</td></tr>'
