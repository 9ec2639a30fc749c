"""The notes as the index sees them: which there are, and what they say."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

from bot.errors import NotVisible
from bot.memory import chunking, layout
from bot.memory.index.engine import Known
from bot.memory.layout import Located
from bot.memory.note_store import NoteStore, Seen

MAX_BYTES = 8_000_000  # of a note; a longer file is no note, and is named in the status instead
MAX_FILES = 50_000
_MOST_LAST = 4  # line ends that a note may have beyond what its chunks tell


@dataclass(frozen=True, slots=True)
class Note:
    """A file that belongs into the index; `seen` has its path below the workspace."""

    seen: Seen
    located: Located


@dataclass(frozen=True, slots=True)
class Content:
    """What a note holds; `problem` says what of it could not be taken as it is."""

    text: str
    hash: bytes
    problem: str = ""


class Changed(Exception):
    """The file was written since it was come across."""


def files(notes: NoteStore, refused: dict[str, str] | None = None) -> Iterator[Seen]:
    """Every Markdown file below the workspace; `refused` as `NoteStore.walk` has it.

    Raises:
        OSError: the workspace itself cannot be read.
    """
    found = notes.walk((), layout.is_note, layout.MAX_PARTS, refused)
    return islice(found, MAX_FILES)


def differences(
    notes: NoteStore, known: Mapping[str, Known], refused: dict[str, str]
) -> tuple[list[Seen], list[int]]:
    """The notes that are not known, or look different, and the known ones that are gone.

    Raises:
        OSError: the workspace itself cannot be read.
    """
    left, changed = dict(known), list[Seen]()
    for seen in files(notes, refused):
        row = left.pop(seen.path, None)
        if row is None or row.look != seen.look:
            changed.append(seen)
    # What lies in a folder that cannot be looked into is not gone.
    hidden = tuple(refused)
    return changed, [each.id for name, each in left.items() if not name.startswith(hidden)]


def note(seen: Seen) -> Note | None:
    """A file as a note, or None when it is none."""
    located = layout.locate(PurePosixPath(seen.path))
    return Note(seen, located) if located is not None else None


def read(notes: NoteStore, note: Note) -> Content:
    """A note's text. What is not UTF-8 is read as well as it can be.

    Raises:
        Changed: it was just written; it will be read the next time.
        OSError: it cannot be read.
    """
    if (size := note.seen.size) > MAX_BYTES:
        reason = f"too long: {size // 1_000_000} MB of at most {MAX_BYTES // 1_000_000} MB"
        return Content("", b"", reason)
    data = _read_bytes(notes, note)
    hashed = _hash(data)
    try:
        return Content(data.decode("utf-8-sig"), hashed)
    except UnicodeDecodeError:
        return Content(_decoded(data), hashed, "not UTF-8: some characters may be wrong")


def restored(chunks: Iterable[tuple[int, int, str]], hashed: bytes) -> str | None:
    """What a note said when these chunks were made of it, exactly; None when they do not tell."""
    text = chunking.joined(chunks)
    for ends in ("\n", "\r\n"):
        for count in range(_MOST_LAST):
            said = text.replace("\n", ends) + count * ends
            if _hash(said.encode("utf-8", "surrogatepass")) == hashed:
                return said
    return None


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _read_bytes(notes: NoteStore, note: Note) -> bytes:
    *folders, name = PurePosixPath(note.seen.path).parts
    try:
        data, after = notes.read(tuple(folders), name, MAX_BYTES + 1)
    except NotVisible as error:  # something else took its place
        raise Changed from error
    if after.look != note.seen.look:
        raise Changed
    return data


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("latin-1")
