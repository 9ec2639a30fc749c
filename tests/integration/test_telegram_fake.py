"""The fake Bot API server keeps Telegram's rules, or the other tests would prove nothing."""

import asyncio
import sys

import aiohttp
import pytest
from telegram import InlineKeyboardButton, InlineKeyboardMarkup
from telegram.error import BadRequest, Conflict, Forbidden, InvalidToken, RetryAfter

from adapters.telegram.api import LeanBot
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.telegram_html import ParseError, visible

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


async def test_updates_come_again_until_they_are_acknowledged(fake, bot):
    fake.push_text(7, "a")
    fake.push_text(7, "b")
    assert [u.update_id for u in await bot.get_updates(timeout=0)] == [1, 2]
    assert [u.update_id for u in await bot.get_updates(timeout=0)] == [1, 2]
    assert [u.update_id for u in await bot.get_updates(timeout=0, limit=1)] == [1]
    assert [u.update_id for u in await bot.get_updates(offset=2, timeout=0)] == [2]
    assert await bot.get_updates(offset=3, timeout=0) == ()
    assert fake.pending() == 0


async def test_a_negative_offset_forgets_all_but_the_newest(fake, bot):
    for text in "abc":
        fake.push_text(7, text)
    assert [u.message.text for u in await bot.get_updates(offset=-1, timeout=0)] == ["c"]


async def test_a_long_poll_returns_as_soon_as_there_is_something(fake, bot):
    poll = asyncio.create_task(bot.get_updates(timeout=30))
    await fake.wait_called("getUpdates")
    fake.push_text(7, "now")
    assert len(await poll) == 1


async def test_unwanted_kinds_are_not_kept(fake, bot):
    await bot.get_updates(timeout=0, allowed_updates=["message"])
    fake.push({"edited_message": fake.message(7, "x")})
    fake.push_text(7, "y")
    assert [u.message.text for u in await bot.get_updates(timeout=0)] == ["y"]


async def test_the_older_of_two_polls_ends_in_a_conflict(fake, bot):
    older = asyncio.create_task(bot.get_updates(timeout=30))
    await fake.wait_called("getUpdates")
    newer = asyncio.create_task(bot.get_updates(timeout=30))
    with pytest.raises(Conflict, match="terminated by other getUpdates"):
        await older
    fake.push_text(7, "x")
    assert len(await newer) == 1


async def test_polling_beside_a_webhook_is_a_conflict(bot):
    await bot.set_webhook("https://127.0.0.1:9/x")
    with pytest.raises(Conflict, match="webhook is active"):
        await bot.get_updates(timeout=0)
    await bot.delete_webhook()
    assert await bot.get_updates(timeout=0) == ()


async def test_an_unknown_token_is_unauthorised(fake):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(InvalidToken):
            await LeanBot("1:x", fake.url, session).get_me()


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        ("", {}, "Message text is empty"),
        (" \n ", {}, "Message text is empty"),
        ("\u200b", {}, "Message text is empty"),
        ("<b></b>", {"parse_mode": "HTML"}, "Message text is empty"),
        ("a" * 4097, {}, "Message is too long"),
        ("😀" * 2049, {}, "Message is too long"),
        ("<b>x", {"parse_mode": "HTML"}, "Can't parse entities"),
        ("x" * 40_000, {}, "Text is too long"),
        ("x", {"parse_mode": "Nonsense"}, "Unsupported parse_mode"),
        ("x", {"reply_to_message_id": 99}, "Message to be replied not found"),
        ("x", {"message_thread_id": 99}, "Message thread not found"),
    ],
)
async def test_a_message_against_the_rules_is_refused(fake, bot, text, options, complaint):
    with pytest.raises(BadRequest) as caught:
        await bot.send_message(7, text, **options)
    assert caught.value.message.lower().startswith(complaint.lower())
    assert fake.sent == []


