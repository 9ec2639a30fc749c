"""Sends the outbox: in order for each address, retried by the platform's rules.

Each sent piece is noted before the next one goes out, so a crash repeats at most the piece that
was in flight.

A text that fails again and again although others get through is parked: the person is told, what
follows goes out, and it is tried again later. While nothing gets through everything waits in order.
What finds nobody, because the bot was blocked or taken out, is kept until they write again.

Signs of life go out where their account is. A turn runs on any node, but one of them speaks for an
account, so that pace and order are in one place. The others tell it what to show; what gets lost on
the way nobody is owed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

import orjson
import structlog
from cachetools import LRUCache

from bot import errors, fencing
from bot.backoff import keep
from bot.channel import Activity, Address, Attachment, Channel, Piece
from bot.coordination import Event, account_name
from bot.core import Core
from bot.delivery import outbox
from bot.delivery.outbox import Extra, Letter, Queue
from bot.errors import StorageError
from bot.health import Tries
from bot.i18n import text
from bot.logs import about_turn
from bot.metrics import Metrics
from bot.sessions import inbox
from bot.storage import Transaction, insist
from bot.storage.records import report_unreadable
from bot.workers import Backlog, Workers

# Replies that are said aloud: their words become sound when it is their turn to be sent.

FORMAT = "audio/ogg"  # with Opus in it: what platforms show as a voice message
NOT_OURS = frozenset({"off", "late", "here"})  # why nothing is said where speaking works
REMEMBERED = 1024  # places where it was told that nothing could be said aloud

log = structlog.get_logger(__name__)


class Unspoken(Exception):
    """A reply was not said aloud; `reason` is one of the words of `speech.why` in `bot.i18n`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Speaker(Protocol):
    """Says words aloud."""

    async def say(self, words: str) -> bytes:
        """An Ogg file with Opus in it, always in bounded time.

        Raises:
            Unspoken: there is none; the reason says why.
        """
        ...


class Aloud:
    """Makes sound of the words that are to be said, and knows where it was told that none came."""

    def __init__(self, speaker: Speaker | None, metrics: Metrics, tries: Tries) -> None:
        self._speaker = speaker
        self._metrics = metrics
        self._tries = tries
        self._told: LRUCache[Address, bool] = LRUCache(REMEMBERED)

    async def voiced(self, letter: Letter) -> Letter:
        """A text with the sound of the words that are to be said.

        Raises:
            Unspoken: they could not be said.
        """
        if self._speaker is None:  # it was switched off meanwhile
            raise Unspoken("off")
        sound = await self._speaker.say(letter.extra.aloud)
        return replace(letter, extra=Extra(attachments=(Attachment("voice.ogg", FORMAT, sound),)))

    def said(self, letter: Letter) -> None:
        """Note that a voice message was sent."""
        self._metrics.voice.labels("out", "sent").inc()
        self._tries.note(None)
        self._told.pop(letter.address, None)

    def unsaid(self, letter: Letter, reason: str) -> bool:
        """Note that none was sent; True when that is to be told.

        That is once for each place, until one is sent there again or the program starts anew.
        """
        log.warning("delivery.unspoken", channel=letter.address.channel, reason=reason)
        self._metrics.voice.labels("out", reason).inc()
        if reason not in NOT_OURS:
            self._tries.note(Unspoken(reason))
        if reason == "off" or letter.address in self._told:
            return False
        self._told[letter.address] = True
        return True


WINDOW = 100  # texts of one address kept in memory
FIRST_RETRY = 1.0  # seconds; doubles with each try
LAST_RETRY = 60.0  # seconds
PARK_TRIES = 9  # after about three minutes it may be the text, and not the platform
GIVE_UP_TRIES = 24 * 60  # after about a day it is parked in any case
LAST_TRIES = GIVE_UP_TRIES + 7 * 24 * 6  # and after a week more, one every ten minutes, for good
MAX_BUGS = 3  # tries after an error the channel should have mapped
AGAIN = 50  # parked texts tried again at once
LONG_TEXT = 4_000  # characters from which pieces are made in a thread
UNSENT = "unsent-"  # begins the entry of a text that tells of one that was refused
MINUTE_MS = 60_000
LOOK_SECONDS = 5.0  # between looks, where many nodes put something there
WAITED_MS = 1_000  # what has waited so long may have been withdrawn
MAX_SENT = 5_000  # messages of platforms that are known as ours, for reactions to them
SURE_SECONDS = 0.1  # between looks whether this node may send, when its sign of life is late


