"""Who looks after a group, as Telegram tells; asked rarely."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from cachetools import TTLCache
from telegram.error import TelegramError

from adapters.telegram.api import Json, reason
from adapters.telegram.send import chat_id
from bot.channel import Address
from bot.channel.kit.json_access import mapping, text

KEPT = 300.0  # seconds an answer counts
REMEMBERED = 4096  # answers

_log = structlog.get_logger()


class Members:
    """The admins of one account's groups.

    Args:
        call: calls a method of the Bot API.
    """

    def __init__(self, account: str, call: Callable[[str, Json], Awaitable[Any]]) -> None:
        self._account = account
        self._call = call
        self._known: TTLCache[tuple[str, str], bool] = TTLCache(
            REMEMBERED, KEPT, timer=time.monotonic
        )

    async def is_admin(self, address: Address, sender: str) -> bool:
        """Whether somebody is an admin of a chat; False when Telegram does not say."""
        if sender == address.chat:
            return True  # a direct chat is one's own, and only admins speak as their group
        if not address.chat.startswith("-") or not sender.isdecimal():
            return False
        key = address.chat, sender
        known = self._known.get(key)
        if known is not None:
            return known
        try:
            asked: Json = {"chat_id": chat_id(address.chat), "user_id": int(sender)}
            member = mapping(await self._call("getChatMember", asked))
        except TelegramError as error:
            said = reason(error, "")
            _log.info("telegram.admins.unknown", account=self._account, error=said)
            return False
        answer = text(member, "status") in {"creator", "administrator"}
        self._known[key] = answer
        return answer
