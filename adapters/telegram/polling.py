"""Long polling: an update is acknowledged by the next poll's offset, after it was stored."""

from __future__ import annotations

from typing import Any, cast

from telegram.error import TelegramError

from adapters.telegram.account import Account
from adapters.telegram.api import READ_TIMEOUT, Json
from adapters.telegram.inbound import ALLOWED_UPDATES, update_id

BATCH = 100  # updates one poll may bring; Telegram's maximum


class PollingAccount(Account):
    """A bot that asks Telegram for its messages."""

    _offset = 0  # the first update not yet stored; Telegram keeps it across restarts
    _held = 0.0  # seconds until messages that wait for further parts may be whole
    _probing = False  # whether the last poll failed

    async def prepare(self) -> None:
        """Take away a webhook of an earlier run: Telegram refuses polls while there is one."""
        await self.bot.delete_webhook()

    async def receive_updates(self) -> None:
        """Poll until the channel stops."""
        if not self._probing:
            self.supervisor.well("receiving")
        while True:
            held = self._held > 0
            if held:
                await self.supervisor.pause(min(self._held, self.pace.look))
            probing, self._probing = self._probing, True
            wait = self.pace.probe if probing else self.config.poll_timeout
            updates = await self._poll(0 if held else wait)
            self._probing = False
            if not probing or updates:
                self.backoff.reset()
            self._held = 0.0
            if updates:
                await self._take(updates)
            if probing or updates:
                self.supervisor.well("receiving")

    async def _poll(self, wait: int) -> list[object]:
        parameters: Json = {
            "timeout": wait,
            "limit": BATCH,
            "allowed_updates": list(ALLOWED_UPDATES),
        }
        if self._offset > 0:
            parameters["offset"] = self._offset
        # The raw answer: the SDK's own method loses the whole batch over one update it can't read.
        result: Any = await self.supervisor.unless_stopped(
            self.bot.call("getUpdates", parameters, read_timeout=wait + READ_TIMEOUT)
        )
        if not isinstance(result, list):
            raise TelegramError("Invalid server response")
        return cast("list[object]", result)

    async def _take(self, updates: list[object]) -> None:
        """Store a batch and move the offset past it.

        Raises:
            Stopped: the account stops before that.
        """
        if all(update_id(update) is None for update in updates):
            raise TelegramError("Invalid server response")
        taken = await self.intake.take(updates)
        self._offset, self._held = taken.offset, taken.wait
