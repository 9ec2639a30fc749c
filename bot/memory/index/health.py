"""How an index file is, as somebody sees who does not use it and changes nothing in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import apsw

from bot.memory.index import note_files, schema
from bot.memory.index.store import known_of
from bot.memory.note_store import NoteStore

State = Literal["none", "damaged", "other", "building", "ready"]


@dataclass(frozen=True, slots=True)
class Health:
    """An index file.

    `state` is "other" for a file of another version, which is made anew, and "building" while no
    generation of it is whole. `behind` counts the notes that are not in it as they are now.
    """

    state: State
    behind: int = 0


def look(folder: Path, notes: NoteStore) -> Health:
    """Look at the index in a folder; for a thread.

    Raises:
        OSError: the notes cannot be looked through.
    """
    path = folder / schema.NAME
    if not path.exists():
        return Health("none")
    try:
        connection, has_vec = schema.connect(path, writing=False, extension=schema.load_vec)
        try:
            return _look(connection, notes, has_vec=has_vec)
        finally:
            connection.close()
    except (apsw.BusyError, apsw.LockedError):
        return Health("building")
    except apsw.Error:
        return Health("damaged")


def _look(connection: apsw.Connection, notes: NoteStore, *, has_vec: bool) -> Health:
    if schema.run(connection, "PRAGMA user_version")[0][0] != schema.FORMAT:
        return Health("other")
    # Without sqlite-vec its tables cannot be asked, and would count as damaged.
    if has_vec and schema.run(connection, "PRAGMA quick_check(1)") != [("ok",)]:
        return Health("damaged")
    live = schema.live(connection)
    if live is None:
        return Health("building")
    rows = schema.run(
        connection,
        live.tables(
            "SELECT p.name, s.name, s.id, s.mtime, s.size, s.inode FROM sources@ s "
            "JOIN partitions@ p ON p.id = s.partition WHERE s.kind = 'memory'"
        ),
    )
    known = {name: each for (_, name), each in known_of(rows).items()}
    seen, gone = note_files.differences(notes, known, {})
    changed = [each for each in seen if note_files.note(each) is not None]
    return Health("ready", len(changed) + len(gone))
