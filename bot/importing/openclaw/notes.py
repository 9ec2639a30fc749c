"""The notes of an OpenClaw workspace, brought into the owner's.

What it remembered (MEMORY.md, USER.md, the notes of days and topics) is added to the notes of the
same names, day by day, marked as imported. Its character (SOUL.md, IDENTITY.md) is taken where
nobody has written one here. How it worked (AGENTS.md and others) is its own, and stays there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from bot.errors import NotVisible, ToolError
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.importing import marking
from bot.importing.openclaw import home
from bot.importing.values import Skipped
from bot.memory import exchange, layout
from bot.memory.exchange import ExchangeError
from bot.memory.note_store import MAX_WRITE, NoteStore
from bot.memory.notes import is_day_note
from bot.storage import Database, Transaction
from bot.storage.meta import keep, text_of

MAX_NOTES = 50_000
_KEY = "import.openclaw:"  # in `meta`, and the path of a note: what was brought to it
_CHARACTER = ("SOUL.md", "IDENTITY.md")
_OWN_WORK = ("AGENTS.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md", "DREAMS.md")
_OWNER = MemoryView(MAIN_SPACE, (), private=True)


@dataclass(frozen=True, slots=True)
class Note:
    """A note there is: its path here, what it says, and the day it was changed last."""

    path: str
    text: str
    day: str
    is_character: bool = False


@dataclass(frozen=True, slots=True)
class Brought:
    """What bringing a note does: how much of it is new; `is_new` when there is none here yet.

    `pieces` counts entries, paragraphs and the like.
    """

    path: str
    pieces: int
    is_new: bool


def found(workspace: Path) -> Iterator[Note | Skipped]:
    """The notes of a workspace, and what of it is not brought."""
    for path, file in _files(workspace):
        name = layout.MEMORY_FILE if path.lower() == layout.MEMORY_FILE.lower() else path
        if name in _OWN_WORK:
            yield Skipped(path, "it is about how OpenClaw works, and stays there")
            continue
        try:
            layout.resolve(_OWNER, name, writing=True) if name not in _CHARACTER else None
            text, day = _read(name, file)
        except NotVisible:
            yield Skipped(path, "no note here can have this name")
        except (ExchangeError, OSError) as exc:
            yield Skipped(path, str(exc) if isinstance(exc, ExchangeError) else exc.strerror or "")
        else:
            yield Note(name, text, "" if is_day_note(name) else day, name in _CHARACTER)


def _files(workspace: Path) -> Iterator[tuple[str, Path]]:
    """Every Markdown file at the root and in `memory`, by its path; links are not followed."""
    count = 0
    for parent, inner, names in os.walk(workspace):
        here = Path(parent).relative_to(workspace)
        is_root = here == Path()
        kept = (name for name in inner if not name.startswith("."))
        inner[:] = sorted(name for name in kept if not is_root or name == layout.NOTES_FOLDER)
        for name in sorted(names):
            file = Path(parent) / name
            if name.startswith(".") or not layout.is_note(name) or file.is_symlink():
                continue
            count += 1
            if count > MAX_NOTES:
                return
            yield (here / name).as_posix(), file


def _read(name: str, file: Path) -> tuple[str, str]:
    with file.open("rb") as opened:
        text = exchange.checked(name, opened.read(MAX_WRITE + 1))
        changed = os.fstat(opened.fileno()).st_mtime
    return text, f"{datetime.fromtimestamp(changed, UTC):%Y-%m-%d}"


async def bring(
    database: Database | None, store: NoteStore, note: Note, now: int, *, is_rehearsal: bool
) -> Brought | Skipped | None:
    """Add what is new of a note to the one here; None when there is nothing.

    It is on the disk before it is noted that it was brought, and what stands there already is not
    added again: so it can be interrupted anywhere, and called again.

    Raises:
        StorageError: it was not noted; it can be called again.
    """
    try:
        before = exchange.text_of(store, note.path)
        if note.is_character:
            return _character(store, note, before, is_rehearsal=is_rehearsal)
        known = frozenset[str]()
        if database is not None:
            known = await database.read(lambda tx: _known(tx, note.path))
        pieces = home.written(marking.pieces(note.text))
        after = marking.merged(before or "", pieces, known, note.day)
        is_new = after != (before or "")
        if is_new and not is_rehearsal:
            exchange.write(store, exchange.Change(note.path, before or "", after))
    except (ExchangeError, ToolError) as exc:
        return Skipped(note.path, str(exc))
    digests = known.union(piece.digest for piece in pieces)
    if database is not None and not is_rehearsal and digests != known:
        await database.write(lambda tx: _remember(tx, note.path, sorted(digests), now))
    size = marking.count(after) - marking.count(before or "")
    return Brought(note.path, size, is_new=before is None) if is_new else None


def _character(
    store: NoteStore, note: Note, before: str | None, *, is_rehearsal: bool
) -> Brought | Skipped | None:
    """Take a file about the bot's character, where nobody has written one here."""
    if before == note.text:
        return None
    if home.is_untouched(marking.pieces(note.text)):
        return Skipped(note.path, "it is as OpenClaw made it")
    if before is not None and before != layout.templates().get(note.path):
        return Skipped(note.path, "there is one here that somebody wrote; compare them")
    if not is_rehearsal:
        exchange.write(store, exchange.Change(note.path, before or "", note.text))
    return Brought(note.path, marking.count(note.text), is_new=before is None)


def _known(tx: Transaction, path: str) -> frozenset[str]:
    return frozenset(orjson.loads(text_of(tx, f"{_KEY}{path}") or "[]"))


def _remember(tx: Transaction, path: str, digests: list[str], now: int) -> None:
    keep(tx, f"{_KEY}{path}", orjson.dumps(digests).decode(), now)
