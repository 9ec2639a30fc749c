"""Telegram's side calls the real webhook server over HTTP."""

from __future__ import annotations

import asyncio
import io
import socket
import sys

import aiohttp
import pytest
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity
from telegram.error import BadRequest, RetryAfter

from adapters.telegram.api import LeanBot
from adapters.telegram.inbound import ALLOWED_UPDATES
from adapters.telegram.webhook import SECRET_HEADER
from bot.channel import Address, Button, Health, Outbound
from bot.channel.kit.webhook import MAX_BODY
from tests import support
from tests.fakes.ports import free_port
from tests.fakes.telegram import TOKEN, FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings
from tests.fakes.telegram_entities import EntityError, as_html, check
from tests.support import changed_anywhere

SECRET = "a-good_Secret1"
UPDATE = {
    "update_id": 1,
    "message": {
        "message_id": 1,
        "from": {"id": 7, "is_bot": False, "first_name": "Ada"},
        "chat": {"id": 7, "type": "private"},
        "date": 1_700_000_000,
        "text": "hello",
    },
}


@pytest.fixture
def engine():
    return WatchingEngine()


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def config(fake, port):
    return settings(
        fake,
        mode="webhook",
        webhook_url=f"http://127.0.0.1:{port}/",
        webhook_port=port,
        webhook_secret=SECRET,
    )


@pytest.fixture
async def up(engine, config):
    async with running(engine, config) as channel:
        await engine.wait_said(Health.UP)
        yield channel


@pytest.fixture
async def post(port):
    async with aiohttp.ClientSession() as session:

        async def call(body, secret=SECRET, account="default", **options):
            headers = {} if secret is None else {SECRET_HEADER: secret}
            kind = "json" if isinstance(body, dict) else "data"
            url = f"http://127.0.0.1:{port}/telegram/{account}"
            async with session.post(url, headers=headers, **{kind: body}, **options) as response:
                return response.status, await response.read()

        yield call


async def test_a_message_is_brought_and_accepted(fake, engine, config):
    async with running(engine, config):
        fake.push_text(7, "hello")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()
    hook = fake.called("setWebhook")[0].params
    assert hook["url"] == f"http://127.0.0.1:{config.webhook_port}/telegram/default"
    assert hook["secret_token"] == SECRET
    assert hook["allowed_updates"] == list(ALLOWED_UPDATES)
    assert fake.called("getUpdates") == []
    assert engine.health["telegram", "default"] == (Health.UP, "")


async def test_what_cannot_be_stored_is_brought_again(fake, engine, config):
    engine.failures = 3
    async with running(engine, config):
        fake.push_text(7, "one")
        fake.push_text(7, "two")
        await engine.wait_until(lambda e: len(e.received) == 2)
        await fake.wait_acknowledged()
    assert fake.deliveries[-5:] == [500, 500, 500, 200, 200]
    assert [inbound.text for inbound in engine.received] == ["one", "two"]
    assert engine.said(Health.DEGRADED)
    assert engine.health["telegram", "default"] == (Health.UP, "")


async def test_a_press_is_brought_stored_and_then_answered(fake, engine, config):
    engine.failures = 2
    fake.chats.add(7)
    async with running(engine, config) as channel:
        address = Address("telegram", "default", "7")
        choice = Outbound("n1", address, "Nearly full.", buttons=(Button("Compact", "/compact"),))
        message = int(await support.post(channel, choice))
        query = fake.press(7, message)
        await fake.wait_for(lambda: (7, message) not in fake.keyboards)
        await fake.wait_acknowledged()
    assert fake.deliveries[-3:] == [500, 500, 200]
    assert [inbound.message_id for inbound in engine.received] == [f"press-{query}"]
    assert fake.counts["answercallbackquery"] == 1


