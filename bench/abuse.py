"""Twelve kinds of abuse by one person, and what somebody else waits for meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp

from tests.fakes.page_people import Browser
from tests.fakes.push_service import PushBrowser
from tests.fakes.telegram import FakeTelegram
from tests.fakes.web_pages import Page
from tests.proofs import floods
from tests.proofs.floods import MALLORY, MORE_ROOMS, ROOM, Targets

ADA = 1
PASSWORD = "a-long-password-of-ada"  # noqa: S105 - of nobody
LONGEST = 20.0  # seconds of one wait


@dataclass
class Scene:
    """The program that runs, and everybody around it; Ada and Eve have the page as well."""

    telegram: FakeTelegram
    targets: Targets
    sites: str
    owner: Browser
    ada: Browser
    eve: Browser
    pushed: set[str]
    marks: Iterator[int] = field(default_factory=lambda: count(1))

    def mark(self) -> str:
        """Another word to know an answer by."""
        return f"q{next(self.marks)}"

    async def answered(self, chat: int, words: str, since: int) -> None:
        """Return once the bot has said something in a chat."""
        sent = self.telegram.sent
        await self.telegram.wait_for(
            lambda: any(each.chat_id == chat and words in each.text for each in sent[since:]),
            LONGEST,
        )


Part = Callable[[Scene], Awaitable[None]]


# --- what the other one waits for -----------------------------------------------------------------


async def an_answer(scene: Scene) -> None:
    """An answer in her own chat."""
    since, mark = len(scene.telegram.sent), scene.mark()
    scene.telegram.push_text(ADA, f"What is {mark}")
    await scene.answered(ADA, mark, since)


async def an_answer_in_the_room(scene: Scene) -> None:
    """An answer in the room where the abuse goes on."""
    since, mark = len(scene.telegram.sent), scene.mark()
    scene.telegram.say(ROOM, ADA, f"@confidant_bot what is {mark}")
    await scene.answered(ROOM, mark, since)


async def a_page(scene: Scene) -> None:
    """An answer for which a site is read."""
    since, mark = len(scene.telegram.sent), scene.mark()
    scene.telegram.push_text(ADA, f"{mark} open {scene.sites}/fast")
    await scene.answered(ADA, f"{mark}, and read", since)


async def a_file(scene: Scene) -> None:
    """An answer to a small file that has to be opened."""
    since, mark = len(scene.telegram.sent), scene.mark()
    body = f"<html><body><p>The harbour of {mark}.</p></body></html>".encode()
    send_file(scene, (0, ADA), f"small-{mark}", body, f"What is {mark}")
    await scene.answered(ADA, f"{mark}, and read", since)


async def a_login(scene: Scene) -> None:
    """Being let in with the right password."""
    status, _ = await scene.ada.post("/login", name="ada", password=PASSWORD)
    if status != 303:
        raise TimeoutError


async def her_conversations(scene: Scene) -> None:
    """The list of her conversations, searched."""
    status, _ = await scene.ada.get("/conversations?q=harbour")
    if status != 200:
        raise TimeoutError


async def the_owners_page(scene: Scene) -> None:
    """The owner's page, over a new connection."""
    status, _ = await scene.owner.get("/logins")
    if status != 200:
        raise TimeoutError


async def a_note(scene: Scene) -> None:
    """A note to her browser of an answer, when she has closed the page."""
    before = len(scene.pushed)
    async with chat(scene.ada) as page:
        await page.say(type="send", id=scene.mark(), text="Tell me later")
    while len(scene.pushed) <= before:  # noqa: ASYNC110 - filled by the push service
        await asyncio.sleep(0.02)


# --- the abuse ------------------------------------------------------------------------------------


async def messages(scene: Scene) -> None:
    """Long messages in her own chat, as fast as they are taken."""
    await floods.pastes(scene.targets)


async def commands(scene: Scene) -> None:
    """A hundred times /help in one group."""
    for _ in range(100):
        scene.telegram.say(ROOM, MALLORY, "/help@confidant_bot")
    await forever()


async def pages(scene: Scene) -> None:
    """Slow sites, asked for in twenty groups at once."""
    while True:
        for room in MORE_ROOMS:
            scene.telegram.say(room, MALLORY, f"@confidant_bot open {scene.sites}/slow")
        await asyncio.sleep(2)


async def documents(scene: Scene) -> None:
    """Large documents in twenty groups at once, each another one."""
    paragraph = (
        "<p>" + "all work and no play makes a dull day, and <b>more</b> of it " * 20 + "</p>"
    )
    large = f"<html><body>{paragraph * 2_000}</body></html>".encode()
    for number in count():
        for room in MORE_ROOMS:
            name = f"large-{number}{room}"
            body = large + name.encode()
            send_file(scene, (room, MALLORY), name, body, "@confidant_bot read this")
        await asyncio.sleep(4)


async def passwords(scene: Scene) -> None:
    """Wrong passwords for another's name, forty at a time."""
    form = {"name": "ada", "password": "not-the-password"}
    await keep_asking(scene, 40, lambda client: client.post("/login", data=form))


