"""What was said while nobody listened is read from the rooms' own records."""

import asyncio
import time
from dataclasses import replace

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from adapters.nextcloud_talk import history
from bot.channel import Health
from bot.channel.kit import intake
from bot.errors import StorageError
from bot.testing import RecordingEngine, ScriptedModel
from tests.fakes.nextcloud import (
    API_USER,
    QUICK,
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
from tests.support import until

ROOM = "n3xtc10ud"
CHAT = "/v1/chat/"
BASE = f"/ocs/v2.php/apps/spreed/api{CHAT}"


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
            calls = account.calls
            if calls._history is not None:
                await until(lambda intake=calls._intake: intake.is_idle)


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
    assert room == ROOM
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
    fake.kinds[ROOM] = 2
    fake.write("private words")
    await read_all(fake, engine, known)
    assert fake.asked == []
    listed = known.model_validate(known.model_dump() | {"groups": {ROOM: {}}, **WITH_API_USER})
    await read_all(fake, engine, listed)
    assert texts(engine) == ["before", "private words"]
    assert engine.received[-1].chat_type == "group"


async def test_only_known_rooms_are_asked(fake, engine, known):
    fake.kinds["another"] = 1
    fake.bots[0].rooms.add("another")
    fake.write("hello", room="another")
    await read_all(fake, engine, known)
    assert {room for room, _ in fake.asked} == {ROOM}


@pytest.mark.parametrize("abilities", [["bots-v1", "bot-features-api"], ["bots-v1"]])
async def test_where_the_bot_was_switched_off_nothing_is_taken(fake, engine, known, abilities):
    fake.abilities = abilities
    fake.write("private words")
    fake.bots[0].rooms.clear()
    await read_all(fake, engine, known)
    assert texts(engine) == ["before"]
    assert engine.drops == {"switched_off": 1}
    fake.bots[0].rooms.add(ROOM)
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
            return {ROOM: "1568"}

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


async def test_rooms_do_not_wait_for_each_other(fake, engine, known):
    fake.kinds["other"] = 1
    fake.bots[0].rooms.add("other")
    fake.fail_next(CHAT, Fault(503), times=1000)
    pace = replace(QUICK, longest=60.0, first=60.0, hold=60.0)
    async with running(engine, known, pace=pace):
        assert await fake.say("live", room="other") == [200]
    assert texts(engine) == ["before", "live"]


async def test_a_stop_lets_go_of_a_message_that_waits(fake, engine, known):
    fake.write("missed")
    fake.fail_next(CHAT, Fault(503), times=1000)
    pace = replace(QUICK, longest=60.0, first=60.0, hold=60.0)
    before = asyncio.all_tasks()
    async with running(engine, known, pace=pace) as channel:
        saying = asyncio.create_task(fake.say("live"))
        await until(lambda: ("GET", f"{BASE}{ROOM}") in fake.requests)
        await until(lambda: channel._server._seen)
        await channel.stop()
        assert await saying == [503]
    left = [t for t in asyncio.all_tasks() - before if "Supervisor" in repr(t.get_coro())]
    assert not left
    fake._faults.clear()
    await read_all(fake, engine, known)
    assert texts(engine) == ["before", "missed", "live"]


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
            elsewhere = {f"cloud.example/{ROOM}": "7000", "cloud.example/abc": "7"}
            return {ROOM: "1568", **elsewhere, "odd": "x", "../up": "9"}

    fake.write("missed")
    await read_all(fake, engine := Failing(), known)
    assert texts(engine) == ["missed"]
    assert {room for room, _ in fake.asked} == {ROOM}


async def test_a_fault_of_ours_does_not_silence_a_room(fake, known):
    class Faulty(RecordingEngine):
        async def last_seen(self, channel, account):
            return {ROOM: "1568"}

        async def receive(self, inbound):
            if inbound.text == "poison":
                raise ValueError("private words")
            await super().receive(inbound)

    fake.write("poison")
    fake.write("missed")
    await read_all(fake, engine := Faulty(), known)
    assert texts(engine) == ["missed"]
    assert engine.drops == {"fault": 1}


# --- a server in trouble -------------------------------------------------------------------------


async def test_a_room_the_api_user_is_not_in_is_counted_and_the_others_are_read(
    fake, engine, config
):
    fake.kinds["other"] = 1
    fake.bots[0].rooms.add("other")
    async with running(engine, config):
        await fake.say("before")
        await fake.say("before there", room="other")
    fake.strangers.add(ROOM)
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
    for secret in ("missed", "live", ROOM, SECRET, WITH_API_USER["api_password"]):
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
