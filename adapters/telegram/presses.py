"""What a press on a button still needs once it is stored: an answer, and its buttons gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog
from cachetools import LRUCache
from telegram.error import BadRequest, TelegramError

from adapters.telegram.api import Json, reason
from adapters.telegram.inbound import Press
from adapters.telegram.send import chat_id

REMEMBERED = 1024  # messages whose buttons were pressed a moment ago
AT_ONCE = 64  # calls to Telegram; a press beyond them keeps its buttons

_log = structlog.get_logger()


class Presses:
    """Ends the waiting sign on the person's screen and takes pressed buttons away.

    Both are courtesies: the press is on disk by then, so a failure is not tried again.

    Args:
        call: calls a method of the Bot API.
        spawn: runs something in a task that ends with the channel.
    """

    def __init__(
        self,
        account: str,
        call: Callable[[str, Json], Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._account = account
        self._call = call
        self._spawn = spawn
        self._pressed: LRUCache[tuple[str, int], str] = LRUCache(REMEMBERED)
        self._open = 0

    def repeated(self, press: Press) -> bool:
        """Whether the buttons of this message were pressed before and are just being removed."""
        return self._pressed.get((press.chat, press.message), press.query) != press.query

    def answer(self, press: Press) -> None:
        """End the waiting sign, and nothing else."""
        self._start(press, take_away=False)

    def stored(self, press: Press) -> None:
        """End the waiting sign and take the buttons away."""
        if press.message:
            self._pressed[press.chat, press.message] = press.query
        self._start(press, take_away=bool(press.message))

    def _start(self, press: Press, *, take_away: bool) -> None:
        if self._open >= AT_ONCE:
            _log.warning("telegram.press.unanswered", account=self._account)
            self._forget(press)
            return
        self._open += 1
        self._spawn(self._finish(press, take_away=take_away))

    async def _finish(self, press: Press, *, take_away: bool) -> None:
        try:
            await self._try("answerCallbackQuery", {"callback_query_id": press.query})
            where: Json = {"chat_id": chat_id(press.chat), "message_id": press.message}
            if take_away and not await self._try("editMessageReplyMarkup", where):
                self._forget(press)  # they still stand there, so they have to work
        finally:
            self._open -= 1

    def _forget(self, press: Press) -> None:
        if not self.repeated(press):
            self._pressed.pop((press.chat, press.message), None)

    async def _try(self, method: str, parameters: Json) -> bool:
        try:
            await self._call(method, parameters)
        except BadRequest as error:
            # Too old to be answered, gone, or done before: nothing is left to do.
            _log.debug("telegram.press.refused", method=method, error=reason(error, ""))
            return "not modified" in error.message.lower()
        except TelegramError as error:
            name = type(error).__name__
            _log.info("telegram.press.failed", account=self._account, method=method, error=name)
            return False
        return True
