"""What commands, the command line and the HTTP interface may ask of memory, all within a view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import structlog

from bot.clock import Clock
from bot.commands.memory import Cleared, Overview, Spot
from bot.config import Config
from bot.errors import StorageError
from bot.identity import routing
from bot.identity.view import MAIN_SPACE, SHARED_SPACE, MemoryView
from bot.memory import embed, folders, forgetting
from bot.memory.embed import Embedder
from bot.memory.files import SpaceFiles
from bot.memory.index import MemoryIndex
from bot.memory.notes import Notes
from bot.memory.search import Findings, Searcher

INDEX_FOLDER = "index"  # below the storage folder; derived, and deletable at any time
MAX_SPOTS = 200  # places of one answer

# What the page, the terminal and the command line may see.
OWNER_VIEW = MemoryView(
    MAIN_SPACE,
    (),
    private=True,
    people=(routing.OWNER, *(f"{channel}:owner" for channel in sorted(routing.OWNER_CHANNELS))),
)

log = structlog.get_logger(__name__)


class GatewayMemoryDesk:
    """`bot.commands.memory.MemoryDesk` over files, index and database."""

    def __init__(self, files: SpaceFiles, notes: Notes, index: MemoryIndex) -> None:
        self._files = files
        self._notes = notes
        self._index = index

    async def overview(self, view: MemoryView) -> Overview:
        """How a view's memory is doing."""
        names = await self._files.names(view)
        status = await self._index.status()
        known = [(each.path, status.problems.get(_below(view, each.path))) for each in names]
        problems = [f"{path}: {why}" for path, why in known if why]
        return Overview(
            files=len(names),
            chunks=sum(status.spaces.get(space, 0) for space in view.spaces),
            model=status.model,
            words_off=status.words_off,
            vectors_off=status.vectors_off,
            degraded=(*status.degraded, *problems),
            synced_at=status.last_sync,
        )

    async def search(self, view: MemoryView, query: str, limit: int | None) -> Findings:
        """What matches the words or their sense."""
        return await self._index.search(query, view.partitions, limit)

    async def show(self, view: MemoryView, path: str) -> str:
        """A file, or its beginning.

        Raises:
            ToolError: no such file can be seen here, or it cannot be read.
        """
        excerpt = await self._files.read(view, path)
        return f"{excerpt.text}\n…" if excerpt.more else excerpt.text

    async def find(self, view: MemoryView, words: str) -> Sequence[Spot]:
        """Where files hold these words, literally."""
        spots: list[Spot] = []
        async for path, matches in self._holding(view, words):
            spots += [Spot(path, match.first, match.text) for match in matches]
            if len(spots) >= MAX_SPOTS:
                break
        return spots[:MAX_SPOTS]

    def forgetting(self, view: MemoryView, words: str) -> AbstractAsyncContextManager[None]:
        """Within this, nothing that was read before is written to the view's files any more."""
        return self._notes.forgetting(view, words)

    async def forget(self, view: MemoryView, words: str) -> Cleared:
        """Remove the words from the view's own files, and from the index and its cache.

        Raises:
            ToolError: the disk did not take it; what was removed so far is gone.
        """
        found = [path async for path, _ in self._holding(view, words)]
        own = [path for path in found if not path.startswith(f"{SHARED_SPACE}/")]
        removed = [(path, len(await self._notes.forget(view, path, words))) for path in own]
        try:
            forgotten = await self._index.forget(texts=[words], partitions=view.partitions)
        except StorageError as error:
            log.warning("memory.forget_later", error=type(error).__name__)
            return Cleared(files=tuple(removed), is_indexed=True)
        await self._index.sync("forget")
        return Cleared(
            files=tuple(removed),
            chunks=forgotten.chunks + forgotten.documents,
            cached=forgotten.cached,
        )

    async def _holding(
        self, view: MemoryView, words: str
    ) -> AsyncGenerator[tuple[str, Sequence[forgetting.Match]]]:
        """Every file with entries that hold these words, and the entries."""
        for listed in await self._files.names(view):
            if matches := await self._files.holding(view, listed.path, words, MAX_SPOTS):
                yield listed.path, matches


class OwnerMemory:
    """`bot.dashboard.api.MemorySearch`: the owner's view, for whoever holds the token."""

    def __init__(self, desk: GatewayMemoryDesk, view: MemoryView) -> None:
        self._desk = desk
        self._view = view

    async def search(self, space: str, query: str, limit: int | None) -> Findings | None:
        """Search one space; None for one the owner may not see, or that is not there."""
        if space not in self._view.spaces:
            return None
        return await self._desk.search(_narrowed(self._view, space), query, limit)


def _below(view: MemoryView, path: str) -> str:
    """A path as the person knows it, counted from the workspace."""
    if view.space == MAIN_SPACE or path.startswith(f"{SHARED_SPACE}/"):
        return path
    return f"{view.space}/{path}"


def _narrowed(view: MemoryView, space: str) -> MemoryView:
    """The view of one of a view's spaces alone."""
    if space == view.space:
        return view
    return MemoryView(space, (), private=False)


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything of memory that the program shares; `searcher` is the index, but in some tests."""

    files: SpaceFiles
    notes: Notes
    index: MemoryIndex
    searcher: Searcher
    desk: GatewayMemoryDesk
    embedder: Embedder

    @classmethod
    def of(cls, config: Config, clock: Clock, searcher: Searcher | None = None) -> Memory:
        """The memory of a configuration; nothing is opened yet."""
        embedder = embed.make(config.memory.embedder)
        folder = config.storage.folder / INDEX_FOLDER
        index = MemoryIndex(config.memory, config.workspace, folder, embedder, clock)
        files, notes = SpaceFiles(config.workspace), Notes(config.workspace, index.noticed)
        desk = GatewayMemoryDesk(files, notes, index)
        return cls(files, notes, index, searcher or index, desk, embedder)

    async def open(self, workspace: Path) -> None:
        """Prepare the workspace, and keep the index up with it from now on."""
        await asyncio.to_thread(folders.prepare, workspace)
        await self.index.start()

    async def close(self) -> None:
        """Stop watching, and release the index and the embedder."""
        await self.index.close()
        await self.embedder.close()
