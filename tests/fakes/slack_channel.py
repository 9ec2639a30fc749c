"""The real Slack channel on the fake server, with short waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from adapters.slack import SlackConfig
from adapters.slack.account import Pace
from adapters.slack.channel import Slack
from bot.channel import Address, Channel, Engine, Outbound
from tests.contract.channel_cases import Buttons, Case, by_name, rendered
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, FakeSlack
from tests.fakes.telegram_channel import WatchingEngine

QUICK = Pace(first=0.01, longest=0.04, rejected=0.02, draft_first=0.0, draft=0.02)


def settings(fake: FakeSlack, **values: Any) -> SlackConfig:
    """A configuration for the fake server's app."""
    tokens = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN}
    return SlackConfig.model_validate(
        {**tokens, "api_root": fake.api_root, "group_policy": "open", **values}
    )


@asynccontextmanager
async def running(engine: Engine, config: SlackConfig, pace: Pace = QUICK) -> AsyncIterator[Slack]:
    """The channel, started; stopped at the end."""
    channel = Slack(config, pace)
    await channel.start(engine)
    try:
        yield channel
    finally:
        await channel.stop()


@asynccontextmanager
async def slack(tmp_path) -> AsyncIterator[Case]:
    async with _slack("", "") as case:
        yield case


@asynccontextmanager
async def slack_thread(tmp_path) -> AsyncIterator[Case]:
    async with _slack("C5", "1610241741.000200") as case:
        yield case


@asynccontextmanager
async def _slack(room: str, thread: str) -> AsyncIterator[Case]:
    """A direct chat, or a thread of a channel."""
    engine, stack = WatchingEngine(), AsyncExitStack()
    presses: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []
    async with FakeSlack() as fake, stack:
        chat = room or fake.dm("U7")
        place = {"thread_ts": thread} if thread else {}
        if room:
            fake.messages[room].append({"ts": thread, "user": "U8", "text": "begin"})

        async def start() -> Channel:
            count = fake.connections + 1
            channel = await stack.enter_async_context(running(engine, settings(fake)))
            await fake.wait_for(lambda: fake.connections >= count)
            return channel

        async def write(text: str) -> None:
            said.append(await fake.say("U7", text, chat, **place))

        async def copy() -> None:
            await fake.event(said[-1])

        async def answer(data: bytes) -> None:
            before = fake.message("U8", "", chat, files=[fake.file("a.txt", data, "text/plain")])
            await fake.say("U7", "<@U111> what is this?", chat, thread_ts=before["ts"])

        async def shown(count: int) -> list[str]:
            return await fake.wait_shown(count)

        async def files() -> list[str]:
            return fake.uploaded

        async def choices() -> list[str]:
            return [each["text"]["text"] for each in fake.sent[-1]["blocks"][1]["elements"]]

        async def press(outbound: Outbound, sent: str, label: str) -> None:
            command = next(b.command for b in outbound.buttons if b.label == label)
            below = next(message for message in fake.sent if message["ts"] == sent)
            presses.append(fake.pressing("U7", below, command))
            await again()

        async def again() -> None:
            await fake.bring("interactive", presses[-1], accepts_response_payload=False)

        async def restart() -> None:
            await stack.aclose()
            case.channel = await start()

        async def grown(text: str) -> None:
            await fake.wait_for(lambda: any(text in each for each in fake.shown))

        def forbid() -> None:
            fake.forbidden[chat] = "not_in_channel"

        def limit() -> float:
            fake.fail("chat.postMessage", "ratelimited", 429, **{"Retry-After": "1"})
            return 1.0

        does = by_name(write, shown, files, restart, copy, answer, grown, forbid, limit)
        case = Case(
            channel=await start(),
            engine=engine,
            address=Address("slack", "default", chat, thread),
            seen=rendered,
            buttons=Buttons(choices, press, again),
            typed="Slack shows nobody that an app is writing",
            vanish=lambda: fake.messages[chat].remove(fake.sent[-1]),
            chat_type="channel" if room else "direct",
            **does,
        )
        yield case
