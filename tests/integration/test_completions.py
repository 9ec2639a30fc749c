"""OpenAI's chat completions: programs talk to the bot as a person, with their memory."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest

from adapters.web import completions
from bot.agent.models import Request, ToolSpec
from bot.errors import ModelUnreachable
from bot.messages import Picture, ToolResult
from bot.testing import ScriptedModel, calls
from tests.fakes.brain import query
from tests.fakes.page_people import Browser, browser, serving
from tests.support import Engine

KEY = re.compile(r"confidant-[0-9a-f]{64}")
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAf"
    "FcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def key_of(page: Browser, talks: str = "one") -> str:
    """A key that somebody makes on the page."""
    status, text = await page.post("/programs/keys", name="editor", talks=talks)
    found = KEY.search(text)
    assert found is not None, (status, text)
    return found[0]


@asynccontextmanager
async def program(engine: Engine, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """A program on OpenAI's own client."""
    assert engine.app.address is not None
    url = f"{engine.app.address.url}v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=30) as client:
        yield client


@asynccontextmanager
async def owners(engine: Engine, talks: str = "one") -> AsyncIterator[openai.AsyncOpenAI]:
    """The same with a key of the owner's."""
    async with browser(engine) as page:
        await page.log_in()
        async with program(engine, await key_of(page, talks)) as client:
            yield client


