"""`confidant login NAME`: a link that lets in once, made beside a program that runs or does not."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bot.channel import Inbound
from bot.cli.main import cli
from bot.clock import system_clock
from bot.errors import ConfidantError, StorageError
from bot.identity import MessageOrigin
from bot.sessions import page_logins, pairing
from bot.storage import Transaction
from bot.views import people
from tests.fakes.page_people import LINK, TOKEN, browser, browsers, key_in, serving
from tests.support import Engine, beside

pytestmark = pytest.mark.usefixtures("logs_stay")

SITE = "https://bot.example.org"
HOSTILE = (
    "",
    " ",
    "-a",
    "a b",
    "a/b",
    "..",
    "é",
    "a" * 33,
    "ada<script>",
    "a\nb",
    "' OR 1=1 --",
    "\0",
)


async def login(
    folder: Path, name: str, *, token: str = TOKEN, url: str = "", site: str = SITE
) -> Result:
    """The command as it is typed, beside whatever runs on the folder."""
    file = folder / "confidant.toml"
    storage = f'url = "{url}"' if url else ""
    origins = f'allowed_origins = ["{site}"]' if site else "port = 8765"
    file.write_text(
        f'[storage]\ndir = "{folder}"\n{storage}\n[dashboard]\ntoken = "{token}"\n{origins}\n'
    )
    return await asyncio.to_thread(
        CliRunner().invoke, cli, ["login", "--config", str(file), "--", name]
    )


async def link(folder: Path, name: str, **more: str) -> str:
    """The key of the link that it prints."""
    done = await login(folder, name, **more)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{SITE}/enter?key=")
    assert done.stdout.count("\n") == 1  # to be passed on by another program
    return key_in(done.stdout)


@asynccontextmanager
async def running(folder: Path, **sections: Any) -> AsyncIterator[Engine]:
    """The program, at the time that the command knows; a node has that of its server."""
    async with serving(folder, **sections) as engine:
        if not sections.get("storage"):
            engine.clock.now = system_clock()
        yield engine


@pytest.mark.parametrize("kept", ["a folder", "PostgreSQL"])
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
async def test_the_link_of_a_name_lets_in_once(tmp_path, request, kept, *, is_running):
    url = request.getfixturevalue("postgres_url") if kept == "PostgreSQL" else ""
    storage = {"url": url} if url else {}
    async with running(tmp_path, storage=storage) as engine, browsers(engine, 2) as (ada, eve):
        if is_running:
            key = await link(tmp_path, "Ada ", url=url)
            assert await ada.post("/enter", key=key) == (303, "/")
            assert await ada.who() == "ada"
            assert (await eve.post("/enter", key=key))[0] == 410
    if is_running:
        return
    key = await link(tmp_path, "ada", url=url)
    async with running(tmp_path, storage=storage) as engine, browsers(engine, 2) as (ada, eve):
        assert await ada.post("/enter", key=key) == (303, "/")
        assert await ada.who() == "ada"
        assert (await eve.post("/enter", key=key))[0] == 410


@pytest.mark.parametrize(("name", "minutes"), [("owner", 10), ("ada", 24 * 60)])
async def test_a_link_is_good_for_ten_minutes_or_somebody_elses_for_a_day(tmp_path, name, minutes):
    async with running(tmp_path) as engine, browsers(engine, 2) as (one, two):
        for browser_, late, status in ((one, -0.5, 303), (two, 0.5, 410)):
            key = await link(tmp_path, name)
            engine.clock.now = system_clock()
            engine.clock.advance(minutes=minutes + late)
            assert (await browser_.post("/enter", key=key))[0] == status
        assert (await one.who(), await two.who()) == (name, "")


async def test_a_page_with_any_port_is_found_while_it_runs_and_no_link_leads_nowhere(tmp_path):
    data = tmp_path / "data"
    (tmp_path / "confidant.toml").write_text(
        f'[storage]\ndir = "{data}"\n[dashboard]\nport = 0\ntoken = "{TOKEN}"\n'
    )
    words = ["login", "--config", str(tmp_path / "confidant.toml"), "ada"]
    refused = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "a new port at each start" in str(refused.exception)
    async with running(data) as engine, browser(engine) as ada:
        assert engine.app.address is not None
        done = await asyncio.to_thread(CliRunner().invoke, cli, words)
        assert done.stdout.startswith(f"{engine.app.address.url}enter?key=")
        assert await ada.post("/enter", key=key_in(done.stdout)) == (303, "/")
        assert stat.S_IMODE((data / "confidant.page").stat().st_mode) == 0o600
        left = (data / "confidant.page").read_text()
    assert not (data / "confidant.page").exists()
    for stale in (left, "1\nhttp://127.0.0.1:9/\n/\n", "\x00", ""):  # what a kill left
        (data / "confidant.page").write_text(stale)
        assert (await asyncio.to_thread(CliRunner().invoke, cli, words)).exit_code == 1


async def test_what_is_no_name_is_refused_and_nobody_is_let_in(tmp_path):
    async with running(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        for name in HOSTILE:
            done = await login(tmp_path, name)
            assert (name, done.exit_code, done.stdout) == (name, 1, "")
            assert isinstance(done.exception, ConfidantError)
            assert "small letters a to z" in str(done.exception)
        assert "Only you." in (await owner.get("/logins"))[1]


async def test_whoever_is_blocked_gets_no_link_until_they_are_let_in_again(tmp_path):
    seat, name = ("memory", "eve"), "memory-0123abcd"
    origin = MessageOrigin("memory", "default", "eve", "direct", "eve")
    asked = Inbound("memory", "default", "eve", "direct", "eve", "1", "hi", system_clock())

    def block(tx: Transaction) -> None:
        now = system_clock()
        page_logins.add(tx, name, now, origin, seat)
        pairing.ask(tx, asked, "ABCD2345", now)
        assert people.block(tx, seat, now) is not None

    async with running(tmp_path):
        pass
    async with beside(tmp_path) as database:
        await database.write(block)
        done = await login(tmp_path, name)
        assert (done.exit_code, LINK.search(done.output)) == (1, None)
        assert "may no longer talk to the bot" in str(done.exception)
        assert "confidant pairing list" in str(done.exception)
        await database.write(lambda tx: people.let_in_again(tx, seat, system_clock()))
    assert (await login(tmp_path, name)).exit_code == 0


async def test_it_says_what_is_missing(tmp_path):
    done = await login(tmp_path, "ada")
    assert isinstance(done.exception, StorageError)
    assert "start `confidant run` once" in str(done.exception)
    done = await login(tmp_path, "ada", token="")
    assert "CONFIDANT_DASHBOARD__TOKEN" in str(done.exception)
    async with running(tmp_path):
        pass
    done = await login(tmp_path, "ada", site="")
    assert done.stdout.startswith("http://127.0.0.1:8765/enter?key=")
    assert "allowed_origins" in done.stderr
    assert "within a day" in done.stderr
    assert "within ten minutes" in (await login(tmp_path, "owner", site="")).stderr


async def test_a_command_that_reads_other_files_than_the_running_bot_says_so(tmp_path, monkeypatch):
    place, elsewhere = tmp_path / "srv", tmp_path / "elsewhere"
    for folder in (place, elsewhere):
        folder.mkdir()
    (place / ".env").write_text(f"CONFIDANT_DASHBOARD__TOKEN={TOKEN}\n")
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))

    async def said(folder: Path) -> tuple[str, bool]:
        monkeypatch.chdir(folder)
        done = await asyncio.to_thread(CliRunner().invoke, cli, ["login", "ada"])
        return done.stderr, done.exit_code == 0

    monkeypatch.chdir(place)
    async with running(tmp_path / "data"):
        told, is_done = await said(elsewhere)
        assert f"The running bot was started in {place}. This command does not read" in told
        assert "(.env)" in told
        assert not is_done
        told, is_done = await said(place)
        assert "started in" not in told
        assert is_done
    told, is_done = await said(elsewhere)
    assert "started in" not in told
