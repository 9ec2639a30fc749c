"""What `write` has returned from is on the disk, also when the power goes at that moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.storage import sqlite
from tests.proofs import power
from tests.support import beside


async def survivors(folder: Path) -> list[str]:
    """Write some rows, lose the power as soon as the last one is acknowledged, and look."""
    (folder / "before").mkdir()
    with power.disk(1) as disk:
        async with beside(folder / "before") as database:
            for number in range(3):
                await database.write(
                    lambda tx, n=number: tx.execute(
                        "INSERT INTO meta VALUES (?, '', 0)", (f"row {n}",)
                    )
                )
            disk.lose_power(folder / "before", folder / "after")
    async with beside(folder / "after") as database:
        rows = await database.read(lambda tx: tx.execute("SELECT key FROM meta ORDER BY key"))
    return [row[0] for row in rows]


async def test_what_was_acknowledged_survives_the_loss_of_power(tmp_path):
    assert await survivors(tmp_path) == ["row 0", "row 1", "row 2"]


@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
async def test_with_less_than_full_it_would_not(tmp_path, monkeypatch, level):
    """The disk of these tests does forget."""
    pragmas = [line.replace("synchronous = FULL", f"synchronous = {level}") for line in PRAGMAS]
    assert tuple(pragmas) != PRAGMAS
    monkeypatch.setattr(sqlite, "_PRAGMAS", tuple(pragmas))
    assert await survivors(tmp_path) != ["row 0", "row 1", "row 2"]


PRAGMAS = sqlite._PRAGMAS
