"""Moving in where nodes share a PostgreSQL: rows instead of files, else the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.config import Config
from bot.identity.view import MemoryView
from bot.importing import exports, storing
from bot.importing.openclaw import home, moving
from bot.importing.storing import Owner
from bot.portability.person import snapshot_of
from bot.sessions import browsing
from bot.storage import Transaction
from tests.fakes import exports as made
from tests.fakes import openclaw
from tests.support import FakeClock, make_config


def config_for(folder: Path, url: str) -> Config:
    return make_config(folder, storage={"url": url})[0]


async def test_conversations_are_brought_beside_nodes_once(tmp_path, postgres_url):
    talks = [made.chatgpt(f"c{n}", f"my boat is called Qualle{n}", "Fine.") for n in range(3)]
    export = exports.look(made.pack(tmp_path / "gpt.zip", talks), "chatgpt")
    config = config_for(tmp_path / "home", postgres_url)
    for expected in (6, 0):
        async with storing.opened(config, FakeClock()) as target:
            done = await storing.bring(
                target.database, export.talks(), lambda _: Owner("main"), FakeClock()()
            )
            assert done.messages == expected

    def look(tx: Transaction) -> tuple[int, int, list[str]]:
        own, other = (
            MemoryView("main", (), private=True, people=(who,)) for who in ("main", "telegram:1")
        )
        listed = browsing.listed(tx, ("main",), 9)
        found = len(browsing.find(tx, own, "Qualle1", 9))
        return found, len(browsing.find(tx, other, "Qualle1", 9)), [each.title for each in listed]

    async with storing.opened(config, FakeClock()) as target:
        found, others, titles = await target.database.read(look)
    assert (found, others) == (1, 0)
    assert sorted(titles) == ["Talk c0", "Talk c1", "Talk c2"]


@pytest.mark.parametrize("is_new", [True, False])
async def test_openclaw_is_moved_in_once(tmp_path, postgres_url, is_new):
    claw = tmp_path / "claw"
    openclaw.workspace(claw / "workspace")
    talks = {"agent:main:main": openclaw.session("a", "hello", "good day")}
    (openclaw.in_database if is_new else openclaw.in_files)(claw, talks)
    openclaw.let_in(claw, ("telegram", "default", "42"))
    config = config_for(tmp_path / "home", postgres_url)
    reports: list[moving.Report] = []
    for _ in range(2):
        async with storing.opened(config, FakeClock()) as target:
            snapshot = await target.database.read(lambda tx: snapshot_of(tx, config))
            move = moving.Move(
                home.look(claw), snapshot, tmp_path, target.notes, is_mine=False, now=1
            )
            reports.append(await move.run(target.database, is_rehearsal=False))
            text = target.notes.read("memory/2026-01-05.md", 1_000)[0].decode()
    assert "bought rope at the harbour <!-- imported -->" in text
    assert (reports[0].talks.messages, len(reports[0].seats)) == (2, 1)
    assert reports[1].is_nothing
