"""Checks of a shared PostgreSQL: connection, rights, tables, and months to be deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from bot.channel import Finding, Repair, reveal
from bot.cluster.extra import NO_EXTRA, needing_extra
from bot.config import Config
from bot.doctor import Setup
from bot.errors import ConfigError, StorageError, StorageNotMade
from bot.portability import places
from bot.storage import Transaction, months
from bot.storage.months import Month
from bot.storage.records import MOVED, MOVED_FROM, text_of


async def check(setup: Setup) -> Sequence[Finding]:
    """The server, its tables and their months."""
    config = setup.config
    try:
        with needing_extra():
            from bot.storage.postgres_link import examine  # noqa: PLC0415 - its packages are one
    except ConfigError:
        return [Finding.of("error", "server.unusable", why=NO_EXTRA)]
    storage = config.storage
    url, direct = reveal(storage.url), reveal(storage.direct_url)
    try:
        server = await asyncio.to_thread(examine, url, storage.cluster, direct)
    except StorageError as error:
        return [Finding.of("error", "server.unusable", why=str(error))]
    found = [
        Finding.of(
            "ok",
            "server.tables" if server.tables else "server.no_tables",
            version=server.version,
            place=server.place,
            megabytes=round(server.size / 1_000_000),
            tables=server.tables,
        )
    ]
    if server.problems:
        return found + [Finding.of("error", "server.problem", why=why) for why in server.problems]
    return [*found, Finding.of("ok", "server.rights"), *await _content(setup, server.place)]


def place_of(config: Config) -> str:
    """The name of the server, without a password.

    Raises:
        StorageError: the URL is none.
        ConfigError: the extra for it is not installed.
    """
    with needing_extra():
        from bot.storage import postgres_link  # noqa: PLC0415 - its packages are an extra
    return postgres_link.place_of(reveal(config.storage.url))


async def _content(setup: Setup, place: str) -> Sequence[Finding]:
    """Check the content of the tables; none are made or migrated here."""
    kept = setup.config.storage.keep_months

    def look(tx: Transaction) -> tuple[str | None, Sequence[Month], frozenset[str]]:
        return (
            text_of(tx, MOVED_FROM),
            months.listed(tx),
            frozenset(months.due(tx, kept)),
        )

    try:
        async with setup.opened() as database:
            origin, every, due = await database.read(look)
    except StorageNotMade as error:
        return [Finding.of("warning", "server.not_made", why=str(error))]
    except StorageError as error:
        return [Finding.of("error", "server.unusable", why=str(error))]
    if origin not in {None, MOVED}:
        folder = setup.config.storage.folder
        here = places.identity_of(str(folder.resolve()))
        repair: Repair = "move" if origin == here else ""
        return [Finding.of("error", "server.moving", repair=repair, place=place)]
    return [*_months(every, due, kept)]


def _months(every: Sequence[Month], due: frozenset[str], kept: int) -> Iterator[Finding]:
    """List the months of transcripts, and those that will be deleted."""
    gone = [each.name for each in every if each.is_dropped]
    stay = [each for each in every if not each.is_dropped and each.name not in due]
    name = f"server.months{'' if kept else '_for_ever'}{'_dropped' if gone else ''}"
    values = _amount(stay) | {"kept": kept, "dropped": _span(gone)}
    yield Finding("ok", id=name, values=values)
    if going := [each for each in every if each.name in due]:
        yield Finding("warning", id="server.months_going", values=_amount(going))


def _amount(found: Sequence[Month]) -> dict[str, str | int | float]:
    """Some months in numbers."""
    size = sum(each.size for each in found)
    return {
        "span": _span([each.name for each in found]),
        "count": sum(each.entries for each in found),
        "megabytes": f"{size / 1_000_000:.1f}",
    }


def _span(names: Sequence[str]) -> str:
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"{names[0]} – {names[-1]}"
