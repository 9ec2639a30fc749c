"""Stores which claims of a folder's notes an answer used, and dies; see `tests.proofs.dying`."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from bot.config import Settings
from bot.memory.memory import OWNER_VIEW, Memory
from bot.storage.sqlite import SqliteDatabase
from tests.proofs.dying import Counter, main
from tests.support import FakeClock, make_config

DAY = date(2026, 11, 21)


async def use(words: list[str], _counter: Counter) -> None:
    """Answer with all that the owner's MEMORY.md says, and store that it was used."""
    folder = Path(words[-1])
    database = await SqliteDatabase.open(folder / "confidant.db")
    memory = Memory.from_settings(Settings(make_config(folder)[0]), FakeClock(), database=database)
    answer = (folder / "workspace" / "MEMORY.md").read_text()
    memory.uses.note(OWNER_VIEW, (), answer, DAY)
    await memory.store_uses()
    await database.close()


if __name__ == "__main__":
    main(use)
