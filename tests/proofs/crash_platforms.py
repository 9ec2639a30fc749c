"""The fake servers as the crash proof uses them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path

import apsw

from adapters.discord.api import sent_at
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_parts import BOT_ID, TEXT_CHANNEL, bot_user
from tests.fakes.nextcloud import API_PASSWORD, API_USER, SECRET, FakeBot, FakeNextcloud
from tests.fakes.ports import free_port
from tests.fakes.slack import APP_TOKEN, BOT, BOT_TOKEN, FakeSlack, words
from tests.fakes.synapse import Person, Synapse
from tests.fakes.telegram import FakeTelegram
from tests.proofs.crash import ANSWERED, Program, Said

FIRST_SYNC = "/sync?timeout=0&full_state=true"  # of a program, once it knows its keys
ARRIVING = 0.01  # seconds for what a dead program's sockets still hold


class OverTelegram:
    """Four people's direct chats; an update is offered again until it was acknowledged."""

    chats = ("1", "2", "3", "4")
    rooms = frozenset[str]()

    def __init__(self, fake: FakeTelegram) -> None:
        self.fake = fake

    def settings(self) -> Mapping[str, str]:
        section = "CONFIDANT_CHANNELS__TELEGRAM__"
        return {
            f"{section}API_ROOT": self.fake.url,
            f"{section}TOKEN": self.fake.token,
            f"{section}DM_POLICY": "open",
            f"{section}ALLOW_FROM": "*",
        }

    async def up(self) -> None:
        """It takes what is written at any time."""

    async def say(self, chat: str, name: str, text: str, *, to_bot: bool = True) -> None:
        self.fake.push_text(int(chat), text)

    async def gone(self) -> None:
        await asyncio.sleep(0)

    def held(self, asked: Collection[str]) -> set[str]:
        return {*asked}

    def said(self) -> list[Said]:
        return [Said(str(sent.chat_id), sent.text, sent.at) for sent in self.fake.sent]

    async def wait_for(self, ready: Callable[[], bool], within: float) -> None:
        await self.fake.wait_for(ready, within)


class OverDiscord:
    """Two direct chats, a channel, a thread and a forum's post; a nonce makes one message once.

    What is written while nobody is connected is not sent again: it has to be looked for.
    """

    rooms = frozenset({TEXT_CHANNEL, "601", "602"})

    def __init__(self, fake: FakeDiscord) -> None:
        self.fake = fake
        self._people = itertools.cycle(("7", "9"))
        self._direct = {fake.dm(person): person for person in ("7", "9")}
        self.chats = (*self._direct, *sorted(self.rooms))

    def settings(self) -> Mapping[str, str]:
        section = "CONFIDANT_CHANNELS__DISCORD__"
        return {
            f"{section}API_ROOT": self.fake.api_root,
            f"{section}GATEWAY_URL": self.fake.gateway_url,
            f"{section}TOKEN": self.fake.token,
            f"{section}DM_POLICY": "open",
            f"{section}ALLOW_FROM": "*",
            f"{section}GROUP_POLICY": "open",
        }

    async def up(self) -> None:
        await self.fake.wait_online()

    async def say(self, chat: str, name: str, text: str, *, to_bot: bool = True) -> None:
        if chat in self._direct:
            await self.fake.say(self._direct[chat], text)
        elif to_bot:
            words = f"<@{BOT_ID}> {text}"
            await self.fake.say(next(self._people), words, chat, mentions=[bot_user()])
        else:
            await self.fake.say(next(self._people), text, chat)

    async def gone(self) -> None:
        await asyncio.sleep(ARRIVING)
        sessions = self.fake.sessions.values()
        await self.fake.wait_for(lambda: not any(session.socket for session in sessions))

    def held(self, asked: Collection[str]) -> set[str]:
        return {*asked}

    def said(self) -> list[Said]:
        return [
            Said(sent["channel_id"], sent["content"], sent_at(sent["id"]) / 1000)
            for sent in self.fake.sent
        ]

    async def wait_for(self, ready: Callable[[], bool], within: float) -> None:
        await self.fake.wait_for(ready, within)


