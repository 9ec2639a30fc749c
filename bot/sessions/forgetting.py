"""Forgetting words wherever the database keeps them, but for transcripts, which only grow.

What a person said may be many megabytes, and everybody waits for the database's one writer. So what
holds the words is looked for by readers and hidden by the writer, a slice at a time; the last
transaction looks only at what came meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import orjson

from bot.channel import Inbound
from bot.identity.view import MemoryView
from bot.messages import LABELS
from bot.sessions import (
    approvals,
    artifacts,
    browsing,
    compactions,
    entries,
    erasing,
    inbox,
    repeats,
    store,
    uploads,
)
from bot.sessions.compactions import Name
from bot.sessions.entries import NewEntry
from bot.storage import Database, Transaction, fulltext, insist, marks, scalar, scalars
from bot.storage.records import read_alone

SLICE = 200  # entries that are looked at, or hidden, together
LONG_SLICE = 10  # prompts, or long results of tools

_TALK = frozenset({"message", "compaction"})
# The parts of a block that have words; of any other block all but its type may.
_TOLD: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "facts"),
    "tool_use": ("input",),
    "tool_result": ("content", "facts"),
    "compaction": (),  # its words are the entry's
}

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Mention:
    """An entry that holds some words: in what was said, or only in `blocks` beside it.

    `is_talk` tells what goes to the model and is found by its words from a command, or from what
    the program itself said: those two are only read back.
    """

    seq: int
    session_id: str
    blocks: tuple[int, ...]
    says: bool
    is_talk: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """Everything that holds some words in a view's conversations, and what was looked at to tell.

    `keys` are those of the conversations, `newest` the number of the last entry there was.
    """

    words: str
    keys: tuple[str, ...]
    newest: int
    mentions: tuple[Mention, ...]
    prompts: tuple[Name, ...]
    results: tuple[str, ...]
    titles: tuple[str, ...]  # the conversations that are named with them
    planned: int  # reminders and tasks
    queued: int  # messages that wait for an answer, or are being answered
    seen: frozenset[Name | str]  # every prompt and result


@dataclass(frozen=True, slots=True)
class Gone:
    """Everything that held the words: entries, sessions that began with them, counts of others."""

    mentions: list[Mention]
    prompts: list[str]
    results: int
    titles: int
    planned: int
    queued: int


async def find(database: Database, view: MemoryView, words: str) -> Held:
    """Find these words in the conversations a view may see; nobody waits for it.

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
        mentions=tuple(await sliced(numbers, SLICE, among)),
        prompts=tuple(await sliced(names, LONG_SLICE, compactions.among)),
        results=tuple(await sliced(ids, LONG_SLICE, artifacts.among)),
        titles=tuple(await database.read(lambda tx: browsing.titled(tx, keys, words))),
        planned=len(await database.read(lambda tx: repeats.holding(tx, keys, words))),
        queued=len(await database.read(lambda tx: _queued(tx, keys, words))),
        seen=frozenset((*names, *ids)),
    )


async def hide(database: Database, held: Held, now: int) -> None:
    """Let no search find, and no request show, what was found; then `complete` it.

    Raises:
        StorageClosed: the program ends; some of it may be done.
    """
    for some in _slices(held.mentions, SLICE):
        await insist(database, partial(_hide, mentions=some, now=now))
    for some in _slices(held.results, LONG_SLICE):
        await insist(database, partial(artifacts.remove, ids=some))


