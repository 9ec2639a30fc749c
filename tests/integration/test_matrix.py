"""The Matrix channel on a real homeserver: what syncs bring, keys, invitations, and sending."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import nio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nio import crypto

from adapters.matrix import channel as matrix_channel
from adapters.matrix import keys as matrix_keys
from adapters.matrix.account import Account
from adapters.matrix.channel import Matrix
from adapters.matrix.inbound import Identity, Room
from adapters.matrix.keys import Forged, Keys, Missing
from bot.channel import Address, Health, Outbound
from bot.errors import SendTransient, SendUnreachable
from tests.fakes import synapse
from tests.fakes.matrix_channel import QUICK, running, settings
from tests.fakes.synapse import Person, Synapse
from tests.fakes.telegram_channel import WatchingEngine
from tests.support import post, until


@dataclass
class Place:
    """A homeserver, a person, and the bot's account there; `engine` hears what the bot does."""

    server: Synapse
    ada: Person
    login: dict[str, str]
    engine: WatchingEngine = field(default_factory=WatchingEngine)

    @property
    def bot(self) -> str:
        return self.login["user_id"]

    @asynccontextmanager
    async def running(self, **values: Any) -> AsyncIterator[Matrix]:
        config = settings(self.server, self.login, **values)
        async with running(self.engine, config) as channel:
            yield channel

    async def begun(self, who: Person | None = None, **kinds: bool) -> str:
        """A chat with the bot in it."""
        who = who or self.ada
        room = await who.room(self.bot, **kinds)
        await who.joined(room, self.bot)
        return room

    async def heard(self, count: int) -> list[str]:
        async with asyncio.timeout(30):
            await self.engine.wait_until(lambda e: len(e.received) >= count)
        return [inbound.text for inbound in self.engine.received]

    def address(self, room: str, thread: str = "") -> Address:
        return Address("matrix", "default", room, thread)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    server = await asyncio.to_thread(synapse.shared)
    async with synapse.person(server) as ada:
        yield Place(server, ada, await server.register())


def account(channel: Matrix) -> Account:
    return channel._accounts["default"]


async def test_what_was_said_while_it_was_down_comes_once_and_in_order(place):
    async with place.running():
        room = await place.begun(direct=True)
        await place.ada.say(room, "before")
        await place.heard(1)
    for number in range(60):  # more than one sync brings
        await place.ada.say(room, f"{number}")
    async with place.running():
        await place.heard(61)
        await place.ada.say(room, "after")
        said = await place.heard(62)
    assert said == ["before", *map(str, range(60)), "after"]


async def test_a_full_disk_loses_nothing(place):
    async with place.running():
        room = await place.begun(direct=True, encrypted=True)
        await place.ada.say(room, "one")
        await place.heard(1)
        place.engine.failures = 3  # of keys, messages and the sync token
        for said in ("two", "three"):
            await place.ada.say(room, said)
        await place.heard(3)
        await until(lambda: place.engine.health["matrix", "default"][0] is Health.UP)
    async with place.running():
        await place.ada.say(room, "four")
        await place.heard(4)
    assert [each.text for each in place.engine.received] == ["one", "two", "three", "four"]


async def test_what_was_said_before_it_came_into_a_room_is_not_for_it(place):
    room = await place.ada.room()
    await place.ada.say(room, "among ourselves")
    async with place.running():
        await place.ada.call("POST", f"/rooms/{room}/invite", {"user_id": place.bot})
        await place.ada.joined(room, place.bot)
        await place.ada.say(room, "hello")
        assert await place.heard(1) == ["hello"]


async def test_the_first_start_answers_nothing_old(place):
    async with place.running():
        room = await place.begun(direct=True)
        await place.ada.say(room, "known")
        await place.heard(1)
    del place.engine.notes["matrix", "default", "since"]
    place.engine.received.clear()
    async with place.running():
        await place.ada.say(room, "new")
        assert await place.heard(1) == ["new"]


async def test_a_device_whose_keys_are_lost_is_named(place):
    async with place.running():
        pass
    place.engine.notes.clear()
    channel = Matrix(settings(place.server, place.login), QUICK)
    await channel.start(place.engine)
    assert "whose keys are not here" in await place.engine.wait_said(Health.DOWN)
    await channel.stop()


