"""What the chat page shows of a conversation, through the whole engine."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image
from prometheus_client import CollectorRegistry

from adapters.web import plugin
from adapters.web.files import shown_as
from bot.agent.models import Reply, Request, ToolSpec, Usage
from bot.app import App, Parts
from bot.channel import MOST_UPLOAD, MOST_UPLOAD_PART, HistoryItem
from bot.cli import memory as cli
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer
from bot.dashboard.guard import COOKIE
from bot.errors import ModelUnreachable
from bot.gateway import lanes
from bot.messages import Message, Picture, Text, ToolUse
from bot.settings import config_model
from bot.testing import ScriptedModel
from tests.fakes import postgres
from tests.fakes.brain import change, query
from tests.fakes.browsers import BrowsersInMemory
from tests.fakes.page_nodes import page_from_files, page_nodes
from tests.fakes.page_people import Browser, browser
from tests.fakes.push_service import PushService
from tests.fakes.web_pages import Chat, Page, ready
from tests.fakes.whole_page import whole_page
from tests.support import PATIENCE, Engine, FakeClock, make_config, running, until

CODE = "Here:\n\n```python\nprint(1)"
ANYWHERE: dict[str, Any] = {"agent": {"timezone": ""}}  # the zone is this machine's


async def history(engine: Engine) -> Sequence[HistoryItem]:
    """The conversation as a page that is loaded again has it."""
    assert engine.channel.engine is not None
    return await engine.channel.engine.history(engine.message("").address, 50)


async def shown(engine: Engine) -> list[str]:
    """What the bot said of it."""
    return [line.text for line in await history(engine) if line.role == "bot"]


async def test_that_a_reply_was_stopped_stands_outside_of_its_code(tmp_path):
    model = ScriptedModel(script=lambda _: CODE, gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("show me")
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.say("/stop")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        told = next(text for text in engine.sent_to("ada") if "(stopped)" in text)
    assert told.count("```") % 2 == 0


async def test_what_a_reply_cost_stands_outside_of_its_code_and_is_there_after_a_reload(tmp_path):
    model = ScriptedModel(script=lambda _: CODE)
    async with running(tmp_path, model=model) as engine:
        await engine.ask("/usage tokens")
        said = await engine.ask("show me")
        assert "print(1)\n```\n\n_" in said
        assert (await shown(engine))[-1] == said
    async with running(tmp_path, model=model) as engine:
        assert (await shown(engine))[-1] == said
        await engine.ask("/usage off")
        said = await engine.ask("show me")
        assert (await shown(engine))[-1] == said == CODE


async def test_the_zone_of_the_browser_counts_for_who_chose_none(tmp_path):
    async with running(tmp_path, **ANYWHERE) as engine:
        assert "I use mine" in await engine.ask("/timezone")
        said = await engine.ask("/timezone", zone="Asia/Kathmandu")
        assert "I use your browser's: Asia/Kathmandu" in said
        await engine.ask("/remind every day at 8 stretch", zone="Asia/Kathmandu")
        assert query(tmp_path, "SELECT zone FROM repeats") == [("Asia/Kathmandu",)]
        await engine.ask("hello", zone="Asia/Tokyo")  # they travelled
        assert query(tmp_path, "SELECT zone FROM repeats") == [("Asia/Tokyo",)]
        assert "I use mine" in await engine.ask("/timezone", sender="bob")
    async with running(tmp_path, **ANYWHERE) as engine:
        assert "your browser's: Asia/Tokyo" in await engine.ask("/timezone")


async def test_a_zone_that_was_chosen_comes_before_that_of_the_browser(tmp_path):
    async with running(tmp_path, **ANYWHERE) as engine:
        await engine.ask("/timezone Berlin", zone="Asia/Tokyo")
        assert "Europe/Berlin" in await engine.ask("/timezone", zone="Asia/Kathmandu")
        assert "Asia/Kathmandu" in await engine.ask("/timezone auto")
    for chosen in (
        {"agent": {"timezone": "Europe/Oslo"}},
        {
            **ANYWHERE,
            "session": {
                "timezones": {"ada": "Europe/Oslo"},
                "identity_links": {"ada": ["memory:ada"]},
            },
        },
    ):
        async with running(tmp_path, **chosen) as engine:
            assert "Europe/Oslo" in await engine.ask("/timezone", zone="Asia/Tokyo")


async def test_a_zone_that_is_none_changes_nothing(tmp_path):
    async with running(tmp_path, **ANYWHERE) as engine:
        for zone in ("Mars/Olympus", "../../etc/passwd", "/etc/localtime", "UTC\0"):
            assert "I use mine" in await engine.ask("/timezone", zone=zone)
    assert query(tmp_path, "SELECT * FROM told_zones") == []


async def test_forgetting_is_confirmed_by_buttons(engine):
    await engine.ask_each("My locker code is 4711.", "/memory forget 4711")
    [*_, asked] = engine.channel.sent
    assert [each.command for each in asked.buttons] == [
        "/memory forget yes",
        "/memory forget no",
    ]
    assert "Nothing was forgotten" in await engine.ask(asked.buttons[1].command)
    await engine.ask("/memory forget 4711")
    assert "Forgotten:" in await engine.ask(asked.buttons[0].command)


@pytest.mark.parametrize(("words", "is_found"), [("harbour", True), ("xylophone", False)])
async def test_a_search_says_what_for_and_whether_it_found_any(tmp_path, words, *, is_found):
    use = ToolUse("c1", "transcript_search", {"query": f"{words}\n  "})

    def script(request: Request) -> str | Reply:
        last = request.messages[-1]
        if "go" in last.text.split():
            return Reply(Message("assistant", (use,)), "tool_use", Usage(1, 1))
        return "Done."

    async with running(tmp_path, model=ScriptedModel(script=script)) as engine:
        await engine.ask_each("The harbour opens at seven.", "/new", "go")
        looked = [each for each in engine.channel.activities if each.kind == "searching"]
    assert [(each.state, each.text) for each in looked] == [("begun", words), ("done", words)]
    assert looked[0].id == looked[1].id
    assert (looked[1].found > 0) is is_found


async def test_a_turn_that_failed_says_which_message_may_be_asked_again(tmp_path):
    model = ScriptedModel(script=lambda _: ModelUnreachable())
    async with running(tmp_path, model=model) as engine:
        asked = await engine.say("are you there?")
        await engine.channel.wait_sent(1)
        assert engine.channel.sent[0].failed == (asked.message_id,)
    async with running(tmp_path, model=model) as engine:  # also when it is read back
        line = (await history(engine))[-1]
        assert line.failed == (asked.message_id,)
        again = replace(asked, message_id=f"again-{line.id}", sent_at=asked.sent_at + 1)
        model.script = lambda request: f"You said: {request.messages[-1].text}"
        for _ in range(3):  # pressed again, on another page, on another node
            await engine.channel.push(again)
        await engine.channel.wait_sent(1)
        await engine.ask("good bye")
        assert engine.sent_to("ada") == ["You said: are you there?", "You said: good bye"]
        assert [line.failed for line in await history(engine) if line.failed] == [line.failed]
        assert all(not piece.failed for piece in engine.channel.sent)


async def test_what_was_asked_in_a_burst_is_asked_again_together(tmp_path):
    model, queue = ScriptedModel(gate=asyncio.Event()), {"mode": "collect", "debounce": 0}
    async with running(tmp_path, model=model, session={"queue": queue}) as engine:
        await engine.say("first")
        await asyncio.wait_for(model.started.wait(), 30)
        burst = [await engine.say(text) for text in ("second", "third")]
        model.script = lambda _: ModelUnreachable()
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_sent(2)
        assert engine.channel.sent[1].failed == tuple(each.message_id for each in burst)


async def test_a_message_that_says_nothing_or_was_stopped_is_no_failure(tmp_path):
    model = ScriptedModel(script=lambda _: "Once upon a time", gate=asyncio.Event())
    async with running(tmp_path, model=model, limits={"each": {"day_tokens": 10}}) as engine:
        await engine.say("tell me")
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.say("/stop")
        await engine.channel.wait_until(lambda sent: len(sent) >= 2)
        model.gate = None
        assert "limit" in (await engine.ask("and on?")).lower()  # nothing is left for today
        assert [piece.failed for piece in engine.channel.sent if piece.failed] == []


async def test_an_empty_reply_may_be_asked_again(tmp_path):
    async with running(tmp_path, model=ScriptedModel(script=lambda _: "")) as engine:
        asked = await engine.say("well?")
        await engine.channel.wait_sent(1)
        assert engine.channel.sent[0].failed == (asked.message_id,)


async def test_a_message_set_aside_may_be_asked_again(tmp_path, monkeypatch):
    async with running(tmp_path) as engine:
        await engine.ask("hello")

    async def broken(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(lanes, "MAX_TRIES", 1)
    monkeypatch.setattr("bot.gateway.requests.Requests.of", broken)
    async with running(tmp_path) as engine:
        asked = await engine.say("never")
        await engine.channel.wait_sent(1)
        assert engine.channel.sent[0].failed == (asked.message_id,)
        assert (await history(engine))[-1].failed == (asked.message_id,)


def calls(*uses: ToolUse) -> Reply:
    return Reply(Message("assistant", uses), "tool_use", Usage(1, 1))


def steps(engine: Engine) -> list[tuple[str, str, str]]:
    shown = [each for each in engine.channel.activities if each.kind in {"searching", "calling"}]
    return [(each.id.partition(".")[2], each.text, each.state) for each in shown]


async def test_tools_are_told_by_name_with_how_they_ended_and_nothing_of_what_they_said(engine):
    long = "x" * 300
    script = [
        calls(
            ToolUse("call_0", "memory_write", {"text": "tea, secret-1"}),
            ToolUse("call_1", long, {"query": "secret-2"}),
        ),
        calls(ToolUse("call_0", "memory_get", {"path": "secret-3.md"})),  # with an id used before
        "Done.",
    ]
    engine.model.script = lambda _: script[len(engine.model.requests) - 1]
    await engine.ask("go")
    drafts = {each.draft for each in engine.channel.activities}
    assert drafts == {engine.channel.sent[0].draft}
    assert steps(engine) == [
        ("1", "memory_write", "begun"),
        ("1", "memory_write", "done"),
        ("2", "x" * 120, "begun"),
        ("2", "x" * 120, "failed"),
        ("3", "memory_get", "begun"),
        ("3", "memory_get", "failed"),
    ]
    assert "secret" not in str([asdict(each) for each in engine.channel.activities])


async def test_of_very_many_calls_the_first_are_told(engine):
    uses = [ToolUse(f"c{n}", "memory_get", {"path": "no.md"}) for n in range(100)]
    engine.model.script = lambda _: calls(*uses) if len(engine.model.requests) == 1 else "Done."
    await engine.ask("go")
    assert len(steps(engine)) == 2 * 64


async def test_a_call_that_is_stopped_did_not_work(tmp_path):
    use = ToolUse("c1", "slow", {})
    begun = asyncio.Event()

    class Slow:
        spec = ToolSpec("slow", "Takes for ever.", {"type": "object"})

        async def run(self, arguments: object, context: object) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

    model, owner = ScriptedModel(script=lambda _: calls(use)), {"owner": ("memory:ada",)}
    async with running(tmp_path, model=model, tools=(Slow(),), session=owner) as engine:
        await engine.say("go")
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await engine.say("/stop")
        await until(lambda: len(steps(engine)) == 2)
        assert [state for *_, state in steps(engine)] == ["begun", "failed"]


A, B = "a" * 32, "b" * 32


def png(colour: str = "red") -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (40, 30), colour).save(held, "PNG")
    return held.getvalue()


class Served(Chat):
    """The program with nothing but its page; `model` says what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ScriptedModel()
        self.clock = FakeClock()

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[Served]:
        told, _ = make_config(folder)
        data = told.model_dump(exclude={"channels"}, exclude_unset=True)
        config = config_model({"web": plugin}).model_validate(data)
        parts = Parts(
            clock=self.clock, remote=self.model, channels={"web": self.web}, dashboard=False
        )
        server = DashboardServer(
            DashboardConfig(port=0),
            readiness=ready,
            registry=CollectorRegistry(),
            channels=[self.web],
            browsers=BrowsersInMemory(self.guest),
        )
        async with App(config, {"web": plugin}, parts):
            self.url = (await server.start()).url
            try:
                yield self
            finally:
                await server.stop()

    @asynccontextmanager
    async def client(self, person: str = "") -> AsyncIterator[Client]:
        cookies = {COOKIE: f"let-in-as-{person}"} if person else {}
        jar = aiohttp.CookieJar(unsafe=True)
        headers = {"Origin": self.url.rstrip("/")}
        async with aiohttp.ClientSession(
            cookies=cookies, cookie_jar=jar, headers=headers
        ) as session:
            yield Client(self.url, session)