def complete(tx: Transaction, held: Held, now: int) -> Gone:
    """Do the same with what came since the words were looked for, and say what there was."""
    words = held.words
    queued = _withdraw(tx, held.keys, words, now)
    late = numbers_of(tx, held.keys, held.newest)
    mentions = [mention for some in _slices(late, SLICE) for mention in among(tx, some, words)]
    _hide(tx, mentions, now)
    spoke = tx.execute(
        f"SELECT DISTINCT session_id FROM entries WHERE seq IN ({marks(late)})", late
    )
    names = [
        name
        for name in compactions.names_of(tx, held.keys)
        if name not in held.seen or name[:1] in spoke
    ]
    prompts = [*held.prompts, *compactions.among(tx, names, words)]
    compactions.remove(tx, prompts)
    ids = [id_ for id_ in artifacts.ids_of(tx, held.keys) if id_ not in held.seen]
    results = artifacts.among(tx, ids, words)
    artifacts.remove(tx, results)
    titles = browsing.titled(tx, held.keys, words)
    for session_id in titles:
        browsing.name(tx, session_id, "", now)
    uploads.forget(tx, held.keys, words)
    return Gone(
        [*held.mentions, *mentions],
        list(dict.fromkeys(session_id for session_id, _ in prompts)),
        len(held.results) + len(results),
        len(titles),
        repeats.forget(tx, held.keys, words, now),
        queued,
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
    keys = tuple(browsing.keys_of(tx, view))
    newest = scalar(tx, "SELECT coalesce(max(seq), 0) FROM entries")
    names, ids = compactions.names_of(tx, keys), artifacts.ids_of(tx, keys)
    return keys, newest, numbers_of(tx, keys), names, ids


def _slices(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


# --- messages that wait for an answer -------------------------------------------------------------


def _queued(tx: Transaction, keys: Sequence[str], words: str) -> list[tuple[int, str, Inbound]]:
    """The messages without an answer, or with one that is being made, that hold these words.

    Each with its number and session.
    """
    wanted = fulltext.folded(words)
    found: list[tuple[int, str, Inbound]] = []
    for id_, session_id, body in inbox.held_by(tx, keys) if wanted else ():
        inbound = inbox.read_back(id_, body)
        told = () if inbound is None else _strings(orjson.loads(body))
        if inbound is not None and any(wanted in fulltext.folded(each) for each in told):
            found.append((id_, session_id, inbound))
    return found


def _withdraw(tx: Transaction, keys: Sequence[str], words: str, now: int) -> int:
    """Let no message be answered that holds these words; how many there were.

    The transcript has them, out of sight. A turn that has begun is not stored.
    """
    found = _queued(tx, keys, words)
    for id_, session_id, inbound in found:
        said = NewEntry("command", "user", inbound.shown, source=inbound.message_id)
        forget_all(tx, store.append(tx, session_id, [said], now).ids, now)
        inbox.done(tx, [id_], now)
    if found:
        approvals.tidy_started(tx)
    return len(found)


# --- entries of transcripts -----------------------------------------------------------------------


def mentions(
    tx: Transaction, view: MemoryView, words: str, within: Sequence[str] = ()
) -> list[Mention]:
    """Every entry a view may see that literally holds these words and was not forgotten before.

    It reads all of the view's conversations, or only the entries with an id `within`: for many of
    them see `find`.
    """
    keys = browsing.keys_of(tx, view)
    if not within:
        return among(tx, numbers_of(tx, keys), words)
    numbers = scalars(
        tx,
        "SELECT seq FROM entries JOIN sessions ON sessions.id = session_id "
        f"WHERE entries.id IN ({marks(within)}) AND key IN ({marks(keys)})",
        *(*within, *keys),
    )
    return among(tx, numbers, words)


def among(tx: Transaction, numbers: Sequence[int], words: str) -> list[Mention]:
    """The entries of these numbers that literally hold some words and were not forgotten before.

    Entries are read, because the full text knows no phrases, nor what tools said; see
    `fulltext.folded` for what does not count.
    """
    wanted = fulltext.folded(words)
    if not wanted or not numbers:
        return []
    rows = tx.execute(
        f"SELECT seq, session_id, line FROM entries WHERE seq IN ({marks(numbers)}) ORDER BY seq",
        numbers,
    )
    found: list[Mention] = []
    for seq, session_id, line in rows:
        told = _strings(read_alone("entries", str(seq), orjson.loads, line))
        if not any(wanted in fulltext.folded(each) for each in told):
            continue  # most entries are not worth parsing
        if (entry := read_alone("entries", str(seq), entries.parse, line)) is None:
            continue
        gone = tx.execute("SELECT 1 FROM forgotten WHERE seq = ?", (seq,))
        says = not gone and wanted in fulltext.folded(entry.text)
        hidden = {*scalars(tx, "SELECT block FROM hidden WHERE seq = ?", seq)}
        blocks = tuple(
            number
            for number, block in enumerate(entry.content)
            if number not in hidden and any(wanted in fulltext.folded(t) for t in _told(block))
        )
        if says or blocks:
            is_talk = entry.kind in _TALK
            found.append(Mention(seq, session_id, blocks, says=says, is_talk=is_talk))
    return found


def numbers_of(tx: Transaction, keys: Sequence[str], after: int = 0) -> list[int]:
    """The number of every entry of some keys' conversations, or of those after one."""
    return scalars(
        tx,
        "SELECT seq FROM entries JOIN sessions ON sessions.id = session_id "
        f"WHERE key IN ({marks(keys)}) AND seq > ? ORDER BY seq",
        *(*keys, after),
    )


def forget_in(
    tx: Transaction, view: MemoryView, words: str, now: int, within: Sequence[str] = ()
) -> list[Mention]:
    """Let no search find these words again and no request show them; the transcripts stay."""
    held = mentions(tx, view, words, within)
    _hide(tx, held, now)
    return held


def forget_all(tx: Transaction, ids: Sequence[str], now: int) -> None:
    """Let no search find these entries and no request show them; the transcripts stay."""
    rows = tx.execute(f"SELECT seq, session_id, line FROM entries WHERE id IN ({marks(ids)})", ids)
    held = [
        Mention(seq, session_id, tuple(range(len(entries.parse(line).content))), says=True)
        for seq, session_id, line in rows
    ]
    _hide(tx, held, now)


def _hide(tx: Transaction, mentions: Sequence[Mention], now: int) -> None:
    for mention in mentions:
        found = scalars(tx, "SELECT line FROM entries WHERE seq = ?", mention.seq)
        for line in found:  # none when its month was dropped since it was looked for
            erasing.hide(tx, mention.seq, mention.blocks, now, says=mention.says)
            entry = entries.parse(line)
            if mention.says or not entries.veil(entry, {*mention.blocks}).files:
                uploads.drop_of(tx, mention.session_id, entry.files)


def _told(block: Mapping[str, Any]) -> Iterator[str]:
    """Every text of a block that somebody said or a tool gave, and that hiding it takes away.

    What the program notes beside it is none: its origin, say, or "person" would hold "son".
    """
    parts = _TOLD.get(str(block.get("type")))
    if parts is None:
        parts = tuple(name for name in block if name != "type")
    for name in parts:
        noted = LABELS if name == "facts" else ()
        yield from (told for told in _strings(block.get(name)) if told not in noted)


def _strings(value: object) -> Iterator[str]:
    """Every text within a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, object]", value).values():
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("Sequence[object]", value):
            yield from _strings(inner)