async def test_its_device_is_signed_so_that_careful_apps_give_it_keys(place):
    async with place.running():
        body = {"device_keys": {place.bot: []}}
        found = await place.ada.call("POST", "/keys/query", body)
    (signer,) = found["self_signing_keys"][place.bot]["keys"].values()
    device = found["device_keys"][place.bot][place.login["device_id"]]
    signature = device["signatures"][place.bot][f"ed25519:{signer}"]
    words = nio.Api.to_canonical_json(
        {name: each for name, each in device.items() if name not in {"signatures", "unsigned"}}
    )
    Ed25519PublicKey.from_public_bytes(decoded(signer)).verify(decoded(signature), words.encode())
    async with place.running():  # once is enough
        again = await place.ada.call("POST", "/keys/query", body)
    assert again["master_keys"] == found["master_keys"]


def decoded(words: str) -> bytes:
    return b64decode(words + "=" * (-len(words) % 4))


async def test_a_thread_is_a_conversation_and_so_is_an_edit_in_it(place):
    async with place.running() as channel:
        room = await place.begun()
        root = await place.ada.say(room, "shall we?")
        link = {"rel_type": "m.thread", "event_id": root}
        within = await place.ada.say(room, "yes", **{"m.relates_to": link})
        edit = {"rel_type": "m.replace", "event_id": within}
        new = {"msgtype": "m.text", "body": "no"}
        await place.ada.say(room, "* no", **{"m.relates_to": edit, "m.new_content": new})
        await place.heard(3)
        _, said, edited = place.engine.received
        assert said.address == edited.address == place.address(room, root)
        assert (edited.text, edited.edit_of) == ("no", within)
        assert said.reply_to is not None
        assert (said.reply_to.text, said.reply_to.is_start) == ("shall we?", True)
        await post(channel, Outbound("o", said.address, "right"))
        await place.ada.wait_for(lambda: bool(place.ada.said(room, place.bot)))
    (shown,) = place.ada.said(room, place.bot)
    assert shown["m.relates_to"]["event_id"] == root


async def test_a_direct_chat_that_a_third_person_is_asked_into_is_a_room(place):
    async with place.running(), synapse.person(place.server, "bob") as bob:
        room = await place.begun(direct=True)
        await place.ada.say(room, "alone")
        await place.heard(1)
        await place.ada.call("POST", f"/rooms/{room}/invite", {"user_id": bob.id})
        await place.ada.say(room, "no longer")
        await place.heard(2)
    assert [each.chat_type for each in place.engine.received] == ["direct", "group"]


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    ("values", "comes"),
    [
        ({"dm_policy": "pairing", "group_policy": "open"}, (True, True)),
        ({"dm_policy": "disabled", "group_policy": "disabled"}, (False, False)),
        ({"dm_policy": "allowlist", "group_policy": "allowlist"}, (False, False)),
        ({"dm_policy": "allowlist", "group_policy": "allowlist", "allow": True}, (True, True)),
        ({"dm_policy": "disabled", "group_policy": "disabled", "allow": True}, (False, False)),
        ({"dm_policy": "disabled", "group_policy": "allowlist", "listed": True}, (False, True)),
    ],
)
async def test_it_goes_where_the_configuration_lets_it(place, values, comes, direct):
    room = await place.ada.room(place.bot, direct=direct)
    values = dict(values)
    if values.pop("allow", False):
        values["allow_from"] = [place.ada.id]
    if values.pop("listed", False):
        values["groups"] = {room: {}}
    async with place.running(**values):  # the first sync has the invitation
        if comes[not direct]:
            await place.ada.joined(room, place.bot)
        else:
            found = await place.ada.call("GET", f"/rooms/{room}/state/m.room.member/{place.bot}")
            assert found["membership"] == "invite"
    assert place.engine.drops["invitation"] == (not comes[not direct])


async def test_a_command_may_begin_with_another_sign(place):
    async with place.running():
        room = await place.begun(direct=True)
        (command, *_) = place.engine.commands("")
        for said in (f"!{command.name} now", "!important", "!"):
            await place.ada.say(room, said)
        assert await place.heard(3) == [f"/{command.name} now", "!important", "!"]


async def test_a_message_that_is_taken_back_is_forgotten(place):
    async with place.running():
        room = await place.begun(direct=True)
        said = await place.ada.say(room, "a secret")
        await place.heard(1)
        await place.ada.call("PUT", f"/rooms/{room}/redact/{said}/1", {})
        await place.ada.say(room, "next")
        async with asyncio.timeout(30):
            await place.engine.wait_until(lambda e: [i.text for i in e.received] == ["next"])


