"""What notes said before they were changed: what is kept of it, and for how long."""

from __future__ import annotations

import pytest

from bot.errors import StorageFull
from bot.memory import versions
from bot.memory.note_store import MAX_WRITE
from bot.memory.versions import BURST_MS, Kind, Versions
from bot.storage import Database
from tests.support import FakeClock

PATH = "memory/trip.md"


async def kinds(database: Database) -> list[tuple[str, str]]:
    """What is kept, the newest first: what came in its place, and what it says."""

    def work(tx):
        return [
            (each.kind, versions.text_of(tx, "main", PATH, each.id))
            for each in versions.listed(tx, "main", PATH)
        ]

    return await database.read(work)


async def keep(kept: Versions, text: str, kind: Kind = "hand") -> None:
    await kept.changed("main", PATH, text, await kept.numbers(), kind)


async def test_changes_by_hand_in_a_burst_have_one_version(each_database: Database):
    clock = FakeClock()
    kept = Versions(each_database, clock)
    for text in ("one", "two", "three"):
        await keep(kept, text)
        clock.advance(seconds=1)
    assert await kinds(each_database) == [("hand", "one")]
    clock.advance(seconds=BURST_MS / 1000)
    await keep(kept, "four")
    assert await kinds(each_database) == [("hand", "four"), ("hand", "one")]


async def test_what_is_kept_already_is_not_kept_as_changed_by_hand_too(each_database: Database):
    kept = Versions(each_database, FakeClock())
    await keep(kept, "one", "bot")
    await keep(kept, "two", "bot")
    await keep(kept, "one")  # the index hears of it later
    assert await kinds(each_database) == [("bot", "two"), ("bot", "one")]
    await keep(kept, "other")
    assert await kinds(each_database) == [("hand", "other"), ("bot", "two"), ("bot", "one")]


@pytest.mark.parametrize("kind", ["hand", "bot"])
async def test_what_was_forgotten_meanwhile_is_not_kept(each_database: Database, kind: Kind):
    kept = Versions(each_database, FakeClock())
    since = await kept.numbers()
    await each_database.write(lambda tx: versions.forget(tx, "main", "peanuts"))
    await kept.changed("main", PATH, "- peanuts", since, kind)
    assert await kinds(each_database) == []
    await kept.changed("people/ada", PATH, "- peanuts", since, kind)  # another space
    rows = await each_database.read(lambda tx: tx.execute("SELECT space FROM note_versions"))
    assert rows == [("people/ada",)]


@pytest.mark.parametrize("text", ["", "x" * (MAX_WRITE + 1)])
async def test_what_could_not_be_written_back_is_not_kept(each_database: Database, text: str):
    await keep(Versions(each_database, FakeClock()), text)
    assert await kinds(each_database) == []


async def test_a_full_disk_keeps_no_change_from_being_made():
    class Full:
        async def read(self, _work):
            raise StorageFull

        write = read

    kept = Versions(Full(), FakeClock())  # type: ignore[arg-type]
    assert await kept.numbers() is None
    await kept.changed("main", PATH, "one", {}, "bot")
    await kept.changed("main", PATH, "one", None, "bot")
