"""The channels of the contract suite, each with a person at the other end.

What a channel or its platform cannot do is said in its case, in words, where the others have how
it is done: a test that needs it has nothing to prove then.
"""

from __future__ import annotations

import inspect
import io
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from html import unescape
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import aiohttp
from markdown_it import MarkdownIt
from prometheus_client import CollectorRegistry

from adapters.console import Console
from adapters.web.channel import Web
from bot.channel import Address, Channel, ChatType, Inbound, Outbound
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer, Readiness
from bot.errors import SendLater, SendUnreachable
from bot.testing import InMemoryChannel, RecordingEngine
from tests import fakes
from tests.fakes import discord_channel, nextcloud, written_channel
from tests.fakes.browsers import BrowsersInMemory
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_parts import Shown
from tests.fakes.people import Keyboard, Tab
from tests.fakes.ports import free_port
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_channel import running, settings
from tests.support import NOON, post, until


@dataclass(frozen=True)
class Buttons:
    """What a person does with the buttons below a message."""

    choices: Callable[[], Awaitable[list[str]]]  # labels below the newest message
    # They press the button with this label below what was sent with this result. What the
    # platform brings for one press, it may bring again: `again` does that with the newest one.
    press: Callable[[Outbound, str, str], Awaitable[None]]
    again: Callable[[], Awaitable[None]]


@dataclass(kw_only=True)
class Case:
    """A started channel, a person who writes to it, and what that person was shown.

    A text in place of a function says why there is nothing of the kind.
    """

    channel: Channel
    engine: RecordingEngine
    address: Address
    write: Callable[[str], Awaitable[None]]
    shown: Callable[[int], Awaitable[list[str]]]  # once they are so many
    files: Callable[[], Awaitable[list[str]]] | str  # names of the pictures and files shown so far
    restart: Callable[[], Awaitable[None]]  # as if the process had been
    copy: Callable[[], Awaitable[None]] | str  # the platform brings the newest message again
    # They answer a message that a file of these bytes came with: "what is this?"
    answer: Callable[[bytes], Awaitable[None]] | str
    buttons: Buttons | str
    typed: Callable[[], Awaitable[None]] | str  # returns once it shows that a reply is written
    grown: Callable[[str], Awaitable[None]] | str  # returns once an unfinished reply shows so far
    vanish: Callable[[], None] | str  # somebody deletes what shows of an unfinished reply
    forbid: Callable[[], object] | str  # the bot may not write here any more
    limit: Callable[[], float] | str  # it has written too much: how many seconds it is to wait
    seen: Callable[[str], str] = lambda text: text  # what a person sees of a text that is shown
    chat_type: ChatType = "direct"


def by_name(*functions: Callable[..., Any]) -> dict[str, Any]:
    return {each.__name__: each for each in functions}


def rendered(markdown: str) -> str:
    """What is seen of a text where the platform's own apps render Markdown."""
    return page(MarkdownIt("commonmark", {"html": False}).render(markdown))


def page(html: str) -> str:
    """The words of a page."""
    return unescape(re.sub(r"<[^>]+>", "", html))


