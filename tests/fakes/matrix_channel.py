"""The real Matrix channel on a real homeserver, with short waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from adapters.matrix import MatrixConfig
from adapters.matrix.account import Pace
from adapters.matrix.channel import Matrix
from bot.channel import Address, Channel, Engine
from tests.contract.channel_cases import Case, by_name, rendered
from tests.fakes import synapse
from tests.fakes.synapse import Synapse
from tests.fakes.telegram_channel import WatchingEngine

QUICK = Pace(first=0.05, longest=0.2, rejected=0.1)


def settings(server: Synapse, login: Mapping[str, str], **values: Any) -> MatrixConfig:
    """A configuration for a bot with this login."""
    return MatrixConfig.model_validate(
        {
            "homeserver": server.url,
            "token": login["access_token"],
            "group_policy": "open",
            **values,
        }
    )


@asynccontextmanager
async def running(engine: Engine, config: MatrixConfig) -> AsyncIterator[Matrix]:
    """The channel, started and connected; stopped at the end."""
    channel = Matrix(config, QUICK)
    await channel.start(engine)
    try:
        async with asyncio.timeout(30):
            await asyncio.gather(*(each.connected.wait() for each in channel._accounts.values()))
        yield channel
    finally:
        await channel.stop()


@asynccontextmanager
async def matrix(tmp_path) -> AsyncIterator[Case]:
    async with _matrix(encrypted=True, direct=True) as case:
        yield case


@asynccontextmanager
async def matrix_room(tmp_path) -> AsyncIterator[Case]:
    async with _matrix(encrypted=False, direct=False) as case:
        yield case


@asynccontextmanager
async def _matrix(*, encrypted: bool, direct: bool) -> AsyncIterator[Case]:
    """An encrypted direct chat, or a plain room."""
    engine, stack, server = WatchingEngine(), AsyncExitStack(), synapse.shared()
    async with synapse.person(server) as ada, stack:
        login = await server.register()

        async def start() -> Channel:
            return await stack.enter_async_context(running(engine, settings(server, login)))

        async def write(text: str) -> None:
            await ada.say(room, text)

        async def answer(data: bytes) -> None:
            kind = {"mimetype": "text/plain", "size": len(data)}
            place = await ada.upload(data, "text/plain", encrypted=encrypted)
            file = {"msgtype": "m.file", "body": "a.txt", "info": kind, **place}
            before = await ada.post(room, file)
            await engine.wait_until(lambda e: len(e.received) == 1)
            engine.received.clear()
            link = {"m.in_reply_to": {"event_id": before}}
            await ada.say(room, "what is this?", **{"m.relates_to": link})

        async def shown(count: int) -> list[str]:
            def words() -> list[str]:
                found = ada.said(room, login["user_id"])
                return [each["body"] for each in found if each["msgtype"] in {"m.text", "m.notice"}]

            await ada.wait_for(lambda: len(words()) >= count)
            return words()

        async def files() -> list[str]:
            def names() -> list[str]:
                found = ada.said(room, login["user_id"])
                return [each["body"] for each in found if "info" in each]

            await ada.wait_for(lambda: len(names()) >= 4)
            return names()

        async def restart() -> None:
            await stack.aclose()
            case.channel = await start()

        async def typed() -> None:
            await ada.wait_for(lambda: login["user_id"] in ada.app.rooms[room].typing_users)

        channel = await start()
        room = await ada.room(login["user_id"], encrypted=encrypted, direct=direct)
        await ada.joined(room, login["user_id"])
        await write("first")
        await engine.wait_until(lambda e: len(e.received) == 1)
        engine.received.clear()
        does = by_name(write, shown, files, restart, answer, typed)
        case = Case(
            channel=channel,
            engine=engine,
            address=Address("matrix", "default", room),
            seen=rendered,
            copy="the homeserver repeats a whole sync: see the tests of syncs",
            buttons="Matrix has none",
            grown="each change of a message is another one, for ever",
            vanish="there are no drafts",
            forbid="see the tests of sending",
            limit="see the tests of sending",
            chat_type="direct" if direct else "group",
            **does,
        )
        yield case
