"""Sending reminders when they are due, once, also when the program was off at that time.

One that comes again and again is moved to its next time in the transaction that sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo

import structlog

from bot.agent.recall import is_near
from bot.clock import moment
from bot.context import sentences
from bot.core import Core
from bot.errors import EmbedderError, StorageError
from bot.i18n import text
from bot.identity import Conversation
from bot.memory.embed import Embedder, NoEmbedder
from bot.memory.search import Hit
from bot.scheduler import Scheduler
from bot.sessions import reminders, repeats, store
from bot.sessions.due_time import shown
from bot.sessions.reminders import Reminder, ReplyTarget
from bot.sessions.repeats import Repeat
from bot.storage import Transaction
from bot.unit_of_work import Committer, UnitOfWork

JOB = "reminders"
LOOK_SECONDS = 60.0  # between looks for what a sleep or another process left to be found
LATE_MS = 60_000  # a reminder that is later than this says so
BACK_MS = 60_000  # that the clock has to go back for times to be worked out anew
BATCH = 50  # reminders sent in one transaction
MOST_MISSED = 100  # times that are counted

log = structlog.get_logger(__name__)


MOST_WORDS = 500  # characters of a message that are compared with what reminders wait for
EMBED_SECONDS = 2.0  # that this may hold up a turn; then words alone decide
_ASKING = str.maketrans("?\uff1f\u061f", "   ")  # a question is no nearer to a topic


def is_about(words: str, about: str, meaning: float) -> bool:
    """True if a message is about something: it has all of its words, or means something like it.

    `meaning` is the cosine of both, 0 when unknown; it counts as when memory is recalled.
    """
    terms = sentences.terms(about)
    share = sentences.shared(terms, words) / len(terms) if terms else 0.0
    if share == 1.0 or not meaning:
        return share == 1.0
    hit = Hit("", "", 1, 1, 0.0, about, "memory", words=share, meaning=meaning)
    return is_near([hit], words.translate(_ASKING))


class Reminders:
    """The job that sends what is due."""

    def __init__(
        self,
        core: Core,
        committer: Committer,
        scheduler: Scheduler,
        embedder: Embedder | None = None,
    ) -> None:
        """`embedder` tells what a message is about; without one its words do."""
        self._embedder = embedder or NoEmbedder()
        self._core = core
        self._committer = committer
        self._scheduler = scheduler
        self._woken_at: int | None = None  # when the scheduler wakes this the next time
        self._looked_at = 0  # when it last looked, by the clock

    async def about(self, conversation: Conversation, said: Sequence[str]) -> list[Reminder]:
        """Those that wait for what a person talks about in these messages; never raises."""
        words = "\n".join(each[:MOST_WORDS] for each in said)[:MOST_WORDS]
        key, person = conversation.key, conversation.person
        try:
            waiting = await self._core.database.read(
                lambda tx: reminders.about_something(tx, key, person)
            )
        except StorageError as error:
            log.warning("reminder.not_looked_up", error=type(error).__name__)
            return []
        if not waiting or not words.strip():
            return []
        meanings = [0.0] * len(waiting)
        try:
            async with asyncio.timeout(EMBED_SECONDS):
                rows = await self._embedder.embed([words, *(each.about for each in waiting)])
            meanings = [float(row @ rows[0]) for row in rows[1:]]
        except (EmbedderError, TimeoutError):
            log.info("reminder.by_words_alone")
        pairs = zip(waiting, meanings, strict=True)
        return await asyncio.to_thread(
            lambda: [each for each, meaning in pairs if is_about(words, each.about, meaning)]
        )

    def start(self) -> None:
        """Look now, every minute, and whenever the next one is due."""
        self._scheduler.once(f"{JOB}.retime", 0, self.retime)
        self._scheduler.every(JOB, LOOK_SECONDS, self.wake, first=0)

    async def retime(self) -> None:
        """Work out anew when what comes again is due: people may live elsewhere by now.

        Raises:
            StorageError: it was not stored; they come when they would have come.
        """
        now = self._core.clock()
        await self._core.database.write(lambda tx: repeats.retime(tx, self._zone_of, now))

    def expect(self, due_at: int) -> None:
        """Wake when the clock says `due_at` (ms), or before.

        One that is cancelled, or never stored, costs a wake that finds nothing to do.
        """
        if self._woken_at is None or due_at < self._woken_at:
            self._woken_at = due_at
            self._scheduler.once(f"{JOB}.next", due_at, self._woken)

    async def wake(self) -> None:
        """Send what is due by the clock, and see to the next wake.

        Raises:
            StorageError: not everything was sent; the next look tries again.
        """
        now = self._core.clock()
        if now < self._looked_at - BACK_MS:  # what it had put off while it was ahead is due again
            await self.retime()
        self._looked_at = now
        await self.fire(now)
        due_at = await self._core.database.read(_next_due)
        if due_at is not None:
            self.expect(due_at)

    async def _woken(self) -> None:
        self._woken_at = None
        await self.wake()

    async def fire(self, now: int) -> int:
        """Send what is due at `now`, in order; how many there were.

        Raises:
            StorageError: not everything was sent; what was not still waits.
        """
        return await self._all(now, self._send) + await self._all(now, self._send_again)

    async def _all(self, now: int, send: Callable[[UnitOfWork], int]) -> int:
        count = 0
        while True:
            sent = (await self._committer.commit(now, send)).result
            count += sent
            if sent < BATCH:
                return count

    def _send(self, unit: UnitOfWork) -> int:
        found = reminders.due(unit.tx, unit.now, BATCH)
        for reminder in found:
            if not self._is_served(unit, reminder.target):
                reminders.mark(unit.tx, reminder, "cancelled", unit.now)
                log.info("reminder.refused", reminder=reminder.id)
                continue
            reminders.mark(unit.tx, reminder, "sent", unit.now)
            late = unit.now - reminder.due_at > LATE_MS
            with reminders.REMINDERS.apart(unit.tx, reminder.id):
                self._tell(unit, reminder, late=late)
            log.info(
                "reminder.sent",
                channel=reminder.target.address.channel,
                reminder=reminder.id,
                made_by=reminder.made_by,
                late=late,
            )
        return len(found)

    def _send_again(self, unit: UnitOfWork) -> int:
        found = repeats.due(unit.tx, unit.now, BATCH)
        for repeat in found:
            with repeats.REPEATS.apart(unit.tx, repeat.id):
                self._move_on(unit, repeat)
        return len(found)

    def _move_on(self, unit: UnitOfWork, repeat: Repeat) -> None:
        """Say one whose time has come, and let it wait for its next time."""
        zone = self._zone_of(repeat)
        # Those that went by while nobody looked are said once, and told.
        missed = repeat.series.count(repeat.due_at, unit.now, zone, MOST_MISSED)
        is_new = repeats.begin_run(unit.tx, repeat, missed, unit.now)
        repeats.move_on(unit.tx, repeat, zone, unit.now)
        if is_new and not self._is_served(unit, repeat.target):
            repeats.refused(unit.tx, repeat)
            log.info("reminder.refused", repeat=repeat.id)
            return
        if is_new:
            self._say_again(unit, repeat, missed)
        log.info(
            "reminder.repeated",
            channel=repeat.target.address.channel,
            repeat=repeat.id,
            made_by=repeat.made_by,
            missed=missed,
        )

    def _say_again(self, unit: UnitOfWork, repeat: Repeat, missed: int) -> None:
        language, zone = repeat.target.language, self._zone_of(repeat)
        words = text(language, "reminder.due", text=repeat.text)
        if unit.now - repeat.due_at > LATE_MS:
            when = shown(language, moment(repeat.due_at, zone))
            key = "repeat.missed" if missed else "reminder.late"
            words = text(language, key, text=repeat.text, when=when, count=missed + 1)
        repeats.said(unit.tx, repeat, say(unit, repeat.target, words))

    def _is_served(self, unit: UnitOfWork, target: ReplyTarget) -> bool:
        """True when whoever asked for it may still talk there."""
        if target.origin is not None:
            return self._core.resolver.of(target.origin).is_served
        session = store.current(unit.tx, target.key)
        return session is None or self._core.resolver.serves(target.person, session.origin)

    def _zone_of(self, repeat: Repeat) -> ZoneInfo:
        """The person's own, and in a room, where nobody is told where somebody lives, ours."""
        return self._core.resolver.of(repeat.origin).zone

    def _tell(self, unit: UnitOfWork, reminder: Reminder, *, late: bool) -> None:
        target = reminder.target
        words = text(target.language, "reminder.due", text=reminder.text)
        session = store.current(unit.tx, target.key)
        if late:
            # In a room, nobody is told where somebody lives.
            in_room = session is not None and session.chat_type != "direct"
            zone = self._core.resolver.now.zone_of("" if in_room else target.person)
            when = shown(target.language, moment(reminder.due_at, zone))
            words = text(target.language, "reminder.late", text=reminder.text, when=when)
        say(unit, target, words)


def say_now(unit: UnitOfWork, found: Sequence[Reminder]) -> None:
    """Say those whose topic came up, each once: not what was cancelled or said meanwhile."""
    for each in found:
        if reminders.mark(unit.tx, each, "sent", unit.now):
            say(unit, each.target, text(each.target.language, "reminder.due", text=each.text))
            log.info("reminder.sent", reminder=each.id, made_by=each.made_by, about=True)


def say(unit: UnitOfWork, target: ReplyTarget, words: str) -> int:
    """Say something in a conversation, noted there; the number of the text in the outbox."""
    session = store.current(unit.tx, target.key)
    noted_in = session.id if session is not None else ""  # it was lost with a damaged database
    origin = target.origin
    letter = unit.say(
        target.address,
        words,
        "reminder",
        language=target.language,
        noted_in=noted_in,
        asker=origin.sender if origin is not None and origin.chat_type != "direct" else "",
    )
    if session is not None:
        unit.refresh(session.id)
    return letter.id


def _next_due(tx: Transaction) -> int | None:
    """The time the next one is due, one-off or recurring (ms); None for none."""
    found = (reminders.next_due(tx), repeats.next_due(tx))
    return min((due_at for due_at in found if due_at is not None), default=None)
