"""Sending reminders when they are due, once, also when the program was off at that time.

One that comes again and again is moved to its next time in the transaction that sends it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

import structlog

from bot.clock import Clock, moment
from bot.i18n import text
from bot.identity import ConversationResolver
from bot.scheduler import Scheduler
from bot.sessions import reminders, repeats, store
from bot.sessions.due_time import shown
from bot.sessions.recurrence import Series
from bot.sessions.reminders import Reminder, ReplyTarget
from bot.sessions.repeats import Kind, Repeat
from bot.storage import Database, Transaction
from bot.unit_of_work import Committer, UnitOfWork

JOB = "reminders"
LOOK_SECONDS = 60.0  # between looks for what a sleep or another process left to be found
LATE_MS = 60_000  # a reminder that is later than this says so
BATCH = 50  # reminders sent in one transaction
MOST_MISSED = 100  # times that are counted

log = structlog.get_logger(__name__)


class Reminders:
    """What commands and the model's tool may ask for, and the job that sends what is due."""

    def __init__(
        self,
        *,
        resolver: ConversationResolver,
        database: Database,
        committer: Committer,
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        self._resolver = resolver
        self._database = database
        self._committer = committer
        self._scheduler = scheduler
        self._clock = clock
        self._woken_at: int | None = None  # when the scheduler wakes this the next time

    def start(self) -> None:
        """Look now, every minute, and whenever the next one is due."""
        self._scheduler.once(f"{JOB}.retime", 0, self.retime)
        self._scheduler.every(JOB, LOOK_SECONDS, self.wake, first=0)

    async def retime(self) -> None:
        """Work out anew when what comes again is due: people may live elsewhere by now.

        Raises:
            StorageError: it was not stored; they come when they would have come.
        """
        now = self._clock()
        await self._database.write(lambda tx: repeats.retime(tx, self._zone_of, now))

    def expect(self, due_at: int) -> None:
        """Wake when the clock says `due_at` (ms), or before.

        One that is cancelled, or never stored, costs a wake that finds nothing to do.
        """
        if self._woken_at is None or due_at < self._woken_at:
            self._woken_at = due_at
            self._scheduler.once(f"{JOB}.next", due_at, self._woken)

    async def schedule(self, target: ReplyTarget, words: str, due_at: int) -> bool:
        """Store what the model wants to remind of; False when too many wait for this person.

        Raises:
            StorageError: it could not be stored.
        """
        now = self._clock()
        added = await self._database.write(
            lambda tx: reminders.add(tx, target, words, due_at, now, made_by="agent")
        )
        if added is None:
            return False
        self.expect(added.due_at)
        return True

    async def repeat(
        self, target: ReplyTarget, words: str, series: Series, zone: ZoneInfo, kind: Kind
    ) -> int | None:
        """Store what the model wants to say, or do, again and again; when it is due first.

        None when this person has too many.

        Raises:
            ValueError: no time of it is to come.
            StorageError: it could not be stored.
        """
        now = self._clock()
        added = await self._database.write(
            lambda tx: repeats.add(
                tx, target, words, series, zone=zone, now=now, made_by="agent", kind=kind
            )
        )
        if added is None:
            return None
        self.expect(added.due_at)
        return added.due_at

    async def wake(self) -> None:
        """Send what is due by the clock, and see to the next wake.

        Raises:
            StorageError: not everything was sent; the next look tries again.
        """
        await self.fire(self._clock())
        due_at = await self._database.read(_next_due)
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
            reminders.mark(unit.tx, reminder, "sent", unit.now)
            late = unit.now - reminder.due_at > LATE_MS
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
            zone = self._zone_of(repeat)
            # Those that went by while nobody looked are said once, and told.
            missed = repeat.series.count(repeat.due_at, unit.now, zone, MOST_MISSED)
            is_new = repeats.begin_run(unit.tx, repeat, missed, unit.now)
            repeats.move_on(unit.tx, repeat, zone, unit.now)
            if is_new:
                self._say_again(unit, repeat, missed)
            log.info(
                "reminder.repeated",
                channel=repeat.target.address.channel,
                repeat=repeat.id,
                made_by=repeat.made_by,
                missed=missed,
            )
        return len(found)

    def _say_again(self, unit: UnitOfWork, repeat: Repeat, missed: int) -> None:
        language, zone = repeat.target.language, self._zone_of(repeat)
        words = text(language, "reminder.due", text=repeat.text)
        if unit.now - repeat.due_at > LATE_MS:
            when = shown(language, moment(repeat.due_at, zone))
            key = "repeat.missed" if missed else "reminder.late"
            words = text(language, key, text=repeat.text, when=when, count=missed + 1)
        repeats.said(unit.tx, repeat, _say(unit, repeat.target, words))

    def _zone_of(self, repeat: Repeat) -> ZoneInfo:
        """The person's own, and in a room, where nobody is told where somebody lives, ours."""
        return self._resolver.of(repeat.origin).zone

    def _tell(self, unit: UnitOfWork, reminder: Reminder, *, late: bool) -> None:
        target = reminder.target
        words = text(target.language, "reminder.due", text=reminder.text)
        session = store.current(unit.tx, target.key)
        if late:
            # In a room, nobody is told where somebody lives.
            in_room = session is not None and session.chat_type != "direct"
            zone = self._resolver.now.zone_of("" if in_room else target.person)
            due = datetime.fromtimestamp(reminder.due_at / 1000, zone)
            when = shown(target.language, due)
            words = text(target.language, "reminder.late", text=reminder.text, when=when)
        _say(unit, target, words)


def _say(unit: UnitOfWork, target: ReplyTarget, words: str) -> int:
    """Say something in a conversation, noted there; the number of the text in the outbox."""
    session = store.current(unit.tx, target.key)
    noted_in = session.id if session is not None else ""  # it was lost with a damaged database
    letter = unit.say(
        target.address, words, "reminder", language=target.language, noted_in=noted_in
    )
    if session is not None:
        unit.refresh(session.id)
    return letter.id


def _next_due(tx: Transaction) -> int | None:
    """When the next one is due, whether it comes once or again."""
    found = (reminders.next_due(tx), repeats.next_due(tx))
    return min((due_at for due_at in found if due_at is not None), default=None)
