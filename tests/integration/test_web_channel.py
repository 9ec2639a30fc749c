from __future__ import annotations

import asyncio
import gzip
import re
import threading
from importlib import resources
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from adapters.web.channel import ADDRESS
from adapters.web.pages import LONG_TEXT
from adapters.web.protocol import MAX_FRAME, MAX_TEXT
from bot.channel import Activity, Attachment, Button, HistoryItem, Inbound, Outbound
from bot.channel.kit.markdown_html import render, takes_long
from bot.errors import StorageError
from tests.fakes.web_pages import Chat
from tests.support import post


@pytest_asyncio.fixture
async def chat():
    async with Chat().served() as served:
        yield served


@pytest_asyncio.fixture
async def page(chat):
    async with chat.page() as opened:
        yield opened


def bot_says(text: str, message_id: str = "out-1", **fields: Any) -> Outbound:
    return Outbound(message_id, ADDRESS, text, **fields)


# --- the page -------------------------------------------------------------------------------------


async def test_the_page_and_its_files_are_kept_by_the_browser_until_they_change(chat):
    async with aiohttp.ClientSession() as client:
        for path, kind in {"": "text/html", "static/app.css": "text/css"}.items():
            async with client.get(chat.url + path) as answer:
                assert (answer.status, answer.content_type) == (200, kind)
                assert answer.headers["Cache-Control"] == "private, no-cache"
                etag = answer.headers["ETag"]
            async with client.get(chat.url + path, headers={"If-None-Match": etag}) as answer:
                assert answer.status == 304
                assert await answer.read() == b""
            async with client.get(chat.url + path, headers={"If-None-Match": '"old"'}) as answer:
                assert answer.status == 200


async def test_the_pages_files_are_packed_for_whoever_takes_that(chat):
    packed = {"gzip, deflate, br": True, "identity": False, "gzip;q=0, br": False, "br;q=1": False}
    async with aiohttp.ClientSession(auto_decompress=False) as client:
        sizes, tags = {}, {}
        for accepted, takes in packed.items():
            wants = {"Accept-Encoding": accepted}
            async with client.get(f"{chat.url}static/app.css", headers=wants) as answer:
                is_packed = answer.headers.get("Content-Encoding") == "gzip"
                assert (accepted, is_packed) == (accepted, takes)
                assert answer.headers["Vary"] == "Accept-Encoding"
                body = await answer.read()
                sizes[is_packed], tags[is_packed] = len(body), answer.headers["ETag"]
                plain = gzip.decompress(body) if is_packed else body
                assert b".composer" in plain
        assert sizes[True] * 2 < sizes[False]
        assert tags[True] != tags[False]
        for is_packed, tag in tags.items():  # each is known by its own tag only
            for accepted, takes in packed.items():
                known = {"Accept-Encoding": accepted, "If-None-Match": tag}
                async with client.get(f"{chat.url}static/app.css", headers=known) as answer:
                    assert answer.status == (304 if takes == is_packed else 200)


def test_what_is_asked_for_early_is_needed():
    files = resources.files("adapters.web").joinpath("static")
    page = files.joinpath("index.html").read_text("utf-8")
    early = re.findall(r'rel="modulepreload" href="/static/([^"]+)"', page)
    needed: set[str] = set()
    found = re.findall(r'<script type="module" src="/static/([^"]+)"', page)
    while found:
        needed.add(name := found.pop())
        source = files.joinpath(name).read_text("utf-8")
        found += {*re.findall(r'^import .*from "\./([^"]+)"', source, re.MULTILINE)} - needed
    assert len(early) == len(set(early))
    assert set(early) <= needed


@pytest.mark.parametrize(
    "path", ["static/", "static/../channel.py", "static/%2e%2e/channel.py", "static/none.js"]
)
async def test_nothing_but_the_pages_files_is_served(chat, path):
    async with aiohttp.ClientSession() as client, client.get(chat.url + path) as answer:
        assert answer.status == 404


# --- talking --------------------------------------------------------------------------------------


async def test_a_message_is_stored_and_then_confirmed(chat):
    async with chat.page(locale="de") as page:
        await page.say(type="send", id="m1", text="hello", locale="zh-CN")
        ack = await page.until("ack")
    assert ack["id"] == "m1"
    [inbound] = chat.engine.received
    assert inbound == Inbound(
        channel="web",
        account="default",
        chat="owner",
        chat_type="direct",
        sender="owner",
        message_id="m1",
        text="hello",
        sent_at=inbound.sent_at,
        locale="zh-CN",
    )
    assert inbound.sent_at == ack["at"]


