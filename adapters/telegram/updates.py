"""From raw updates to the engine: normalise, join, store in order, retry, count what is left out.

What belongs together is held until it is whole. What is held is either not acknowledged or kept on
disk, so a crash costs none of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from cachetools import LRUCache

from adapters.telegram.api import Json
from adapters.telegram.inbound import (
    CHANNEL,
    PRESS,
    Identity,
    Ignored,
    Membership,
    Moved,
    Press,
    Reactions,
    album_of,
    normalise,
    press_of,
    update_id,
)
from adapters.telegram.message import chat_id
from adapters.telegram.send import Sender
from bot.channel import Address, Inbound
from bot.channel.kit import intake
from bot.channel.kit.intake import Part, Patience, Reassembly, append_or_merge
from bot.channel.kit.json_access import mapping
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.errors import ChannelError, StorageError

# What a press on a button still needs once it is stored: an answer, and its buttons gone.

REMEMBERED = 1024  # messages whose buttons were pressed a moment ago
AT_ONCE = 64  # calls to Telegram; a press beyond them keeps its buttons

_log = structlog.get_logger()


class Presses:
    """Ends the waiting sign on the person's screen and takes pressed buttons away.

    Both are courtesies: the press is on disk by then, so a failure is not tried again.
    """

    def __init__(self, supervisor: Supervisor, sender: Sender) -> None:
        self._supervisor, self._sender = supervisor, sender
        self._pressed: LRUCache[tuple[str, int], str] = LRUCache(REMEMBERED)
        self._open = 0

    def repeated(self, press: Press) -> bool:
        """True if the buttons of this message were pressed before and are just being removed."""
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
            _log.warning("telegram.press.unanswered", account=self._supervisor.account)
            self._forget(press)
            return
        self._open += 1
        self._supervisor.spawn(self._finish(press, take_away=take_away))

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
            await self._sender.call(method, parameters)
        except ChannelError as error:
            # Too old to be answered, gone, or done before: nothing is left to do.
            account = self._supervisor.account
            _log.info("telegram.press.failed", account=account, method=method, error=str(error))
            return "not modified" in str(error).lower()
        return True


Pending = intake.Pending[Press | Moved | Reactions]


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a batch: the first update Telegram has to keep, and how long some are held."""

    offset: int
    wait: float = 0.0  # seconds until what is held may be whole; 0 when nothing is


