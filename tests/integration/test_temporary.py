"""Temporary chats: nothing of them is kept, and nothing kept is used in them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.agent.models import Request
from bot.dashboard import temporary
from bot.errors import ModelRejected
from bot.identity import Conversation
from bot.messages import ToolResult
from bot.shares import TALKS
from bot.testing import ScriptedModel, calls
from tests.fakes.brain import query
from tests.fakes.page_people import Browser, browser, browsers, serving
from tests.support import until

CANARY = "xylograph"  # what is said in temporary chats, in every test


async def answers(page: Browser, *lines: str) -> list[dict[str, Any]]:
    """What the server says to a temporary chat, a value for each line."""
    async with page.client.post(temporary.TEMPORARY, json={"lines": lines}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Cache-Control"] == "no-store"
        return [json.loads(line) async for line in response.content if line.strip()]


async def ask(page: Browser, *lines: str) -> str:
    return (await answers(page, *lines))[-1]["text"]


def holding(folder: Path, words: str) -> list[Path]:
    """The files below a folder that have these words, in the database's and the log's too."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" or "sqlite" in path.name for path in files), files
    return [path for path in files if words.encode() in path.read_bytes()]


async def test_nothing_of_it_is_kept_and_nothing_kept_is_used(tmp_path, capfd):
    model = ScriptedModel()
    async with serving(tmp_path, model=model) as engine, browser(engine) as page:
        await page.log_in()
        async with page.chat() as chat:
            await chat.say(type="send", id="a", text="remember that my boat is called Orinoco")
            await chat.until("message")
            seen = len(model.requests)
            (reply,) = [line for line in await answers(page, CANARY) if line["text"]][-1:]
            assert reply["text"] == f"You said: {CANARY}"
            assert await ask(page, CANARY, "one", f"{CANARY} two") == f"You said: {CANARY} two"
            first, second = model.requests[seen:]
            assert [each.text for each in second.messages] == [CANARY, "one", f"{CANARY} two"]
            for request in (first, second):
                assert "Orinoco" not in f"{request.system}{request.messages}"
                assert "temporary chat" in request.system
                assert request.tools == ()
            # What comes after has no word of it …
            await chat.say(type="send", id="b", text="what did I say?")
            await chat.until("message")
            await chat.say(type="send", id="c", text="/new")
            await chat.until("message")
            await chat.say(type="send", id="d", text="and now?")
            await chat.until("message")
        later = "".join(f"{each.system}{each.messages}" for each in model.requests[seen + 2 :])
        assert "what did I say?" in later
        assert CANARY not in later
        # … and neither has a page or a list.
        for path in (
            "/conversations",
            f"/conversations?q={CANARY}",
            "/api/conversations",
            "/memory",
        ):
            status, text = await page.get(path)
            assert status == 200
            assert CANARY not in text.replace(f'value="{CANARY}"', "").replace(f"q={CANARY}", "")
        assert query(tmp_path, "SELECT count(*) FROM sessions") == [(2,)]
    assert holding(tmp_path, CANARY) == []
    assert holding(tmp_path, "Orinoco") != []
    logged = "".join(capfd.readouterr())
    assert "temporary.answered" in logged
    assert CANARY not in logged


