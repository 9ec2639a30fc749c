"""From raw updates to the engine: normalise, store in order, retry, count what is left out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable

import structlog

from adapters.telegram.inbound import Identity, Ignored, normalise, update_id
from adapters.telegram.pace import Backoff, Pace, pause
from bot.channel import Engine, Health, Inbound
from bot.errors import StorageError

REMEMBERED_GROUPS = 1000  # groups whose one log line was written
# Tries of a message that fails for another reason than storage: a fault of ours must not block
# the chat for ever.
MAX_FAULTS = 5

_log = structlog.get_logger()


class Intake:
    """What one account does with the updates it gets."""

    def __init__(
        self,
        *,
        account: str,
        me: Identity,
        engine: Engine,
        report: Callable[[Health, str], None],
        pace: Pace,
        stopping: asyncio.Event,
    ) -> None:
        self.me = me
        self._account = account
        self._engine = engine
        self._report = report
        self._pace = pace
        self._stopping = stopping
        self._groups: OrderedDict[str, None] = OrderedDict()

    async def offer(self, update: object) -> None:
        """Store one update, or leave it out if it is nothing for the engine.

        Raises:
            StorageError: it could not be stored; offer it again later.
        """
        inbound = self._read(update)
        if inbound is not None:
            await self._engine.receive(inbound)

    async def take(self, updates: Iterable[object]) -> bool:
        """Store a batch: in order within a chat, side by side across chats, until all is stored.

        Returns:
            False if the channel stopped before everything was stored.
        """
        chats: dict[str, list[Inbound]] = {}
        for update in updates:
            inbound = self._read(update)
            if inbound is not None:
                chats.setdefault(inbound.chat, []).append(inbound)
        if len(chats) == 1:
            return await self._store(*chats.values())
        return all(await asyncio.gather(*map(self._store, chats.values())))

    async def _store(self, messages: list[Inbound]) -> bool:
        """Store the messages of one chat in order; False if the channel stopped before the end."""
        for inbound in messages:
            backoff, faults = Backoff(self._pace), 0
            while True:
                try:
                    await self._engine.receive(inbound)
                    break
                except StorageError as error:
                    delay = backoff.next()
                    self._unstored(error, delay)
                except Exception:  # noqa: BLE001  # see MAX_FAULTS
                    faults += 1
                    _log.exception("telegram.store.fault", account=self._account, tries=faults)
                    if faults >= MAX_FAULTS:
                        break
                    delay = backoff.next()
                if await pause(delay, self._stopping):
                    return False
        return True

    def _unstored(self, error: StorageError, delay: float) -> None:
        name = type(error).__name__
        _log.error("telegram.store.failed", account=self._account, error=name, retry_in=delay)
        detail = (
            f"New messages cannot be stored; they wait at Telegram. Trying again in {delay:g} s."
        )
        self._report(Health.DEGRADED, detail)

    def _read(self, update: object) -> Inbound | None:
        """The message in an update, or None after saying in the log why there is none."""
        try:
            result = normalise(update, self._account, self.me)
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            _log.warning(
                "telegram.update.unreadable",
                account=self._account,
                update_id=update_id(update),
                error=type(error).__name__,
            )
            return None
        if isinstance(result, Inbound):
            return result
        self._leave_out(result, update)
        return None

    def _leave_out(self, ignored: Ignored, update: object) -> None:
        if ignored.reason != "group":
            _log.info(
                "telegram.update.ignored",
                account=self._account,
                reason=ignored.reason,
                update_id=update_id(update),
            )
            return
        if ignored.chat in self._groups:
            self._groups.move_to_end(ignored.chat)
            return
        self._groups[ignored.chat] = None
        if len(self._groups) > REMEMBERED_GROUPS:
            self._groups.popitem(last=False)
        _log.info("telegram.group.ignored", account=self._account, chat=ignored.chat)