async def test_a_reaction_and_taking_it_back_are_told(place):
    async with place.running():
        room = await place.begun(direct=True)
        said = await place.ada.say(room, "hello")
        await place.heard(1)
        link = {"rel_type": "m.annotation", "event_id": said, "key": "👍"}
        liked = await place.ada.post(room, {"m.relates_to": link}, "m.reaction")
        await place.ada.post(room, {"m.relates_to": {**link, "rel_type": "m.x"}}, "m.reaction")
        await place.ada.call("PUT", f"/rooms/{room}/redact/{liked}/1", {})
        async with asyncio.timeout(30):
            await place.engine.wait_until(lambda e: len(e.reactions) == 2)
    added, removed = place.engine.reactions
    assert (added.emoji, added.message_id, added.is_removed) == ("👍", said, False)
    assert (added.address, added.chat_type) == (place.address(room), "direct")
    assert added.sender == place.ada.id
    assert removed.is_removed
    assert place.engine.drops["reaction"] == 1


async def test_a_token_that_was_revoked_is_named(place):
    async with place.running():
        url = f"{place.server.url}/_matrix/client/v3/logout"
        login = {"Authorization": f"Bearer {place.login['access_token']}"}
        async with synapse.aiohttp.ClientSession() as calls, calls.post(url, headers=login):
            said = await place.engine.wait_said(Health.DOWN)
    assert "MATRIX_ACCESS_TOKEN" in said
    assert place.login["access_token"] not in said


async def test_only_who_may_change_a_room_is_its_admin(place):
    async with place.running() as channel, synapse.person(place.server, "bob") as bob:
        room = await place.begun()
        assert await channel.is_admin(place.address(room), place.ada.id)
        assert not await channel.is_admin(place.address(room), bob.id)
        assert not await channel.is_admin(place.address("!nowhere:hs.test"), place.ada.id)
        assert not await channel.is_admin(Address("matrix", "other", room), place.ada.id)


async def test_a_reaction_is_put_and_taken_away(place):
    async with place.running() as channel:
        room = await place.begun(direct=True)
        said = await place.ada.say(room, "hello")
        await place.heard(1)

        async def signs() -> int:
            found = await place.ada.call("GET", f"/rooms/{room}/messages?dir=b&limit=20")
            kinds = [each for each in found["chunk"] if each["type"] == "m.reaction"]
            return sum(bool(each["content"]) for each in kinds)

        await channel.react(place.address(room), said, "👀")
        assert await signs() == 1
        await channel.react(place.address(room), said, "")
        assert await signs() == 0
        await channel.react(place.address("!nowhere:hs.test"), said, "👀")  # never raises


async def test_where_it_is_no_longer_nothing_is_said(place):
    async with place.running() as channel:
        room = await place.begun(direct=True)
        await place.ada.call("POST", f"/rooms/{room}/kick", {"user_id": place.bot})
        await until(lambda: room not in account(channel).rooms.rooms)
        with pytest.raises(SendUnreachable):
            await post(channel, Outbound("o", place.address(room), "hello"))
        account(channel).rooms.rooms[room] = Room()  # before it heard of it
        with pytest.raises(SendUnreachable):
            await post(channel, Outbound("o", place.address(room), "hello"))


async def test_an_account_that_another_node_has_says_nothing_and_misses_nothing(place):
    async with place.running() as channel:
        room = await place.begun(direct=True, encrypted=True)
        await place.ada.say(room, "one")
        await place.heard(1)
        place.engine.take_away()
        await until(lambda: not account(channel).connected.is_set())
        with pytest.raises(SendTransient):
            await post(channel, Outbound("o", place.address(room), "hello"))
        await place.ada.say(room, "two")
        place.engine.free.set()
        assert await place.heard(2) == ["one", "two"]
        await post(channel, Outbound("o", place.address(room), "hello"))
        await place.ada.wait_for(lambda: bool(place.ada.said(room, place.bot)))


# --- encryption ----------------------------------------------------------------------------------


async def test_a_message_whose_key_is_missing_is_told_of_once_and_read_when_it_comes(place):
    async with place.running() as channel:
        room = await place.begun(direct=True, encrypted=True)
        await place.ada.say(room, "first")
        await place.heard(1)
        give = await withheld(place.ada, room, place.bot)
        await place.ada.say(room, "second")
        await place.ada.say(room, "third")
        await place.ada.wait_for(lambda: bool(place.ada.said(room, place.bot)))
        detail = await place.engine.wait_said(Health.DEGRADED)
    assert detail.startswith("Encrypted messages without a key: ")
    async with place.running() as channel:  # it knows of them after a restart, too
        await give()
        assert await place.heard(3) == ["first", "second", "third"]
        await until(lambda: not account(channel).rooms.waits)
        await until(lambda: place.engine.health["matrix", "default"] == (Health.UP, ""))
    (told,) = place.ada.said(room, place.bot)
    assert told["body"].startswith("I can't read this message yet")
    assert not [name for _, _, name in place.engine.notes if name.startswith("waits/")]