async def test_a_call_with_any_other_secret_or_none_is_forbidden(engine, config, post, logs):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        for other in (*changed_anywhere(SECRET), SECRET.lower(), "ü", None):
            assert await post(UPDATE, other) == (403, b"")
        assert engine.received == []
        assert (await post(UPDATE, SECRET))[0] == 200
    assert SECRET not in str(logs)


async def test_a_flood_of_foreign_calls_is_counted_and_told_in_one_line(engine, config, post, logs):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        for _ in range(20):
            assert (await post(UPDATE, "wrong"))[0] == 403
        assert (await post(UPDATE, account="nobody"))[0] == 404
    told = [(log["reason"], log["count"]) for log in logs if log["event"].endswith(".rejected")]
    assert told == [("bad_secret", 1), ("no_such_account", 1)]
    assert engine.drops == {"bad_secret": 20, "no_such_account": 1}


async def test_half_a_call_is_not_waited_for(engine, config, post, port, monkeypatch):
    monkeypatch.setattr("adapters.telegram.webhook.BODY_TIMEOUT", 0.05)
    head = f"POST /telegram/default HTTP/1.1\r\nHost: x\r\n{SECRET_HEADER}: {SECRET}\r\n"
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()
        assert (await post(UPDATE))[0] == 200
    assert engine.drops == {"slow": 1}


async def test_a_huge_body_is_refused(engine, post, up):
    status, _ = await post(io.BytesIO(b"x" * (MAX_BODY + 1)))
    assert status == 413
    assert (await post(UPDATE))[0] == 200
    assert len(engine.received) == 1


async def test_a_huge_body_without_the_secret_is_not_read(post, up):
    status, _ = await post(b"x" * (MAX_BODY - 1), "wrong")
    assert status == 403


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b'{"message": 5}']
)
async def test_a_body_nobody_can_read_is_accepted_and_counted(engine, config, post, body, logs):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        assert (await post(body))[0] == 200
    assert [log["event"] for log in logs].count("telegram.update.ignored") == 1
    assert engine.received == []


async def test_other_paths_and_methods_are_not_there(engine, config, post, port):
    async with running(engine, config), aiohttp.ClientSession() as session:
        await engine.wait_said(Health.UP)
        assert (await post(UPDATE, account="nobody"))[0] == 404
        async with session.get(f"http://127.0.0.1:{port}/telegram/default") as response:
            assert response.status == 405


async def test_calls_before_the_bot_knows_itself_come_again(fake, engine, config, post):
    fake.fail_next("getMe", Fault(delay=30))
    async with running(engine, config) as channel:
        await channel._listening.wait()
        assert (await post(UPDATE))[0] == 503
    assert engine.received == []


async def test_the_webhook_is_registered_again_until_telegram_takes_it(fake, engine, config):
    fake.fail_next("setWebhook", Fault(500), times=2)
    async with running(engine, config):
        fake.push_text(7, "hello")
        await engine.wait_until(lambda e: len(e.received) == 1)
    assert engine.said(Health.DOWN)


async def test_a_taken_port_is_reported_and_waited_for(fake, engine, config, port):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        async with running(engine, config):
            assert "cannot be opened" in await engine.wait_said(Health.DOWN)
            assert fake.called("setWebhook") == []
            taken.close()
            await engine.wait_said(Health.UP)
            fake.push_text(7, "hello")
            await engine.wait_until(lambda e: len(e.received) == 1)


async def test_a_stop_waits_for_the_call_that_is_being_stored(fake, config):
    class Slow(WatchingEngine):
        def __init__(self) -> None:
            super().__init__()
            self.began, self.go = asyncio.Event(), asyncio.Event()

        async def receive(self, inbound):
            self.began.set()
            await self.go.wait()
            await super().receive(inbound)

    engine = Slow()
    async with running(engine, config) as channel:
        fake.push_text(7, "hello")
        await engine.began.wait()
        stopping = asyncio.create_task(channel.stop())
        await asyncio.sleep(0)
        engine.go.set()
        await stopping
        await fake.wait_acknowledged()
    assert len(engine.received) == 1


