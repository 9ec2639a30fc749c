"""Keeps the notes of a space in order, and takes that back.

What is to be done is stored before it is begun, and each part of it can be done again: a kill at
any moment leaves something that the next look completes, to the same result. Notes are exchanged
one by one and only while they are what was read, so what a person writes meanwhile stays; and what
is forgotten meanwhile lets nothing be written that was read before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Final

import structlog

from bot.clock import Clock
from bot.errors import ToolError
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import note_store
from bot.memory.memory import Memory, Spot
from bot.memory.night import edits, proposals, record, rules
from bot.memory.night.edits import Edit
from bot.memory.night.record import Night, Record
from bot.memory.night.rules import Draft
from bot.memory.note_store import MAX_WRITE, Watch
from bot.memory.notes import NoteChanged
from bot.memory.versions import Versions
from bot.storage import Database, Transaction

MOST_NOTES: Final = 2_000  # of a space that are read in a night, the newest
MOST_BYTES: Final = 8_000_000  # of all of them
TRIES: Final = 5  # while others change the same notes

Propose = Callable[[str], Awaitable[str]]
"""Asks a model about entries and returns its answer."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The result of undoing a night: entries restored, and those that were changed since."""

    back: int
    left: int


class Keeper:
    """Looks after the notes of one space at a time."""

    def __init__(self, memory: Memory, database: Database, clock: Clock) -> None:
        self._memory = memory
        self._database = database
        self._clock = clock
        self._versions = Versions(database, clock)

    async def of(self, space: str) -> Record:
        """The record of a space's nights.

        Raises:
            StorageError: the database cannot be read.
        """
        return await self._database.read(lambda tx: record.of_space(tx, space))

    async def look(
        self, view: MemoryView, today: date, most: int, propose: Propose | None = None
    ) -> Night | None:
        """Do what is to be done in a view's space on a day; what was changed, if anything was.

        What was begun before is completed first, and is all there is for that day. While a night
        was not told yet, no other one begins. What `propose` answers is taken as far as it may be.

        Raises:
            StorageError: the database cannot be read or written.
            ToolError: a note was not taken, or something was forgotten meanwhile.
            ModelError: `propose` failed, and nothing was done.
        """
        found = await self.of(view.space)
        night = found.night
        if night is not None and night.state == "begun":
            return await self._do(view, night)
        if night is not None and night.state == "undoing":
            await self.take_back(view)
            return None
        if found.looked == today.isoformat() or (night is not None and night.is_untold):
            return None
        async with self._memory.notes.watching(view) as watch:
            draft, shown = await self._draft(view, found, today, most, propose)
            new = Night(today, tuple(draft.changes), tuple(draft.asked))
            is_new = bool(new.changes or new.asked)
            # Nobody is asked twice.
            left = found.with_left(tuple(each.name for each in new.asked))
            night = new if is_new else night
            why = found.why if propose is None and found.tries else ""
            looked = replace(
                left, looked=today.isoformat(), night=night, shown=shown, tries=0, why=why
            )
            if not await self._put(view.space, found, looked, watch) or not is_new:
                return None
            return await self._do(view, new, watch)

    async def answer(self, view: MemoryView, day: date, *, agrees: bool) -> int | None:
        """Do what was asked on a day, or leave it; how much it was, None when nothing is open.

        Raises:
            StorageError: the database cannot be read or written.
            ToolError: something was forgotten meanwhile; the next look completes it.
        """
        found = await self.of(view.space)
        night = found.night
        is_open = night is not None and night.day == day and night.state == "done"
        if night is None or not is_open or not night.asked:
            return None
        if not agrees:
            left = replace(found, night=replace(night, asked=()))
            return len(night.asked) if await self._put(view.space, found, left) else None
        changes = (*night.changes, *night.asked)
        begun = replace(night, changes=changes, asked=(), state="begun", was_told=True)
        if not await self._put(view.space, found, replace(found, night=begun)):
            return None
        done = await self._do(view, begun)
        return len(done.changes) - len(night.changes) if done is not None else 0

    async def _draft(
        self, view: MemoryView, found: Record, today: date, most: int, propose: Propose | None
    ) -> tuple[Draft, str]:
        """The changes of a night, and the digest of what a model has answered to.

        A model is not asked about the same entries every night.
        """
        notes = await self._read(view, await self._paths(view))
        aging = await self._memory.uses.aging((view.space,), today)
        more: Callable[[Draft], None] | None = None
        shown = found.shown
        if propose is not None:
            entries = await asyncio.to_thread(rules.known_entries, notes, aging, view.space)
            seen = proposals.shown(entries)
            listed = proposals.listed(seen)
            is_new = len(seen) > 1 and edits.digest(listed) != found.shown
            reply = await propose(listed) if is_new else ""
            shown = edits.digest(listed) if reply else found.shown
            more = partial(proposals.take, proposals=proposals.read(reply, seen))
        plan = partial(rules.plan, notes, aging, most=most, left=found.left, space=view.space)
        return await asyncio.to_thread(plan, more=more), shown

    async def failed(self, view: MemoryView, why: str) -> None:
        """Note that a model failed once more, and why.

        Raises:
            StorageError: the database cannot be read or written.
        """
        await self._update(view.space, lambda found: replace(found, tries=found.tries + 1, why=why))

    async def skip(self, view: MemoryView, today: date) -> None:
        """Let a day go by without looking.

        Raises:
            StorageError: the database cannot be read or written.
        """
        await self._update(view.space, lambda found: replace(found, looked=today.isoformat()))

    async def spots(
        self, view: MemoryView, made: Sequence[Edit], *, asked: bool = False
    ) -> list[tuple[Edit, Spot]]:
        """The places and words of the entries of changes; of those `asked` as they were."""
        notes = await self._read(view, edits.paths_of(made))
        found: list[tuple[Edit, Spot]] = []
        for edit in made:
            entry = edits.find(notes.get(edit.path, ""), edit.before if asked else edit.after)
            if entry is not None:
                found.append((edit, Spot(edit.path, entry.start + 1, edits.words(entry))))
        return found

    async def take_back(self, view: MemoryView) -> TakenBack | None:
        """Take back what the last night changed; None when there is nothing to take back.

        Raises:
            StorageError: the database cannot be read or written.
            ToolError: a note was not taken; the rest can be taken back again.
        """
        found = await self.of(view.space)
        night = found.night
        if night is None or night.state in {"begun", "undone"}:
            return None
        undoing = replace(night, asked=(), state="undoing", was_told=True)
        names = tuple(each.name for each in night.changes)
        if not await self._put(view.space, found, replace(found.with_left(names), night=undoing)):
            return await self.take_back(view)  # somebody answered just now, or did the same
        async with self._memory.notes.watching(view) as watch:
            left = await self._change(view, night.edits, watch, back=True)

        def undone(found: Record) -> Record:
            if found.night is None or found.night.day != night.day:
                return found
            return replace(found, night=replace(found.night, state="undone"))

        await self._update(view.space, undone)
        back = len(night.edits) - left
        log.info("memory.night_undone", back=back, left=left)
        return TakenBack(back, left)

    # --- what all of them do ----------------------------------------------------------------------

    async def _do(self, view: MemoryView, night: Night, watch: Watch | None = None) -> Night | None:
        """Make the changes of a night that can still be made; those that were made are kept."""
        if watch is None:
            async with self._memory.notes.watching(view) as begun:
                return await self._do(view, night, begun)
        await self._change(view, night.edits, watch)
        notes = await self._read(view, edits.paths_of(night.edits))
        made = tuple(
            each
            for each in night.changes
            if any(edits.is_made(notes.get(edit.path, ""), edit) for edit in each.edits)
        )
        is_news = bool(made or night.asked) and not night.was_told
        done = replace(night, changes=made, state="done", was_told=not is_news)
        # What was forgotten of it meanwhile leaves another one, which the next look completes.
        await self._update(
            view.space, lambda found: replace(found, night=done) if found.night == night else found
        )
        log.info("memory.night", changes=len(made))
        return done if made or night.asked else None

    async def _change(
        self, view: MemoryView, wanted: Sequence[Edit], watch: Watch, *, back: bool = False
    ) -> int:
        """Make changes, or take them `back`, whatever others write meanwhile; how many cannot be.

        A note that cannot be written is left with all that rests on it.

        Raises:
            ToolError: something was forgotten, so nothing more may be written.
        """
        made, left = list(wanted), 0
        for _ in range(TRIES):
            paths = edits.paths_of(made)
            since = await self._versions.numbers()
            before = await self._read(view, paths)
            after, left = edits.take_back(before, made) if back else (edits.apply(before, made), 0)
            # A copy is there before its entry is struck, and as long as it is.
            copies = {edit.to for edit in made}
            for path in sorted(after, key=lambda path: (path in copies) is back):
                said = before.get(path, "")
                try:
                    await self._put_note(view, path, said, after[path], watch)
                except NoteChanged:
                    break
                except ToolError:
                    if watch.words:
                        raise
                    log.warning("memory.night_left_note")
                    made = [edit for edit in made if path not in edits.paths_of([edit])]
                    break
                await self._versions.changed(view.space, path, said, since, "night")
            else:
                break
        return left + len(wanted) - len(made)

    async def _put_note(
        self, view: MemoryView, path: str, before: str, after: str, watch: Watch
    ) -> None:
        notes = self._memory.notes
        if after:
            await notes.put(view, path, before.encode(), after.encode(), watch=watch)
        else:
            await notes.remove(view, path, before.encode(), watch=watch)

    async def _paths(self, view: MemoryView) -> list[str]:
        """The notes of a view's own space, without those that are too many or too long."""
        own = [
            each
            for each in await self._memory.files.names(view)
            if not each.path.startswith(f"{SHARED_SPACE}/") and each.size <= MAX_WRITE
        ]
        own.sort(key=lambda each: (each.changed_at, each.path), reverse=True)
        left, found = MOST_BYTES, list[str]()
        for each in own[:MOST_NOTES]:
            left -= each.size
            if left < 0:
                break
            found.append(each.path)
        return found

    async def _read(self, view: MemoryView, paths: Sequence[str]) -> dict[str, str]:
        """The texts of notes, by path; of those that are there, and are text."""
        found: dict[str, str] = {}
        for path in paths:
            try:
                data = await self._memory.files.data(view, path, MAX_WRITE + 1)
                said = data.decode()
            except (ToolError, UnicodeDecodeError):
                continue
            if said and len(data) <= MAX_WRITE:
                found[path] = said
        return found

    async def _put(
        self, space: str, before: Record, after: Record, watch: Watch | None = None
    ) -> bool:
        """Keep a record in the place of one; False when another one is there by now.

        It is also False when something was forgotten since a `watch` began.
        """
        now = self._clock()

        def work(tx: Transaction) -> bool:
            is_same = record.of_space(tx, space) == before
            if not is_same or (watch is not None and note_store.heard_forgetting(tx, watch)):
                return False
            record.put(tx, space, after, now)
            return True

        return await self._database.write(work)

    async def _update(self, space: str, change: Callable[[Record], Record]) -> None:
        now = self._clock()

        def work(tx: Transaction) -> None:
            found = record.of_space(tx, space)
            if (changed := change(found)) != found:
                record.put(tx, space, changed, now)

        await self._database.write(work)
