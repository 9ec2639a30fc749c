"""One transaction over sessions, inbox and outbox, and what is handed on once it is committed.

Everything the gateway writes goes through here, so that nothing is sent, mirrored or kept in
memory before it is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from bot.channel import Address, OutboundKind
from bot.delivery import outbox
from bot.delivery.delivery import Delivery
from bot.delivery.outbox import Extra
from bot.gateway.live import LiveSessions
from bot.sessions import store
from bot.sessions.entries import NewEntry
from bot.sessions.mirror import Mirror
from bot.sessions.store import Counted, Place, Session, StartedBy
from bot.storage import Database, Transaction
from bot.storage.insist import insist

T = TypeVar("T")


class Draft:
    """A transaction being written, and its consequences. `now` is in ms since the epoch."""

    __slots__ = ("after", "ended", "letters", "mirror", "now", "sessions", "stale", "tx")

    def __init__(self, tx: Transaction, now: int) -> None:
        self.tx = tx
        self.now = now
        self.letters: list[outbox.Letter] = []
        self.mirror: list[store.Appended] = []
        self.sessions: dict[str, Session] = {}
        self.ended: list[Session] = []
        self.stale: set[str] = set()
        self.after: list[Callable[[], object]] = []

    def current(self, place: Place) -> tuple[Session, bool]:
        """The session a place's next message belongs to, and whether it was made just now."""
        session, header = store.ensure(self.tx, place, self.now)
        if header is not None:
            self.mirror.append(header)
        self.sessions[session.id] = session
        return session, header is not None

    def start(self, place: Place, *, by: StartedBy, previous: Session, model: str) -> Session:
        """Begin a new session; the one before stays, and `/undo` goes back to it."""
        session, header = store.start(
            self.tx, place, self.now, by=by, previous=previous, model=model
        )
        self.mirror.append(header)
        self.sessions[session.id] = session
        self.ended.append(previous)
        return session

    def append(
        self, session_id: str, news: Sequence[NewEntry], counted: Counted | None = None
    ) -> tuple[str, ...]:
        """Add to a transcript; the ids of the new entries."""
        appended = store.append(self.tx, session_id, news, self.now, counted)
        self.mirror.append(appended)
        return appended.ids

    def tell(
        self,
        session_id: str,
        address: Address,
        words: str,
        kind: OutboundKind,
        *,
        language: str,
        reply_to: str = "",
        asker: str = "",
        extra: Extra | None = None,
    ) -> None:
        """Say something that is the program's own, and note it in the transcript."""
        told = self.append(session_id, [NewEntry("notice", "assistant", words)])
        self.say(
            address,
            words,
            kind,
            language=language,
            entry=told[-1],
            reply_to=reply_to,
            asker=asker,
            extra=extra,
        )

    def say(
        self,
        address: Address,
        words: str,
        kind: OutboundKind = "reply",
        *,
        language: str,
        entry: str = "",
        reply_to: str = "",
        asker: str = "",
        extra: Extra | None = None,
    ) -> None:
        """Put a text into the outbox; `entry` is the transcript entry it tells.

        `language` is the one to say there what became of it, if it cannot be sent; `asker` whom it
        is for in a room (`Inbound.asker`): those of one person do not come before all of another.
        """
        letter = outbox.add(
            self.tx,
            address,
            words,
            self.now,
            kind=kind,
            entry=entry,
            reply_to=reply_to,
            asker=asker,
            extra=extra,
            language=language,
        )
        self.letters.append(letter)

    def reload(self, session_id: str) -> None:
        """What memory holds of a session is out of date: let it be read again."""
        self.stale.add(session_id)

    def then(self, work: Callable[[], object]) -> None:
        """Do this in the program's own thread, once all of the transaction is on disk."""
        self.after.append(work)

    def touch(self, session_id: str) -> None:
        """Let memory know how a session's row looks now."""
        session = store.get(self.tx, session_id)
        if session is not None:
            self.sessions[session_id] = session


class Ledger:
    """Runs drafts and hands on what they came to."""

    def __init__(
        self,
        database: Database,
        delivery: Delivery,
        mirror: Mirror,
        live: LiveSessions,
        on_ended: Callable[[Session], None] = lambda _session: None,
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._mirror = mirror
        self._live = live
        self.on_ended = on_ended  # hears of every session another one was begun after

    async def write(self, now: int, work: Callable[[Draft], T], *, must: bool = False) -> T:
        """Run `work` in one transaction, then send, mirror and remember what it left.

        With `must` it is tried until the disk takes it: for what has already happened.

        Raises:
            StorageError: nothing of it was stored.
        """

        def run(tx: Transaction) -> tuple[T, Draft]:
            draft = Draft(tx, now)
            return work(draft), draft

        if must:
            result, draft = await insist(self._database, run)
        else:
            result, draft = await self._database.write(run)
        self._mirror.add(draft.mirror)
        self._delivery.post(draft.letters)
        for session in draft.sessions.values():
            self._live.note(session)
        for session_id in draft.stale:
            self._live.forget(session_id)
        for work_after in draft.after:
            work_after()
        for session in draft.ended:
            self.on_ended(session)
        return result
