"""Sending reminders when they are due, once, also when the program was off at that time."""

from __future__ import annotations

from datetime import datetime

import structlog

from bot.clock import Clock
from bot.i18n import text
from bot.identity import ConversationResolver
from bot.scheduler import Scheduler
from bot.sessions import reminders, store
from bot.sessions.due_time import shown
from bot.sessions.reminders import Reminder, ReplyTarget
from bot.storage import Database
from bot.unit_of_work import Committer, UnitOfWork

JOB = "reminders"
LOOK_SECONDS = 60.0  # between looks for what a sleep or another process left to be found
LATE_MS = 60_000  # a reminder that is later than this says so
BATCH = 50  # reminders sent in one transaction

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
        self._scheduler.every(JOB, LOOK_SECONDS, self.wake, first=0)

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

    async def wake(self) -> None:
        """Send what is due by the clock, and see to the next wake.

        Raises:
            StorageError: not everything was sent; the next look tries again.
        """
        await self.fire(self._clock())
        due_at = await self._database.read(reminders.next_due)
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
        count = 0
        while True:
            sent = (await self._committer.commit(now, self._send)).result
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
        if session is None:  # its conversation was lost with a damaged database
            unit.say(target.address, words, "reminder", language=target.language)
            return
        unit.say(
            target.address,
            words,
            "reminder",
            language=target.language,
            noted_in=session.id,
        )
        unit.refresh(session.id)