async def connections(scene: Scene) -> None:
    """765 connections from three addresses: some say nothing, some log in, some are half sent."""
    sockets: list[asyncio.StreamWriter] = []
    host = f"127.0.0.1:{scene.targets.page}"
    body = "token=wrong"
    login = (
        f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    asks = (b"", f"{login}{body}".encode(), login.encode())
    try:
        while True:
            for number in range(765):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", scene.targets.page, local_addr=(f"127.0.0.{2 + number % 3}", 0)
                )
                writer.write(asks[number // 3 % 3])
                sockets.append(writer)
            while len(sockets) > 1_530:
                sockets.pop(0).transport.abort()
            await asyncio.sleep(0.1)
    finally:
        for writer in sockets:
            writer.transport.abort()


async def history(scene: Scene) -> None:
    """A long conversation with much Markdown, opened again and again in twelve windows."""
    text = "**bold** _and_ `code` [a](https://example.org) ![ " * 300
    async with chat(scene.eve) as page:
        for number in range(40):
            await page.say(type="send", id=f"long{number}", text=f"repeat {number} {text}")
            await page.until("ack", id=f"long{number}")

    async def opener() -> None:
        while True:
            async with chat(scene.eve):
                pass

    await asyncio.gather(*(opener() for _ in range(10)))


async def words(scene: Scene) -> None:
    """As many words as the page takes, in messages of 60 kB."""
    async with chat(scene.eve) as page:
        for number in count():
            await page.say(type="send", id=f"words{number}", text=f"{number} " + "word " * 12_000)
            if number % 8 == 7:
                await page.until("ack", id=f"words{number}")


async def reminders(scene: Scene) -> None:
    """A hundred reminders in one group, all at the same moment."""
    for _ in range(100):
        scene.telegram.say(ROOM, MALLORY, "/remind@confidant_bot in 5 seconds to breathe")
    await forever()


async def pairing(scene: Scene) -> None:
    """People nobody knows, each of whom asks to be let in."""
    await floods.strangers(scene.targets)


async def searches(scene: Scene) -> None:
    """Searches with many words, in the chat and on the page."""
    asked = "+".join(f"word{number}" for number in range(300))
    await asyncio.gather(
        floods.searches(scene.targets),
        keep_asking(scene, 12, lambda client: client.get(f"/conversations?q={asked}")),
    )


async def push(scene: Scene) -> None:
    """Notes to ten browsers whose service never answers."""
    for number in range(10):
        await subscribe(scene.eve, PushBrowser(f"{scene.sites}/slow-push/{number}"))
    for number in count():
        async with chat(scene.eve) as page:
            for part in range(20):
                await page.say(type="send", id=f"note{number}x{part}", text="Tell me later")
        await asyncio.sleep(1)


KINDS: dict[str, tuple[Part, Part]] = {
    each.__name__: (each, other)
    for each, other in (
        (messages, an_answer),
        (commands, an_answer_in_the_room),
        (pages, a_page),
        (documents, a_file),
        (passwords, a_login),
        (connections, the_owners_page),
        (history, an_answer),
        (words, an_answer),
        (reminders, an_answer_in_the_room),
        (pairing, an_answer),
        (searches, her_conversations),
        (push, a_note),
    )
}


# --- with what it is done -------------------------------------------------------------------------


async def forever() -> None:
    """Do nothing more until the abuse is over."""
    await asyncio.Event().wait()


def send_file(scene: Scene, where: tuple[int, int], name: str, body: bytes, caption: str) -> None:
    """Send an HTML document with words below it, in a room (or 0) as somebody."""
    room, sender = where
    scene.telegram.downloads[name] = body
    document: dict[str, Any] = {"file_id": name, "file_unique_id": name, "file_size": len(body)}
    document |= {"file_name": f"{name}.html", "mime_type": "text/html"}
    more: dict[str, Any] = {"caption": caption, "document": document}
    if room:
        mention = {"type": "mention", "offset": 0, "length": len("@confidant_bot")}
        scene.telegram.say(room, sender, None, caption_entities=[mention], **more)
    else:
        scene.telegram.push_text(sender, None, **more)


async def keep_asking(
    scene: Scene,
    at_once: int,
    ask: Callable[[aiohttp.ClientSession], AbstractAsyncContextManager[aiohttp.ClientResponse]],
) -> None:
    """Ask the page the same again and again, as Eve."""

    async def asker() -> None:
        while True:
            with suppress(aiohttp.ClientError):
                async with ask(scene.eve.client) as answer:
                    await answer.read()
            await asyncio.sleep(0)

    await asyncio.gather(*(asker() for _ in range(at_once)))


@asynccontextmanager
async def chat(browser: Browser) -> AsyncGenerator[Page]:
    """The chat page of somebody."""
    async with browser.client.ws_connect("/chat/ws", max_msg_size=0) as ws:
        page = Page(ws)
        await page.say(type="hello", version=1, locale="en")
        await page.until("history")
        yield page


async def subscribe(browser: Browser, device: PushBrowser) -> None:
    """Have a browser told of messages."""
    async with browser.client.post("/api/push", json=device.subscription()) as answer:
        answer.raise_for_status()