class Parked(Exception):
    """A text fails although what follows it gets through, or has failed for a day."""


class Withdrawn(Exception):
    """A text is not to be sent any more: its person had what it says forgotten."""


class Rests(Exception):
    """A text goes on in so many seconds, while others are sent to the same address."""

    def __init__(self, letter: Letter, seconds: float) -> None:
        super().__init__(f"{seconds:g} s")
        self.letter = letter
        self.seconds = seconds


# Why a text is not sent.
UNSENDABLE = (Withdrawn, Parked, Unspoken, errors.SendRefused, errors.ChatMoved)


class Delivery:
    """The one way out: everything the bot says passes here.

    Of many nodes, the one that owns an account sends for it: so pace and order are in one place.
    It has more than fifteen methods because sending, trying again, parking and moving are steps of
    one text's way, and each of them may end in any other.
    """

    def __init__(
        self,
        core: Core,
        *,
        on_moved: Callable[[Address, str], Awaitable[None]] | None = None,
        speaker: Speaker | None = None,
    ) -> None:
        """`on_moved` hears of every chat that has another id now, before it is written to.

        `speaker` says what is to be said aloud.
        """
        self._core = core
        self._on_moved = on_moved
        # Which of our texts a platform's message is: (channel, account, chat, its id there) -> the
        # thread it went to, and the text's id. For reactions, and of this process only.
        self.sent: LRUCache[tuple[str, str, str, str], tuple[str, str]] = LRUCache(MAX_SENT)
        self.speech = Tries("speech", core.clock)  # voice messages, those that are heard as well
        self._aloud = Aloud(speaker, core.metrics, self.speech)
        self._owners: dict[str, asyncio.Task[None]] = {}  # what waits for accounts, and has them
        self._looking: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        # Sends to one address come one after the other; whose turn it is goes round.
        self._turns: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()
        self._workers: Workers[Queue, outbox.Letter] = Workers(
            self._send_next,
            self._load,
            WINDOW,
            fence_of=lambda queue: core.coordination.fence(account_name(queue.address)),
        )

    def post(self, letters: Iterable[outbox.Letter]) -> None:
        """Send what a committed transaction put into the outbox; returns at once.

        Of many nodes, another one may have put something there before it: the table has the order.
        """
        for letter in letters:
            if not self._claim(letter.address):
                continue
            if self._core.coordination.is_shared and not letter.parked:
                self._workers.look(letter.queue)
            else:
                self._workers.put(letter.queue, letter)

    async def look(self) -> None:
        """Send whatever waits in the outbox: at a start, and after another process wrote there."""
        for queue in await self._core.database.read(outbox.queues):
            if queue.address.channel in self._core.channels and self._claim(queue.address):
                self._workers.look(queue)

    async def again(self) -> None:
        """Try what was parked once more, each behind what is sent to its address now."""
        self.post(
            letter
            for letter in await self._core.database.read(lambda tx: outbox.to_try_again(tx, AGAIN))
            if letter.address.channel in self._core.channels and self._claim(letter.address)
        )
        await self._count_unsent()

    def open(self) -> None:
        """Begin sending: every channel has started."""
        self._open.set()
        if self._core.coordination.is_shared:
            self._looking = keep("delivery.look", self._look_regularly)

    async def stop(self, grace: float) -> None:
        """Send what can be sent within `grace` seconds; the rest waits in its table."""
        await self._workers.drain(grace)
        tasks = [*self._owners.values(), *([self._looking] if self._looking else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _claim(self, address: Address) -> bool:
        """Have this node send for an account whenever no other one does; True when it does so."""
        name = account_name(address)
        if self._core.coordination.is_shared and name not in self._owners:
            self._owners[name] = keep(f"delivery.{name}", lambda: self._own(name))
        return self._core.coordination.owns(name)

    async def _own(self, name: str) -> None:
        """Send for an account whenever no other node does."""
        fencing.put(None)
        while True:
            async with self._core.coordination.owning(name) as lost:
                log.info("delivery.owns", account=name)
                with suppress(errors.StorageError):  # it is looked for again soon
                    await self.look()
                await lost.wait()
                await self._workers.end(lambda queue: account_name(queue.address) == name)

    async def _look_regularly(self) -> None:
        """Look for what other nodes put there, also where nobody told of it."""
        fencing.put(None)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except errors.StorageError as exc:
                log.warning("delivery.look_failed", error=type(exc).__name__)

    async def _load(self, queue: Queue, limit: int) -> Sequence[outbox.Letter]:
        return await self._core.database.read(lambda tx: outbox.waiting(tx, queue, limit))

    async def _send_next(self, queue: Queue, backlog: Backlog[outbox.Letter]) -> None:
        await self._open.wait()
        rest: list[Letter] = []
        while True:
            try:
                async with self._turns.setdefault(queue.address, asyncio.Lock()):
                    for letter in rest or backlog.take():
                        about_turn(letter.extra.turn)
                        try:
                            await self._send(letter)
                        except UNSENDABLE as exc:
                            await self._not_sent(letter, exc, backlog)
            except Rests as exc:
                log.info("delivery.rest", channel=queue.address.channel, seconds=exc.seconds)
                rest = [exc.letter]
                await asyncio.sleep(exc.seconds)
            else:
                return

    async def _send(self, letter: Letter) -> None:
        """Send what was not sent yet of a text, piece by piece, and note each.

        Raises:
            Rests: others are sent to first.
            Exception: one of `UNSENDABLE`, when it is not sent.
        """
        channel = self._core.channels.get(letter.address.channel)
        if channel is None:
            await self._park(letter, "this channel is not running", outbox.LATER)
            return
        if self._core.clock() - letter.created_at >= WAITED_MS:
            await self._must_be_there(letter)
        if letter.extra == outbox.UNREADABLE:
            report_unreadable("outbox", str(letter.id), "ValueError")
            raise errors.SendRefused("what comes with it cannot be read")
        spoken = await self._aloud.voiced(letter) if letter.extra.aloud else letter
        pieces = await _rendered(channel, spoken)
        for index in range(letter.pieces_sent, len(pieces)):
            tries = letter.tries if index == letter.pieces_sent else 0
            try:
                await self._send_piece(channel, letter, pieces[index], tries)
            except errors.SendLater as exc:
                raise Rests(replace(letter, pieces_sent=index), exc.seconds) from None
            done = index + 1
            if done < len(pieces) and not await insist(
                self._core.database, lambda tx, n=done: outbox.progress(tx, letter.id, n)
            ):
                raise Withdrawn
        now = self._core.clock()
        seconds = max(0, now - letter.created_at) / 1000
        self._core.metrics.outbox_seconds.labels(letter.address.channel).observe(seconds)
        await insist(self._core.database, partial(outbox.sent, letter=letter.id, now=now))
        if letter.extra.aloud:
            self._aloud.said(letter)
        if letter.parked:
            log.info("delivery.parked_sent", channel=channel.name, letter=letter.id)
            await self._count_unsent()

    async def _send_piece(
        self, channel: Channel, letter: outbox.Letter, piece: Piece, tries: int
    ) -> None:
        """Send one piece, waiting and trying again until it is through or is not to be.

        Raises:
            Parked: it fails, and what comes after it need not wait for it.
            Unspoken: it is too late to say it aloud.
            Withdrawn: it is not to be sent any more.
            SendLater: what is for others goes first.
            SendRefused: it never will get through.
            ChatMoved: the chat has another id now.
        """
        bugs = 0
        while True:
            await self._until_sure(account_name(piece.address))
            try:
                there = await channel.send(piece)
            except (errors.SendRefused, errors.ChatMoved):
                raise
            except errors.SendLater as exc:
                if exc.is_own:
                    raise
                log.info("delivery.wait", channel=channel.name, seconds=exc.seconds)
                pause = exc.seconds
            except Exception as exc:
                tries += 1
                if not isinstance(exc, errors.SendTransient):
                    log.exception("delivery.unmapped_error", channel=channel.name)
                    bugs += 1
                if bugs >= MAX_BUGS:
                    raise errors.SendRefused(f"given up after {type(exc).__name__}") from exc
                pause = await self._pause(channel, letter, tries, exc)
            else:
                to = piece.address
                self.sent[to.channel, to.account, to.chat, there] = (to.thread, piece.whole.id)
                return
            await asyncio.sleep(pause)
            await self._must_be_there(letter)

    async def _pause(
        self, channel: Channel, letter: outbox.Letter, tries: int, error: Exception
    ) -> float:
        """Seconds until a text that failed so often is tried again.

        Raises:
            Parked: what comes after it need not wait for it.
            Unspoken: it is too late to say it aloud.
            SendLater: what is for others goes first.
        """
        with suppress(errors.StorageError):  # it is tried more often then
            await self._core.database.write(lambda tx: outbox.tried(tx, letter.id, tries))
        if letter.extra.aloud and (letter.parked or tries >= PARK_TRIES):
            raise Unspoken("late") from error  # nobody wants it later
        is_over = letter.parked or tries >= GIVE_UP_TRIES
        if is_over or (tries >= PARK_TRIES and await self._gets_through(channel, letter)):
            raise Parked(type(error).__name__) from error
        return min(FIRST_RETRY * 2 ** min(tries - 1, 16), LAST_RETRY)

    async def _not_sent(
        self, letter: Letter, error: Exception, backlog: Backlog[outbox.Letter]
    ) -> None:
        """Park a text, drop it, or send it elsewhere, by why it is not sent."""
        match error:
            case Parked():
                is_tried = letter.tries < LAST_TRIES
                await self._park(letter, str(error), outbox.LATER if is_tried else outbox.NEVER)
            case Unspoken():
                await self._unspoken(letter, error.reason)
            case errors.SendRefused():
                await self._refused(letter, error)
            case errors.ChatMoved():
                await self._move(letter, error.chat, backlog)
            case _:
                log.info("delivery.withdrawn", channel=letter.address.channel, letter=letter.id)

    async def _must_be_there(self, letter: outbox.Letter) -> None:
        """Look whether a text that has waited is still to be sent; a notice by the way is.

        Raises:
            Withdrawn: it is not.
        """
        if not letter.id:
            return
        with suppress(errors.StorageError):  # it is sent then: nothing was heard of the contrary
            if not await self._core.database.read(lambda tx: outbox.is_there(tx, letter.id)):
                raise Withdrawn

    async def _until_sure(self, name: str) -> None:
        """Wait until this node is sure that no other one sends for an account.

        Raises:
            FenceLost: another one does, or this one does so anew.
        """
        fence = fencing.current()
        while True:
            if fence is not None and fence != self._core.coordination.fence(name):
                raise errors.FenceLost
            if self._core.coordination.owns(name):
                return
            await asyncio.sleep(SURE_SECONDS)

    async def _gets_through(self, channel: Channel, letter: outbox.Letter) -> bool:
        """Tell that a text does not get through; False when that does not either."""
        now = self._core.clock()
        minutes = max(0, now - letter.created_at) // MINUTE_MS
        words = text(letter.language, "delivery.parked", minutes=minutes)
        name = f"{UNSENT}{letter.id}"
        told = outbox.Letter(  # in no table, and tried once, like all that is parked
            0, letter.address, "notice", words, letter.reply_to, 0, name, now, state="parked"
        )
        with suppress(Parked, errors.SendRefused, errors.ChatMoved):
            for piece in await _rendered(channel, told):
                await self._send_piece(channel, told, piece, 0)
            return True
        return False

    async def _refused(self, letter: outbox.Letter, error: errors.SendRefused) -> None:
        """Park a text the platform will never take, and say so there, if anybody is."""
        if isinstance(error, errors.SendUnreachable):
            await self._unreached(letter, str(error))
            return
        now = self._core.clock()
        if letter.entry.startswith(UNSENT):  # it tells of another one, and nobody hears it
            await insist(self._core.database, lambda tx: outbox.drop(tx, letter.id, now))
            return
        if letter.extra.aloud:  # its words stand in the message before it
            await self._unspoken(letter, "here")
            return
        words = text(letter.language, "delivery.refused")

        def tell(tx: Transaction) -> outbox.Letter:
            outbox.park(tx, letter.id, str(error), now, outbox.NEVER)
            return _told_of(tx, letter, words, now)

        told = await insist(self._core.database, tell)
        self._report_parked(letter, "refused", type(error).__name__)
        self.post([told])
        await self._count_unsent()

    async def _unreached(self, letter: outbox.Letter, reason: str) -> None:
        """Keep a text until somebody can be reached there; but no news of the moment."""
        now = self._core.clock()
        if letter.kind not in {"reply", "reminder"} or letter.extra.aloud:
            await insist(self._core.database, lambda tx: outbox.drop(tx, letter.id, now))
            return

        def put_off(tx: Transaction) -> None:
            outbox.park(tx, letter.id, reason, now, outbox.REACHED)
            for old in outbox.unreached(tx, letter.address)[: -outbox.MAX_UNREACHED]:
                outbox.park(tx, old.id, reason, now, outbox.NEVER)

        await insist(self._core.database, put_off)
        self._report_parked(letter, "unreached", errors.SendUnreachable.__name__)
        await self._count_unsent()

    async def _unspoken(self, letter: outbox.Letter, reason: str) -> None:
        """Do without a voice message whose words were sent already, and say so there, once."""
        now, tells = self._core.clock(), self._aloud.unsaid(letter, reason)

        def drop(tx: Transaction) -> list[outbox.Letter]:
            outbox.drop(tx, letter.id, now)
            if not tells:
                return []
            why = text(letter.language, f"speech.why.{reason}")
            return [_told_of(tx, letter, text(letter.language, "speech.unsaid", why=why), now)]

        self.post(await insist(self._core.database, drop))

    async def _park(self, letter: outbox.Letter, reason: str, again: int) -> None:
        now = self._core.clock()
        await insist(self._core.database, lambda tx: outbox.park(tx, letter.id, reason, now, again))
        if not letter.parked:
            self._report_parked(letter, "again", reason)
        await self._count_unsent()

    def _report_parked(self, letter: outbox.Letter, result: str, error: str) -> None:
        channel = letter.address.channel
        log.warning(
            "delivery.parked", channel=channel, letter=letter.id, result=result, error=error
        )
        self._core.metrics.parked.labels(channel, result).inc()

    async def _count_unsent(self) -> None:
        with suppress(errors.StorageError):
            self._core.metrics.unsent.set(await self._core.database.read(outbox.waiting_again))

    async def _move(
        self, letter: outbox.Letter, chat: str, backlog: Backlog[outbox.Letter]
    ) -> None:
        address = letter.address
        log.info("delivery.chat_moved", channel=address.channel)
        if self._on_moved is not None:
            try:
                await self._on_moved(address, chat)
            except errors.StorageError as exc:  # the channel tells of it as well, or the next send
                log.warning("delivery.move_not_noted", error=type(exc).__name__)
        await insist(self._core.database, lambda tx: outbox.move(tx, address, chat))
        if letter.parked:
            await insist(self._core.database, lambda tx: outbox.move_parked(tx, letter.id, chat))
        backlog.rows.clear()
        backlog.more = True
        await self.look()


def _told_of(tx: Transaction, letter: outbox.Letter, words: str, now: int) -> outbox.Letter:
    """A notice about a text that was not sent, where that was to go, and as private."""
    return outbox.add(
        tx,
        letter.address,
        words,
        now,
        kind="notice",
        reply_to=letter.reply_to,
        asker=letter.asker,
        entry=f"{UNSENT}{letter.id}",
        extra=Extra(turn=letter.extra.turn),
    )


async def _rendered(channel: Channel, letter: outbox.Letter) -> Sequence[Piece]:
    """The pieces a text is sent as, with what can be shown there; none of only white space.

    Raises:
        SendRefused: nothing of it can be shown, or the channel cannot make pieces of it.
    """
    outbound = letter.outbound(channel.capabilities)
    if not outbound.text.strip() and not outbound.attachments:
        return ()
    try:
        if len(outbound.text) > LONG_TEXT:
            return await asyncio.to_thread(channel.render, outbound)
        return channel.render(outbound)
    except errors.SendRefused:
        raise
    except Exception as exc:
        log.exception("delivery.unmapped_error", channel=channel.name)
        raise errors.SendRefused(f"given up after {type(exc).__name__}") from exc


# --- signs of life while a reply is made ----------------------------------------------------------


MOST_TOLD = 900  # characters of a thought, its last ones, that another node is told
DRAFT_SECONDS = 0.5  # between two states of a draft that another node is told


class LiveSigns:
    """Typing, drafts and activities of every channel, on whichever node has its account."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told: dict[Address, tuple[str, str]] = {}  # drafts other nodes want shown, the newest
        self._awaited: LRUCache[str, None] = LRUCache(REMEMBERED)
        self._tasks: set[asyncio.Task[None]] = set()
        if core.coordination.is_shared:
            core.coordination.on("account", self._hear)

    async def stop(self) -> None:
        """Show nothing more for other nodes."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def typing(self, address: Address) -> None:
        """See `Channel.typing`."""
        channel = self._core.channels.get(address.channel)
        if channel is None:
            return
        if self._is_here(channel, address):
            await channel.typing(address)
        else:
            await self._tell(address, {})

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """See `Channel.draft`; takes a while where another node shows it."""
        channel = self._core.channels.get(address.channel)
        if channel is None:
            return
        if self._is_here(channel, address):
            await channel.draft(address, draft_id, text)
            return
        shown = text[: channel.capabilities.max_length]
        await self._tell(address, {"draft": draft_id, "text": shown})
        if text:
            # Whoever writes calls with the newest text after this.
            await asyncio.sleep(DRAFT_SECONDS)

    def shows_activities(self, address: Address) -> bool:
        """True when somebody may watch what is done for a conversation beside its replies."""
        channel = self._core.channels.get(address.channel)
        return channel is not None and channel.capabilities.activities

    async def activity(self, address: Address, activity: Activity) -> None:
        """See `Channel.activity`; takes a while where another node shows what is thought."""
        channel = self._core.channels.get(address.channel)
        if channel is None:
            return
        if self._is_here(channel, address):
            await channel.activity(address, activity)
            return
        is_thought = activity.kind == "thinking" and bool(activity.text)
        if is_thought:
            activity = replace(activity, text=activity.text[-MOST_TOLD:])
        await self._tell(address, {"activity": asdict(activity)}, stored=not is_thought)
        if is_thought:
            # Whoever thinks calls with the newest text after this.
            await asyncio.sleep(DRAFT_SECONDS)

    def _is_here(self, channel: Channel, address: Address) -> bool:
        name = account_name(address)
        # A page is open on any node: its channel tells all of them.
        return self._core.coordination.owns(name) or channel.capabilities.pages

    # --- between nodes ---------------------------------------------------------------------------

    async def _tell(
        self, address: Address, sign: Mapping[str, object], *, stored: bool = True
    ) -> None:
        name = account_name(address)
        body = orjson.dumps({"chat": address.chat, "thread": address.thread, **sign}).decode()
        tell = self._core.coordination.publish if stored else self._core.coordination.mention
        try:
            await tell(Event("account", name, body))
        except StorageError as error:
            log.debug("live.not_told", channel=address.channel, error=type(error).__name__)

    async def _hear(self, event: Event) -> None:
        """Begin to show what another node says; nothing here waits for a platform."""
        channel_name, _, account = event.name.partition("/")
        channel = self._core.channels.get(channel_name)
        if channel is None or not self._core.coordination.owns(event.name):
            return
        sign = orjson.loads(event.body)
        address = Address(channel_name, account, sign["chat"], sign["thread"])
        if "draft" in sign:
            is_shown = address in self._told
            self._told[address] = sign["draft"], sign["text"]
            if not is_shown:
                self._spawn(self._show(channel, address))
        elif "activity" in sign:
            self._spawn(channel.activity(address, Activity(**sign["activity"])))
        else:
            self._spawn(channel.typing(address))

    async def _show(self, channel: Channel, address: Address) -> None:
        """Show the newest state of a draft, until there is no newer one."""
        shown: tuple[str, str] | None = None
        try:
            while (newest := self._told[address]) != shown:
                draft_id, text = shown = newest
                if not text or await self._is_awaited(draft_id):
                    await channel.draft(address, draft_id, text)
        finally:
            del self._told[address]

    async def _is_awaited(self, draft_id: str) -> bool:
        """False when there is a reply in place of a draft: what came late must not bring it back.

        Asked once for each. Of one that is replied to later its channel knows by itself.
        """
        if draft_id not in self._awaited:
            try:
                waits = await self._core.database.read(
                    lambda tx: inbox.is_waiting(tx, int(draft_id))
                )
            except StorageError:
                return False
            if not waits:
                return False
            self._awaited[draft_id] = None
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
