"""Kill an import at random moments, and fill the disk in the middle: the same import goes on.

Whatever happens, each conversation is there whole or not at all, and at the end all is as an import
that nothing disturbed leaves it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from bot.errors import StorageError
from bot.importing import exports, storing
from bot.importing.openclaw import home, moving
from bot.importing.storing import Count, Owner
from bot.portability.person import snapshot_of
from bot.sessions.mirror import all_transcripts
from bot.storage import Database, Transaction
from tests.fakes import exports as made
from tests.fakes import openclaw
from tests.faults import faulty_disk
from tests.proofs.crash import SEED
from tests.proofs.rounds import lengths, rounds
from tests.support import FakeClock, make_config

KILLS = 50
FEW = 4
TALKS = 400
MESSAGES = 12

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def talk(number: int) -> dict[str, Any]:
    texts = [f"talk{number} line{line} " + "water " * 20 for line in range(MESSAGES)]
    return made.chatgpt(f"c{number}", *texts, began=made.BEGAN + 3600 * number)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.pack(tmp_path_factory.mktemp("export") / "gpt.zip", [*map(talk, range(TALKS))])


async def bring(folder: Path, archive: Path) -> Count:
    config, _ = make_config(folder)
    export = exports.look(archive, "chatgpt")
    async with storing.opened(config, FakeClock()) as target:
        return await storing.bring(
            target.database, export.talks(), lambda _: Owner("main"), FakeClock()()
        )


def state(folder: Path) -> dict[str, Any]:
    """What was said, with numbers and all, and every transcript file."""
    connection = apsw.Connection(str(folder / "confidant.db"))
    try:
        assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
        tables = {
            name: list(connection.execute(f"SELECT * FROM {name} ORDER BY 1"))
            for name in ("sessions", "entries", "entries_text", "conversations")
        }
        tables["titles"] = list(
            connection.execute("SELECT session_id, title FROM titles ORDER BY 1")
        )
        return {
            **tables,
            **{path.name: path.read_bytes() for path in all_transcripts(folder / "sessions")},
        }
    finally:
        connection.close()


def whole(folder: Path) -> int:
    """How many conversations are there, each with all that was said in it."""
    if not (folder / "confidant.db").exists():
        return 0
    connection = apsw.Connection(str(folder / "confidant.db"))
    try:
        if not list(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'entries'")):
            return 0
        counts = list(
            connection.execute(
                "SELECT count(*) FROM entries GROUP BY session_id HAVING count(*) > 0"
            )
        )
        sessions = next(connection.execute("SELECT count(*) FROM sessions"))[0]
    finally:
        connection.close()
    assert {row[0] for row in counts} <= {MESSAGES}
    assert sessions == len(counts)
    return len(counts)


@pytest.fixture(scope="module")
def undisturbed(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed") / "home"
    asyncio.run(bring(folder, archive))
    return state(folder)


async def killed(folder: Path, archive: Path, delay: float) -> bool:
    """Run the command, and kill it some time after it began to import; False when it was done."""
    environment = {
        **os.environ,
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from bot.cli.main import main; main()"),
        *("import", "chatgpt", str(archive), "--yes", "--quiet"),
        env=environment,
        cwd=folder.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    told = await process.stdout.read(1)  # it is about to ask, and begins
    assert told
    try:
        await asyncio.wait_for(process.stdout.read(), delay)
    except TimeoutError:
        process.send_signal(signal.SIGKILL)
    return await process.wait() == -signal.SIGKILL


@pytest.mark.proof
async def test_an_import_that_is_killed_again_and_again_ends_as_one_that_was_not(
    archive, undisturbed, tmp_path, capsys
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    kills = beginnings = 0
    wanted = rounds(KILLS, FEW)
    while kills < wanted:
        folder = tmp_path / f"home{beginnings}"
        beginnings += 1
        before = 0
        for _ in range(3):
            if not await killed(folder, archive, chance.uniform(0.0, 0.6)):
                break
            kills += 1
            there = whole(folder)
            assert there >= before
            before = there
        await bring(folder, archive)
        assert state(folder) == undisturbed
    with capsys.disabled():
        print(f"\nImport: {kills} kills in {beginnings} imports, each completed by another one")


async def test_a_disk_that_fills_in_the_middle_keeps_whole_conversations(
    archive, undisturbed, tmp_path
):
    folder = tmp_path / "home"
    with faulty_disk(folder) as disk:
        config, _ = make_config(folder)
        export = exports.look(archive, "chatgpt")

        def filling() -> Any:
            for number, each in enumerate(export.talks()):
                disk.full = number > TALKS // 2
                yield each

        async with storing.opened(config, FakeClock()) as target:
            with pytest.raises(StorageError):
                await storing.bring(
                    target.database, filling(), lambda _: Owner("main"), FakeClock()()
                )
            disk.full = False
        assert 0 < whole(folder) < TALKS
        await bring(folder, archive)
    assert state(folder) == undisturbed


# --- OpenClaw -----------------------------------------------------------------------------------

DAYS = 60
SESSIONS = 40


@pytest.fixture(scope="module")
def claw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of many days and sessions, half of them of the newer format, and people."""
    home = tmp_path_factory.mktemp("claw") / "home"
    notes = {
        f"memory/2026-{1 + day // 28:02}-{1 + day % 28:02}.md": f"- day {day}\n- rope {day}\n"
        for day in range(DAYS)
    }
    openclaw.workspace(home / "workspace", {**openclaw.NOTES, **notes})
    talks = {
        f"agent:main:telegram:direct:{number}": openclaw.session(
            "x", *(f"talk{number} line{line} " + "water " * 9 for line in range(MESSAGES))
        )
        for number in range(SESSIONS)
    }
    openclaw.in_files(home, dict(list(talks.items())[: SESSIONS // 2]), agent="one")
    openclaw.in_database(home, dict(list(talks.items())[SESSIONS // 2 :]), agent="two")
    openclaw.let_in(home, *(("telegram", "default", str(number)) for number in range(9)))
    openclaw.settings(home, channels={"telegram": {"dmPolicy": "pairing"}})
    return home


async def move_in(folder: Path, claw: Path, *, mortal: Callable[[Database], Database]) -> None:
    config, _ = make_config(folder)
    async with storing.opened(config, FakeClock()) as target:
        database = mortal(target.database)
        snapshot = await database.read(lambda tx: snapshot_of(tx, config))
        move = moving.Move(home.look(claw), snapshot, folder, target.notes, False, FakeClock()())
        await move.run(database, is_rehearsal=False)


def moved(folder: Path) -> dict[str, Any]:
    """What was brought: what was said, people, every note, the proposal."""
    connection = apsw.Connection(str(folder / "confidant.db"))
    try:
        rows = {
            name: sorted(map(str, connection.execute(query)))
            for name, query in (
                ("entries", "SELECT id, session_id, at, line FROM entries"),
                ("sessions", "SELECT id, person, key, entry_count, mirror_bytes FROM sessions"),
                ("pairing", "SELECT * FROM pairing"),
                ("brought", "SELECT key, value FROM meta WHERE key LIKE 'import.%'"),
            )
        }
    finally:
        connection.close()
    files = [*(folder / "workspace").rglob("*.md"), folder / moving.PROPOSAL]
    return {**rows, **{str(path.relative_to(folder)): path.read_bytes() for path in files}}


class Killed(Exception):
    """The program ends here."""


class Mortal:
    """A database whose program ends at its n-th write, before or just after it is stored."""

    def __init__(self, database: Database, writes: int, *, after: bool) -> None:
        self._database = database
        self._left = writes
        self._after = after

    async def write(self, work: Callable[[Transaction], Any]) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Killed
        done = await self._database.write(work)
        if self._left == 0:
            raise Killed
        return done

    async def read(self, work: Callable[[Transaction], Any]) -> Any:
        return await self._database.read(work)

    async def close(self) -> None:
        await self._database.close()


@lengths("lives", 1, 25, 3)
async def test_moving_in_that_ends_at_any_write_ends_as_one_that_did_not(
    claw, tmp_path, capsys, lives
):
    await move_in(tmp_path / "whole", claw, mortal=lambda database: database)
    undisturbed = moved(tmp_path / "whole")
    assert len(undisturbed["entries"]) == SESSIONS * MESSAGES
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    kills = 0
    for life in range(lives):
        folder = tmp_path / f"life{life}"
        while True:
            try:
                await move_in(
                    folder,
                    claw,
                    mortal=lambda database: Mortal(
                        database, chance.randrange(1, 40), after=chance.random() < 0.5
                    ),
                )
                break
            except Killed:
                kills += 1
        assert moved(folder) == undisturbed
    assert kills
    with capsys.disabled():
        print(f"\nMoving in from OpenClaw: {kills} ends in the middle, all completed by the next")


async def test_a_disk_that_fills_while_moving_in_loses_nothing(claw, tmp_path):
    await move_in(tmp_path / "whole", claw, mortal=lambda database: database)
    folder = tmp_path / "full"
    for writes in (1, 5, 30):
        with faulty_disk(folder) as disk:

            class Filling(Mortal):
                async def write(self, work: Callable[[Transaction], Any]) -> Any:
                    self._left -= 1
                    disk.full = self._left <= 0
                    return await self._database.write(work)

            with pytest.raises(StorageError):
                await move_in(
                    folder,
                    claw,
                    mortal=lambda database, n=writes: Filling(database, n, after=False),
                )
            disk.full = False
    await move_in(folder, claw, mortal=lambda database: database)
    assert moved(folder) == moved(tmp_path / "whole")
