"""What the channel sends to a Nextcloud, and what becomes of each answer."""

import hashlib

import pytest
from nc_py_api.talk_bot import AsyncTalkBot
from structlog.testing import capture_logs

from adapters.nextcloud_talk.channel import NextcloudTalk
from adapters.nextcloud_talk.send import reference_id
from bot.channel import (
    Address,
    Admins,
    Attachment,
    Files,
    Health,
    Media,
    Outbound,
    Piece,
    Reactions,
)
from bot.errors import SendLater, SendRefused, SendTransient
from bot.testing import RecordingEngine
from tests.fakes.nextcloud import (
    ALL_FEATURES,
    RESPONSE,
    SECRET,
    WITH_API_USER,
    FakeNextcloud,
    Fault,
    running,
    settings,
)
from tests.fakes.ports import free_port
from tests.support import post

ROOM = Address("nextcloud_talk", "default", "n3xtc10ud")


@pytest.fixture
async def fake():
    async with FakeNextcloud() as server:
        yield server


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
def config(fake):
    return settings(fake, free_port(), **WITH_API_USER)


@pytest.fixture
async def channel(engine, config):
    async with running(engine, config) as started:
        yield started


def piece(text, **changes):
    return Outbound(**({"id": "o1", "address": ROOM, "text": text} | changes))


async def test_a_reply_is_accepted_and_keeps_its_markdown(fake, channel):
    text = "**bold** `code`\n\n- 列表 👩‍👩‍👧‍👦\n\n```py\nprint(1)\n```"
    assert await post(channel, piece(text, reply_to="1567")) == reference_id("o1")
    (posted,) = fake.posted
    assert (posted.text, posted.reply_to, posted.reference) == (text, 1567, reference_id("o1"))
    assert not posted.silent


async def test_notices_are_silent_and_threads_kept(fake, channel):
    thread = Address("nextcloud_talk", "default", "n3xtc10ud", "1500")
    await post(channel, piece("saved", kind="notice", address=thread))
    assert (fake.posted[0].silent, fake.posted[0].thread) == (True, 1500)


async def test_the_longest_piece_goes_through_and_a_longer_one_is_refused(fake, channel):
    await post(channel, piece("你" * channel.capabilities.max_length))
    with pytest.raises(SendRefused, match="too long"):
        await channel.send(Piece(piece("hi"), "x" * 32_001))
    assert len(fake.posted) == 1


@pytest.mark.parametrize("text", ["", " \n", "\u200b\u2060"])
async def test_nothing_to_show_is_refused_here(fake, channel, text):
    with pytest.raises(SendRefused, match="nothing to show"):
        await post(channel, piece(text))
    assert fake.requests == []


async def test_a_reply_to_what_is_gone_goes_out_without_it(fake, channel):
    await post(channel, piece("hi", reply_to="999"))
    assert (fake.posted[0].text, fake.posted[0].reply_to) == ("hi", 0)


async def test_half_a_surrogate_pair_is_no_reason_to_lose_a_reply(fake, channel):
    await post(channel, piece("hi \ud83d"))
    assert fake.posted[0].text == "hi \ufffd"


async def test_a_missing_feature_is_told_with_its_remedy(fake, engine, channel):
    fake.bots[0].features &= ~RESPONSE
    with pytest.raises(SendRefused, match="--feature response"):
        await post(channel, piece("hi"))
    state, detail = engine.health["nextcloud_talk", "default"]
    assert state is Health.DEGRADED
    assert "--feature response" in detail
    await fake.say("still here")
    assert engine.health["nextcloud_talk", "default"][0] is Health.DEGRADED
    fake.bots[0].features = ALL_FEATURES
    await post(channel, piece("hi"))
    assert engine.health["nextcloud_talk", "default"] == (Health.UP, "")


async def test_another_secret_is_not_accepted(fake, channel):
    fake.bots[0].secret = "x" * 40
    with pytest.raises(SendRefused, match="secrets differ"):
        await post(channel, piece("hi"))


async def test_a_room_that_is_gone(fake, channel):
    del fake.kinds["n3xtc10ud"]
    with pytest.raises(SendRefused, match="does not exist"):
        await post(channel, piece("hi"))


@pytest.mark.parametrize("chat", ["", "../admin", "a/b/", "x" * 65, "tök"])
async def test_what_is_no_room_is_never_called(fake, channel, chat):
    with pytest.raises(SendRefused):
        await post(channel, piece("hi", address=Address("nextcloud_talk", "default", chat)))
    assert fake.requests == []


