"""Sending through the real channel to the fake server: messages, drafts, limits, refusals."""

from __future__ import annotations

import asyncio

import pytest

from bot.channel import Address, Attachment, Button, Command, Health, Media, Outbound, Piece
from bot.errors import SendLater, SendRefused, SendTransient
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_channel import QUICK, account, running, settings
from tests.fakes.telegram_channel import WatchingEngine
from tests.support import post

DM = Address("discord", "default", "700007")
ROOM = Address("discord", "default", "501")
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


@pytest.fixture
async def fake():
    async with FakeDiscord() as server:
        server.dm("7")
        yield server


@pytest.fixture
async def engine():
    return WatchingEngine()


def piece(text="hello", number="20261121-054842-8c34881508.4", address=DM, **values):
    return Outbound(number, address, text, **values)


async def test_a_message_mentions_nobody_and_shows_no_previews(fake, channel):
    number = await post(channel, piece("hi @everyone <@8> https://example.org"))
    assert number == fake.sent[0]["id"]
    body = fake.called("POST /channels/700007/messages")[0].body
    assert body["allowed_mentions"] == {"parse": [], "replied_user": False}
    assert body["flags"] == 4


async def test_the_same_piece_sent_again_is_one_message(fake, channel):
    fake.fail("POST /channels/700007/messages", drop=True, after=True)
    with pytest.raises(SendTransient):
        await post(channel, piece("x" * 2000, "a-very-long-id-of-an-entry-0123456789"))
    await post(channel, piece("x" * 2000, "a-very-long-id-of-an-entry-0123456789"))
    assert len(fake.sent) == 1


async def test_a_reply_refers_to_what_it_answers_even_when_that_is_gone(fake, engine, channel):
    made = await fake.say("7", "question", "501")
    await post(channel, piece(address=ROOM, reply_to=f"{made['id']}:e5"))
    await post(channel, piece(number="o2", address=ROOM, reply_to="99999"))
    assert fake.sent[0]["message_reference"]["message_id"] == made["id"]
    assert fake.sent[1]["type"] == 0


async def test_without_the_right_to_read_history_a_reply_refers_to_nothing(fake, channel):
    fake.fail("POST /channels/501/messages", status=403, code=160002, message="Cannot reply")
    await post(channel, piece(address=ROOM, reply_to="99999"))
    bodies = [call.body for call in fake.called("POST /channels/501/messages")]
    assert ["message_reference" in body for body in bodies] == [True, False]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 500}, SendTransient),
        ({"status": 503, "body": b"<html>"}, SendTransient),
        ({"drop": True}, SendTransient),
        ({"status": 401}, SendTransient),
        ({"status": 403, "body": b"<html>a proxy"}, SendTransient),
        ({"status": 404, "body": b"<html>a proxy"}, SendTransient),
        ({"status": 403, "code": 50007}, SendRefused),
        ({"status": 403, "code": 50001}, SendRefused),
        ({"status": 403, "code": 50013}, SendRefused),
        ({"status": 404, "code": 10003}, SendRefused),
        ({"status": 400, "code": 50035}, SendRefused),
        ({"status": 429, "retry_after": 1.5}, SendLater),
        ({"status": 429, "body": b"banned"}, SendLater),
    ],
)
async def test_errors_are_those_of_the_contract_and_carry_no_token(fake, channel, fault, error):
    fake.fail("POST /channels/700007/messages", **fault)
    with pytest.raises(error) as caught:
        await post(channel, piece())
    assert fake.token not in str(caught.value)
    assert not fake.sent


async def test_a_limit_is_told_with_its_wait_and_kept_without_asking_again(fake, channel):
    fake.fail("POST /channels/700007/messages", status=429, retry_after=2)
    with pytest.raises(SendLater) as caught:
        await post(channel, piece())
    assert caught.value.seconds == pytest.approx(2)
    with pytest.raises(SendLater):
        await post(channel, piece())
    assert len(fake.called("POST /channels/700007/messages")) == 1
    await post(channel, piece(address=ROOM, number="o2"))  # another channel has its own
    await asyncio.sleep(2.05)
    await post(channel, piece())