async def withheld(ada: Person, room: str, bot: str) -> Callable[[], Any]:
    """Let her next messages have a key that the bot does not get; what gives it to the bot."""
    olm = ada.app.olm
    olm.create_outbound_group_session(room)
    session = olm.outbound_group_sessions[room]
    session.shared = True
    content = {
        "algorithm": "m.megolm.v1.aes-sha2",
        "room_id": room,
        "session_id": session.id,
        "session_key": session.session_key,
    }

    async def give() -> None:
        (device,) = ada.app.device_store.active_user_devices(bot)
        locked = olm._olm_encrypt(
            olm.session_store.get(device.curve25519), device, "m.room_key", content
        )
        message = nio.event_builders.ToDeviceMessage("m.room.encrypted", bot, device.id, locked)
        await ada.app.to_device(message)

    return give


async def test_garbage_for_its_device_does_not_stop_it(place):
    async with place.running():
        room = await place.begun(direct=True, encrypted=True)
        await place.ada.say(room, "first")
        await place.heard(1)
        key = account_key(place)
        for number, content in enumerate(
            [
                {"algorithm": "m.olm.v1.curve25519-aes-sha2", "sender_key": "x", "ciphertext": {}},
                {
                    "algorithm": "m.olm.v1.curve25519-aes-sha2",
                    "sender_key": "A" * 43,
                    "ciphertext": {key: {"type": 0, "body": "AAAA"}},
                },
                {"algorithm": 7},
                {"ciphertext": []},
            ]
        ):
            body = {"messages": {place.bot: {place.login["device_id"]: content}}}
            path = f"/sendToDevice/m.room.encrypted/{number}"
            await place.ada.call("PUT", path, body)
        await place.ada.say(room, "second")
        assert await place.heard(2) == ["first", "second"]


def account_key(place: Place) -> str:
    (device,) = place.ada.app.device_store.active_user_devices(place.bot)
    return device.curve25519


async def test_what_was_encrypted_once_stays_so(place):
    async with place.running():
        room = await place.begun(direct=True)
        await place.ada.say(room, "hello")
        await place.heard(1)
    place.engine.notes["matrix", "default", f"encrypted/{room}"] = "1"
    async with place.running() as channel:
        await post(channel, Outbound("o", place.address(room), "a secret"))
    found = await place.ada.call("GET", f"/rooms/{room}/messages?dir=b&limit=5")
    kinds = [each["type"] for each in found["chunk"] if each["sender"] == place.bot]
    assert kinds[0] == "m.room.encrypted"
    assert "a secret" not in str(found)


class Outgoing:
    """A device that encrypts, without a homeserver."""

    def __init__(self) -> None:
        self.session = crypto.OutboundGroupSession()
        self.session.shared = True
        self.key = self.session.session_key

    def event(self, room: str, number: str, text: str, sender: str = "@ada:hs") -> dict[str, Any]:
        content = {"msgtype": "m.text", "body": text}
        plain = {"type": "m.room.message", "content": content, "room_id": room}
        words = self.session.encrypt(nio.Api.to_json(plain))
        found = {"session_id": self.session.id, "ciphertext": words}
        return {"type": "m.room.encrypted", "event_id": number, "sender": sender, "content": found}


def test_a_message_is_read_only_as_what_its_sender_encrypted():
    async def keep(name: str, text: str) -> None:
        raise AssertionError

    ada, keys = Outgoing(), Keys(None, Identity("@bot:hs", "DEV"), {}, keep)
    first = ada.event("!r", "$1", "hello")
    with pytest.raises(Missing):
        keys.decrypt("!r", first)
    keys._store.by = "@ada:hs"
    keys._olm.create_group_session("curve", "ed", "!r", ada.session.id, ada.key)
    assert keys.decrypt("!r", first)["content"]["body"] == "hello"
    assert keys.decrypt("!r", first)["content"]["body"] == "hello"  # a copy of the event
    with pytest.raises(Forged):  # somebody says her words once more
        keys.decrypt("!r", first | {"event_id": "$2"})
    with pytest.raises(Forged):  # somebody says them as their own
        keys.decrypt("!r", first | {"sender": "@eve:hs"})
    with pytest.raises(Forged):  # or elsewhere
        keys.decrypt("!s", first)
    with pytest.raises(Forged):
        keys.decrypt("!r", ada.event("!s", "$3", "for another room"))
    keys._store.by = "@eve:hs"  # nor does a key become somebody else's
    keys._olm.create_group_session("curve", "ed", "!r", ada.session.id, ada.key)
    assert keys.decrypt("!r", first)["sender"] == "@ada:hs"
    for broken in (
        {},
        {"session_id": ada.session.id},
        {"session_id": ada.session.id, "ciphertext": "AAA"},
    ):
        with pytest.raises(Missing):
            keys.decrypt("!r", first | {"content": broken})