async def test_the_language_of_the_hello_holds_for_messages_without_one(chat):
    async with chat.page(locale="zh-TW") as page:
        await page.say(type="send", id="m1", text="hello")
        await page.until("ack")
    assert chat.engine.received[0].locale == "zh-TW"


async def test_no_confirmation_before_it_is_stored(chat):
    storing, stored = asyncio.Event(), asyncio.Event()

    async def slow(inbound: Inbound) -> None:
        storing.set()
        await stored.wait()

    chat.engine.receive = slow  # type: ignore[method-assign]
    async with chat.page() as page:
        await page.say(type="send", id="m1", text="hello")
        await storing.wait()
        await chat.web.typing(ADDRESS)
        await page.until("typing")
        assert "ack" not in {frame["type"] for frame in page.frames}
        stored.set()
        await page.until("ack", id="m1")


async def test_a_message_that_could_not_be_stored_is_left_to_the_page(chat):
    chat.engine.failures = 1
    async with chat.page() as page:
        await page.say(type="send", id="m1", text="hello")
        error = await page.until("error")
        assert (error["key"], error["id"]) == ("storage", "m1")
        assert "kept here and will be sent again" in error["text"]
        await page.say(type="send", id="m1", text="hello")
        await page.until("ack", id="m1")
    assert [inbound.message_id for inbound in chat.engine.received] == ["m1"]


async def test_an_unexpected_failure_is_told_without_details(chat):
    async def broken(inbound: Inbound) -> None:
        raise RuntimeError("a secret detail")

    chat.engine.receive = broken  # type: ignore[method-assign]
    async with chat.page(locale="zh") as page:
        await page.say(type="send", id="m1", text="hello")
        error = await page.until("error")
    assert (error["key"], error["id"]) == ("unexpected", "m1")
    assert "secret" not in error["text"]
    assert "消息" in error["text"]


async def test_replies_reach_every_page_rendered_and_as_written(chat):
    async with chat.page() as one, chat.page() as two:
        assert await post(chat.web, bot_says("**hi**<script>", at=7)) == "out-1"
        for page in (one, two):
            assert await page.until("message") == {
                "type": "message",
                "id": "out-1",
                "role": "bot",
                "html": "<p><strong>hi</strong>&lt;script&gt;</p>\n",
                "text": "**hi**<script>",
                "at": 7,
                "replaces": [],
            }


async def test_sending_with_no_page_open_succeeds(chat):
    assert await post(chat.web, bot_says("hi")) == "out-1"
    await chat.web.typing(ADDRESS)
    await chat.web.draft(ADDRESS, "d", "text")


async def test_a_message_of_one_page_shows_on_the_others_only(chat):
    async with chat.page() as one, chat.page() as two:
        await one.say(type="send", id="m1", text="*hello*")
        shown = await two.until("message")
        assert (shown["id"], shown["role"], shown["text"]) == ("m1", "user", "*hello*")
        await one.until("ack")
        await post(chat.web, bot_says("hi"))
        await one.until("message", role="bot")
        assert "user" not in {frame.get("role") for frame in one.frames}


async def test_very_long_replies_are_rendered_too(chat, page):
    await post(chat.web, bot_says("word **bold** " * 5000))
    assert (await page.until("message"))["html"].count("<strong>") == 5000


# --- history and drafts ---------------------------------------------------------------------------


async def test_history_comes_first_and_in_order(chat):
    chat.engine.lines = [
        HistoryItem("a", "user", "<b>hi</b>", 1),
        HistoryItem("b", "bot", "**hello**", 2),
        HistoryItem("c", "divider", "New conversation", 3),
    ]
    async with chat.page() as page:
        items = page.frames[-1]["items"]
    assert [item["id"] for item in items] == ["a", "b", "c"]
    assert items[0] == {"id": "a", "role": "user", "html": "", "text": "<b>hi</b>", "at": 1}
    assert items[1]["html"] == "<p><strong>hello</strong></p>\n"
    assert [frame["type"] for frame in page.frames] == ["commands", "history"]


async def test_a_huge_history_is_cut_at_its_old_end(chat):
    chat.engine.lines = [HistoryItem(str(n), "user", "x" * 100_000, n) for n in range(200)]
    async with chat.page() as page:
        items = page.frames[-1]["items"]
    assert items[-1]["id"] == "199"
    assert len(items) == 20