class Client:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def put(self, data: bytes, id_: str = A, **said: Any) -> int:
        """Bring a file in its parts; the last status."""
        kind = said.pop("kind", "image/png")
        query = {"name": "a.png", "size": str(len(data)), **said}
        status = 0
        for part in range(0, max(len(data), 1), MOST_UPLOAD_PART):
            async with self.session.post(
                f"{self.url}chat/files/{id_}",
                params={"part": str(part // MOST_UPLOAD_PART), **query},
                data=data[part : part + MOST_UPLOAD_PART],
                headers={"Content-Type": kind},
            ) as answer:
                status = answer.status
        return status

    async def get(self, id_: str = A) -> tuple[int, str, bytes]:
        async with self.session.get(f"{self.url}chat/files/{id_}") as answer:
            return answer.status, answer.content_type, await answer.read()


@pytest.fixture
def chat():
    return Served()


def shown_to(model: ScriptedModel) -> list[object]:
    return [block for message in model.requests[-1].messages for block in message.blocks]


async def test_a_picture_reaches_the_model_and_is_there_after_a_reload(chat, tmp_path):
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(png()) == 204
        assert await client.put(png()) == 204  # tried again, as the answer was lost
        async with chat.page() as page, chat.page() as other:
            await page.say(type="send", id="m1", text="", files=[A])
            await page.until("ack", id="m1")
            sent = {"id": A, "name": "a.png", "size": len(png()), "picture": True}
            assert (await other.until("message", role="user"))["files"] == [sent]
            await page.until("message", role="bot")
        assert any(isinstance(block, Picture) for block in shown_to(chat.model))
        assert await client.get() == (200, "image/png", png())
        async with chat.page() as page:
            assert page.frames[-1]["items"][0]["files"] == [sent]
    chat.clock.advance(days=2)
    later = replace_model(chat)
    async with later.running(tmp_path), later.client() as client:
        assert await client.put(png("blue"), B) == 204
        assert (await client.get())[0] == 404
        async with later.page() as page:
            assert page.frames[-1]["items"][0]["files"] == [{"id": A, "gone": True}]


def replace_model(chat: Served) -> Served:
    """The same program, started anew at the same time."""
    again = Served()
    again.clock = chat.clock
    return again


async def test_a_document_larger_than_a_part_is_read(chat, tmp_path):
    words = b"The harbour opens at seven.\n" + b"x" * (MOST_UPLOAD_PART - 100_000)
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(words, name="plan.txt", kind="text/plain") == 204
        async with chat.page() as page:
            await page.say(type="send", id="m1", text="when?", files=[A])
            await page.until("message", role="bot")
        read = "".join(str(getattr(block, "text", "")) for block in shown_to(chat.model))
        assert "the file plan.txt, sent with this message" in read
        assert "The harbour opens at seven." in read
        assert "when?" in read
        assert await client.put(b"y" * (2 * MOST_UPLOAD_PART + 5), B, kind="text/plain") == 204
        assert (await client.get(B)) == (
            200,
            "application/octet-stream",
            b"y" * (2 * MOST_UPLOAD_PART + 5),
        )


async def test_what_was_brought_outlives_a_restart(chat, tmp_path):
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(png()) == 204
    again = replace_model(chat)
    async with again.running(tmp_path), again.page() as page:
        await page.say(type="send", id="m1", text="look", files=[A])
        await page.until("message", role="bot")
    assert any(isinstance(block, Picture) for block in shown_to(again.model))


async def test_a_file_that_is_part_of_a_message_that_waits_is_not_dropped(chat, tmp_path):
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(png()) == 204
        row = "INSERT INTO inbox(channel, account, chat, thread, message_id, state, key, body, "
        row += "received_at) VALUES ('web', 'default', 'owner', '', 'x', 'waiting', 'k', '{}', 0)"
        chat.clock.advance(days=2)
        change(tmp_path, row)
        assert await client.put(png(), B) == 204
        assert (await client.get())[0] == 200
        change(tmp_path, "DELETE FROM inbox WHERE message_id = 'x'")
        assert await client.put(png(), "c" * 32) == 204
        assert (await client.get())[0] == 404


async def test_nobody_else_reads_sends_or_drops_a_file(chat, tmp_path):
    async with (
        chat.running(tmp_path),
        chat.client() as owner,
        chat.client("ada") as ada,
        chat.page(person="ada") as page,
    ):
        assert await owner.put(png()) == 204
        assert (await ada.get())[0] == 404
        await page.say(type="send", id="m1", text="mine", files=[A])
        await page.until("error", key="files", id="m1")
        async with ada.session.delete(f"{chat.url}chat/files/{A}") as answer:
            assert answer.status == 204
        assert await ada.put(png("blue")) == 204  # the same id is another file of hers
        assert (await owner.get())[2] == png()
        async with owner.session.delete(f"{chat.url}chat/files/{A}"):
            pass
        assert (await owner.get())[0] == 404
        assert (await ada.get())[2] == png("blue")
    assert chat.model.requests == []


async def test_what_is_no_file_is_refused(chat, tmp_path):
    async with chat.running(tmp_path), chat.client() as client:
        for said, status in (
            ({"size": str(MOST_UPLOAD + 1)}, 413),
            ({"size": "3"}, 413),
            ({"size": "0"}, 400),
            ({"size": "-1"}, 400),
            ({"size": "x"}, 400),
            ({"part": "-1"}, 400),
            ({"part": "99"}, 400),
            ({"part": "9" * 5000}, 400),
            ({"id_": "short"}, 404),
            ({"id_": "..%2f" * 4}, 404),
        ):
            assert await client.put(png(), **said) == status, said
        assert await client.put(b"") == 400
        over = b"x" * (MOST_UPLOAD_PART + 1)
        async with client.session.post(f"{chat.url}chat/files/{A}?part=0&size=9", data=over) as a:
            assert a.status == 413
        async with client.session.post(
            f"{chat.url}chat/files/{A}?part=0&size=9", data=b"x", headers={"Origin": "http://evil"}
        ) as answer:
            assert answer.status == 403
    assert query(tmp_path, "SELECT count(*) FROM uploads") == [(0,)]


@pytest.mark.parametrize(
    ("kind", "voice", "found"),
    [
        ("audio/webm;codecs=opus", "1", ("voice", "audio/webm")),
        ("audio/webm", "", ("document", "audio/webm")),
        ("text/html", "1", ("document", "text/html")),
        ("image/png", "1", ("photo", "image/png")),
    ],
)
async def test_only_what_is_recorded_is_what_its_person_says(chat, tmp_path, kind, voice, found):
    async with chat.running(tmp_path), chat.client() as client:
        assert await client.put(b"x", kind=kind, voice=voice) == 204
    assert query(tmp_path, "SELECT kind, mime FROM uploads") == [found]


async def test_one_person_cannot_fill_the_disk(chat, tmp_path, monkeypatch):
    monkeypatch.setattr("bot.sessions.uploads.MOST_BYTES", 1_000)
    monkeypatch.setattr("bot.sessions.uploads.MOST_FILES", 3)
    async with chat.running(tmp_path), chat.client() as client, chat.client("ada") as ada:
        assert await client.put(b"x" * 900) == 204
        assert await client.put(b"x" * 101, B) == 413
        assert await client.put(b"x" * 10, B) == 204
        assert await client.put(b"x" * 10, "c" * 32) == 204
        assert await client.put(b"x" * 10, "d" * 32) == 413
        assert await ada.put(b"x" * 900) == 204
        chat.clock.advance(days=1.1)
        assert await client.put(b"x" * 900, "d" * 32) == 204


async def test_a_message_with_files_that_are_none_is_refused_and_changes_nothing(chat, tmp_path):
    async with chat.running(tmp_path), chat.client() as client, chat.page() as page:
        assert await client.put(png()) == 204
        for files in (["nope"], [A, A], "x", [A] * 11, [1], ["../../etc/passwd"], [B]):
            await page.say(type="send", id="m1", text="x", files=files)
            error = await page.until("error", id="m1")
            assert error["key"] == ("files" if files == [B] else "malformed"), files
    assert query(tmp_path, "SELECT count(*) FROM inbox") == [(0,)]


async def test_a_part_of_a_file_is_no_file(chat, tmp_path):
    async with chat.running(tmp_path), chat.client() as client, chat.page() as page:
        assert await client.put(b"half", size="8") == 204
        assert (await client.get())[0] == 404
        await page.say(type="send", id="m1", text="x", files=[A])
        await page.until("error", key="files", id="m1")


async def test_nothing_that_could_act_is_shown_as_what_it_claims_to_be(chat, tmp_path):
    hostile = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    async with chat.running(tmp_path), chat.client() as client:
        for kind in ("image/svg+xml", "text/html", "image/png", "x/\u00fc"):
            await client.put(hostile, kind=kind, name="<b>\u202e\n.png")
            assert (await client.get())[1] == "application/octet-stream"
            async with client.session.get(f"{chat.url}chat/files/{A}") as answer:
                assert answer.headers["Content-Disposition"] == "attachment"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (b"RIFF1234WAVE", None),
        (b"<svg", None),
        (b"", None),
    ],
)
def test_pictures_are_told_by_their_content(data, kind):
    assert shown_as(data) == kind


