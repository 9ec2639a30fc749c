"""Forgetting words wherever the database keeps them, but for transcripts, which only grow.

What a person said may be many megabytes, and everybody waits for the database's one writer. So what
holds the words is looked for by readers and hidden by the writer, a slice at a time; the last
transaction looks only at what came meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bot.scope import MemoryView
from bot.sessions import artifacts, search, snapshots
from bot.sessions.search import Mention
from bot.sessions.snapshots import Name
from bot.storage import Database, Transaction, insist

SLICE = 200  # entries that are looked at, or hidden, together
LONG_SLICE = 10  # prompts, or long results of tools

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Held:
    """What holds some words in a view's conversations, and what was looked at to tell.

    `keys` are those of the conversations, `newest` the number of the last entry there was.
    """

    words: str
    keys: tuple[str, ...]
    newest: int
    mentions: tuple[Mention, ...]
    prompts: tuple[Name, ...]
    results: tuple[str, ...]
    seen: frozenset[Name | str]  # every prompt and result


@dataclass(frozen=True, slots=True)
class Gone:
    """What held the words: entries, sessions that began with them, long results of tools."""

    mentions: list[Mention]
    prompts: list[str]
    results: int


async def find(database: Database, view: MemoryView, words: str) -> Held:
    """What holds these words in the conversations a view may see; nobody waits for it.

    Raises:
        StorageError: the database cannot be read.
    """
    keys, newest, numbers, names, ids = await database.read(lambda tx: _everything(tx, view))

    async def sliced(items: Sequence[T], size: int, look: Callable[..., Sequence[R]]) -> list[R]:
        found: list[R] = []
        for some in _slices(items, size):
            found += await database.read(lambda tx, some=some: look(tx, some, words))
        return found

    return Held(
        words=words,
        keys=keys,
        newest=newest,
        mentions=tuple(await sliced(numbers, SLICE, search.among)),
        prompts=tuple(await sliced(names, LONG_SLICE, snapshots.among)),
        results=tuple(await sliced(ids, LONG_SLICE, artifacts.among)),
        seen=frozenset((*names, *ids)),
    )


async def hide(database: Database, held: Held, now: int) -> None:
    """Let no search find, and no request show, what was found; then `complete` it.

    Raises:
        StorageClosed: the program ends; some of it may be done.
    """
    for some in _slices(held.mentions, SLICE):
        await insist(database, partial(search.hide, mentions=some, now=now))
    for some in _slices(held.results, LONG_SLICE):
        await insist(database, partial(artifacts.remove, ids=some))


def complete(tx: Transaction, held: Held, now: int) -> Gone:
    """Do the same with what came since the words were looked for, and say what there was."""
    words, late = held.words, search.numbers_of(tx, held.keys, held.newest)
    mentions = [
        mention for some in _slices(late, SLICE) for mention in search.among(tx, some, words)
    ]
    search.hide(tx, mentions, now)
    spoke = search.sessions_of(tx, late)
    names = [
        name
        for name in snapshots.names_of(tx, held.keys)
        if name not in held.seen or name[0] in spoke
    ]
    prompts = [*held.prompts, *snapshots.among(tx, names, words)]
    snapshots.remove(tx, prompts)
    ids = [id_ for id_ in artifacts.ids_of(tx, held.keys) if id_ not in held.seen]
    results = artifacts.among(tx, ids, words)
    artifacts.remove(tx, results)
    return Gone(
        [*held.mentions, *mentions],
        list(dict.fromkeys(session_id for session_id, _ in prompts)),
        len(held.results) + len(results),
    )


async def forget(database: Database, view: MemoryView, words: str, now: int) -> Gone:
    """Let no search find these words again in a view's conversations, and no request show them.

    Raises:
        StorageError: the database cannot be read or written; some of it may be done.
    """
    held = await find(database, view, words)
    await hide(database, held, now)
    return await database.write(lambda tx: complete(tx, held, now))


def _everything(
    tx: Transaction, view: MemoryView
) -> tuple[tuple[str, ...], int, list[int], list[Name], list[str]]:
    keys = tuple(search.keys_of(tx, view))
    newest = int(tx.execute("SELECT coalesce(max(seq), 0) FROM entries")[0][0])
    names, ids = snapshots.names_of(tx, keys), artifacts.ids_of(tx, keys)
    return keys, newest, search.numbers_of(tx, keys), names, ids


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
