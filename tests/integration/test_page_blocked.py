"""Who may not talk to the bot any more is out of the page at once, and does not come back."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot import admitting
from bot.channel import Inbound
from bot.identity import MessageOrigin, Seat
from bot.sessions import page_logins, pairing
from bot.sessions.page_logins import LoginLink
from bot.storage import Database, Transaction
from bot.storage.sqlite import SqliteDatabase
from tests.fakes.page_people import LINK, Browser, browsers, cut, key_in, serving
from tests.support import NOON, Engine

CLOSED: dict[str, Any] = {"memory": {"dm_policy": "pairing", "allow_from": []}}
CODE = re.compile(r"\*\*([A-Z2-9]{8})\*\*")
PASSWORD = "correct horse battery"
EVE = {"channel": "memory", "sender": "eve"}


@dataclass
class World:
    engine: Engine
    owner: Browser

    async def does(self, what: str, **fields: str) -> None:
        status, where = await self.owner.post(f"/people/{what}", **(fields or EVE))
        assert (status, where.startswith("/people?told=")) == (303, True)

    async def let_in(self, sender: str = "eve") -> None:
        """Somebody asks, is let in, and told so."""
        found = CODE.search(await self.engine.ask("let me in", sender=sender))
        assert found is not None
        await self.does("approve", channel="memory", code=found[1])
        await self.told(sender, "You're in.")

    async def told(self, sender: str, words: str) -> None:
        await self.engine.channel.wait_until(lambda _: words in self.engine.sent_to(sender)[-1])

    async def link(self, sender: str = "eve") -> str:
        return key_in(await self.engine.ask("/web", sender=sender))

    async def enters(self, browser: Browser, sender: str = "eve") -> str:
        """Come in by a link from the chat; the name that they have in the page."""
        assert await browser.post("/enter", key=await self.link(sender)) == (303, "/")
        return await browser.who()


async def by_block(world: World) -> None:
    await world.does("block")


async def by_revoking(world: World) -> None:
    await world.does("revoke")


async def by_command(world: World) -> None:
    """As `confidant pairing block` does it beside the program."""
    database = await SqliteDatabase.open(world.engine.folder / "confidant.db")
    try:
        seat = ("memory", "eve")
        assert await database.write(lambda tx: admitting.block(tx, seat, NOON)) is not None
    finally:
        await database.close()


async def let_in_again(world: World) -> None:
    await world.does("again")
    await world.told("eve", "You're in.")


async def asked_again(world: World) -> None:
    await world.does("unblock")
    await world.let_in()


WAYS = {
    "blocked, let in again": (by_block, let_in_again),
    "blocked, asked again": (by_block, asked_again),
    "blocked by command": (by_command, let_in_again),
    "let in no longer, asked again": (by_revoking, World.let_in),
}
Step = Callable[[World], Awaitable[None]]


@pytest.mark.parametrize("way", WAYS)
async def test_open_pages_end_at_once_and_old_logins_stay_ended(tmp_path: Path, way: str):
    out, back = WAYS[way]
    async with (
        serving(tmp_path, channels=CLOSED) as engine,
        browsers(engine, 5) as (owner, eve, late, ada, fresh),
    ):
        await owner.log_in()
        world = World(engine, owner)
        await world.let_in()
        await world.let_in("ada")
        name = await world.enters(eve)
        assert await eve.post("/account/password", new=PASSWORD) == (303, "/account?done")
        await world.enters(ada, "ada")
        link, cookie = await world.link(), eve.cookie
        async with eve.chat() as page, ada.chat() as hers:
            await out(world)
            await cut(page)
            await hers.say(type="send", id="m1", text="/whoami")
            await hers.until("ack")
        assert await eve.who() == ""
        assert (await late.post("/enter", key=link))[0] == 410
        assert (await late.post("/login", name=name, password=PASSWORD))[0] == 401
        # An invitation would lead nowhere, and says so.
        status, said = await owner.post("/logins", name=name)
        assert (status, LINK.search(said)) == (409, None)
        assert "may not talk to the bot now" in said
        await back(world)
        for each in (eve, late):
            assert await each.who() == ""
        assert await fresh.gets_with(cookie) == (303, "/login")
        assert (await late.post("/enter", key=link))[0] == 410
        # They come in as the same person as before, by what lets them in now.
        assert await world.enters(late) == name
        assert await fresh.post("/login", name=name, password=PASSWORD) == (303, "/")
        assert await fresh.who() == name


def asked(sender: str) -> Inbound:
    return Inbound("memory", "work", sender, "direct", sender, "1", "hi", NOON)


async def test_what_a_seat_was_let_in_by_ends_with_a_block_and_with_its_end(
    each_database: Database,
):
    """Also what a node stored that had not heard of the block yet."""
    seats = [("memory", who) for who in ("eve", "ev", "eve' OR 1=1 --", 'e"v\\e')]
    seats.append(("other", "eve"))

    def begin(tx: Transaction, seat: Seat) -> None:
        origin = MessageOrigin(seat[0], "work", seat[1], "direct", seat[1])
        page_logins.begin(tx, f"cookie {seat}", "name", NOON, origin=origin)
        made = LoginLink(str(seat), "", origin, "en", NOON, 60_000)
        page_logins.offer(tx, f"link {seat}", made)

    def holds(tx: Transaction, seat: Seat) -> tuple[bool, bool]:
        login = page_logins.login(tx, f"cookie {seat}", NOON)
        return login is not None, page_logins.offered(tx, f"link {seat}", NOON) is not None

    def work(tx: Transaction) -> None:
        for number, seat in enumerate(seats):
            begin(tx, seat)
            asked = Inbound(seat[0], "work", seat[1], "direct", seat[1], "1", "hi", NOON)
            pairing.ask(tx, asked, f"CODE{number:04}", NOON)
        for number, seat in enumerate(seats):
            assert holds(tx, seat) == (True, True)
            assert admitting.block(tx, seat, NOON) is not None
            assert holds(tx, seat) == (False, False)
            begin(tx, seat)
            assert admitting.unblock(tx, seat) is not None
            assert holds(tx, seat) == (False, False)
            assert [holds(tx, each) for each in seats[number + 1 :]] == [(True, True)] * (
                len(seats) - number - 1
            )

    await each_database.write(work)
