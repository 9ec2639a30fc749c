"""The clock: against the store, against the servers that are asked anyway; and its time zone."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
import tzlocal
from yarl import URL

from bot.agent.models.registry import address_of
from bot.channel import Finding
from bot.channel.kit.client import proxy_for
from bot.clock import Clock
from bot.config import Config
from bot.doctor.setup import Setup
from bot.errors import StorageNotMade
from bot.identity.zone import local_zone
from bot.storage import Transaction

TIMEOUT: Final = 5.0  # seconds for each server
A_LITTLE: Final = 60  # seconds a clock may be wrong
MUCH: Final = 300  # what platforms and logins do not take any more
MOST: Final = 5  # servers that are asked

_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


async def check(setup: Setup) -> Sequence[Finding]:
    """Whether the time that counts is right."""
    found = [*_zone(setup.config)]
    found += await _by_servers(setup)
    if setup.has_database:
        try:
            async with setup.opened() as database:
                look = _of_server if setup.is_shared else _of_folder
                now, latest = setup.clock(), await database.read(look)
        except StorageNotMade:  # said of the storage
            return found
        found += _against_store(now, latest, is_shared=setup.is_shared)
    return found


def _zone(config: Config) -> Iterator[Finding]:
    zone = local_zone(config).key
    if config.agent.timezone:
        yield Finding.of("ok", "clock.zone_set", zone=zone)
    elif tzlocal.get_localzone_name() in {None, "local"}:
        yield Finding.of("warning", "clock.no_zone", zone=zone)
    else:
        yield Finding.of("ok", "clock.zone", zone=zone)


# --- what is stored -------------------------------------------------------------------------------


def _of_folder(tx: Transaction) -> int:
    """When something was last stored."""
    rows = tx.execute("SELECT coalesce(max(received_at), 0) FROM inbox")
    return int(rows[0][0])


def _of_server(tx: Transaction) -> int:
    """The server's clock, which is the nodes'."""
    return int(tx.execute(_NOW)[0][0])


def _against_store(now: int, latest: int, *, is_shared: bool) -> Iterator[Finding]:
    """What is stored is never from tomorrow; nodes have the server's clock."""
    seconds = round((latest - now) / 1000)
    if is_shared and abs(seconds) >= A_LITTLE:
        yield Finding.of("warning", "clock.unlike_server", seconds=abs(seconds))
    elif not is_shared and seconds >= A_LITTLE:
        yield Finding.of("error", "clock.behind_store", seconds=seconds)


# --- the Date of what is asked anyway -------------------------------------------------------------


async def _by_servers(setup: Setup) -> Sequence[Finding]:
    """How far the clock is from those of the services and platforms that are set up."""
    addresses, clock = [*dict.fromkeys(_addresses(setup))][:MOST], setup.clock
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
        asked = await asyncio.gather(*(_offset(session, each, clock) for each in addresses))
    offsets = [each for each in asked if each is not None]
    if not offsets:
        return []
    seconds = round(statistics.median(offsets))
    if abs(seconds) < A_LITTLE:
        return [Finding.of("ok", "clock.right", count=len(offsets))]
    way = "fast" if seconds > 0 else "slow"
    level = "error" if abs(seconds) >= MUCH else "warning"
    return [Finding.of(level, f"clock.{way}", seconds=abs(seconds), count=len(offsets))]


def _addresses(setup: Setup) -> Iterator[URL]:
    """The servers that are asked anyway, without a path: nothing is said there."""
    models = setup.config.models
    for name, service in models.services.items():
        if models.is_set_up(name) and (address := address_of(models.kind_of(name), service)):
            yield from _origin(address)
    for name, plugin in setup.plugins.items():
        section = setup.config.channels.get(name)
        if section.enabled and plugin.ready(section):
            platform = getattr(section, "api_root", "") or getattr(section, "base_url", "")
            if isinstance(platform, str) and platform:
                yield from _origin(platform)


def _origin(address: str) -> Iterator[URL]:
    try:
        yield URL(address).origin()
    except ValueError:  # said by whoever uses it
        return


async def _offset(session: aiohttp.ClientSession, address: URL, clock: Clock) -> float | None:
    """By how many seconds the clock is before a server's; None when that does not say."""
    proxy, headers = await asyncio.to_thread(proxy_for, str(address))
    try:
        before = clock()
        async with session.head(
            address, allow_redirects=False, proxy=proxy, proxy_headers=headers
        ) as answer:
            here = (before + clock()) / 2
            there = parsedate_to_datetime(answer.headers["Date"]).timestamp() * 1000
    except (aiohttp.ClientError, OSError, TimeoutError, KeyError, ValueError, TypeError):
        return None
    return (here - there) / 1000
