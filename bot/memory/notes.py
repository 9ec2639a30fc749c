"""Writing Markdown through a `MemoryView`: each write is on disk when it returns, or is not made.

Daily notes are only ever appended to, but for what a comment says of its entry. Elsewhere an entry
or a section may be replaced, and what stood there before moves to the day's note. Names are those
of `bot.memory.layout`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import date, datetime
from typing import TypeVar, cast
from weakref import WeakValueDictionary

from bot.errors import NotVisible, ToolError
from bot.identity.view import MemoryView
from bot.memory import claims, disk, layout, markdown
from bot.memory.disk import FORGOTTEN, MAX_WRITE, NoteStore, Watch
from bot.memory.layout import NOTES_FOLDER
from bot.memory.markdown import Changed, Provenance
from bot.memory.versions import Versions
from bot.plugins import Saved

T = TypeVar("T")

_DAY_NOTE = re.compile(rf"{NOTES_FOLDER}/\d{{4}}-\d\d-\d\d\.md")


class NoteChanged(ToolError):
    """The note was changed since it was read; nothing was written."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a note: a path as the person knows it, and a line counted from 1."""

    path: str
    line: int


def listed(places: Sequence[Place]) -> str:
    """Places as people read them: "MEMORY.md:7, memory/2026-07-01.md:3-5"."""
    lines: dict[str, list[int]] = {}
    for place in places:
        lines.setdefault(place.path, []).append(place.line)
    parts: list[str] = []
    for path, numbers in lines.items():
        ordered = sorted(set(numbers))
        while ordered:
            run = next(
                (n for n in range(1, len(ordered)) if ordered[n] != ordered[0] + n), len(ordered)
            )
            last = f"-{ordered[run - 1]}" if run > 1 else ""
            parts.append(f"{path}:{ordered[0]}{last}")
            del ordered[:run]
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The places of the new words and of the old ones; None when there were no old ones."""

    new: Place
    old: Place | None = None


class Notes:
    """The notes of every space, to write.

    A turn or a flush reads first and writes later, perhaps much later. So it watches the space of
    what it read: forgetting tells everybody who watches, and what they write with their `watch` is
    refused, as it may be made of those words. Whoever comes while it lasts waits until it is over.
    """

    def __init__(
        self,
        store: NoteStore,
        written: Callable[[], object] = lambda: None,
        versions: Versions | None = None,
        saved: Callable[[Saved], None] | None = None,
    ) -> None:
        """Write to `store`; `written` is called after each change, to have it indexed.

        `versions` keeps what a note said before something in it was replaced. `saved` hears of
        each entry that is on disk.
        """
        self._tell = saved
        self._store = store
        self._versions = versions
        self._written = written
        # One write at a time, in a thread of its own: what waits here delays no name look-up.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-notes")
        self._watches: dict[str, list[Watch]] = {}  # by space
        self._forgetting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def can_write(self, view: MemoryView) -> bool:
        """True if the view has a space, and its folder, or the nearest one above, is writable."""
        if not view.space:
            return False
        folders = (*layout.space_folders(view), NOTES_FOLDER)
        return await asyncio.to_thread(self._store.can_write, folders)

    @asynccontextmanager
    async def watching(self, view: MemoryView) -> AsyncGenerator[Watch]:
        """Hear of what is forgotten in a view's space; begin before anything of it is read."""
        watch = Watch(view.space)
        async with self._forgetting.setdefault(view.space, asyncio.Lock()):
            watches = self._watches.setdefault(view.space, [])
            watches.append(watch)
        try:
            await self._store.begin_watch(watch)
            yield watch
        finally:
            watches.remove(watch)
            if not watches:
                self._watches.pop(view.space, None)

    @asynccontextmanager
    async def forgetting(self, view: MemoryView, words: str) -> AsyncGenerator[None]:
        """Let nothing that was read before be written any more; what is within removes words."""
        async with self._forgetting.setdefault(view.space, asyncio.Lock()):
            for watch in self._watches.get(view.space, ()):
                watch.words.append(words)
            await self._run(lambda: None)  # what began before is on disk then, and can be found
            await self._store.forgot(view.space, words)
            yield
            # Who began to read elsewhere in between may have read the words still.
            await self._store.forgot(view.space, words)

    async def remember(
        self,
        view: MemoryView,
        text: str,
        now: datetime,
        by: Provenance | None = None,
        *,
        watch: Watch | None = None,
    ) -> Place:
        """Append an entry to the note of `now`'s own date; returns once it is on disk.

        Raises:
            NotVisible: the view has no space, or its path is not one of plain folders and files.
            ToolError: the disk did not take it.
        """
        lines = markdown.bullet(text, now, by)
        return await self.append(view, day_note(now), lines, heading=_heading(now), watch=watch)

    async def add(
        self,
        view: MemoryView,
        path: str,
        text: str,
        day: date,
        by: Provenance | None = None,
        *,
        watch: Watch | None = None,
    ) -> Place:
        """Append an entry to a file that is not a day's note.

        Raises:
            NotVisible: no file by that name can be in this view.
            ToolError: the disk did not take it.
        """
        title = path.rsplit("/", 1)[-1].removesuffix(layout.SUFFIX)
        lines = markdown.fact(text, day, by)
        return await self.append(view, path, lines, heading=f"# {title}\n\n", watch=watch)

    async def append(
        self,
        view: MemoryView,
        path: str,
        lines: str,
        *,
        heading: str = "",
        watch: Watch | None = None,
    ) -> Place:
        """Append whole lines to a file; an empty or new one begins with `heading`.

        Raises:
            NotVisible: no file by that name can be in this view.
            ToolError: the disk did not take it.
        """
        target = layout.resolve(view, path, writing=True)
        place = await self._write(
            lambda: Place(path, self._store.append(target, lines, heading, watch)), watch
        )
        self._saved(Saved(view.space, path, lines))
        return place

    async def supersede(
        self,
        view: MemoryView,
        path: str,
        *,
        old: str,
        text: str,
        now: datetime,
        by: Provenance | None = None,
        watch: Watch | None = None,
    ) -> Replaced:
        """Put an entry in the place of the one that says `old`, which moves to the day's note.

        Raises:
            NotVisible: no file by that name can be in this view.
            ToolError: no entry says that, or more than one; or the disk did not take it.
        """
        new = markdown.fact(text, now.date(), by)

        def change(before: str) -> Changed:
            try:
                return markdown.supersede(before, old, new)
            except LookupError as error:
                found = "more than one entry" if error.args[0] else "no entry"
                raise ToolError(f"{found} of {path} says that; nothing was changed") from error

        replaced = await self._replace(view, path, change, now, watch)
        self._saved(Saved(view.space, path, new))
        return replaced

    async def replace_section(
        self,
        view: MemoryView,
        path: str,
        *,
        title: str,
        text: str,
        now: datetime,
        by: Provenance,
        watch: Watch | None = None,
    ) -> Replaced:
        """Put a text below a heading; what stood there moves to the day's note.

        Raises:
            NotVisible: no file by that name can be in this view.
            ToolError: the disk did not take it.
        """
        mark = markdown.section_mark(by, now.date())

        def change(before: str) -> Changed:
            return markdown.replace_section(before, title, text, mark)

        replaced = await self._replace(view, path, change, now, watch)
        self._saved(Saved(view.space, path, text))
        return replaced

    async def put(
        self, view: MemoryView, path: str, before: bytes, after: bytes, *, watch: Watch
    ) -> None:
        """Put a text in the place of a note's own, while it still says what it said `before`.

        Raises:
            NoteChanged: it says something else.
            NotVisible: no file by that name can be in this view.
            ToolError: the disk did not take it, or something was forgotten.
        """
        target = layout.resolve(view, path, writing=True)

        def change(data: bytes) -> bytes:
            if data != before:
                raise NoteChanged
            return after

        await self._write(lambda: self._store.rewrite(target, change, watch), watch)

    async def remove(self, view: MemoryView, path: str, before: bytes, *, watch: Watch) -> None:
        """Remove a note as a whole, while it still says what it said `before`.

        Raises:
            NoteChanged: it says something else, or is not there.
            NotVisible: no file by that name can be in this view.
            ToolError: the disk did not take it, or something was forgotten.
        """
        target = layout.resolve(view, path, writing=True)

        def work() -> None:
            if not self._store.remove(target, before):
                raise NoteChanged

        await self._write(work, watch)

    async def change(
        self, view: MemoryView, path: str, change: Callable[[str], str], *, watch: Watch
    ) -> None:
        """Have a note say what a function makes of it; what it said is kept as a version.

        Raises:
            NotVisible: no file by that name can be in this view.
            ToolError: the disk did not take it, or something was forgotten.
        """
        target = layout.resolve(view, path, writing=True)
        befores: list[str] = []

        def edit(data: bytes) -> bytes:
            befores.append(_decoded(data))
            return change(befores[-1]).encode()

        await self._versioned(
            view,
            path,
            befores,
            lambda: self._store.rewrite(target, edit, watch),
            watch,
        )

    async def confirm(
        self, view: MemoryView, path: str, claim: str, day: date, *, watch: Watch | None = None
    ) -> Place | None:
        """Note in the comment of the entry with this `Claim.digest` that it was confirmed.

        Returns:
            Where it stands; None when no entry of the file can be confirmed that says that.

        Raises:
            NotVisible: no file by that name can be in this view, or none is there.
            ToolError: the disk did not take it, or something was forgotten.
        """
        target = layout.resolve(view, path, writing=True)

        def work() -> Place | None:
            data, _ = self._store.read(target, MAX_WRITE)
            lines = _confirmable(_decoded(data), claim)

            def edit(data: bytes) -> bytes:
                text = _decoded(data)
                lines[:] = _confirmable(text, claim)
                for line in lines:
                    text = claims.confirmed(text, line, day)
                return text.encode()

            if lines:
                self._store.rewrite(target, edit, watch)
            return Place(path, lines[0]) if lines else None

        return await self._write(work, watch)

    async def forget(self, view: MemoryView, path: str, words: str) -> tuple[str, ...]:
        """Remove the entries of a file that literally hold these words; what they said.

        Raises:
            NotVisible: no file by that name can be in this view.
            ToolError: the disk did not take it.
        """
        target = layout.resolve(view, path, writing=True)
        gone: list[str] = []

        def edit(data: bytes) -> bytes:
            before = _decoded(data)
            gone[:] = [match.text for match in markdown.holding(before, words)]
            return markdown.without_words(before, words).encode()

        await self._write(lambda: self._store.rewrite(target, edit))
        return tuple(gone)

    async def _replace(
        self,
        view: MemoryView,
        path: str,
        change: Callable[[str], Changed],
        now: datetime,
        watch: Watch | None,
    ) -> Replaced:
        target = layout.resolve(view, path, writing=True)
        note = layout.resolve(view, today := day_note(now), writing=True)

        befores: list[str] = []

        def work() -> Replaced:
            kept: dict[str, Place] = {}
            made: list[Changed] = []

            def edit(data: bytes) -> bytes:
                befores.append(_decoded(data))
                changed = change(befores[-1])
                # First a copy, then the change: a crash in between repeats words, it loses none.
                if changed.old.strip() and changed.old not in kept:
                    lines = _outdated(changed.old, path, now)
                    line = self._store.append(note, lines, _heading(now), watch)
                    kept[changed.old] = Place(today, line)
                made.append(changed)
                return changed.text.encode("utf-8", "replace")

            self._store.rewrite(target, edit, watch)
            done = made[-1]
            return Replaced(Place(path, done.line), kept.get(done.old))

        if target == note:
            raise ToolError("a day's note is only appended to")
        return await self._versioned(view, path, befores, work, watch)

    async def _versioned(
        self,
        view: MemoryView,
        path: str,
        befores: Sequence[str],
        work: Callable[[], T],
        watch: Watch | None,
    ) -> T:
        """Write, and keep the last of what the note said before."""
        since = await self._versions.numbers() if self._versions is not None else None
        done = await self._write(work, watch)
        if self._versions is not None:
            await self._versions.changed(view.space, path, befores[-1], since, "bot")
        return done

    def _saved(self, event: Saved) -> None:
        if self._tell is not None:
            self._tell(event)

    async def _write(self, work: Callable[[], T], watch: Watch | None = None) -> T:
        def run() -> T:
            try:
                if watch is not None and watch.words:
                    raise ToolError(FORGOTTEN)
                return work()
            except OSError as error:
                if error.errno in disk.HIDDEN_ERRORS:
                    raise NotVisible from error
                raise ToolError(f"the note could not be written: {disk.reason(error)}") from error

        done = await self._run(run)
        self._written()
        return done

    async def _run(self, work: Callable[[], T]) -> T:
        loop, context = asyncio.get_running_loop(), copy_context()  # it has the fence of a turn
        return await loop.run_in_executor(self._thread, context.run, work)


