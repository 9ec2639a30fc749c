"""A homeserver's HTTP interface: calls with one bot's token, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from bot.channel.kit.client import download, exchange, failure
from bot.channel.kit.json_access import Json, number, text
from bot.errors import ChannelError, SendLater, SendRefused, SendTransient

HOMESERVER = "The homeserver"
CLIENT = "/_matrix/client/v3"
MAX_ANSWER = 64 << 20  # bytes; the state of every room comes with the first sync
PATIENCE = 30.0  # seconds
CONNECT = 10.0  # seconds
DOWNLOAD = 120.0  # seconds for one file


class Refused(ChannelError):
    """The homeserver does not do this; `status` and `code` say why ("M_FORBIDDEN")."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"The homeserver refuses this (HTTP {status} {code})")
        self.status, self.code = status, code


class TokenRefused(ChannelError):
    """The access token is of no use, or no longer; the message says what to do."""


def escaped(*parts: str) -> str:
    """A path; each part may hold any character."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


class Api:
    """Calls to one homeserver. None follows a redirect: it would take the token along."""

    def __init__(self, homeserver: str, token: str, session: aiohttp.ClientSession) -> None:
        self._homeserver = homeserver
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session = session

    async def call(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        query: Mapping[str, str] | None = None,
        *,
        mime: str = "application/json",
        patience: float = PATIENCE,
    ) -> Json:
        """The answer of the homeserver.

        Raises:
            SendLater, SendTransient: it may work later.
            TokenRefused: the token does not count.
            Refused: it does not do this.
        """
        headers = self._headers | ({"Content-Type": mime} if body is not None else {})
        found = await exchange(
            self._session,
            method,
            self._url(path, query or {}),
            platform=HOMESERVER,
            most=MAX_ANSWER,
            data=orjson.dumps(body) if isinstance(body, dict) else body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=patience, sock_connect=CONNECT),
        )
        answer, status = found.json, found.status
        if status == 200:
            return answer
        code = text(answer, "errcode")[:64]
        if code in {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"}:
            raise TokenRefused(f"{HOMESERVER} does not accept MATRIX_ACCESS_TOKEN: log in again")
        seconds = number(answer, "retry_after_ms") / 1000 or number(
            dict(found.headers), "Retry-After"
        )
        error = failure(HOMESERVER, 429 if code == "M_LIMIT_EXCEEDED" else status, seconds)
        raise error if isinstance(error, SendLater | SendTransient) else Refused(status, code)

    async def asked(self, path: str) -> Json:
        """The answer of the homeserver, or nothing."""
        try:
            return await self.call("GET", path)
        except Refused:
            return {}

    async def download(self, server: str, media: str, most: int) -> bytes:
        """A file of the media repository; see `bot.channel.kit.client.download`."""
        limits = aiohttp.ClientTimeout(total=DOWNLOAD, sock_connect=CONNECT)
        for kind in ("client/v1/media", "media/v3"):  # the second one before Matrix 1.11
            url = self._url(f"/_matrix/{kind}/download{escaped(server, media)}", {})
            call = self._session.get(
                url, headers=self._headers, timeout=limits, allow_redirects=False
            )
            try:
                return await download(call, most, HOMESERVER)
            except SendRefused as error:
                if "HTTP 404" not in str(error):
                    raise
        raise SendRefused("this file is gone")

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        base = path if path.startswith("/_matrix") else CLIENT + path
        return URL(self._homeserver + base, encoded=True).update_query(query)