class Updates:
    """Handles the updates that one account gets."""

    def __init__(
        self, supervisor: Supervisor, *, me: Identity, sender: Sender, patience: Patience
    ) -> None:
        self.me = me
        self._supervisor = supervisor
        self._account, self._engine = supervisor.account, supervisor.engine
        self._presses = Presses(supervisor, sender)
        self._sender = sender
        self._patience = patience
        # Of the updates Telegram still keeps: those that are stored, and when the others came.
        self._done: set[int] = set()
        self._seen: dict[int, float] = {}
        self.holds = False  # whether what is brought and not whole is held on this node
        self._held = Reassembly[Press | Moved | Reactions](supervisor, self._perform, patience)

    def forget(self) -> None:
        """Know nothing of what came so far."""
        self._done.clear()
        self._seen.clear()

    async def offer(self, update: object) -> None:
        """Take one update that was brought; when this returns its words are on disk.

        Raises:
            StorageError: it could not be stored; offer it again later.
        """
        number = update_id(update)
        pending = self._read(update, number or 0, time.monotonic())
        if pending is None:
            return
        if number is not None and self._held.must_wait(pending):
            await self._hold(update, pending)
            return
        try:
            await self._perform(pending)
        except StorageError:
            raise
        except Exception:
            if number is None:
                raise
            # Telegram would bring nothing else of this chat meanwhile; see MAX_FAULTS.
            _log.exception("telegram.store.fault", account=self._account, tries=0)
            await self._hold(update, pending)

    async def _hold(self, update: object, pending: Pending) -> None:
        if self.holds:
            await self._held.hold(update, pending)
        else:
            await self._held.hand_over(update, pending)
            await self._engine.broadcast(CHANNEL, self._account)

    async def leave(self) -> None:
        """Hold nothing any more: another node does, and goes on with what is kept."""
        self.holds = False
        await self._held.abandon()

    async def resume(self) -> None:
        """Go on with what an earlier run, or another node, was brought and could not store whole.

        Raises:
            StorageError: it cannot be read.
        """
        now = time.monotonic()
        for number, update in (await self._held.kept()).items():
            pending = self._read(update, number, now)
            if pending is None:
                await self._held.forget([number])
            else:
                self._held.resume(pending)

    async def take(self, updates: Iterable[object]) -> Taken:
        """Store a batch: in order within a chat, side by side across chats.

        The last messages of a chat are held while more of them may come; they have to be in the
        next batch again.

        Raises:
            Stopped: the account stops before everything is stored.
        """
        now = time.monotonic()
        lanes: dict[str, list[Pending]] = {}
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
            pending = self._read(update, number, self._seen.get(number, now))
            if pending is None:
                self._done.add(number)
                continue
            self._seen[number] = pending.began
            is_moving |= isinstance(pending.extra, Moved)
            append_or_merge(lanes.setdefault(pending.chat, []), pending)
        todo = list(lanes.values())
        if is_moving:  # two chats are becoming one, so their order counts as well
            todo = [sorted((b for lane in todo for b in lane), key=lambda b: b.numbers[0])]
        if len(todo) == 1:
            waits = [await self._store(todo[0], now)]
        else:
            waits = await asyncio.gather(*(self._store(lane, now) for lane in todo))
        if None in waits:
            raise Stopped
        kept = [number for number in numbers if number not in self._done]
        offset = min(kept) if kept else max(numbers, default=-1) + 1
        self._done = {number for number in self._done if number >= offset}
        self._seen = {number: self._seen[number] for number in kept if number in self._seen}
        return Taken(offset, min((wait for wait in waits if wait), default=0.0))

    async def _store(self, lane: Sequence[Pending], now: float) -> float | None:
        """Store the messages of one chat in order, up to the first that may not be whole.

        Returns:
            How long that one may take in seconds, or None if the channel stopped before the end.
        """
        for pending in lane:
            wait = pending.waits(now, self._patience)
            if wait > 0:
                return wait
            try:
                await self._supervisor.store(partial(self._perform, pending))
            except Stopped:
                return None
            self._done.update(pending.numbers)
        return 0.0

    async def _perform(self, pending: Pending) -> None:
        """Store one message; what a press needs besides is done once it is stored."""
        extra = pending.extra
        if isinstance(extra, Moved):
            await self._engine.chat_moved(Address(CHANNEL, self._account, extra.chat), extra.to)
            account = self._account
            _log.info("telegram.chat.moved", account=account, chat=extra.chat, to=extra.to)
            return
        if isinstance(extra, Reactions):
            for change in extra.changes:
                await self._engine.reacted(change)
            return
        inbound = pending.message
        if extra is not None and self._presses.repeated(extra):
            self._supervisor.drop("repeated_press")
            self._presses.answer(extra)
            return
        self._sender.hear(inbound)
        await self._engine.receive(inbound)
        if extra is not None:
            self._presses.stored(extra)

    def _read(self, update: object, number: int, came: float) -> Pending | None:
        """The message in an update, or None after saying in the log why there is none."""
        try:
            press = press_of(update) if PRESS in mapping(update) else None
            result = normalise(update, self._account, self.me, time.time_ns() // 1_000_000)
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            self._supervisor.drop("unreadable")
            _log.warning(
                "telegram.update.unreadable",
                account=self._account,
                update_id=number,
                error=type(error).__name__,
            )
            return None
        match result:
            case Inbound():
                album = album_of(update) if result.media else ""
                parts, is_closed = [Part(result, album)], press is not None
                return Pending(result.chat, [number], parts, came, came, press, is_closed)
            case Moved() | Reactions():
                return Pending(result.chat, [number], [], came, came, result)
            case Membership():
                self._supervisor.drop("membership")
                _log.info(
                    "telegram.membership",
                    account=self._account,
                    chat_type=result.chat_type,
                    chat=result.chat if result.chat_type != "direct" else "",
                    status=result.status,
                )
            case Ignored():
                self._leave_out(result, update)
                if press is not None:
                    self._presses.answer(press)
        return None

    def _leave_out(self, ignored: Ignored, update: object) -> None:
        self._supervisor.drop(ignored.reason)
        # What groups are full of is counted, and shown only to whoever looks closely.
        log = _log.debug if ignored.chat.startswith("-") else _log.info
        log(
            "telegram.update.ignored",
            account=self._account,
            reason=ignored.reason,
            update_id=update_id(update),
        )
