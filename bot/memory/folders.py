"""Folders of documents that are searched and never written: an Obsidian vault, a folder of PDFs.

Each is compared with the index now and then, and when something in it changes; what is new is read,
cut and stored a little at a time, so that notes and searches never wait for it: first by its words,
then by what it means. `memory_get` shows what the index has, so a folder that is away (a network
drive) is still found and read.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath

import structlog

from bot.backoff import kept
from bot.config import Config, Settings
from bot.errors import StorageError
from bot.identity.view import FOLDERS
from bot.memory import chunking, layout, note_store, periods
from bot.memory.index import MemoryIndex, note_files
from bot.memory.index.engine import SourceRow
from bot.memory.index.note_files import MAX_FILES, Changed, Content, Known
from bot.memory.index.writer import Item
from bot.memory.note_store import FolderNotes, Seen
from bot.unicode import BYTE_ORDER_MARKS

TEXTS = (".md", ".markdown", ".txt")
DOCUMENTS = (".pdf", ".docx")
MAX_DOCUMENT = 32_000_000  # bytes; what is read of it has a million characters at most
GROUP = 256  # chunks that are stored together …
FILLED = 32  # … and get vectors together: that takes about a second, which a note may wait for
LOOK_SECONDS = 10.0  # between checks for a rebuilt index
DEBOUNCE = 1.5  # seconds after an edit, so that a burst of them is one comparison
MAX_FRONT = 100  # lines of front matter …
MAX_NAMES = 12  # … titles, aliases and tags of it, each of so many characters
MAX_NAME = 60

EMPTY = (
    "it is empty now, as a drive is that is not connected; what was read before is still found. If "
    "it is meant to be empty, take it out of [memory.folders]"
)
OUR_OWN = "it holds, or lies in, the bot's own storage: nothing of it is read"
BINARY = "no text"

_MARKS = tuple(mark for mark, _ in BYTE_ORDER_MARKS)
_KEY = re.compile(r"(title|alias|aliases|tag|tags|date|created)[ \t]*:(.*)", re.IGNORECASE)

ReadDocument = Callable[[str, bytes], Awaitable[tuple[str, str]]]
"""The text of a file by its name and bytes, and what is wrong with it; in a process apart."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Folder:
    """The state of a folder: its readable files, when the newest changed (ms), how many are left.

    `fault` says why it cannot be read; it has nothing to do with single files.
    """

    name: str
    files: int = 0
    changed_at: int = 0
    left: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A look at a folder: what is new or other in it, the sources that are gone, and its state."""

    state: Folder
    changed: Sequence[Seen] = ()
    gone: Sequence[int] = field(default_factory=list[int])


def is_readable(path: PurePosixPath) -> bool:
    """True for the name of a file that is read."""
    return path.suffix.lower() in {*TEXTS, *DOCUMENTS}


def look(config: Config, name: str, known: Mapping[str, Known]) -> Found:
    """Compare a folder with what the index has of it; waits for a disk."""
    root, refused = config.memory.folders[name].path.expanduser(), dict[str, str]()
    try:
        if _is_our_own(root, config):
            return Found(Folder(name, fault=OUR_OWN), gone=[each.id for each in known.values()])
        walk = FolderNotes(root).walk((), _is_wanted, layout.MAX_PARTS, refused)
        every = list(islice(walk, MAX_FILES + 1))
    except OSError as error:
        return Found(Folder(name, len(known), fault=note_store.reason(error)))
    if known and not every and not refused:
        return Found(Folder(name, len(known), fault=EMPTY))
    left = dict(known)
    changed = [
        seen for seen in every[:MAX_FILES] if (row := left.pop(seen.path, None)) is None
        or row.look != seen.look
    ]  # fmt: skip
    fault = f"more than {MAX_FILES} files: the others are left out" if every[MAX_FILES:] else ""
    if refused:
        whys = ", ".join(sorted(set(refused.values())))
        fault = f"folders in it cannot be read: {len(refused)}, {whys}"
    newest = max((seen.look[0] for seen in every), default=0) // 1_000_000
    gone = [each.id for path, each in left.items() if not path.startswith(tuple(refused))]
    return Found(Folder(name, len(every[:MAX_FILES]), newest, len(changed), fault), changed, gone)


def front_matter(text: str) -> tuple[tuple[str, ...], date | None]:
    """A note's title, aliases and tags from its front matter, and its date."""
    head = text[: MAX_FRONT * 200].split("\n", MAX_FRONT)[:MAX_FRONT]
    marks = [at for at, line in enumerate(head) if line.rstrip() in {"---", "..."}][:2]
    if len(marks) < 2 or marks[0] != 0:
        return (), None
    names, key, day = dict[str, None](), "", None
    for line in head[1 : marks[1]]:
        if found := _KEY.match(line):
            key, value = found[1].lower(), found[2]
        elif key and line.lstrip().startswith("- "):
            value = line.lstrip()[2:]
        else:
            key, value = "", ""
        if key in {"date", "created"}:
            day = day or periods.first_day(value)
            continue
        for each in value.strip().strip("[]").split(","):
            if (name := each.strip(" \t\r\"'#")[:MAX_NAME]) and len(names) < MAX_NAMES:
                names[name] = None
    return tuple(names), day


