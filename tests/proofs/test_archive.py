"""Backups and restores that are killed, and those whose disk fills up: old or new, never half."""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from bot.errors import StorageError
from bot.portability import backup as making
from bot.portability import restore
from bot.storage import backup
from bot.storage.files import RESTORE_BEGUN, RESTORING
from tests.proofs.rounds import lengths
from tests.proofs.works import archive_config
from tests.support import FakeClock, running

SEED = 20_261_123
KILLS = 50
HIDDEN = "zqhidden"

WORK = "archive"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which people talked, a backup of it, and what happened since."""

    async def live(base: Path) -> None:
        async with running(base / "home") as engine:
            await engine.ask("the code of my bike is 4711 水母")
            await engine.ask(f"my secret is {HIDDEN}", sender="bo")
        (base / "home" / "workspace" / "memory").mkdir(parents=True, exist_ok=True)
        (base / "home" / "workspace" / "memory" / "trip.md").write_text("- to 北京\n")
        (base / "home" / "workspace" / "large.bin").write_bytes(random.Random(1).randbytes(900_000))  # noqa: S311
        config, target = archive_config(base), base / "x.backup"
        await making.make(config, target, None, "[agent]\n", clock=FakeClock())
        async with running(base / "home") as engine:
            await engine.ask("and since then")
            await engine.ask(f"/memory forget {HIDDEN}", sender="bo")
            assert "Forgotten" in await engine.ask("/memory forget yes", sender="bo")
        (base / "home" / "workspace" / "memory" / "trip.md").write_text("- to 上海\n")

    base = tmp_path_factory.mktemp("archive")
    asyncio.run(live(base))
    return base


def copied(first: Path, target: Path, *, is_outside: bool = False) -> Path:
    base = Path(shutil.copytree(first, target))
    if is_outside:
        (base / "home" / "workspace").rename(base / "notes")
    return base


@dataclass(frozen=True)
class State:
    """What a storage folder holds, as far as it lasts."""

    tables: dict[str, list[tuple[Any, ...]]]
    transcripts: dict[str, bytes]
    notes: dict[str, bytes]


def state_of(base: Path) -> State:
    home, notes = base / "home", archive_config(base).workspace
    with closing(apsw.Connection(str(home / "confidant.db"))) as connection:
        tables = {
            name: list(connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2"))
            for name in ("entries", "sessions", "forgotten", "inbox", "outbox")
        }
        for row in tables["forgotten"]:  # when it was done here is of no account
            assert len(row) == 2
        tables["forgotten"] = [row[:1] for row in tables["forgotten"]]
        tables["sessions"] = [row[:3] for row in tables["sessions"]]
    return State(tables, files_in(home / "sessions"), files_in(notes))


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def leftovers(base: Path) -> list[Path]:
    """What should not be there once a program ran to its end."""
    return [
        *base.glob(".*"),
        *(base / "home").glob(RESTORING),
        *(base / "home" / backup.FOLDER / backup.STAGE).glob("*"),
    ]


async def is_whole(base: Path, scratch: Path) -> bool:
    await restore.unpack(base / "x.backup", str, scratch, scratch / "notes")
    return True


@lengths("times", 2, KILLS, 12)
@pytest.mark.parametrize("by", ["kill", "full disk"])
async def test_a_backup_interrupted_anywhere_is_whole_or_not_there(
    dying, first, tmp_path, by, times
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    base = copied(first, tmp_path / "base")
    (base / "x.backup").unlink()
    points = int(dying.run("backup", base))
    assert points > 15
    before, seen = state_of(base), {"none": 0, "whole": 0}
    for number in range(times):
        (base / "x.backup").unlink(missing_ok=True)
        if by == "kill":
            said = dying.run("backup", base, point=chance.randint(1, points))
            assert said == "killed" or said.isdecimal()
        else:
            said = dying.run("backup", base, point=-chance.randint(1, points - 5))
            assert said.startswith("refused: "), said
            assert "disk is full" in said or "No space left" in said, said
            assert leftovers(base) == []
        assert state_of(base) == before
        if (base / "x.backup").exists():
            seen["whole"] += await is_whole(base, tmp_path / f"{number}")
        else:
            seen["none"] += 1
    (base / "x.backup").unlink(missing_ok=True)
    assert dying.run("backup", base).isdecimal()
    assert await is_whole(base, tmp_path / "last")
    assert leftovers(base) == []
    assert seen["none"] or times == 2
    assert by == "kill" or not seen["whole"]


@lengths("times", 2, KILLS // 2, 8)
@pytest.mark.parametrize("is_outside", [False, True])
@pytest.mark.parametrize("by", ["kill", "full disk"])
async def test_a_restore_interrupted_anywhere_leaves_the_old_or_the_new(
    dying, first, tmp_path, *, is_outside, by, times
):
    chance = random.Random(SEED + is_outside)  # noqa: S311 - chance, not a secret
    whole = copied(first, tmp_path / "whole", is_outside=is_outside)
    old = state_of(whole)
    points = int(dying.run("restore", whole))
    new = state_of(whole)
    assert old != new
    assert old.tables["forgotten"] == new.tables["forgotten"] != []
    seen = {"old": 0, "begun": 0, "new": 0}
    for number in range(times):
        base = copied(first, tmp_path / f"{number}", is_outside=is_outside)
        # The steps that matter most are few, and last.
        last = chance.random() < 0.5
        point = chance.randint(points - 45 if last else 1, points)
        said = dying.run("restore", base, point=point if by == "kill" else -point)
        assert said == "killed" or said.isdecimal() or said.startswith("refused: "), said
        if (base / "home" / RESTORING / RESTORE_BEGUN).exists():
            seen["begun"] += 1
            assert by == "kill" or "--finish" in said
            with pytest.raises(StorageError, match="interrupted"):
                async with running(base / "home", memory=of_notes(base)):
                    pass
            while dying.run("finish", base, point=chance.randint(1, 12)) == "killed":
                pass  # completing it may be killed as well
            assert not (base / "home" / RESTORING / RESTORE_BEGUN).exists()
            assert state_of(base) == new
        else:
            found = state_of(base)
            assert found in (old, new)
            seen["old" if found == old else "new"] += 1
            if found == old and by == "full disk":
                assert "Nothing was changed" in said or "cannot be used" in said, said
                assert dying.run("restore", base).isdecimal()
                assert state_of(base) == new
        await goes_on(base)
        shutil.rmtree(base)
    assert seen["old"] or times == 2
    assert seen["begun"] or times == 2 or by == "full disk"


def of_notes(base: Path) -> dict[str, Any]:
    return {"workspace": base / "notes"} if (base / "notes").exists() else {}


async def goes_on(base: Path) -> None:
    """The next start talks, shows nothing that was forgotten, and leaves nothing half made."""
    async with running(base / "home", memory=of_notes(base)) as engine:
        assert await engine.ask("hello again", sender="bo") == "You said: hello again"
        assert HIDDEN not in "".join(m.text for m in engine.model.requests[-1].messages)
    assert leftovers(base) == []