async def test_a_global_limit_is_for_every_channel(fake, channel):
    fake.fail("POST /channels/700007", status=429, retry_after=2, everywhere=True)
    with pytest.raises(SendLater):
        await post(channel, piece())
    with pytest.raises(SendLater):
        await post(channel, piece(address=ROOM))


async def test_an_empty_bucket_is_not_asked(engine):
    async with FakeDiscord(bucket=2) as fake, running(engine, settings(fake)) as channel:
        await fake.wait_online()
        for number in range(2):
            await post(channel, piece(number=f"o{number}", address=ROOM))
        with pytest.raises(SendLater) as caught:
            await post(channel, piece(number="o3", address=ROOM))
        assert 0 < caught.value.seconds <= 5
        assert len(fake.called("POST")) == 2


async def test_nonsense_is_refused_without_a_call(fake, channel):
    for bad in (piece(" \u200b "), piece(address=Address("discord", "default", "../users/@me"))):
        with pytest.raises(SendRefused):
            await post(channel, bad)
    with pytest.raises(SendRefused):
        await post(channel, piece(address=Address("discord", "nobody", "1")))
    assert not fake.called("POST")


# --- what comes with a message -------------------------------------------------------------------


async def test_files_go_with_the_words_and_buttons_with_the_last_message(fake, channel):
    files = tuple(Attachment(f"Bericht {n}.png", "image/png", PNG) for n in range(12))
    await post(channel, piece(attachments=files, buttons=(Button("Compact", "/compact"),)))
    assert [len(sent["attachments"]) for sent in fake.sent] == [10, 2]
    assert [bool(sent["components"]) for sent in fake.sent] == [False, True]
    assert fake.uploads[0] == ("Bericht_0.png", "image/png", PNG)


async def test_a_file_too_large_for_the_server_leaves_the_words(fake, channel):
    fake.fail("POST /channels/700007", status=413, code=40005, message="too large")
    await post(channel, piece(attachments=(Attachment("a.bin", "", b"x"),)))
    assert fake.texts("700007") == ["hello"]


async def test_an_answer_said_aloud_is_a_file_and_one_too_large_is_left_to_its_words(fake, channel):
    sound = Attachment("voice.ogg", "audio/ogg", b"OggS")
    assert channel.capabilities.voice
    await post(channel, piece("", attachments=(sound,)))
    assert fake.uploads == [("voice.ogg", "audio/ogg", b"OggS")]
    fake.fail("POST /channels/700007", status=413, code=40005, message="too large")
    with pytest.raises(SendRefused):
        await post(channel, piece("", "another", attachments=(sound,)))
    assert len(fake.sent) == 1


async def test_half_sent_files_go_on_where_they_stopped(fake, channel):
    files = tuple(Attachment(f"{n}.png", "image/png", PNG) for n in range(12))
    fake.fail("POST /channels/700007", status=0)
    fake.fail("POST /channels/700007", status=500)
    with pytest.raises(SendTransient):
        await post(channel, piece(attachments=files))
    await post(channel, piece(attachments=files))
    assert [len(sent["attachments"]) for sent in fake.sent] == [10, 2]


async def test_buttons_that_cannot_be_are_left_out(fake, channel):
    labels = [Button(f"b{n}", f"/do {n}") for n in range(7)]
    odd = [Button("", "/x"), Button("long", "/" + "x" * 100), Button("twice", "/do 1")]
    await post(channel, piece(buttons=(*labels, *odd)))
    rows = fake.sent[0]["components"]
    assert [len(row["components"]) for row in rows] == [5, 2]


async def test_typing_and_reactions_show_and_never_raise(fake, channel):
    await channel.typing(DM)
    made = fake.message("7", "hello")
    await channel.react(DM, made["id"], "👀")
    await channel.react(DM, made["id"], "")
    await channel.react(DM, "interaction-5", "👀")
    assert fake.typed == ["700007"]
    assert [(m, e) for m, _, _, e in fake.reactions] == [("PUT", "👀"), ("DELETE", "👀")]
    fake.fail("typing", drop=True)
    await channel.typing(DM)
    await channel.typing(Address("discord", "default", "1"))
    await channel.react(DM, "1", "👀")


