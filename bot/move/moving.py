"""Moving everything from one place to another, so that it can be stopped anywhere and done again.

Rows go over in the order of their keys, some at a time, and how far that is stands beside them, in
the same transaction. Each table is compared as a whole right after; one that differs was changed
since an earlier try began, and is taken anew once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import orjson

from bot.clock import Clock
from bot.errors import StorageError
from bot.move import notes as moved_notes
from bot.move import tables
from bot.move.places import Place
from bot.move.tables import Digest, Key, Table
from bot.sessions import entries, inbox
from bot.storage import Row, Transaction, months, upsert
from bot.storage.fulltext import Words
from bot.storage.meta import MOVE, MOVED, MOVED_FROM

ROWS = 200  # that go over at a time
INDEX, NOTES = "words", "notes"  # what is moved beside the tables
_PASSES = 3  # each row is copied, and read on both sides to be compared


@dataclass(frozen=True, slots=True)
class Told:
    """Something was moved and compared: `rows` of a table, or notes; `digest` is of all of them."""

    what: str
    rows: int
    digest: str = ""
    state: Literal["moved", "again"] = "moved"


Advance = Callable[[int, int], None]
"""Hears how many steps are done, and of how many: rows and notes, copied and compared."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move came to. `others` counts files beside the notes, which were left."""

    was_done: bool = False
    others: int = 0


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a table is: the key of the last row there, and whether that was the last of all."""

    after: Key | None = None
    is_done: bool = False


class Move:
    """One move; `tell` hears of each table when it is done, `advance` of the steps between."""

    def __init__(
        self,
        source: Place,
        target: Place,
        clock: Clock,
        tell: Callable[[Told], None],
        advance: Advance = lambda _done, _total: None,
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._tell = tell
        self._advance = advance
        self._done = self._total = 0  # steps

    async def run(self) -> Moved:
        """Move everything, or go on with that.

        Raises:
            StorageError: the target holds something else, or one of them cannot be used; what is
                there already stays, and the same move goes on behind it.
            ConfidantError: a note cannot be moved.
        """
        if self._source.identity == self._target.identity:
            raise StorageError("Everything is there already: it is the same place.")
        others = await self._source.notes.others()
        if await self._begin():
            return Moved(was_done=True, others=others)
        rows = await self._source.database.read(_counts)
        self._total = sum(_PASSES * count for count in rows.values())
        self._total += len(await self._paths())
        for table in tables.known():
            before = self._done
            await self._bring(table)
            # What an earlier try had moved was not counted, and what is moved anew counted twice.
            self._done = before + _PASSES * rows[table.name]
        await self._index()
        await self._bring_notes()
        await self._target.database.write(self._finish)
        return Moved(others=others)

    # --- beginning and end ------------------------------------------------------------------------

    async def _begin(self) -> bool:
        """Mark the target as incomplete; True when this move was made before."""
        source, target = self._source.database, self._target.database
        if await source.read(_origin) not in {None, MOVED}:
            raise StorageError(
                f"A move into {self._source.name} is not complete: complete it first."
            )
        origin = await target.read(_origin)
        if origin == self._source.identity:
            return False
        if origin == MOVED and await target.read(_came_from) == self._source.identity:
            return True
        if origin not in {None, MOVED}:
            raise StorageError(
                f"A move from elsewhere into {self._target.name} is not complete. Nothing was "
                "changed: complete that one, or choose an empty place."
            )
        holds = await target.read(_first_with_rows)
        if not holds and await self._target.notes.paths():
            holds = NOTES
        if holds:
            raise StorageError(
                f"{self._target.name} is not empty: it holds {holds}. Nothing was changed; move "
                "to an empty place."
            )
        if self._target.is_shared:
            notes = [await self._note(path) for path in await self._paths()]
            moved_notes.must_be_text(notes)
        await target.write(lambda tx: self._keep(tx, MOVED_FROM, self._source.identity))
        return False

    def _step(self, steps: int) -> None:
        self._done = min(self._done + steps, self._total)
        self._advance(self._done, self._total)

    def _finish(self, tx: Transaction) -> None:
        """All is there and compared: let programs run on it."""
        for table in tables.known():
            self._target.go_on_behind(tx, table)
        self._target.settle(tx)
        if self._target.is_shared:  # what was begun in a folder is nobody's there
            inbox.reclaim(tx)
        tx.execute("DELETE FROM meta WHERE substr(key, 1, ?) = ?", (len(MOVE), MOVE))
        self._keep(tx, MOVED_FROM, MOVED)
        self._keep(tx, _CAME_FROM, self._source.identity)

    def _keep(self, tx: Transaction, key: str, value: str) -> None:
        upsert(tx, "meta", ("key",), {"key": key, "value": value, "updated_at": self._clock()})

    # --- tables -----------------------------------------------------------------------------------

    async def _bring(self, table: Table) -> None:
        """Move a table and compare it.

        Raises:
            StorageError: it differs although it was taken anew.
        """
        for is_last in (False, True):
            await self._begin_table(table)
            await self._copy(table)
            there = await self._digest(self._source, table)
            here = await self._digest(self._target, table)
            if there == here:
                self._tell(Told(table.name, here.rows, str(here)))
                return
            if is_last:
                raise _differs(table.name)
            self._tell(Told(table.name, here.rows, state="again"))
            await self._target.database.write(partial(self._forget, table))

    async def _begin_table(self, table: Table) -> None:
        """Make room for entries, unless some of them are there already."""
        if table.name == "entries" and await self._progress(table.name) == _Progress():
            found = await self._source.database.read(months.stored)
            await self._target.database.write(lambda tx: self._target.lay_out(tx, found))

    async def _copy(self, table: Table) -> None:
        progress = await self._progress(table.name)
        while not progress.is_done:
            rows = await self._source.database.read(
                partial(table.page, after=progress.after, limit=ROWS)
            )
            progress = _Progress(
                table.key_of(rows[-1]) if rows else progress.after, is_done=len(rows) < ROWS
            )
            await self._target.database.write(
                partial(self._put, table=table, rows=rows, progress=progress)
            )
            self._step(len(rows))

    def _put(
        self, tx: Transaction, *, table: Table, rows: Sequence[Row], progress: _Progress
    ) -> None:
        if rows:
            table.put(tx, rows)
        self._note_progress(tx, table.name, progress)

    async def _digest(self, place: Place, table: Table) -> Digest:
        digest, after = Digest(), None
        while True:
            rows = await place.database.read(partial(table.page, after=after, limit=ROWS))
            digest = digest.of(rows)
            self._step(len(rows))
            if len(rows) < ROWS:
                return digest
            after = table.key_of(rows[-1])

    def _forget(self, table: Table, tx: Transaction) -> None:
        """Begin a table anew."""
        table.clear(tx)
        tx.execute("DELETE FROM meta WHERE key = ?", (f"{MOVE}{table.name}",))

    async def _progress(self, name: str) -> _Progress:
        rows = await self._target.database.read(
            lambda tx: tx.execute("SELECT value FROM meta WHERE key = ?", (f"{MOVE}{name}",))
        )
        if not rows:
            return _Progress()
        after, is_done = orjson.loads(rows[0][0])
        return _Progress(None if after is None else tuple(after), is_done)

    def _note_progress(self, tx: Transaction, name: str, progress: _Progress) -> None:
        value = orjson.dumps([progress.after, progress.is_done]).decode()
        self._keep(tx, f"{MOVE}{name}", value)

    # --- what is found by its words ---------------------------------------------------------------

    async def _index(self) -> None:
        """Index what is indexed where it comes from and was not forgotten; the words are new."""
        for is_last in (False, True):
            await self._index_on()
            wanted = set(await self._indexed(self._source)) - await self._forgotten()
            found = set(await self._indexed(self._target))
            if found <= wanted and not await self._has_words(sorted(wanted - found)):
                digest = Digest().of([(number,) for number in found])
                self._tell(Told(INDEX, digest.rows, str(digest)))
                return
            if is_last:
                raise _differs(INDEX)
            self._tell(Told(INDEX, len(found), state="again"))
            await self._target.database.write(_clear_index)

    async def _index_on(self) -> None:
        progress = await self._progress(INDEX)
        forgotten = await self._forgotten()
        while not progress.is_done:
            after = int(progress.after[0]) if progress.after else 0
            numbers = await self._source.database.read(
                partial(self._source.indexed, after=after, limit=ROWS)
            )
            texts = await self._texts([each for each in numbers if each not in forgotten])
            progress = _Progress((numbers[-1] if numbers else after,), is_done=len(numbers) < ROWS)
            await self._target.database.write(
                partial(self._put_words, texts=texts, progress=progress)
            )

    def _put_words(
        self, tx: Transaction, *, texts: Sequence[tuple[int, str]], progress: _Progress
    ) -> None:
        for number, text in texts:
            tx.index_text(number, text)
        self._note_progress(tx, INDEX, progress)

    async def _texts(self, numbers: Sequence[int]) -> list[tuple[int, str]]:
        if not numbers:
            return []
        marks = ", ".join("?" * len(numbers))
        rows = await self._source.database.read(
            lambda tx: tx.execute(f"SELECT seq, line FROM entries WHERE seq IN ({marks})", numbers)
        )
        return [(int(seq), entries.parse(line).text) for seq, line in rows]

    async def _has_words(self, numbers: Sequence[int]) -> bool:
        """True when an entry that is not found has words: a server keeps no row for one without."""
        words = Words()
        for at in range(0, len(numbers), ROWS):
            if any(words.of(text) for _, text in await self._texts(numbers[at : at + ROWS])):
                return True
        return False

    async def _indexed(self, place: Place) -> list[int]:
        found: list[int] = []
        while True:
            after = found[-1] if found else 0
            more = await place.database.read(partial(place.indexed, after=after, limit=ROWS * 50))
            if not more:
                return found
            found += more

    async def _forgotten(self) -> set[int]:
        rows = await self._source.database.read(lambda tx: tx.execute("SELECT seq FROM forgotten"))
        return {int(row[0]) for row in rows}

    # --- notes ------------------------------------------------------------------------------------

    async def _bring_notes(self) -> None:
        there = set(await self._target.notes.paths())
        paths = await self._paths()
        if extra := sorted(there - set(paths)):
            raise StorageError(
                f"{self._target.name} holds notes that are not moved, such as {extra[0]}: they "
                "were removed meanwhile where they come from. Begin anew with an empty place."
            )
        digest = Digest()
        for path in paths:
            note = await self._note(path)
            if path not in there or (await self._target.notes.read(path)).data != note.data:
                await self._target.notes.write(note)
            if (await self._target.notes.read(path)).data != note.data:
                raise _differs(f"the note {path}")
            digest = digest.of([(path, note.data)])
            self._step(1)
        self._tell(Told(NOTES, digest.rows, str(digest)))

    async def _paths(self) -> Sequence[str]:
        return await self._source.notes.paths()

    async def _note(self, path: str) -> moved_notes.Note:
        return await self._source.notes.read(path)


_CAME_FROM = f"{MOVE}source"


def _counts(tx: Transaction) -> dict[str, int]:
    """How many rows each table has."""
    return {
        table.name: int(tx.execute(f"SELECT count(*) FROM {table.name}")[0][0])
        for table in tables.known()
    }


def _origin(tx: Transaction) -> str | None:
    rows = tx.execute("SELECT value FROM meta WHERE key = ?", (MOVED_FROM,))
    return str(rows[0][0]) if rows else None


def _came_from(tx: Transaction) -> str | None:
    rows = tx.execute("SELECT value FROM meta WHERE key = ?", (_CAME_FROM,))
    return str(rows[0][0]) if rows else None


def _first_with_rows(tx: Transaction) -> str:
    """What a place holds already; empty for nothing."""
    for table in tables.known():
        if table.name != "meta" and table.page(tx, None, 1):
            return table.name
    return ""


def _clear_index(tx: Transaction) -> None:
    tx.execute("DELETE FROM entries_text")
    tx.execute("DELETE FROM meta WHERE key = ?", (f"{MOVE}{INDEX}",))


def _differs(what: str) -> StorageError:
    return StorageError(
        f"What was moved differs: {what}. Something changed it meanwhile. The place it comes from "
        "is as it was, and nothing runs on the other one; do it again when nothing else writes."
    )