class OverSlack:
    """Two direct chats, a channel and a thread; what was not acknowledged comes again, as copies.

    What is written while nobody is connected has to be looked for.
    """

    rooms = frozenset({"C5", "C6 1610241741.000200"})

    def __init__(self, fake: FakeSlack) -> None:
        self.fake = fake
        self._direct = {fake.dm(person): person for person in ("U7", "U8")}
        self._people = itertools.cycle(self._direct.values())
        fake.person("U8", "bob")
        fake.chat("C6", "random", is_channel=True)
        root = {"ts": "1610241741.000200", "user": "U8", "text": "begin", "channel": "C6"}
        fake.messages["C6"].append(root)
        self.chats = (*self._direct, *sorted(self.rooms))

    def settings(self) -> Mapping[str, str]:
        section = "CONFIDANT_CHANNELS__SLACK__"
        return {
            f"{section}API_ROOT": self.fake.api_root,
            f"{section}BOT_TOKEN": BOT_TOKEN,
            f"{section}APP_TOKEN": APP_TOKEN,
            f"{section}DM_POLICY": "open",
            f"{section}ALLOW_FROM": "*",
            f"{section}GROUP_POLICY": "open",
        }

    async def up(self) -> None:
        await self.fake.wait_for(lambda: self.fake.is_connected)
        await self.fake.again()

    async def say(self, chat: str, name: str, text: str, *, to_bot: bool = True) -> None:
        place, _, thread = chat.partition(" ")
        person = self._direct.get(chat) or next(self._people)
        words = f"<@{BOT}> {text}" if chat in self.rooms and to_bot else text
        await self.fake.say(person, words, place, **({"thread_ts": thread} if thread else {}))

    async def gone(self) -> None:
        await asyncio.sleep(ARRIVING)
        await self.fake.wait_for(lambda: not self.fake.is_connected)

    def held(self, asked: Collection[str]) -> set[str]:
        return {*asked}

    def said(self) -> list[Said]:
        return [
            Said(f"{made['channel']} {made.get('thread_ts', '')}".strip(), words(made), made["at"])
            for made in self.fake.sent
            if made.get("blocks")
        ]

    async def wait_for(self, ready: Callable[[], bool], within: float) -> None:
        await self.fake.wait_for(ready, within)


class OverNextcloud:
    """Two direct chats and two rooms; a call that met a dead program is never repeated.

    What it brought has to be looked for, in the rooms' own records.
    """

    direct = ("direct1", "direct2")
    rooms = frozenset({"room1", "room2"})
    chats = (*direct, *sorted(rooms))

    def __init__(self, fake: FakeNextcloud, folder: Path) -> None:
        self.fake = fake
        self.statuses: dict[str, int] = {}  # what each message's call was answered with, or 0
        self._folder = folder
        self._numbers: dict[str, str] = {}  # ids of messages, by name
        self._calls: set[asyncio.Task[None]] = set()
        self._port = free_port()
        self._read = 0  # records, when the last program died
        self._patient = itertools.cycle((False, True))
        fake.kinds = dict.fromkeys(self.direct, 1) | dict.fromkeys(self.rooms, 2)
        url = f"http://127.0.0.1:{self._port}/nextcloud-talk"
        fake.bots = [FakeBot(SECRET, url, rooms={*self.chats})]

    def settings(self) -> Mapping[str, str]:
        section = "CONFIDANT_CHANNELS__NEXTCLOUD_TALK__"
        return {
            f"{section}BASE_URL": self.fake.url,
            f"{section}BOT_SECRET": SECRET,
            f"{section}API_USER": API_USER,
            f"{section}API_PASSWORD": API_PASSWORD,
            f"{section}WEBHOOK_PORT": str(self._port),
            f"{section}DM_POLICY": "open",
            f"{section}ALLOW_FROM": "*",
            f"{section}GROUP_POLICY": "open",
        }

    async def up(self) -> None:
        """Return once it listens, or every second time once it has read every room as well."""
        everything = self._read + (len(self.chats) if next(self._patient) else 0)
        async with asyncio.timeout(60):
            while self.fake.read < everything or not await self._listens():  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.005)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except ConnectionError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    async def say(self, chat: str, name: str, text: str, *, to_bot: bool = True) -> None:
        person = f"users/person{1 + self.direct.index(chat) if chat in self.direct else 3}"
        words = f"@Confidant {text}" if chat in self.rooms and to_bot else text
        number = max(self.fake.messages) + 1
        self.fake.write(words, room=chat, id=number, sender=person)
        if to_bot:
            self._numbers[name] = str(number)
        task = asyncio.create_task(self._call(name, words, room=chat, id=number, sender=person))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        await asyncio.sleep(0)

    async def _call(self, name: str, words: str, **changes: object) -> None:
        (status,) = await self.fake.say(words, **changes)
        if name in self._numbers:
            self.statuses[name] = status

    async def gone(self) -> None:
        await asyncio.gather(*self._calls)
        await asyncio.sleep(ARRIVING)
        self._read = self.fake.read

    def held(self, asked: Collection[str]) -> set[str]:
        """All of them; those whose call was answered are stored already."""
        assert self.statuses.keys() == {*asked}
        assert {*self.statuses.values()} <= {200, 0}
        stored = self._stored()
        taken = {self._numbers[name] for name, status in self.statuses.items() if status == 200}
        assert taken <= stored, "a call was answered with 200 before its message was stored"
        return {*asked}

    def _stored(self) -> set[str]:
        with closing(apsw.Connection(str(self._folder / "confidant.db"))) as database:
            return {row[0] for row in database.execute("SELECT message_id FROM inbox").fetchall()}

    def said(self) -> list[Said]:
        return [Said(posted.room, posted.text, posted.at) for posted in self.fake.posted]

    async def wait_for(self, ready: Callable[[], bool], within: float) -> None:
        await asyncio.wait_for(self.fake.wait_for(ready), within)


