"""Upgrades that are killed, and those whose disk fills up: the old or the new, never half.

The folder is that of the first tables, as their program left it, and is brought to this version.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from bot.errors import StorageError
from bot.storage import backup, schema
from tests.fakes import baseline
from tests.fakes.baseline import SECTIONS, Baseline
from tests.faults import faulty_disk
from tests.proofs.rounds import lengths
from tests.support import running

SEED = 20_261_123
KILLS = 50

WORK = "upgrade"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@lengths("times", 2, KILLS, 8)
async def test_an_upgrade_killed_anywhere_leaves_the_old_or_the_new(dying, tmp_path, times):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    seen = {"old": 0, "new": 0}
    for number in range(times):
        old = baseline.unpack(tmp_path / f"{number}")
        whole = baseline.unpack(tmp_path / f"{number}-whole")
        points = int(dying.run(whole.folder))
        kept = content(old.database)
        for _ in range(chance.randint(1, 3)):  # also one that met a kill before
            # Most of it is the copy; the change itself is at the end.
            point = chance.choice((chance.randint(1, points), points - chance.randint(0, 9)))
            assert dying.run(old.folder, point=point) in {"killed", *NUMBERS}
            seen["old" if is_old(old, kept) else "new"] += 1
        await goes_on(old, kept)
    assert min(seen.values()) > 0 or times == 2


@lengths("times", 2, KILLS, 8)
async def test_an_upgrade_whose_disk_fills_up_leaves_the_old_or_the_new(tmp_path, times):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    refused = 0
    for number in range(times):
        old = baseline.unpack(tmp_path / f"{number}")
        kept = content(old.database)
        with faulty_disk(old.folder) as disk:
            disk.fills_after = chance.randint(0, 250)
            try:
                async with running(old.folder, **SECTIONS):
                    pass
            except StorageError as error:
                refused += 1
                assert "\n" not in str(error)  # noqa: PT017 - it may also have been in time
            disk.full, disk.fills_after = False, None
        is_old(old, kept)
        await goes_on(old, kept)
    assert refused or times == 2


NUMBERS = frozenset(map(str, range(5_000)))


def content(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What was said, and what waits."""
    connection = apsw.Connection(str(database))
    try:
        return {
            "entries": list(connection.execute("SELECT id, line FROM entries ORDER BY seq")),
            "waiting": list(connection.execute("SELECT id FROM inbox WHERE state = 'waiting'")),
            "sessions": list(connection.execute("SELECT id, person FROM sessions ORDER BY id")),
        }
    finally:
        connection.close()


def is_old(old: Baseline, kept: dict[str, list[tuple[Any, ...]]]) -> bool:
    """Whether the tables are all of the old version; else they are all of the new one."""
    version = backup.tables_of(old.database)[0]
    assert version in {schema.BASELINE, schema.VERSION}
    assert content(old.database)["entries"][: len(kept["entries"])] == kept["entries"]
    copies = {backup.number_of(path): path for path in backup.before_upgrades(old.database)}
    assert version == schema.BASELINE or schema.BASELINE in copies
    for number, copy in copies.items():
        assert backup.is_sound(copy)
        assert backup.tables_of(copy)[0] == number
        assert content(copy)["entries"] == kept["entries"]
    return version == schema.BASELINE


async def goes_on(old: Baseline, kept: dict[str, list[tuple[Any, ...]]]) -> None:
    """The next start finds everything, answers what waited once, and leaves nothing half made."""
    async with running(old.folder, **SECTIONS) as engine:
        await engine.channel.wait_until(lambda _: "You said: what waits?" in engine.sent_to("ada"))
        told = await engine.ask("/memory show MEMORY.md", message_id="later")
        assert "the harbour code is 4711" in told
    assert engine.sent_to("ada").count("You said: what waits?") == 1
    found = content(old.database)
    assert found["entries"][: len(kept["entries"])] == kept["entries"]
    assert found["sessions"] == kept["sessions"]
    assert found["waiting"] == []
    assert backup.tables_of(old.database)[0] == schema.VERSION
    assert not list((old.folder / backup.BEFORE_UPGRADE).glob("*.tmp*"))
    (notes,) = (old.folder / "workspace" / "people").iterdir()
    assert (notes / "memory" / "2026-11-20.md").exists()