async def test_what_was_said_before_is_read_on_demand(chat):
    chat.engine.lines = [HistoryItem(f"m{n}", "user", f"{n}", n, f"s.{n}") for n in range(450)]
    async with chat.page() as page:
        frame, seen = page.frames[-1], list[str]()
        while frame["items"]:
            seen = [item["text"] for item in frame["items"]] + seen
            await page.say(type="older", before=frame["before"])
            frame = await page.until("older")
        assert frame == {"type": "older", "items": [], "before": ""}
    assert seen == [str(n) for n in range(450)]


async def test_however_long_a_line_is_older_ones_come_one_at_least_at_a_time(chat):
    chat.engine.lines = [
        HistoryItem(f"m{n}", "user", "x" * 200_000, n, f"s.{n}") for n in range(15)
    ]
    async with chat.page() as page:
        await page.say(type="older", before=page.frames[-1]["before"])
        first = await page.until("older")
        await page.say(type="older", before=first["before"])
        second = await page.until("older")
    assert [len(frame["items"]) for frame in (first, second)] == [1, 1]
    assert [item["id"] for frame in (second, first) for item in frame["items"]] == ["m3", "m4"]


@pytest.mark.parametrize("before", [None, "", 7, "a b", "\0", "x" * 201, ["s.1"]])
async def test_a_place_that_cannot_be_is_refused(before, page):
    await page.say(type="older", before=before)
    assert (await page.until("error"))["key"] == "malformed"


async def test_older_lines_that_cannot_be_read_now_may_be_asked_for_again(chat, page):
    chat.engine.lines = [HistoryItem(f"m{n}", "user", f"{n}", n, f"s.{n}") for n in range(2)]
    right = chat.engine.history

    async def broken(*_: object) -> list[HistoryItem]:
        raise StorageError("the disk is gone")

    chat.engine.history = broken  # type: ignore[method-assign]
    await page.say(type="older", before="s.1")
    await page.until("error", key="older")
    chat.engine.history = right  # type: ignore[method-assign]
    await page.say(type="older", before="s.1")
    assert [item["id"] for item in (await page.until("older"))["items"]] == ["m0"]


async def test_a_message_says_with_what_another_conversation_begins(chat, page):
    await post(chat.web, bot_says("New conversation.", begins="m7"))
    assert (await page.until("message"))["begins"] == "m7"


async def test_what_is_said_while_history_is_read_comes_after_it(chat):
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(address: object, limit: int) -> list[HistoryItem]:
        asked.set()
        await go.wait()
        return []

    chat.engine.history = slow  # type: ignore[method-assign]
    async with chat.page(hello=False) as page:
        await page.say(type="hello", version=1)
        await asked.wait()
        await post(chat.web, bot_says("meanwhile"))
        go.set()
        await page.until("message", text="meanwhile")
    assert [frame["type"] for frame in page.frames] == ["commands", "history", "message"]


async def test_commands_come_in_the_persons_language(chat):
    async with chat.page(locale="zh-CN") as page:
        assert page.frames[0]["items"][0] == {
            "name": "new",
            "description": "开始新对话",
            "usage": "[model]",
        }


async def test_a_history_that_cannot_be_read_says_so_and_closes(chat):
    async def broken(address: object, limit: int) -> list[HistoryItem]:
        raise StorageError

    chat.engine.history = broken  # type: ignore[method-assign]
    async with chat.page(hello=False) as page:
        await page.say(type="hello", version=1)
        await page.until("error", key="history")
        assert await page.closed() == 1013


async def test_drafts_are_paced_and_replaced_by_the_reply(chat, page):
    text = ""
    for number in range(300):
        text += f"w{number} "
        await chat.web.draft(ADDRESS, "d1", text)
    last = await page.until("draft", html=f"<p>{text.strip()}</p>\n")
    assert last["id"] == "d1"
    assert len([frame for frame in page.frames if frame["type"] == "draft"]) <= 3
    await post(chat.web, bot_says("done"))
    assert (await page.until("message"))["replaces"] == ["d1"]