@asynccontextmanager
async def in_memory(tmp_path) -> AsyncIterator[Case]:
    engine, address = RecordingEngine(), Address("memory", "default", "ada")
    said: list[Inbound] = []
    pressed: list[tuple[Outbound, str]] = []

    def channel() -> InMemoryChannel:
        assert isinstance(case.channel, InMemoryChannel)
        return case.channel

    async def write(text: str) -> None:
        number = str(engine.attempts + 1)
        said.append(Inbound("memory", "default", "ada", "direct", "ada", number, text, NOON))
        await copy()

    async def copy() -> None:
        await channel().push(said[-1])

    async def shown(count: int) -> list[str]:
        return [piece.text for piece in await channel().wait_sent(count)]

    async def files() -> list[str]:
        return [file.name for piece in channel().sent for file in piece.attachments]

    async def choices() -> list[str]:
        return [button.label for button in channel().sent[-1].buttons]

    async def press(outbound: Outbound, sent: str, label: str) -> None:
        pressed.append((outbound, label))
        await again()

    async def again() -> None:
        await channel().press(*pressed[-1])

    async def restart() -> None:
        await case.channel.stop()
        case.channel = InMemoryChannel()
        await case.channel.start(engine)

    async def typed() -> None:
        assert channel().typed == [address]

    async def grown(text: str) -> None:
        assert channel().drafts[-1] == text

    def limit() -> float:
        channel().errors.append(SendLater(0.1))
        return 0.1

    does = by_name(write, shown, files, restart, copy, typed, grown, limit)
    case = Case(
        channel=InMemoryChannel(),
        engine=engine,
        address=address,
        answer="the test would bring it itself",
        buttons=Buttons(choices, press, again),
        vanish="a draft is no message",
        forbid=lambda: channel().errors.append(SendUnreachable("blocked")),
        **does,
    )
    await case.channel.start(engine)
    yield case
    await case.channel.stop()


@asynccontextmanager
async def telegram(tmp_path) -> AsyncIterator[Case]:
    async with _telegram(0) as case:
        yield case


@asynccontextmanager
async def telegram_group(tmp_path) -> AsyncIterator[Case]:
    async with _telegram(-1001) as case:
        yield case


@asynccontextmanager
async def _telegram(room: int) -> AsyncIterator[Case]:
    """A direct chat, or a topic of a forum."""
    engine, stack = RecordingEngine(), AsyncExitStack()
    presses: list[tuple[int, str, str]] = []
    said: list[dict[str, Any]] = []
    async with FakeTelegram() as fake, stack:
        topic: dict[str, Any] = {"message_thread_id": 8, "is_topic_message": True} if room else {}
        chat = room or 7
        if room:
            fake.room(room, is_forum=True)
            fake.topic(room, 8)

        async def write(text: str) -> None:
            made = fake.room_message(room, 7, text, **topic) if room else fake.message(7, text)
            said.append(made)
            await copy()

        async def copy() -> None:
            fake.push({"message": said[-1]})

        async def answer(data: bytes) -> None:
            fake.downloads["f1"] = data
            file = {"file_id": "f1", "file_name": "a.txt", "mime_type": "text/plain"}
            sender = {"id": 8, "is_bot": False, "first_name": "Bob"}
            before = {"message_id": 4, "date": 1, "from": sender, "document": file} | topic
            made = (
                fake.room_message(room, 7, "what is this?", reply_to_message=before, **topic)
                if room
                else fake.message(7, "what is this?", reply_to_message=before)
            )
            fake.push({"message": made})

        async def shown(count: int) -> list[str]:
            return [sent.text for sent in await fake.wait_sent(count)]

        async def files() -> list[str]:
            return [sent.file for sent in fake.sent if sent.file]

        async def choices() -> list[str]:
            return [label for row in fake.sent[-1].buttons for label, _ in row]

        async def press(outbound: Outbound, sent: str, label: str) -> None:
            command = next(b.command for b in outbound.buttons if b.label == label)
            presses.append((int(sent), command, tap(int(sent), command)))

        async def again() -> None:
            message, command, query = presses[-1]
            tap(message, command, id=query)

        def tap(message: int, command: str, **extra: Any) -> str:
            if room:
                below = fake.reply_to(room, message) | topic
                extra = {"message": below} | extra
            return fake.press(7, message, command, room=room, **extra)

        async def restart() -> None:
            await stack.aclose()
            case.channel = await stack.enter_async_context(running(engine, settings(fake)))

        async def typed() -> None:
            await fake.wait_called("sendChatAction")

        async def grown(text: str) -> None:
            await fake.wait_for(
                lambda: (
                    any(sent.text.startswith(text) for sent in fake.sent)
                    if room
                    else any(draft["text"] == text for draft in fake.drafts)
                )
            )

        def vanish() -> None:
            newest = {"chat_id": chat, "message_id": fake.sent[-1].message_id}
            fake._delete_message(fake.bots[fake.token], newest)

        def limit() -> float:
            fake.flood(1)
            return 1.0

        channel = await stack.enter_async_context(running(engine, settings(fake)))
        await write("first")
        await engine.wait_until(lambda e: len(e.received) == 1)
        engine.received.clear()
        address = Address("telegram", "default", str(chat), "8" if room else "")
        does = by_name(write, shown, files, restart, copy, answer, typed, grown, limit)
        case = Case(
            channel=channel,
            engine=engine,
            address=address,
            buttons=Buttons(choices, press, again),
            vanish=vanish if room else "Telegram has a place of its own for drafts",
            forbid=lambda: fake.blocked.add(chat),
            chat_type="group" if room else "direct",
            **does,
        )
        yield case


