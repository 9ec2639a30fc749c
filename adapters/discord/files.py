"""Fetching what came with a message: bounded, and only from Discord and hosts that are named."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp
from yarl import URL

from adapters.discord import PUBLIC_API
from adapters.discord.api import CONNECT_TIMEOUT, READ_TIMEOUT, Rest
from bot.channel import Media
from bot.errors import SendRefused, SendTransient

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
TOTAL_TIMEOUT = 120.0  # seconds for one file
BLOCK = 1 << 16  # bytes read at once

Origin = tuple[str, str, int]  # scheme, host, port


def origin(url: URL) -> Origin:
    """Who is called by an address."""
    return url.scheme, url.host or "", url.port or 0


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the files of one account lie; `hosts` are the origins besides Discord's."""

    rest: Rest
    api_root: str
    hosts: frozenset[Origin]

    def is_ours(self, url: URL) -> bool:
        """Whether an address is one a file of Discord's can have.

        What a message says of its files is not trusted: it must not make us call anybody else.
        """
        if not url.user and origin(url) in self.hosts:
            return True
        if self.api_root != PUBLIC_API and url.authority == self.rest.api_host:
            return url.scheme in {"http", "https"} and not url.user
        return url.scheme == "https" and url.host in HOSTS and url.port == 443 and not url.user

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file, if they are no more than `most`.

        Raises:
            SendTransient: it may work later.
            SendRefused: it never will.
        """
        if media.size > most:
            raise SendRefused("the file is too large")
        try:
            url = URL(media.ref, encoded=True)
        except ValueError:
            raise SendRefused("the file has no address") from None
        if not self.is_ours(url):
            raise SendRefused("the file does not lie at Discord")
        try:
            return await self._read(url, most)
        except TimeoutError:
            raise SendTransient("Discord: no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise SendTransient(f"Discord: {type(error).__name__}") from None

    async def _read(self, url: URL, most: int) -> bytes:
        proxy, proxy_headers = self.rest.proxy_for(str(url))
        timeout = aiohttp.ClientTimeout(
            total=TOTAL_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
        )
        async with self.rest.session.get(
            url,
            timeout=timeout,
            allow_redirects=False,
            proxy=proxy,
            proxy_headers=proxy_headers,
            headers={"User-Agent": self.rest.user_agent, "Accept-Encoding": "identity"},
        ) as response:
            if response.status >= 500 or response.status == 429:
                raise SendTransient(f"Discord: {response.status} for a file")
            if response.status != 200:
                raise SendRefused("the file is gone, or its address is too old")
            data = bytearray()
            async for block in response.content.iter_chunked(BLOCK):
                data += block
                if len(data) > most:
                    raise SendRefused("the file is too large")
            return bytes(data)
