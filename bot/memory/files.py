"""Reading Markdown through a `MemoryView`: what it may not see cannot be told from nothing."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice

from bot.context.prompt import PersonaFile
from bot.errors import NotVisible, ToolError
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import claims, disk, layout, markdown
from bot.memory.claims import Aging
from bot.memory.disk import NoteStore, NotesUnreachable

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
    if error.errno in disk.HIDDEN_ERRORS or (
        error.errno is None and not isinstance(error, NotesUnreachable)
    ):
        return NotVisible()
    return ToolError(f"this file cannot be read: {disk.reason(error)}")


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