@asynccontextmanager
async def discord(tmp_path) -> AsyncIterator[Case]:
    engine, stack = RecordingEngine(), AsyncExitStack()
    presses: list[Shown] = []
    said: list[dict[str, Any]] = []
    async with FakeDiscord() as fake, stack:
        address = Address("discord", "default", fake.dm("7"))

        async def start() -> Channel:
            config = discord_channel.settings(fake)
            channel = await stack.enter_async_context(discord_channel.running(engine, config))
            await fake.wait_online()
            return channel

        async def write(text: str) -> None:
            said.append(await fake.say("7", text))

        async def copy() -> None:
            await fake.dispatch("MESSAGE_CREATE", said[-1])

        async def answer(data: bytes) -> None:
            fake.files["a.txt"] = (200, data)
            file = {"id": "5", "filename": "a.txt", "size": len(data)}
            file |= {"content_type": "text/plain", "url": f"{fake.url}/cdn/a.txt"}
            before = {"id": "41", "author": {"id": "8", "username": "bob"}, "attachments": [file]}
            await fake.say(
                "7",
                "what is this?",
                message_reference={"message_id": "41"},
                referenced_message=before,
            )

        async def shown(count: int) -> list[str]:
            return [sent["content"] for sent in await fake.wait_sent(count)]

        async def files() -> list[str]:
            return [file["filename"] for sent in fake.sent for file in sent["attachments"]]

        async def choices() -> list[str]:
            rows = fake.sent[-1]["components"]
            return [button["label"] for row in rows for button in row["components"]]

        async def press(outbound: Outbound, sent: str, label: str) -> None:
            command = next(b.command for b in outbound.buttons if b.label == label)
            below = next(message for message in fake.sent if message["id"] == sent)
            presses.append(await fake.press("7", below, command))

        async def again() -> None:
            await fake.repeat(presses[-1])

        async def restart() -> None:
            await stack.aclose()
            case.channel = await start()

        async def typed() -> None:
            await fake.wait_for(lambda: address.chat in fake.typed)

        async def grown(text: str) -> None:
            await fake.wait_for(lambda: any(text in sent["content"] for sent in fake.sent))

        def forbid() -> None:
            fake.forbidden[address.chat] = 50007

        def limit() -> float:
            fake.fail(f"POST /channels/{address.chat}/messages", status=429, retry_after=0.2)
            return 0.2

        does = by_name(write, shown, files, restart, copy, answer, typed, grown, forbid, limit)
        case = Case(
            channel=await start(),
            engine=engine,
            address=address,
            seen=rendered,
            buttons=Buttons(choices, press, again),
            vanish=lambda: fake.messages[address.chat].remove(fake.sent[-1]),
            **does,
        )
        yield case


