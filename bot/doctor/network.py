"""Checks of the page's address, token and proxy, and of the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import aiohttp
import tzlocal
from yarl import URL

from bot import housekeeping
from bot.channel import Finding, Level
from bot.clock import ahead_of_others
from bot.cluster import census
from bot.config import Config, DashboardConfig, is_loopback
from bot.doctor import Setup
from bot.errors import StorageError
from bot.identity.conversation import local_zone
from bot.storage import files
from bot.storage.records import BROKEN

TIMEOUT: Final = 5.0  # seconds for one answer

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to ask what listens there

PageAnswer = Literal["alive", "other", "silent", "none"]
"""What answers at an address: the page, something else, nothing in time, or nothing."""


async def check_page(setup: Setup) -> Sequence[Finding]:
    """Check whether the page can be opened, by whom, and through what."""
    page = setup.config.dashboard
    found = [*_token(page), *_origins(page), *await _nodes(setup)]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session:
        is_alive = False
        if page.port:
            answer = await _asked(session, _own(page))
            is_alive = answer == "alive"
            is_running = await asyncio.to_thread(_is_running, setup)
            found.append(_address(page, answer, is_running=is_running))
        if is_alive:
            found += [each async for each in _proxies(session, page)]
    return found


def _token(page: DashboardConfig) -> Iterator[Finding]:
    if page.has_token:
        yield Finding.of("ok", "page.token")
    elif is_loopback(page.host):
        yield Finding.of("ok", "page.no_token_needed")
    else:
        yield Finding.of("error", "page.no_token", host=page.host)


async def _nodes(setup: Setup) -> Sequence[Finding]:
    """Check whether all nodes have the same token."""
    if not setup.is_shared:
        return ()
    try:
        found = await setup.read(census.take)
    except StorageError:  # a finding of the storage
        return ()
    differ = census.differing(found, setup.config.storage.node_timeout) if found else ()
    return [Finding.of("warning", "page.tokens_differ", nodes=", ".join(differ))] if differ else ()


def _origins(page: DashboardConfig) -> Iterator[Finding]:
    for each in page.allowed_origins:
        url = URL(each)
        if url.scheme != "https" and not is_loopback(url.host or ""):
            yield Finding.of("warning", "page.plain_origin", origin=each)


def _address(page: DashboardConfig, answer: PageAnswer, *, is_running: bool | None) -> Finding:
    """Judge what its address answers; `is_running` is None if that is not known here."""
    level, name = "ok", "free"
    if answer == "alive" and is_running is not False:
        name = "answers"
    elif is_running and answer in {"silent", "none"}:
        level, name = "error", "silent"
    elif answer != "none":
        level, name = "error", "taken"
    return Finding.of(level, f"page.{name}", host=page.host, port=page.port)


async def _proxies(session: aiohttp.ClientSession, page: DashboardConfig) -> AsyncIterator[Finding]:
    """Check whether the page answers at each address of a proxy."""
    for each in page.allowed_origins:
        names: dict[PageAnswer, str] = {"alive": "proxy", "other": "proxy_other"}
        name = names.get(await _asked(session, URL(each)), "proxy_none")
        yield Finding.of("ok" if name == "proxy" else "warning", f"page.{name}", origin=each)


def _own(page: DashboardConfig) -> URL:
    host = _EVERYWHERE.get(page.host, page.host.strip("[]"))
    return URL.build(scheme="http", host=host, port=page.port)


async def _asked(session: aiohttp.ClientSession, address: URL) -> PageAnswer:
    try:
        async with session.get(address / "healthz", allow_redirects=False) as response:
            said = await response.content.read(200)
    except aiohttp.ClientConnectorError:
        return "none"
    except TimeoutError:
        return "silent"
    except (aiohttp.ClientError, OSError):
        return "other"
    return "alive" if response.status == 200 and b'"alive"' in said else "other"


async def reported(setup: Setup) -> Sequence[Finding]:
    """Findings that a running bot reports about itself; none if it does not answer."""
    served = await asyncio.to_thread(files.served, setup.config.storage.folder)
    address = _own(setup.config.dashboard) if setup.is_shared else URL(served.url if served else "")
    if not address.port:
        return ()
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session,
            session.get(address.origin() / "readyz") as response,
        ):
            checks: dict[str, dict[str, Any]] = (await response.json())["checks"]
        wrong: list[Finding] = []
        for name, each in checks.items():
            level: Level = "error" if each["state"] == "down" else "warning"
            detail = "" if each["id"] else each["detail"]
            if each["state"] != "ok":
                wrong.append(Finding(level, detail, each["fix"], name, each["id"], each["values"]))
    except (aiohttp.ClientError, OSError, *BROKEN):  # said of the page
        return ()
    return [Finding.of("ok", "health.reported", count=len(checks) - len(wrong)), *wrong]


def _is_running(setup: Setup) -> bool | None:
    if setup.is_shared:
        return None
    try:
        return files.holder(setup.config.storage.folder).is_running
    except OSError:  # said of the storage
        return None


A_LITTLE: Final = 60  # seconds a clock may be wrong
MUCH: Final = 300  # what platforms and logins do not take any more

_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"  # the nodes' clock
_LATEST = "SELECT coalesce(max(received_at), 0) FROM inbox"  # when something was last stored


async def check_clock(setup: Setup) -> Sequence[Finding]:
    """Check the clock and the time zone."""
    found = [*_zone(setup.config), *_by_servers()]
    sql = _NOW if setup.is_shared else _LATEST
    times = await setup.read(lambda tx: (setup.clock(), int(tx.execute(sql)[0][0])))
    return found if times is None else [*found, *_against_store(*times, is_shared=setup.is_shared)]


def _zone(config: Config) -> Iterator[Finding]:
    zone = local_zone(config).key
    if config.agent.timezone:
        yield Finding.of("ok", "clock.zone_set", zone=zone)
    elif tzlocal.get_localzone_name() in {None, "local"}:
        yield Finding.of("warning", "clock.no_zone", zone=zone)
    else:
        yield Finding.of("ok", "clock.zone", zone=zone)


def _by_servers() -> Iterator[Finding]:
    """Compare the clock with those of the models' servers, which were just asked."""
    ahead, count = ahead_of_others()
    found = housekeeping.right_time(None).finding
    if found.level != "ok":
        yield replace(found, level="error" if abs(ahead) >= MUCH else "warning")
    elif count:
        yield Finding.of("ok", "clock.right", count=count)


def _against_store(now: int, latest: int, *, is_shared: bool) -> Iterator[Finding]:
    """Compare the clock with the database server's, or with the newest stored message."""
    seconds = round((latest - now) / 1000)
    if is_shared and abs(seconds) >= A_LITTLE:
        yield Finding.of("warning", "clock.unlike_server", seconds=abs(seconds))
    elif not is_shared and seconds >= A_LITTLE:
        yield Finding.of("error", "clock.behind_store", seconds=seconds)
