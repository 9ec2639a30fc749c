"""A whole engine for tests: real storage, gateway and delivery; a channel and a model in memory."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

import apsw
import pytest

from bot.agent.model_limits import ModelLimits
from bot.agent.models import Writer
from bot.agent.tools import Tool
from bot.app import App, Parts
from bot.channel import Channel, ChannelConfig, ChannelPlugin, Inbound, Outbound
from bot.config import Config, ContextConfig, Settings
from bot.context import budget, quoting, tokens
from bot.context.budget import Window
from bot.coordination import Alone
from bot.core import Core
from bot.errors import ChannelError
from bot.identity import ConversationResolver, Policy
from bot.memory.search import Searcher
from bot.messages import Message
from bot.settings import Loaded, config_model
from bot.storage import schema
from bot.storage.sqlite import FULLTEXT, SqliteDatabase
from bot.testing import InMemoryChannel, ScriptedModel

_numbers = itertools.count(1)
# Seconds a test waits for what has no event of its own; fewer where the code is changed on purpose.
PATIENCE = 10.0 if "MUTANT_UNDER_TEST" in os.environ else 60.0
TURNS = 500  # of the loop, within which it watches closely; then others may have the processor
pause = asyncio.sleep  # also where a test puts something in its place
NOON = 1_795_262_400_000  # 2026-11-21 12:00 UTC


# How far a text came that could not be sent to its end, by channel and id: as the outbox keeps it.
_half_sent: WeakKeyDictionary[Any, dict[str, tuple[int, str]]] = WeakKeyDictionary()


async def post(channel: Channel, outbound: Outbound) -> str:
    """Send all pieces of a text, the way delivery does; the id of the first message.

    After a failure the same text goes on with the piece that failed.
    """
    begun = _half_sent.setdefault(channel, {})
    done, first = begun.pop(outbound.id, (0, ""))
    for piece in channel.render(outbound)[done:]:
        try:
            sent = await channel.send(piece)
        except ChannelError:
            begun[outbound.id] = done, first
            raise
        done, first = done + 1, first or sent
    return first


class OpenConfig(ChannelConfig):
    """A channel anybody may use, unless a test says otherwise."""

    dm_policy: Any = "open"
    allow_from: tuple[str, ...] = ("*",)


@dataclass
class FakeClock:
    """A clock that stands still until a test moves it."""

    now: int = NOON

    def __call__(self) -> int:
        return self.now

    def advance(self, **units: float) -> None:
        seconds = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
        self.now += int(sum(seconds[unit] * amount for unit, amount in units.items()) * 1000)


@dataclass
class Seconds:
    """A clock in seconds that stands still until a test sets it."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Engine:
    """A running engine and what a test needs to talk to it."""

    app: App
    channel: InMemoryChannel
    model: ScriptedModel
    clock: FakeClock
    folder: Path

    async def say(self, text: str, *, sender: str = "ada", **changes: Any) -> Inbound:
        """Deliver a message as `sender`, without waiting for its answer."""
        inbound = replace(self.message(text, sender=sender), **changes)
        await self.channel.push(inbound)
        return inbound

    def message(self, text: str, *, sender: str = "ada") -> Inbound:
        return Inbound(
            channel="memory",
            account="default",
            chat=sender,
            chat_type="direct",
            sender=sender,
            message_id=f"m{next(_numbers)}",
            text=text,
            sent_at=self.clock(),
            locale="en",
        )

    async def ask(self, text: str, *, sender: str = "ada", **changes: Any) -> str:
        """Deliver a message and return the next text sent to its chat."""
        before = len(self.sent_to(sender))
        await self.say(text, sender=sender, **changes)
        await self.channel.wait_until(lambda _: len(self.sent_to(sender)) > before)
        return self.sent_to(sender)[before]

    async def ask_each(self, *texts: str, **changes: Any) -> None:
        """Deliver messages one by one, each once the one before was answered."""
        for text in texts:
            await self.ask(text, **changes)

    def sent_to(self, chat: str) -> list[str]:
        return [piece.text for piece in self.channel.sent if piece.address.chat == chat]


async def until(ready: Callable[[], bool]) -> None:
    """Let everything else run until something is so that has no event of its own."""
    async with asyncio.timeout(PATIENCE):
        for _ in range(TURNS):
            if ready():
                return
            await asyncio.sleep(0)
        wait = 0.002
        while not ready():
            await pause(wait)
            wait = min(wait * 1.2, 0.02)  # what takes long may be seen a moment later


def core_of(database: Any, config: Config | None = None, **parts: Any) -> Core:
    """The infrastructure of services that are tested without the rest of the program."""
    config = config or Config()
    usual = {
        "settings": Settings(config),
        "clock": FakeClock(),
        "coordination": Alone(database),
        "resolver": ConversationResolver(Policy.of(config, ZoneInfo("UTC"))),
        "channels": {},
    }
    return Core(database=database, **(usual | parts))