# --- while a reply is being written --------------------------------------------------------------


async def test_a_draft_is_one_message_that_becomes_the_reply(fake, channel):
    for text in ("Once", "Once upon", "Once upon a time"):
        await channel.draft(DM, "5", text)
    assert fake.texts("700007") == ["Once upon a time ▍"]
    await post(
        channel, piece("Once upon a time, the end.", draft="5", buttons=(Button("b", "/status"),))
    )
    assert fake.texts("700007") == ["Once upon a time, the end."]
    assert fake.sent[0]["components"]
    assert len(fake.called("POST /channels/700007/messages")) == 1


async def test_only_the_first_piece_takes_the_drafts_place(fake, channel):
    await channel.draft(DM, "5", "Once")
    whole = piece("Once upon a time.", "s.4", draft="5")
    await channel.send(Piece(whole, "Once upon", count=2))
    await channel.draft(DM, "6", "Next")
    await channel.send(Piece(whole, "a time.", index=1, count=2))
    await post(channel, piece("Next one.", "s.6", draft="6"))
    assert fake.texts("700007") == ["Once upon", "Next one.", "a time."]


async def test_drafts_keep_the_pace_and_show_the_newest(fake, engine):
    from tests.fakes.discord_channel import QUICK

    pace = type(QUICK)(draft_first=0.05, draft=0.1, first=0.01)
    async with running(engine, settings(fake), pace) as channel:
        await fake.wait_online()
        began = asyncio.get_running_loop().time()
        tasks = set()
        for number in range(40):
            tasks.add(asyncio.create_task(channel.draft(DM, "5", "x" * (number + 1))))
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        lasted = asyncio.get_running_loop().time() - began
        assert len(fake.called("PATCH")) <= lasted / 0.1
        assert len(fake.called("POST /channels/700007/messages")) == 1


async def test_a_reply_that_is_quick_has_no_draft(fake, engine):
    from tests.fakes.discord_channel import QUICK

    async with running(engine, settings(fake), type(QUICK)(draft_first=30.0)) as channel:
        await fake.wait_online()
        drawing = asyncio.create_task(channel.draft(DM, "5", "Hel"))
        await asyncio.sleep(0)
        await post(channel, piece("Hello", draft="5"))
        await drawing
        assert fake.texts("700007") == ["Hello"]


async def test_a_draft_given_up_in_the_middle_of_a_call_is_not_doubled(fake, channel):
    fake.fail("POST /channels/700007/messages", status=0, delay=0.1)
    drawing = asyncio.create_task(channel.draft(DM, "5", "Hel"))
    await asyncio.sleep(0.02)
    drawing.cancel()
    await asyncio.gather(drawing, return_exceptions=True)
    await post(channel, piece("Hello", draft="5"))
    assert fake.texts("700007") == ["Hello"]


async def test_an_empty_draft_takes_it_away(fake, channel):
    await channel.draft(DM, "5", "Hel")
    await channel.draft(DM, "5", "")
    assert fake.sent == []


async def test_a_failed_finish_is_tried_again_on_the_same_message(fake, channel):
    await channel.draft(DM, "5", "Hel")
    fake.fail("PATCH", status=500)
    with pytest.raises(SendTransient):
        await post(channel, piece("Hello", draft="5"))
    await post(channel, piece("Hello", draft="5"))
    assert fake.texts("700007") == ["Hello"]


async def test_a_notice_leaves_the_draft_alone(fake, channel):
    await channel.draft(DM, "5", "Hel")
    await post(channel, piece("By the way", "n1", kind="notice"))
    await post(channel, piece("Hello", draft="5"))
    assert fake.texts("700007") == ["Hello", "By the way"]