def said(*words: Any) -> list[Any]:
    """Messages in turn, the first one the person's."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": each} for n, each in enumerate(words)]


async def ask(client: openai.AsyncOpenAI, *words: Any, **more: Any) -> str:
    made = await client.chat.completions.create(
        model="confidant", messages=more.pop("messages", said(*words)), **more
    )
    return made.choices[0].message.content or ""


def echo(request: Request) -> str:
    """Names every message of the person that it is shown."""
    texts = [each.text for each in request.messages if each.role == "user"]
    return " | ".join(text.rpartition("]")[2].strip() for text in texts)


async def test_a_program_is_answered_in_one_conversation(tmp_path):
    async with serving(tmp_path, model=ScriptedModel(script=echo)) as engine, owners(engine) as at:
        assert [each.id async for each in at.models.list()] == ["confidant"]
        assert (await at.models.retrieve("confidant")).owned_by == "confidant"
        assert await ask(at, "my boat is called Orinoco") == "my boat is called Orinoco"
        # What a program tells again is known.
        told = await ask(at, "my boat is called Orinoco", "Noted.", "how old is it?")
        assert told == "my boat is called Orinoco | how old is it?"
        assert "/whoami" in await ask(at, "/help")
        # It is the owner's, in the page as well.
        rows = query(tmp_path, "SELECT person, channel, chat FROM sessions")
        assert {*rows} == {("main", "web", "owner")}


async def test_a_reply_is_streamed_as_it_grows(tmp_path):
    words = "One. Two. Three.\n\n```python\nprint(1)\n```"
    async with (
        serving(tmp_path, model=ScriptedModel(script=lambda _: words)) as engine,
        owners(engine) as at,
    ):
        parts = await at.chat.completions.create(
            model="confidant", messages=said("hello"), stream=True
        )
        chunks = [each async for each in parts]
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == words
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_conversations_of_their_own(tmp_path):
    async with (
        serving(tmp_path, model=ScriptedModel(script=echo)) as engine,
        owners(engine, "apart") as at,
    ):
        assert await ask(at, "first talk") == "first talk"
        assert await ask(at, "second talk") == "second talk"
        assert await ask(at, "first talk", "…", "go on") == "first talk | go on"
        # Begun with the same words it is another one.
        assert await ask(at, "first talk") == "first talk"
        named = {"extra_headers": {"X-OpenWebUI-Chat-Id": "17"}}
        assert await ask(at, "first talk", **named) == "first talk"
        assert await ask(at, "first talk", "…", "more", **named) == "first talk | more"


async def test_a_picture_and_what_the_program_instructs(tmp_path):
    seen: list[Request] = []

    def look(request: Request) -> str:
        seen.append(request)
        return "A pixel."

    parts = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    system = {"role": "system", "content": "The living room has 21 degrees."}
    async with serving(tmp_path, model=ScriptedModel(script=look)) as engine, owners(engine) as at:
        assert await ask(at, messages=[system, *said(parts)]) == "A pixel."
        await ask(at, messages=[system, *said("and now?")])
    shown = [block for each in seen[0].messages for block in each.blocks]
    assert any(isinstance(block, Picture) for block in shown)
    texts = str(seen[-1].messages)
    assert texts.count("21 degrees") == 1  # told once, as somebody else's words
    assert "forwarded from editor" in texts


async def test_nobody_gets_what_is_not_theirs(tmp_path):
    async with (
        serving(tmp_path, model=ScriptedModel(script=echo)) as engine,
        browser(engine) as owner,
        browser(engine) as bo,
    ):
        await owner.log_in()
        mine = await key_of(owner)
        await bo.post("/enter", key=await owner.link("bo"))
        theirs = await key_of(bo)
        async with program(engine, mine) as at, program(engine, theirs) as bos:
            await ask(at, "my boat is called Orinoco")
            assert await ask(bos, "hello") == "hello"
            people = query(tmp_path, "SELECT DISTINCT person FROM sessions ORDER BY person")
            assert people == [("main",), ("web:bo",)]
            status, text = await bo.get("/programs")
            assert status == 200
            assert text.count("/programs/keys/revoke") == 1
            # A key opens nothing but the interface, and no cookie or token opens that.
            url = engine.app.address.url if engine.app.address else ""
            async with aiohttp.ClientSession() as client:
                for path in ("", "api/ways", "settings", "programs"):
                    headers = {"Authorization": f"Bearer {mine}", "Accept": "*/*"}
                    async with client.get(f"{url}{path}", headers=headers) as answer:
                        assert answer.status in {401, 429}, path
            assert (await owner.get("/v1/models"))[0] == 401
            # Whoever was taken out is out.
            await owner.post("/logins/out", name="bo")
            with pytest.raises(openai.AuthenticationError):
                await ask(bos, "hello again")


async def test_a_revoked_key_is_worthless(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as page:
        await page.log_in()
        async with program(engine, await key_of(page)) as at:
            await ask(at, "hello")
            ((id_,),) = query(tmp_path, "SELECT id FROM api_keys")
            assert await page.post("/programs/keys/revoke", key=id_) == (303, "/programs")
            with pytest.raises(openai.AuthenticationError, match="not valid here"):
                await ask(at, "hello")
        assert (await page.post("/programs/keys", name=" "))[0] == 400
        for _ in range(20):
            await key_of(page)
        assert (await page.post("/programs/keys", name="one more"))[0] == 409


def pictured(url: str) -> dict[str, Any]:
    return {"messages": said([{"type": "image_url", "image_url": {"url": url}}])}


REFUSED = {
    "One answer": {"n": 2},
    "has to be the user's": {"messages": []},
    "be the user's": {"messages": said("a", "b")},
    "says nothing": {"messages": said(" ")},
    "bytes of text": {"messages": said("x" * 70_000)},
    "data URLs": pictured("https://x.y/z.png"),
    "base64": pictured("data:a/b;base64,*"),
    "not understood": {"messages": said([{"type": "input_audio"}])},
    "its own tools": {"tools": [{"type": "function", "function": {"name": "f"}}]},
}


async def test_what_cannot_be_answered_is_refused_in_words(tmp_path):
    async with serving(tmp_path) as engine, owners(engine) as at:
        with pytest.raises(openai.NotFoundError, match="one model here"):
            await at.chat.completions.create(model="gpt-5", messages=said("hello"))
        for why, wrong in REFUSED.items():
            with pytest.raises(openai.BadRequestError, match=why):
                await at.chat.completions.create(
                    **{"model": "confidant", "messages": said("hello")} | wrong
                )
        assert query(tmp_path, "SELECT count(*) FROM inbox") == [(0,)]


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[1]", b"\xff", b'{"model":"confidant"}', b"[" * 9000]
)
async def test_bodies_that_are_none(body):
    with pytest.raises(completions.Refused):
        completions.parse(body)


async def test_a_body_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(completions, "MOST_BODY", 1_000)
    async with serving(tmp_path) as engine, owners(engine) as at:
        with pytest.raises(openai.APIStatusError, match="1000 bytes") as found:
            await ask(at, "x" * 2_000)
        assert found.value.status_code == 413


async def test_a_program_that_drops_in_mid_answer_gets_it_when_it_asks_again(tmp_path):
    model = ScriptedModel(script=echo, gate=asyncio.Event())
    async with serving(tmp_path, model=model) as engine, owners(engine) as at:
        first = asyncio.create_task(ask(at, "what is my boat called?"))
        await asyncio.wait_for(model.started.wait(), 30)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        again = asyncio.create_task(ask(at, "what is my boat called?"))
        assert model.gate is not None
        model.gate.set()
        assert await again == "what is my boat called?"
        assert query(tmp_path, "SELECT count(*) FROM inbox") == [(1,)]


async def test_what_failed_is_said(tmp_path):
    def fail(_: Request) -> str:
        raise ModelUnreachable("no route")

    async with serving(tmp_path, model=ScriptedModel(script=fail)) as engine, owners(engine) as at:
        assert "couldn't reach" in await ask(at, "hello")


class Oven:
    """A tool that is asked about before it is called."""

    spec = ToolSpec("bake", "Bake.", {"type": "object", "properties": {}})

    async def run(self, arguments: Any, context: Any) -> str:
        return "baked"


async def test_a_question_about_a_tool_is_an_answer(tmp_path):
    def bake(request: Request) -> Any:
        is_done = isinstance(request.messages[-1].blocks[-1], ToolResult)
        return "It is baked." if is_done else calls("bake")

    rules = ({"tools": ("bake",), "action": "allow", "ask": True},)
    model = ScriptedModel(script=bake)
    async with (
        serving(tmp_path, model=model, more_tools=(Oven(),), tools={"rules": rules}) as engine,
        owners(engine) as at,
    ):
        asked = await ask(at, "bake a cake")
        found = re.search(r"/allow \S+", asked)
        assert found is not None, asked
        assert await ask(at, found[0].strip("`”.")) == "It is baked."


async def test_too_many_at_once_are_refused(tmp_path):
    model = ScriptedModel(script=echo, gate=asyncio.Event())
    async with serving(tmp_path, model=model) as engine, owners(engine) as at:
        some = [asyncio.create_task(ask(at, f"hello {n}")) for n in range(8)]
        await asyncio.wait_for(model.started.wait(), 30)
        with pytest.raises(openai.RateLimitError):
            await ask(at, "one more")
        assert model.gate is not None
        model.gate.set()
        assert all(f"hello {n}" in told for n, told in enumerate(await asyncio.gather(*some)))


async def test_keys_on_the_page_are_shown_once(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as page:
        await page.log_in()
        key = await key_of(page)
        status, text = await page.get("/programs")
        assert status == 200
        assert "editor" in text
        assert key not in text
        assert key not in str(query(tmp_path, "SELECT * FROM api_keys"))
        assert base64.b64encode(key.encode()).decode() not in text
