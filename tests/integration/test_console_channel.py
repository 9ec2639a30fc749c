from __future__ import annotations

import asyncio
import io
import os
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TextIO

import pytest
from prometheus_client import CollectorRegistry

from adapters.console import Console, locale_of
from adapters.web.channel import Web
from bot.channel import Address, Attachment, Button, Channel, Health, HistoryItem, Inbound, Outbound
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer, Readiness
from bot.errors import ChannelError, SendTransient
from bot.testing import RecordingEngine
from tests.fakes.browsers import BrowsersInMemory
from tests.fakes.people import Keyboard
from tests.support import post

ADDRESS = Address("console", "default", "owner")
TOKEN = "correct-horse-battery-staple"


async def attach(
    url: str,
    token: str = "",
    *,
    input: TextIO,  # noqa: A002 - as Console has it
    output: TextIO,
    locale: str = "",
) -> None:
    await Console(input, output, locale=locale).attach(url, token)


@dataclass
class AnsweringEngine(RecordingEngine):
    """Answers every stored message through its channel, as `answer` says."""

    channel: Channel | None = None
    answer: Callable[[Inbound], list[Outbound]] = lambda inbound: [
        Outbound(f"re-{inbound.message_id}", inbound.address, f"You said: {inbound.text}")
    ]
    _turns: set[asyncio.Task[None]] = field(default_factory=set)

    async def receive(self, inbound: Inbound) -> None:
        await super().receive(inbound)
        turn = asyncio.create_task(self._turn(inbound))
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)

    async def _turn(self, inbound: Inbound) -> None:
        channel = self.channel
        assert channel is not None
        await channel.typing(inbound.address)
        for outbound in self.answer(inbound):
            await channel.draft(inbound.address, "draft", outbound.text[:5])
            await post(channel, outbound)


async def piped(lines: str, engine: AnsweringEngine) -> str:
    output = io.StringIO()
    console = Console(io.StringIO(lines), output, locale="de")
    engine.channel = console
    await console.start(engine)
    await console.finished()
    await console.stop()
    return output.getvalue()


@pytest.mark.parametrize(
    ("environment", "locale"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh-CN"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_TW.UTF-8@x"}, "zh-TW"),
        ({"LANG": "de_DE", "LC_MESSAGES": "zh", "LC_ALL": ""}, "zh"),
        ({"LANG": "C.UTF-8"}, ""),
        ({"LC_ALL": "POSIX", "LANG": "zh_CN"}, ""),
        ({}, ""),
    ],
)
def test_the_terminal_says_which_language_it_is_set_to(environment, locale):
    assert locale_of(environment) == locale


# --- through a pipe -------------------------------------------------------------------------------


async def test_every_line_is_answered_in_order_before_the_end():
    engine = AnsweringEngine()
    assert await piped("one\n\n  two  \n/new", engine) == (
        "You said: one\nYou said: two\nYou said: /new\n"
    )
    assert [inbound.text for inbound in engine.received] == ["one", "two", "/new"]
    first = engine.received[0]
    assert (first.channel, first.chat, first.sender) == ("console", "owner", "owner")
    assert (first.chat_type, first.locale) == ("direct", "de")
    assert len({inbound.message_id for inbound in engine.received}) == 3
    assert engine.health["console", "default"] == (Health.UP, "")


async def test_no_input_ends_at_once():
    assert await piped("", AnsweringEngine()) == ""


@pytest.mark.parametrize("leaving", ["/exit", "/Quit", "/bye", "/退出"])
async def test_whoever_leaves_is_not_asked_further(leaving):
    engine = AnsweringEngine()
    assert await piped(f"one\n{leaving}\ntwo\n", engine) == "You said: one\n"
    assert [inbound.text for inbound in engine.received] == ["one"]


async def test_a_notice_is_not_the_reply():
    def answer(inbound: Inbound) -> list[Outbound]:
        notice = Outbound("n", ADDRESS, "nearly full", kind="notice")
        other = Outbound("o", ADDRESS, "for an older message", reply_to="older")
        reply = Outbound("r", ADDRESS, "the reply", reply_to=inbound.message_id)
        return [notice, other, reply]

    output = await piped("hi\n", AnsweringEngine(answer=answer))
    assert output == "nearly full\nfor an older message\nthe reply\n"


