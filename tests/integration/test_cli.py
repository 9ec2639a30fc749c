"""The commands as they are typed, in processes of their own, with and without a running bot."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import orjson
import pytest

from bot import __version__
from bot.channel import Inbound
from bot.cli.serve import chat_here
from bot.delivery import outbox
from bot.errors import ChannelError
from bot.sessions import inbox
from bot.sessions.mirror import all_transcripts
from bot.settings import load
from bot.testing import RecordingEngine
from tests.fakes import commands, nextcloud
from tests.fakes import completions_api as completions
from tests.fakes import messages_api as api
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_parts import TOKEN as DISCORD_TOKEN
from tests.fakes.nextcloud import API_PASSWORD, API_USER, RESPONSE, SECRET, FakeNextcloud
from tests.fakes.ports import free_port
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.terminal import environment as with_settings
from tests.proofs.rounds import long, sample
from tests.support import NOON, Engine, beside, pause, running

pytestmark = pytest.mark.slow

CLOSED = {"memory": {"dm_policy": "pairing", "allow_from": []}}


@dataclass
class Done:
    code: int | None
    out: str
    err: str


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this machine's own settings."""
    names = ("PATH", "PYTHONPATH", "LANG", "SYSTEMROOT")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    storage = {"CONFIDANT_STORAGE__DIR": str(folder / "data"), "CONFIDANT_DASHBOARD__PORT": "0"}
    return {**kept, **storage, "HOME": str(folder)}