class OverMatrix:
    """Two direct chats and two rooms, one of each encrypted, on a homeserver that is killed too."""

    def __init__(self, server: Synapse, login: Mapping[str, str]) -> None:
        self._server, self._login = server, login
        self._readers: dict[str, Person] = {}  # who shows each chat
        self._before = 0  # programs that had connected
        self._deaths = itertools.count(1)
        self.chats: tuple[str, ...] = ()
        self.rooms = frozenset[str]()

    async def furnish(self, ada: Person, bob: Person) -> None:
        """Begin the chats."""
        bot = self._login["user_id"]
        direct = [
            (who, await who.room(bot, encrypted=who is ada, direct=True)) for who in (ada, bob)
        ]
        rooms = [(ada, await ada.room(bot, bob.id, encrypted=each)) for each in (True, False)]
        self._readers = {room: who for who, room in (*direct, *rooms)}
        self.chats = tuple(self._readers)
        self.rooms = frozenset(room for _, room in rooms)

    def settings(self) -> Mapping[str, str]:
        section = "CONFIDANT_CHANNELS__MATRIX__"
        return {
            f"{section}HOMESERVER": self._server.url,
            f"{section}TOKEN": self._login["access_token"],
            f"{section}DM_POLICY": "open",
            f"{section}ALLOW_FROM": "*",
            f"{section}GROUP_POLICY": "open",
        }

    async def up(self) -> None:
        async with asyncio.timeout(60):
            while self._server.answered(FIRST_SYNC) == self._before:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)
        for room, who in self._readers.items():
            await who.joined(room, self._login["user_id"])

    async def say(self, chat: str, name: str, text: str, *, to_bot: bool = True) -> None:
        named = [self._login["user_id"]] if to_bot else []
        await self._readers[chat].say(chat, text, **{"m.mentions": {"user_ids": named}})

    async def gone(self) -> None:
        if next(self._deaths) % 5 == 0:
            self._server.kill()
            await asyncio.to_thread(self._server.start)
        self._before = self._server.answered(FIRST_SYNC)

    def held(self, asked: Collection[str]) -> set[str]:
        return {*asked}

    def said(self) -> list[Said]:
        bot = self._login["user_id"]
        found = (
            Said(each["room_id"], each["content"]["body"], each["at"])
            for chat, who in self._readers.items()
            for each in who.seen
            if (each["room_id"], each["sender"], each["type"]) == (chat, bot, "m.room.message")
        )
        return sorted(found, key=lambda said: said.at)

    async def wait_for(self, ready: Callable[[], bool], within: float) -> None:
        async with asyncio.timeout(within):
            while not ready():  # noqa: ASYNC110  # two people see it
                await asyncio.sleep(0.01)


@asynccontextmanager
async def telegram(folder: Path, **settings: str) -> AsyncGenerator[tuple[FakeTelegram, Program]]:
    """A fake Telegram, and the program that talks there."""
    async with FakeTelegram(record_calls=False) as fake:
        every = {**OverTelegram(fake).settings(), **settings}
        async with Program.launched(folder, every) as program:
            yield fake, program


async def stopped(fake: FakeTelegram, chat: int, program: Program) -> None:
    """Let a program end in peace: it listens to signals once it answers."""
    fake.push_text(chat, "hello")
    await fake.wait_for(lambda: "You said: hello" in fake.texts(chat), ANSWERED)
    await program.stop()
