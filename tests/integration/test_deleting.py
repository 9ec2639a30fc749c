"""Deleting a conversation: out of sight at once, had back for a day, then gone for good."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import orjson

from bot.identity.view import MemoryView
from bot.recovery import TRANSCRIPTS
from bot.sessions import browsing, deleting, store
from bot.storage.tables import TABLES
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.fakes.pair import pair
from tests.integration.test_conversation_pages import (
    SESSION,
    Browser,
    browsing_with,
    ids_in,
    lengthen,
)
from tests.support import NOON, FakeClock, beside, until

SECRET = "the heron nests behind the boathouse"
DAY = 24 * 3600 * 1000  # ms


async def id_of(browser: Browser, words: str) -> str:
    """The conversation in which something was said."""
    found = orjson.loads(await browser.get(f"/api/conversations?q={words}"))
    return found["items"][0]["id"]


def everywhere(folder: Path, words: str) -> list[str]:
    """Where words stand: the tables that have them, and files of transcripts."""
    held: list[str] = []
    for table in TABLES:
        if table.engine != "postgres" and table.name != "entries_text":
            rows = query(folder, f"SELECT * FROM {table.name}")
            held += [table.name] * (words in repr(rows))
    files = [path for path in (folder / TRANSCRIPTS).rglob("*") if path.is_file()]
    return held + [path.suffix for path in files if words in path.read_text()]


async def test_a_deleted_conversation_is_nowhere_at_once_and_back_on_wish(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each(SECRET, "and in winter?", "/new", "something else")
        id_ = await id_of(browser, "nests")
        await browser.post(f"/conversations/{id_}/title", title="Of herons")
        before = await browser.get(f"/conversations/{id_}.jsonl")
        await browser.post(f"/conversations/{id_}/delete")
        for path in ("/conversations", "/api/conversations", "/conversations?q=boathouse"):
            assert "heron" not in re.sub(r'value="[^"]*"', "", await browser.get(path))
        for path in ("", ".md", ".jsonl", "/delete"):
            await browser.get(f"/conversations/{id_}{path}", 404)
        assert "boathouse" not in await engine.ask("/memory search boathouse")
        await engine.ask("what of the boathouse?")
        said = str([m.text for m in engine.model.requests[-1].messages])
        assert "nests" not in said + engine.model.requests[-1].system
        assert "Restore" in await browser.get("/conversations?deleted")
        await browser.post(f"/conversations/{id_}/restore")
        assert await browser.get(f"/conversations/{id_}.jsonl") == before
        assert "Of herons" in await browser.get("/conversations")
        assert id_ in await browser.get("/conversations?q=nests")
        await browser.post(f"/conversations/{id_}/restore", 404)


async def test_after_a_day_nothing_of_it_is_left_and_nothing_brings_it_back(tmp_path):
    clock = FakeClock()
    async with browsing_with(tmp_path, clock=clock) as (engine, browser):
        await engine.ask_each(SECRET, "/new", "something else")
        id_ = await id_of(browser, "nests")
        await browser.post(f"/conversations/{id_}/title", title="the heron nests")
        await browser.post(f"/conversations/{id_}/delete")
        deletions = engine.app.maintenance.deletions
        clock.advance(hours=23)
        await deletions.look()
        assert "entries" in everywhere(tmp_path, "heron nests")
        clock.advance(hours=2)
        await deletions.look()
        await asyncio.sleep(1)
        assert everywhere(tmp_path, "heron nests") == []
        await browser.post(f"/conversations/{id_}/restore", 404)
        assert "Nothing was deleted" in await browser.get("/conversations?deleted")
    async with browsing_with(tmp_path, clock=clock) as (engine, browser):
        assert everywhere(tmp_path, "heron nests") == []
        assert id_ not in ids_in(await browser.get("/conversations"))


async def test_what_a_kill_broke_off_is_completed_and_what_was_forgotten_before_stays_so(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each("the locker is 4711-zebra", SECRET, "/memory forget zebra")
        await engine.ask_each("/memory forget yes", "/new", "something else")
        id_ = await id_of(browser, "nests")
        await lengthen(tmp_path, id_, 3 * deleting.SLICE, "heron number")
        async with beside(tmp_path) as database:
            session = await database.read(lambda tx: store.get(tx, id_))
            assert session is not None
            await database.write(lambda tx: deleting.begin(tx, session, NOON + 1) and None)
        await engine.app.maintenance.deletions.look()
        view = MemoryView("main", (), private=True, people=("main",))
        async with beside(tmp_path) as database:
            assert await database.read(lambda tx: browsing.find(tx, view, "heron", 9)) == []
        await browser.post(f"/conversations/{id_}/restore")
        page = await browser.get(f"/conversations/{id_}.md")
        assert f"heron number {3 * deleting.SLICE}" in page
        assert "zebra" not in page
        assert ids_in(await browser.get("/conversations?q=zebra")) == []


async def test_deleting_the_current_one_begins_another_and_undo_does_not_go_back_to_it(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each("the first one", "/new", SECRET)
        await browser.post(f"/conversations/{await id_of(browser, 'nests')}/delete")
        await engine.ask("a new one")
        assert [m.text for m in engine.model.requests[-1].messages] == ["a new one"]
        await engine.ask("/undo")
        await engine.ask("and further")
        assert engine.model.requests[-1].messages[0].text == "the first one"


async def test_going_on_with_a_deleted_one_begins_another_and_says_so(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each(SECRET, "/new", "something else")
        id_ = await id_of(browser, "nests")
        await browser.post(f"/conversations/{id_}/delete")
        said = await engine.ask(f"/continue {id_}")
        assert said == "That conversation was deleted, so this is a new one."
        await engine.ask("and in winter?")
        assert [m.text for m in engine.model.requests[-1].messages] == ["and in winter?"]


async def test_a_reply_that_is_being_written_in_it_is_not_stored(tmp_path):
    model = ScriptedModel()
    async with browsing_with(tmp_path, model=model) as (engine, browser):
        await engine.ask("the first message")
        id_ = await id_of(browser, "first")
        model.gate = asyncio.Event()
        await engine.say(SECRET)
        await until(lambda: len(model.requests) == 2)
        await browser.post(f"/conversations/{id_}/delete")
        model.gate.set()
        model.gate = None
        await engine.ask("another")
        assert [m.text for m in model.requests[-1].messages] == ["another"]
        assert "heron" not in str([each.text for each in engine.channel.sent])


async def test_notes_from_it_are_listed_and_kept_unless_they_are_ticked(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask_each(
            "Remember that the heron nests behind the boathouse.",
            "Remember that my boat is called <b>Stork</b>.",
        )
        id_ = await id_of(browser, "nests")
        notes = orjson.loads(await browser.get(f"/api/conversations/{id_}/notes"))["notes"]
        heron, stork = sorted(notes, key=lambda each: "Stork" in each["text"])
        page = await browser.get(f"/conversations/{id_}/delete")
        assert "&lt;b&gt;Stork&lt;/b&gt;" in page
        await browser.post(
            f"/conversations/{id_}/delete", **{f"note-{heron['digest']}": "1", "note-none": "1"}
        )
        note = (tmp_path / "workspace" / stork["path"]).read_text()
        assert "Stork" in note
        assert "heron" not in note


async def test_nobody_deletes_or_restores_what_is_anothers(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("of bob alone", sender="bob")
        async with beside(tmp_path) as database:
            (bobs,) = await database.read(lambda tx: browsing.listed(tx, ["memory:bob"], 9))
            session = await database.read(lambda tx: store.get(tx, bobs.id))
        for path in ("delete", "restore"):
            await browser.post(f"/conversations/{bobs.id}/{path}", 404)
        await browser.get(f"/api/conversations/{bobs.id}/notes", 404)
        assert session is not None
        async with beside(tmp_path) as database:
            await database.write(lambda tx: deleting.begin(tx, session, NOON + 1) and None)
        await browser.post(f"/conversations/{bobs.id}/restore", 404)
        assert "Restore" not in await browser.get("/conversations?deleted")


async def test_what_is_deleted_at_one_node_is_gone_at_the_other_and_begins_another_there(
    tmp_path, postgres_url
):
    model = ScriptedModel()
    async with (
        pair(postgres_url, tmp_path, model, session=SESSION, serves=True) as nodes,
        aiohttp.ClientSession() as client,
    ):
        said = [SECRET, "/new", "what of the boathouse?", "/new"]
        for number, words in enumerate(said, 1):
            await nodes.other.say(words)
            await nodes.answered(number)
        urls = [node.app.address.url.rstrip("/") for node in (nodes.one, nodes.other)]
        one, other = (Browser(client, url) for url in urls)
        id_ = await id_of(one, "nests")
        await one.post(f"/conversations/{id_}/delete")
        assert "nests" not in await other.get("/api/conversations")
        await other.get(f"/conversations/{id_}", 404)
        await nodes.other.say(f"/continue {id_}")
        assert (await nodes.answered(5))[4].startswith("That conversation was deleted")
        await other.post(f"/conversations/{id_}/restore")
        assert "nests" in await one.get(f"/conversations/{id_}.md")
        assert await id_of(one, "nests") == id_
        await one.post(f"/conversations/{id_}/delete")
        nodes.do(f"UPDATE sessions SET deleted_at = 1 WHERE id = '{id_}'")
        nodes.do("UPDATE forgotten SET at = 1")
        nodes.do("UPDATE hidden SET at = 1")
        for node in (nodes.one, nodes.other):
            await node.app.maintenance.deletions.look()
        assert nodes.look("SELECT id FROM entries WHERE line LIKE '%heron nests%'") == []
