"""What is done to a folder by a process that dies on the way; see `tests.proofs.dying`."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from datetime import UTC, date
from pathlib import Path

from bot.cli.main import cli
from bot.clock import moment
from bot.composition.core import open_backend
from bot.config import Config, Settings
from bot.memory.memory import OWNER_VIEW, Memory
from bot.memory.night.keeper import Keeper
from bot.portability import backup, restore
from bot.storage.sqlite import SqliteDatabase
from tests.proofs.dying import Counter, Work, main
from tests.support import FakeClock, make_config

USED_ON = date(2026, 11, 21)
MOST = 50  # entries that the night looks at
_NAMES = frozenset({"os.rename", "os.remove", "os.link"})


def archive_config(base: Path) -> Config:
    """The configuration of a folder in which a backup is made or restored.

    In it are `home`, the storage folder, `x.backup`, and `notes`, the workspace where that is not
    in the storage folder.
    """
    memory = {"workspace": base / "notes"} if (base / "notes").exists() else {}
    return make_config(base / "home", memory=memory)[0]


async def archive(words: list[str], counter: Counter) -> None:
    """Make a backup, restore it, or complete that."""
    what, place = words
    base, clock = Path(place), FakeClock()
    config, file = archive_config(base), base / "x.backup"

    def advance(_size: int) -> None:
        counter.step()

    if what == "backup":
        await backup.make(config, file, None, "[agent]\n", clock=clock, advance=advance)
    elif what == "finish":
        restore.finish(config.storage.folder)
    else:
        where = (config.storage.folder, config.workspace)
        await restore.restore(file, *where, str, clock=clock, advance=advance)


async def night(words: list[str], counter: Counter) -> None:
    """What the night does, or what takes it back, until nothing is left to be done of it."""

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        # Notes are named from their folder, which is open, so the counter does not know them.
        is_writing = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & 3)
        if (is_writing or event in _NAMES) and not str(arguments[0]).startswith("/"):
            counter.step(writes=False)

    what, folder = words[0], Path(words[-1])
    clock = FakeClock()
    database = await SqliteDatabase.open(folder / "confidant.db")
    settings = Settings(make_config(folder)[0])
    keeper = Keeper(Memory.from_settings(settings, clock, database=database), database, clock)
    sys.addaudithook(heard)
    if what == "undo":
        await keeper.take_back(OWNER_VIEW)
    else:
        await keeper.look(OWNER_VIEW, moment(clock(), UTC).date(), MOST)
    await database.close()


async def upgrade(words: list[str], _counter: Counter) -> None:
    """What the program does before anything else is begun, with a folder of the first tables."""
    async with AsyncExitStack() as stack:
        await open_backend(make_config(Path(words[-1]))[0], FakeClock(), stack)


async def use(words: list[str], _counter: Counter) -> None:
    """Answer with all that the owner's MEMORY.md says, and store that it was used."""
    folder = Path(words[-1])
    database = await SqliteDatabase.open(folder / "confidant.db")
    memory = Memory.from_settings(Settings(make_config(folder)[0]), FakeClock(), database=database)
    answer = (folder / "workspace" / "MEMORY.md").read_text()
    memory.uses.note(OWNER_VIEW, (), answer, USED_ON)
    await memory.store_uses()
    await database.close()


def command(words: list[str], _counter: Counter) -> None:
    """A command of `confidant` on the folder."""
    os.environ["CONFIDANT_STORAGE__DIR"] = words.pop()
    os.environ["CONFIDANT_MEMORY__EMBEDDER__PROVIDER"] = "none"
    cli(words, standalone_mode=False)


WORKS: dict[str, Work] = {
    "archive": archive,
    "command": command,
    "night": night,
    "upgrade": upgrade,
    "use": use,
}

if __name__ == "__main__":
    # SQLite's own files for a backup, as they may be shared.
    main(WORKS[sys.argv[1]], counts_sqlite=sys.argv[1] != "archive")