async def test_the_limit_counts_what_shows(fake, bot):
    await bot.send_message(7, "<b>" + "&amp;" * 4096 + "</b>", parse_mode="HTML")
    await bot.send_message(7, "😀" * 2048)
    assert [len(sent.text) for sent in fake.sent] == [4096, 2048]


async def test_people_who_blocked_the_bot_and_strangers_get_nothing(fake, bot):
    fake.blocked.add(7)
    with pytest.raises(Forbidden):
        await bot.send_message(7, "x")
    with pytest.raises(BadRequest, match="Chat not found"):
        await bot.send_message(8, "x")


async def test_a_chat_takes_only_so_much(fake, bot):
    fake.chat_interval = 60
    await bot.send_message(7, "x")
    with pytest.raises(RetryAfter):
        await bot.send_message(7, "y")


async def test_an_edit_that_changes_nothing_is_refused(fake, bot):
    sent = await bot.send_message(7, "x")
    with pytest.raises(BadRequest, match="Message is not modified"):
        await bot.edit_message_text("x", 7, sent.message_id)
    await bot.edit_message_text("y", 7, sent.message_id)
    assert fake.edits[0]["text"] == "y"


@pytest.mark.parametrize(
    ("send", "complaint"),
    [
        (lambda bot: bot.send_photo(7, PNG, caption="x" * 1025), "caption is too long"),
        (lambda bot: bot.send_photo(7, PNG, caption="<b>", parse_mode="HTML"), "parse entities"),
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


async def test_media_and_keyboards_by_the_rules_are_shown(fake, bot):
    sent = await bot.send_photo(7, PNG, caption="<b>x</b>", parse_mode="HTML")
    assert (sent.caption, fake.files[7, sent.message_id]) == ("x", PNG)
    sent = await bot.send_document(7, b"text", filename="a.txt", reply_markup=keyboard("/a"))
    assert fake.sent[1].buttons == [[("label", "/a")]]
    assert (sent.document.file_name, fake.sent[1].mime) == ("a.txt", "text/plain")
    query = fake.press(7, sent.message_id)
    [update] = await bot.get_updates(timeout=0)
    assert (update.callback_query.id, update.callback_query.data) == (query, "/a")
    await update.callback_query.answer()
    with pytest.raises(BadRequest, match="Query is too old"):
        await bot.answer_callback_query(query)
    await update.callback_query.edit_message_reply_markup()
    assert fake.keyboards == {}
    with pytest.raises(BadRequest, match="Message is not modified"):
        await bot.edit_message_reply_markup(7, sent.message_id)


@pytest.mark.parametrize(
    "commands", [[("Big", "x")], [("a-b", "x")], [("a" * 33, "x")], [("a", "x" * 257)]]
)
async def test_commands_keep_the_rules(bot, commands):
    with pytest.raises(BadRequest):
        await bot.set_my_commands(commands)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain & <b>b</b>", "plain & b"),
        ("&lt;&amp;&gt;&quot;&#65;", '<&>"A'),
        ('<a href="https://e.example/?a=1&amp;b=2">t</a>', "t"),
        ('<pre><code class="language-py">x</code></pre>', "x"),
        ('<span class="tg-spoiler">s</span><u>u</u>', "su"),
        ("<B>x</b>", "x"),
        ("<blockquote expandable>q</blockquote>", "q"),
    ],
)
def test_the_html_parser_shows_what_telegram_shows(source, text):
    assert visible(source) == text


@pytest.mark.parametrize(
    "source",
    [
        "<b>x",
        "x</b>",
        "<b><i>x</b></i>",
        "<script>x</script>",
        "<p>x</p>",
        "<br>",
        "a < b",
        "<",
        "<b",
        "<b x>y</b>",
        "<span>x</span>",
        "<blockquote><blockquote>x</blockquote></blockquote>",
    ],
)
def test_the_html_parser_refuses_what_telegram_refuses(source):
    with pytest.raises(ParseError):
        visible(source)


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