@asynccontextmanager
async def nextcloud_talk(tmp_path) -> AsyncIterator[Case]:
    engine, stack = RecordingEngine(), AsyncExitStack()
    said: list[dict[str, Any]] = []
    async with nextcloud.FakeNextcloud() as fake, stack:
        config = nextcloud.settings(fake, free_port(), **nextcloud.WITH_API_USER)

        async def start() -> Channel:
            engine.health.clear()
            return await stack.enter_async_context(nextcloud.running(engine, config))

        async def write(text: str) -> None:
            number = max(fake.messages) + 1
            fake.messages.add(number)
            said.append(nextcloud.payload(text, id=number))
            await copy()

        async def copy() -> None:
            assert await fake.bring(said[-1]) == [200]

        async def answer(data: bytes) -> None:
            fake.files["9001"] = ("Talk/a.txt", data)
            file = {"type": "file", "id": "9001", "name": "a.txt", "mimetype": "text/plain"}
            before = nextcloud.payload("{file}", id=1500, parameters={"file": file})
            reply = {"actor": before["actor"], "object": before["object"]}
            assert await fake.bring(nextcloud.payload("what is this?", id=1600, reply=reply)) == [
                200
            ]

        async def shown(count: int) -> list[str]:
            return [posted.text for posted in await fake.wait_posted(count)]

        async def files() -> list[str]:
            return [posted.file for posted in fake.posted if posted.file]

        async def restart() -> None:
            await stack.aclose()
            case.channel = await start()

        def limit() -> float:
            fake.fail_next("/message", nextcloud.Fault(429, {"Retry-After": "1"}))
            return 1.0

        does = by_name(write, shown, files, restart, copy, answer, limit)
        case = Case(
            channel=await start(),
            engine=engine,
            address=Address("nextcloud_talk", "default", "n3xtc10ud"),
            seen=rendered,
            buttons="Talk's bots have none",
            typed="Talk's bots cannot",
            grown="Talk's bots cannot edit what they said",
            vanish="there are no drafts",
            forbid=fake.bots[0].rooms.clear,
            **does,
        )
        yield case


@asynccontextmanager
async def web(tmp_path) -> AsyncIterator[Case]:
    async def ready() -> Readiness:
        return Readiness()

    engine, tab = RecordingEngine(), Tab()
    pressed, said = dict[str, str](), dict[str, str]()
    servers: list[DashboardServer] = []

    async def start() -> Web:
        channel = Web()
        server = DashboardServer(
            DashboardConfig(port=0),
            readiness=ready,
            registry=CollectorRegistry(),
            browsers=BrowsersInMemory(),
            channels=[channel],
        )
        await channel.start(engine)
        url = (await server.start()).url
        await tab.open(client, url)
        servers.append(server)
        return channel

    async def stop() -> None:
        await case.channel.stop()
        await tab.close()
        await servers.pop().stop()

    async def write(text: str) -> None:
        said.update(id=text.replace(" ", "-"), text=text)
        await copy()

    async def copy() -> None:
        await tab.send(type="send", locale="en", **said)

    async def shown(count: int) -> list[str]:
        await tab.until(lambda: len(tab.said()) >= count)
        return [frame["text"] for frame in tab.said()]

    async def files() -> list[str]:
        return [file["name"] for frame in tab.said() for file in frame.get("attachments", ())]

    async def choices() -> list[str]:
        return [button["label"] for button in tab.said()[-1].get("buttons", ())]

    async def press(outbound: Outbound, sent: str, label: str) -> None:
        command = next(b.command for b in outbound.buttons if b.label == label)
        pressed.update(id=f"press-{sent}", text=command)
        await again()

    async def again() -> None:
        await tab.send(type="send", locale="en", **pressed)

    async def restart() -> None:
        await stop()
        case.channel = await start()

    async def typed() -> None:
        await tab.until(lambda: any(frame["type"] == "typing" for frame in tab.frames))

    async def grown(text: str) -> None:
        await tab.until(lambda: any(f["type"] == "draft" and text in f["html"] for f in tab.frames))

    async with aiohttp.ClientSession() as client:
        does = by_name(write, shown, files, restart, copy, typed, grown)
        case = Case(
            channel=await start(),
            engine=engine,
            address=Address("web", "default", "owner"),
            seen=lambda _: page(tab.said()[-1]["html"]),
            answer="what is shown on the page is answered by what is written below it",
            buttons=Buttons(choices, press, again),
            vanish="a draft is no message",
            forbid="whoever opens the page may read it",
            limit="the page takes any number",
            **does,
        )
        yield case
        await stop()


