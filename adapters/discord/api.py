"""The REST API over aiohttp: discord.py's `HTTPClient` with calls that never wait inside.

The SDK's own sleeps through rate limits and failures; the engine wants to know of them instead.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import orjson
from yarl import URL

with warnings.catch_warnings():
    # It imports a module that Python deprecates, for voice, which is not used here.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord

from discord.gateway import DiscordClientWebSocketResponse
from discord.http import HTTPClient, Route

from bot.channel import Attachment
from bot.channel.kit.client import Answer, exchange
from bot.channel.kit.client import session as client_session
from bot.channel.kit.json_access import Json, integer, mapping, text
from bot.channel.kit.text import file_name
from bot.errors import ChannelError, SendLater, SendRefused, SendTransient, SendUnreachable

# At debug level it logs whole messages, and without voice it warns that there is none.
logging.getLogger("discord").setLevel(logging.INFO)
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False

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


class Answered(ChannelError):
    """Discord said no: with an HTTP status and a code of its own, or 0; `words` are Discord's."""

    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(f"Discord: {status} ({code}) {words}".rstrip())
        self.status, self.code, self.words = status, code, words


class Failed(Answered, SendTransient):
    """It may work later."""


class Refused(Answered, SendRefused):
    """It never will."""


class Away(Answered, SendUnreachable):
    """Nobody is there."""


# No access, closed direct messages, no permission, no such channel.
_AWAY = frozenset({50001, 50007, 50013, 10003})


def answered(status: int, said: Json) -> Answered:
    """The error of the contract that an answer stands for."""
    words, at_fault = text(said, "message"), mapping(said.get("errors"))
    words = words.replace("\n", " ")[:MAX_REASON]
    if at_fault:
        words = f"{words} ({', '.join(sorted(at_fault)[:5])})"
    code = integer(said, "code") or 0
    # A rejected token is the operator's to mend; a page without a code is some proxy's.
    waits = status in {401, 408} or status >= 500
    foreign = status in {403, 404} and not code
    kind = Failed if waits or foreign else Away if code in _AWAY else Refused
    return kind(status, code, words)


def new_session(proxy: str = "") -> aiohttp.ClientSession:
    """The client session of one account; close it when the account stops."""
    socket = DiscordClientWebSocketResponse
    return client_session(proxy, limit=CONNECTIONS, keepalive=60, ws_response_class=socket)


class Rest(HTTPClient):
    """Calls of one bot.

    Every call raises:
        SendLater: Discord asks to wait, or the bucket is known to be empty.
        Failed, Refused, Away: Discord said no.
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
        if not is_id(ids.get("channel_id", "1")):
            raise SendRefused("this is no chat of Discord's")
        route = Route(method, path, **ids)
        wait = self._limits.wait(route)
        if wait > 0:
            raise SendLater(wait)
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
        answer = await exchange(
            self._session,
            method,
            URL(self._root + route.url.removeprefix(Route.BASE), encoded=True),
            platform="Discord",
            most=MAX_ANSWER,
            params=query,
            data=data,
            headers=headers,
            timeout=timeout,
        )
        self._limits.learn(route, answer.headers)
        if 200 <= answer.status < 300:
            return _parsed(answer.body)
        raise self._failure(route, answer)

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

    def _failure(self, route: Route, answer: Answer) -> ChannelError:
        said = answer.json
        if answer.status != 429:
            return answered(answer.status, said)
        wait = _seconds(said.get("retry_after"), answer.headers.get("Retry-After"))
        everywhere = said.get("global") is True or "X-RateLimit-Global" in answer.headers
        self._limits.refused(route, wait, everywhere=everywhere)
        return SendLater(wait)


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


# Discord's ids and times: pure.

EPOCH = 1_420_070_400_000  # ms; where Discord's ids and times begin
MAX_DIGITS = 20  # of an id: they are numbers of 64 bits


def ids_in(parent: Json, key: str) -> list[str]:
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
    """The time the thing with this id was made, in ms since the epoch."""
    return (int(number) >> 22) + EPOCH


def first_id_at(at: int) -> str:
    """The smallest id something made at a moment (ms since the epoch) can have."""
    return str(max(0, at - EPOCH) << 22)


def number_in(message_id: str) -> str:
    """The platform's number in a message id of ours, such as "12:e34" or "interaction-56"."""
    found = message_id.partition(":")[0].rpartition("-")[2]
    return found if found.isascii() and found.isdecimal() else ""
