"""What the channel sends to a Nextcloud, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import replace

import pytest
from aiohttp import web
from nc_py_api.talk_bot import AsyncTalkBot
from structlog.testing import capture_logs

from adapters.nextcloud_talk import history
from adapters.nextcloud_talk.channel import NextcloudTalk
from adapters.nextcloud_talk.send import reference_id
from bot.channel import Address, Attachment, Channel, Health, Media, Outbound, Piece
from bot.channel.kit import intake
from bot.errors import SendLater, SendRefused, SendTransient, StorageError
from bot.testing import RecordingEngine, ScriptedModel
from tests.fakes.nextcloud import (
    ALL_FEATURES,
    API_USER,
    QUICK,
    RESPONSE,
    SECRET,
    WITH_API_USER,
    FakeNextcloud,
    Fault,
    ocs,
    payload,
    record,
    running,
    settings,
)
from tests.fakes.nextcloud_program import confidant
from tests.fakes.ports import free_port
from tests.support import post, until

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
    for method in ("fetch", "react", "is_admin"):
        assert getattr(NextcloudTalk, method) is not getattr(Channel, method)
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


async def test_both_react_alike(fake, channel, oracle):
    assert (await oracle.react_to_message(1567, "👍", ROOM.chat)).status_code == 201
    await channel.react(ROOM, "1567", "👍")
    assert fake.reactions == [("n3xtc10ud", "1567", "👍")] * 2
    assert (await oracle.delete_reaction(1567, "👍", ROOM.chat)).status_code == 200
    await channel.react(ROOM, "1567", "")
    assert fake.reactions == []


TOKEN = "n3xtc10ud"
CHAT = "/v1/chat/"
BASE = f"/ocs/v2.php/apps/spreed/api{CHAT}"


@pytest.fixture
async def known(fake, engine, config):
    """One message came while the bot ran; it is stopped again."""
    async with running(engine, config):
        await fake.say("before")
    fake.asked.clear()
    return config


def texts(engine):
    return [inbound.text for inbound in engine.received]


async def read_all(fake, engine, config, pace=QUICK):
    """The bot starts, reads all there is to read, and is stopped."""
    async with running(engine, config, pace=pace) as channel:
        await settled(channel)


async def settled(channel):
    async with asyncio.timeout(60):
        for account in channel._accounts.values():
            if account._history is not None:
                await until(lambda intake=account._intake: intake.is_idle)


# --- a whole program -----------------------------------------------------------------------------


async def test_what_was_said_in_three_rooms_during_a_downtime_is_answered_once(tmp_path, fake):
    fake.kinds = {"direct1": 1, "group1": 2, "group2": 3}
    port, model = free_port(), ScriptedModel()
    options = {"group_policy": "open", "group_allow_from": ["*"]}
    async with confidant(tmp_path, fake, port, model, **options):
        fake.bots[0].rooms = {*fake.kinds}
        for room in fake.kinds:
            assert await fake.say("@Confidant hello", room=room) == [200]
        await fake.wait_posted(3)
    for room in fake.kinds:
        fake.write(f"@Confidant what of {room}?", room=room, sender="users/ada")
    fake.write("among ourselves", room="group1")
    fake.write("and one more", room="direct1")
    async with confidant(tmp_path, fake, port, model, **options):
        await fake.wait_posted(7)
    async with confidant(tmp_path, fake, port, model, **options) as channel:
        await settled(channel)
        assert await fake.say("@Confidant the end", room="group2") == [200]
        await fake.wait_posted(8)
    said = [(each.room, each.text.partition("You said: ")[2]) for each in fake.posted[3:]]
    assert sorted(said[:4]) == [
        ("direct1", "@Confidant what of direct1?"),
        ("direct1", "and one more"),
        ("group1", "@Confidant what of group1?"),
        ("group2", "@Confidant what of group2?"),
    ]
    assert len(fake.posted) == 8


async def test_a_message_that_comes_both_ways_is_one(tmp_path, fake):
    port, model = free_port(), ScriptedModel()
    async with confidant(tmp_path, fake, port, model):
        assert await fake.say("hello") == [200]
        await fake.wait_posted(1)
    number = fake.write("both ways {mention-user1}", parameters={"mention-user1": {"name": "Bob"}})
    late = payload(
        "both ways {mention-user1}", id=number, parameters={"mention-user1": {"name": "Bob"}}
    )
    async with confidant(tmp_path, fake, port, model) as channel:
        assert await fake.bring(late) == [200]
        await settled(channel)
        assert await fake.bring(late) == [200]
        await fake.say("the end")
        await fake.wait_posted(3)
    said = [each.text.partition("You said: ")[2] for each in fake.posted]
    assert said == ["hello", "both ways @Bob", "the end"]


# --- what is read --------------------------------------------------------------------------------


async def test_messages_come_oldest_first_with_what_the_webhook_would_have_told(
    fake, engine, known
):
    at = int(time.time()) - 3600
    answered = payload("well?", id="1500", sender="bots/bot-1", name="Confidant (Bot)")
    fake.write("yes", at=at, reply={"actor": answered["actor"], "object": answered["object"]})
    fake.write("{file}", parameters={"file": {"type": "file", "id": "9", "name": "a.png"}})
    await read_all(fake, engine, known)
    first, second = engine.received[1:]
    assert (first.text, first.sent_at, first.chat_type) == ("yes", at * 1000, "direct")
    assert first.reply_to.from_bot
    assert [media.name for media in second.media] == ["a.png"]


async def test_nobody_sees_that_the_record_was_read(fake, engine, known):
    await read_all(fake, engine, known)
    ((room, query),) = fake.asked[:1]
    assert room == TOKEN
    assert query == {
        "lookIntoFuture": "1",
        "timeout": "0",
        "lastKnownMessageId": str(1568 - history.OVERLAP),
        "limit": "100",
        "includeLastKnown": "0",
        "setReadMarker": "0",
        "noStatusUpdate": "1",
        "markNotificationsAsRead": "0",
    }


async def test_when_nothing_is_new_nothing_arrives(fake, engine, known):
    await read_all(fake, engine, known)
    assert texts(engine) == ["before"]
    assert len(fake.asked) == 2  # up to the last one, and 304
    assert not any("ask-features" in path for _, path in fake.requests)


async def test_the_newest_messages_are_kept_and_pages_have_an_end(fake, engine, known, monkeypatch):
    monkeypatch.setattr(history, "PAGE", 20)
    for number in range(250):
        fake.write(str(number))
    with capture_logs() as logs:
        await read_all(fake, engine, known)
    assert texts(engine)[1:] == [str(number) for number in range(150, 250)]
    assert {query["limit"] for _, query in fake.asked} == {"20"}
    assert [log["kept"] for log in logs if log["event"] == "nextcloud_talk.history.cut"] == [100]


async def test_of_a_room_with_too_much_the_newest_page_is_looked_at(
    fake, engine, known, monkeypatch
):
    monkeypatch.setattr(history, "MAX_PAGES", 2)
    monkeypatch.setattr(history, "PAGE", 10)
    for number in range(100):
        fake.write(str(number))
    await read_all(fake, engine, known)
    assert [query["lookIntoFuture"] for _, query in fake.asked] == ["1", "1", "0"]
    assert texts(engine)[-10:] == [str(number) for number in range(90, 100)]


async def test_what_is_too_old_stays_where_it_is(fake, engine, known):
    fake.write("too old", at=time.time() - 25 * 3600)
    fake.write("not too old", at=time.time() - 23 * 3600)
    await read_all(fake, engine, known)
    assert texts(engine) == ["before", "not too old"]


async def test_a_call_that_was_overtaken_by_a_newer_one_is_found(fake, engine, config):
    async with running(engine, config):
        await fake.say("long ago", at=time.time() - 60)
        fake.write("never told, long ago", at=time.time() - 60)
        fake.write("overtaken")
        await fake.say("the newest")
    await read_all(fake, engine, config)
    assert texts(engine) == ["long ago", "the newest", "overtaken"]


async def test_what_is_no_message_of_a_person_is_counted_and_left_out(fake, engine, known):
    fake.write("beep", sender="bots/bot-2")
    fake.write("{actor} joined", system="user_added")
    fake.write("👍", system="reaction")
    fake.write("Message deleted by author", deleted=True)
    own = {"type": "file", "id": "5000", "name": "chart.png"}
    fake.write("{file}", sender=f"users/{API_USER}", parameters={"file": own})
    fake.write("hello")
    await read_all(fake, engine, known)
    assert texts(engine) == ["before", "hello"]
    assert engine.drops == {"from_bot": 2, "service": 1, "reaction": 1, "deleted": 1}


async def test_a_room_nobody_listed_is_not_read(fake, engine, known):
    fake.kinds[TOKEN] = 2
    fake.write("private words")
    await read_all(fake, engine, known)
    assert fake.asked == []
    listed = known.model_validate(known.model_dump() | {"groups": {TOKEN: {}}, **WITH_API_USER})
    await read_all(fake, engine, listed)
    assert texts(engine) == ["before", "private words"]
    assert engine.received[-1].chat_type == "group"


async def test_only_known_rooms_are_asked(fake, engine, known):
    fake.kinds["another"] = 1
    fake.bots[0].rooms.add("another")
    fake.write("hello", room="another")
    await read_all(fake, engine, known)
    assert {room for room, _ in fake.asked} == {TOKEN}


@pytest.mark.parametrize("abilities", [["bots-v1", "bot-features-api"], ["bots-v1"]])
async def test_where_the_bot_was_switched_off_nothing_is_taken(fake, engine, known, abilities):
    fake.abilities = abilities
    fake.write("private words")
    fake.bots[0].rooms.clear()
    await read_all(fake, engine, known)
    assert texts(engine) == ["before"]
    assert engine.drops == {"switched_off": 1}
    fake.bots[0].rooms.add(TOKEN)
    await read_all(fake, engine, known)
    assert texts(engine) == ["before", "private words"]


async def test_without_an_api_user_nothing_is_asked(fake, engine):
    config = settings(fake, free_port())
    async with running(engine, config):
        await fake.say("before")
    fake.write("missed")
    engine.failures = 3
    async with running(engine, config):
        assert await fake.say("lost") == [500]
        assert "has to send it again" in engine.health["nextcloud_talk", "default"][1]
        assert await fake.say("live") == [200]
    assert texts(engine) == ["before", "live"]
    assert fake.requests == []


# --- while new messages come ---------------------------------------------------------------------


async def test_a_new_message_waits_for_what_was_said_before_it(fake, engine, known):
    fake.write("missed")
    fake.fail_next(CHAT, Fault(503), times=8)
    async with running(engine, known) as channel:
        assert await fake.say("live") == [200]
        assert texts(engine)[:3] == ["before", "missed", "live"]
        await settled(channel)


async def test_it_waits_until_it_is_known_what_was_seen(fake, known):
    class Slow(RecordingEngine):
        asked, go = asyncio.Event(), asyncio.Event()

        async def last_seen(self, channel, account):
            self.asked.set()
            await self.go.wait()
            return {TOKEN: "1568"}

    fake.write("missed")
    async with running(engine := Slow(), known) as channel:
        saying = asyncio.create_task(fake.say("live"))
        await engine.asked.wait()
        await until(lambda: channel._server._seen)
        assert engine.received == []
        engine.go.set()
        assert await saying == [200]
    assert texts(engine) == ["missed", "live", "live"]


async def test_it_does_not_wait_for_ever(fake, engine, known):
    fake.write("missed")
    fake.fail_next(CHAT, Fault(503), times=1000)
    pace = replace(QUICK, longest=60.0, first=60.0, hold=0.05)
    with capture_logs() as logs:
        async with running(engine, known, pace=pace):
            assert await fake.say("live") == [200]
    assert texts(engine) == ["before", "live"]
    assert "nextcloud_talk.history.slow" in [log["event"] for log in logs]


@pytest.mark.parametrize("failures", [3, 7, 12])
async def test_what_could_not_be_stored_is_read_once_that_works(fake, engine, config, failures):
    async with running(engine, config) as channel:
        await fake.say("before")
        engine.failures = failures
        assert await fake.say("late") == [500]
        state, detail = engine.health["nextcloud_talk", "default"]
        assert state is Health.DEGRADED
        assert "read from its conversation" in detail
        assert await fake.say("live") == [200]
        await settled(channel)
        assert engine.health["nextcloud_talk", "default"] == (Health.UP, "")
    assert list(dict.fromkeys(texts(engine))) == ["before", "late", "live"]
    assert texts(engine).count("late") == 1


async def test_what_was_seen_last_is_asked_again_when_the_disk_fails(fake, known):
    class Failing(RecordingEngine):
        tries = 0

        async def last_seen(self, channel, account):
            self.tries += 1
            if self.tries < 4:
                raise StorageError
            elsewhere = {f"cloud.example/{TOKEN}": "7000", "cloud.example/abc": "7"}
            return {TOKEN: "1568", **elsewhere, "odd": "x", "../up": "9"}

    fake.write("missed")
    await read_all(fake, engine := Failing(), known)
    assert texts(engine) == ["missed"]
    assert {room for room, _ in fake.asked} == {TOKEN}


# --- a server in trouble -------------------------------------------------------------------------


async def test_a_room_the_api_user_is_not_in_is_counted_and_the_others_are_read(
    fake, engine, config
):
    fake.kinds["other"] = 1
    fake.bots[0].rooms.add("other")
    async with running(engine, config):
        await fake.say("before")
        await fake.say("before there", room="other")
    fake.strangers.add(TOKEN)
    fake.write("missed")
    fake.write("missed there", room="other")
    await read_all(fake, engine, config)
    assert texts(engine) == ["before", "before there", "missed there"]
    assert engine.drops == {"not_a_member": 1}


@pytest.mark.parametrize("fault", [Fault(429, {"Retry-After": "1"}), Fault(500), Fault(drop=True)])
@pytest.mark.parametrize("part", ["/v4/room/", CHAT, "ask-features"])
async def test_a_server_is_asked_again(fake, engine, known, part, fault):
    fake.write("missed")
    fake.fail_next(part, fault, times=2)
    await read_all(fake, engine, known)
    assert texts(engine) == ["before", "missed"]


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        (Fault(503), history.MAX_TRIES),
        (Fault(500), history.MAX_TRIES // history.SENSELESS),
        (Fault(200), history.MAX_TRIES // history.SENSELESS),
        (Fault(302, {"Location": "https://evil.example"}), 1),
        (Fault(403), 1),
        (Fault(412), 1),
    ],
)
async def test_patience_has_an_end(fake, engine, known, fault, asked):
    fake.write("missed")
    fake.fail_next(CHAT, fault, times=1000)
    with capture_logs() as logs:
        await read_all(fake, engine, known)
        async with running(engine, known):
            assert await fake.say("live") == [200]
    assert sum(path.startswith(BASE) for _, path in fake.requests) == 2 * asked
    assert texts(engine) == ["before", "live"]
    assert sum(engine.drops.values()) == 2
    events = [log["event"] for log in logs]
    assert "nextcloud_talk.history.unread" in events
    for secret in ("missed", "live", TOKEN, SECRET, WITH_API_USER["api_password"]):
        assert secret not in str(logs)


@pytest.mark.parametrize("fault", [Fault(401), Fault(503)])
async def test_a_server_that_refuses_or_is_not_there_is_left_alone(
    fake, engine, config, fault, monkeypatch
):
    monkeypatch.setattr(intake, "AT_ONCE", 1)
    async with running(engine, config):
        for number in range(20):
            room = f"room{number}"
            fake.kinds[room] = 1
            fake.bots[0].rooms.add(room)
            await fake.say("before", room=room)
    fake.requests.clear()
    fake.fail_next("/v4/room/", fault, times=1000)
    await read_all(fake, engine, config)
    assert len(fake.requests) == (1 if fault.status == 401 else history.MAX_TRIES)
    assert sum(engine.drops.values()) == 20


# --- hostile answers -----------------------------------------------------------------------------


def endless(token, query):
    known = int(query.get("lastKnownMessageId", 0))
    return ocs([record("again", id=known + 1)], headers={"X-Chat-Last-Given": str(known + 1)})


def going_back(token, query):
    return ocs([record("back", id=1)], headers={"X-Chat-Last-Given": "1"})


def without_a_header(token, query):
    known = int(query.get("lastKnownMessageId", 0))
    return ocs([record("once", id=2000)]) if known < 2000 else web.Response(status=304)


def with_an_odd_header(token, query):
    return ocs([record("once", id=2000)], headers={"X-Chat-Last-Given": "9" * 400})


def many(token, query):
    return ocs([record(str(n), id=3000 + n) for n in range(5000)])


@pytest.mark.parametrize(
    ("answer", "most"),
    [
        (endless, history.MAX_PAGES + 1),
        (going_back, 1),
        (without_a_header, 2),
        (with_an_odd_header, 2),
        (many, 2),
    ],
)
async def test_pages_that_lead_nowhere_have_an_end(fake, engine, known, answer, most):
    fake.chat = answer
    await read_all(fake, engine, known)
    assert len(fake.asked) <= most
    assert len(engine.received) <= 1 + 100
    async with running(engine, known):
        assert await fake.say("live") == [200]
    assert texts(engine)[-1] == "live"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[" * 100_000,
        b'{"ocs":{"data":{"0":{}}}}',
        b'{"ocs":{"data":null}}',
        b'{"ocs":[]}',
        b'{"ocs":{"data":[null,1,"x",[],{"id":[]},{"id":1e400,"timestamp":"x"}]}}',
        b'{"ocs":{"data":[{"id":9999,"timestamp":9999999999,"actorType":5,"message":{}}]}}',
    ],
)
async def test_an_answer_of_any_shape_is_survived(fake, engine, known, body):
    fake.chat = lambda _token, _query: web.Response(body=body, content_type="application/json")
    await read_all(fake, engine, known)
    assert texts(engine) == ["before"]
    async with running(engine, known):
        assert await fake.say("live") == [200]


async def test_a_huge_answer_is_not_read_and_asked_for_in_smaller_pieces(fake, engine, known):
    def huge(token, query):
        if int(query["limit"]) > 1:
            return web.Response(body=b"x" * (5 << 20))
        known_id = int(query["lastKnownMessageId"])
        said = [each for each in fake.records if each["id"] > known_id][:1]
        return ocs(said) if said else web.Response(status=304)

    fake.write("one")
    fake.write("two")
    fake.chat = huge
    await read_all(fake, engine, known)
    assert texts(engine) == ["before", "one", "two"]
    fake.chat = lambda _token, _query: web.Response(body=b"x" * (5 << 20))
    fake.asked.clear()
    await read_all(fake, engine, known)
    assert [query["limit"] for _, query in fake.asked] == ["100", "10", "1"]
    assert engine.drops["unread"] == 1