async def test_a_silent_turn_does_not_wait_forever(monkeypatch):
    monkeypatch.setattr("adapters.console.QUIET_SECONDS", 0.05)
    assert await piped("hi\nagain\n", AnsweringEngine(answer=lambda _inbound: [])) == ""


async def test_a_line_that_could_not_be_stored_is_offered_again(monkeypatch):
    monkeypatch.setattr("adapters.console.RETRY_SECONDS", 0.0)
    engine = AnsweringEngine(failures=2)
    output = await piped("hi\n", engine)
    assert output.endswith("You said: hi\n")
    assert output.count("the disk is full. Trying again.") == 2
    assert engine.attempts == 3


async def test_replies_cannot_command_the_terminal():
    evil = "a\x1b]0;title\x07b\x1b[2Jc\x9bd\rE\u202eF\ttab\nline"

    def answer(inbound: Inbound) -> list[Outbound]:
        return [Outbound("r", ADDRESS, evil)]

    assert await piped("hi\n", AnsweringEngine(answer=answer)) == ("a]0;titleb[2JcdEF\ttab\nline\n")


async def test_bytes_that_are_no_text_do_not_end_the_chat():
    engine = AnsweringEngine()
    output = io.StringIO()
    lines = io.TextIOWrapper(io.BytesIO(b"caf\xe9\nnext\n"), encoding="utf-8")
    console = Console(lines, output)
    engine.channel = console
    await console.start(engine)
    await console.finished()
    await console.stop()
    assert [inbound.text for inbound in engine.received] == ["caf\ufffd", "next"]


async def test_a_closed_pipe_ends_the_chat_and_keeps_the_reply():
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    reader, writer = os.pipe()
    with os.fdopen(reader) as lines, os.fdopen(writer, "w") as feed:
        console = Console(lines, Closed())
        await console.start(RecordingEngine())
        with pytest.raises(SendTransient):
            await post(console, Outbound("r", ADDRESS, "hi"))
        await console.finished()
        await console.stop()
        feed.write("late\n")


BUTTONS = (Button("Compact", "/compact"), Button("Not now", "/notices later"))
FILES = (
    Attachment("a.txt", "text/plain", b"x" * 999),
    Attachment("context\x1b[2J.png", "image/png", b"x" * 9_400),
    Attachment("b.bin", "", b"x" * 1_250_000),
)
SHOWN = (
    "Nearly full.\n\n📎 a.txt (999 B)\n\n📎 context[2J.png (9 kB)\n\n📎 b.bin (1.2 MB)\n\n"
    "▸ Compact: /compact · Not now: /notices later\n"
)


def full(inbound: Inbound) -> list[Outbound]:
    return [Outbound("r", inbound.address, "Nearly full.", buttons=BUTTONS, attachments=FILES)]


async def test_buttons_are_commands_to_type_and_files_are_named():
    assert await piped("hi\n", AnsweringEngine(answer=full)) == SHOWN


def test_a_terminal_does_not_promise_that_anything_can_be_pressed():
    able = Console(io.StringIO(), io.StringIO()).capabilities
    assert (able.buttons, able.attachments) == (False, True)


# --- on a screen ----------------------------------------------------------------------------------


class Terminal:
    """A pseudo terminal: what a person types, and what they see."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.input = os.fdopen(slave, "r", encoding="utf-8")
        self.output: TextIO = os.fdopen(os.dup(slave), "w", encoding="utf-8")
        self._seen = ""
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        self._seen += os.read(self._master, 65536).decode("utf-8", "replace")
        self._changed.set()

    @property
    def text(self) -> str:
        """What was written, without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._seen)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def until(self, text: str) -> None:
        while text not in self.text:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        for stream in (self.input, self.output):
            stream.close()
        os.close(self._master)


@pytest.fixture
async def terminal():
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


