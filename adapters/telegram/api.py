"""The Bot API over aiohttp: python-telegram-bot's `Bot` with a transport of our own."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
import os
import re
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

# Opting in to timedelta keeps python-telegram-bot from warning each time Telegram says 429.
os.environ.setdefault("PTB_TIMEDELTA", "1")

import aiohttp
import orjson
from telegram import Bot
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Forbidden,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import BaseRequest, RequestData
from yarl import URL

from bot.channel.kit.client import session as client_session
from bot.channel.kit.client import why
from bot.channel.kit.json_access import Json, parse_json
from bot.errors import (
    ChannelError,
    ChatMoved,
    SendLater,
    SendRefused,
    SendTransient,
    SendUnreachable,
)

# At debug level the SDK logs addresses with the token in them, and whole messages.
logging.getLogger("telegram").setLevel(logging.INFO)

CONNECT_TIMEOUT = 10.0  # seconds
READ_TIMEOUT = 15.0  # seconds without a byte from the server
CONNECTIONS = 512  # at once, for all accounts together

MAX_REASON = 200  # characters of Telegram's words that are passed on

_PAYLOAD = ". Parsing the server response"  # before the SDK quotes an answer it cannot read
_TOO_LARGE = re.compile(r"entity too large|\(413\)", re.IGNORECASE)
_TOKEN = re.compile(r"\d{3,20}:[A-Za-z0-9_-]{20,}")


def redact(text: str, token: str = "") -> str:
    """The text without bot tokens: this one, and whatever looks like one."""
    if token:
        text = text.replace(token, "[token]")
    return _TOKEN.sub("[token]", text)


def reason(error: TelegramError, token: str) -> str:
    """The reason of an SDK error, fit for a log: no token, and no page of a proxy."""
    return redact(error.message.partition(_PAYLOAD)[0], token)[:MAX_REASON]


_AWAY = re.compile("chat not found|not enough rights|CHAT_WRITE_FORBIDDEN", re.IGNORECASE)


def failure(error: TelegramError, token: str = "") -> ChannelError:
    """The error of the contract that an SDK error stands for; its message has no token."""
    if isinstance(error, RetryAfter):
        wait = error.retry_after
        return SendLater(wait.total_seconds() if isinstance(wait, dt.timedelta) else float(wait))
    if isinstance(error, ChatMigrated):
        return ChatMoved(str(error.new_chat_id))
    message = f"Telegram: {reason(error, token)}"
    # BadRequest is a NetworkError to the SDK, as is 413, but asking again will not help.
    if isinstance(error, Forbidden) or _AWAY.search(message):  # blocked, taken out, never begun
        return SendUnreachable(message)
    if isinstance(error, BadRequest) or _TOO_LARGE.search(message):
        return SendRefused(message)
    # A rejected token or a second poller is the operator's to mend; the message waits for that.
    return SendTransient(message)


def new_session(proxy: str = "") -> aiohttp.ClientSession:
    """The one client session of the channel; close it when the channel stops."""
    headers = {"User-Agent": BaseRequest.USER_AGENT}
    return client_session(proxy, limit=CONNECTIONS, keepalive=60, headers=headers)


class AiohttpRequest(BaseRequest):
    """A transport for `telegram.Bot` on a shared aiohttp session, which its owner closes."""

    __slots__ = ("_session",)

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @property
    def read_timeout(self) -> float:
        """Seconds to wait for bytes of an answer."""
        return READ_TIMEOUT

    async def initialize(self) -> None:
        """Nothing: the session is open already."""

    async def shutdown(self) -> None:
        """Nothing: the session belongs to the channel."""

    async def do_request(  # noqa: PLR0917  # the SDK's signature
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        write_timeout: Any = BaseRequest.DEFAULT_NONE,
        connect_timeout: Any = BaseRequest.DEFAULT_NONE,
        pool_timeout: Any = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        """One HTTP exchange.

        Raises:
            TimedOut: no answer in time.
            NetworkError: no answer at all. Neither says the address, because the token is in it.
        """
        default = BaseRequest.DEFAULT_NONE
        timeout = aiohttp.ClientTimeout(
            connect=None if pool_timeout is default else pool_timeout,
            sock_connect=CONNECT_TIMEOUT if connect_timeout is default else connect_timeout,
            sock_read=READ_TIMEOUT if read_timeout is default else read_timeout,
        )
        body, content_type = _body(request_data)
        try:
            async with self._session.request(
                method,
                URL(url, encoded=True),
                data=body,
                headers={"Content-Type": content_type} if content_type else None,
                timeout=timeout,
            ) as response:
                return response.status, await response.read()
        except TimeoutError:
            raise TimedOut from None
        except (aiohttp.ClientError, OSError) as error:
            raise NetworkError(why(error)) from None

    def get(self, url: str, seconds: float) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """An answer whose body its caller reads."""
        return self._session.get(
            URL(url, encoded=True),
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_TIMEOUT),
            allow_redirects=False,
        )

    @staticmethod
    def parse_json_payload(payload: bytes) -> Json:
        """The answer as a mapping; whatever text is in it never reaches a log.

        Raises:
            TelegramError: it is not JSON.
        """
        try:
            answer = parse_json(payload)
        except ValueError:
            raise TelegramError("Invalid server response") from None
        if not isinstance(answer, dict):
            raise TelegramError("Invalid server response")
        return cast("Json", answer)


class LeanBot(Bot):
    """A `Bot` that can also hand out answers as they came, without building objects of them.

    An update or a sent message costs 40 µs this way instead of 150 to 200.
    """

    __slots__ = ()

    def __init__(self, token: str, api_root: str, session: aiohttp.ClientSession) -> None:
        root = api_root.rstrip("/")
        request = AiohttpRequest(session)
        super().__init__(
            token,
            base_url=f"{root}/bot",
            base_file_url=f"{root}/file/bot",
            request=request,
            get_updates_request=request,
        )

    def __repr__(self) -> str:
        return "LeanBot()"  # the SDK's own shows the token

    async def call(
        self, method: str, parameters: Json, *, read_timeout: float = READ_TIMEOUT
    ) -> Any:
        """Call a method of the Bot API and return the `result` of its answer.

        Raises:
            TelegramError: as every method of `Bot`.
        """
        try:
            return await self._post(method, parameters, read_timeout=read_timeout)
        except KeyError:  # from the SDK, about an answer that says neither result nor error
            raise TelegramError("Invalid server response") from None

    async def told(
        self, method: str, parameters: Json, *, read_timeout: float = READ_TIMEOUT
    ) -> Any:
        """Do as `call` does, with the errors of the contract.

        Raises:
            ChannelError: it was not done; no message has the token in it.
        """
        try:
            return await self.call(method, parameters, read_timeout=read_timeout)
        except TelegramError as error:
            raise failure(error, self.token) from None


def _body(data: RequestData | None) -> tuple[bytes | aiohttp.FormData | None, str]:
    """The body of a request and its content type, which multipart sets by itself."""
    if data is None:
        return None, ""
    if data.contains_files:
        form = aiohttp.FormData()
        for name, value in data.json_parameters.items():
            form.add_field(name, value)
        for name, (filename, content, mime) in data.multipart_data.items():
            # Raw bytes would be written in one go, and quoted whole if anything went wrong.
            stream = io.BytesIO(content) if isinstance(content, bytes) else content
            form.add_field(name, stream, filename=filename, content_type=mime)
        return form, ""
    try:
        return orjson.dumps(data.parameters), "application/json"
    except TypeError:  # a number beyond 64 bits; the standard library takes it
        return json.dumps(data.parameters).encode(), "application/json"
