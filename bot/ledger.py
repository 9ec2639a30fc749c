"""One transaction over sessions, inbox and outbox, and what it came to once it is on disk.

Everything the gateway writes goes through here, so that nothing is sent, mirrored or kept in
memory before it is on disk. A `Commit` says what happened: texts to send by address, messages to
answer by key, sessions that ended. What stands below the ledger (delivery, mirror, sessions in
memory) gets its part from it; the rest goes back to the caller, who passes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from bot.agent.live import LiveSessions
from bot.channel import Address, OutboundKind
from bot.delivery import outbox
from bot.delivery.delivery import Delivery
from bot.delivery.outbox import Extra
from bot.sessions import store
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import Waiting
from bot.sessions.mirror import Mirror
from bot.sessions.store import Counted, Place, Session, StartedBy
from bot.storage import Database, Transaction
from bot.storage.insist import insist

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Commit(Generic[T]):
    """What one transaction came to; `result` is what its work returned.

    Attributes:
        letters: texts to send; each names the queue of its address.
        due: messages to answer; each names the lane of its key.
        ended: sessions after which another one was begun, as they were before.
        appended: lines for the mirror.
        sessions: rows as they are now, by id.
        stale: ids of sessions whose conversation has to be read again.
        after: what is to be done in the program's own thread.
    """

    result: T
    letters: tuple[outbox.Letter, ...]
    due: tuple[Waiting, ...]
    ended: tuple[Session, ...]
    appended: tuple[store.Appended, ...]
    sessions: Mapping[str, Session]
    stale: frozenset[str]
    after: tuple[Callable[[], object], ...]


class Draft:
    """A transaction being written, and its consequences. `now` is in ms since the epoch."""

    __slots__ = ("after", "due", "ended", "letters", "mirror", "now", "sessions", "stale", "tx")

    def __init__(self, tx: Transaction, now: int) -> None:
        self.tx = tx
        self.now = now
        self.letters: list[outbox.Letter] = []
        self.due: list[Waiting] = []
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

    def answer(self, waiting: Waiting) -> None:
        """Have a stored message answered in the lane of its key."""
        self.due.append(waiting)

    def commit(self, result: T) -> Commit[T]:
        """What it has come to so far, with what its work returned."""
        return Commit(
            result,
            letters=tuple(self.letters),
            due=tuple(self.due),
            ended=tuple(self.ended),
            appended=tuple(self.mirror),
            sessions=self.sessions,
            stale=frozenset(self.stale),
            after=tuple(self.after),
        )


class Ledger:
    """Runs drafts and hands on what they came to."""

    def __init__(
        self, database: Database, delivery: Delivery, mirror: Mirror, live: LiveSessions
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._mirror = mirror
        self._live = live

    async def write(self, now: int, work: Callable[[Draft], T], *, must: bool = False) -> Commit[T]:
        """Run `work` in one transaction, then send, mirror and remember what it left.

        With `must` it is tried until the disk takes it: for what has already happened. Who calls
        passes on what is `due` and `ended`.

        Raises:
            StorageError: nothing of it was stored.
        """

        def run(tx: Transaction) -> Commit[T]:
            draft = Draft(tx, now)
            return draft.commit(work(draft))

        commit = await (insist(self._database, run) if must else self._database.write(run))
        self._mirror.add(commit.appended)
        self._delivery.post(commit.letters)
        for session in commit.sessions.values():
            self._live.note(session)
        for session_id in commit.stale:
            self._live.forget(session_id)
        for work_after in commit.after:
            work_after()
        return commit
