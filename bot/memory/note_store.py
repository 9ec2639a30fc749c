"""Where notes stand, as files or as rows: the one way in which anything reaches them.

A note is named by `folders` and `name` below the workspace. `bot.memory.layout` says which names a
view may use; a store asks nothing about views. Its methods wait for a disk or a server, so they
are called in threads, but for those that are `async`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bot.errors import ToolError

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
        """How long it is, in bytes."""
        return self.look[1]


class NotesUnreachable(OSError):
    """The database that holds the notes does not answer."""


@dataclass(eq=False, slots=True)
class Watch:
    """What was forgotten in a space since somebody began to read it; nothing so far when empty.

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

    def read(self, folders: tuple[str, ...], name: str, limit: int) -> tuple[bytes, Seen]:
        """The first `limit` bytes of a note, and how it looked right after.

        Raises:
            NotVisible: it is no plain note.
            OSError: it cannot be read.
        """
        ...

    def append(
        self,
        folders: tuple[str, ...],
        name: str,
        lines: str,
        heading: str,
        watch: Watch | None = None,
    ) -> int:
        """Add whole lines to the end of a note, for good; the line they begin at.

        An empty or new one begins with `heading`.

        Raises:
            NotVisible: it is no plain note.
            ToolError: it is full, another program keeps replacing it, or something was forgotten.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def rewrite(
        self,
        folders: tuple[str, ...],
        name: str,
        change: Callable[[bytes], bytes],
        watch: Watch | None = None,
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

    def remove(self, folders: tuple[str, ...], name: str, before: bytes) -> bool:
        """Remove a note, for good, while it says what it said `before`; False if it does not.

        Raises:
            NotVisible: it is no plain note.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def can_write(self, folders: tuple[str, ...]) -> bool:
        """Whether notes can be put into these folders."""
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
