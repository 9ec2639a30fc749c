"""Transcripts: blocks as stored, and what memory is handed of them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.context.history import (
    from_json,
    message_of,
    new_entry,
    origins_of,
    repaired,
    storable,
    to_json,
)
from bot.errors import ModelBadReply
from bot.identity.view import MemoryView
from bot.memory import transcripts
from bot.memory.search import Document
from bot.memory.transcripts import TranscriptFeed
from bot.messages import (
    NOT_INSTRUCTIONS,
    Canned,
    Message,
    Opaque,
    Quote,
    Quoted,
    Refused,
    Scheduled,
    Stored,
    Text,
    ToolResult,
    ToolUse,
    Whose,
)
from bot.sessions import entries, forgetting, store
from bot.sessions.entries import NewEntry
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork
from tests.odd import EXACT_JSON
from tests.support import beside, settings_of

WORDS = st.text(max_size=8)
IDS = st.sampled_from(["a", "b", "c"])
ORIGINS = st.sampled_from(get_args(Whose))
QUOTES = st.builds(
    Quote,
    st.lists(WORDS, max_size=3).map(tuple),
    WORDS,
    path=WORDS,
    line=st.integers(0, 9),
    by=st.sampled_from(["", "user", "assistant", "said"]),
    match=st.none() | st.floats(0, 1),
    until=WORDS,
    turns=st.lists(st.tuples(st.sampled_from(["person", "you"]), WORDS), max_size=2).map(tuple),
)
QUOTED = st.builds(Quoted, st.lists(QUOTES, max_size=2).map(tuple), WORDS, WORDS, st.booleans())
FACTS = (
    st.none()
    | QUOTED
    | st.builds(Stored, WORDS, st.integers(1, 9), st.none() | st.tuples(WORDS, st.integers(1, 9)))
    | st.builds(Scheduled, st.integers(0, 2**63 - 1), WORDS)
    | st.builds(Refused, WORDS, st.booleans())
)
CANNED = st.builds(Canned, st.sampled_from(["introduction", "answer"]))
TEXT = st.builds(Text, WORDS, note=st.booleans(), origin=ORIGINS) | st.builds(
    Text,
    WORDS,
    note=st.just(True),
    origin=st.sampled_from(["memory", "before", "carried"]),
    value=QUOTED | CANNED,
)
USES = st.builds(ToolUse, IDS, WORDS, st.dictionaries(WORDS, EXACT_JSON, max_size=2))
RESULTS = st.builds(
    ToolResult, IDS, WORDS, is_error=st.booleans(), origin=ORIGINS, value=FACTS, kept=WORDS
)
OPAQUE = st.builds(
    Opaque,
    st.fixed_dictionaries({"type": st.sampled_from(["thinking", "image"]), "data": EXACT_JSON}),
)


def unique(blocks: list[object]) -> tuple[object, ...]:
    """At most one call and one answer for each id, as services promise."""
    seen: set[tuple[type, str]] = set()
    kept: list[object] = []
    for block in blocks:
        mark = (type(block), getattr(block, "id", getattr(block, "tool_use_id", "")))
        if isinstance(block, ToolUse | ToolResult) and mark in seen:
            continue
        seen.add(mark)
        kept.append(block)
    return tuple(sorted(kept, key=lambda block: not isinstance(block, ToolResult)))


ASSISTANT = st.lists(TEXT | USES | OPAQUE, max_size=4).map(unique)
USER = st.lists(TEXT | RESULTS | OPAQUE, max_size=4).map(unique)
MESSAGES = st.one_of(
    st.builds(Message, st.just("assistant"), ASSISTANT), st.builds(Message, st.just("user"), USER)
)


@given(st.one_of(TEXT, USES, RESULTS, OPAQUE))
def test_a_block_comes_back_from_its_json_as_it_was(block):
    assert from_json(to_json(block)) == block
    assert from_json(orjson.loads(orjson.dumps(to_json(block)))) == block


@given(MESSAGES)
def test_a_message_comes_back_from_its_entry_as_it_was(message):
    assert storable(message) is message
    line = entries.line_of(new_entry(message), "s.1", None, 1)
    assert message_of(entries.parse(line)) == message


@pytest.mark.parametrize(
    ("block", "origin"),
    [
        ({"type": "text", "text": "hello"}, "unknown"),
        ({"type": "text", "text": "hello", "origin": ""}, ""),
        ({"type": "text", "text": "[forwarded from Bob]\nhello"}, "unknown"),
        ({"type": "text", "text": "[Sun 2026-11-22 01:00]\n", "note": True}, "unknown"),
        ({"type": "text", "text": "x", "origin": "from the future"}, "unknown"),
        ({"type": "tool_result", "tool_use_id": "a", "content": "x"}, "unknown"),
        ({"type": "compaction", "first_kept_entry_id": "s.1"}, "unknown"),
        ({"type": "compaction", "origin": "mixed"}, "mixed"),
    ],
)
def test_what_is_stored_without_a_known_origin_may_be_anybodys(block, origin):
    assert origins_of([block]) == {origin}


NOTE = f"""[recalled by the program for the beginning of this conversation]
{NOT_INSTRUCTIONS}