async def test_every_account_has_its_own_path_and_secret(engine, port, post):
    first, second = "1:first-token-aaaaaaaaaaaaaaaaaa", "2:second-token-bbbbbbbbbbbbbbbbb"
    async with FakeTelegram(first, second) as fake:
        config = settings(
            fake,
            webhook_url=f"http://127.0.0.1:{port}",
            webhook_port=port,
            accounts={
                "work": {"token": second, "mode": "webhook", "webhook_secret": "work-secret"}
            },
        )
        async with running(engine, config):
            await engine.wait_said(Health.UP, "work")
            fake.push_text(7, "polled", first)
            fake.push_text(7, "brought", second)
            await engine.wait_until(lambda e: len(e.received) == 2)
            assert (await post(UPDATE, account="work"))[0] == 403
            assert (await post(UPDATE))[0] == 404
    assert {(i.account, i.text) for i in engine.received} == {
        ("default", "polled"),
        ("work", "brought"),
    }


async def test_polling_after_a_webhook_takes_over_what_was_not_delivered(fake, engine, config):
    engine.failures = 10**9
    async with running(engine, config):
        fake.push_text(7, "waiting")
        await engine.wait_until(lambda e: e.attempts >= 1)
    engine.failures = 0
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()


PNG = b"\x89PNG\r\n\x1a\n and so on"


def keyboard(data, label="label"):
    return InlineKeyboardMarkup([[InlineKeyboardButton(label, callback_data=data)]])


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        server.chats.add(7)
        yield server


@pytest.fixture
async def bot(fake):
    async with aiohttp.ClientSession() as session:
        yield LeanBot(fake.token, fake.url, session)


BOLD = MessageEntity("bold", 0, 1)


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        ("", {}, "Message text is empty"),
        (" \n ", {}, "Message text is empty"),
        ("\u200b", {}, "Message text is empty"),
        (" ", {"entities": [BOLD]}, "Message text is empty"),
        ("a" * 4097, {}, "Message is too long"),
        ("😀" * 2049, {}, "Message is too long"),
        ("", {"entities": [BOLD]}, "Entity beginning at UTF-16 offset 0 ends after the text"),
        ("x" * 40_000, {}, "Text is too long"),
        ("x", {"parse_mode": "HTML"}, "Unsupported parse_mode"),
        ("x", {"reply_to_message_id": 99}, "Message to be replied not found"),
        ("x", {"message_thread_id": 99}, "Message thread not found"),
    ],
)
async def test_a_message_against_the_rules_is_refused(fake, bot, text, options, complaint):
    with pytest.raises(BadRequest) as caught:
        await bot.send_message(7, text, **options)
    assert caught.value.message.lower().startswith(complaint.lower())
    assert fake.sent == []


@pytest.mark.parametrize(
    ("send", "complaint"),
    [
        (lambda bot: bot.send_photo(7, PNG, caption="x" * 1025), "caption is too long"),
        (
            lambda bot: bot.send_photo(7, PNG, caption="😀", caption_entities=[BOLD]),
            "middle of a UTF-16 symbol",
        ),
        (lambda bot: bot.send_photo(7, b"no picture"), "IMAGE_PROCESS_FAILED"),
        (lambda bot: bot.send_photo(7, PNG + bytes(10 << 20)), "too big for a photo"),
        (lambda bot: bot.send_document(7, b""), "must be non-empty"),
        (lambda bot: bot.send_document(7, "https://example.org/a.txt"), "no document"),
        (lambda bot: bot.send_message(7, "x", reply_markup=keyboard("x" * 65)), "data_invalid"),
        (lambda bot: bot.send_message(7, "x", reply_markup=keyboard("x", " ")), "text is empty"),
        (lambda bot: bot.edit_message_reply_markup(7, 99), "message to edit not found"),
        (lambda bot: bot.answer_callback_query("99"), "query is too old"),
    ],
)
async def test_media_and_keyboards_against_the_rules_are_refused(fake, bot, send, complaint):
    with pytest.raises(BadRequest, match=f"(?i){complaint}"):
        await send(bot)
    assert fake.sent == []