@pytest.fixture
def engine():
    return RecordingEngine()


@pytest.fixture
async def console(terminal, engine):
    """A console on a screen, at its prompt."""
    console = Console(terminal.input, terminal.output)
    await console.start(engine)
    await terminal.until("› ")
    yield console
    await console.stop()


async def test_a_screen_shows_drafts_then_the_reply_rendered(terminal, engine, console):
    assert console.capabilities.drafts
    terminal.type("hello\n")
    await engine.wait_until(lambda e: len(e.received) == 1)
    await console.typing(ADDRESS)
    await terminal.until("…")
    await console.draft(ADDRESS, "d", "growing **so far**")
    await terminal.until("growing so far")
    await post(console, Outbound("r", ADDRESS, "# Done\n\n**bold** text"))
    await terminal.until("bold text")
    assert "**" not in terminal.text
    terminal.type("\x04")
    await console.finished()


@pytest.mark.parametrize(("locale", "hint"), [("en-US", "Ctrl-D ends"), ("zh-CN", "Ctrl-D 结束")])
async def test_a_screen_says_how_to_get_along(terminal, locale, hint):
    console = Console(terminal.input, terminal.output, locale=locale)
    await console.start(RecordingEngine())
    await terminal.until("› ")
    before, _, _ = terminal.text.partition("› ")
    assert "/help" in before
    assert hint in before
    terminal.type("/exit\n")
    await console.finished()
    await console.stop()


async def test_a_command_can_be_typed_while_a_reply_is_written(terminal, engine, console):
    terminal.type("hello\n")
    await engine.wait_until(lambda e: len(e.received) == 1)
    await console.draft(ADDRESS, "d", "a long reply")
    terminal.type("/stop\n")
    await engine.wait_until(lambda e: len(e.received) == 2)
    assert engine.received[1].text == "/stop"


async def test_a_notice_at_the_prompt_leaves_the_prompt_standing(terminal, console):
    await post(console, Outbound("n", ADDRESS, "by the way", kind="notice"))
    await terminal.until("by the way")
    while not terminal.text.endswith("› "):
        terminal._changed.clear()
        await terminal._changed.wait()
    terminal.type("\x04")
    await console.finished()


async def test_a_long_draft_keeps_its_end_in_view(terminal, engine, console):
    terminal.type("hello\n")
    await engine.wait_until(lambda e: len(e.received) == 1)
    await console.draft(ADDRESS, "d", "\n\n".join(f"paragraph {n}" for n in range(100)))
    await terminal.until("paragraph 99")
    assert "paragraph 1\r" not in terminal.text


# --- joining a running bot ------------------------------------------------------------------------


class Bot:
    """A running bot's web chat; stopping and starting keeps the port and the conversation."""

    def __init__(self, token: str | None = None) -> None:
        self.engine = AnsweringEngine()
        self.url = ""
        self._config = {"port": 0, "token": token}
        self._server: DashboardServer | None = None

    async def start(self) -> None:
        web = Web()
        self.engine.channel = web
        self._server = DashboardServer(
            DashboardConfig.model_validate(self._config),
            readiness=_ready,
            registry=CollectorRegistry(),
            browsers=BrowsersInMemory(),
            channels=[web],
        )
        await web.start(self.engine)
        listening = await self._server.start()
        self._config["port"], self.url = listening.port, listening.url

    async def stop(self) -> None:
        if self._server is not None and self.engine.channel is not None:
            await self.engine.channel.stop()
            await self._server.stop()
            self._server = None


async def _ready() -> Readiness:
    return Readiness()


@asynccontextmanager
async def bot(token: str | None = None) -> AsyncIterator[Bot]:
    running = Bot(token)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_attaching_chats_with_the_running_bot(token):
    output = io.StringIO()
    async with bot(token) as running:
        await attach(
            running.url, token or "", input=io.StringIO("hi\n**two**\n"), output=output, locale="zh"
        )
        assert output.getvalue() == "You said: hi\nYou said: **two**\n"
        first = running.engine.received[0]
        assert (first.channel, first.text, first.locale) == ("web", "hi", "zh")