def day_note(day: date) -> str:
    """The name of a day's note."""
    return f"{NOTES_FOLDER}/{day:%Y-%m-%d}.md"


def is_day_note(path: str) -> bool:
    """True for the name of a day's note."""
    return bool(_DAY_NOTE.fullmatch(path))


def _confirmable(text: str, claim: str) -> list[int]:
    """The first lines of the entries that make a claim and can be confirmed."""
    entries = claims.of_note("", text)
    return [each.first for each in entries if each.can_be_confirmed and each.digest == claim]


def _heading(day: date) -> str:
    return f"# {day:%Y-%m-%d}\n\n"


def _outdated(old: str, path: str, now: datetime) -> str:
    """The entry of a day's note that keeps what was replaced: struck out, with its date."""
    about = f"in {path} until {now:%Y-%m-%d}"
    mark = markdown.mark_of(old)
    by, _, since = mark.partition(" ")
    words = markdown.plain(old).strip()
    if words.startswith(("- ", "* ", "+ ")):
        words = words[2:]
    whose = cast("Provenance", by) if by in {"agent", "imported", "untrusted"} else "owner"
    return markdown.bullet(words, now, whose, about=f"{since}, {about}".lstrip(", "), struck=True)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError("this file is not UTF-8, so it cannot be changed safely") from error
