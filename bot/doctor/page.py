"""The page: its address, its token, and the proxy in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, Literal

import aiohttp
from yarl import URL

from bot.channel import Finding, reveal
from bot.cluster import census
from bot.config import DashboardConfig, is_loopback
from bot.doctor.setup import Setup
from bot.errors import StorageError
from bot.storage import files

TIMEOUT: Final = 5.0  # seconds for one answer
SHORT: Final = 16  # characters of a token that can be guessed

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to ask what listens there

Answer = Literal["alive", "other", "silent", "none"]
"""What is at an address: the page, something else, something that does not answer, or nothing."""


async def check(setup: Setup) -> Sequence[Finding]:
    """Whether the page can be opened, by whom, and through what."""
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
        length = len(reveal(page.token))
        if length < SHORT:
            yield Finding.of("warning", "page.short_token", length=length, wanted=SHORT)
        else:
            yield Finding.of("ok", "page.token")
    elif is_loopback(page.host):
        yield Finding.of("ok", "page.no_token_needed")
    else:
        yield Finding.of("error", "page.no_token", host=page.host)


async def _nodes(setup: Setup) -> Sequence[Finding]:
    """Whether all nodes let in whoever one of them does."""
    if not setup.is_shared:
        return ()
    try:
        async with setup.opened() as database:
            found = await database.read(census.take)
    except StorageError:  # said of the storage
        return ()
    differ = census.differing(found, setup.config.storage.node_timeout)
    return [Finding.of("warning", "page.tokens_differ", nodes=", ".join(differ))] if differ else ()


def _origins(page: DashboardConfig) -> Iterator[Finding]:
    for each in page.allowed_origins:
        url = URL(each)
        if url.scheme != "https" and not is_loopback(url.host or ""):
            yield Finding.of("warning", "page.plain_origin", origin=each)


def _address(page: DashboardConfig, answer: Answer, *, is_running: bool | None) -> Finding:
    """What its address answers; `is_running` is None where that cannot be known here."""
    level, name = "ok", "free"
    if answer == "alive" and is_running is not False:
        name = "answers"
    elif is_running and answer in {"silent", "none"}:
        level, name = "error", "silent"
    elif answer != "none":
        level, name = "error", "taken"
    return Finding.of(level, f"page.{name}", host=page.host, port=page.port)


async def _proxies(session: aiohttp.ClientSession, page: DashboardConfig) -> AsyncIterator[Finding]:
    """Whether the page is there at each address that a proxy has for it."""
    for each in page.allowed_origins:
        answer = await _asked(session, URL(each))
        if answer == "alive":
            yield Finding.of("ok", "page.proxy", origin=each)
        else:
            name = "other" if answer == "other" else "none"
            yield Finding.of("warning", f"page.proxy_{name}", origin=each)


def _own(page: DashboardConfig) -> URL:
    host = _EVERYWHERE.get(page.host, page.host.strip("[]"))
    return URL.build(scheme="http", host=host, port=page.port)


async def _asked(session: aiohttp.ClientSession, address: URL) -> Answer:
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


def _is_running(setup: Setup) -> bool | None:
    if setup.is_shared:
        return None
    try:
        return files.holder(setup.config.storage.folder).is_running
    except OSError:  # said of the storage
        return None
