"""Talk's side calls the real webhook server over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import random as randomness
from collections import Counter
from urllib.parse import urlsplit

import aiohttp
import pytest
from structlog.testing import capture_logs

from adapters.nextcloud_talk import account
from adapters.nextcloud_talk.account import Account
from adapters.nextcloud_talk.api import new_session
from adapters.nextcloud_talk.channel import NextcloudTalk
from adapters.nextcloud_talk.doctor import MOST_ROOMS
from adapters.nextcloud_talk.inbound import Identity, Ignored, normalise
from bot.channel import Address, Foreign, Health, Inbound, Outbound
from bot.channel.kit.webhook import MAX_BODY
from bot.errors import SendRefused, StorageError
from bot.testing import RecordingEngine, ScriptedModel
from bot.views.outcomes import told
from tests.fakes.nextcloud import (
    QUICK,
    RESPONSE,
    SECRET,
    WEBHOOK,
    WITH_API_USER,
    FakeBot,
    FakeNextcloud,
    Fault,
    payload,
    reply_to,
    running,
    settings,
    shared,
    signed,
)
from tests.fakes.nextcloud_program import confidant
from tests.fakes.ports import free_port
from tests.proofs.rounds import sample
from tests.support import changed_anywhere, post, until

OTHER = "another-secret-of-another-bot-that-is-long-enough"
ROOM = "n3xtc10ud"
BODY = json.dumps(payload("hello")).encode()


@pytest.fixture
async def fake():
    async with FakeNextcloud() as server:
        yield server


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def config(fake, port):
    return settings(fake, port)


@pytest.fixture
def url(port):
    return f"http://127.0.0.1:{port}/nextcloud-talk"


async def test_what_cannot_be_stored_is_an_error_to_talk_and_may_come_again(
    fake, engine, config, url
):
    engine.failures = 3
    async with running(engine, config):
        again = {"random": "r" * 64}
        assert await fake.call(url, BODY, SECRET, **again) == 500
        state, detail = engine.health["nextcloud_talk", "default"]
        assert state is Health.DEGRADED
        assert "could not be stored" in detail
        assert await fake.call(url, BODY, SECRET, **again) == 200
        assert engine.health["nextcloud_talk", "default"][0] is Health.UP
    assert len(engine.received) == 1


def like(words: str, emoji: str = "👍", **changes: object) -> dict[str, object]:
    return payload(words, **changes) | {"type": "Like", "content": emoji}


async def test_a_reaction_is_told_and_one_below_its_own_words_as_such(fake, engine, config):
    async with running(engine, config) as talk:
        sent = await post(talk, Outbound("o1", Address("nextcloud_talk", "default", ROOM), "Tea."))
        liked = like("Tea.", id=1567)
        undone = {"type": "Undo", "actor": liked["actor"], "object": liked}
        for body in (liked, undone | {"target": liked["target"]}, like("Else.", "🎉", id=8)):
            assert await fake.bring(body) == [200]
        assert await fake.bring(like("x", "")) == [200]
        assert await fake.bring(like("x", sender="bots/bot-1")) == [200]
    told = [(each.message_id, each.emoji, each.is_removed) for each in engine.reactions]
    assert told == [(sent, "👍", False), (sent, "👍", True), ("8", "🎉", False)]
    assert {(each.sender, each.address.chat) for each in engine.reactions} == {("ada", ROOM)}
    assert engine.drops == {"reaction": 1, "from_bot": 1}


async def test_a_fault_of_ours_is_an_error_to_talk(fake, config, url, logs):
    class Faulty(RecordingEngine):
        async def receive(self, inbound):
            raise ValueError("private words")

    async with running(engine := Faulty(), config):
        assert await fake.call(url, BODY, SECRET) == 500
    assert engine.drops == {"fault": 1}
    assert [log["event"] for log in logs].count("nextcloud_talk.fault") == 1


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"signature": "0" * 64}, 401, "bad_signature"),
        ({"signature": signed(OTHER, "r" * 64, BODY), "random": "r" * 64}, 401, "bad_signature"),
        ({"signature": signed(SECRET, "r" * 64, BODY), "random": "s" * 64}, 401, "bad_signature"),
        (
            {"signature": signed(SECRET, "r" * 64, "hello"), "random": "r" * 64},
            401,
            "bad_signature",
        ),
        ({"signature": ""}, 400, "unsigned"),
        ({"signature": "0" * 63}, 400, "unsigned"),
        ({"random": "short"}, 400, "unsigned"),
        ({"random": ""}, 400, "unsigned"),
        ({"random": "r" * 300}, 400, "unsigned"),
        ({"backend": ""}, 400, "unsigned"),
        ({"backend": "https://x/" + "y" * 3000}, 400, "unsigned"),
        ({"backend": "https://evil.example"}, 401, "backend"),
        ({"backend": "nonsense"}, 401, "backend"),
    ],
)
async def test_a_call_that_proves_nothing_is_refused(fake, engine, config, headers, status, reason):  # noqa: PLR0917
    with capture_logs() as logs:
        async with running(engine, config):
            assert await fake.call(fake.bots[0].url, BODY, SECRET, **headers) == status
    assert engine.drops == {reason: 1}
    assert engine.received == []
    assert SECRET not in str(logs)
    assert "hello" not in str(logs)


async def test_a_call_with_any_other_signature_is_refused(fake, engine, config, url):
    random = "r" * 64
    async with running(engine, config):
        others = [each for each in changed_anywhere(signed(SECRET, random, BODY)) if each]
        for other in others:
            status = await fake.call(url, BODY, SECRET, random=random, signature=other)
            assert status == (401 if len(other) == 64 else 400)
        assert engine.received == []
        assert engine.drops["bad_signature"] == 64
        assert await fake.call(url, BODY, SECRET, random=random) == 200


async def test_the_backend_may_be_spelled_otherwise(fake, engine, config, url):
    async with running(engine, config):
        backend = fake.url.replace("http://", "HTTP://")
        assert await fake.call(url, BODY, SECRET, backend=backend) == 200
        assert await fake.call(url, BODY, SECRET, backend=f"{fake.url}///") == 200
    assert len(engine.received) == 2


async def test_a_server_that_calls_itself_otherwise_is_told_of(fake, engine, config):
    fake.backend = "http://localhost"
    async with running(engine, config):
        assert await fake.say("hello") == [401]
        state, detail = engine.health["nextcloud_talk", "default"]
        assert state is Health.DEGRADED
        assert "Nextcloud calls itself http://localhost" in detail
        assert "overwrite.cli.url" in detail
        fake.backend = ""
        assert await fake.say("hello") == [200]
        assert engine.health["nextcloud_talk", "default"] == (Health.UP, "")


async def test_a_replay_is_refused(fake, engine, config, url):
    async with running(engine, config):
        once = {"random": "r" * 64}
        assert await fake.call(url, BODY, SECRET, **once) == 200
        assert await fake.call(url, BODY, SECRET, **once) == 409
    assert engine.drops == {"replayed": 1}
    assert len(engine.received) == 1


async def test_half_a_call_is_not_waited_for(fake, engine, config, url, monkeypatch):
    monkeypatch.setattr("adapters.nextcloud_talk.webhook.READ_TIMEOUT", 0.05)
    where = urlsplit(url)
    head = f"POST {where.path} HTTP/1.1\r\nHost: x\r\nX-Nextcloud-Talk-Random: {'r' * 64}\r\n"
    head += f"X-Nextcloud-Talk-Signature: {'0' * 64}\r\nX-Nextcloud-Talk-Backend: https://x\r\n"
    async with running(engine, config):
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()
    assert engine.drops == {"slow": 1}


async def test_a_huge_body_is_refused_before_it_is_read(fake, engine, config, url):
    async with running(engine, config), aiohttp.ClientSession() as session:
        headers = {
            "X-Nextcloud-Talk-Random": "r" * 64,
            "X-Nextcloud-Talk-Signature": "0" * 64,
            "X-Nextcloud-Talk-Backend": fake.url,
        }
        for body in (io.BytesIO(b"x" * (MAX_BODY + 1)), chunks(MAX_BODY + 1)):
            async with session.post(url, data=body, headers=headers) as response:
                assert response.status == 413
        async with session.post(url, data=io.BytesIO(b"x" * (MAX_BODY + 1))) as response:
            assert response.status == 400
        assert await fake.call(url, BODY, SECRET) == 200


async def chunks(size):
    stream = io.BytesIO(b"x" * size)
    while part := stream.read(1 << 16):
        yield part


async def test_the_largest_message_talk_takes_is_taken(fake, engine, config):
    async with running(engine, config):
        assert await fake.say("\U0001f600" * 32_000) == [200]
    assert len(engine.received[0].text) == 32_000


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b'{"type":"Create"}', b'{"a":1}'],
)
async def test_signed_nonsense_is_a_bad_request(fake, engine, config, url, body):
    async with running(engine, config):
        assert await fake.call(url, body, SECRET) == 400
        assert engine.drops == {"malformed": 1}
        assert await fake.call(url, BODY, SECRET) == 200


async def test_what_is_no_message_is_counted_and_accepted(fake, engine, config):
    async with running(engine, config):
        for body in (
            payload("x", type="Like"),
            payload("x", type="Undo"),
            payload("x", type="Activity"),
            payload("x", type="Announce"),
            payload("x", sender="bots/bot-2"),
            payload(" "),
        ):
            assert await fake.bring(body) == [200]
        assert engine.drops == {
            "reaction": 2,
            "service": 1,
            "unsupported": 1,
            "from_bot": 1,
            "blank": 1,
        }
    assert engine.received == []


async def test_other_paths_and_methods_are_not_there(fake, engine, config, url):
    async with running(engine, config), aiohttp.ClientSession() as session:
        assert await fake.call(url + "/x", BODY, SECRET) == 404
        async with session.get(url) as response:
            assert response.status == 405


async def test_a_taken_port_is_reported_and_waited_for(fake, engine, config, port):
    blocker = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", port)
    async with running(engine, config, wait=False):
        async with asyncio.timeout(60):
            await until(lambda: health(engine) is Health.DOWN)
            blocker.close()
            await blocker.wait_closed()
            await until(lambda: health(engine) is Health.UP)
        assert await fake.say("hello") == [200]


def health(engine):
    return engine.health["nextcloud_talk", "default"][0]


async def test_a_stop_waits_for_the_call_that_is_being_stored(fake, config):
    class Slow(RecordingEngine):
        began, go = asyncio.Event(), asyncio.Event()

        async def receive(self, inbound):
            self.began.set()
            await self.go.wait()
            await super().receive(inbound)

    engine = Slow()
    async with running(engine, config) as channel:
        saying = asyncio.create_task(fake.say("hello"))
        await engine.began.wait()
        stopping = asyncio.create_task(channel.stop())
        await asyncio.sleep(0.01)
        assert not saying.done()
        engine.go.set()
        assert await saying == [200]
        await stopping
    assert len(engine.received) == 1


# --- rooms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "chat_type"),
    [
        (1, "direct"),
        (2, "group"),
        (3, "group"),
        (4, "group"),
        (5, "direct"),
        (6, "direct"),
        (99, "group"),
    ],
)
async def test_the_server_tells_direct_chats_from_rooms(fake, engine, port, kind, chat_type):
    fake.kinds["n3xtc10ud"] = kind
    async with running(engine, settings(fake, port, **WITH_API_USER)):
        assert await fake.say("one") == [200]
        assert await fake.say("two") == [200]
    assert [inbound.chat_type for inbound in engine.received] == [chat_type] * 2
    assert len([path for _, path in fake.requests if "/v4/room/" in path]) == 1


async def test_what_the_bots_own_account_writes_somebody_else_reads(fake, engine, port):
    async with running(engine, settings(fake, port, **WITH_API_USER)):
        assert await fake.say("hi", sender="users/confidant") == [200]
    assert engine.received[0].chat_type == "group"


@pytest.mark.parametrize("fault", [Fault(404), Fault(500), Fault(401), Fault(drop=True)])
async def test_a_room_that_cannot_be_looked_up_is_a_group_for_a_while(fake, engine, port, fault):
    fake.fail_next("/v4/room/", fault, times=2 if fault.drop else 1)
    async with running(engine, settings(fake, port, **WITH_API_USER)):
        assert await fake.say("one") == [200]
        assert await fake.say("two") == [200]
    assert [inbound.chat_type for inbound in engine.received] == ["group", "group"]
    asked = len([path for _, path in fake.requests if "/v4/room/" in path])
    assert asked == (2 if fault.drop else 1)


async def test_coming_and_going_decide_whether_the_bot_speaks(fake, engine, port):
    config = settings(fake, port)
    piece = Outbound("o1", Address("nextcloud_talk", "default", "n3xtc10ud"), "hi")
    actor = {"type": "Application", "id": fake.bots[0].actor, "name": "Confidant"}
    room = {"type": "Collection", "id": "n3xtc10ud", "name": "world"}
    async with running(engine, config) as channel:
        assert await fake.bring({"type": "Join", "actor": actor, "object": room}) == [200]
        await post(channel, piece)
        assert await fake.bring({"type": "Leave", "actor": actor, "object": room}) == [200]
        with pytest.raises(SendRefused, match="removed"):
            await post(channel, piece)
        assert await fake.say("yes") == [200]
        await post(channel, piece)
    assert len(fake.posted) == 2


# --- replies to what the bot said ----------------------------------------------------------------


ELSEWHERE = "https://bot.example.org"  # the address in the configuration is another one


async def answer_to_the_bot(fake, channel):
    """The bot says something, and a person replies to it."""
    piece = Outbound(f"o{len(fake.posted)}", Address("nextcloud_talk", "default", ROOM), "well?")
    await post(channel, piece)
    assert await fake.say("yes", reply=reply_to(fake.records[-1])) == [200]


@pytest.mark.parametrize("bot_name", ["Confidant", "Another"])
async def test_a_reply_to_the_bot_is_one_by_the_address_it_was_installed_with(
    fake, engine, port, bot_name
):
    async with running(engine, settings(fake, port, bot_name=bot_name)) as channel:
        await answer_to_the_bot(fake, channel)
    (found,) = engine.received
    assert found.mentions_bot
    assert found.reply_to.from_bot


async def test_what_a_join_told_is_known_after_a_restart(fake, engine, port):
    config = settings(fake, port, bot_name="Another", public_url=ELSEWHERE)
    async with running(engine, config) as channel:
        await answer_to_the_bot(fake, channel)
        assert not engine.received[-1].mentions_bot
        assert await fake.switch(fake.bots[0], ROOM) == 200
        await answer_to_the_bot(fake, channel)
        assert engine.received[-1].mentions_bot
    async with running(engine, config) as channel:
        await answer_to_the_bot(fake, channel)
        assert engine.received[-1].mentions_bot
        # A bot of the same name that is not this one.
        stranger = FakeBot("x" * 40, "https://elsewhere.example", rooms={"other"})
        said = fake.records[-1] | {"actorId": stranger.actor.removeprefix("bots/")}
        said |= {"actorType": "bots", "actorDisplayName": "Another (Bot)"}
        assert await fake.say("no", reply=reply_to(said)) == [200]
        assert not engine.received[-1].mentions_bot


async def test_an_id_that_could_not_be_kept_is_an_error_to_talk_and_known_meanwhile(
    fake, engine, port
):
    config = settings(fake, port, bot_name="Another", public_url=ELSEWHERE)
    async with running(engine, config) as channel:
        engine.failures = 3
        assert await fake.switch(fake.bots[0], ROOM) == 500
        await answer_to_the_bot(fake, channel)
    assert engine.received[-1].mentions_bot


async def test_while_nothing_can_be_read_the_name_talk_shows_has_to_do(fake, port):
    class Unreadable(RecordingEngine):
        async def kept(self, channel, account):
            raise StorageError("the disk is gone")

    config = settings(fake, port, public_url=ELSEWHERE)
    async with running(engine := Unreadable(), config) as channel:
        await answer_to_the_bot(fake, channel)
    assert engine.received[-1].mentions_bot


async def test_no_log_has_the_token_of_a_room(fake, engine, config, logs):
    actor = {"type": "Application", "id": fake.bots[0].actor if fake.bots else "bots/b"}
    room = {"type": "Collection", "id": "n3xtc10ud"}
    async with running(engine, config):
        for kind in ("Join", "Leave"):
            assert await fake.bring({"type": kind, "actor": actor, "object": room}) == [200]
        assert await fake.say("private words") == [200]
    assert {"nextcloud_talk.room.joined", "nextcloud_talk.room.left"} <= {e["event"] for e in logs}
    assert "n3xtc10ud" not in str(logs)
    assert "private words" not in str(logs)


async def test_who_looks_after_a_room_is_known_once_they_wrote(fake, engine, config):
    address = Address("nextcloud_talk", "default", "n3xtc10ud")
    async with running(engine, config) as channel:
        assert not await channel.is_admin(address, "ada")
        await fake.say("hi", rank=1)
        assert await channel.is_admin(address, "ada")
        assert not await channel.is_admin(Address("nextcloud_talk", "x", "n3xtc10ud"), "ada")
        # What somebody shares comes without their rank.
        await fake.say("{object}", parameters=shared("talk-poll", "3", "Tea?"), type="Activity")
        assert engine.received[-1].foreign == (Foreign("poll", "poll: Tea?"),)
        assert await channel.is_admin(address, "ada")
        await fake.say("hi", rank=3)
        assert not await channel.is_admin(address, "ada")


# --- several bots and servers --------------------------------------------------------------------


async def test_two_servers_with_the_same_room_and_person_do_not_meet(fake, engine, port):
    async with FakeNextcloud() as there:
        there.bots.append(FakeBot(OTHER, f"http://127.0.0.1:{port}/nextcloud-talk"))
        accounts = {"there": {"base_url": there.url, "bot_secret": OTHER}, "idle": {}}
        async with running(engine, settings(fake, port, accounts=accounts)) as channel:
            assert await fake.say("here") == [200]
            assert await there.say("there") == [200]
            first, second = engine.received
            assert (first.account, second.account) == ("default", "there")
            assert first.chat != second.chat
            assert first.sender != second.sender
            for number, inbound in enumerate((first, second)):
                await post(channel, Outbound(f"o{number}", inbound.address, inbound.text))
            # One server's signature does not count for the other.
            url = there.bots[0].url
            assert await fake.call(url, BODY, SECRET, backend=there.url) == 401
            assert await fake.call(url, BODY, OTHER, backend=fake.url) == 401
        assert [posted.text for posted in fake.posted] == ["here"]
        assert [posted.text for posted in there.posted] == ["there"]
    assert engine.health["nextcloud_talk", "idle"][0] is Health.DOWN


async def test_two_bots_on_one_server_have_their_own_paths(fake, engine, port):
    accounts = {"work": {"bot_secret": OTHER, "webhook_path": "/work", "bot_name": "Worker"}}
    config = settings(fake, port, accounts=accounts)
    fake.bots.append(FakeBot(OTHER, f"http://127.0.0.1:{port}/work"))
    async with running(engine, config):
        assert await fake.say("hi Worker") == [200, 200]
        assert await fake.call(fake.bots[1].url, BODY, SECRET) == 401
    assert [(i.account, i.mentions_bot) for i in engine.received] == [
        ("default", False),
        ("work", True),
    ]


async def test_a_direct_chat_is_answered_once(tmp_path, fake):
    async with confidant(tmp_path, fake, free_port(), ScriptedModel()):
        assert await fake.say("hello there") == [200]
        posted = await fake.wait_posted(1)
    assert "You said: hello there" in posted[-1].text
    assert posted[-1].room == "n3xtc10ud"


async def test_a_message_that_comes_twice_and_a_lost_answer_give_one_reply(tmp_path, fake):
    fake.fail_next("/message", Fault(drop=True, after=True))
    async with confidant(tmp_path, fake, free_port(), ScriptedModel()):
        assert await fake.say("hello", id=2000) == [200]
        assert await fake.say("hello", id=2000) == [200]
        await fake.say("and now?")
        await fake.wait_posted(2)
    said = [posted.text for posted in fake.posted]
    assert len(said) == 2
    assert "You said: and now?" in said[1]


async def test_what_is_said_in_a_room_nobody_listed_never_reaches_the_model(tmp_path, fake):
    fake.kinds["n3xtc10ud"] = 2
    model = ScriptedModel()
    async with confidant(tmp_path, fake, free_port(), model):
        assert await fake.say("Confidant, hello") == [200]
    assert model.requests == []
    assert not any("You said" in posted.text for posted in fake.posted)


@pytest.mark.parametrize("api_user", [True, False])
async def test_in_a_room_a_reply_to_the_bot_is_answered_also_after_a_restart(
    tmp_path, fake, api_user
):
    fake.kinds["n3xtc10ud"] = 2
    port, model = free_port(), ScriptedModel()
    own = {} if api_user else {"api_user": "", "api_password": None}
    changes = {"group_policy": "open", "public_url": "https://bot.example.org", **own}
    async with confidant(tmp_path, fake, port, model, **changes):
        assert await fake.switch(fake.bots[0], "n3xtc10ud") == 200
        await fake.say("Confidant, shall we?")
        await fake.wait_posted(1)
        answer = reply_to(fake.records[-1])
    async with confidant(tmp_path, fake, port, model, **changes):
        await fake.say("by the way")
        await fake.say("yes, at noon", reply=answer)
        posted = await fake.wait_posted(2)
    assert "yes, at noon" in posted[-1].text
    assert len(model.requests) == 2


@pytest.fixture
async def silent():
    async with FakeNextcloud() as server:
        yield server
        assert server.posted == []
        assert server.reactions == []


async def examine(config):
    channel = NextcloudTalk(config)
    return [told(each, "en") for each in await channel.examine()]


def problems(findings):
    return [(finding.level, finding.text) for finding in findings if finding.level != "ok"]


async def test_a_good_set_up_has_no_problem(silent):
    config = settings(silent, free_port(), **WITH_API_USER)
    async with running(RecordingEngine(), config):
        found = await examine(config)
    assert problems(found) == []
    assert len(found) == 6
    assert SECRET not in str(found)
    assert "app-password" not in str(found)


@pytest.mark.parametrize("abilities", [["bots-v1", "bot-features-api"], ["bots-v1"]])
async def test_the_missing_response_feature_is_found_and_mended(silent, abilities):
    silent.abilities = abilities
    config = settings(silent, free_port(), groups={"n3xtc10ud": {}})
    silent.bots[0].features &= ~RESPONSE
    async with running(RecordingEngine(), config):
        found = [f for f in await examine(config) if f.level == "error"]
    assert len(found) == 1
    assert "401" in found[0].text
    assert "occ talk:bot:state --feature webhook --feature response" in found[0].fix
    assert "response" in found[0].text + found[0].fix


async def test_a_room_the_api_user_is_not_in_is_told(silent):
    silent.kinds["other"] = 2
    silent.strangers.add("other")
    groups = {"other": {}, "n3xtc10ud": {}, "closed": {"enabled": False}, "*": {}}
    config = settings(silent, free_port(), groups=groups, **WITH_API_USER)
    async with running(RecordingEngine(), config):
        ((level, words),) = problems(await examine(config))
    assert level == "warning"
    assert words.startswith("api_user confidant is not in other: what is said there while")


async def test_without_an_api_user_it_says_what_is_lost(silent):
    config = settings(silent, free_port(), groups={"n3xtc10ud": {}})
    async with running(RecordingEngine(), config):
        ((level, words),) = problems(await examine(config))
    assert level == "warning"
    assert "what is said while Confidant is down is lost" in words


async def test_a_bot_that_is_not_told_what_is_said_is_an_error(silent):
    config = settings(silent, free_port(), **WITH_API_USER)
    silent.bots[0].features = RESPONSE
    async with running(RecordingEngine(), config):
        assert problems(await examine(config)) == [
            ("error", "the bot lacks the feature webhook: without it Talk tells it nothing")
        ]


async def test_no_feature_is_asked_for_that_is_not_needed(silent):
    config = settings(silent, free_port(), **WITH_API_USER)
    assert silent.bots[0].features == WEBHOOK | RESPONSE
    async with running(RecordingEngine(), config) as channel:
        assert problems(await examine(config)) == []
        await channel.react(Address("nextcloud_talk", "default", "n3xtc10ud"), "1567", "👍")
    assert silent.reactions.pop() == ("n3xtc10ud", "1567", "👍")


async def test_a_bot_that_is_in_no_conversation_is_tried_in_few(silent):
    silent.kinds = {f"room{n}": 2 for n in range(50)}
    config = settings(silent, free_port(), **WITH_API_USER)
    async with running(RecordingEngine(), config):
        found = problems(await examine(config))
    assert [level for level, _ in found] == ["error"]
    assert len([path for _, path in silent.requests if "ask-features" in path]) == MOST_ROOMS


async def test_without_a_room_it_says_where_to_look(silent):
    config = settings(silent, free_port())
    async with running(RecordingEngine(), config):
        found = await examine(config)
    assert [level for level, _ in problems(found)] == ["warning", "warning"]
    assert any("talk:bot:list" in finding.fix for finding in found)


@pytest.mark.parametrize(
    ("secret", "level"),
    [("s" * 39, "error"), ("s" * 40, "ok"), ("s" * 128, "ok"), ("s" * 129, "error")],
)
async def test_the_secrets_length(silent, secret, level):
    config = settings(silent, free_port(), bot_secret=secret)
    (finding, *_) = await examine(config)
    assert finding.level == level
    assert f"{len(secret)} characters" in finding.text


@pytest.mark.parametrize(
    ("part", "fault", "words"),
    [
        ("/capabilities", Fault(503), "maintenance"),
        ("/capabilities", Fault(404), "does not answer like a Nextcloud"),
        ("/capabilities", Fault(200), "does not answer like a Nextcloud"),
        ("/v4/room", Fault(401), "rejects api_user"),
        ("/v4/room", Fault(drop=True), "cannot be listed"),
    ],
)
async def test_a_server_in_trouble(silent, part, fault, words):
    silent.fail_next(part, fault, times=2)
    found = problems(await examine(settings(silent, free_port(), **WITH_API_USER)))
    assert any(words in text for _, text in found)


@pytest.mark.parametrize("abilities", [[], ["video"]])
async def test_talk_is_missing_or_too_old(silent, abilities):
    silent.abilities = abilities
    found = problems(await examine(settings(silent, free_port())))
    assert any("Talk is not installed" in text for _, text in found)


async def test_a_server_that_is_not_there():
    config = settings(FakeNextcloud(url="http://127.0.0.1:1"), free_port(), public_url="")
    found = problems(await examine(config))
    assert [level for level, _ in found] == ["error", "warning"]
    assert "cannot be reached" in found[0][1]
    assert "public_url is not set" in found[1][1]


async def test_the_webhook_is_called_as_talk_would(silent):
    port = free_port()
    config = settings(silent, port, **WITH_API_USER)
    assert any("cannot be reached from here" in text for _, text in problems(await examine(config)))
    engine = RecordingEngine()
    async with running(engine, config):
        elsewhere = config.model_copy(update={"webhook_path": "/elsewhere"})
        assert any("HTTP 404" in text for _, text in problems(await examine(elsewhere)))
        other = settings(silent, port, bot_secret="o" * 40)
        assert any("HTTP 401" in text for _, text in problems(await examine(other)))
        assert problems(await examine(config)) == []
    assert engine.received == []


async def test_every_account_is_looked_at(silent):
    accounts = {"work": {"bot_secret": "w" * 39}, "idle": {}}
    found = await examine(settings(silent, free_port(), accounts=accounts))
    assert {finding.account for finding in found} == {"default", "work", "idle"}


FILE = {"type": "file", "id": "9", "name": "a.png", "size": "5", "mimetype": "image/png"}
SEEDS = [
    payload("hello {mention-user1}", parameters={"mention-user1": {"type": "user", "name": "B"}}),
    payload("{file}", parameters={"file": FILE}, type="Activity"),
    payload("yes", reply={"actor": {"id": "bots/b"}, "object": payload("well?")["object"]}),
    payload("x", type="Like") | {"content": "👍"},
    payload("x", type="Undo"),
    {"type": "Join", "actor": {"id": "bots/b"}, "object": {"id": "n3xtc10ud"}},
    {"type": "Leave", "actor": {"id": "bots/b"}, "object": {"id": "abc"}},
]
ODD = [
    None, True, 0, -1, 10**30, 1e308, "", "\0", "\ud800", "\u202e\u200b", "x" * 5000, [], {}, [[]],
    {"": ""}, "{file}", "users/", "bots/x", "../..", "Create", '{"message":"x","parameters":{}}',
]  # fmt: skip


def twist(rng, value, depth=0):
    """A copy of a value with something in it changed, taken out, doubled or put in."""
    if rng.random() < 0.12 or depth > 6:
        return rng.choice(ODD)
    if isinstance(value, dict):
        found = {key: twist(rng, each, depth + 1) for key, each in value.items()}
        if found and rng.random() < 0.2:
            found.pop(rng.choice(list(found)))
        if rng.random() < 0.1:
            found[rng.choice(["type", "object", "inReplyTo", "threadId", "x"])] = rng.choice(ODD)
        if isinstance(found.get("content"), str) and rng.random() < 0.3:
            inner = {"message": rng.choice(ODD), "parameters": rng.choice([*ODD, {"file": FILE}])}
            found["content"] = json.dumps(inner)
        return found
    if isinstance(value, list):
        return [twist(rng, each, depth + 1) for each in value]
    if isinstance(value, str) and value and rng.random() < 0.1:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice('\0{}[]"\\/ \ud83d\u202e') + value[at + 1 :]
    return value


@pytest.mark.parametrize("many", sample([5_000], [100_000]))
def test_a_hundred_thousand_twisted_payloads_are_read(many):
    rng, me, seen = randomness.Random(7), Identity("default", "Confidant"), Counter()  # noqa: S311
    for _ in range(many):
        found = normalise(twist(rng, rng.choice(SEEDS)), me, 1)
        seen[found.reason if isinstance(found, Ignored) else type(found).__name__] += 1
        if isinstance(found, Inbound):
            assert found.text.strip() or found.media
            for words in (found.text, found.sender, found.sender_name, found.chat):
                words.encode()
                assert "\0" not in words
            assert found.message_id.isdecimal()
    assert seen["Inbound"] > many / 100
    assert seen.total() == many
    assert len(seen) <= 9


@pytest.mark.proof
async def test_thousands_of_broken_calls_are_answered_and_counted():
    rng, engine, statuses = randomness.Random(8), RecordingEngine(), Counter()  # noqa: S311
    async with FakeNextcloud() as fake:
        config = settings(fake, free_port())
        url = fake.bots[0].url
        async with running(engine, config):
            for number in range(3000):
                body = json.dumps(twist(rng, rng.choice(SEEDS))).encode()
                headers = {"random": f"{number:064d}"}
                chance = rng.random()
                if chance < 0.1:
                    body = body[: rng.randrange(len(body) + 1)]
                elif chance < 0.2:
                    headers["random"] = rng.choice(["", "x", "y" * 64, "z" * 400])
                elif chance < 0.3:
                    headers["signature"] = rng.choice(["", "0" * 64, "g" * 64])
                elif chance < 0.4:
                    headers["backend"] = rng.choice(["", "x", "http://[", "https://evil.example"])
                statuses[await fake.call(url, body, SECRET, **headers)] += 1
            assert await fake.say("still here") == [200]
    assert set(statuses) == {200, 400, 401, 409}
    joined = statuses.total() + 1 - engine.drops.total() - len(engine.received)
    assert 0 < joined < 1000
    assert engine.received[-1].text == "still here"


async def test_what_is_remembered_has_an_end(monkeypatch):
    monkeypatch.setattr(account, "REMEMBERED", 50)
    async with FakeNextcloud() as fake, new_session() as session:
        config = settings(fake, free_port())
        subject = Account(config.seats()["default"], config, RecordingEngine(), session, QUICK)
        for number in range(500):
            room = f"room{number}"
            assert await subject.take(payload("hi", room=room, sender=f"users/u{number}", rank=1))
            leave = {"type": "Leave", "actor": {"id": "bots/b"}, "object": {"id": f"x{number}"}}
            assert await subject.take(leave)
    assert len(subject._present) == len(subject._moderators) == 50