async def test_in_a_room_a_draft_answers_whom_the_reply_answers(fake, engine, channel):
    bot = {"id": "100", "username": "Confidant"}
    asked = await fake.say("7", "<@100> tell", "501", mentions=[bot])
    await engine.wait_until(lambda e: bool(e.received))
    await channel.draft(ROOM, "5", "Once")
    await post(channel, piece("Once upon", address=ROOM, reply_to=asked["id"], draft="5"))
    await channel.draft(ROOM, "6", "Twice")
    await post(channel, piece("Twice told", "o2", address=ROOM, reply_to="4242", draft="6"))
    assert fake.texts("501") == ["Once upon", "Twice told"]
    assert fake.sent[0]["message_reference"]["message_id"] == asked["id"]
    assert len(fake.deleted) == 1


async def test_a_draft_that_is_not_allowed_is_not_tried_for_ever(fake, channel):
    fake.forbidden["700007"] = 50007
    for text in ("a", "b", "c"):
        await channel.draft(DM, "5", text)
    assert len(fake.called("POST /channels/700007/messages")) == 1


async def test_a_long_draft_fits_and_closes_its_code(fake, channel):
    await channel.draft(DM, "5", "```py\n" + "😀" * 3000)
    shown = fake.texts("700007")[0]
    assert shown.endswith("```\n▍")
    assert len(shown) <= 2000


# --- fetching ------------------------------------------------------------------------------------


async def test_a_file_is_fetched_from_discord_within_bounds(fake, channel):
    fake.files["a.txt"] = (200, b"x" * 1000)
    media = Media("document", ref=f"{fake.url}/cdn/a.txt")
    assert await channel.fetch(DM, media, 1000) == b"x" * 1000
    for bad, most in ((media, 999), (Media("document", size=5, ref=media.ref), 4)):
        with pytest.raises(SendRefused):
            await channel.fetch(DM, bad, most)


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, SendRefused), (403, SendRefused), (302, SendRefused), (500, SendTransient)],
)
async def test_what_cannot_be_fetched_is_said_so(fake, channel, status, error):
    fake.files["a"] = (status, b"secret")
    with pytest.raises(error):
        await channel.fetch(DM, Media("document", ref=f"{fake.url}/cdn/a"), 1000)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "http://cdn.discordapp.com/a",
        "https://cdn.discordapp.com:8443/a",
        "https://cdn.discordapp.com@evil.example/a",
        "https://user@cdn.discordapp.com/a",
        "https://cdn.discordapp.com.evil.example/a",
        "https://evilcdn.discordapp.com/a",
        "//cdn.discordapp.com/a",
        "http://[::1/a",
    ],
)
async def test_nobody_else_is_ever_called(channel, address):
    with pytest.raises(SendRefused):
        await channel.fetch(DM, Media("document", ref=address), 1000)


async def test_files_of_a_server_of_ones_own_are_fetched_from_the_hosts_it_names(fake, engine):
    async with FakeDiscord() as cdn, FakeDiscord() as other:
        for host in (cdn, other):
            host.files["a"] = (200, b"bytes")
            host.files["moved"] = (302, b"")
        config = settings(fake, attachment_hosts=[f"{cdn.url}/"])
        named, unnamed = f"{cdn.url}/cdn/a?ex=1", f"{other.url}/cdn/a"
        async with running(engine, settings(fake)) as channel:
            with pytest.raises(SendRefused):
                await channel.fetch(DM, Media("document", ref=named), 1000)
        async with running(engine, config) as channel:
            assert await channel.fetch(DM, Media("document", ref=named), 1000) == b"bytes"
            user = cdn.url.replace("http://", "http://user@") + "/cdn/a"
            secure = cdn.url.replace("http://", "https://") + "/cdn/a"
            for ref in (unnamed, user, secure, f"{cdn.url}/cdn/moved", "/cdn/a"):
                with pytest.raises(SendRefused):
                    await channel.fetch(DM, Media("document", ref=ref), 1000)
        assert other.fetched == []
        assert cdn.fetched == ["a", "moved"]