async def test_no_long_text_is_rendered_on_the_event_loop(chat, monkeypatch):
    on_the_loop: list[int] = []

    def watched(text: str, *, rich: bool) -> str:
        if threading.current_thread() is threading.main_thread():
            on_the_loop.append(len(text))
            assert not takes_long(text)
        return render(text, rich=rich)

    monkeypatch.setattr("adapters.web.pages.render", watched)
    long = "word " * 2_000
    chat.engine.lines.append(HistoryItem("long", "bot", long, 1))
    async with chat.page() as page:
        await chat.web.draft(ADDRESS, "d1", long)
        await page.until("draft", id="d1")
        async with chat.page() as late:
            await late.until("draft", id="d1")
        await post(chat.web, Outbound("o1", ADDRESS, long))
        await page.until("message", id="o1")
        for number, slow in enumerate(("```python\nx = 1\n```", "$x^2$", "\\(x_1\\)")):
            await post(chat.web, Outbound(f"s{number}", ADDRESS, slow))
            html = (await page.until("message", id=f"s{number}"))["html"]
            assert "<math" in html or "<span" in html
    assert max(on_the_loop, default=0) <= LONG_TEXT


async def test_a_notice_leaves_drafts_alone(chat, page):
    await chat.web.draft(ADDRESS, "d1", "so far")
    await post(chat.web, bot_says("nearly full", kind="notice"))
    assert (await page.until("message"))["replaces"] == []
    await chat.web.draft(ADDRESS, "d1", "")
    await page.until("draft", html="")


async def test_a_page_that_comes_late_sees_the_draft(chat):
    await chat.web.draft(ADDRESS, "d1", "so **far**")
    async with chat.page() as page:
        assert "<strong>far</strong>" in (await page.until("draft", id="d1"))["html"]


async def test_a_text_client_gets_text_beside_a_page_that_gets_html(chat):
    async with chat.page(format="text") as terminal, chat.page() as page:
        await chat.web.draft(ADDRESS, "d1", "**so**")
        assert await terminal.until("draft") == {"type": "draft", "id": "d1", "text": "**so**"}
        assert "text" not in await page.until("draft")
        await post(chat.web, bot_says("**hi**"))
        assert (await terminal.until("message"))["html"] == ""
        assert (await page.until("message"))["html"]


# --- buttons, pictures, files ---------------------------------------------------------------------

CHOICES = (Button("Compact", "/compact"), Button("Not now", "/notices later"))
PICTURE = Attachment("context.png", "image/png", b"picture")


async def test_buttons_and_pictures_come_with_their_message(chat):
    async with chat.page() as page:
        await post(chat.web, bot_says("full", buttons=CHOICES, attachments=(PICTURE,)))
        frame = await page.until("message")
    assert frame["buttons"] == [
        {"label": "Compact", "command": "/compact"},
        {"label": "Not now", "command": "/notices later"},
    ]
    assert frame["attachments"] == [
        {
            "name": "context.png",
            "size": 7,
            "picture": True,
            "data": "data:image/png;base64,cGljdHVyZQ==",
        }
    ]


async def test_they_come_again_with_the_history(chat):
    await post(chat.web, bot_says("full", buttons=CHOICES, attachments=(PICTURE,)))
    await post(chat.web, bot_says("plain", "out-2"))
    chat.engine.lines = [HistoryItem(f"out-{n}", "bot", "x", n) for n in (1, 2, 3)]
    async with chat.page() as page:
        first, *others = page.frames[-1]["items"]
    assert (len(first["buttons"]), len(first["attachments"])) == (2, 1)
    assert all(item.keys() == {"id", "role", "html", "text", "at"} for item in others)


async def test_a_terminal_gets_names_and_no_pictures(chat):
    async with chat.page(format="text") as terminal:
        await post(chat.web, bot_says("full", buttons=CHOICES, attachments=(PICTURE,)))
        frame = await terminal.until("message")
        assert len(frame["buttons"]) == 2
        assert [(f["name"], f["size"], f["data"]) for f in frame["attachments"]] == [
            ("context.png", 7, "")
        ]
    chat.engine.lines = [HistoryItem("out-1", "bot", "x", 1)]
    async with chat.page(format="text") as terminal:
        assert terminal.frames[-1]["items"][0]["attachments"][0]["data"] == ""


@pytest.mark.parametrize("mime", ["image/svg+xml", "text/html", "", "IMAGE/PNG;x", "application/x"])
async def test_only_pictures_that_cannot_act_are_shown(chat, mime):
    async with chat.page() as page:
        await post(chat.web, bot_says("x", attachments=(Attachment("a", mime, b"<svg/>"),)))
        [file] = (await page.until("message"))["attachments"]
    assert file["data"].startswith("data:application/octet-stream;base64,")


