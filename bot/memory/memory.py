"""Everything of memory that the program shares: notes, index and embedder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

import structlog

from bot.clock import Clock
from bot.config import Config, Settings
from bot.context import sentences
from bot.coordination import Coordination, Shared
from bot.core import INDEX
from bot.errors import NotVisible, StorageError, ToolError
from bot.identity import routing
from bot.identity.view import FOLDERS, MAIN_SPACE, SHARED_SPACE, MemoryView
from bot.memory import claims, embed, layout, listing, markdown, uses, versions
from bot.memory.claims import Claim
from bot.memory.embed import Embedder
from bot.memory.folders import Folder, Folders, ReadDocument
from bot.memory.index import MemoryIndex
from bot.memory.night import edits, record, rules
from bot.memory.note_store import MAX_WRITE, FolderNotes, NoteStore, Watch
from bot.memory.notes import Listed, Notes, SpaceFiles
from bot.memory.row_notes import RowNotes
from bot.memory.search import BEING_BUILT, Building, Findings, Hit, Searcher
from bot.memory.transcripts import TranscriptFeed
from bot.memory.uses import Uses
from bot.memory.versions import Versions
from bot.plugins import Saved
from bot.sessions import browsing, forgetting, store
from bot.sessions.entries import Entry
from bot.sessions.forgetting import Gone, Held
from bot.storage import Database, Transaction

INDEX_FOLDER = "index"  # below the storage folder; derived, and deletable at any time
TIDY_SECONDS = 600.0  # between looks for what is kept for a while only
USES_SECONDS = 300.0  # between storing which claims were used
MAX_SPOTS = 200  # places of one answer

# What the page, the terminal and the command line may see.
OWNER_VIEW = MemoryView(
    MAIN_SPACE, (), private=True, people=(routing.OWNER, *map(routing.named, routing.OWNER_SEATS))
)

# What the owner writes for everyone in the page; no conversation has this view.
SHARED_VIEW = MemoryView(SHARED_SPACE, (), private=False)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Spot:
    """Words in a file: its path as the person knows it, the line from 1, and the words."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """The result of forgetting: entries by file, and chunks and cached vectors of the index.

    When it `is_indexed` still, the index could not be written, and is rebuilt when it can be.
    """

    files: tuple[tuple[str, int], ...] = ()
    chunks: int = 0
    cached: int = 0
    is_indexed: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a view's memory; `synced_at` is in ms since the epoch, 0 for never.

    `words_off` and `vectors_off` say why nothing is found by words, or by what they mean, and are
    empty when it is; `model` is the embedder's. `building` is how far the index is.
    """

    files: int
    chunks: int
    model: str = ""
    words_off: str = ""
    vectors_off: str = ""
    degraded: tuple[str, ...] = ()
    synced_at: int = 0
    building: Building | None = None
    folders: tuple[Folder, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """The notes and their index; `searcher` is the index, but in some tests."""

    store: NoteStore
    files: SpaceFiles
    notes: Notes
    index: MemoryIndex
    searcher: Searcher
    embedder: Embedder
    uses: Uses
    folders: Folders

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        clock: Clock,
        searcher: Searcher | None = None,
        shared: Shared | None = None,
        *,
        versions: Versions | None = None,
        database: Database | None = None,
        read: ReadDocument | None = None,
        saved: Callable[[Saved], None] | None = None,
    ) -> Memory:
        """The memory of a configuration; nothing is opened yet.

        Notes are files below the workspace, or rows of the database that nodes share. `versions`
        keeps what notes said before something in them was replaced, and `database` when their
        claims were used. Without `read` folders of documents are searched as they were last read.
        """
        config = settings.now
        folder = config.storage.folder / INDEX_FOLDER
        embedder = embed.make(config.memory.embedder, folder)
        uses = Uses(settings, database, clock)
        store = store_of(config, clock, shared)
        if shared is None:
            index = MemoryIndex.in_folder(
                settings, store, folder, embedder, clock, versions=versions, uses=uses
            )
        else:
            owns, given = partial(shared.coordination.owns, INDEX), (embedder, clock)
            index = MemoryIndex.shared(
                settings, store, shared.database, *given, owns=owns, versions=versions, uses=uses
            )
        notes = Notes(store, index.noticed, versions, saved)
        files = SpaceFiles(store, index.text_of)
        folders = Folders(settings, index, read)
        return cls(store, files, notes, index, searcher or index, embedder, uses, folders)

    async def open(self) -> None:
        """Prepare the workspace, and keep the index up with it from now on."""
        await asyncio.to_thread(self.store.prepare)
        await self.index.start()
        self.folders.start()

    async def warm_up(self) -> None:
        """Load the embedder where there is something to find, before somebody asks for it."""
        if any((await self.index.status()).spaces.values()):
            await embed.warm_up(self.embedder)

    async def keep(self, feed: TranscriptFeed, coordination: Coordination) -> None:
        """Feed the index with what is said, until cancelled or closed.

        Where many nodes share it, one of them does, and rebuilds it when that is due.
        """
        while True:
            async with coordination.owning(INDEX) as lost:
                if coordination.is_shared:
                    await self.index.sync("owned")
                feeding = asyncio.create_task(feed.run())
                losing = asyncio.create_task(lost.wait())
                try:
                    waiting, first = {feeding, losing}, asyncio.FIRST_COMPLETED
                    while not any(each.done() for each in waiting):
                        await self.store.tidy()
                        await asyncio.wait(waiting, timeout=TIDY_SECONDS, return_when=first)
                    if feeding.done():
                        return await feeding
                finally:
                    for task in (feeding, losing):
                        task.cancel()
                    await asyncio.gather(feeding, losing, return_exceptions=True)

    async def keep_uses(self) -> None:
        """Store which claims were used, now and then, until cancelled."""
        while True:
            await asyncio.sleep(USES_SECONDS)
            await self.store_uses()

    async def store_uses(self) -> int:
        """Store which claims were used since the last time; how many there are."""
        return await self.uses.store(self.files, self.notes)

    async def close(self) -> None:
        """Store what was used, stop watching, and release the index and the embedder."""
        await self.store_uses()
        await self.folders.close()
        await self.index.close()
        await self.embedder.close()

    async def overview(self, view: MemoryView, listed: Sequence[Listed] | None = None) -> Overview:
        """The state of a view's memory; `listed` are its files, where they are known already."""
        names = await self.files.names(view) if listed is None else listed
        status = await self.index.status()
        problems = [
            f"{each.path}: {why}"
            for each in names
            if (why := status.problems.get(layout.resolve(view, each.path)))
        ]
        # A folder's files are named, not counted as trouble of notes.
        for name in view.folders:
            own = f"{FOLDERS}{name}/"
            faults = {path: why for path, why in status.problems.items() if path.startswith(own)}
            problems += [f"{path.removeprefix(FOLDERS)}: {faults[path]}" for path in faults]
        return Overview(
            files=len(names),
            chunks=sum(status.spaces.get(space, 0) for space in view.spaces),
            model=status.model,
            words_off=status.words_off,
            vectors_off=status.vectors_off,
            # That it is being built is no trouble where it is told how far.
            degraded=tuple(
                each
                for each in (*status.degraded, *problems)
                if not (status.building and each == BEING_BUILT)
            ),
            synced_at=status.last_sync,
            building=status.building,
            folders=tuple(map(self.folders.state, view.folders)),
        )

    async def faded(self, view: MemoryView, today: date) -> Sequence[tuple[str, Claim]]:
        """The claims that conversations begin without as they have faded, each with its file."""
        aging = await self.uses.aging([view.space], today)
        found: list[tuple[str, Claim]] = []
        for path in layout.curated_files(view):
            text = await self.files.text(view, path, MAX_WRITE)
            entries = await asyncio.to_thread(list, claims.of_note(path, text))
            found += [
                (path, aging.aged(each, view.space))
                for each in entries
                if not each.is_over and aging.is_faded(each, view.space)
            ]
        return found

    async def search_space(
        self, view: MemoryView, space: str, query: str, limit: int | None
    ) -> Findings | None:
        """Search one space of a view; None for one it may not see, or that is not there."""
        if space not in view.spaces:
            return None
        narrowed = view if space == view.space else MemoryView(space, (), private=False)
        return await self.index.search(query, narrowed.partitions, limit)

    async def find(self, view: MemoryView, words: str) -> Sequence[Spot]:
        """The places in files that hold these words, literally."""
        spots: list[Spot] = []
        async for path, matches in self._holding(view, words):
            spots += [Spot(path, match.first, match.text) for match in matches]
            if len(spots) >= MAX_SPOTS:
                break
        return spots[:MAX_SPOTS]

    async def forget(self, view: MemoryView, words: str) -> Cleared:
        """Remove the words from the view's own files, and from the index and its cache.

        Raises:
            ToolError: the disk did not take it; what was removed so far is gone.
        """
        found = [path async for path, _ in self._holding(view, words)]
        own = [path for path in found if not path.startswith(f"{SHARED_SPACE}/")]
        gone = {path: await self.notes.forget(view, path, words) for path in own}
        removed = tuple((path, len(entries)) for path, entries in gone.items())
        self.uses.drop(view.space)
        try:
            # What stands in folders of documents is the person's own to remove.
            own = [each for each in view.partitions if not each.startswith(FOLDERS)]
            forgotten = await self.index.forget(texts=[words], partitions=own)
        except StorageError as error:
            log.warning("memory.forget_later", error=type(error).__name__)
            return Cleared(files=removed, is_indexed=True)
        await self.index.sync("forget")
        return Cleared(
            files=removed, chunks=forgotten.chunks + forgotten.documents, cached=forgotten.cached
        )

    async def let_go(
        self, view: MemoryView, path: str, claim: str, day: date, *, watch: Watch
    ) -> bool:
        """Strike out what a note says with this `Claim.digest`, as it is not true (any more).

        Returns:
            False when no entry says that which can be struck out and had back.

        Raises:
            NotVisible: no file by that name can be in this view, or none is there.
            ToolError: the disk did not take it, or something was forgotten.
        """
        struck = False

        def change(text: str) -> str:
            nonlocal struck
            left = rules.let_go(path, text, claim, day)
            struck = left != text
            return left

        there = await self.files.data(view, path, MAX_WRITE)
        if not there:
            raise NotVisible
        await asyncio.to_thread(change, there.decode(errors="replace"))
        if struck:  # else it would have a version more that says the same
            await self.notes.change(view, path, change, watch=watch)
        return struck

    async def _holding(
        self, view: MemoryView, words: str
    ) -> AsyncGenerator[tuple[str, Sequence[markdown.Match]]]:
        """Every file with entries that hold these words, and the entries."""
        for listed in await self.files.names(view):
            if matches := await self.files.holding(view, listed.path, words, MAX_SPOTS):
                yield listed.path, matches