WORDS = "harbour code"


@asynccontextmanager
async def open_page(folder: Path) -> AsyncIterator[tuple[Engine, Browser]]:
    async with page_from_files(folder) as engine, browser(engine) as owner:
        await owner.log_in()
        yield engine, owner


async def say(page: Page, text: str, id_: str) -> dict[str, Any]:
    """Say something, and wait for its answer."""
    await page.say(type="send", id=id_, text=text)
    return await page.until("message")


async def in_the_chat(owner: Browser, folder: Path) -> None:
    async with owner.chat() as page:
        await say(page, f"/memory forget {WORDS}", "f1")
        await say(page, "/memory forget yes", "f2")


async def in_the_page(owner: Browser, folder: Path) -> None:
    status, _ = await owner.post("/memory/forgotten", words=WORDS)
    assert status == 303


async def in_a_terminal(owner: Browser, folder: Path) -> None:
    config = folder / "terminal.toml"  # without the channel of tests
    config.write_text('[memory.embedder]\nprovider = "none"\n')
    await asyncio.to_thread(cli.forget, WORDS.split(" "), config, yes=True)


WAYS = [in_the_chat, in_the_page, in_a_terminal]


@pytest.mark.usefixtures("logs_stay")
@pytest.mark.parametrize("forget", WAYS)
async def test_no_open_page_shows_what_was_forgotten(tmp_path, monkeypatch, forget):
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    async with open_page(tmp_path) as (_, owner), owner.chat() as page:
        await say(page, f"my {WORDS} is 4711", "m1")
        await say(page, "and the cat is grey", "m2")
        async with asyncio.timeout(PATIENCE):
            _, shown = await asyncio.gather(forget(owner, tmp_path), page.until("forgotten"))
        assert WORDS not in str(shown)
        lines = {line["id"]: line["text"] for line in shown["items"]}
        assert (lines["m1"], lines["m2"]) == ("", "and the cat is grey")
        assert any("cat is grey" in text for id_, text in lines.items() if id_ != "m2")