async def test_attaching_shows_what_comes_with_a_reply_as_words():
    output = io.StringIO()
    async with bot() as running:
        running.engine.answer = full
        await attach(running.url, input=io.StringIO("hi\n"), output=output)
    assert output.getvalue() == SHOWN


async def test_attaching_with_a_wrong_token_says_so():
    async with bot(TOKEN) as running:
        with pytest.raises(ChannelError, match="does not accept this token"):
            await attach(running.url, "wrong", input=io.StringIO("hi\n"), output=io.StringIO())


async def test_attaching_to_nothing_says_so():
    async with bot() as running:
        pass
    with pytest.raises(ChannelError, match="Nothing answers at 127"):
        await attach(running.url, input=io.StringIO("hi\n"), output=io.StringIO())


async def test_attaching_to_a_bot_without_a_web_chat_says_so():
    server = DashboardServer(
        DashboardConfig(port=0),
        readiness=_ready,
        registry=CollectorRegistry(),
        browsers=BrowsersInMemory(),
    )
    url = (await server.start()).url
    with pytest.raises(ChannelError, match="without its web chat"):
        await attach(url, input=io.StringIO("hi\n"), output=io.StringIO())
    await server.stop()


async def test_a_line_too_long_is_told_and_the_next_goes_on():
    output = io.StringIO()
    async with bot() as running:
        lines = io.StringIO("x" * 70_000 + "\nshort\n")
        await attach(running.url, input=lines, output=output, locale="en")
        assert [inbound.text for inbound in running.engine.received] == ["short"]
    assert output.getvalue().startswith("This message is too long")
    assert output.getvalue().endswith("You said: short\n")


class Watched(io.StringIO):
    """An output that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def write(self, text: str) -> int:
        self._changed.set()
        return super().write(text)

    async def until(self, text: str) -> None:
        while text not in self.getvalue():
            self._changed.clear()
            await self._changed.wait()


async def test_a_line_typed_while_the_bot_restarts_arrives_once(monkeypatch):
    monkeypatch.setattr("adapters.web.client.FIRST_DELAY", 0.02)
    reader, writer = os.pipe()
    output = Watched()
    with os.fdopen(reader) as lines, os.fdopen(writer, "w") as feed:
        async with bot() as running:
            attached = asyncio.create_task(attach(running.url, input=lines, output=output))
            print("before", file=feed, flush=True)
            await output.until("You said: before")
            await running.stop()
            print("after", file=feed, flush=True)
            await running.start()
            await output.until("You said: after")
            feed.close()
            await attached
    assert [inbound.text for inbound in running.engine.received] == ["before", "after"]
    assert output.getvalue() == "You said: before\nYou said: after\n"


async def test_a_reply_finished_while_disconnected_is_shown_on_return(monkeypatch):
    monkeypatch.setattr("adapters.web.client.FIRST_DELAY", 0.02)
    reader, writer = os.pipe()
    output = Watched()
    with os.fdopen(reader) as lines, os.fdopen(writer, "w") as feed:
        async with bot() as running:
            running.engine.answer = lambda _inbound: []
            running.engine.lines = [HistoryItem("old", "bot", "said before", 1)]
            attached = asyncio.create_task(attach(running.url, input=lines, output=output))
            print("question", file=feed, flush=True)
            await running.engine.wait_until(lambda e: len(e.received) == 1)
            await running.stop()
            running.engine.lines.append(HistoryItem("new", "bot", "the answer", 2))
            await running.start()
            await output.until("the answer")
            feed.close()
            await attached
    assert output.getvalue() == "the answer\n"


def test_a_line_read_after_its_loop_ended_leaves_nothing_behind():
    async def make() -> Keyboard:
        return Keyboard()

    keyboard = asyncio.run(make())
    reads: list[str] = []
    reader = threading.Thread(target=lambda: reads.append(keyboard.readline()))
    reader.start()
    keyboard.type("late\n")
    reader.join(10)
    assert reads == ["late\n"]