async def test_what_it_uses_is_counted(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as page:
        await page.log_in()
        await ask(page, CANARY)
        counted = "SELECT person, session_id, purpose, runs FROM usage_counts"
        assert query(tmp_path, counted) == [("main", "", "chat", 1)]


async def test_a_tool_that_is_called_all_the_same_is_refused(tmp_path):
    def script(request: Request) -> Any:
        results = [b for m in request.messages for b in m.blocks if isinstance(b, ToolResult)]
        if not results:
            return calls("memory_write", text=CANARY, path="MEMORY.md")
        return f"{results[0].is_error} {results[0].text}"

    model = ScriptedModel(script=script)
    async with serving(tmp_path, model=model) as engine, browser(engine) as page:
        await page.log_in()
        told = await ask(page, f"remember {CANARY}")
        assert told.startswith("True")
        assert "no tool by that name" in told
    assert holding(tmp_path, CANARY) == []


async def test_a_reply_is_shown_as_it_grows_and_two_chats_know_nothing_of_each_other(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with serving(tmp_path, model=model) as engine, browser(engine) as page:
        await page.log_in()
        assert model.gate is not None
        body = {"lines": [f"{CANARY} one"]}
        async with page.client.post(temporary.TEMPORARY, json=body) as response:
            first = json.loads(await response.content.readline())
            assert first["text"] == "You"
            assert first["html"] == "<p>You</p>\n"
            other = asyncio.create_task(ask(page, "in another tab"))
            await until(lambda: len(model.requests) == 2)
            model.gate.set()
            last = [json.loads(line) async for line in response.content][-1]
        assert last["text"] == f"You said: {CANARY} one"
        assert last["ended"] is True
        assert await other == "You said: in another tab"
    assert CANARY not in f"{model.requests[1]}"


async def test_a_tab_that_vanishes_ends_its_answer_and_leaves_nothing(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with serving(tmp_path, model=model) as engine, browser(engine) as page:
        await page.log_in()
        running = engine.app.engine.maintenance.running
        async with page.client.post(temporary.TEMPORARY, json={"lines": [CANARY]}) as response:
            await response.content.readline()
            assert len(running) == 1
            assert holding(tmp_path, CANARY) == []  # what a crash would leave
            response.close()
        await until(lambda: len(running) == 0)
        counted = "SELECT count(*) FROM usage_counts"
        await until(lambda: query(tmp_path, counted) == [(1,)])
    assert holding(tmp_path, CANARY) == []


async def test_whoever_is_not_served_any_more_gets_no_more_of_it(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with serving(tmp_path, model=model) as engine, browser(engine) as page:
        await page.log_in()
        async with page.client.post(temporary.TEMPORARY, json={"lines": [CANARY]}) as response:
            await response.content.readline()
            engine.app.engine.maintenance.running.review(lambda _here: False)
            last = [json.loads(line) async for line in response.content][-1]
    assert (last["text"], last["cut"], last["error"]) == ("You", True, "")


async def test_whoever_the_bot_does_not_serve_is_refused(tmp_path, monkeypatch):
    async with serving(tmp_path) as engine, browser(engine) as page:
        await page.log_in()
        monkeypatch.setattr(Conversation, "is_served", False)
        async with page.client.post(temporary.TEMPORARY, json={"lines": ["hi"]}) as response:
            assert response.status == 403
        assert engine.model.requests == []


async def test_too_many_at_once_are_refused(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with serving(tmp_path, model=model) as engine, browser(engine) as page:
        await page.log_in()
        some = [asyncio.create_task(ask(page, f"hello {n}")) for n in range(TALKS.each)]
        await until(lambda: len(model.requests) == TALKS.each)
        async with page.client.post(temporary.TEMPORARY, json={"lines": ["hi"]}) as response:
            assert response.status == 429
        assert model.gate is not None
        model.gate.set()
        assert len(await asyncio.gather(*some)) == TALKS.each


@pytest.mark.parametrize(
    ("sections", "lines", "script", "why"),
    [
        ({"agent": {"model": "offline"}}, ["hi"], None, "needs a model"),
        ({}, ["hi"], ModelRejected("no"), "couldn't answer"),
        ({}, ["hi"], "", "couldn't answer"),
        ({}, ["words " * 9_000, "y", "z"], None, "no longer fits"),
        ({"limits": {"each": {"day_tokens": 10}}}, ["hi"], None, "limit is reached"),
    ],
)
async def test_why_there_is_no_answer_is_said(tmp_path, sections, lines, script, why):
    model = ScriptedModel(input_window=8_000)
    if script is not None:
        model.script = lambda _: script
    async with serving(tmp_path, model=model, **sections) as engine, browser(engine) as page:
        await page.log_in()
        if "limits" in sections:
            await ask(page, "this uses it up")
        assert why in (await answers(page, *lines))[-1]["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[1]",
        b"\xff",
        b"[" * 9_000,
        b'{"lines": []}',
        b'{"lines": "hi"}',
        b'{"lines": ["a", "b"]}',
        b'{"lines": [" "]}',
        b'{"lines": [1]}',
        json.dumps({"lines": ["a"] * 1_001}).encode(),
        json.dumps({"lines": ["a" * 70_000]}).encode(),
    ],
)
def test_bodies_that_are_none(body):
    with pytest.raises(web.HTTPBadRequest):
        temporary.parse(body)


def test_what_no_text_may_hold_is_made_fit():
    (said,) = temporary.parse(b'{"lines": ["a\\u0000b\\ud800c"]}')
    assert said.text == "ab\N{REPLACEMENT CHARACTER}c"


async def test_a_body_that_is_too_large(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as page:
        await page.log_in()
        lines = ["x" * temporary.MOST_BODY]
        async with page.client.post(temporary.TEMPORARY, json={"lines": lines}) as response:
            assert response.status == 413
        assert engine.model.requests == []


async def test_everybody_has_their_own(tmp_path):
    """A guest's costs are the guest's, and the prompt is nobody's."""
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, guest):
        await owner.log_in()
        assert await guest.post("/enter", key=await owner.link("Jo")) == (303, "/")
        assert await ask(guest, CANARY) == f"You said: {CANARY}"
        rows = query(tmp_path, "SELECT person FROM usage_counts")
        assert [person for (person,) in rows] != ["main"]
        status, text = await guest.get("/temporary")
        assert (status, "<textarea" in text) == (200, True)
    assert holding(tmp_path, CANARY) == []