async def test_what_another_person_forgets_moves_no_page(tmp_path):
    async with open_page(tmp_path) as (engine, owner), browser(engine) as ada:
        await ada.post("/enter", key=await owner.link("ada"))
        async with owner.chat() as page, ada.chat() as hers:
            await say(page, f"my {WORDS} is 4711", "m1")
            await say(hers, f"my {WORDS} is 4712", "m1")
            await in_the_page(ada, tmp_path)
            assert WORDS not in str(await hers.until("forgotten"))
            await say(page, "still there?", "m2")
            assert "forgotten" not in {frame["type"] for frame in page.frames}


async def test_a_page_beside_the_chat_is_told_of_that_alone(tmp_path):
    async with (
        open_page(tmp_path) as (_, owner),
        owner.chat() as page,
        owner.client.ws_connect("/chat/ws") as ws,
    ):
        quiet = Page(ws)
        await quiet.say(type="hello", version=1, format="none")
        await quiet.say(type="models")  # whoever asks is answered
        await quiet.until("models")
        await say(page, f"my {WORDS} is 4711", "m1")
        await in_the_page(owner, tmp_path)
        assert await quiet.until("forgotten") == {"type": "forgotten"}
        assert len(quiet.frames) == 2


@pytest.mark.slow
async def test_what_is_forgotten_at_one_node_goes_from_pages_at_the_other(
    postgres_admin_url, tmp_path
):
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(PushService().served())
        url = stack.enter_context(postgres.a_database(postgres_admin_url))
        nodes = await stack.enter_async_context(page_nodes(url, tmp_path, service))
        owner = await stack.enter_async_context(nodes.browser())
        await owner.here.log_in()
        page = await stack.enter_async_context(owner.there.chat())
        await say(page, f"my {WORDS} is 4711", "m1")
        await in_the_page(owner.here, tmp_path)
        shown = await asyncio.wait_for(page.until("forgotten"), PATIENCE)
        assert {line["text"] for line in shown["items"] if line["id"] == "m1"} == {""}