class Folders:
    """Keeps the index up with the configured folders, on the node that has the index."""

    def __init__(self, settings: Settings, index: MemoryIndex, read: ReadDocument | None) -> None:
        """Without `read`, as for the command line, what is indexed is used as it is."""
        self._settings = settings
        self._index = index
        self._read = read
        self._states: dict[str, Folder] = {}
        self._edited = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def state(self, name: str) -> Folder:
        """The state of a folder; an empty one on nodes that do not keep the index."""
        return self._states.get(name, Folder(name))

    def start(self) -> None:
        """Keep up from now on, in the background."""
        if self._read is None:
            return
        self._tasks.append(asyncio.create_task(kept("memory.folders", self._keep)))
        memory = self._settings.now.memory
        for folder in memory.folders.values() if memory.watch else ():
            notes = FolderNotes(folder.path.expanduser(), is_readable)
            watch = partial(notes.watch, self._edited.set, _unheard, self._stop)
            self._tasks.append(asyncio.create_task(kept("memory.folder", watch)))

    async def close(self) -> None:
        """Stop; what was not read yet is read after the next start."""
        self._stop.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def sync(self) -> None:
        """Bring the index up to every folder, and take those out that are not configured any more.

        Where another node keeps the index, it does.

        Raises:
            StorageError: the index cannot be read or written.
        """
        if not self._index.is_ours:
            return
        folders = self._settings.now.memory.folders
        known: dict[str, dict[str, Known]] = {name: {} for name in folders}
        strange: list[int] = []
        for (partition, name), each in (await self._index.documents_of_folders()).items():
            of = known.get(partition.removeprefix(FOLDERS))
            if of is None:
                strange.append(each.id)
            else:
                of[name.removeprefix(f"{partition}/")] = each
        if strange:
            await self._index.remove(strange)
        for name in folders:
            await self._sync(name, known[name])
        while folders and not self._edited.is_set() and await self._index.fill(FILLED):
            pass

    async def _sync(self, name: str, known: Mapping[str, Known]) -> None:
        found = await asyncio.to_thread(look, self._settings.now, name, known)
        if found.state.fault != self.state(name).fault:
            log.warning(
                "memory.folder_fault", folder=name, why=found.state.fault or "none any more"
            )
        self._states[name] = found.state
        if found.gone:
            await self._index.remove(found.gone)
        root = FolderNotes(self._settings.now.memory.folders[name].path.expanduser())
        batch: list[Item] = []
        for number, seen in enumerate(found.changed, start=1):
            if (item := await self._item(name, root, seen)) is not None:
                batch.append(item)
            is_last = number == len(found.changed)
            if batch and (is_last or sum(len(each[1]) or 1 for each in batch) >= GROUP):
                await self._index.put_passages(batch)
                batch = []
                self._states[name] = replace(found.state, left=len(found.changed) - number)
        self._states[name] = replace(found.state, left=0)
        if found.changed or found.gone:
            counts = {"read": len(found.changed), "removed": len(found.gone)}
            log.info("memory.folder_synced", folder=name, **counts)

    async def _item(self, name: str, root: FolderNotes, seen: Seen) -> Item | None:
        """A file with its passages; None for one that changes or goes while it is read."""
        try:
            content = await self._content(root, seen)
        except (Changed, FileNotFoundError):
            self._edited.set()
            return None
        except OSError as error:
            content = Content("", b"", note_store.reason(error))
            seen = Seen(seen.path, (-1, *seen.look[1:]))  # it is tried again each time
        partition = f"{FOLDERS}{name}"
        row = SourceRow(
            kind="folder",
            partition=partition,
            name=f"{partition}/{seen.path}",
            space=partition,
            path=seen.path,
            hash=content.hash,
            mtime=seen.look[0],
            size=seen.size,
            inode=seen.look[2],
            problem=content.problem,
        )
        return row, await asyncio.to_thread(_passages, seen.path, content.text)

    async def _content(self, root: FolderNotes, seen: Seen) -> Content:
        if PurePosixPath(seen.path).suffix.lower() in TEXTS:
            data, problem = await asyncio.to_thread(note_files.data_of, root, seen)
            if not problem and b"\0" in data[:8192] and not data.startswith(_MARKS):
                problem = BINARY
            if problem:
                return Content("", b"", problem)
            return await asyncio.to_thread(note_files.content_of, data)
        data, problem = await asyncio.to_thread(note_files.data_of, root, seen, MAX_DOCUMENT)
        if problem or self._read is None:
            return Content("", b"", problem)
        text, problem = await self._read(PurePosixPath(seen.path).name, data)
        return Content(text, note_files.hash_of(data), problem)

    async def _keep(self) -> None:
        while True:
            self._edited.clear()
            generation = self._index.generation
            try:
                await self.sync()
            except StorageError as error:
                log.warning("memory.folders_failed", error=type(error).__name__)
            seconds = self._settings.now.memory.sync_minutes * 60
            edited = asyncio.create_task(self._edited.wait())
            try:
                # A rebuild of the index has left out what came from folders.
                while seconds > 0 and generation == self._index.generation:
                    if (await asyncio.wait({edited}, timeout=min(LOOK_SECONDS, seconds)))[0]:
                        break
                    seconds -= LOOK_SECONDS
            finally:
                edited.cancel()
            await asyncio.sleep(DEBOUNCE)


def _unheard(_state: str) -> None:
    """Nothing: the interval finds edits that are not noticed."""


def _is_wanted(name: str) -> bool:
    return is_readable(PurePosixPath(name))


def _passages(path: str, text: str) -> list[chunking.Passage]:
    names, day = front_matter(text)
    return chunking.of_note(f"{PurePosixPath(path).with_suffix('')}", text, names, day)


def _is_our_own(root: Path, config: Config) -> bool:
    """True when a folder would show what the bot keeps of everybody."""
    real = os.path.realpath(root)
    own = [os.path.realpath(each) for each in (config.storage.folder, config.workspace)]
    return any(os.path.commonpath((real, each)) in {real, each} for each in own)
