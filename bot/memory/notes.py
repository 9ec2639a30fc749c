"""Reading and writing Markdown through a `MemoryView`.

What a view may not see cannot be told from nothing. Each write is on disk when it returns, or is
not made.

Daily notes are only ever appended to, but for what a comment says of its entry. Elsewhere an entry
or a section may be replaced, and what stood there before moves to the day's note. Names are those
of `bot.memory.layout`.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import chain, islice
from typing import TypeVar, cast
from weakref import WeakValueDictionary

from bot.context.prompt import PersonaFile
from bot.errors import NotVisible, ToolError
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import claims, layout, markdown, note_store
from bot.memory.claims import Aging
from bot.memory.layout import NOTES_FOLDER
from bot.memory.markdown import Changed, Provenance
from bot.memory.note_store import FORGOTTEN, MAX_WRITE, NoteStore, NotesUnreachable, Watch
from bot.memory.versions import Versions
from bot.plugins import Saved

MAX_LINES = 120  # of one excerpt
MAX_CHARACTERS = 12_000  # of one excerpt
MAX_READ = 8_000_000  # bytes of a file that are looked at; notes are far smaller
MAX_LISTED = 50_000  # files; as many as the index takes


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines `first` to `last` (from 1) of a file; `more` says that others follow.

    `last` is below `first` when there is nothing. `notes` say what is odd about the file.
    """

    path: str
    first: int
    last: int
    text: str
    more: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """A file a view may read; `size` in bytes, `changed_at` in ms since the epoch."""

    path: str
    size: int
    changed_at: int = 0


