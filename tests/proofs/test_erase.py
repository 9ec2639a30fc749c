"""An erasing that is killed, or meets a full disk, leaves the old, or what only goes forward."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from bot.errors import StorageError
from bot.recovery import open_database
from bot.storage.files import ERASING
from tests.fakes.persons import ADA, BO, holding, live, space_of
from tests.faults import faulty_disk
from tests.integration.test_erase import invoke, kept_of
from tests.proofs.crash import SEED
from tests.proofs.dying import Dying
from tests.proofs.rounds import lengths
from tests.support import FakeClock

WORK = "command"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("logs_stay")]

NAMES = (ADA, "memory:ada", space_of("ada"))
ERASE = ("erase", "memory:ada", "--yes")


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lived") / "home"
    asyncio.run(live(folder))
    return folder


@lengths("times", 1, 50, 6)
def test_killed_anywhere_it_is_the_old_or_is_completed(
    dying: Dying, lived: Path, tmp_path: Path, times: int
) -> None:
    whole = Path(shutil.copytree(lived, tmp_path / "whole"))
    points = int(dying.run(*ERASE, whole))
    assert not holding(whole, *NAMES)
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    old, others = holding(lived, *NAMES), kept_of(lived, BO)
    seen = set[str]()
    for number in range(times):
        folder = Path(shutil.copytree(lived, tmp_path / f"{number}"))
        dying.run(*ERASE, folder, point=chance.randint(1, points))
        if (folder / ERASING).exists():
            seen.add("begun")
            with pytest.raises(StorageError, match="confidant erase --finish"):
                asyncio.run(open_database(folder, FakeClock()))
            shown = invoke(folder, "sessions", "list")
            assert "erase --finish" in str(shown.exception), shown.output
            if number % 2:
                dying.run("erase", "--finish", folder, point=chance.randint(1, points))
            if (folder / ERASING).exists():
                assert invoke(folder, "erase", "--finish").exit_code == 0
        elif held := [name for name in holding(folder, *NAMES) if not is_log(name)]:
            seen.add("old")
            assert held == old
            assert invoke(folder, *ERASE).exit_code == 0
        else:
            seen.add("done")
        assert not holding(folder, *NAMES)
        assert kept_of(folder, BO) == others
        shutil.rmtree(folder)
    assert "begun" in seen or times == 1


def is_log(name: str) -> bool:
    """What SQLite keeps beside a database while it is open."""
    return name.endswith(("-wal", "-shm"))


@pytest.mark.parametrize("step", ["database", "free pages", "copies"])
def test_a_full_disk_leaves_the_old_or_is_gone_on_with(
    lived: Path, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(lived, tmp_path / "home"))
    old = holding(folder, *NAMES)
    with faulty_disk(folder) as disk:

        def fill(what: str) -> None:
            disk.full = what == step

        with monkeypatch.context() as patch:
            patch.setattr("bot.cli.person._step", fill)
            result = invoke(folder, *ERASE)
        said = str(result.exception)
        assert disk.refused
        disk.full = False
    if step == "database":
        assert "Nothing was changed" in said
        assert [name for name in holding(folder, *NAMES) if not is_log(name)] == old
        assert invoke(folder, *ERASE).exit_code == 0
    else:
        assert "confidant erase --finish" in said
        assert (folder / ERASING).exists()
        assert invoke(folder, "erase", "--finish").exit_code == 0
    assert not holding(folder, *NAMES)
