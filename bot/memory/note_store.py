"""The store of notes, as files or as rows: everything reaches notes through it.

A note is named by its path below the workspace. `bot.memory.layout` says which paths a view may
use; a store asks nothing about views. Its methods wait for a disk or a server, so they
are called in threads, but for those that are `async`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bot.errors import ToolError
from bot.storage import Transaction, scalar, scalars

MAX_WRITE = 1_000_000  # bytes of a note that is written to
TRIES = 8  # another program may change the note just while it is being written
KEEPS_CHANGING = "another program keeps changing this file; nothing was written"
FORGOTTEN = (
    "the person has just had something forgotten, so nothing was written that may come from before "
    "that"
)


class Seen(NamedTuple):
    """A note that was come across: its path below the workspace, and how it looked.

    `look` is another one after each change: when that was (ns), its size, and the number of its
    file or of its version.
    """

    path: str
    look: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.look[1]


class NotesUnreachable(OSError):
    """The database that holds the notes does not answer."""


@dataclass(eq=False, slots=True)
class Watch:
    """The words forgotten in a space since somebody began to read it.

    `number` is that of the last forgetting before it, where other nodes may forget as well.
    """

    space: str = ""
    number: int | None = None
    words: list[str] = field(default_factory=list[str])


class NoteStore(Protocol):
    """The notes of every space."""

    def walk(
        self,
        folders: tuple[str, ...],
        wanted: Callable[[str], bool],
        depth: int,
        refused: dict[str, str] | None = None,
    ) -> Iterator[Seen]:
        """Every note below some folders whose name is `wanted`, each folder's own first.

        `depth` is how many components a path below `folders` may have. `refused` gets the folders
        that cannot be looked into, each ending in "/", and why.

        Raises:
            OSError: the folder to begin with cannot be read.
        """
        ...

    def read(self, path: str, limit: int) -> tuple[bytes, Seen]:
        """The first `limit` bytes of a note, and how it looked right after.

        Raises:
            NotVisible: it is no plain note.
            OSError: it cannot be read.
        """
        ...

    def append(self, path: str, lines: str, heading: str, watch: Watch | None = None) -> int:
        """Add whole lines to the end of a note, for good; the line they begin at.

        An empty or new one begins with `heading`.

        Raises:
            NotVisible: it is no plain note.
            ToolError: it is full, another program keeps replacing it, or something was forgotten.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def rewrite(
        self, path: str, change: Callable[[bytes], bytes], watch: Watch | None = None
    ) -> bytes:
        """Put `change` of a note's content in its place, for good; what it holds now.

        `change` gets empty bytes for a note that is not there yet, and is asked again when another
        program changes the note meanwhile, so that neither side's words are lost.

        Raises:
            NotVisible: it is no plain note.
            ToolError: it would be too large, another program keeps changing it, or something was
                forgotten.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def remove(self, path: str, before: bytes) -> bool:
        """Remove a note, for good, while it says what it said `before`; False if it does not.

        Raises:
            NotVisible: it is no plain note.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def can_write(self, folders: tuple[str, ...]) -> bool:
        """True if notes can be written into these folders."""
        ...

    def make(self) -> None:
        """See to it that there is a place for notes.

        Raises:
            OSError: there can be none.
        """
        ...

    def prepare(self) -> int:
        """Begin a new workspace with the templates; how many were copied."""
        ...

    async def tidy(self) -> None:
        """Let go of what is kept for a while only; now and then, by one node. Never raises."""
        ...

    async def watch(
        self, on_change: Callable[[], None], on_state: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        """Call `on_change` when somebody else changes a note, until `stop` is set.

        `on_state` gets why watching does not work, or an empty text when it does.
        """
        ...

    async def begin_watch(self, watch: Watch) -> None:
        """Let a watch know where it begins, before anything of its space is read.

        Raises:
            StorageError: the database cannot be read.
        """
        ...

    async def forgot(self, space: str, words: str) -> None:
        """Refuse what others write with a watch from before this, on whatever node.

        Raises:
            StorageError: the database does not take it.
        """
        ...


def must_fit(size: int) -> None:
    """Refuse a note that is too long to be written to.

    Raises:
        ToolError: it is.
    """
    if size > MAX_WRITE:
        raise ToolError(f"this file is full: at most {MAX_WRITE // 1000} kB; use another one")


# What was forgotten of late, for nodes that do not hear each other at once.
#
# A turn or a flush reads first and writes later, and meanwhile another node may forget what it
# has read. Each forgetting has the next number of its space; who reads remembers the last one,
# and looks in the very transaction that writes whether there were others since.

FORGETTINGS_KEPT_MS = (
    3_600_000  # words are cleared after so long: no turn that began before is at work still
)


def last_forgetting(tx: Transaction, space: str) -> int:
    """The number of a space's last forgetting; 0 when there was none."""
    return scalar(tx, "SELECT coalesce(max(number), 0) FROM forgettings WHERE space = ?", space)


def tell_forgetting(tx: Transaction, space: str, words: str, now: int) -> None:
    """Let whoever watches a space know, on whatever node, what was forgotten there."""
    tx.execute(
        "INSERT INTO forgettings(space, number, words, at) VALUES (?, ?, ?, ?)",
        (space, last_forgetting(tx, space) + 1, words, now),
    )


def heard_forgetting(tx: Transaction, watch: Watch) -> tuple[str, ...]:
    """The words forgotten since a watch began; an empty text stands for words that were cleared."""
    if watch.number is None:
        return tuple(watch.words)
    since = "SELECT words FROM forgettings WHERE space = ? AND number > ? ORDER BY number"
    return tuple(dict.fromkeys((*watch.words, *scalars(tx, since, watch.space, watch.number))))


def clear_forgettings(tx: Transaction, now: int) -> None:
    """Let go of words that nobody can write any more."""
    tx.execute(
        "UPDATE forgettings SET words = '' WHERE words <> '' AND at < ?",
        (now - FORGETTINGS_KEPT_MS,),
    )