async def test_what_does_not_fit_a_message_is_named(chat):
    files = [Attachment(str(size), "image/png", b"x" * size) for size in (1_500_000, 600_000, 9)]
    async with chat.page() as page:
        await post(chat.web, bot_says("x", attachments=tuple(files)))
        shown = (await page.until("message"))["attachments"]
    assert [(file["name"], bool(file["data"])) for file in shown] == [
        ("1500000", True),
        ("600000", False),
        ("9", True),
    ]


async def test_what_is_remembered_is_bounded(chat):
    large = Attachment("a.png", "image/png", b"x" * 1_500_000)
    for number in range(200):
        await post(chat.web, bot_says("x", f"b{number}", buttons=CHOICES))
    shelf = chat.web._pages_of(ADDRESS.chat)._shelf
    assert len(shelf._kept) == 64
    for number in range(5):
        await post(chat.web, bot_says("x", f"p{number}", attachments=(large,)))
        await post(chat.web, bot_says("x", f"p{number}", attachments=(large,)))  # a second try
    assert list(shelf._kept)[-2:] == ["p3", "p4"]
    assert shelf._chars <= 6_000_000
    assert shelf.of("p0") == {}


async def test_the_policy_lets_pictures_of_the_page_in_and_nothing_else(chat):
    async with aiohttp.ClientSession() as client, client.get(chat.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
        allowed = answer.headers["Permissions-Policy"]
    assert "default-src 'none'" in policy
    assert "img-src 'self' data:;" in policy
    assert "media-src data:;" in policy
    assert allowed == "camera=(), geolocation=(), microphone=(self)"
    assert "unsafe" not in policy


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ["", "{", "[]", '"send"', '{"type":"history"}', '{"type":"hello"}'])
async def test_frames_that_make_no_sense_are_answered_and_change_nothing(chat, raw):
    async with chat.page() as page:
        await page.ws.send_str(raw)
        await page.until("error", key="malformed", id="")
        await page.say(type="send", id="m1", text="still here")
        await page.until("ack", id="m1")
    assert len(chat.engine.received) == 1


async def test_binary_frames_are_refused(chat):
    async with chat.page() as page:
        await page.ws.send_bytes(b'{"type":"send","id":"m1","text":"hi"}')
        await page.until("error", key="malformed")
    assert chat.engine.received == []


async def test_a_message_too_long_is_refused_and_the_longest_is_taken(page):
    await page.say(type="send", id="m1", text="x" * (MAX_TEXT + 1))
    error = await page.until("error", id="m1")
    assert error["key"] == "too_long"
    assert "64 kB" in error["text"]
    await page.say(type="send", id="m2", text="\x01" * MAX_TEXT)
    await page.until("ack", id="m2")


async def test_a_frame_too_large_closes_the_connection(chat):
    async with chat.page() as page:
        await page.ws.send_str("x" * (MAX_FRAME + 1))
        assert await page.closed() == 1009
    async with chat.page() as page:
        await page.say(type="send", id="m1", text="others go on")
        await page.until("ack")


async def test_a_connection_must_begin_with_hello(chat):
    async with chat.page(hello=False) as page:
        await page.say(type="send", id="m1", text="hi")
        await page.until("error", key="malformed")
        assert await page.closed() == 1008
    assert chat.engine.received == []


async def test_another_version_is_told_to_load_again(chat):
    async with chat.page(hello=False) as page:
        await page.say(type="hello", version=2)
        await page.until("error", key="version")
        assert await page.closed() == 1008


async def test_a_connection_that_stays_silent_is_closed(chat, monkeypatch):
    monkeypatch.setattr("adapters.web.channel.HELLO_SECONDS", 0.05)
    async with chat.page(hello=False) as page:
        assert await page.closed() == 1008


async def test_before_hello_nothing_is_told(chat):
    async with chat.page(hello=False) as quiet, chat.page() as page:
        await post(chat.web, bot_says("private"))
        await page.until("message")
        await quiet.say(type="hello", version=1)
        await quiet.until("history")
        assert [frame["type"] for frame in quiet.frames] == ["commands", "history"]


async def test_a_flood_is_slowed_and_loses_nothing(chat, monkeypatch):
    monkeypatch.setattr("adapters.web.channel.BURST", 5)
    monkeypatch.setattr("adapters.web.channel.FRAMES_PER_SECOND", 100.0)
    loop = asyncio.get_running_loop()
    async with chat.page() as page:
        began = loop.time()
        for number in range(25):
            await page.say(type="send", id=f"m{number}", text="again")
        await page.until("ack", id="m24")
        assert loop.time() - began >= 0.19
    assert [inbound.message_id for inbound in chat.engine.received] == [
        f"m{number}" for number in range(25)
    ]


