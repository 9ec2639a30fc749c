"""The commands as they are typed, in processes of their own, with and without a running bot."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import apsw
import orjson
import pytest

from bot import __version__
from bot.cli.serve import chat_here
from bot.errors import ChannelError
from bot.sessions.transcript_files import everything
from bot.settings import load
from tests.fakes import commands
from tests.support import Engine, running

pytestmark = pytest.mark.slow

PROGRAM = (sys.executable, "-c", "from bot.cli import main; main()")
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


async def begin(
    folder: Path, *arguments: str, program: Sequence[str] = PROGRAM
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *program,
        *arguments,
        cwd=folder,
        env=environment(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def confidant(folder: Path, *arguments: str) -> Done:
    process = await begin(folder, *arguments, program=commands.argv())
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
        assert wrong.err.startswith("confidant: No valid code of telegram")
        approved = await confidant(tmp_path, "pairing", "approve", "memory", code.lower())
        assert (approved.code, approved.err) == (0, "")
        assert "memory:ada may talk to the bot now" in approved.out
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        assert engine.sent_to("ada")[1].startswith("You're in.")
        assert await engine.ask("hello") == "You said: hello"
        assert "approved  memory:ada" in (await confidant(tmp_path, "pairing", "list")).out
        revoked = await confidant(tmp_path, "pairing", "revoke", "memory", "ada")
        assert "must ask again" in revoked.out
        assert "pairing approve" in await engine.ask("hello?")
        blocked = await confidant(tmp_path, "pairing", "block", "memory", "ada")
        assert "gets no answer" in blocked.out
        assert "blocked   memory:ada" in (await confidant(tmp_path, "pairing", "list")).out
        freed = await confidant(tmp_path, "pairing", "unblock", "memory", "ada")
        assert "may ask again" in freed.out
        for what in ("unblock", "block"):  # neither blocked, nor anybody who asked of late
            refused = await confidant(tmp_path, "pairing", what, "memory", "ada")
            assert (refused.code, refused.out) == (1, "")
        again = await confidant(tmp_path, "pairing", "revoke", "memory", "bob")
        assert again.code == 1
        assert "was not let in by pairing" in again.err


async def test_an_own_account_that_is_approved_with_me_is_the_owners_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.coordination.LOOK_SECONDS", 0.01)
    async with running(tmp_path / "data", channels=CLOSED) as engine:
        engine.clock.now = _now()
        (tmp_path / "data/workspace/MEMORY.md").write_text("- The boat is red\n")
        code = await code_for(engine, "ada")
        done = await confidant(tmp_path, "pairing", "approve", "memory", code, "--me")
        assert (done.code, done.err) == (0, "")
        assert "It is your own account from now on; /unlink" in done.out
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        assert "for the same person from now on" in engine.sent_to("ada")[1]
        assert "my owner" in await engine.ask("/whoami")
        assert "boat is red" in await engine.ask("/memory show MEMORY.md")
        listed = (await confidant(tmp_path, "pairing", "list")).out
        assert re.search(r"approved  memory:ada .*\(you\)", listed)
        code = await code_for(engine, "bob")
        other = await confidant(tmp_path, "pairing", "approve", "memory", code, "--not-me")
        assert (other.code, "your own" in other.out) == (0, False)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("bob")) == 2)
        assert "known to me as `memory:bob`" in await engine.ask("/whoami", sender="bob")
        assert "on their own again: 1" in await engine.ask("/unlink")
        assert "known to me as `memory:ada`" in await engine.ask("/whoami")
    async with running(tmp_path / "data", channels=CLOSED) as engine:
        assert "known to me as `memory:ada`" in await engine.ask("/whoami")


async def test_whom_the_configuration_names_cannot_be_made_the_owners_by_an_approval(tmp_path):
    async with running(tmp_path / "data", channels=CLOSED) as engine:
        engine.clock.now = _now()
        code = await code_for(engine, "ada")
    (tmp_path / "confidant.toml").write_text('[session.identity_links]\nbob = ["memory:ada"]\n')
    refused = await confidant(tmp_path, "pairing", "approve", "memory", code, "--me")
    assert refused.code == 1
    assert "Nothing was changed: approve it without --me" in refused.err
    assert f"code {code}" in (await confidant(tmp_path, "pairing", "list")).out
    assert (await confidant(tmp_path, "pairing", "approve", "memory", code)).code == 0


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
    assert b"Is that you, with another account?" in out
    assert (b"It is your own account from now on" in out) == is_me
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
        await engine.ask("first 中文")
        await engine.ask("/new")
        await engine.ask("second")
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
    mirror = {path.name: path.read_bytes() for path in everything(tmp_path / "data/sessions")}
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
    first = await begin(tmp_path, "run")
    assert first.stdout is not None
    line = await asyncio.wait_for(first.stdout.readline(), 60)
    assert line.startswith(b"Confidant is at http://127.0.0.1:")
    second = await confidant(tmp_path, "run")
    assert second.code == 1
    assert f"(process {first.pid})" in second.err
    assert "Traceback" not in second.err
    listed = await confidant(tmp_path, "sessions", "list")
    assert listed.code == 0
    first.send_signal(signal.SIGTERM)
    await asyncio.wait_for(first.communicate(), 60)
    assert first.returncode == 0


async def test_the_version_needs_no_command(tmp_path):
    done = await confidant(tmp_path, "--version")
    assert (done.code, done.out) == (0, f"confidant {__version__}\n")
