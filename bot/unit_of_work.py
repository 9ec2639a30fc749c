"""One transaction over sessions, inbox and outbox, and what it came to once it is on disk.

Everything the gateway writes goes through here, so that nothing is sent, mirrored or kept in
memory before it is on disk. What stands below (delivery, mirror, sessions in memory)
gets its part of it; the rest goes back as a `Commit` to the caller, who passes it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

import structlog
from structlog.contextvars import get_contextvars

from bot import fencing, money
from bot.agent.models import Purpose
from bot.agent.session_cache import SessionCache
from bot.channel import Address, OutboundKind
from bot.clock import Clock
from bot.delivery import outbox
from bot.delivery.delivery import Delivery
from bot.delivery.outbox import Extra
from bot.errors import StorageError
from bot.money import BillingAccount, Spent, spent_of
from bot.sessions import store, unsaved
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import QueuedMessage
from bot.sessions.store import Place, Session, StartedBy, TurnCounts
from bot.storage import Database, Transaction, insist

COUNT_SECONDS = 5.0  # for the count of what ended in the middle: its program may be ending too

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Commit(Generic[T]):
    """The outcome of one transaction; `result` is what its work returned.

    Attributes:
        due: messages to answer; each names the lane of its key.
        ended: sessions after which another one was begun, as they were before.
    """

    result: T
    due: tuple[QueuedMessage, ...]
    ended: tuple[Session, ...]


@dataclass(slots=True)
class UnitOfWork:
    """A transaction being written, and what follows from it. `now` is in ms since the epoch.

    Attributes:
        letters: texts to send; each names the queue of its address.
        due: messages to answer, once they are on disk, in the lane of their key.
        ended: sessions after which another one was begun, as they were before.
        mirror: lines for the transcript files.
        sessions: rows as they are now, by id.
        stale: ids of sessions whose conversation has to be read again.
        spent: what was counted of the tokens that models used.
        turn: the one it belongs to, or empty.
    """

    tx: Transaction
    now: int
    turn: str = ""
    letters: list[outbox.Letter] = field(default_factory=list[outbox.Letter])
    due: list[QueuedMessage] = field(default_factory=list[QueuedMessage])
    ended: list[Session] = field(default_factory=list[Session])
    mirror: list[store.Appended] = field(default_factory=list[store.Appended])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    stale: set[str] = field(default_factory=set[str])
    spent: list[Spent] = field(default_factory=list[Spent])

    def current(self, place: Place) -> tuple[Session, int]:
        """The session a place's next message belongs to, and when it was taken up (ms).

        The first one of a place is made, and taken up, now.
        """
        found = store.taken_up(self.tx, place.key)
        if found is None:
            session, header = store.start(self.tx, place, self.now, by="first")
            self.mirror.append(header)
            found = session, self.now
        self.sessions[found[0].id] = found[0]
        return found

    def start(self, place: Place, *, by: StartedBy, previous: Session, model: str) -> Session:
        """Begin a new session; the one before stays, and `/undo` goes back to it."""
        session, header = store.start(
            self.tx, place, self.now, by=by, previous=previous, model=model
        )
        self.mirror.append(header)
        self.sessions[session.id] = session
        self._leave(previous)
        return session

    def resume(self, session: Session, *, previous: Session) -> None:
        """Let the next message of a key belong to an earlier session of it."""
        store.point(self.tx, session.key, session.id, self.now)
        self._leave(previous)

    def _leave(self, session: Session) -> None:
        self.ended.append(session)
        if session.turns:
            unsaved.mark(self.tx, session.id, self.now)

    def append(
        self, session_id: str, news: Sequence[NewEntry], counted: TurnCounts | None = None
    ) -> tuple[str, ...]:
        """Add to a transcript; the ids of the new entries."""
        appended = store.append(self.tx, session_id, news, self.now, counted)
        self.mirror.append(appended)
        return appended.ids

    def count(self, spent: Iterable[Spent]) -> None:
        """Count what models used, together with what it was used for."""
        self.spent += [each for each in spent if money.add(self.tx, each, self.now)]

    def say(
        self,
        address: Address,
        words: str,
        kind: OutboundKind = "reply",
        *,
        language: str,
        entry: str = "",
        noted_in: str = "",
        reply_to: str = "",
        asker: str = "",
        extra: Extra | None = None,
    ) -> outbox.Letter:
        """Put a text into the outbox; `entry` is the transcript entry it tells.

        With `noted_in`, the id of a session, the text is the program's own, and an entry is made
        of it there. `language` is the one to say what became of it, if it cannot be sent; `asker`
        whom it is for in a room (`Inbound.asker`): those of one person do not come before all of
        another.
        """
        if noted_in:
            failed = extra.failed if extra is not None else ()
            notice = NewEntry("notice", "assistant", words, failed=failed)
            entry = self.append(noted_in, [notice])[-1]
        letter = outbox.add(
            self.tx,
            address,
            words,
            self.now,
            kind=kind,
            entry=entry,
            reply_to=reply_to,
            asker=asker,
            extra=replace(extra or outbox.NOTHING, turn=self.turn),
            language=language,
        )
        self.letters.append(letter)
        return letter

    def queue(self, message: QueuedMessage) -> None:
        """Have a stored message answered in the lane of its key."""
        self.due.append(message)
        self.tx.wake(message.key)

    def change(self, session_id: str, **columns: str | int | None) -> None:
        """Change a session's row (`store.change`), and let memory know how it looks now."""
        session = store.change(self.tx, session_id, **columns)
        if session is not None:
            self.sessions[session_id] = session

    def forget(self, sessions: Iterable[str], keys: Sequence[str], words: str) -> int:
        """Have sessions read again in which words were forgotten, and take back what holds them.

        Returns how many texts were still to be sent to these keys' conversations.
        """
        self.stale.update(sessions)
        return outbox.withdraw(self.tx, keys, words, self.now)

    def refresh(self, session_id: str) -> None:
        """Let memory know how a session's row looks now."""
        session = store.get(self.tx, session_id)
        if session is not None:
            self.sessions[session_id] = session


