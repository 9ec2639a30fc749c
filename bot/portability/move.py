"""Moving everything from one place to another, so that it can be stopped anywhere and done again.

Rows go over in the order of their keys, so what is there already says where to go on. Each table is
compared as a whole right after; one that differs was changed since an earlier try, and is taken
anew once. Words are indexed as entries arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from bot.clock import Clock
from bot.errors import StorageError
from bot.portability.places import Digest, Home, TableRows, all_tables, must_be_text
from bot.sessions import entries, inbox, store
from bot.storage import Row, Transaction, months
from bot.storage.records import MOVE, MOVED, MOVED_FROM, drop_under, keep, text_of

INDEX, NOTES = "words", "notes"  # what is moved beside the tables
_CAME_FROM = f"{MOVE}source"
_PASSES = 3  # each row is copied, and read on both sides to be compared


@dataclass(frozen=True, slots=True)
class MoveStep:
    """Something was moved and compared: `rows` of a table, or notes; `digest` is of all of them."""

    what: str
    rows: int
    digest: str = ""
    state: Literal["moved", "again"] = "moved"


Advance = Callable[[int, int], None]
"""Hears how many steps are done, and of how many: rows and notes, copied and compared."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move. `others` counts files beside the notes, which were left."""

    was_done: bool = False
    others: int = 0


