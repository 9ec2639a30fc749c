"""From raw updates to the engine: normalise, join, store in order, retry, count what is left out.

What belongs together is held until it is whole. What is held is either not acknowledged or kept on
disk, so a crash costs none of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

import structlog

from adapters.telegram.bundles import Bundle, put
from adapters.telegram.holding import Holding
from adapters.telegram.inbound import (
    CHANNEL,
    Identity,
    Ignored,
    Membership,
    Moved,
    album_of,
    normalise,
    press_of,
    update_id,
)
from adapters.telegram.joining import Part
from adapters.telegram.pace import Pace
from adapters.telegram.presses import Presses
from adapters.waits import Backoff, pause
from bot.channel import Address, Engine, Health, Inbound
from bot.errors import StorageError

# Tries of a message that fails for another reason than storage: a fault of ours must not block
# the chat for ever.
MAX_FAULTS = 5

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch: the first update Telegram has to keep, and how long some are held."""

    offset: int
    wait: float = 0.0  # seconds until what is held may be whole; 0 when nothing is


class Intake:
    """What one account does with the updates it gets.

    Args:
        hear: hears of every message before the engine does.
        member: hears that the bot's place in a chat changed.
        spawn: runs something in a task that ends with the channel.
    """

    def __init__(
        self,
        *,
        account: str,
        me: Identity,
        engine: Engine,
        presses: Presses,
        report: Callable[[Health, str], None],
        hear: Callable[[Inbound], None],
        member: Callable[[Membership], None],
        spawn: Callable[[Coroutine[object, object, None]], object],
        pace: Pace,
        stopping: asyncio.Event,
    ) -> None:
        self.me = me
        self._account = account
        self._engine = engine
        self._presses = presses
        self._report = report
        self._hear = hear
        self._member = member
        self._pace = pace
        self._stopping = stopping
        # Of the updates Telegram still keeps: those that are stored, and when the others came.
        self._done: set[int] = set()
        self._seen: dict[int, float] = {}
        self._holding = Holding(
            account=account,
            engine=engine,
            store=self._insist,
            spawn=spawn,
            pace=pace,
            stopping=stopping,
        )

    async def offer(self, update: object) -> None:
        """Take one update that was brought; when this returns its words are on disk.

        Raises:
            StorageError: it could not be stored; offer it again later.
        """
        number = update_id(update)
        bundle = self._read(update, number or 0, time.monotonic())
        if bundle is None:
            return
        if number is not None and self._holding.wants(bundle):
            await self._holding.hold(update, bundle)
            return
        try:
            await self._perform(bundle)
        except StorageError:
            raise
        except Exception:
            if number is None:
                raise
            # Telegram would bring nothing else of this chat meanwhile; see MAX_FAULTS.
            _log.exception("telegram.store.fault", account=self._account, tries=0)
            await self._holding.hold(update, bundle)

    async def resume(self) -> None:
        """Go on with what an earlier run of the program was brought and could not store whole.

        Raises:
            StorageError: it cannot be read.
        """
        now = time.monotonic()
        for number, update in (await self._holding.kept()).items():
            bundle = self._read(update, number, now)
            if bundle is None:
                await self._holding.forget([number])
            else:
                self._holding.resume(bundle)

    def close(self) -> None:
        """The channel stops."""
        self._holding.close()

    async def take(self, updates: Iterable[object]) -> Taken | None:
        """Store a batch: in order within a chat, side by side across chats.

        The last messages of a chat are held while more of them may come; they have to be in the
        next batch again.

        Returns:
            None if the channel stopped before everything was stored.
        """
        now = time.monotonic()
        lanes: dict[str, list[Bundle]] = {}
        numbers: list[int] = []
        is_moving = False
        for update in updates:
            number = update_id(update)
            if number is None:
                self._leave_out(Ignored("malformed"), update)
                continue
            numbers.append(number)
            if number in self._done:
                continue
            bundle = self._read(update, number, self._seen.get(number, now))
            if bundle is None:
                self._done.add(number)
                continue
            self._seen[number] = bundle.began
            is_moving |= bundle.moved is not None
            put(lanes.setdefault(bundle.chat, []), bundle)
        todo = list(lanes.values())
        if is_moving:  # two chats are becoming one, so their order counts as well
            todo = [sorted((b for lane in todo for b in lane), key=lambda b: b.numbers[0])]
        if len(todo) == 1:
            waits = [await self._store(todo[0], now)]
        else:
            waits = await asyncio.gather(*(self._store(lane, now) for lane in todo))
        if None in waits:
            return None
        return self._settle(numbers, min((wait for wait in waits if wait), default=0.0))

    def _settle(self, numbers: Sequence[int], wait: float) -> Taken:
        kept = [number for number in numbers if number not in self._done]
        offset = min(kept) if kept else max(numbers, default=-1) + 1
        self._done = {number for number in self._done if number >= offset}
        self._seen = {number: self._seen[number] for number in kept if number in self._seen}
        return Taken(offset, wait)

    async def _store(self, bundles: Sequence[Bundle], now: float) -> float | None:
        """Store the messages of one chat in order, up to the first that may not be whole.

        Returns:
            How long that one may take in seconds, or None if the channel stopped before the end.
        """
        for bundle in bundles:
            wait = bundle.waits(now, self._pace)
            if wait > 0:
                return wait
            if not await self._insist(bundle):
                return None
            self._done.update(bundle.numbers)
        return 0.0

    async def _insist(self, bundle: Bundle) -> bool:
        """Store one message, however long that takes; False if the channel stopped before."""
        backoff, faults, delay = Backoff(self._pace.first, self._pace.longest), 0, 0.0
        while True:
            try:
                await self._perform(bundle)
            except StorageError as error:
                delay = backoff.next()
                self._unstored(error, delay)
            except Exception:  # noqa: BLE001  # see MAX_FAULTS
                faults += 1
                _log.exception("telegram.store.fault", account=self._account, tries=faults)
                if faults >= MAX_FAULTS:
                    self._drop("fault")
                    return True
                delay = backoff.next()
            else:
                if delay:
                    self._report(Health.UP, "")
                return True
            if await pause(delay, self._stopping):
                return False

    async def _perform(self, bundle: Bundle) -> None:
        """Store one message; what a press needs besides is done once it is stored."""
        if bundle.moved is not None:
            old = Address(CHANNEL, self._account, bundle.moved.chat)
            await self._engine.chat_moved(old, bundle.moved.to)
            moved = bundle.moved
            _log.info("telegram.chat.moved", account=self._account, chat=moved.chat, to=moved.to)
            return
        inbound, press = bundle.message, bundle.press
        if press is not None and self._presses.repeated(press):
            self._drop("repeated_press")
            self._presses.answer(press)
            return
        self._hear(inbound)
        await self._engine.receive(inbound)
        if press is not None:
            self._presses.stored(press)

    def _unstored(self, error: StorageError, delay: float) -> None:
        name = type(error).__name__
        _log.error("telegram.store.failed", account=self._account, error=name, retry_in=delay)
        detail = (
            f"New messages cannot be stored; they wait at Telegram. Trying again in {delay:g} s."
        )
        self._report(Health.DEGRADED, detail)

    def _read(self, update: object, number: int, came: float) -> Bundle | None:
        """The message in an update, or None after saying in the log why there is none."""
        try:
            press = press_of(update)
            result = normalise(update, self._account, self.me, time.time_ns() // 1_000_000)
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            self._drop("unreadable")
            _log.warning(
                "telegram.update.unreadable",
                account=self._account,
                update_id=number,
                error=type(error).__name__,
            )
            return None
        match result:
            case Inbound():
                album = album_of(update) if press is None else ""
                part, is_press = Part(result, album), press is not None
                return Bundle([number], [part], came, came, press, is_closed=is_press)
            case Moved():
                return Bundle([number], [], came, came, moved=result)
            case Membership():
                self._drop("membership")
                self._member(result)
            case Ignored():
                self._leave_out(result, update)
                if press is not None:
                    self._presses.answer(press)
        return None

    def _drop(self, reason: str) -> None:
        self._engine.dropped(CHANNEL, reason)

    def _leave_out(self, ignored: Ignored, update: object) -> None:
        self._drop(ignored.reason)
        # What groups are full of is counted, and shown only to whoever looks closely.
        log = _log.debug if ignored.chat.startswith("-") else _log.info
        log(
            "telegram.update.ignored",
            account=self._account,
            reason=ignored.reason,
            update_id=update_id(update),
        )
