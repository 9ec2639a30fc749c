"""A page of the owner's with forms, as their browser uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from tests.support import Engine


@dataclass
class OwnerPage:
    """The page at `path`, whose forms post below it and tell there what came of it."""

    client: aiohttp.ClientSession
    engine: Engine
    path: str

    async def shows(self, query: str = "", language: str = "en") -> str:
        headers = {"Accept-Language": language}
        async with self.client.get(f"{self.path}{query}", headers=headers) as answer:
            assert answer.status == 200
            return await answer.text()

    async def does(self, what: str, **fields: str) -> str:
        """Post a form; what the page says of it afterwards, as its key."""
        posted = self.client.post(f"{self.path}/{what}", data=fields, allow_redirects=False)
        async with posted as answer:
            assert answer.status == 303
            where = urlsplit(answer.headers["Location"])
        assert where.path == self.path
        assert 'class="told" role="status"' in await self.shows(f"?{where.query}")
        return where.query.removeprefix("told=")


@asynccontextmanager
async def browser(engine: Engine) -> AsyncIterator[aiohttp.ClientSession]:
    """The owner's browser: what it asks comes from the page itself."""
    assert engine.app.address is not None
    url = engine.app.address.url
    headers = {"Origin": url.rstrip("/"), "Accept": "text/html"}
    async with aiohttp.ClientSession(url, headers=headers) as client:
        yield client