async def test_an_account_has_its_own_hosts_for_files(fake, engine):
    async with FakeDiscord("other-token") as two:
        two.files["a"] = (200, b"bytes")
        work = {"token": "other-token", "api_root": fake.api_root, "gateway_url": two.gateway_url}
        work["attachment_hosts"] = [two.url]
        media = Media("document", ref=f"{two.url}/cdn/a")
        async with running(engine, settings(fake, accounts={"work": work})) as channel:
            assert await channel.fetch(Address("discord", "work", "1"), media, 1000) == b"bytes"
            with pytest.raises(SendRefused):
                await channel.fetch(DM, media, 1000)


async def test_who_looks_after_a_server_is_known(fake, channel):
    await account(channel).places.described.wait()
    fake.admins.add("9")
    assert await channel.is_admin(ROOM, "8")  # its owner
    assert await channel.is_admin(ROOM, "9")
    assert not await channel.is_admin(ROOM, "7")
    assert not await channel.is_admin(DM, "8")
    assert not await channel.is_admin(ROOM, "../x")


ENTRY = "20261121-054842-8c34881508.4"  # what the engine calls a text; its pieces add a number
MENUS = {
    "": [Command("new", "Start a new conversation", "[model]"), Command("status", "Status")],
    "zh": [Command("new", "开始新对话", "[模型]"), Command("status", "状态")],
    "en": [Command("new", "Start a new conversation", "[model]"), Command("status", "Status")],
}


@pytest.fixture
async def channel(fake, engine):
    async with running(engine, settings(fake)) as made:
        await engine.wait_said(Health.UP)
        yield made


async def arrived(engine, count=1):
    await engine.wait_until(lambda e: len(e.received) >= count)
    return engine.received[count - 1]


async def test_commands_are_registered_once_and_again_only_when_they_change(fake, engine):
    for menus in (MENUS, MENUS, {**MENUS, "": MENUS[""][:1]}):
        async with running(engine, settings(fake)) as channel:
            asked = len(fake.called("GET /applications"))
            await channel.publish_commands(menus)
            await fake.wait_for(lambda n=asked: len(fake.called("GET /applications")) > n)
            await asyncio.sleep(0.05)
    assert len(fake.called("PUT /applications")) == 2
    body = fake.called("PUT /applications")[0].body
    assert body[0]["contexts"] == [0, 1]
    assert body[0]["description_localizations"]["zh-CN"] == "开始新对话"
    assert body[0]["options"][0]["name"] == "text"
    assert "options" not in body[1]


async def test_registering_is_tried_again_with_the_next_connection(fake, engine, channel):
    fake.fail("GET /applications", status=500)
    await channel.publish_commands(MENUS)
    await fake.wait_for(lambda: len(fake.called("GET /applications")) == 1)
    await fake.signal(9, data=False)
    await fake.wait_for(lambda: bool(fake.commands))


async def test_a_command_is_acknowledged_and_its_answer_takes_that_place(fake, engine, channel):
    await channel.publish_commands(MENUS)
    shown = await fake.command("7", "new", "sonnet hello")
    got = await arrived(engine)
    assert (got.text, got.chat, got.chat_type) == ("/new sonnet hello", "700007", "direct")
    assert (got.message_id, got.locale) == (f"interaction-{shown.id}", "en-US")
    await post(channel, Outbound(ENTRY, DM, "Started anew.", reply_to=got.message_id))
    assert shown.original["content"] == "Started anew."
    assert not shown.is_private
    assert fake.sent == []


@pytest.mark.parametrize("named", [True, False])
async def test_a_private_answer_stays_private_to_its_last_piece(fake, engine, channel, named):
    shown = await fake.command("7", "status", channel="501")
    got = await arrived(engine)
    assert (got.chat_type, got.server, got.mentions_bot) == ("channel", "500", True)
    answered = got.message_id if named else ""
    whole = Outbound(ENTRY, ROOM, "first second", reply_to=answered)
    for index, text in enumerate(("first", "second")):
        await channel.send(Piece(whole, text, index=index, count=2))
    assert shown.is_private
    assert shown.original["content"] == "first"
    assert [(m["content"], m["flags"]) for m in shown.followups] == [("second", 4 | 64)]
    assert fake.sent == []
    await post(channel, Outbound("20261121-054842-8c34881508.6", ROOM, "for all"))
    assert fake.texts("501") == ["for all"]


