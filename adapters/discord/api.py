"""The REST API over aiohttp: discord.py's `HTTPClient` with calls that never wait inside.

The SDK's own sleeps through rate limits and failures; the engine wants to know of them instead.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import orjson
from yarl import URL

from adapters.discord.sdk import DiscordClientWebSocketResponse, HTTPClient, Route, discord
from bot.channel import Attachment
from bot.channel.kit.client import TooLarge, read, why
from bot.channel.kit.client import session as client_session
from bot.channel.kit.json_access import Json, integer, mapping, text

CONNECT_TIMEOUT = 10.0  # seconds
READ_TIMEOUT = 15.0  # seconds without a byte from the server
UPLOAD_TIMEOUT = 90.0  # seconds until Discord has a file and says so
CLOSE_TIMEOUT = 5.0  # seconds for the gateway to agree to the end of a connection
CONNECTIONS = 128  # at once, for one account
MAX_ANSWER = 16 << 20  # bytes of an answer that are read
MAX_REASON = 200  # characters of Discord's words that are passed on
MAX_BUCKETS = 1024  # of rate limits, remembered; those whose time is over go first
DEFAULT_WAIT = 5.0  # seconds, when Discord limits the rate without saying for how long

# What goes out under an interaction's own token rather than the bot's.
_TOKENLESS = ("/interactions/", "/webhooks/")


class Unreachable(discord.DiscordException):
    """No answer, or none in time; the message is the kind of failure."""


class TooSlow(Unreachable):
    """No answer in time."""


class TooLong(Unreachable):
    """An answer longer than any of Discord's."""


def new_session(proxy: str = "") -> aiohttp.ClientSession:
    """The client session of one account; close it when the account stops."""
    socket = DiscordClientWebSocketResponse
    return client_session(proxy, limit=CONNECTIONS, keepalive=60, ws_response_class=socket)


def reason(error: Exception) -> str:
    """What an error says, fit for a log: Discord's words, never an address or a token."""
    if isinstance(error, discord.HTTPException):
        said = error.text.replace("\n", " ")[:MAX_REASON]
        return f"{error.status} ({error.code}) {said}".rstrip()
    if isinstance(error, Unreachable | discord.RateLimited):
        return str(error)[:MAX_REASON]
    return type(error).__name__


class Rest(HTTPClient):
    """Calls of one bot; errors are the SDK's own.

    Every call raises:
        RateLimited: Discord asks to wait, or the bucket is known to be empty.
        HTTPException: Discord said no.
        Unreachable: Discord did not say anything.
    """

    def __init__(self, token: str, api_root: str, session: aiohttp.ClientSession) -> None:
        super().__init__(asyncio.get_running_loop())
        self.token = token
        self._session = session
        self._root = api_root.rstrip("/")
        self._limits = RateLimits(asyncio.get_running_loop().time)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The account's session, for what is not the API."""
        return self._session

    @property
    def api_host(self) -> str:
        """The host of a REST API of one's own, with its port, or of Discord's."""
        return URL(self._root).authority

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        files: Sequence[Attachment] = (),
        query: Mapping[str, str] | None = None,
        **ids: str,
    ) -> Any:
        """One exchange; `ids` fill the path. The parsed answer, None when there is none."""
        route = Route(method, path, **ids)
        wait = self._limits.wait(route)
        if wait > 0:
            raise discord.RateLimited(wait)
        self._limits.take(route)
        headers = {"User-Agent": self.user_agent}
        if not path.startswith(_TOKENLESS):
            headers["Authorization"] = f"Bot {self.token}"
        data = _form(body, files) if files else None
        if body is not None and data is None:
            headers["Content-Type"] = "application/json"
            data = orjson.dumps(body)
        timeout = aiohttp.ClientTimeout(
            sock_connect=CONNECT_TIMEOUT, sock_read=UPLOAD_TIMEOUT if files else READ_TIMEOUT
        )
        try:
            async with self._session.request(
                method,
                URL(self._root + route.url.removeprefix(Route.BASE), encoded=True),
                params=query,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                raw = await read(response, MAX_ANSWER)
        except TimeoutError:
            raise TooSlow("no answer in time") from None
        except TooLarge:
            raise TooLong("too long an answer") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(why(error)) from None
        self._limits.learn(route, response.headers)
        answer = _parsed(raw)
        if 200 <= response.status < 300:
            return answer
        raise self._failure(route, response, answer)

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        """Open the gateway's websocket, for the SDK."""
        return await self._session.ws_connect(
            url,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT),  # pyright: ignore[reportCallIssue]
            autoclose=False,
            headers={"User-Agent": self.user_agent},
            compress=compress,
        )

    def _failure(
        self, route: Route, response: aiohttp.ClientResponse, answer: object
    ) -> discord.DiscordException:
        said = mapping(answer)
        if response.status == 429:
            wait = _seconds(said.get("retry_after"), response.headers.get("Retry-After"))
            everywhere = said.get("global") is True or "X-RateLimit-Global" in response.headers
            self._limits.refused(route, wait, everywhere=everywhere)
            return discord.RateLimited(wait)
        words = text(said, "message")[:MAX_REASON]
        at_fault = mapping(said.get("errors"))
        if at_fault:
            words = f"{words} ({', '.join(sorted(at_fault)[:5])})"
        kinds = {403: discord.Forbidden, 404: discord.NotFound}
        kind = kinds.get(response.status, discord.HTTPException)
        if response.status >= 500:
            kind = discord.DiscordServerError
        return kind(response, {"code": integer(said, "code") or 0, "message": words})