class Committer:
    """Commits units of work, and hands on what they came to."""

    def __init__(
        self,
        database: Database,
        delivery: Delivery,
        mirrored: Callable[[Sequence[store.Appended]], object],
        live: SessionCache,
        on_spent: Callable[[Spent], object] | None = None,
    ) -> None:
        """`mirrored` takes the lines for the transcript files, where there are any.

        `on_spent` hears what models used, once that is counted.
        """
        self._database = database
        self._delivery = delivery
        self._mirrored = mirrored
        self._live = live
        self._on_spent = on_spent

    async def commit(
        self, now: int, work: Callable[[UnitOfWork], T], *, until_stored: bool = False
    ) -> Commit[T]:
        """Run `work` in one transaction, then send, mirror and remember what it left.

        With `until_stored` it is tried until the disk takes it: for what has already happened.
        Who calls passes on what is `due` and `ended`.

        Raises:
            StorageError: nothing of it was stored.
        """
        turn = get_contextvars().get("turn", "")  # the transaction has another thread

        def run(tx: Transaction) -> tuple[T, UnitOfWork]:
            unit = UnitOfWork(tx, now, turn)
            return work(unit), unit

        write = insist(self._database, run) if until_stored else self._database.write(run)
        result, unit = await write
        if unit.mirror:
            self._mirrored(unit.mirror)
        self._delivery.post(unit.letters)
        for session in unit.sessions.values():
            self._live.note(session)
        for session_id in unit.stale:
            self._live.forget(session_id)
        if self._on_spent is not None:
            for spent in unit.spent:
                self._on_spent(spent)
        return Commit(result, tuple(unit.due), tuple(unit.ended))

    async def count(self, now: int, spent: Sequence[Spent]) -> None:
        """Count what models used for something of which nothing else is stored.

        It was used whoever does the rest, so no fence holds it back.

        Raises:
            StorageClosed: the database was closed meanwhile.
        """
        if spent:
            with fencing.behind(None):
                await self.commit(now, lambda unit: unit.count(spent), until_stored=True)

    @asynccontextmanager
    async def counting(
        self, clock: Clock, spent: Callable[[], Sequence[Spent]]
    ) -> AsyncGenerator[None]:
        """Count what was `spent` within an `async with` that fails, or is cancelled.

        What comes to its end counts with what is stored of it.
        """
        try:
            yield
        except BaseException:
            try:
                async with asyncio.timeout(COUNT_SECONDS):
                    await self.count(clock(), spent())
            except (StorageError, TimeoutError) as error:
                log.warning("usage.not_counted", error=type(error).__name__)
            raise

    @asynccontextmanager
    async def charging(
        self, account: BillingAccount, session_id: str, purpose: Purpose
    ) -> AsyncGenerator[BillingAccount]:
        """Count what an account spends within an `async with`, whatever comes of it."""
        spent = partial(spent_of, account, account.payer.person, session_id, purpose)
        async with self.counting(account.allowance.clock, spent):
            yield account
        await self.count(account.allowance.clock(), spent())