async def test_waiting_when_asked_to(fake, channel):
    fake.fail_next("/message", Fault(429, {"Retry-After": "7"}))
    with pytest.raises(SendLater) as caught:
        await post(channel, piece("hi"))
    assert caught.value.seconds == 7
    await post(channel, piece("hi"))


@pytest.mark.parametrize("fault", [Fault(500), Fault(503), Fault(504), Fault(drop=True)])
async def test_a_server_in_trouble_gets_it_again(fake, engine, channel, fault):
    fake.fail_next("/message", fault)
    with pytest.raises(SendTransient):
        await post(channel, piece("hi"))
    assert engine.health["nextcloud_talk", "default"][0] is Health.DEGRADED
    await post(channel, piece("hi"))
    assert [posted.text for posted in fake.posted] == ["hi"]
    assert engine.health["nextcloud_talk", "default"] == (Health.UP, "")


async def test_what_arrived_although_the_answer_did_not_is_not_sent_twice(fake, channel):
    fake.fail_next("/message", Fault(drop=True, after=True))
    with pytest.raises(SendTransient):
        await post(channel, piece("hi"))
    assert await post(channel, piece("hi")) == reference_id("o1")
    assert len(fake.posted) == 1
    await post(channel, piece("next", id="o2"))
    assert len(fake.posted) == 2


async def test_without_an_answer_nothing_secret_is_said(fake, engine, config):
    async with running(engine, config) as channel:
        await fake.__aexit__()
        with capture_logs() as logs, pytest.raises(SendTransient) as caught:
            await post(channel, piece("private words"))
    assert "private words" not in str(logs) + str(caught.value)
    assert SECRET not in str(logs) + str(caught.value) + repr(config)


async def test_a_redirect_is_not_followed(fake, channel):
    fake.fail_next("/message", Fault(307, {"Location": "https://evil.example/"}))
    with pytest.raises(SendRefused, match="307"):
        await post(channel, piece("hi"))


async def test_before_the_start_and_without_an_account(config, channel):
    with pytest.raises(SendTransient):
        await post(NextcloudTalk(config), piece("hi"))
    with pytest.raises(SendRefused, match="not configured"):
        await post(channel, piece("hi", address=Address("nextcloud_talk", "nobody", "abc")))
    await channel.stop()
    with pytest.raises(SendTransient):
        await post(channel, piece("hi"))


# --- reactions and files -------------------------------------------------------------------------


async def test_reactions_come_and_go_and_never_raise(fake, channel):
    await channel.react(ROOM, "1567", "👍")
    assert fake.reactions == [("n3xtc10ud", "1567", "👍")]
    await channel.react(ROOM, "1567", "")
    assert fake.reactions == []
    await channel.react(ROOM, "1567", "")
    await channel.react(ROOM, "not-a-number", "👍")
    await channel.react(ROOM, "999", "👍")
    await channel.react(ROOM, "1567", "\ud83d")
    await channel.react(ROOM, "1567", "")
    await channel.react(Address("nextcloud_talk", "nobody", "abc"), "1567", "👍")
    fake.fail_next("/reaction", Fault(drop=True), times=2)
    await channel.react(ROOM, "1567", "👍")
    assert fake.reactions == []


async def test_a_file_is_fetched_by_its_number(fake, channel):
    fake.files["9001"] = ("Talk/r%20%C3%BC.pdf", b"%PDF" * 100)
    media = Media("document", "r ü.pdf", size=400, ref="9001 https://x/f/9001")
    assert await channel.fetch(ROOM, media, 400) == b"%PDF" * 100
    for most, odd in ((399, media), (399, Media("document", ref="9001"))):
        with pytest.raises(SendRefused, match="too large"):
            await channel.fetch(ROOM, odd, most)
    with pytest.raises(SendRefused, match="does not see"):
        await channel.fetch(ROOM, Media("document", ref="77"), 400)
    with pytest.raises(SendRefused):
        await channel.fetch(ROOM, Media("document"), 400)


FILES = (Attachment("a b/ü.png", "image/png", b"png"), Attachment("", "", b"text"))


async def test_files_follow_their_words_and_do_not_come_back(fake, engine, channel):
    await post(channel, piece("look", attachments=FILES))
    assert [(posted.text, posted.file) for posted in fake.posted] == [
        ("look", ""),
        ("", "a_b_ü.png"),
        ("", "file"),
    ]
    assert sorted(data for _, data in fake.files.values()) == [b"png", b"text"]
    assert fake.statuses == [200, 200]
    assert engine.received == []
    assert engine.drops == {"from_bot": 2}