@dataclass(slots=True)
class _Bucket:
    remaining: int
    until: float  # when it is full again


class RateLimits:
    """The buckets of one bot, as Discord's answers tell of them; asking never waits.

    Routes that share a bucket name one hash; each channel, server and webhook has its own.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hashes: dict[str, str] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._all_until = 0.0

    def wait(self, route: Route) -> float:
        """Seconds until a call may be made."""
        now = self._clock()
        bucket = self._buckets.get(self._key(route))
        own = bucket.until if bucket is not None and bucket.remaining <= 0 else 0.0
        return max(0.0, own - now, self._all_until - now)

    def take(self, route: Route) -> None:
        """A call is made."""
        bucket = self._buckets.get(self._key(route))
        if bucket is not None and bucket.until > self._clock():
            bucket.remaining -= 1

    def learn(self, route: Route, headers: Mapping[str, str]) -> None:
        """An answer came."""
        name = headers.get("X-RateLimit-Bucket", "")
        if name:
            self._hashes[route.key] = name
        try:
            remaining = int(headers["X-RateLimit-Remaining"])
            after = float(headers["X-RateLimit-Reset-After"])
        except (KeyError, ValueError):
            return
        self._keep(route, _Bucket(remaining, self._clock() + after))

    def refused(self, route: Route, seconds: float, *, everywhere: bool) -> None:
        """Discord asked to wait."""
        until = self._clock() + seconds
        if everywhere:
            self._all_until = max(self._all_until, until)
        else:
            self._keep(route, _Bucket(0, until))

    def _key(self, route: Route) -> str:
        return f"{self._hashes.get(route.key, route.key)}:{route.major_parameters}"

    def _keep(self, route: Route, bucket: _Bucket) -> None:
        if len(self._buckets) >= MAX_BUCKETS:
            now = self._clock()
            self._buckets = {k: b for k, b in self._buckets.items() if b.until > now}
        self._buckets[self._key(route)] = bucket


def _parsed(raw: bytes) -> object:
    try:
        return orjson.loads(raw) if raw else None
    except ValueError:
        return None  # a page of some proxy


def _seconds(said: object, header: str | None) -> float:
    for value in (said, header):
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                seconds = float(value)
            except ValueError:
                continue
            if 0 <= seconds < float("inf"):
                return max(seconds, 0.05)
    return DEFAULT_WAIT


def _form(body: object, files: Sequence[Attachment]) -> aiohttp.FormData:
    # Discord does not take "files%5B0%5D" for "files[0]".
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("payload_json", orjson.dumps(body).decode(), content_type="application/json")
    for index, file in enumerate(files):
        form.add_field(
            f"files[{index}]",
            file.data,
            filename=file_name(file),
            content_type=file.mime or "application/octet-stream",
        )
    return form


def file_name(file: Attachment) -> str:
    """A file's name as it may stand in a header."""
    kept = "".join(c if c.isalnum() or c in "._-+()" else "_" for c in file.name)
    return kept[-100:] or "file"


# Discord's ids and times: pure.

EPOCH = 1_420_070_400_000  # ms; where Discord's ids and times begin
MAX_DIGITS = 20  # of an id: they are numbers of 64 bits


def ids(parent: Json, key: str) -> list[str]:
    """The ids in a list inside a mapping."""
    value: object = parent.get(key)
    if not isinstance(value, list):
        return []
    return [str(item) for item in cast("list[object]", value) if is_id(item)]


def is_id(value: object) -> bool:
    """True if it is one of Discord's ids: a number of up to 64 bits, as text."""
    return (
        isinstance(value, str)
        and value.isascii()
        and value.isdecimal()
        and len(value) <= MAX_DIGITS
        and int(value) > 0
    )


def identity(parent: Json, key: str) -> str:
    """An id, or empty."""
    value: object = parent.get(key)
    return str(value) if is_id(value) else ""


def moment(stamp: str) -> int | None:
    """A time of Discord's in ms since the epoch, or None when it is none."""
    try:
        at = int(dt.datetime.fromisoformat(stamp).timestamp() * 1000)
    except (OverflowError, ValueError, OSError):
        return None
    return at if at > EPOCH else None


def sent_at(number: str) -> int:
    """When the thing with this id was made, in ms since the epoch."""
    return (int(number) >> 22) + EPOCH


def first_id_at(at: int) -> str:
    """The smallest id something made at a moment (ms since the epoch) can have."""
    return str(max(0, at - EPOCH) << 22)


def number_in(message_id: str) -> str:
    """The platform's number in a message id of ours, such as "12:e34" or "interaction-56"."""
    found = message_id.partition(":")[0].rpartition("-")[2]
    return found if found.isascii() and found.isdecimal() else ""
