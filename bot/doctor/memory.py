"""Memory: how it is searched, and whether its index is whole and up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot.channel import Finding
from bot.config import Config
from bot.doctor.setup import Setup
from bot.errors import ConfidantError, EmbedderError, StorageNotMade
from bot.identity.view import MAIN_SPACE
from bot.memory import embed, selftest
from bot.memory.index import health
from bot.memory.index.row_reader import EXTENSION
from bot.memory.index.shared_rows import MEND
from bot.memory.memory import INDEX_FOLDER, store_of

FOUND_WELL = 70  # of a hundred notes that were asked for in other words


async def check(setup: Setup) -> Sequence[Finding]:
    """How memory is searched."""
    found = [await _embedder(setup.config)]
    if not setup.is_usable:
        return found
    found += await _asked(setup)
    if setup.is_shared:
        return [*found, *await _pgvector(setup)]
    if setup.config.workspace.is_dir():
        found += await asyncio.to_thread(_index, setup)
    return found


async def _embedder(config: Config) -> Finding:
    """What gives notes their vectors; one that is a server is asked."""
    embedder = config.memory.embedder
    if why := embed.missing(embedder):
        return Finding.of("warning", "memory.words_alone", why=why)
    if embedder.provider == "none" or not config.memory.vector_weight:
        return Finding.of("ok", "memory.words")
    if embedder.provider == "openai":
        asked = embed.make(embedder, config.storage.folder / INDEX_FOLDER)
        try:
            async with asyncio.timeout(embedder.timeout):
                await asked.embed(["hello"])
        except (EmbedderError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            return Finding.of("warning", "memory.no_embedder", url=embedder.base_url, why=why)
        finally:
            await asked.close()
    return Finding.of("ok", "memory.vectors", provider=embedder.provider)


async def _asked(setup: Setup) -> Sequence[Finding]:
    """What came of asking notes in other words: the owner's, and the share of everybody else's."""
    try:
        async with setup.opened() as database:
            mine = await database.read(lambda tx: selftest.of_space(tx, MAIN_SPACE))
            others = await database.read(selftest.of_others)
    except ConfidantError:  # said of the storage
        return []
    found: list[Finding] = []
    for name, asked in (("asked", mine), ("asked_others", others)):
        if asked is not None:
            level = "ok" if asked.share >= FOUND_WELL else "warning"
            key = name if level == "ok" else f"{name}_poorly"
            share, never = asked.share, len(asked.never)
            found.append(
                Finding.of(level, f"memory.{key}", share=share, asked=asked.asked, never=never)
            )
    return found


def _index(setup: Setup) -> list[Finding]:
    """Whether the index file can be read, and how far it is behind the notes."""
    notes = store_of(setup.config, setup.clock, None)
    try:
        found = health.look(setup.config.storage.folder / INDEX_FOLDER, notes)
    except OSError as error:
        return [Finding.of("error", "memory.unreadable", why=error.strerror or "")]
    if found.state == "damaged":
        return [Finding.of("error", "memory.index_damaged", repair="index")]
    if found.state != "ready":
        return [Finding.of("ok", f"memory.index_{found.state}")]
    if found.behind:
        return [Finding.of("warning", "memory.index_behind", count=found.behind)]
    return [Finding.of("ok", "memory.index_ready")]


async def _pgvector(setup: Setup) -> Sequence[Finding]:
    """Whether the database compares vectors in the quick way."""
    try:
        async with setup.opened() as database:
            found = await database.read(lambda tx: tx.execute(EXTENSION))
    except StorageNotMade:  # said of the storage
        return []
    except ConfidantError as error:
        return [Finding.of("error", "memory.unreadable", why=str(error))]
    if found:
        return [Finding.of("ok", "memory.pgvector", version=str(found[0][0]))]
    return [Finding.of("warning", "memory.no_pgvector", statement=MEND)]