@pytest.mark.parametrize("part", ["/dav/files/", "/shares"])
@pytest.mark.parametrize("fault", [Fault(500), Fault(drop=True, after=True)])
async def test_a_retry_goes_on_where_it_stopped(fake, channel, part, fault):
    fake.fail_next(part, fault)
    with pytest.raises(SendTransient):
        await post(channel, piece("look", attachments=FILES))
    await post(channel, piece("look", attachments=FILES))
    assert [posted.file or posted.text for posted in fake.posted] == ["look", "a_b_ü.png", "file"]


@pytest.mark.parametrize("status", [423, 429])
async def test_files_wait_when_asked_to(fake, channel, status):
    fake.fail_next("/shares", Fault(status))
    with pytest.raises(SendLater):
        await post(channel, piece("", attachments=FILES[:1]))
    await post(channel, piece("", attachments=FILES[:1]))
    assert [posted.file for posted in fake.posted] == ["a_b_ü.png"]


async def test_a_file_that_cannot_be_shown_does_not_hold_the_words_back(fake, channel):
    fake.fail_next("/shares", Fault(404))
    await post(channel, piece("look", attachments=FILES))
    assert [posted.file or posted.text for posted in fake.posted] == ["look", "file"]


@pytest.mark.parametrize("path", ["../../other/files/x", "../x"])
async def test_a_file_elsewhere_is_not_fetched(fake, channel, path):
    fake.files["9001"] = (path, b"x")
    with pytest.raises(SendRefused, match="does not see"):
        await channel.fetch(ROOM, Media("document", ref="9001"), 400)


async def test_files_in_trouble(fake, channel):
    fake.files["9001"] = ("a.txt", b"x")
    fake.fail_next("/remote.php", Fault(500))
    with pytest.raises(SendTransient):
        await channel.fetch(ROOM, Media("document", ref="9001"), 400)
    fake.fail_next("/remote.php", Fault(403))
    with pytest.raises(SendRefused):
        await channel.fetch(ROOM, Media("document", ref="9001"), 400)


async def test_what_it_declares_is_what_it_can(fake, engine, channel):
    able = channel.capabilities
    assert (able.max_length, able.length_unit) == (32_000, "chars")
    assert (able.typing, able.drafts, able.buttons) == (False,) * 3
    assert able.files
    assert able.attachments
    assert able.reactions
    assert isinstance(channel, Files)
    assert isinstance(channel, Reactions)
    assert isinstance(channel, Admins)
    alone = NextcloudTalk(settings(fake, free_port())).capabilities
    assert not alone.files
    assert not alone.attachments


# --- an SDK nobody here wrote --------------------------------------------------------------------


@pytest.fixture
def oracle(fake, monkeypatch):
    """The bot of nc_py_api, with the same secret on the same server."""
    monkeypatch.setenv("NEXTCLOUD_URL", fake.url)
    monkeypatch.setenv("APP_ID", "test")
    where = hashlib.sha1(b"test_nextcloud-talk", usedforsecurity=False).hexdigest()
    monkeypatch.setenv(where, SECRET)
    return AsyncTalkBot("/nextcloud-talk", "Confidant")


@pytest.mark.parametrize(
    "text", ["hi", "hallo wörld 你好 👩‍👩‍👧‍👦", '"quoted" \\ / \n line', "x" * 32_000]
)
async def test_another_sdk_and_this_channel_are_accepted_alike(fake, channel, oracle, text):
    response, reference = await oracle.send_message(text, 1567, silent=True, token=ROOM.chat)
    assert response.status_code == 201
    await post(channel, piece(text, reply_to="1567", kind="notice"))
    theirs, ours = fake.posted
    assert theirs.reference == reference
    assert (theirs.text, theirs.reply_to, theirs.silent) == (ours.text, ours.reply_to, ours.silent)
    assert len(theirs.reference) == len(ours.reference) == 64


async def test_both_are_refused_alike(fake, channel, oracle):
    fake.bots[0].features &= ~RESPONSE
    response, _ = await oracle.send_message("hi", 0, token=ROOM.chat)
    assert response.status_code == 401
    with pytest.raises(SendRefused):
        await post(channel, piece("hi"))


async def test_both_react_alike(fake, channel, oracle):
    assert (await oracle.react_to_message(1567, "👍", ROOM.chat)).status_code == 201
    await channel.react(ROOM, "1567", "👍")
    assert fake.reactions == [("n3xtc10ud", "1567", "👍")] * 2
    assert (await oracle.delete_reaction(1567, "👍", ROOM.chat)).status_code == 200
    await channel.react(ROOM, "1567", "")
    assert fake.reactions == []
