"""Which entries hold some words, and what of them a model may still see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.channel import Address, Media
from bot.identity.view import MemoryView
from bot.sessions import browsing, entries, forgetting, search, snapshots, store, uploads
from bot.sessions.artifacts import ArtifactStore
from bot.sessions.entries import Entry, NewEntry
from bot.storage import Database, Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
VIEW = MemoryView("people/ada", (PLACE.key,), private=True, people=("ada",))
NOBODY = MemoryView("people/eve", ("agent:main:web:dm:eve",), private=True, people=("eve",))


def text(words: str, *, note: bool = False) -> Mapping[str, Any]:
    return {"type": "text", "text": words, **({"note": True} if note else {})}


def begin(tx: Transaction, *said: str) -> str:
    session, _ = UnitOfWork(tx, 1).current(PLACE)
    news = [NewEntry("message", "user", words, (text(words),)) for words in said]
    store.append(tx, session.id, news, 1)
    return session.id


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("She is Allergic\n  to peanuts", "allergic TO peanuts"),
        ('He said "no way" \\o/ 100%_!', 'said "no way" \\o/ 100%_!'),
        ("我女儿对花生过敏", "花生"),
        ("ÉCLAIRS à gogo", "éclairs à"),
        ("Straße", "STRASSE"),
        ("> quoted\n> words", "quoted words"),
        ("it is", "IT IS"),  # words a full text may not keep
    ],
)
async def test_words_are_found_as_they_stand(tmp_path: Path, said: str, words: str):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    await database.write(lambda tx: begin(tx, "something else", said))
    found = await database.read(lambda tx: forgetting.mentions(tx, VIEW, words))
    assert [(mention.seq, mention.says, mention.blocks) for mention in found] == [(2, True, (0,))]
    assert await database.read(lambda tx: forgetting.mentions(tx, NOBODY, words)) == []
    await database.write(lambda tx: forgetting.forget_in(tx, VIEW, words, 2))
    assert await database.read(lambda tx: forgetting.mentions(tx, VIEW, words)) == []
    await database.close()


@pytest.mark.parametrize("words", ["son", "tex", "memory", "ool", "answer", "Use", "42"])
async def test_what_is_only_noted_beside_words_is_not_what_was_said(tmp_path: Path, words: str):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    quotes = [{"where": ["2026-07-01"], "text": "tea", "by": "user", "turns": [["person", "tea"]]}]
    blocks = (
        {"type": "text", "text": "tea", "origin": "person"},
        {"type": "text", "text": "tea", "origin": "", "facts": {"kind": "answer"}},
        {"type": "tool_use", "id": "toolu_42", "name": "memory_search", "input": {"query": "tea"}},
        {
            "type": "tool_result",
            "tool_use_id": "toolu_42",
            "content": "tea",
            "origin": "memory",
            "facts": {"quotes": quotes},
            "kept": "a42",
        },
    )

    def add(tx: Transaction) -> None:
        store.append(tx, begin(tx), [NewEntry("message", "user", "tea", blocks)], 1)

    await database.write(add)
    assert await database.read(lambda tx: forgetting.mentions(tx, VIEW, words)) == []
    (found,) = await database.read(lambda tx: forgetting.mentions(tx, VIEW, "tea"))
    assert (found.says, found.blocks) == (True, (0, 1, 2, 3))
    await database.close()


@pytest.mark.parametrize("words", ["", "  ", "nowhere", "%", "_"])
async def test_words_that_are_nowhere_are_not_found(tmp_path: Path, words: str):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    await database.write(lambda tx: begin(tx, "something else"))
    assert await database.read(lambda tx: forgetting.mentions(tx, VIEW, words)) == []
    await database.close()


async def test_what_came_while_it_was_looked_for_is_forgotten_too(tmp_path: Path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    kept, prompt = ArtifactStore(database, lambda: 1), snapshots.Snapshot("about tea", "[]")
    session = await database.write(lambda tx: begin(tx, *["tea, of course"] * 250, "coffee"))
    await kept.keep(session, "tool", "a pot of tea")
    await database.write(lambda tx: snapshots.keep(tx, session, "one", prompt, 1))
    held = await forgetting.find(database, VIEW, "tea")
    assert (len(held.mentions), len(held.prompts), len(held.results)) == (250, 1, 1)
    await database.write(lambda tx: begin(tx, "tea again", "milk"))
    await kept.keep(session, "tool", "more tea")
    await database.write(lambda tx: snapshots.keep(tx, session, "two", prompt, 1))
    await forgetting.hide(database, held, 2)
    gone = await database.write(lambda tx: forgetting.complete(tx, held, 2))
    assert (len(gone.mentions), gone.prompts, gone.results) == (251, [session], 2)
    left = await forgetting.find(database, VIEW, "tea")
    assert (left.mentions, left.prompts, left.results) == ((), (), ())
    assert await database.read(lambda tx: len(search.find(tx, VIEW, "coffee milk", 9))) == 2
    await database.close()


async def test_commands_names_and_files_are_forgotten_with_the_words(each_database: Database):
    address = Address("web", "default", "ada")
    file = Media("image", "tea.png", "image/png", 4, "upload-1")
    other = Media("image", "pot.png", "image/png", 4, "upload-2")
    named = Media("image", "Green tea.png", "image/png", 4, "upload-3")

    def add(tx: Transaction) -> str:
        id_ = begin(tx, "coffee")
        news = [
            NewEntry("message", "user", "tea, see", (text("tea, see"),), files=(file.ref,)),
            NewEntry("message", "user", "coffee", (text("coffee"),), files=(other.ref,)),
            NewEntry("command", "user", "/memory search tea"),
            NewEntry("notice", "assistant", "Found: tea"),
        ]
        store.append(tx, id_, news, 1)
        for media in (file, other, named):
            assert uploads.put(tx, address, media, 0, b"1234", now=1)
        browsing.name(tx, id_, "All about TEA", 1)
        return id_

    id_ = await each_database.write(add)
    held = await forgetting.find(each_database, VIEW, "Tea")
    assert [mention.is_talk for mention in held.mentions] == [True, False, False]
    assert held.titles == (id_,)
    gone = await forgetting.forget(each_database, VIEW, "Tea", 2)
    assert (len(gone.mentions), gone.titles) == (3, 1)

    def left(tx: Transaction) -> tuple[str, list[str], list[str]]:
        session = store.get(tx, id_)
        assert session is not None
        said = browsing.before(tx, session, None, 10)
        kept = sorted(uploads.whole(tx, address))
        return browsing.title_of(tx, id_), [each.text for each in said.said], kept

    title, said, kept = await each_database.read(left)
    assert (title, said, kept) == ("", ["coffee", "", "coffee", "", ""], ["upload-2"])
    again = await forgetting.find(each_database, VIEW, "tea")
    assert (again.mentions, again.titles) == ((), ())


async def test_nobody_elses_words_are_looked_at(tmp_path: Path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    await database.write(lambda tx: begin(tx, "tea"))
    held = await forgetting.find(database, NOBODY, "tea")
    assert held.mentions == ()
    await database.write(lambda tx: begin(tx, "more tea"))
    gone = await database.write(lambda tx: forgetting.complete(tx, held, 2))
    assert gone.mentions == []
    await database.close()


def test_what_is_hidden_leaves_calls_and_answers_pairs():
    content = (
        {**text("recalled: tea", note=True), "facts": {"quotes": [{"text": "tea"}]}},
        text("Tea?"),
        {"type": "thinking", "thinking": "tea", "signature": "x"},
        {"type": "tool_use", "id": "1", "name": "memory_search", "input": {"query": "tea"}},
        {"type": "tool_result", "tool_use_id": "0", "content": "tea", "facts": {"reason": "tea"}},
    )
    entry = Entry("s.1", None, "message", "user", 1, "Tea?", content, "")
    beside = entries.veil(entry, {0})
    assert beside.text == "Tea?"
    assert beside.content == (text(f"{entries.GONE}\n", note=True), content[1], *content[3:])
    whole = entries.veil(entry, {0, 1, 2, 3, 4})
    assert whole.text == ""
    assert whole.content == (
        text(f"{entries.GONE}\n", note=True),
        text(entries.GONE),
        {"type": "tool_use", "id": "1", "name": "memory_search", "input": {}},
        {"type": "tool_result", "tool_use_id": "0", "content": entries.GONE},
    )
