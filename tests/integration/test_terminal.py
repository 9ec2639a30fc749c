"""Commands in a real terminal: what a person sees there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot import __version__
from bot.cli.main import cli
from tests.fakes.commands import argv
from tests.fakes.terminal import environment, terminal
from tests.proofs.rounds import long
from tests.support import running

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("logs_stay")]

PROGRAM = Path(sys.executable).with_name("confidant")


# A stop that takes as long as a reply that is being written, until Ctrl-C may be pressed again.
SLOW = """
import asyncio
from bot.cli import main, serve

class Slow(serve.App):
    async def __aexit__(self, *exc):
        await asyncio.sleep(serve.SAME_SIGNAL * 2)
        print("still busy", flush=True)
        await asyncio.Event().wait()

serve.App = Slow
main()
"""
EARLY = """
import time
from bot.cli import main, serve

def load(*_, **__):
    print("loading", flush=True)
    time.sleep(600)

serve.load = load
main()
"""


@pytest.mark.proof
async def test_a_backup_and_a_restore_show_how_far_they_are(tmp_path):
    async with running(tmp_path / "data") as engine:
        await engine.ask("hello")
    here = environment(tmp_path)
    for words, bar, last in (
        (("backup", "all.backup"), "Backing up", "It is not encrypted"),
        (("restore", "--check", "all.backup"), "Checking", "Nothing was changed."),
        (("restore", "all.backup"), "Restoring", "The previous contents are kept in"),
    ):
        async with terminal(*argv(), *words, folder=tmp_path, variables=here) as seen:
            assert await seen.ends() == 0, seen.text
        assert last in seen.text
        assert not any(bar in line for line in seen.lines)  # nothing is left of it
        shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen.raw)
        assert re.search(rf"{bar} [━╸╺]+ +\d+% +[\d.,]+", shown), seen.raw
        again = ("backup", "again.backup") if words[0] == "backup" else words
        async with terminal(*argv(), *again, "--quiet", folder=tmp_path, variables=here) as seen:
            assert await seen.ends() == 0, seen.text
        assert last in seen.text
        assert bar not in seen.text


def test_the_index_shows_how_far_it_is(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "workspace" / "memory"
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"{number}.md").write_text(f"- note {number}\n" * 400)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bot.cli.memory.LOOK_SECONDS", 0.001)
    here = environment(tmp_path, TTY_COMPATIBLE="1")
    done = CliRunner().invoke(cli, ["memory", "index"], env=here)
    assert done.exit_code == 0, done.output
    assert "passages of 32 files." in done.stdout
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", done.stderr)
    assert re.search(r"Indexing notes [━╸╺]+ +\d+% +\d+/32 notes", shown)
    assert done.stderr.endswith("\r\x1b[1A\x1b[2K")


async def test_a_start_says_what_a_person_needs_and_then_nothing(tmp_path):
    here = environment(tmp_path, CONFIDANT_DASHBOARD__TOKEN="Qw7-" * 8)
    async with terminal(PROGRAM, "run", folder=tmp_path, variables=here) as seen:
        await seen.shows("Confidant is at http://127.0.0.1:")
        seen.type("\x03")
        assert await seen.ends() == 0
    said = re.sub(r":\d+/", ":PORT/", "\n".join(line.lstrip("\r") for line in seen.lines))
    assert said.replace("^C\r", "") == (
        f"Confidant {__version__}\n"
        "  Model     offline, until it has a key (on the page: Settings, Quick setup)\n"
        f"  Folder    {tmp_path}/data\n"
        "  Channels  web\n"
        f"  Log in    {PROGRAM} login owner\n"
        "  Stop      Ctrl-C\n"
        "Confidant is at http://127.0.0.1:PORT/\n"
        "Stopping, once the replies being written are finished.\n"
        "Stopped.\n"
    )


@pytest.mark.proof
async def test_a_connection_that_is_lost_is_a_plain_line(tmp_path):
    here = environment(
        tmp_path,
        CONFIDANT_CHANNELS__TELEGRAM__TOKEN="123456789:AAFakeTokenForTestsOnly_0123456789abc",
        CONFIDANT_CHANNELS__TELEGRAM__API_ROOT="http://127.0.0.1:1",
    )
    async with terminal(PROGRAM, "run", folder=tmp_path, variables=here) as seen:
        await seen.shows("telegram: Telegram cannot be reached.")
        seen.type("\x03")
        assert await seen.ends() == 0
    assert "Channels  telegram, web" in seen.text
    assert not re.search(r"\w+\.\w+ +\w+=|\{", seen.text)  # no event, no JSON


@pytest.mark.parametrize(
    ("asked", "first"), [("json", "{"), long("console", "20"), long("plain", "Confidant ")]
)
async def test_another_log_can_be_asked_for(tmp_path, asked, first):
    async with terminal(
        *argv(), "run", "--log", asked, folder=tmp_path, variables=environment(tmp_path)
    ) as seen:
        await seen.shows("http://127.0.0.1:")
        seen.type("\x03")
        assert await seen.ends() == 0
    assert seen.text.startswith(first)


@pytest.mark.parametrize(("colour", "has"), [({"NO_COLOR": "1"}, False), long({}, True)])
async def test_colours_are_left_out_where_nobody_wants_them(tmp_path, colour, has):
    here = environment(tmp_path, **colour)
    for words in (("run", "--log", "console"), ("--help",), ("usage",)):
        async with terminal(*argv(), *words, folder=tmp_path, variables=here) as seen:
            if words[0] == "run":
                await seen.shows("http://127.0.0.1:")
                seen.type("\x03")
            assert await seen.ends() == 0, seen.text
        coloured = bool(re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])[0-9;]*m", seen.raw))
        assert coloured == (has and words[0] != "usage"), (words, seen.raw)


async def test_ctrl_c_twice_ends_it_at_once_with_a_line_and_nothing_is_lost(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    program = (sys.executable, tmp_path / "slow.py", "run")
    async with terminal(*program, folder=tmp_path, variables=environment(tmp_path)) as seen:
        await seen.shows("Confidant is at")
        seen.type("\x03")
        await seen.shows("Stopping")
        await seen.shows("still busy")
        seen.type("\x03")
        assert await seen.ends() == 130
    assert seen.text.endswith(
        "Stopped at once. Unfinished replies are written after the next start.\n"
    )
    assert "Traceback" not in seen.text
    async with terminal(*argv(), "run", folder=tmp_path, variables=environment(tmp_path)) as seen:
        await seen.shows("Confidant is at")
        seen.type("\x03")
        assert await seen.ends() == 0


@pytest.mark.proof
async def test_ctrl_c_while_it_loads_ends_it_with_a_line(tmp_path):
    (tmp_path / "early.py").write_text(EARLY)
    program = (sys.executable, tmp_path / "early.py", "run")
    async with terminal(*program, folder=tmp_path, variables=environment(tmp_path)) as seen:
        await seen.shows("loading")
        seen.type("\x03")
        assert await seen.ends() == 130
    assert seen.lines[-2:] == ["^C\rStopped.", ""]