def make_config(
    folder: Path, *more: ChannelPlugin, **sections: Any
) -> tuple[Config, dict[str, ChannelPlugin]]:
    """A configuration with one in-memory channel, and `more`; `sections` are tables."""
    plugins = {"memory": ChannelPlugin("memory", OpenConfig, lambda _config: InMemoryChannel())}
    plugins |= {plugin.name: plugin for plugin in more}
    storage = {"dir": folder, "backup_hours": 0, **sections.pop("storage", {})}
    memory = {"embedder": {"provider": "none"}, "watch": False, **sections.pop("memory", {})}
    context = {"enable_memory_flush": False, **sections.pop("context", {})}
    data = {
        "agent": {"timezone": "UTC"},
        "storage": storage,
        "memory": memory,
        "context": context,
        **sections,
    }
    return config_model(plugins).model_validate(data), plugins


def settings_of(**sections: Any) -> Settings:
    """The settings of a configuration with these tables."""
    agent = {"timezone": "UTC", **sections.pop("agent", {})}
    return Settings(Config.model_validate({"agent": agent, **sections}))


def limits_of(model: Writer) -> ModelLimits:
    """The limits of a model in a large window."""
    window = Window(200_000, 200_000, "service", capped=False)
    shares = budget.budget(window.tokens, ContextConfig(), 1_000)
    return ModelLimits(model, "scripted", window, shares, 1.0, tokens.estimate)


def rendered(messages: Sequence[Message]) -> str:
    """Messages as text for a model, each line quoted."""
    return quoting.render(each for said in quoting.spoken(messages) for each in said)


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file, and make the folders it is in; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def changed_anywhere(secret: str) -> list[str]:
    """A secret with another character in each place, cut short, made longer, and none at all."""
    others = [
        f"{secret[:at]}{'0' if secret[at] != '0' else '1'}{secret[at + 1 :]}"
        for at in range(len(secret))
    ]
    return [*others, secret[:8], secret[:-1], secret[1:], f"{secret}0", f"0{secret}", ""]


@asynccontextmanager
async def running(
    folder: Path,
    *,
    model: ScriptedModel | None = None,
    clock: FakeClock | None = None,
    channel: InMemoryChannel | None = None,
    searcher: Searcher | None = None,
    tools: tuple[Tool, ...] = (),
    tool_rules: Sequence[Mapping[str, Any]] = (),
    web: Mapping[str, Any] | None = None,
    mcp: Mapping[str, Any] | None = None,
    serves: bool = False,
    origins: Mapping[tuple[str | int, ...], str] | None = None,
    **sections: Any,
) -> AsyncIterator[Engine]:
    """Start an engine on a folder and stop it at the end; with `serves` also its pages.

    `origins` says where the configuration's values stand.

    `tools` are there beside the usual ones, for those whom `tool_rules` give them; `web` is
    `[tools.web]` and `mcp` `[tools.mcp]`.
    """
    if tool_rules or web or mcp:
        sections["tools"] = {
            "rules": tuple(tool_rules),
            "web": dict(web or {}),
            "mcp": dict(mcp or {}),
        }
    if serves:
        sections.setdefault("dashboard", {"port": 0})
    config, plugins = make_config(folder, **sections)
    memory = channel or InMemoryChannel()
    scripted = model or ScriptedModel()
    ticking = clock or FakeClock()
    parts = Parts(
        clock=ticking,
        remote=scripted,
        searcher=searcher,
        channels={"memory": memory},
        tools=tools,
        loaded=Loaded(config, plugins, origins) if origins is not None else None,
        dashboard=serves,
    )
    async with App(config, plugins, parts) as app:
        yield Engine(app, memory, scripted, ticking, folder)


async def killed_in_a_turn(folder: Path, monkeypatch: pytest.MonkeyPatch, *said: str) -> None:
    """Run an engine on a folder that ends, after these messages, while its model answers."""
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    model = ScriptedModel(gate=asyncio.Event())
    async with running(folder, model=model) as engine:
        for text in said:
            await engine.say(text)
        await model.started.wait()


def in_memory() -> apsw.Connection:
    """The tables in memory alone, where a test makes them many times."""
    connection = apsw.Connection(":memory:")
    for statement in (*itertools.chain(*(step for _, step in schema.steps(0))), FULLTEXT):
        connection.execute(statement.replace("{serial}", "INTEGER PRIMARY KEY"))
    return connection


@asynccontextmanager
async def beside(folder: Path) -> AsyncIterator[SqliteDatabase]:
    """The database of a folder, also while a program runs on it."""
    database = await SqliteDatabase.open(folder / "confidant.db")
    try:
        yield database
    finally:
        await database.close()