async def confidant(folder: Path, *arguments: str) -> Done:
    process = await asyncio.create_subprocess_exec(
        *commands.argv(),
        *arguments,
        cwd=folder,
        env=environment(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return Done(process.returncode, out.decode(), err.decode())


async def code_for(engine: Engine, sender: str) -> str:
    found = re.search(r"\*\*([A-Z2-9]{8})\*\*", await engine.ask("let me in", sender=sender))
    assert found
    return found[1]


async def test_whoever_is_approved_is_told_by_the_running_bot_and_may_talk(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.coordination.LOOK_SECONDS", 0.01)
    async with running(tmp_path / "data", channels=CLOSED) as engine:
        # The engine's clock stands still; codes are as old as the machine's clock says.
        engine.clock.now = _now()
        code = await code_for(engine, "ada")
        listed = await confidant(tmp_path, "pairing", "list")
        assert (listed.code, listed.err) == (0, "")
        assert f"memory:ada code {code}" in re.sub(r" +", " ", listed.out)
        wrong = await confidant(tmp_path, "pairing", "approve", "telegram", code)
        assert wrong.code == 1
        assert wrong.err.startswith("confidant: telegram has no such code")
        approved = await confidant(tmp_path, "pairing", "approve", "memory", code.lower())
        assert (approved.code, approved.err) == (0, "")
        assert "memory:ada may talk to the bot now" in approved.out
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        assert engine.sent_to("ada")[1].startswith("You're in.")
        assert await engine.ask("hello") == "You said: hello"
        assert "approved  memory:ada" in (await confidant(tmp_path, "pairing", "list")).out
        revoked = await confidant(tmp_path, "pairing", "revoke", "memory", "ada")
        assert "needs a new code" in revoked.out
        assert "pairing approve" in await engine.ask("hello?")
        blocked = await confidant(tmp_path, "pairing", "block", "memory", "ada")
        assert "is blocked" in blocked.out
        assert "blocked   memory:ada" in (await confidant(tmp_path, "pairing", "list")).out
        freed = await confidant(tmp_path, "pairing", "unblock", "memory", "ada")
        assert "may ask again" in freed.out
        for what in ("unblock", "block"):  # neither blocked, nor anybody who asked of late
            refused = await confidant(tmp_path, "pairing", what, "memory", "ada")
            assert (refused.code, refused.out) == (1, "")
        again = await confidant(tmp_path, "pairing", "revoke", "memory", "bob")
        assert again.code == 1
        assert "was not approved with a code" in again.err


@pytest.mark.parametrize(("typed", "is_me"), [("y\n", True), ("n\n", False), ("\n", False)])
async def test_in_a_terminal_it_asks_whether_the_account_is_ones_own(tmp_path, typed, is_me):
    async with running(tmp_path / "data", channels=CLOSED) as engine:
        engine.clock.now = _now()
        code = await code_for(engine, "ada")
    ours, theirs = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *commands.argv(),
            *("pairing", "approve", "memory", code),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=theirs,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        os.write(ours, typed.encode())
        out, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (process.returncode, err) == (0, b"")
    assert b"memory:ada" in out
    assert b"Is that another account of yours?" in out
    assert (b"It counts as your own account now" in out) == is_me
    assert ("(you)" in (await confidant(tmp_path, "pairing", "list")).out) == is_me


def _now() -> int:
    from bot.clock import system_clock

    return system_clock()


async def test_an_approval_without_a_running_bot_is_told_at_its_start(tmp_path):
    async with running(tmp_path / "data", channels=CLOSED) as engine:
        engine.clock.now = _now()
        code = await code_for(engine, "ada")
    done = await confidant(tmp_path, "pairing", "approve", "memory", code)
    assert (done.code, done.err) == (0, "")
    async with running(tmp_path / "data", channels=CLOSED) as engine:
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada")[0].startswith("You're in.")


async def test_conversations_are_listed_shown_and_exported_as_they_are_on_disk(tmp_path):
    async with running(tmp_path / "data") as engine:
        await engine.ask_each("first 中文", "/new", "second")
        listed = await confidant(tmp_path, "sessions", "list")
        assert (listed.code, listed.err) == (0, "")
        lines = listed.out.splitlines()
        assert len(lines) == 2
        assert sorted(line[0] for line in lines) == [" ", "*"]
        current = next(line.split()[1] for line in lines if line.startswith("*"))
        shown = await confidant(tmp_path, "sessions", "show", current)
        assert "you: second" in shown.out
        assert "bot: You said: second" in shown.out
        assert "first" not in shown.out
        target = tmp_path / "out" / "deep"
        exported = await confidant(tmp_path, "sessions", "export", str(target))
        assert (exported.code, exported.err) == (0, "")
    mirror = {path.name: path.read_bytes() for path in all_transcripts(tmp_path / "data/sessions")}
    copies = {path.name: path.read_bytes() for path in target.glob("*.jsonl")}
    assert copies == mirror
    index = orjson.loads((target / "sessions.json").read_bytes())
    assert index["agent:main:memory:dm:ada"]["sessionId"] == current
    assert all(path.stat().st_mode & 0o077 == 0 for path in target.iterdir())


async def test_what_was_said_cannot_command_the_terminal(tmp_path):
    async with running(tmp_path / "data") as engine:
        await engine.ask("a\x1b]0;owned\x07\x9b2Jb\n👨‍👩‍👧 c")
        listed = await confidant(tmp_path, "sessions", "list")
        shown = await confidant(tmp_path, "sessions", "show", listed.out.split()[1])
    assert "a]0;owned2Jb\n👨‍👩‍👧 c" in shown.out
    assert not set("\x1b\x07\x9b") & set(shown.out)


class Joining:
    """A terminal that notes which page it is to join."""

    joined = ""

    async def finished(self) -> None:
        raise AssertionError("the folder is taken")

    async def attach(self, url: str, token: str) -> None:
        self.joined = url


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:8420/"), ("::1", "http://[::1]:8420/")]
)
async def test_the_terminal_joins_the_page_of_a_running_bot(tmp_path, host, url):
    settings = {"CONFIDANT_STORAGE__DIR": str(tmp_path / "data"), "CONFIDANT_DASHBOARD__HOST": host}
    loaded = load(None, settings, tmp_path)
    terminal = Joining()
    console = replace(loaded.plugins["console"], create=lambda _config: terminal)
    here = replace(loaded, plugins={**loaded.plugins, "console": console})
    async with running(tmp_path / "data"):
        await chat_here(here)
    assert terminal.joined == url
    async with running(tmp_path / "data", serves=True) as engine:
        await chat_here(here)
        assert engine.app.address is not None
        assert terminal.joined == engine.app.address.url != url


class Alone(Joining):
    """A terminal at whose page nothing answers."""

    async def attach(self, url: str, token: str) -> None:
        await super().attach(url, token)
        raise ChannelError("Nothing answers at 127.0.0.1:8420")


async def test_with_a_shared_database_the_terminal_joins_a_node_and_never_becomes_one(tmp_path):
    settings = {"CONFIDANT_STORAGE__URL": "postgresql://nobody@127.0.0.1:1/none"}
    loaded = load(None, settings, tmp_path)
    for terminal in (Joining(), Alone()):
        console = replace(loaded.plugins["console"], create=lambda _config, made=terminal: made)
        here = chat_here(replace(loaded, plugins={**loaded.plugins, "console": console}))
        if isinstance(terminal, Alone):
            with pytest.raises(ChannelError, match=r"`confidant run`.*Nothing answers"):
                await here
        else:
            await here
        assert terminal.joined == "http://127.0.0.1:8420/"


async def test_looking_takes_no_lock_that_a_message_would_have_to_wait_for(tmp_path):
    async with running(tmp_path / "data") as engine:
        await engine.ask("hello")
    writer = apsw.Connection(str(tmp_path / "data" / "confidant.db"))
    writer.execute("BEGIN IMMEDIATE")  # nobody else can write meanwhile
    for arguments in (("sessions", "list"), ("sessions", "export", "out"), ("pairing", "list")):
        assert (await confidant(tmp_path, *arguments)).code == 0
    writer.close()


async def test_mistakes_are_told_in_a_line_without_a_trace(tmp_path):
    none = await confidant(tmp_path, "sessions", "list")
    assert none.code == 1
    assert "There is no database" in none.err
    async with running(tmp_path / "data") as engine:
        await engine.ask("hello")
    unknown = await confidant(tmp_path, "sessions", "show", "nothing")
    assert unknown.code == 1
    assert "There is no session nothing" in unknown.err
    (tmp_path / "file").write_text("in the way")
    blocked = await confidant(tmp_path, "sessions", "export", str(tmp_path / "file" / "x"))
    assert blocked.code == 1
    assert "cannot be written" in blocked.err
    for done in (none, unknown, blocked):
        assert "Traceback" not in done.err
        assert done.err.count("\n") <= 2


async def test_a_mistake_in_the_configuration_is_told_with_its_line(tmp_path):
    path = tmp_path / "confidant.toml"
    path.write_text('[agent]\nname = "Ada"\nlangauge = "en"\n')
    done = await confidant(tmp_path, "config", "check", "--config", str(path))
    assert done.code == 1
    assert "confidant.toml:3" in done.err
    assert "language" in done.err
    path.write_text('[agent]\nname = "Ada"\n')
    done = await confidant(tmp_path, "config", "check", "--config", str(path))
    assert (done.code, done.err) == (0, "")


async def test_a_second_bot_on_the_same_folder_says_which_process_has_it(tmp_path):
    async with running(tmp_path / "data"):
        second = await confidant(tmp_path, "run")
        assert second.code == 1
        assert f"(process {os.getpid()})" in second.err
        assert "Traceback" not in second.err
        listed = await confidant(tmp_path, "sessions", "list")
        assert listed.code == 0


async def test_the_version_needs_no_command(tmp_path):
    done = await confidant(tmp_path, "--version")
    assert (done.code, done.out) == (0, f"confidant {__version__}\n")


async def doctor(folder: Path, *arguments: str, **variables: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *commands.argv(),
        "doctor",
        *arguments,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUTF8": "1", **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


async def test_nothing_is_set_up(tmp_path):
    code, out, _ = await doctor(tmp_path)
    assert code == 0
    assert out.startswith(f"storage\n  ✓ {tmp_path}/.confidant does not exist yet")
    assert "\nmodel\n  ! no key is set" in out
    assert out.endswith("channels\n  ✓ no channel that can be checked is set up\n")
    assert "→ Put ANTHROPIC_API_KEY=" in out
    assert "memory\n  ✓ it is searched by words and by meaning (multilingual)\n" in out
    assert "tokens\n  ✓ estimated" in out
    code, out, _ = await doctor(tmp_path, "nextcloud")
    assert code == 1
    assert "it is not set up" in out
    code, out, _ = await doctor(tmp_path, "web")
    assert code == 0
    assert "nothing to check" in out
    code, _, err = await doctor(tmp_path, "pigeon")
    assert code == 2
    assert err.startswith('confidant: There is no channel "pigeon": there are ')


def of(out: str, section: str) -> str:
    """What is said below a heading."""
    return out.partition(f"\n{section}\n")[2].partition("\nmemory\n")[0]


async def test_the_model_is_asked_whether_it_takes_the_key_and_is_known(tmp_path):
    async with api.running(api.says("Hi")) as server:
        server.models["claude-x"] = api.model_info("claude-x", 300_000, 64_000)
        server.models["silent"] = api.model_info("silent", None, 8_000)
        variables = {
            "ANTHROPIC_API_KEY": "sk-canary-of-the-key",
            "CONFIDANT_MODELS__ANTHROPIC__BASE_URL": server.base_url,
            "CONFIDANT_AGENT__MODEL": "claude-x",
        }
        code, out, err = await doctor(tmp_path, **variables)
        assert (code, err) == (0, "")
        said = of(out, "model")
        assert "✓ anthropic/claude-x answers and accepts the key" in said
        assert "context window: 300000 tokens, from its service" in said
        code, out, _ = await doctor(tmp_path, **{**variables, "CONFIDANT_AGENT__MODEL": "silent"})
        assert "context window: 200000 tokens assumed, because its service reports none" in out
        code, out, _ = await doctor(tmp_path, **{**variables, "CONFIDANT_AGENT__MODEL": "nobody"})
        assert (code, "! anthropic/nobody: " in of(out, "model")) == (0, True)
        assert "sk-canary" not in out
    code, out, err = await doctor(tmp_path, **variables)
    assert code == 1
    assert "✗ anthropic/claude-x: " in of(out, "model")
    assert "→ Check ANTHROPIC_API_KEY" in out
    code, out, _ = await doctor(tmp_path, **{**variables, "CONFIDANT_AGENT__MODEL": "offline"})
    assert (code, "✓ the offline model answers" in out) == (0, True)
    assert "! anthropic: " in of(out, "model")  # nobody asks it now


async def test_every_configured_service_is_asked_and_a_small_window_is_told(tmp_path):
    async with api.running(api.says("Hi")) as claude, completions.running() as server:
        claude.models["claude-x"] = api.model_info("claude-x", 300_000, 64_000)
        server.pages = completions.ollama(131_072, default=2_048)
        variables = {
            "CONFIDANT_MODELS__ANTHROPIC__BASE_URL": claude.base_url,
            "CONFIDANT_MODELS__LOCAL__KIND": "openai",
            "CONFIDANT_MODELS__LOCAL__BASE_URL": server.base_url,
            "CONFIDANT_AGENT__MODEL": "local/qwen3",
        }
        code, out, err = await doctor(tmp_path, **variables)
        assert (code, err) == (1, "")
        said = of(out, "model")
        assert "✓ anthropic answers without a key and lists 1 model\n" in said
        assert "✓ local/qwen3 answers without a key" in said
        assert "✗ its context window has 2048 tokens; conversations need 4000" in said
        assert "→ Set [models.local] window" in said
        wide = {**variables, "CONFIDANT_MODELS__LOCAL__WINDOW": "32768"}
        code, out, _ = await doctor(tmp_path, **wide)
        assert (code, "32768 tokens, from the configuration" in out) == (0, True)
        others = {"CONFIDANT_AGENT__FALLBACK": "anthropic/claude-x, anthropic/nobody"}
        _, out, _ = await doctor(tmp_path, **wide, **others)
        assert "✓ anthropic/claude-x answers" in of(out, "model")
        assert "! anthropic/nobody: " in of(out, "model")


async def test_who_insists_on_tiktoken_is_told_that_its_ranks_are_missing(tmp_path):
    variables = {"CONFIDANT_CONTEXT__TOKENIZER": "tiktoken", "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    code, out, _ = await doctor(tmp_path, **variables)
    assert code == 1
    assert "✗ estimated: tiktoken's ranks are not installed" in out
    code, out, _ = await doctor(tmp_path, CONFIDANT_MEMORY__EMBEDDER__PROVIDER="none")
    assert (code, "searched by words alone, as set in [memory]" in out) == (0, True)


async def test_a_set_up_is_checked_while_the_bot_runs(tmp_path):
    async with FakeNextcloud() as fake:
        port = free_port()
        section = "CONFIDANT_CHANNELS__NEXTCLOUD_TALK__"
        variables = {
            f"{section}BASE_URL": fake.url,
            f"{section}PUBLIC_URL": f"http://127.0.0.1:{port}",
            f"{section}API_USER": API_USER,
            "NEXTCLOUD_TALK_BOT_SECRET": SECRET,
            "NEXTCLOUD_TALK_API_PASSWORD": API_PASSWORD,
        }
        async with nextcloud.running(RecordingEngine(), nextcloud.settings(fake, port)):
            code, out, err = await doctor(tmp_path, "nextcloud-talk", **variables)
            assert (code, err) == (0, "")
            assert out.startswith("nextcloud_talk\n  ✓ the secret has")
            assert "✗" not in out
            fake.bots[0].features &= ~RESPONSE
            code, out, err = await doctor(tmp_path, **variables)
        assert code == 1
        assert "✗ the bot lacks the feature response" in out
        assert "→ occ talk:bot:list" in out
        assert SECRET not in out + err


async def test_what_was_not_answered_and_not_sent_is_shown(tmp_path):
    data = tmp_path / "data"
    async with beside(data) as database:
        variables = {"CONFIDANT_STORAGE__DIR": str(data)}
        code, out, _ = await doctor(tmp_path, **variables)
        assert code == 0
        assert "✓ every message was answered" in out
        person = Inbound("telegram", "default", "7", "direct", "7", "m1", "hello", NOON)

        def work(tx):
            row = inbox.store(tx, person, inbox.storable(person)[1], "key", NOON)
            inbox.set_aside(tx, row, "ValueError", NOON)
            for again in (True, False):
                letter = outbox.add(tx, person.address, "secret words", NOON)
                outbox.park(tx, letter.id, "SendTransient", NOON, again=again)

        await database.write(work)
    code, out, _ = await doctor(tmp_path, **variables)
    assert code == 0
    assert "! a message from 2026-11-2" in out
    assert "was set aside (telegram, ValueError)" in out
    assert "! telegram: 1 message could not be sent" in out
    assert "! telegram: 1 message was refused" in out
    assert "secret" not in out
    assert "hello" not in out


SECONDS = 120.0
CHANNELS = {"discord", "nextcloud_talk", "telegram", "web"}
# What libraries, threads and the interpreter do wrong, at a signal.
MISDEEDS = """
import asyncio, logging, signal, sys, threading, warnings

class Unruly:
    def __del__(self):
        raise ValueError("from a finalizer")

async def forgotten():
    raise KeyError("nobody looks at this task")

def act():
    warnings.simplefilter("always")
    warnings.warn("a library says that\\nsomething is old", DeprecationWarning)
    try:
        raise OSError("with a trace")
    except OSError:
        logging.getLogger("discord.client").exception("two\\nlines")
    logging.getLogger("uvicorn.error").error("%d is no number", "x")
    logging.getLogger("aiohttp.server").warning("half a character \\udc80")
    thread = threading.Thread(target=lambda: 1 / 0, name="lost")
    thread.start()
    thread.join()
    Unruly()
    task = asyncio.ensure_future(forgotten())
    task.add_done_callback(lambda _: None)

signal.signal(signal.SIGUSR1, lambda *_: asyncio.get_running_loop().call_soon(act))
from bot.cli import main
main()
"""
BROKEN = """
from bot.cli import serve
serve.embed.missing = lambda _: 1 / 0
from bot.cli import main
main()
"""


PLAIN = "from bot.cli import main; main()"
STUCK = """
import asyncio, threading
from bot.cli import serve
serve.STOP_SECONDS = 1

async def never(_self, *_):
    threading.Thread(target=threading.Event().wait).start()
    await asyncio.Event().wait()

serve.App.__aexit__ = never
from bot.cli import main
main()
"""


@asynccontextmanager
async def platforms() -> AsyncGenerator[tuple[dict[str, str], FakeTelegram]]:
    """A Telegram, a Discord and a Nextcloud of this machine, and what connects a bot to them."""
    prefix = "CONFIDANT_CHANNELS__"
    async with FakeTelegram() as telegram, FakeDiscord() as discord, FakeNextcloud() as nextcloud:
        yield (
            {
                f"{prefix}TELEGRAM__TOKEN": TOKEN,
                f"{prefix}TELEGRAM__API_ROOT": telegram.url,
                f"{prefix}DISCORD__TOKEN": DISCORD_TOKEN,
                f"{prefix}DISCORD__API_ROOT": discord.api_root,
                f"{prefix}DISCORD__GATEWAY_URL": discord.gateway_url,
                f"{prefix}NEXTCLOUD_TALK__BASE_URL": nextcloud.url,
                f"{prefix}NEXTCLOUD_TALK__BOT_SECRET": SECRET,
                f"{prefix}NEXTCLOUD_TALK__API_USER": API_USER,
                f"{prefix}NEXTCLOUD_TALK__API_PASSWORD": API_PASSWORD,
                f"{prefix}NEXTCLOUD_TALK__WEBHOOK_PORT": str(free_port()),
            },
            telegram,
        )


class Log:
    """The log of a program; every line that comes is parsed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        self._lines = process.stderr
        self.events: list[dict[str, Any]] = []

    async def has(self, event: str, **fields: str) -> dict[str, Any]:
        """Read until there is such an event."""
        wanted = {"event": event, **fields}
        seen = 0
        async with asyncio.timeout(SECONDS):
            while True:
                for each in self.events[seen:]:
                    if wanted.items() <= each.items():
                        return each
                seen = len(self.events)
                assert await self._one(), [each["event"] for each in self.events]

    async def rest(self) -> None:
        """Read to the end."""
        async with asyncio.timeout(SECONDS):
            while await self._one():
                pass

    async def _one(self) -> bool:
        line = await self._lines.readline()
        if line:
            event = orjson.loads(line)
            assert {"event", "level", "timestamp"} <= event.keys(), event
            self.events.append(event)
        return bool(line)


async def start(
    folder: Path, program: Sequence[str], variables: dict[str, str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(*program, "run", "--log", "json"),
        cwd=folder,
        env=variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )


async def test_every_line_is_json_with_every_channel_and_whatever_goes_wrong(tmp_path):
    async with platforms() as (variables, _telegram):
        script = (sys.executable, "-c", MISDEEDS)
        process = await start(tmp_path, script, with_settings(tmp_path, **variables))
        try:
            log = Log(process)
            page = (await log.has("program.started"))["page"]
            for channel in CHANNELS:
                await log.has("channel.health", channel=channel, health="up")
            async with aiohttp.ClientSession() as client:  # what a server's library would tell
                async with client.get(f"{page}no-such-page") as answer:
                    assert answer.status in {303, 401, 404}, answer.status
                port = int(page.rstrip("/").rsplit(":", 1)[1])
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"no HTTP at all\r\n\r\n")
                await reader.read()
                writer.close()
            process.send_signal(signal.SIGUSR1)
            warned = await log.has("library", logger="py.warnings")
            assert "something is old" in warned["message"]
            traced = await log.has("library", logger="discord.client")
            assert (traced["message"], traced["level"]) == ("two\nlines", "error")
            assert "OSError: with a trace" in traced["exception"]
            wrong = await log.has("library", logger="uvicorn.error")
            assert wrong["message"] == "%d is no number"
            await log.has("library", logger="aiohttp.server")
            assert "ZeroDivisionError" in (await log.has("thread.failed"))["exception"]
            assert "from a finalizer" in (await log.has("program.unraisable"))["exception"]
            lost = await log.has("library", logger="asyncio")
            assert "nobody looks at this task" in lost["exception"]
            process.send_signal(signal.SIGTERM)
            await log.rest()
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.stdout is not None
        assert await process.stdout.read() == b""  # where both are one stream it is JSON too
    assert [each["event"] for each in log.events[-1:]] == ["program.stopped"]
    told = orjson.dumps(log.events).decode()
    assert not [secret for secret in (TOKEN, DISCORD_TOKEN, SECRET, API_PASSWORD) if secret in told]


@pytest.mark.parametrize(
    ("script", "more", "event", "words"),
    [
        (BROKEN, {}, "program.crashed", "ZeroDivisionError"),
        long("", {"CONFIDANT_DASHBOARD__HOST": "0.0.0.0"}, "program.not_started", "TOKEN"),
        long("", {"CONFIDANT_STORAGE__DIR": "/dev/null/x"}, "program.not_started", "dir"),
        long("", {"CONFIDANT_AGENT__NAMES": "x"}, "program.not_started", "CONFIDANT_AGENT__NAME"),
    ],
)
async def test_what_keeps_it_from_starting_is_json_too(tmp_path, script, more, event, words):
    program = (sys.executable, "-c", script) if script else commands.argv()
    process = await start(tmp_path, program, with_settings(tmp_path, **more))
    log = Log(process)
    found = await log.has(event)
    await log.rest()
    assert await process.wait() == 1
    assert words in orjson.dumps(found).decode()


@pytest.mark.parametrize(
    ("script", "number", "status"), [(PLAIN, signal.SIGHUP, 0), (STUCK, signal.SIGTERM, 1)]
)
async def test_a_stop_ends_the_program_whatever_holds_it_up(tmp_path, script, number, status):
    process = await start(tmp_path, (sys.executable, "-c", script), with_settings(tmp_path))
    log = Log(process)
    await log.has("program.started")
    process.send_signal(number)
    await log.has("program.stopping")
    async with asyncio.timeout(SECONDS):
        assert process.stderr is not None
        left = await process.stderr.read()
        assert await process.wait() == status
    assert (b"Timeout (0:00:01)!" in left) is (script == STUCK)


async def test_sigquit_shows_what_the_program_is_doing(tmp_path):
    process = await start(tmp_path, (sys.executable, "-c", PLAIN), with_settings(tmp_path))
    log = Log(process)
    await log.has("program.started")
    process.send_signal(signal.SIGQUIT)
    async with asyncio.timeout(SECONDS):
        assert process.stderr is not None
        assert b"(most recent call first)" in await process.stderr.readuntil(b"_run serve.py:")
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(SECONDS):
        await process.stderr.read()
        assert await process.wait() == 0


@pytest.mark.parametrize("form", sample(["json"], ["console", "plain"]))
async def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, form):
    here = with_settings(tmp_path, CONFIDANT_LOG__LEVEL="debug", CONFIDANT_LOG__FORMAT="auto")
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from bot.cli import main; main()", "run"),
            *(("--log", form) if form != "json" else ()),
            cwd=tmp_path,
            env=here,
            stdout=asyncio.subprocess.PIPE,
            stderr=full,
        )
    finally:
        os.close(full)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            while not (line := await process.stdout.readline()).startswith(b"Confidant is at "):
                assert line
            url = line.decode().split()[-1]
            async with aiohttp.ClientSession() as client:
                is_ready = False
                while not is_ready:
                    async with client.get(f"{url}readyz") as answer:
                        is_ready = answer.status == 200
                    await pause(0.02)
            process.send_signal(signal.SIGTERM)
            # Python itself says 120 where it could not flush standard error at the end.
            assert await process.wait() in {0, 120}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
