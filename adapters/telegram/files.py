"""Fetching what came with a message: never more than was asked for."""

from __future__ import annotations

from urllib.parse import quote

import aiohttp
from telegram.error import TelegramError

from adapters.telegram.api import AiohttpRequest, LeanBot
from adapters.telegram.send import failure
from bot.channel import Media
from bot.channel.kit.client import download
from bot.channel.kit.json_access import integer, mapping, text
from bot.errors import SendRefused

MAX_DOWNLOAD = 20_000_000  # bytes; Telegram's limit for bots
TIMEOUT = 60.0  # seconds for one file


class Fetcher:
    """Fetches the files of one account."""

    def __init__(self, bot: LeanBot, api_root: str, session: aiohttp.ClientSession) -> None:
        self._bot = bot
        self._root = api_root.rstrip("/")
        self._request = AiohttpRequest(session)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file, if they are no more than `most`.

        Raises:
            SendLater, SendTransient: it may work later.
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
        url = f"{self._root}/file/bot{self._bot.token}/{quote(path)}"
        return await download(self._request.get(url, TIMEOUT), most, "Telegram")