class SpaceFiles:
    """The files of every space, each reader seeing its own view of them."""

    def __init__(
        self, notes: NoteStore, indexed: Callable[[str, str], Awaitable[str]] | None = None
    ) -> None:
        """`indexed` has the text of a document in a folder, by its partition and path."""
        self._notes = notes
        self._indexed = indexed

    async def read(
        self,
        view: MemoryView,
        path: str,
        first: int = 1,
        lines: int = MAX_LINES,
        characters: int = MAX_CHARACTERS,
    ) -> Excerpt:
        """At most `lines` lines and `characters` characters of a file, from line `first` on.

        Raises:
            NotVisible: there is no such file, or none that this view may see.
            ToolError: the file is there but cannot be read.
            StorageError: it stands in a folder of documents, and the index cannot be read.
        """
        if (found := layout.in_folder(view, path)) is not None and self._indexed is not None:
            if not (text := await self._indexed(*found)):
                raise NotVisible
            return await asyncio.to_thread(_excerpt, path, text.encode(), first, lines, characters)
        target = layout.resolve(view, path)
        return await asyncio.to_thread(self._read, path, target, first, lines, characters)

    async def data(self, view: MemoryView, path: str, most: int) -> bytes:
        """The first bytes of a file; none when it is not there yet.

        Raises:
            NotVisible: no file by that name can be in this view.
            ToolError: the file is there but cannot be read.
        """
        target = layout.resolve(view, path)

        def work() -> bytes:
            try:
                return self._notes.read(target, most)[0]
            except FileNotFoundError:
                return b""
            except OSError as error:
                raise unreadable(error) from error

        return await asyncio.to_thread(work)

    async def text(self, view: MemoryView, path: str, characters: int) -> str:
        """The beginning of a file, or nothing when it cannot be read for whatever reason."""
        try:
            return (await self.read(view, path, lines=characters, characters=characters)).text
        except ToolError:
            return ""

    async def ending(self, view: MemoryView, path: str, characters: int) -> str:
        """The newest lines of a note as it may be recalled: without what came from elsewhere.

        Empty when it says nothing, or cannot be read.
        """
        try:
            target = layout.resolve(view, path)
        except NotVisible:
            return ""

        def work() -> str:
            text = markdown.plain(markdown.without_untrusted(self._whole(target))).strip()
            if markdown.says_nothing(text):
                return ""
            if len(text) <= characters:
                return text
            end = text[len(text) - characters :]
            _, _, whole_lines = end.partition("\n")
            return f"…\n{whole_lines or end}"

        return await asyncio.to_thread(work)

    async def parted(
        self, view: MemoryView, passages: Sequence[tuple[str, str]]
    ) -> list[tuple[str, list[str]]]:
        """Passages, each after its file, as `markdown.parted` does it with untrusted lines.

        Empty where the view may not see the file.
        """

        def work() -> list[tuple[str, list[str]]]:
            untrusted: dict[str, Sequence[str]] = {}
            for path in {path for path, _ in passages}:
                if layout.in_folder(view, path) is not None:
                    untrusted[path] = ()
                    continue
                with suppress(NotVisible):
                    whole = self._whole(layout.resolve(view, path))
                    untrusted[path] = markdown.untrusted_lines(whole)
            return [
                markdown.parted(passage, untrusted[path]) if path in untrusted else ("", [])
                for path, passage in passages
            ]

        return await asyncio.to_thread(work)

    async def holding(
        self, view: MemoryView, path: str, words: str, most: int
    ) -> Sequence[markdown.Match]:
        """The first entries of a file that literally hold these words; none if it is unreadable."""
        try:
            target = layout.resolve(view, path)
        except NotVisible:
            return ()
        return await asyncio.to_thread(lambda: markdown.holding(self._whole(target), words, most))

    async def bootstrap(self, view: MemoryView, aging: Aging | None = None) -> list[PersonaFile]:
        """The files a conversation of this view begins with, in their order.

        The bot's own are everyone's; those about people are the view's own and nobody else's,
        without what has faded by `aging`.
        """

        def work() -> list[PersonaFile]:
            own = layout.curated_files(view)
            found: list[PersonaFile] = []
            for name in layout.BOOTSTRAP:
                if name in own:
                    text = markdown.without_untrusted(self._whole(layout.resolve(view, name)))
                    found.append(_remembered(name, text, view.space, aging))
                elif name not in {*layout.CURATED, layout.HEARTBEAT_FILE}:
                    own_file = layout.persona_file(view.agent, name)
                    text = self._whole(own_file) or self._whole(name)
                    found.append(PersonaFile(name, markdown.plain(text)))
            return found

        return await asyncio.to_thread(work)

    async def heartbeat(self, view: MemoryView) -> str:
        """The text of the person's HEARTBEAT.md; empty if it says nothing."""
        path = "/".join((*layout.space_folders(view), layout.HEARTBEAT_FILE))
        found = await asyncio.to_thread(self._whole, path)
        return "" if markdown.says_nothing(found) else markdown.plain(found)

    async def names(self, view: MemoryView) -> list[Listed]:
        """Every file a view may read, its own first, in the order of their names."""
        return await asyncio.to_thread(self._list, view)

    def _read(self, path: str, target: str, first: int, lines: int, characters: int) -> Excerpt:
        try:
            data, seen = self._notes.read(target, MAX_READ)
        except OSError as error:
            raise unreadable(error) from error
        found = _excerpt(path, data, first, lines, characters)
        if seen.size > MAX_READ:
            size, most = seen.size // 1_000_000, MAX_READ // 1_000_000
            told = f"the file has {size} MB; {most} MB are read"
            return replace(found, more=True, notes=(*found.notes, told))
        return found

    def _whole(self, target: str) -> str:
        """A file's text as far as it is read at all; empty when it cannot be."""
        try:
            data, _ = self._notes.read(target, MAX_READ)
        except (OSError, NotVisible):
            return ""
        return data.decode("utf-8", "replace")

    def _list(self, view: MemoryView) -> list[Listed]:
        if not view.space:
            return []
        space, curated = layout.space_folders(view), layout.curated_files(view)
        own = self._below(space, len(space), curated.__contains__, 1)
        notes = self._below((*space, layout.NOTES_FOLDER), len(space))
        shared = self._below((SHARED_SPACE,), 0) if SHARED_SPACE in view.spaces else iter(())
        return list(islice(chain(own, notes, shared), MAX_LISTED))

    def _below(
        self,
        folders: tuple[str, ...],
        above: int,
        wanted: Callable[[str], bool] = layout.is_note,
        depth: int = layout.MAX_DEPTH - 1,
    ) -> Iterator[Listed]:
        """The files below some folders, called without the first `above` of these."""
        with suppress(OSError):
            for seen in self._notes.walk(folders, wanted, depth):
                path, (changed, size, _) = seen.path.split("/", above)[above], seen.look
                yield Listed(path, size, changed // 1_000_000)


def _remembered(name: str, text: str, space: str, aging: Aging | None) -> PersonaFile:
    """A file about people as a conversation begins with it."""
    faded, strengths = 0, dict[str, float]()
    if aging is not None:
        text, faded = claims.without_faded(name, text, aging, space)
        strengths = claims.strengths(name, text, aging, space)
    shown, conclusions = markdown.attributed(text)

    def strength(span: markdown.Span) -> float:
        item = next(markdown.items(markdown.unattributed(shown[span[0] : span[1]])), None)
        return strengths.get(claims.of_entry(item).digest, 0.0) if item is not None else 0.0

    weakest_first = tuple(sorted(conclusions, key=strength)) if strengths else conclusions
    return PersonaFile(name, shown, remembered=True, spare=weakest_first, faded=faded)


def unreadable(error: OSError) -> ToolError:
    """The error for a file that could not be opened: links and missing files look the same."""
    if error.errno in note_store.HIDDEN_ERRORS or (
        error.errno is None and not isinstance(error, NotesUnreachable)
    ):
        return NotVisible()
    return ToolError(f"this file cannot be read: {note_store.reason(error)}")


def _excerpt(path: str, data: bytes, first: int, lines: int, characters: int) -> Excerpt:
    """Some lines of a file; see `SpaceFiles.read`."""
    raw, last, more = _pick(data, first, lines)
    notes: list[str] = []
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        notes.append("not UTF-8: what cannot be read is shown as �")
    text = text.replace("\r\n", "\n").rstrip("\r")
    if len(text) > characters:
        text, more = text[:characters], True
        last = first + text.count("\n")
        notes.append(f"cut at {characters} characters, in line {last}")
    return Excerpt(path, first, last, text, more, tuple(notes))


def _pick(data: bytes, first: int, lines: int) -> tuple[bytes, int, bool]:
    """The lines wanted of a file, the number of the last one, and whether any follow."""
    file = io.BytesIO(data)
    picked = list(islice(file, first - 1, first - 1 + lines))
    return b"".join(picked).removesuffix(b"\n"), first + len(picked) - 1, file.tell() < len(data)


# --- writing --------------------------------------------------------------------------------------


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
                if error.errno in note_store.HIDDEN_ERRORS:
                    raise NotVisible from error
                raise ToolError(
                    f"the note could not be written: {note_store.reason(error)}"
                ) from error

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
