"""Deletes conversations for their people, has them back for a day, and then removes them for good.

What was saved to notes from one is kept, except what its person chooses: that is forgotten as
`/memory forget` does it, at once and without a way back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import structlog

from bot.core import Core
from bot.delivery import outbox
from bot.identity.routing import agent_of
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import claims, layout, markdown, versions
from bot.memory.memory import Forgetter, Forgotten, Memory
from bot.memory.note_store import MAX_WRITE
from bot.memory.transcripts import partition_of
from bot.sessions import deleting, store
from bot.sessions.store import Session
from bot.storage import Transaction, insist, scalars
from bot.unit_of_work import Committer, UnitOfWork

LOOK_SECONDS: Final = 600.0
MOST_NOTES: Final = 50  # that are listed
MOST_WORDS: Final = 500  # characters of an entry by which it is forgotten

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Note:
    """An entry that was saved from a conversation: its file, line, words, and its digest.

    `words` are those by which it is forgotten: with its time of day, which messages do not have.
    """

    path: str
    line: int
    text: str
    words: str
    digest: str


class Deletions:
    """Deletes, restores and removes conversations."""

    def __init__(
        self,
        core: Core,
        committer: Committer,
        *,
        memory: Memory,
        forgetter: Forgetter,
        ended: Callable[[str], None],
        renewed: Callable[[str], Awaitable[None]],
    ) -> None:
        """`ended` ends what is done for a session, `renewed` writes its file again."""
        self._core = core
        self._committer = committer
        self._memory = memory
        self._forgetter = forgetter
        self._ended = ended
        self._renewed = renewed

    async def notes_of(self, view: MemoryView, session: Session) -> list[Note]:
        """The entries of a view's own notes that were saved from a conversation, as they are now.

        Raises:
            StorageError: the database cannot be read.
        """
        if agent_of(session.key) not in view.agents:
            return []  # it was saved to another agent's memory
        places = await self._core.database.read(lambda tx: _places(tx, session))
        found: list[Note] = []
        for path, lines in places.items():
            if path.startswith(f"{SHARED_SPACE}/"):
                continue
            text = await self._memory.files.text(view, path, MAX_WRITE)
            entries = await asyncio.to_thread(list, claims.of_note(path, text))
            found += [
                Note(path, each.first, markdown.untimed(each.text), each.text, each.digest)
                for each in entries
                if not each.is_over and lines & {*range(each.first, each.last + 1)}
            ]
        return found[:MOST_NOTES]

    async def delete(self, view: MemoryView, session: Session, notes: Collection[str]) -> None:
        """Delete a conversation, and forget those of its notes with these digests.

        Raises:
            ToolError: a note could not be written; the conversation is as it was.
            StorageError: the database cannot be read or written; begun again, it is completed.
        """
        for note in await self.notes_of(view, session) if notes else ():
            if note.digest in notes:
                await self._forget(view, " ".join(note.words.split())[:MOST_WORDS])
        now = self._core.clock()

        def work(unit: UnitOfWork) -> bool:
            there = store.get(unit.tx, session.id)
            if there is None or there.deleted_at:
                return False
            unit.mirror += deleting.begin(unit.tx, there, now)
            outbox.withdraw_of(unit.tx, there.id, now)
            return True

        if not (await self._committer.commit(now, work)).result:
            return
        self._ended(session.id)
        quoting = await self._hide(session.id, view.people)
        partition = partition_of(session.chat_type, session.person, session.key)
        ids = await self._core.database.read(lambda tx: _indexed(tx, session))
        await self._memory.index.remove_documents((partition, id_) for id_ in ids)
        await self._tell(view, session.id, *quoting)
        log.info("conversation.deleted", session=session.id, notes=len(notes))

    async def restore(self, view: MemoryView, session: Session) -> None:
        """Have a deleted conversation back.

        Raises:
            StorageError: the database cannot be read or written; begun again, it is completed.
        """
        while await self._core.database.write(lambda tx: deleting.restore(tx, session)):
            pass

        def work(unit: UnitOfWork) -> list[str]:
            there = store.get(unit.tx, session.id)
            if there is None or not there.deleted_at:
                return []
            return deleting.restored(unit.tx, there)

        quoting = (await self._committer.commit(self._core.clock(), work)).result
        await self._tell(view, session.id, *quoting)
        log.info("conversation.restored", session=session.id)

    async def look(self) -> None:
        """Complete what was broken off, and remove for good what was deleted a day ago.

        Raises:
            StorageError: the database cannot be read or written.
        """
        if not self._core.is_leader:
            return
        for session in await self._core.database.read(deleting.waiting):
            people = self._core.resolver.of(session.origin).view.people
            await self._hide(session.id, people)
            if session.deleted_at <= self._core.clock() - deleting.GRACE_MS:
                await self._wipe(session)

    async def _hide(self, session_id: str, people: Sequence[str]) -> set[str]:
        """Let nothing show it any more, nor what quotes it; the ids of the sessions that did."""

        def some(tx: Transaction, work: Callable[[Transaction, Session], T]) -> T | None:
            session = store.get(tx, session_id)
            return work(tx, session) if session is not None and session.deleted_at else None

        while await insist(self._core.database, lambda tx: some(tx, deleting.hide)):
            pass
        known = await self._core.database.read(lambda tx: some(tx, deleting.beginnings))
        look = partial(deleting.quoting, people=people, known=known or frozenset())
        after, quoting = 1, set[str]()
        while after and known:
            step = partial(look, after=after)
            after, found = await self._core.database.read(lambda tx, s=step: some(tx, s)) or (0, {})
            hide = partial(deleting.hide_quotations, found=found)
            quoting.update(await insist(self._core.database, lambda tx, h=hide: some(tx, h)) or ())
        return quoting

    async def _wipe(self, session: Session) -> None:
        now, last = self._core.clock(), 0
        while last := await self._core.database.write(
            lambda tx, after=last: deleting.wipe(tx, session, after, now)
        ):
            pass
        await self._renewed(session.id)  # before the mark is gone that has all of this done again
        for id_ in await self._core.database.write(lambda tx: deleting.wiped(tx, session)):
            await self._renewed(id_)
        log.info("conversation.removed", session=session.id, entries=session.entry_count)

    async def _forget(self, view: MemoryView, words: str) -> None:
        now = self._core.clock()
        async with self._forgetter.forgetting(view, words, now) as complete:

            def work(unit: UnitOfWork) -> Forgotten:
                done = complete(unit.tx)
                unit.forget(done.sessions, done.keys, words)
                return done

            await self._committer.commit(now, work, until_stored=True)

    async def _tell(self, view: MemoryView, *sessions: str) -> None:
        """Have these conversations read again, and all shown anew on every page of their person."""

        def work(unit: UnitOfWork) -> None:
            unit.stale.update(sessions)
            versions.tell(unit.tx, view.space)

        await self._committer.commit(self._core.clock(), work)
        await self._forgetter.look()


def _places(tx: Transaction, session: Session) -> dict[str, set[int]]:
    """The lines of notes that a conversation names as saved, by file."""
    rows = tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? AND seq >= ? AND role = 'assistant' "
        "AND line LIKE ? ORDER BY seq",
        (session.id, session.first_seq, "%✓%"),
    )
    told = (each.text for each in store.read_entries(rows))
    marked = (line for text in told for line in text.splitlines() if line.startswith("✓"))
    found: dict[str, set[int]] = {}
    for path, lines in _named([session.saved, *marked]):
        found.setdefault(path, set()).update(lines)
    return found


def _named(texts: Sequence[str]) -> Iterator[tuple[str, range]]:
    """Files and lines in texts such as "MEMORY.md:7, memory/2026-07-01.md:3-5"."""
    for name in (word.strip("`,") for text in texts for word in text.split()):
        path, _, lines = name.rpartition(":")
        first, _, last = lines.partition("-")
        if path.endswith(layout.SUFFIX) and (start := _line(first)):
            yield path, range(start, min(_line(last) or start, start + MOST_NOTES) + 1)


def _line(digits: str) -> int:
    """The number of a line; 0 for anything else."""
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 7 else 0


def _indexed(tx: Transaction, session: Session) -> list[str]:
    kinds = "kind IN ('message', 'compaction')"
    return scalars(tx, f"SELECT id FROM entries WHERE session_id = ? AND {kinds}", session.id)
