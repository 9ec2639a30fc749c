"""Sends the outbox: in order for each address, retried by the platform's rules.

Each sent piece is noted before the next one goes out, so a crash repeats at most the piece that
was in flight.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from bot import errors
from bot.channel import Address, Channel, Outbound
from bot.clock import Clock
from bot.delivery import chunking, outbox
from bot.storage import Database
from bot.storage.insist import insist
from bot.workers import Backlog, Workers

WINDOW = 100  # texts of one address kept in memory
FIRST_RETRY = 1.0  # seconds; doubles with each try
LAST_RETRY = 60.0  # seconds
GIVE_UP = 24 * 3600.0  # seconds; a text tried for so long is parked
MAX_BUGS = 3  # tries after an error the channel should have mapped

log = structlog.get_logger(__name__)


class Delivery:
    """The one way out: everything the bot says passes here.

    `on_sent(channel, seconds)` hears of every text that was sent, with its time in the outbox.
    """

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        clock: Clock,
        on_sent: Callable[[str, float], None],
    ) -> None:
        self._database = database
        self._channels = channels
        self._clock = clock
        self._on_sent = on_sent
        self.on_moved: Callable[[Address, str], Awaitable[None]] | None = None  # of every chat
        self._open = asyncio.Event()
        self._workers: Workers[Address, outbox.Letter] = Workers(
            self._send_next, self._load, WINDOW
        )

    def post(self, letters: Iterable[outbox.Letter]) -> None:
        """Send what a committed transaction put into the outbox; returns at once."""
        for letter in letters:
            self._workers.put(letter.address, letter)

    async def look(self) -> None:
        """Send whatever waits in the outbox: at a start, and after another process wrote there."""
        for address in await self._database.read(outbox.addresses):
            if address.channel in self._channels:
                self._workers.look(address)

    def open(self) -> None:
        """Begin sending: every channel has started."""
        self._open.set()

    async def stop(self, grace: float) -> None:
        """Send what can be sent within `grace` seconds; the rest waits in its table."""
        await self._workers.drain(grace)

    async def _load(self, address: Address, limit: int) -> Sequence[outbox.Letter]:
        return await self._database.read(lambda tx: outbox.waiting(tx, address, limit))

    async def _send_next(self, address: Address, backlog: Backlog[outbox.Letter]) -> None:
        await self._open.wait()
        for letter in backlog.take():
            channel = self._channels.get(address.channel)
            if channel is None:
                await self._park(letter, "this channel is not running")
                continue
            try:
                await self._send(channel, letter)
            except errors.SendRefused as exc:
                await self._park(letter, str(exc))
            except errors.ChatMoved as exc:
                await self._move(letter.address, exc.chat, backlog)
                return

    async def _send(self, channel: Channel, letter: outbox.Letter) -> None:
        able = channel.capabilities
        texts = chunking.pieces(letter.text, able.max_length, able.length_unit)
        for index in range(letter.pieces_sent, len(texts)):
            is_last = index + 1 == len(texts)
            piece = Outbound(
                id=letter.piece_id(index),
                address=letter.address,
                text=texts[index],
                kind=letter.kind,
                reply_to=letter.reply_to if index == 0 else "",
                answers=letter.reply_to,
                at=letter.created_at,
                buttons=letter.extra.buttons if is_last and able.buttons else (),
                attachments=letter.extra.attachments if is_last and able.attachments else (),
                draft=letter.extra.draft if index == 0 else "",
            )
            await self._try(channel, piece)
            if not is_last:
                done = index + 1
                await insist(self._database, lambda tx, n=done: outbox.progress(tx, letter.id, n))
        now = self._clock()
        self._on_sent(letter.address.channel, max(0, now - letter.created_at) / 1000)
        await insist(self._database, lambda tx: outbox.sent(tx, letter.id, now))

    async def _try(self, channel: Channel, piece: Outbound) -> None:
        """Send one piece, waiting and trying again until it is through or will never be.

        Raises:
            SendRefused: it never will.
            ChatMoved: the chat has another id now.
        """
        delay, bugs, started = FIRST_RETRY, 0, time.monotonic()
        while True:
            try:
                await channel.send(piece)
            except errors.SendLater as exc:
                log.info("delivery.wait", channel=channel.name, seconds=exc.seconds)
                await asyncio.sleep(exc.seconds)
            except (errors.SendRefused, errors.ChatMoved):
                raise
            except Exception as exc:
                if not isinstance(exc, errors.SendTransient):
                    bugs += 1
                    log.exception("delivery.unmapped_error", channel=channel.name)
                if bugs >= MAX_BUGS or time.monotonic() - started > GIVE_UP:
                    raise errors.SendRefused(f"given up after {type(exc).__name__}") from exc
                await asyncio.sleep(delay)
                delay = min(delay * 2, LAST_RETRY)
            else:
                return

    async def _park(self, letter: outbox.Letter, reason: str) -> None:
        log.warning("delivery.parked", channel=letter.address.channel, letter=letter.id)
        now = self._clock()
        await insist(self._database, lambda tx: outbox.park(tx, letter.id, reason, now))

    async def _move(self, address: Address, chat: str, backlog: Backlog[outbox.Letter]) -> None:
        log.info("delivery.chat_moved", channel=address.channel)
        if self.on_moved is not None:
            try:
                await self.on_moved(address, chat)
            except errors.StorageError as exc:  # the channel tells of it as well, or the next send
                log.warning("delivery.move_not_noted", error=type(exc).__name__)
        await insist(self._database, lambda tx: outbox.move(tx, address, chat))
        backlog.rows.clear()
        backlog.more = True
        self._workers.look(Address(address.channel, address.account, chat, address.thread))