class Move:
    """One move; `tell` hears of each table when it is done, `advance` of the steps between."""

    def __init__(
        self,
        source: Home,
        target: Home,
        clock: Clock,
        tell: Callable[[MoveStep], object] = lambda _told: None,
        advance: Advance = lambda _done, _total: None,
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._tell = tell
        self._advance = advance
        self._done = self._total = 0  # steps
        self._forgotten = frozenset[int]()  # entries that no search may find

    async def run(self) -> Moved:
        """Move everything, or go on with that.

        Raises:
            StorageError: the target holds something else, or one of them cannot be used; what is
                there already stays, and the same move goes on behind it.
            ConfidantError: a note cannot be moved.
        """
        source, target = self._source, self._target
        if source.identity == target.identity:
            raise StorageError("Everything is there already: it is the same place.")
        others = await source.notes.others()
        paths = await source.notes.paths()
        if await self._begin(paths):
            return Moved(was_done=True, others=others)
        counts = await source.database.read(lambda tx: [each.count(tx) for each in all_tables()])
        self._total = _PASSES * sum(counts) + len(paths)
        forgotten = await source.database.read(lambda tx: tx.execute("SELECT seq FROM forgotten"))
        self._forgotten = frozenset(int(row[0]) for row in forgotten)
        for table, count in zip(all_tables(), counts, strict=True):
            before = self._done
            await self._bring(table)
            # What an earlier try had moved was not counted, and what is moved anew counted twice.
            self._done = before + _PASSES * count
        indexed = await target.database.write(self._settle_index)
        self._tell(MoveStep(INDEX, indexed.rows, str(indexed)))
        await self._bring_notes(paths)
        await target.database.write(self._finish)
        return Moved(others=others)

    async def _begin(self, paths: Sequence[str]) -> bool:
        """Mark the target as incomplete; True when this move was made before."""
        source, target = self._source, self._target
        if await source.database.read(_origin) not in {None, MOVED}:
            raise StorageError(f"A move into {source.name} is not complete: complete it first.")
        origin = await target.database.read(_origin)
        if origin == source.identity:
            return False
        before = await target.database.read(lambda tx: text_of(tx, _CAME_FROM))
        if origin == MOVED and before == source.identity:
            return True
        if origin not in {None, MOVED}:
            raise StorageError(
                f"A move from elsewhere into {target.name} is not complete. Nothing was "
                "changed: complete that one, or choose an empty place."
            )
        holds = await target.database.read(_first_with_rows)
        if not holds and await target.notes.paths():
            holds = NOTES
        if holds:
            raise StorageError(
                f"{target.name} is not empty: it holds {holds}. Nothing was changed; move "
                "to an empty place."
            )
        if target.is_shared:
            must_be_text([await source.notes.read(path) for path in paths])
        await target.database.write(lambda tx: self._keep(tx, MOVED_FROM, source.identity))
        return False

    async def _bring(self, table: TableRows) -> None:
        """Move a table and compare it.

        Raises:
            StorageError: it differs although it was taken anew.
        """
        source, target = self._source.database, self._target.database
        for _ in range(2):
            after = await target.read(table.last)
            if table.name == "entries" and after is None and self._target.is_shared:
                found = await source.read(months.stored)
                await target.write(lambda tx, found=found: months.lay_out(tx, found))
            while rows := await source.read(partial(table.page, after=after)):
                await target.write(partial(self._put, table=table, rows=rows))
                after = table.key_of(rows[-1])
                self._step(len(rows))
            there = await self._digest(self._source, table)
            here = await self._digest(self._target, table)
            if there == here:
                self._tell(MoveStep(table.name, here.rows, str(here)))
                return
            self._tell(MoveStep(table.name, here.rows, state="again"))
            await target.write(partial(_clear, table))
        raise _differs(table.name)

    def _put(self, tx: Transaction, *, table: TableRows, rows: Sequence[Row]) -> None:
        table.put(tx, rows)
        if table.name == "entries":
            seq, line = table.columns.index("seq"), table.columns.index("line")
            for row in rows:
                entry = entries.parse(row[line])
                if store.is_indexed(entry) and row[seq] not in self._forgotten:
                    tx.index_text(row[seq], entry.text)

    async def _digest(self, place: Home, table: TableRows) -> Digest:
        digest, after = Digest(), None
        while rows := await place.database.read(partial(table.page, after=after)):
            digest = digest.of(rows)
            after = table.key_of(rows[-1])
            self._step(len(rows))
        return digest

    def _step(self, steps: int) -> None:
        self._done = min(self._done + steps, self._total)
        self._advance(self._done, self._total)

    def _settle_index(self, tx: Transaction) -> Digest:
        """Take what was forgotten since an earlier try out of the index; what is in it then."""
        for number in self._forgotten:
            tx.forget_text(number)
        column = "entry" if self._target.is_shared else "rowid"
        return Digest().of(tx.execute(f"SELECT DISTINCT {column} FROM entries_text"))

    async def _bring_notes(self, paths: Sequence[str]) -> None:
        source, target = self._source.notes, self._target.notes
        there = set(await target.paths())
        if extra := sorted(there - set(paths)):
            raise StorageError(
                f"{self._target.name} holds notes that are not moved, such as {extra[0]}: they "
                "were removed meanwhile where they come from. Begin anew with an empty place."
            )
        digest = Digest()
        for path in paths:
            note = await source.read(path)
            if path not in there or (await target.read(path)).data != note.data:
                await target.write(note)
                if (await target.read(path)).data != note.data:
                    raise _differs(f"the note {path}")
            digest = digest.of([(path, note.data)])
            self._step(1)
        self._tell(MoveStep(NOTES, digest.rows, str(digest)))

    def _finish(self, tx: Transaction) -> None:
        """All is there and compared: let programs run on it."""
        if self._target.is_shared:
            for table in all_tables():
                if table.serial:  # the next row gets a number above all there are
                    tx.execute(
                        f"SELECT setval(pg_get_serial_sequence('{table.name}', '{table.serial}'), "
                        f"(SELECT coalesce(max({table.serial}), 0) + 1 FROM {table.name}), false)"
                    )
            inbox.reclaim(tx)  # what was begun in a folder is nobody's there
        else:  # transcripts have files there, which are as long as what is left of them
            for session_id in store.shortened(tx):
                store.measure(tx, session_id)
        drop_under(tx, MOVE)
        self._keep(tx, MOVED_FROM, MOVED)
        self._keep(tx, _CAME_FROM, self._source.identity)

    def _keep(self, tx: Transaction, key: str, value: str) -> None:
        keep(tx, key, value, self._clock())


def _origin(tx: Transaction) -> str | None:
    return text_of(tx, MOVED_FROM)


def _first_with_rows(tx: Transaction) -> str:
    """The first table of a place that holds anything; empty for none."""
    found = (each.name for each in all_tables() if each.name != "meta" and each.last(tx))
    return next(found, "")


def _clear(table: TableRows, tx: Transaction) -> None:
    table.clear(tx)
    if table.name == "entries":
        tx.execute("DELETE FROM entries_text")


def _differs(what: str) -> StorageError:
    return StorageError(
        f"What was moved differs: {what}. Something changed it meanwhile. The place it comes from "
        "is as it was, and nothing runs on the other one; do it again when nothing else writes."
    )