ONCE = re.compile(r'name="once" value="([0-9a-f]{32})"')


def using(tokens: int) -> ScriptedModel:
    said = Message("assistant", (Text("All right."),))
    return ScriptedModel(script=lambda _: Reply(said, "end", Usage(tokens, 10)))


async def test_it_shows_what_fills_the_conversation_and_the_buttons_say_commands(tmp_path):
    async with whole_page(tmp_path, model=using(5_000)) as page, aiohttp.ClientSession() as client:
        url, origin = f"{page.url}context", {"Origin": page.url.rstrip("/")}
        async with client.get(url) as answer:
            assert "Nothing has been said yet" in await answer.text()
        await page.chat("my words are mine")
        async with client.get(url) as answer:
            shown = await answer.text()
        assert "% full: 5\u202f010 of " in shown
        assert 'aria-label="' in shown
        assert re.search(r"<title>everything else: [\d\u202f]+</title>", shown)
        assert '<th scope="row">messages</th>' in shown
        assert "my words are mine" not in shown
        async with client.get(url, headers={"Accept-Language": "zh"}) as answer:
            assert "<h1>上下文</h1>" in await answer.text()
        once = ONCE.search(shown)
        assert once is not None
        form = {"do": "new", "once": once[1]}
        for _ in range(2):  # the same form twice is one message
            async with client.post(url, data=form, headers=origin, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/")
        await until(lambda: len(query(tmp_path, "SELECT id FROM sessions")) == 2)
        async with client.post(
            url, data={"do": "compact", "once": "0" * 32}, headers=origin, allow_redirects=False
        ) as answer:
            assert answer.status == 303
        said = "SELECT count(*) FROM inbox WHERE message_id LIKE 'page-%'"
        assert query(tmp_path, said) == [(2,)]


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"do": "new"},
        {"do": "/new", "once": "0" * 32},
        {"do": "new", "once": "../" + "0" * 29},
        {"do": "new", "once": "0" * 33},
    ],
)
async def test_what_no_button_says_is_refused(tmp_path, form):
    async with whole_page(tmp_path) as page, aiohttp.ClientSession() as client:
        url, origin = f"{page.url}context", page.url.rstrip("/")
        async with client.post(url, data=form, headers={"Origin": origin}) as answer:
            assert answer.status == 400
        async with client.post(url, data=form, headers={"Origin": "http://evil.test"}) as answer:
            assert answer.status == 403
    assert query(tmp_path, "SELECT count(*) FROM inbox") == [(0,)]


