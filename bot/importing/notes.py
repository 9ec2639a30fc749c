"""Notes of other programs, brought into somebody's own: added to those of the same names, once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from bot.errors import NotVisible, ToolError
from bot.identity.routing import OWNER
from bot.identity.view import MAIN_SPACE, MemoryView, folder_name
from bot.importing import values
from bot.importing.storing import brought, note
from bot.importing.values import Piece, Remembered, Skipped
from bot.memory import exchange, layout
from bot.memory.exchange import ExchangeError
from bot.memory.note_store import MAX_WRITE, NoteStore
from bot.memory.notes import is_day_note
from bot.storage import Database

MAX_NOTES = 50_000
_KEY = "import.openclaw:"  # in `meta`, and the path of a note: what was brought to it


@dataclass(frozen=True, slots=True)
class Brought:
    """What bringing a note does: how much of it is new; `is_new` when there is none here yet.

    `pieces` counts entries, paragraphs and the like.
    """

    path: str
    pieces: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Notes:
    """Somebody's notes, as an import writes them; in a rehearsal it only looks.

    Without a database nothing was brought before.
    """

    database: Database | None
    store: NoteStore
    person: str
    now: int
    is_rehearsal: bool

    @property
    def view(self) -> MemoryView:
        """Their notes, and nobody else's."""
        is_owner = self.person == OWNER
        space = MAIN_SPACE if is_owner else f"people/{folder_name(self.person)}"
        return MemoryView(space, (), private=True)

    async def remember(self, found: Iterable[Remembered]) -> list[Brought | Skipped]:
        """Bring what a program remembered, each note with all that belongs into it."""
        done: list[Brought | Skipped | None] = []
        ordered = sorted(found, key=lambda one: (one.path, one.about))
        for path, some in groupby(ordered, key=lambda one: one.path):
            pieces: list[Piece] = []
            for about, ones in groupby(some, key=lambda one: one.about):
                pieces += [Piece(f"## {about}", is_heading=True)] if about else []
                for one in sorted(ones, key=lambda one: one.at):
                    day = _day_of(path, one.at)
                    pieces += [replace(each, day=day) for each in values.pieces(one.text)]
            done.append(await self.bring(path, pieces, self.now))
        return [each for each in done if each is not None]

    async def bring(self, path: str, pieces: Sequence[Piece], at: int) -> Brought | Skipped | None:
        """Add what is new of a note to the one here; None when there is nothing.

        It is on the disk before it is noted that it was brought, and what stands there already is
        not added again: so it can be interrupted anywhere, and called again.

        Raises:
            StorageError: it was not noted; it can be called again.
        """
        view = self.view
        name = path if view.space == MAIN_SPACE else f"{view.space}/{path}"
        known = frozenset[str]()
        try:
            before = exchange.text_of(self.store, path, view)
            if self.database is not None:
                known = frozenset(await self.database.read(lambda tx: brought(tx, f"{_KEY}{name}")))
            after = values.merged(before or "", pieces, known, _day_of(path, at))
            is_new = after != (before or "")
            if is_new and not self.is_rehearsal:
                exchange.write(self.store, exchange.Change(path, before or "", after), view)
        except NotVisible:
            return Skipped(path, "no note here can have this name")
        except (ExchangeError, ToolError) as exc:
            return Skipped(path, str(exc))
        digests = known.union(piece.digest for piece in pieces)
        if self.database is not None and not self.is_rehearsal and digests != known:
            await self.database.write(lambda tx: note(tx, f"{_KEY}{name}", digests, self.now))
        size = values.count(after) - values.count(before or "")
        return Brought(path, size, is_new=before is None) if is_new else None


def files(folder: Path, *, below: Collection[str] = ()) -> Iterator[tuple[str, Path]]:
    """Every Markdown file in a folder, by its path; hidden ones and links are not followed.

    Of the folders at its root only those of `below`, if it names some.
    """
    count = 0
    for parent, inner, names in os.walk(folder):
        here = Path(parent).relative_to(folder)
        is_root = here == Path()
        kept = (name for name in inner if not name.startswith("."))
        inner[:] = sorted(name for name in kept if not (is_root and below) or name in below)
        for name in sorted(names):
            file = Path(parent) / name
            if name.startswith(".") or not layout.is_note(name) or file.is_symlink():
                continue
            count += 1
            if count > MAX_NOTES:
                return
            yield (here / name).as_posix(), file


# What a folder of another program's has at its root that is about how that one works.
OWN_WORK = ("AGENTS.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md", "DREAMS.md")
CHARACTER = ("SOUL.md", "IDENTITY.md")
_MEMORIES = ("memory", "memories")  # where nanobot and Hermes have theirs
_BETWEEN = "\n§\n"  # two entries of Hermes


def of_folder(folder: Path) -> list[Path]:
    """The notes of a folder; of one that a program works in only those that it remembers."""
    is_workspace = any((folder / name).is_file() for name in (*OWN_WORK, *CHARACTER)) or any(
        (folder / name / layout.MEMORY_FILE).is_file() for name in _MEMORIES
    )
    return [file for _, file in files(folder, below=_MEMORIES if is_workspace else ())]


def remembered(folder: Path, file: Path) -> Remembered | Skipped:
    """A note of a folder, under the name it gets here."""
    parts = file.relative_to(folder).parts if file != folder else (file.name,)
    shown = "/".join(parts)
    if len(parts) == 1 and parts[0] in (*OWN_WORK, *CHARACTER):
        return Skipped(shown, "it is about how the other program works, and stays there")
    inner = parts[1:] if len(parts) > 1 and parts[0] in _MEMORIES else parts
    name = f"{file.stem.upper()}.md"
    path = "/".join((layout.NOTES_FOLDER, *inner))
    if len(inner) == 1 and name in layout.PRIVATE_FILES:
        path = name
    try:
        text, changed = read(shown, file)
    except (ExchangeError, OSError) as exc:
        return Skipped(shown, str(exc) if isinstance(exc, ExchangeError) else exc.strerror or "")
    if _BETWEEN in text:
        entries = (entry.strip().replace("\n", "\n  ") for entry in text.split(_BETWEEN))
        text = "\n".join(f"- {entry}" for entry in entries if entry)
    return Remembered(path, "", text, changed)


def read(name: str, file: Path) -> tuple[str, int]:
    """What a file says, and when it was changed last, in ms since the epoch.

    Raises:
        ExchangeError: it is no text, or too long.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        text = exchange.checked(name, opened.read(MAX_WRITE + 1))
        return text, int(os.fstat(opened.fileno()).st_mtime * 1000)


def _day_of(path: str, at: int) -> str:
    """The day of a time (in ms since the epoch), empty in a day's note, whose name says it."""
    return (
        f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d}" if at and not is_day_note(path) else ""
    )