async def test_too_many_pages_are_refused(chat, monkeypatch):
    monkeypatch.setattr("adapters.web.channel.MAX_SOCKETS", 1)
    async with chat.page():
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            async with chat.page():
                pass
        assert caught.value.status == 503


async def test_a_page_that_is_still_being_opened_has_its_place(chat, monkeypatch):
    monkeypatch.setattr("adapters.web.channel.MAX_SOCKETS", 1)
    prepare, opening, gate = web.WebSocketResponse.prepare, asyncio.Event(), asyncio.Event()

    async def slow(self: web.WebSocketResponse, request: web.BaseRequest) -> Any:
        assert not opening.is_set(), "there is room for one"
        opening.set()
        await gate.wait()
        return await prepare(self, request)

    monkeypatch.setattr(web.WebSocketResponse, "prepare", slow)

    async def visit() -> None:
        async with chat.page():
            pass

    first = asyncio.create_task(visit())
    await opening.wait()
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await visit()
    assert caught.value.status == 503
    gate.set()
    await first


async def test_a_page_that_does_not_read_is_dropped_and_others_go_on(chat):
    async with chat.page() as lazy, chat.page() as page:
        transport: Any = lazy.ws._response.connection.transport  # type: ignore[union-attr]
        transport.pause_reading()
        sent = 0
        while len(chat.web._sockets) == 2:
            await post(chat.web, bot_says("x" * 90_000, f"out-{sent}"))
            await page.until("message", id=f"out-{sent}")
            sent += 1
            assert sent < 2000
        await page.say(type="send", id="m1", text="fine here")
        await page.until("ack", id="m1")
        transport.resume_reading()


async def test_stopping_says_goodbye_after_what_is_being_stored(chat):
    storing, stored = asyncio.Event(), asyncio.Event()
    kept: list[str] = []

    async def slow(inbound: Inbound) -> None:
        storing.set()
        await stored.wait()
        kept.append(inbound.message_id)

    chat.engine.receive = slow  # type: ignore[method-assign]
    async with chat.page() as page:
        await page.say(type="send", id="m1", text="hello")
        await storing.wait()
        stopping = asyncio.create_task(chat.web.stop())
        code = await page.closed()
        assert not stopping.done()
        stored.set()
        await stopping
    assert (code, kept) == (1001, ["m1"])
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        async with chat.page():
            pass
    assert caught.value.status == 503


async def test_what_goes_on_is_shown_on_every_page_and_on_one_that_opens_meanwhile(chat):
    begun = Activity("s1.saving", "saving", "begun")
    async with chat.page() as first:
        await chat.web.activity(ADDRESS, begun)
        frame = await first.until("activity")
        assert frame == {
            "type": "activity",
            "id": "s1.saving",
            "what": "saving",
            "state": "begun",
            "where": "",
            "text": "",
            "found": 0,
            "draft": "",
        }
        async with chat.page() as second:
            assert (await second.until("activity"))["state"] == "begun"
            end = Activity("s1.saving", "saving", "done", "MEMORY.md:3")
            await chat.web.activity(ADDRESS, end)
            for page in (first, second):
                assert (await page.until("activity"))["where"] == "MEMORY.md:3"
        async with chat.page() as third:
            await chat.web.typing(ADDRESS)
            await third.until("typing")
            assert "activity" not in [each["type"] for each in third.frames]


async def test_a_page_is_told_which_model_answers_and_which_there_are(page):
    assert "models" not in {frame["type"] for frame in page.frames}  # only who asks
    await page.say(type="models")
    assert await page.until("models") == {
        "type": "models",
        "chosen": "scripted/one",
        "stand_in": "",
        "offered": ["scripted/one", "scripted/two"],
        "more": 0,
    }


async def test_models_that_cannot_be_read_leave_the_page_as_it_is(chat, monkeypatch):
    async def fails(*_: object) -> None:
        raise StorageError

    monkeypatch.setattr(chat.engine, "models", fails)
    async with chat.page() as page:
        await page.say(type="models")
        await page.say(type="send", id="m1", text="hello")
        await page.until("ack")
        assert "models" not in {frame["type"] for frame in page.frames}
