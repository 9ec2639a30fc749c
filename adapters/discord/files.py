"""Fetching what came with a message: bounded, and only from Discord and hosts that are named."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp
from yarl import URL

from adapters.discord import PUBLIC_API
from adapters.discord.api import CONNECT_TIMEOUT, READ_TIMEOUT, Rest
from bot.channel import Media
from bot.channel.kit.client import download
from bot.errors import SendRefused

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
TOTAL_TIMEOUT = 120.0  # seconds for one file

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
            SendLater, SendTransient: it may work later.
            SendRefused: it never will.
        """
        if media.size > most:
            raise SendRefused("this file is too large")
        try:
            url = URL(media.ref, encoded=True)
        except ValueError:
            raise SendRefused("the file has no address") from None
        if not self.is_ours(url):
            raise SendRefused("the file does not lie at Discord")
        call = self.rest.session.get(
            url,
            timeout=aiohttp.ClientTimeout(
                total=TOTAL_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
            ),
            allow_redirects=False,
            headers={"User-Agent": self.rest.user_agent, "Accept-Encoding": "identity"},
        )
        return await download(call, most, "Discord")