@pytest.mark.parametrize(
    "commands", [[("Big", "x")], [("a-b", "x")], [("a" * 33, "x")], [("a", "x" * 257)]]
)
async def test_commands_keep_the_rules(bot, commands):
    with pytest.raises(BadRequest):
        await bot.set_my_commands(commands)


def entity(kind, offset, length, **more):
    return {"type": kind, "offset": offset, "length": length, **more}


@pytest.mark.parametrize(
    ("text", "entities", "shown"),
    [
        ("plain & b", [entity("bold", 8, 1)], "plain &amp; <b>b</b>"),
        (
            "😀t",
            [entity("text_link", 2, 1, url="https://e.example")],
            '😀<a href="https://e.example">t</a>',
        ),
        ("x", [entity("pre", 0, 1, language="py")], '<pre><code class="py">x</code></pre>'),
        (
            "su",
            [entity("spoiler", 0, 1), entity("underline", 1, 1)],
            '<span class="tg-spoiler">s</span><u>u</u>',
        ),
        (
            "q x",
            [entity("expandable_blockquote", 0, 3), entity("code", 2, 1)],
            "<blockquote expandable>q <code>x</code></blockquote>",
        ),
        ("ab", [entity("bold", 0, 2), entity("italic", 0, 1)], "<b><i>a</i>b</b>"),
    ],
)
def test_the_fake_takes_the_entities_telegram_takes(text, entities, shown):
    assert as_html(text, entities) == shown


@pytest.mark.parametrize(
    "entities",
    [
        [entity("bold", -1, 1)],
        [entity("bold", 0, 0)],
        [entity("bold", 0, -1)],
        [entity("bold", 3, 4)],
        [entity("bold", 1, 1)],
        [entity("bold", 0, 1)],
        [entity("bold", 0, 3), entity("italic", 2, 2)],
        [entity("bold", 0, 3), entity("bold", 2, 1)],
        [entity("pre", 0, 3), entity("italic", 2, 1)],
        [entity("bold", 0, 3), entity("code", 2, 1)],
        [entity("blockquote", 0, 3), entity("expandable_blockquote", 2, 1)],
        [entity("text_link", 0, 3)],
        [entity("text_link", 0, 3, url="https://e.example"), entity("code", 2, 1)],
        [entity("heading", 0, 3)],
        [entity("bold", 2, 1)] * 101,
    ],
)
def test_the_fake_refuses_the_entities_telegram_refuses_or_mends(entities):
    with pytest.raises(EntityError):
        check("😀bcd", entities)


async def test_it_runs_as_a_process_with_a_control_api():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.telegram", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().split()[-1]
        async with aiohttp.ClientSession(url) as session:
            people = [{"user_id": 7, "text": "a"}, {"update": {"message": {"odd": True}}}]
            async with session.post("/control/push", json=people) as response:
                assert (await response.json())["pushed"] == [1, 2]
            bot = LeanBot(TOKEN, url, session)
            assert len(await bot.call("getUpdates", {})) == 2
            await bot.send_message(7, "answer")
            async with session.get("/control/wait?sent=1") as response:
                state = await response.json()
            assert (state["sent"], state["pending"], state["pushed"]) == (1, 2, 2)
            async with session.get("/control/sent?since=0") as response:
                assert [sent["text"] for sent in await response.json()] == ["answer"]
            fault = {"method": "sendMessage", "status": 429, "retry_after": 3}
            await session.post("/control/fail", json=fault)
            with pytest.raises(RetryAfter):
                await bot.send_message(7, "too soon")
    finally:
        process.terminate()
        await process.wait()
