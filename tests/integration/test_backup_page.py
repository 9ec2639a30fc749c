"""Backups by the page: made, listed, downloaded by the owner alone, and put back by a command."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

from bot.portability import backup as making
from bot.portability import restore
from tests.fakes.started import Started, started

NAME = re.compile(r'name="name" value="([^"]+)"')
TOKEN = "0123456789abcdef-page"


async def make(program: Started) -> tuple[str, list[str]]:
    """Press the button; what is shown, and the files that can be downloaded."""
    status, page = await program.post("/backups/make")
    assert status == 200
    return page, NAME.findall(page)


async def download(program: Started, name: str) -> tuple[int, bytes, str]:
    headers = {"Origin": program.url}
    async with program.page.post(
        f"{program.url}/backups/download", data={"name": name}, headers=headers
    ) as answer:
        return answer.status, await answer.read(), answer.headers.get("Content-Disposition", "")


async def test_one_is_made_without_a_folder_and_restores_what_was_said(tmp_path):
    async with started(tmp_path) as program:
        assert "None yet" in await program.get("/backups")
        await program.ask("the code of my bike is 4711")
        page, (name,) = await make(program)
        assert "Backup made." in page
        assert "Only when you make one" in page
        assert "can read everything in it" in page
        assert f"restore {program.folder / 'backups' / name}" in page
        status, data, said = await download(program, name)
        assert (status, said) == (200, f'attachment; filename="{name}"')
        kept = tmp_path / "copy.backup"
        kept.write_bytes(data)
        assert data == (program.folder / "backups" / name).read_bytes()
    await restore.rehearse(kept, tmp_path, lambda: None)


async def test_with_a_folder_the_next_one_is_told_and_a_failure_with_its_reason(tmp_path):
    target = tmp_path / "disk"
    target.mkdir()
    place = {"CONFIDANT_BACKUP__FOLDER": str(target), "CONFIDANT_BACKUP__PASSPHRASE": "words"}
    async with started(tmp_path, **place) as program:
        assert "In a few minutes" in await program.get("/backups")
        page, (name,) = await make(program)
        assert "can read everything in it" not in page
        assert "In a few minutes" not in page
        assert (target / name).is_file()
        target.rename(tmp_path / "gone")
        page = await program.get("/backups")
        assert "cannot be used" in page
        page, files = await make(program)
        assert files == []
        assert re.search(r"Failed today|Failed \S+", page)
        assert "Backup made." not in page


@pytest.mark.parametrize(
    "name", ["", "confidant.db", "../confidant.db", "/etc/passwd", "\0", "confidant-x.backup"]
)
async def test_nothing_but_a_backup_is_downloaded(tmp_path, name):
    async with started(tmp_path) as program:
        status, data, _ = await download(program, name)
        assert status in {400, 404}
        assert b"SQLite" not in data


async def test_nobody_but_the_owner_downloads_and_no_other_site(tmp_path):
    async with started(tmp_path, CONFIDANT_DASHBOARD__TOKEN=TOKEN) as program:
        await program.post("/login", token=TOKEN)
        _, (name,) = await make(program)
        url = f"{program.url}/backups/download"
        async with aiohttp.ClientSession() as stranger:
            headers = {"Origin": program.url}
            async with stranger.post(url, data={"name": name}, headers=headers) as answer:
                assert answer.status == 401
        headers = {"Origin": "https://elsewhere.example"}
        async with program.page.post(url, data={"name": name}, headers=headers) as answer:
            assert answer.status == 403
        assert (await download(program, name))[0] == 200


async def test_two_presses_make_one_and_a_slow_one_is_told(tmp_path, monkeypatch):
    gate, calls = asyncio.Event(), list[Path]()
    make_it = making.make

    async def slowly(config, target, *rest, **more):  # noqa: ANN002
        calls.append(target)
        await gate.wait()
        return await make_it(config, target, *rest, **more)

    monkeypatch.setattr(making, "make", slowly)
    monkeypatch.setattr("bot.dashboard.overview.WAIT_SECONDS", 0.05)
    async with started(tmp_path) as program:
        page, files = await make(program)
        assert (files, "A backup is being made." in page) == ([], True)
        await make(program)
        assert len(calls) == 1
        gate.set()
        monkeypatch.undo()
        page, files = await make(program)  # waits for the same one
        assert (len(files), "Backup made." in page) == (1, True)
    monkeypatch.setattr(making, "make", slowly)
    monkeypatch.setattr("bot.dashboard.overview.WAIT_SECONDS", 0.05)
    gate.clear()
    async with started(tmp_path) as program:
        await make(program)  # the program stops while one is made
    assert len(list((tmp_path / "data" / "backups").glob("*.backup"))) == 1
