"""Memory asks itself at night: told to whose it is, and of everybody else's the share alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from bot.config import Config, Settings
from bot.identity.view import MemoryView, folder_name
from bot.memory import selftest
from bot.memory.index import MemoryIndex
from bot.memory.memory import Memory
from bot.memory.search import Findings
from bot.memory.selftest import SelfTest
from bot.storage import Transaction
from bot.storage.records import keep
from bot.storage.sqlite import SqliteDatabase
from tests.support import NOON, FakeClock, beside, make_config, running, settings_of, write_file

ADA = "people/memory-ada"
NIGHT = NOON + 16 * 3_600_000  # four in the morning
NOTES = {
    "MEMORY.md": "- the blue boat lies at the north pier of Kiel\n- 奶奶搬到了基尔海边的新房子\n",
    f"{ADA}/MEMORY.md": "- grandma bakes seven cakes every single Sunday morning\n",
}


@dataclass
class Night:
    """A memory with notes, and what asks it."""

    memory: Memory
    database: SqliteDatabase
    clock: FakeClock
    owns: bool = True
    asked: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    @property
    def test(self) -> SelfTest:
        return SelfTest(self.memory, self.database, self.clock, settings_of(), lambda: self.owns)

    async def of(self, space: str) -> selftest.Asked | None:
        return await self.database.read(lambda tx: selftest.of_space(tx, space))


async def with_night(folder: Path, use: Callable[[Night], Awaitable[None]]) -> None:
    config: Config = make_config(folder)[0]
    for name, text in NOTES.items():
        write_file(config.workspace / name, text)
    clock = FakeClock(NIGHT)
    database = await SqliteDatabase.open(folder / "confidant.db")
    memory = Memory.from_settings(Settings(config), clock)
    await memory.open()
    try:
        await memory.index.sync("test")
        await use(Night(memory, database, clock))
    finally:
        await memory.close()
        await database.close()


async def test_it_asks_once_a_night_and_finds_what_is_there(tmp_path):
    async def use(night: Night) -> None:
        night.clock.now = NOON
        await night.test.look()
        assert await night.of("main") is None
        night.clock.now, night.owns = NIGHT, False
        await night.test.look()
        assert await night.of("main") is None
        night.owns = True
        await night.test.look()
        mine, ada = await night.of("main"), await night.of(ADA)
        assert mine == selftest.Asked(NIGHT, 2, 2)
        assert ada == selftest.Asked(NIGHT, 1, 1)
        night.clock.advance(hours=1)
        await night.test.look()
        assert await night.of("main") == mine
        night.clock.advance(hours=23)
        await night.test.look()
        again = await night.of("main")
        assert again is not None
        assert again.at == night.clock.now

    await with_night(tmp_path, use)


async def test_what_is_missed_night_after_night_is_named_by_its_place(tmp_path, monkeypatch):
    async def use(night: Night) -> None:
        async def nothing(*_: object) -> Findings:
            return Findings((), "none")

        with monkeypatch.context() as patch:
            patch.setattr(type(night.memory.index), "search", nothing)
            await night.test.ask()
            first = await night.of("main")
            night.clock.advance(days=1)
            await night.test.ask()
        second = await night.of("main")
        assert first is not None
        assert second is not None
        assert (first.share, first.never) == (0, ())
        assert {(each.path, each.line) for each in second.never} == {
            ("MEMORY.md", 1),
            ("MEMORY.md", 2),
        }
        night.clock.advance(days=1)
        await night.test.ask()
        healed = await night.of("main")
        assert healed is not None
        assert (healed.share, healed.missed) == (100, ())

    await with_night(tmp_path, use)


async def test_each_space_is_asked_in_its_own_view_and_no_words_are_kept(tmp_path, monkeypatch):
    async def use(night: Night) -> None:
        real = type(night.memory.index).search

        async def heard(
            index: MemoryIndex, query: str, partitions: tuple[str, ...], most: int
        ) -> Findings:
            night.asked.append((query, *partitions))
            return await real(index, query, partitions, most)

        monkeypatch.setattr(type(night.memory.index), "search", heard)
        await night.test.ask()
        for query, *partitions in night.asked:
            is_adas = "grandma" in query or "cakes" in query
            space = ADA if is_adas else "main"
            assert tuple(partitions) == MemoryView(space, (), private=True).partitions
        rows = await night.database.read(lambda tx: tx.execute("SELECT value FROM meta"))
        kept = " ".join(str(row[0]) for row in rows)
        assert not [word for word in ("boat", "grandma", "奶奶") if word in kept]

    await with_night(tmp_path, use)


async def test_the_chat_names_ones_own_and_the_owner_sees_the_share_of_others(tmp_path):
    session = {"owner": ("memory:bo",)}
    async with running(tmp_path, session=session) as engine:
        await engine.ask("hello")

        def work(tx: Transaction) -> None:
            places = '[["memory/trip.md",3,2]]'
            ada = f"people/{folder_name('memory:ada')}"
            for space, missed in (("main", "[]"), (ada, places)):
                value = f'{{"at":{NOON},"asked":4,"found":3,"missed":{missed}}}'
                keep(tx, f"{selftest.ASKED}{space}", value, NOON)

        async with beside(engine.folder) as database:
            await database.write(work)
        ada = await engine.ask("/memory")
        assert "3 of 4 notes found (75 %)" in ada
        assert "memory/trip.md:3" in ada
        assert "everyone else" not in ada
        owner = await engine.ask("/memory", sender="bo")
        assert "everyone else's notes, 75 %" in owner
        assert "trip.md" not in owner
