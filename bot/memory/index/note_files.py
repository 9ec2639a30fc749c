"""The notes as the index sees them: which there are, and what they say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

from bot.errors import NotVisible
from bot.memory import chunking, layout
from bot.memory.layout import Located
from bot.memory.note_store import NoteStore, Seen
from bot.unicode import decoded

MAX_BYTES = 8_000_000  # of a note; a longer file is no note, and is named in the status instead
MAX_FILES = 50_000
# What Syncthing, Dropbox, Nextcloud and others call the other version of a note.
_CONFLICT = re.compile(r"\.sync-conflict-[0-9]|\bconflicted copy\b", re.IGNORECASE)
_MERGE_MARKS = (b"\n<<<<<<< ", b"\n=======", b"\n>>>>>>> ")
_MOST_LAST = 4  # line ends that a note may have beyond what its chunks tell


class Known(NamedTuple):
    """A source that is in the index, and how its note looked; see `note_store.Seen`."""

    id: int
    look: tuple[int, int, int]


class Note(NamedTuple):
    """A file that belongs into the index; `seen` has its path below the workspace."""

    seen: Seen
    located: Located


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a note; `problem` says what of it could not be taken as it is."""

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
) -> tuple[list[Note], list[int]]:
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
    gone = [each.id for name, each in left.items() if not name.startswith(tuple(refused))]
    return notes_of(changed), gone


def notes_of(every: Iterable[Seen]) -> list[Note]:
    """Those of some files that are notes."""
    located = ((seen, layout.locate(PurePosixPath(seen.path))) for seen in every)
    return [Note(seen, place) for seen, place in located if place is not None]


def read(notes: NoteStore, seen: Seen) -> Content:
    """A note's text. What is not UTF-8 is read as well as it can be.

    Raises:
        Changed: it was just written; it will be read the next time.
        OSError: it cannot be read.
    """
    data, problem = data_of(notes, seen)
    if problem:
        return Content("", b"", problem)
    return content_of(data)


def content_of(data: bytes) -> Content:
    """The text of a note's bytes."""
    hashed = hash_of(data)
    lines = b"\n" + data
    is_torn = all(mark in lines for mark in _MERGE_MARKS)
    problem = "git left two versions in it: choose between them" if is_torn else ""
    try:
        return Content(data.decode("utf-8-sig"), hashed, problem)
    except UnicodeDecodeError:
        return Content(decoded(data), hashed, "not UTF-8: some characters may be wrong")


def data_of(notes: NoteStore, seen: Seen, most: int = MAX_BYTES) -> tuple[bytes, str]:
    """The bytes of a file; or why it is none that is read.

    Raises:
        Changed: it was just written; it will be read the next time.
        OSError: it cannot be read.
    """
    if _CONFLICT.search(PurePosixPath(seen.path).name):
        return b"", "a conflict copy: put what is right in it into the note, remove it"
    if (size := seen.size) > most:
        return b"", f"too long: {size // 1_000_000} MB of at most {most // 1_000_000} MB"
    try:
        data, after = notes.read(seen.path, most + 1)
    except NotVisible as error:  # something else took its place
        raise Changed from error
    if after.look != seen.look:
        raise Changed
    return data, ""


def restored(chunks: Iterable[tuple[int, int, str]], hashed: bytes) -> str | None:
    """The exact text of a note when these chunks were made of it; None when they do not tell."""
    text = chunking.joined(chunks)
    for ends in ("\n", "\r\n"):
        for count in range(_MOST_LAST):
            said = text.replace("\n", ends) + count * ends
            if hash_of(said.encode("utf-8", "surrogatepass")) == hashed:
                return said
    return None


def hash_of(data: bytes) -> bytes:
    """The digest of a file's content."""
    return hashlib.blake2b(data, digest_size=16).digest()