def store_of(config: Config, clock: Clock, shared: Shared | None) -> NoteStore:
    """The store of a configuration's notes: below the workspace, or in a database."""
    if shared is None:
        return FolderNotes(config.workspace)
    return RowNotes(shared.database, shared.coordination, clock, instead_of=config.workspace)


# Forgetting words everywhere they are kept: notes, their versions, index and conversations.


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview of forgetting: entries of files, and what holds the words elsewhere."""

    spots: tuple[Spot, ...]
    held: Held
    versions: int
    folders: int  # that are only read: nothing in them is looked at

    @property
    def is_empty(self) -> bool:
        """True when nothing holds the words."""
        held = self.held
        elsewhere = held.results or held.titles or held.planned or held.queued or self.versions
        return not (self.spots or held.mentions or elsewhere)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of forgetting.

    `sessions` are those whose conversation has to be read again, `keys` those of all that were
    looked at.
    """

    cleared: Cleared
    gone: Gone
    versions: int
    folders: int
    sessions: frozenset[str]
    keys: tuple[str, ...]


Complete = Callable[[Transaction], Forgotten]
"""The last step of forgetting, in a transaction of the caller's."""


class Forgetter:
    """The one way to forget: the chat, the page and the command line go by it."""

    def __init__(
        self,
        memory: Memory,
        database: Database,
        forgot: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`forgot` is called when words were forgotten; other nodes hear of it by themselves."""
        self._memory = memory
        self._database = database
        self._forgot = forgot

    async def preview(self, view: MemoryView, words: str) -> Preview:
        """A preview of forgetting these words.

        Raises:
            StorageError: the database cannot be read.
        """
        found = await self._memory.find(view, words)
        spots = tuple(each for each in found if not each.path.startswith(f"{SHARED_SPACE}/"))
        held = await forgetting.find(self._database, view, words)
        kept = await self._database.read(lambda tx: versions.holding(tx, view.space, words))
        return Preview(spots, held, len(kept), len(view.folders))

    @asynccontextmanager
    async def forgetting(self, view: MemoryView, words: str, now: int) -> AsyncGenerator[Complete]:
        """Remove words; what is yielded is to be called in a transaction, within.

        Until that is on disk, whatever is begun would read the words once more.

        Raises:
            ToolError: a note could not be written; what was removed so far is gone.
            StorageError: the database cannot be read or written.
        """
        async with self._memory.notes.forgetting(view, words):
            cleared = await self._memory.forget(view, words)
            claims, entries = await self._standing(view)
            held = await forgetting.find(self._database, view, words)
            await forgetting.hide(self._database, held, now)

            def complete(tx: Transaction) -> Forgotten:
                gone = forgetting.complete(tx, held, now)
                kept = versions.forget(tx, view.space, words)
                uses.forget(tx, view.space, claims)
                record.forget(tx, view.space, entries, now)
                # Those that go on may have begun with the words, and have stored nothing yet.
                keys = tuple(sorted({*held.keys, *view.keys}))
                current = (store.current(tx, key) for key in keys)
                going_on = (each.id for each in current if each is not None)
                said = (mention.session_id for mention in gone.mentions)
                stale = frozenset((*gone.prompts, *said, *going_on))
                return Forgotten(cleared, gone, kept, len(view.folders), stale, keys)

            yield complete
        await self.look()

    async def look(self) -> None:
        """Something was forgotten: let no page show it."""
        if self._forgot is not None:
            await self._forgot()

    async def _standing(self, view: MemoryView) -> tuple[set[str], set[str]]:
        """The digests of the claims in a view's own notes, and of their entries as they stand.

        What is kept of any other may be of the words: an entry that was changed before they were
        forgotten held them, too.
        """
        claims, entries = set[str](), set[str]()
        for each in await self._memory.files.names(view):
            if not each.path.startswith(f"{SHARED_SPACE}/"):
                try:
                    data = await self._memory.files.data(view, each.path, MAX_WRITE)
                except ToolError:
                    continue
                text = data.decode("utf-8", "replace")
                claims |= await asyncio.to_thread(uses.digests_of, text)
                entries |= await asyncio.to_thread(edits.digests_of, text)
        return claims, entries


# Searching memory for people: what fits, and why, without what the bot itself once replied.
#
# A model is shown more than that and judges for itself; a person who looks for something wants to
# be told when there is nothing, and not to be shown first that they asked for it before.

ASKED = 3  # times as many passages as are shown: some are left out


class Lookup:
    """Searches for people: the chat's `/memory search` and the page."""

    def __init__(self, memory: Memory, database: Database, settings: Settings) -> None:
        self._memory = memory
        self._database = database
        self._settings = settings

    async def find(self, view: MemoryView, query: str, today: date) -> Findings:
        """Passages that a view may see and that fit, best first, each with why; questions last.

        `today` is the day it is for whoever asks.

        Raises:
            StorageError: the database cannot be read.
        """
        most = self._settings.now.memory.max_results
        found = await self._memory.index.search(query, view.partitions, most * ASKED, today=today)
        hits = [
            hit
            for hit in found.hits
            if hit.why.is_any
            and not markdown.says_nothing(hit.snippet)
            and (hit.source == "transcript" or layout.may_see(view, hit.space, hit.path))
        ]
        ids = [hit.path for hit in hits if hit.source == "transcript"]
        said = await self._database.read(lambda tx: browsing.by_id(tx, ids))
        told = await asyncio.to_thread(_asking, said)
        fit = _once(hit for hit in hits if hit.source != "transcript" or hit.path in told)
        fit.sort(key=lambda hit: told.get(hit.path, False))  # what only asks comes last
        shown = listing.fitting(fit, most) if found.many else fit[:most]
        return replace(found, hits=tuple(shown))


def _asking(said: Iterable[Entry]) -> dict[str, bool]:
    """Messages of people and summaries, by id: True if one only asks; runs in a thread."""
    return {
        each.id: each.kind == "message" and sentences.only_asks(each.text)
        for each in said
        if each.kind == "compaction" or (each.kind == "message" and each.role == "user")
    }


def _once(hits: Iterable[Hit]) -> list[Hit]:
    """Without what was said again in the same words."""
    kept: dict[object, Hit] = {}
    for hit in hits:
        words: object = (
            id(hit) if hit.source != "transcript" else (hit.space, markdown.normal(hit.snippet))
        )
        kept.setdefault(words, hit)
    return list(kept.values())


def is_note(hit: Hit) -> bool:
    """True if a passage is from a note; else it was said, or stands in a folder of documents."""
    return hit.source == "memory"