@asynccontextmanager
async def console(tmp_path) -> AsyncIterator[Case]:
    screen, engine = io.StringIO(), RecordingEngine()
    address = Address("console", "default", "owner")
    keyboards: list[Keyboard] = []

    async def start() -> Console:
        keyboards.append(Keyboard())
        channel = Console(keyboards[-1], screen)
        await channel.start(engine)
        return channel

    async def write(text: str) -> None:
        keyboards[-1].type(f"{text}\n")
        await engine.wait_until(lambda e: bool(e.received) and e.received[-1].text == text)
        # Through a pipe one line waits for the reply to the one before.
        await post(case.channel, Outbound(f"re-{text}", address, f"re: {text}"))

    async def shown(count: int) -> list[str]:
        lines = screen.getvalue().splitlines()
        return [line for line in lines if line and not line.startswith(("re: ", "📎"))]

    async def files() -> list[str]:
        lines = screen.getvalue().splitlines()
        return [line.split()[1] for line in lines if line.startswith("📎")]

    async def restart() -> None:
        await case.channel.stop()
        keyboards[-1].type("")
        case.channel = await start()

    does = by_name(write, shown, files, restart)
    case = Case(
        channel=await start(),
        engine=engine,
        address=address,
        copy="nobody brings a line twice",
        answer="a line answers the one before",
        buttons="a pipe has nothing to press: they are shown as commands to type",
        typed="a pipe has no place for it: the channel hears that the engine is alive",
        grown="a pipe takes whole replies only",
        vanish="there are no drafts",
        forbid="whoever sits there may read",
        limit="a pipe takes any number",
        **does,
    )
    yield case
    await restart()
    await case.channel.stop()
    keyboards[-1].type("")


@asynccontextmanager
async def from_the_document(tmp_path) -> AsyncIterator[Case]:
    """The example of docs/writing-a-channel.md."""
    plugin, engine = written_channel.plugin(tmp_path), RecordingEngine()
    ada = tmp_path / "mail" / "ada"
    (ada / "in").mkdir(parents=True)
    newest = tmp_path / "newest"

    async def start() -> Channel:
        channel = plugin.create(plugin.config.model_validate({"path": str(tmp_path / "mail")}))
        engine.health.clear()
        await channel.start(engine)
        await until(lambda: bool(engine.health))
        return channel

    async def write(text: str) -> None:
        newest.write_text(text)
        await copy()

    async def copy() -> None:
        put = shutil.copy2(newest, tmp_path / "put")  # with its time
        put.rename(ada / "in" / f"{newest.read_text()}.txt")

    async def shown(count: int) -> list[str]:
        await until(lambda: len(list((ada / "out").glob("*.md"))) >= count)
        written = sorted((ada / "out").glob("*.md"), key=lambda path: path.stat().st_mtime_ns)
        return [path.read_text() for path in written]

    async def files() -> list[str]:
        found = sorted(path.name for path in (ada / "out").iterdir() if path.suffix != ".md")
        return [name.split("-", 3)[3] for name in found]

    async def restart() -> None:
        await case.channel.stop()
        case.channel = await start()

    does = by_name(write, shown, files, restart, copy)
    case = Case(
        channel=await start(),
        engine=engine,
        address=Address("mailbox", "default", "ada"),
        answer="a file answers none",
        buttons="a file has none",
        typed="a file has no place for it",
        grown="files appear whole",
        vanish="there are no drafts",
        forbid="a folder that cannot be written may be so later",
        limit="a folder takes any number",
        **does,
    )
    yield case
    await case.channel.stop()


def cases() -> list[Callable[..., Any]]:
    """Every case: those here, and those beside their server in `tests/fakes/<name>_channel.py`."""
    beside = (each.name for each in iter_modules(fakes.__path__) if each.name.endswith("_channel"))
    modules = [import_module(f"tests.fakes.{name}") for name in beside]
    return [
        function
        for module in (sys.modules[__name__], *modules)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        if function.__annotations__.get("return") == "AsyncIterator[Case]"
    ]