async def test_the_page_brings_its_styles_and_lets_no_other_through():
    async with Chat().served() as chat, aiohttp.ClientSession() as client:
        async with client.get(chat.url) as answer:
            page, policy = await answer.text(), answer.headers["Content-Security-Policy"]
            etag = answer.headers["ETag"]
        style = page.partition("<style>")[2].partition("</style>")[0]
        for path in ("assets/base.css", "static/app.css"):
            async with client.get(chat.url + path) as answer:
                assert await answer.text() in style
                assert "sha256" not in answer.headers["Content-Security-Policy"]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'self' 'sha256-{digest}';" in policy
        script = page.partition("<script>")[2].partition("</script>")[0]
        async with client.get(f"{chat.url}static/theme.js") as answer:
            assert script == await answer.text()
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'self' 'sha256-{digest}';" in policy
        assert "unsafe" not in policy
        assert 'rel="stylesheet"' not in page
        # A browser that has the page takes the policy of the answer that says so.
        async with client.get(chat.url, headers={"If-None-Match": etag}) as answer:
            assert (answer.status, answer.headers["Content-Security-Policy"]) == (304, policy)


async def test_a_message_that_waits_is_taken_back_and_the_one_being_answered_is_not(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        first = await engine.say("first")
        await asyncio.wait_for(model.started.wait(), PATIENCE)
        second, third = [await engine.say(text) for text in ("second", "third")]
        here = engine.channel.engine
        assert [(line.text, line.waits) for line in await history(engine)] == [
            ("first", False),
            ("second", True),
            ("third", True),
        ]
        bob = engine.message("", sender="bob").address
        assert not await here.withdraw(bob, second.message_id)
        assert not await here.withdraw(first.address, first.message_id)
        for _ in range(2):  # also on another page
            assert await here.withdraw(second.address, second.message_id)
        await engine.channel.push(second)  # it is not stored once more
        model.gate.set()
        await engine.channel.wait_until(lambda sent: len(sent) == 2)
        answers = [piece.whole.answers for piece in engine.channel.sent]
        assert answers == [(first.message_id,), (third.message_id,)]
        assert not await here.withdraw(third.address, third.message_id)
        assert "second" not in str(query(tmp_path, "SELECT body FROM inbox"))
    async with running(tmp_path, model=model) as engine:
        await engine.ask("fourth")
        assert engine.sent_to("ada") == ["You said: fourth"]
        assert "second" not in [line.text for line in await history(engine)]
