"""Keeps the notes of a folder in order, or takes that back, and dies; see `tests.proofs.dying`."""

from __future__ import annotations

import sys
from datetime import UTC
from pathlib import Path

from bot.clock import moment
from bot.config import Settings
from bot.memory.memory import OWNER_VIEW, Memory
from bot.memory.night.keeper import Keeper
from bot.storage.sqlite import SqliteDatabase
from tests.proofs.dying import Counter, main
from tests.support import FakeClock, make_config

MOST = 50
_NAMES = frozenset({"os.rename", "os.remove", "os.link"})


async def tidy(words: list[str], counter: Counter) -> None:
    """What the night does, or what takes it back, until nothing is left to be done of it."""

    def heard(event: str, arguments: tuple[object, ...]) -> None:
        # Notes are named from their folder, which is open, so the counter does not know them.
        is_writing = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & 3)
        if (is_writing or event in _NAMES) and not str(arguments[0]).startswith("/"):
            counter.step(writes=False)

    what, folder = words[0], Path(words[-1])
    clock = FakeClock()
    database = await SqliteDatabase.open(folder / "confidant.db")
    keeper = Keeper(
        Memory.from_settings(Settings(make_config(folder)[0]), clock, database=database),
        database,
        clock,
    )
    sys.addaudithook(heard)
    if what == "undo":
        await keeper.take_back(OWNER_VIEW)
    else:
        await keeper.look(OWNER_VIEW, moment(clock(), UTC).date(), MOST)
    await database.close()


if __name__ == "__main__":
    main(tidy)