async def test_an_answer_that_failed_is_tried_again_in_its_place(fake, engine, channel):
    shown = await fake.command("7", "help")
    await arrived(engine)
    fake.fail("PATCH /webhooks", status=500)
    with pytest.raises(SendTransient):
        await post(channel, Outbound(ENTRY, DM, "Help"))
    await post(channel, Outbound(ENTRY, DM, "Help"))
    assert shown.original["content"] == "Help"


async def test_after_a_restart_the_answer_is_a_plain_message(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        shown = await fake.command("7", "help")
        got = await arrived(engine)
        await fake.wait_for(lambda: shown.callback is not None)
    async with running(engine, settings(fake)) as channel:
        await post(channel, Outbound(ENTRY, DM, "Help", reply_to=got.message_id))
    assert fake.texts("700007") == ["Help"]


def alone(fake, person="7"):
    """What the bot said to a person directly, without the line that says why there."""
    said = fake.texts(fake.dm(person))
    assert [text.startswith("-# You asked in <#501>.") for text in said] == [
        n == 0 for n in range(len(said))
    ]
    return said[1:]


async def answer(channel, got, *pieces: str):
    whole = Outbound(ENTRY, ROOM, " ".join(pieces), reply_to=got.message_id)
    for index, text in enumerate(pieces):
        await channel.send(Piece(whole, text, index=index, count=len(pieces)))


async def late(fake, engine, *command: str):
    """A command in a room whose token is over by the time it is answered."""
    shown = await fake.command("7", *command, channel="501")
    got = await arrived(engine)
    await fake.wait_for(lambda: shown.callback is not None)
    shown.made -= 16 * 60
    return got


async def test_a_private_answer_whose_token_is_over_goes_to_the_person_alone(fake, engine, channel):
    got = await late(fake, engine, "status")
    await answer(channel, got, "first", "second")
    assert alone(fake) == ["first", "second"]
    assert fake.texts("501") == []


async def test_a_private_answer_that_loses_its_token_half_way_stays_private(fake, engine, channel):
    shown = await fake.command("7", "status", channel="501")
    got = await arrived(engine)
    await answer(channel, got, "first")
    shown.made -= 16 * 60
    whole = Outbound(ENTRY, ROOM, "first second", reply_to=got.message_id)
    await channel.send(Piece(whole, "second", index=1, count=2))
    assert shown.original["content"] == "first"
    assert alone(fake) == ["second"]
    assert fake.texts("501") == []


async def test_after_a_restart_a_private_answer_goes_to_the_person_alone(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        shown = await fake.command("7", "memory", channel="501")
        got = await arrived(engine)
        await fake.wait_for(lambda: shown.callback is not None)
    async with running(engine, settings(fake)) as channel:
        await answer(channel, got, "first", "second")
    assert alone(fake) == ["first", "second"]
    assert fake.texts("501") == []


async def test_a_private_command_that_could_not_be_stored_in_time_is_answered_alone(
    fake, engine, channel
):
    engine.failures = 2
    shown = await fake.command("7", "whoami", channel="501")
    shown.made -= 4
    got = await arrived(engine)
    await answer(channel, got, "You are Ada.")
    assert alone(fake) == ["You are Ada."]
    assert fake.texts("501") == []


async def test_a_private_answer_to_somebody_who_takes_no_direct_messages_is_refused(
    fake, engine, channel
):
    got = await late(fake, engine, "status")
    fake.forbidden[fake.dm("7")] = 50007
    with pytest.raises(SendRefused):
        await answer(channel, got, "first")
    assert fake.sent == []


async def test_a_private_answer_in_chinese_says_why_it_is_there_in_chinese(fake, engine, channel):
    got = await late(fake, engine, "status")
    await answer(channel, got, "一切正常")
    assert "只给你一个人看" in fake.texts("700007")[0]


async def test_buttons_do_not_go_along_to_another_conversation(fake, engine, channel):
    got = await late(fake, engine, "memory", "forget tea")
    buttons = (Button("Yes", "/memory forget yes"),)
    await post(channel, Outbound(ENTRY, ROOM, "Sure?", reply_to=got.message_id, buttons=buttons))
    assert alone(fake) == ["Sure?"]
    assert not any(made["components"] for made in fake.sent)


async def test_a_public_answer_whose_token_is_over_stays_in_its_room(fake, engine, channel):
    await channel.publish_commands(MENUS)
    got = await late(fake, engine, "new")
    await answer(channel, got, "Started anew.")
    assert fake.texts("501") == ["Started anew."]


async def test_a_command_that_could_not_be_stored_in_time_is_still_answered(fake, engine, channel):
    engine.failures = 2
    shown = await fake.command("7", "help")
    shown.made -= 4
    await arrived(engine)
    await post(channel, Outbound(ENTRY, DM, "Help"))
    assert shown.original is None
    assert fake.texts("700007") == ["Help"]


async def test_nobody_sees_thinking_for_ever(fake, engine):
    pace = type(QUICK)(identify=0.0, unanswered=0.05)
    async with running(engine, settings(fake), pace):
        await fake.wait_online()
        shown = await fake.command("9", "status", channel="501")
        await arrived(engine)
        await fake.wait_for(lambda: shown.deleted)


async def test_a_turn_that_ends_does_not_answer_somebody_elses_command(fake, engine, channel):
    await channel.draft(ROOM, "5", "Once upon a")
    shown = await fake.command("7", "status", channel="501")
    await arrived(engine)
    await post(channel, Outbound("entry-1", ROOM, "Once upon a time.", draft="5"))
    assert fake.texts("501") == ["Once upon a time."]
    await post(channel, Outbound("entry-2", ROOM, "All is well."))
    assert shown.original["content"] == "All is well."


async def test_a_reminder_is_nobodys_answer(fake, engine, channel):
    shown = await fake.command("7", "status")
    await arrived(engine)
    await post(channel, Outbound("r", DM, "Tea!", kind="reminder"))
    assert fake.texts("700007") == ["Tea!"]
    assert shown.original["content"] is None


# --- buttons -------------------------------------------------------------------------------------


async def with_buttons(fake, channel, address=DM):
    buttons = (Button("Compact", "/compact"), Button("Not now", "/notices off"))
    await post(channel, Outbound("n1", address, "Nearly full.", kind="notice", buttons=buttons))
    return fake.sent[-1]


async def test_a_press_is_its_command_and_takes_the_buttons_away(fake, engine, channel):
    made = await with_buttons(fake, channel)
    shown = await fake.press("7", made)
    got = await arrived(engine)
    assert (got.text, got.message_id) == ("/compact", f"press-{shown.id}")
    assert (got.chat, got.chat_type) == ("700007", "direct")
    await fake.wait_for(lambda: shown.callback is not None)
    assert fake.sent[0]["components"] == []


async def test_a_second_press_is_dropped(fake, engine, channel):
    made = await with_buttons(fake, channel)
    await fake.press("7", made)
    second = await fake.press("7", made, "/notices off")
    await fake.say("7", "after")
    await arrived(engine, 2)
    assert [i.text for i in engine.received] == ["/compact", "after"]
    await fake.wait_for(lambda: second.callback == {"type": 6})


async def test_a_press_on_no_command_is_ended_without_a_word(fake, engine, channel):
    made = await with_buttons(fake, channel)
    for forged in ("compact", "/a\nb", ""):
        shown = await fake.press("7", made, forged or "?")
        await fake.wait_for(lambda s=shown: s.callback == {"type": 6})
    assert not engine.received
