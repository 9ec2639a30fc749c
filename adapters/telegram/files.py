"""Fetching what came with a message: never more than was asked for."""

from __future__ import annotations

from urllib.parse import quote

import aiohttp
from telegram.error import TelegramError

from adapters.telegram.api import AiohttpRequest, LeanBot
from adapters.telegram.send import failure
from bot.channel import Media
from bot.channel.kit.shapes import integer, mapping, text
from bot.errors import SendRefused, SendTransient

MAX_DOWNLOAD = 20_000_000  # bytes; Telegram's limit for bots
TIMEOUT = 60.0  # seconds for one file


class Fetcher:
    """Fetches the files of one account."""

    def __init__(self, bot: LeanBot, api_root: str, session: aiohttp.ClientSession) -> None:
        self._bot = bot
        self._root = api_root.rstrip("/")
        self._request = AiohttpRequest(session, api_root)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file, if they are no more than `most`.

        Raises:
            SendTransient: it may work later.
            SendRefused: it never will.
        """
        most = min(most, MAX_DOWNLOAD)
        if not media.ref:
            raise SendRefused("this file has no handle")
        if media.size > most:
            raise SendRefused("this file is too large")
        try:
            found = mapping(await self._bot.call("getFile", {"file_id": media.ref}))
        except TelegramError as error:
            raise failure(error, self._bot.token) from None
        path = text(found, "file_path")
        if not path or path.startswith("/") or ".." in path.split("/"):
            # A server of one's own that runs with --local names a file on its own disk.
            raise SendRefused("Telegram does not say where this file is")
        if (integer(found, "file_size") or 0) > most:
            raise SendRefused("this file is too large")
        return await self._download(path, most)

    async def _download(self, path: str, most: int) -> bytes:
        url = f"{self._root}/file/bot{self._bot.token}/{quote(path)}"
        data = bytearray()
        # No error may say the address: the token is in it.
        try:
            async with self._request.get(url, TIMEOUT) as response:
                if response.status != 200:
                    raise _refusal(response.status)
                if (response.content_length or 0) > most:
                    raise SendRefused("this file is too large")
                async for chunk in response.content.iter_chunked(1 << 16):
                    data += chunk
                    if len(data) > most:
                        raise SendRefused("this file is too large")
        except TimeoutError:
            raise SendTransient("Telegram is too slow with this file") from None
        except (aiohttp.ClientError, OSError) as error:
            raise SendTransient(f"Telegram cannot be reached: {type(error).__name__}") from None
        return bytes(data)


def _refusal(status: int) -> SendTransient | SendRefused:
    if status == 429 or status >= 500:
        return SendTransient(f"Telegram failed (HTTP {status})")
    return SendRefused(f"Telegram does not give this file (HTTP {status})")