async def test_only_so_many_keys_are_kept_and_a_restart_finds_them(monkeypatch):
    monkeypatch.setattr(matrix_keys, "MOST_GROUPS", 3)
    kept: dict[str, str] = {}

    async def keep(name: str, text: str) -> None:
        kept.pop(name, None)
        if text:
            kept[name] = text

    me = Identity("@bot:hs", "DEV")
    keys, people = Keys(None, me, kept, keep), [Outgoing() for _ in range(5)]
    for ada in people:
        keys._store.by = "@ada:hs"
        keys._olm.create_group_session("curve", "ed", "!r", ada.session.id, ada.key)
        await keys.flush()
    assert len([name for name in kept if "/group/" in name]) == 3
    again = Keys(None, me, {**kept, "since": "s1"}, keep)
    assert again.fingerprint == keys.fingerprint
    for ada in people[:2]:
        with pytest.raises(Missing):
            again.decrypt("!r", ada.event("!r", "$1", "hello"))
    for ada in people[2:]:
        assert again.decrypt("!r", ada.event("!r", "$1", "hello"))["content"]["body"] == "hello"
    assert Keys(None, Identity("@bot:hs", "NEW"), kept, keep).fingerprint != keys.fingerprint


async def test_only_so_many_sessions_with_devices_are_kept(monkeypatch):
    monkeypatch.setattr(matrix_keys, "MOST_SESSIONS", 3)
    kept: dict[str, str] = {}

    async def keep(name: str, text: str) -> None:
        kept.pop(name, None)
        if text:
            kept[name] = text

    me, other = Identity("@bot:hs", "DEV"), crypto.OlmAccount()
    other.generate_one_time_keys(5)
    keys = Keys(None, me, kept, keep)
    curve = other.identity_keys["curve25519"]
    for key in other.one_time_keys["curve25519"].values():
        keys._olm.create_session(key, curve)
        await keys.flush()
    assert len([name for name in kept if "/session/" in name]) == 3
    assert len(keys._olm.session_store[curve]) == 3
    again = Keys(None, me, kept, keep)
    assert {each.id for each in again._olm.session_store[curve]} == {
        each.id for each in keys._olm.session_store[curve]
    }


# --- set up --------------------------------------------------------------------------------------


async def test_doctor_and_page_say_whose_the_token_is(place):
    config = settings(place.server, place.login)
    (found,) = await Matrix(config).examine()
    assert (found.id, found.values["who"]) == ("matrix.token", place.bot)
    assert (await Matrix(config).tried("token")).outcome == "known"
    assert (await Matrix(config).tried("proxy")).outcome == "untried"
    wrong = settings(place.server, place.login | {"access_token": "syt_wrong"})
    assert [each.id for each in await Matrix(wrong).examine()] == ["matrix.refused"]
    assert (await Matrix(wrong).tried("token")).outcome == "refused"
    away = config.model_copy(update={"homeserver": "http://127.0.0.1:9"})
    assert [each.id for each in await Matrix(away).examine()] == ["matrix.unreachable"]
    lacking = settings(place.server, place.login, accounts={"work": {}})
    assert [each.id for each in await Matrix(lacking).examine()] == [
        "matrix.incomplete",
        "matrix.token",
    ]


async def test_without_the_extra_the_command_that_installs_it_is_named(place, monkeypatch):
    def missing(name: str) -> object:
        return None if name == "vodozemac" else find_spec(name)

    monkeypatch.setattr(matrix_channel, "find_spec", missing)
    channel, engine = Matrix(settings(place.server, place.login)), WatchingEngine()
    await channel.start(engine)
    health, detail = engine.health["matrix", "default"]
    assert health is Health.DOWN
    assert "pip install 'confidant-bot[matrix]'" in detail
    assert (await channel.examine())[0].id == "matrix.not_installed"
    await channel.stop()