[the conversation before, until 2026-06-30 21:10 | in short]
> - Where do we eat? → At Ada's.

[the conversation before, until 2026-06-30 21:10 | its end]
> person: And when?
> you: At eight: be there.

[memory/2026-07-01.md | today's note]
> - 09:00 Ada plays the cello

[2026-06-29 10:00 | said | session s1]
> person: hello

[end of what was recalled]
"""
RESULT = f"""Searched by words.
{NOT_INSTRUCTIONS}

[memory/a b.md:2-3 | memory | match 0.90]
> - Tea at five
> - Milk"""


def test_what_is_stored_without_facts_has_none():
    note = from_json({"type": "text", "text": NOTE, "note": True, "origin": "memory"})
    assert note == Text(NOTE, note=True, origin="memory")
    result = from_json({"type": "tool_result", "tool_use_id": "a", "content": RESULT})
    assert result == ToolResult("a", RESULT, origin="unknown")


def test_words_that_look_like_a_quote_are_no_fact():
    result = ToolResult("a", RESULT, origin="tool")
    assert from_json(orjson.loads(orjson.dumps(to_json(result)))) == result
    for origin in ("heard", "forwarded", "file", "reply", "person"):
        note = Text(NOTE, note=True, origin=origin)
        assert from_json(orjson.loads(orjson.dumps(to_json(note)))) == note


def test_facts_that_nobody_here_knows_are_none():
    for facts in ({"quotes": "many"}, {"from": "the future"}, [], "x", None):
        data = {"type": "tool_result", "tool_use_id": "a", "content": "x", "facts": facts}
        assert from_json(data) == ToolResult("a", "x", origin="unknown")


@given(st.dictionaries(WORDS, EXACT_JSON, max_size=4))
def test_a_block_nobody_knows_stays_as_it_is(data):
    block = from_json({"type": "from the future", **data})
    assert to_json(block) == {"type": "from the future", **data}


@given(st.lists(MESSAGES, max_size=8))
def test_every_call_is_answered_at_once_every_answer_was_asked_for_and_no_words_are_lost(messages):
    found = repaired(messages)
    for index, message in enumerate(found):
        assert message.blocks
        calls = [b.id for b in message.blocks if isinstance(b, ToolUse)]
        answers = [b.tool_use_id for b in message.blocks if isinstance(b, ToolResult)]
        before = found[index - 1].blocks if index else ()
        asked = [b.id for b in before if isinstance(b, ToolUse)]
        assert sorted(answers) == sorted(asked)
        if calls:
            assert message.role == "assistant"
            assert found[index + 1].role == "user"
        # Services want the answers before anything else in their message.
        kinds = [isinstance(b, ToolResult) for b in message.blocks]
        assert kinds == sorted(kinds, reverse=True)
    assert repaired(found) == found
    words = [b for m in messages for b in m.blocks if not isinstance(b, ToolResult)]
    assert [b for m in found for b in m.blocks if not isinstance(b, ToolResult)] == words


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("half \ud83d", "half \ufffd"),
        ("\ud83d\ude00", "😀"),  # two halves that arrived apart
        (2**70, float(2**70)),
        ({"deep": ["\udc00"]}, {"deep": ["\ufffd"]}),
    ],
)
def test_what_no_transcript_can_hold_is_written_as_near_to_it_as_can_be(value, stored):
    message = Message("assistant", (Text("ok"), ToolUse("a", "tool", {"x": value})))
    found = storable(message)
    assert found.blocks == (Text("ok"), ToolUse("a", "tool", {"x": stored}))
    entries.line_of(new_entry(found), "s.1", None, 1)


def test_a_message_nested_without_end_is_a_bad_reply():
    value: object = "x"
    for _ in range(2_000):
        value = [value]
    with pytest.raises(ModelBadReply):
        storable(Message("assistant", (ToolUse("a", "tool", {"x": value}),)))


T = TypeVar("T")
NOW = 1_795_262_400_000
DAY_MS = 86_400_000
DAYS_30 = settings_of(memory={"retention_days": 30})
PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
VIEW = MemoryView("people/ada", (PLACE.key,), private=True, people=("ada",))


class SlowIndex:
    """An index in memory; `meanwhile` happens while documents are on their way to it."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], str] = {}
        self.meanwhile: Callable[[Transaction], object] | None = None
        self.database: SqliteDatabase | None = None
        self.generation = "index-1.db"

    async def add_documents(self, documents: Iterable[Document]) -> None:
        if self.meanwhile is not None and self.database is not None:
            await self.database.write(self.meanwhile)
        self.documents |= {(each.partition, each.id): each.text for each in documents}

    async def remove_documents(self, documents: Iterable[tuple[str, str]]) -> None:
        for each in documents:
            self.documents.pop(each, None)

    async def document_ids(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.documents)


def said(*texts: str, at: int = NOW) -> Callable[[Transaction], object]:
    def work(tx: Transaction) -> None:
        session, _ = UnitOfWork(tx, at).current(PLACE)
        store.append(tx, session.id, [NewEntry("message", "user", text) for text in texts], at)

    return work


async def test_what_is_forgotten_on_its_way_to_the_index_is_taken_out_again(tmp_path: Path):
    async with beside(tmp_path) as database:
        index = SlowIndex()
        index.database = database
        index.meanwhile = lambda tx: forgetting.forget_in(tx, VIEW, "peanuts", NOW)
        await database.write(said("allergic to peanuts", "lives in Lyon"))
        feed = TranscriptFeed(database, index, DAYS_30, lambda: NOW)
        await feed.follow()
        assert list(index.documents.values()) == ["lives in Lyon"]


async def test_what_is_older_than_the_days_to_keep_is_taken_out(tmp_path: Path):
    async with beside(tmp_path) as database:
        index, now = SlowIndex(), [NOW]
        await database.write(said("old"))
        feed = TranscriptFeed(database, index, DAYS_30, lambda: now[0])
        await feed.follow()
        await database.write(said("new", at=NOW + 29 * DAY_MS))
        now[0] += 31 * DAY_MS
        await feed.reconcile()
        await feed.follow()
        assert list(index.documents.values()) == ["new"]


async def test_what_was_said_comes_back_after_a_rebuild_that_lost_it(tmp_path: Path):
    async with beside(tmp_path) as database:
        index = SlowIndex()
        await database.write(said("allergic to peanuts", "lives in Lyon"))
        feed = TranscriptFeed(database, index, DAYS_30, lambda: NOW)
        await feed.look()
        whole = dict(index.documents)
        assert len(whole) == 2
        index.documents.clear()
        await feed.look()
        assert index.documents == {}  # nothing says that anything is missing
        index.generation = "index-2.db"
        await feed.look()
        assert index.documents == whole


class CountedReads:
    """A database that counts how often it is read."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.reads = 0
        self._database = database
        self.write = database.write

    async def read(self, work: Callable[[Transaction], T]) -> T:
        self.reads += 1
        return await self._database.read(work)


async def test_what_is_too_old_is_walked_past_once_however_much_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "WALK", 4)
    async with beside(tmp_path) as database:
        counted, index, now = CountedReads(database), SlowIndex(), [NOW]
        await database.write(said(*(f"old {number}" for number in range(40))))
        await database.write(said("new", "newer", at=NOW + 31 * DAY_MS))
        now[0] += 31 * DAY_MS

        async def look(days: int = 30) -> int:
            before, settings = counted.reads, settings_of(memory={"retention_days": days})
            await TranscriptFeed(counted, index, settings, lambda: now[0]).look()
            return counted.reads - before

        first, second = await look(), await look()
        assert first > 40 / 4
        assert second < 8
        assert list(index.documents.values()) == ["new", "newer"]
        # What is added there from elsewhere, out of the order of time, comes later and is found.
        await database.write(said("from a backup", at=NOW + 20 * DAY_MS))
        assert await look() < 8
        assert len(index.documents) == 3
        # More days than before: all of it again.
        assert await look(days=40) > 40 / 4
        assert len(index.documents) == 43
        # What was forgotten meanwhile is seen, too.
        await database.write(lambda tx: forgetting.forget_in(tx, VIEW, "newer", now[0]))
        await look()
        assert await look() < 8
        assert sorted(index.documents.values()) == ["from a backup", "new"]


async def test_where_numbers_are_others_nothing_is_walked_past(tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "WALK", 4)
    async with beside(tmp_path) as database:
        index = SlowIndex()
        await database.write(said(*(f"old {number}" for number in range(20)), at=NOW - 31 * DAY_MS))
        await TranscriptFeed(database, index, DAYS_30, lambda: NOW).look()
        await database.write(lambda tx: tx.execute("DELETE FROM entries"))
        await database.write(said("now first", *(f"more {number}" for number in range(20))))
        await TranscriptFeed(database, index, DAYS_30, lambda: NOW).look()
        assert len(index.documents) == 21
