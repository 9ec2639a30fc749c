"""What fades: left out of the opening of conversations, found later, and borne out again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bot.config import MemoryConfig
from bot.memory import claims, uses
from bot.memory.embed import NoEmbedder
from bot.memory.files import SpaceFiles
from bot.memory.folder_notes import FolderNotes
from bot.memory.index import MemoryIndex
from bot.memory.memory import OWNER_VIEW
from bot.memory.notes import Notes
from bot.storage import Row
from bot.storage.sqlite_sql import SqliteTransaction
from bot.testing import ScriptedModel
from tests.integration.test_memory_engine import (
    ADA,
    EVE,
    TODAY,
    recalled,
    space_of,
    write,
    writing,
)
from tests.integration.test_memory_pages import ADA as ADA_WEB
from tests.integration.test_memory_pages import house, query
from tests.support import Engine, FakeClock, running

FACTS = """\
# Facts

- Lives in Berlin <!-- owner 2020-01-02 -->
- Written by hand
- Prefers window seats on trains <!-- agent 2024-01-01 -->
- Seems to like oolong tea <!-- agent 2026-10-01 -->
- Plays chess on Thursdays <!-- imported 2023-01-01 -->
- Collects old maps <!-- agent 2024-01-01 confirmed 2026-11-01 -->
"""
FADED = ("window seats", "chess")
STAY = ("Berlin", "by hand", "oolong", "old maps")
LEFT_OUT = "[… 2 of your older conclusions are left out here; the file has them …]"


def saying(reply: str) -> ScriptedModel:
    return ScriptedModel(script=lambda _: reply)


def rows(engine: Engine) -> list[Row]:
    return query(engine.folder, "SELECT space, claim, used_on FROM claim_uses ORDER BY 1, 2")


async def test_what_has_faded_is_left_out_of_the_opening_and_stays_in_the_file(tmp_path: Path):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    boats = "boat on a lake, window seats"
    write(tmp_path, f"{ADA}/memory/boats.md", f"- {boats} <!-- agent 2026-10-01 -->\n")
    write(
        tmp_path, f"{ADA}/memory/old.md", "- window seats on old boats <!-- agent 2020-01-01 -->\n"
    )
    async with running(tmp_path, model=saying("Hello.")) as engine:
        await engine.ask("do I prefer window seats, or oolong tea?")
        system = engine.model.requests[0].system
        assert all(words in system for words in STAY)
        assert not any(words in system for words in FADED)
        assert LEFT_OUT in system
        assert (space_of(tmp_path) / "MEMORY.md").read_text() == FACTS
        # It is found by whoever looks for it, and not put into the beginning by itself.
        beginning = recalled(engine.model.requests[0])
        assert "boat on a lake" in beginning
        assert "old boats" not in beginning
        assert "Prefers window seats" not in beginning
        found = await engine.ask("/memory search window seats")
        assert "Prefers window seats" in found
        assert "· faded" in found
        assert "2 entries that conversations began with have faded" in await engine.ask("/memory")


async def test_what_an_answer_used_is_in_the_next_opening_again(tmp_path: Path):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    said = "I'd book trains with window seats, as you prefer."
    async with running(tmp_path, model=saying(said)) as engine:
        memory = engine.app.memory
        await engine.ask("how shall I travel?")
        assert rows(engine) == []  # nothing of it is a part of the turn
        assert await memory.store_uses() == 1
        words = claims.digest("prefers window seats on trains")
        assert rows(engine) == [(ADA, words, "2026-11-21")]
        await engine.ask("how shall I travel back?")
        assert await memory.store_uses() == 0  # once a day is enough
        await engine.ask("/new")
        await engine.ask("hello again")
        system = engine.model.requests[-1].system
        assert "window seats" in system
        assert "chess" not in system


async def test_a_use_by_one_person_changes_nothing_that_another_sees(tmp_path: Path):
    for space in (ADA, EVE):
        write(tmp_path, f"{space}/MEMORY.md", FACTS)
    write(tmp_path, "shared/rules.md", "- Prefers window seats on boats <!-- agent 2024-01-01 -->")
    async with running(tmp_path, model=saying("Trains: window seats, on boats too.")) as engine:
        await engine.ask("hello")
        assert await engine.app.memory.store_uses() == 1
        assert {space for space, _, _ in rows(engine)} == {ADA}
        await engine.ask("hello", sender="eve")
        assert "window seats" not in engine.model.requests[-1].system


async def test_what_is_forgotten_leaves_no_trace_of_its_use(tmp_path: Path):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    said = "Ada collects old maps, lives in Berlin, prefers window seats on trains."
    async with running(tmp_path, model=saying(said)) as engine:
        await engine.ask("what do you know?")
        assert await engine.app.memory.store_uses() == 3
        await engine.ask("and?")  # waits to be stored while the words are forgotten
        await engine.ask("/memory forget window seats")
        await engine.ask("/memory forget yes")
        assert await engine.app.memory.store_uses() == 0
        left = {claim for _, claim, _ in rows(engine)}
        assert left == {claims.digest("lives in berlin"), claims.digest("collects old maps")}


async def test_what_is_forgotten_while_uses_are_stored_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    async with running(tmp_path, model=saying("Window seats on trains, and old maps.")) as engine:
        await engine.ask("hello")
        memory = engine.app.memory
        plain = uses.says

        def forgets(answer: Any, claim: claims.Claim) -> bool:
            for watch in memory.notes._watches[ADA]:
                watch.words.append("window seats")
            return plain(answer, claim)

        monkeypatch.setattr(uses, "says", forgets)
        assert await memory.store_uses() == 0
        assert rows(engine) == []


async def test_a_kill_between_the_answer_and_the_note_of_its_use_loses_that_alone(tmp_path: Path):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    async with running(tmp_path, model=saying("Window seats on trains.")) as engine:
        await engine.ask("hello")
        engine.app.memory.uses.drop(ADA)  # what a process that ends so takes along
    async with running(tmp_path, model=saying("Window seats on trains.")) as engine:
        assert rows(engine) == []
        await engine.ask("and now?")
    # An orderly end stores what waits.
    async with running(tmp_path, model=saying("Good.")) as engine:
        assert len(rows(engine)) == 1


async def test_an_end_while_uses_are_stored_leaves_them_to_the_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    reading = asyncio.Event()

    async def never(*_: object) -> str:
        reading.set()
        return await asyncio.Future[str]()

    async with running(tmp_path, model=saying("Window seats on trains.")) as engine:
        await engine.ask("hello")
        with monkeypatch.context() as patch:
            patch.setattr(SpaceFiles, "text", never)
            storing = asyncio.create_task(engine.app.memory.store_uses())
            await reading.wait()
            storing.cancel()
            await asyncio.wait([storing])
        assert rows(engine) == []
    async with running(tmp_path) as engine:
        assert len(rows(engine)) == 1


async def test_answers_in_a_conversation_ask_the_database_nothing_of_uses(tmp_path: Path):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    async with running(tmp_path, model=saying("Window seats on trains.")) as engine:
        await engine.ask("hello")
        seen: list[str] = []
        with counting(engine, seen.append):
            await engine.ask("and?")
        assert seen
        assert not [sql for sql in seen if "claim_uses" in sql]


def counting(engine: Engine, note: Callable[[str], None]) -> Any:
    """Every statement that anybody runs meanwhile."""
    plain = SqliteTransaction.execute

    def execute(self: SqliteTransaction, sql: str, parameters: Any = ()) -> list[Row]:
        note(sql)
        return plain(self, sql, parameters)

    return patch.object(SqliteTransaction, "execute", execute)


# --- confirming ----------------------------------------------------------------------------------

CONFIRMED = "- Prefers window seats on trains <!-- agent 2024-01-01 confirmed 2026-11-21 -->\n"


def memory_of(folder: Path, space: str = ADA) -> str:
    return (folder / "workspace" / space / "MEMORY.md").read_text()


async def test_a_command_lists_what_has_faded_and_confirms_one_of_it(tmp_path: Path):
    more = "- Likes trains and seats <!-- untrusted 2026-01-01 -->\n"
    for space in (ADA, EVE):
        write(tmp_path, f"{space}/MEMORY.md", FACTS + more)
    async with running(tmp_path, model=saying("Hello.")) as engine:
        told = await engine.ask("/memory faded")
        assert "- MEMORY.md:5 “Prefers window seats on trains” · concluded · 2 years old" in told
        assert "chess" in told
        assert not any(words in told for words in STAY)
        assert "Several entries" in await engine.ask("/memory confirm o")
        for none in ("Berlin", "by hand", "Likes trains and seats", "unknown words"):
            assert "nothing that holds" in await engine.ask(f"/memory confirm {none}")
        assert memory_of(tmp_path) == FACTS + more
        told = await engine.ask("/memory confirm window seats")
        assert told == ("Noted that it is still true: MEMORY.md:5 “Prefers window seats on trains”")
        assert CONFIRMED in memory_of(tmp_path)
        assert "window seats" not in await engine.ask("/memory faded")
        assert memory_of(tmp_path, EVE) == FACTS + more
        await engine.ask("hello")
        assert "window seats" in engine.model.requests[-1].system
        assert "confirmed 2026" not in engine.model.requests[-1].system
        await engine.ask("hello", sender="eve")
        assert "window seats" not in engine.model.requests[-1].system
        assert "没有淡去的" in await engine.ask("/memory faded", sender="bob", locale="zh")


@pytest.mark.parametrize(
    ("said", "confirms"),
    [
        ("Yes: Ada prefers window seats on trains, always.", True),
        ("What do you know about me?", False),  # the model says so alone
    ],
)
async def test_only_what_the_person_says_again_is_confirmed(
    tmp_path: Path,
    said: str,
    confirms: bool,  # noqa: FBT001 - a case
):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    text = "Prefers window seats on trains"
    async with running(tmp_path, model=writing("Good.", text=text, path="MEMORY.md")) as engine:
        await engine.ask(said)
        assert (CONFIRMED in memory_of(tmp_path)) == confirms
        assert memory_of(tmp_path).count("window seats") == 1


async def test_what_came_from_elsewhere_is_written_anew_once_the_person_says_it(tmp_path: Path):
    text = "Prefers window seats on trains"
    elsewhere = f"- {text} <!-- untrusted 2026-01-01 -->\n"
    write(tmp_path, f"{ADA}/{TODAY}", elsewhere)
    async with running(tmp_path, model=writing("Good.", text=text)) as engine:
        await engine.ask("Ada prefers window seats on trains")
        note = (space_of(tmp_path) / TODAY).read_text()
        assert note == f"{elsewhere}- 12:00 {text} <!-- owner -->\n"


async def test_the_page_tells_ages_in_words_and_has_a_button(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with house(tmp_path, monkeypatch) as it, it.browser() as owner:
        it.write("MEMORY.md", FACTS)
        it.write(f"{ADA_WEB}/MEMORY.md", FACTS)
        it.write("shared/rules.md", "- Quiet at night <!-- agent 2020-01-01 -->\n")
        page = await owner.seen("memory/file", path="MEMORY.md")
        assert page.count("years old · faded") == 2
        assert "2 years old · confirmed 2026-11-01" in page
        assert "51 days old" in page
        assert "6 years old" in page  # what the person said has an age, and does not fade
        assert page.count('action="/memory/confirm"') == 4
        assert 'aria-label="Still true: Prefers window seats on trains"' in page
        shared = await owner.seen("memory/file", path="shared/rules.md")
        assert "faded" in shared
        assert "/memory/confirm" not in shared
        claim = claims.digest("prefers window seats on trains")
        async with it.browser("ada") as ada:
            status, _, page = await ada.post("memory/confirm", path="MEMORY.md", claim="x")
            assert status == 303
            assert "nothing was noted" in page
        for path, status in (("memory/none.md", 404), ("../x.md", 404), ("shared/rules.md", 404)):
            assert (await owner.post("memory/confirm", path=path, claim=claim))[0] == status
        assert (await owner.post("memory/confirm", path="x" * 100_000))[0] == 413
        assert it.read("MEMORY.md") == FACTS
        status, where, page = await owner.post("memory/confirm", path="MEMORY.md", claim=claim)
        assert (status, where) == (303, "/memory/file?path=MEMORY.md&confirmed=yes")
        assert "it is still true" in page
        assert "Still true: Prefers window" not in page
        assert CONFIRMED in it.read("MEMORY.md")
        assert it.read(f"{ADA_WEB}/MEMORY.md") == FACTS
        async with it.browser(language="zh") as chinese:
            page = await chinese.seen("memory/file", path="MEMORY.md")
            assert "3 年前 · 已淡去" in page
            assert "2026-11-21 确认过" in page


class Kept:
    """What would be kept as said before somebody else changed it."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def numbers(self) -> dict[str, int]:
        return {}

    async def changed(self, _space: str, _path: str, text: str, *_: object) -> None:
        self.texts.append(text)


async def test_a_confirmation_is_no_change_that_has_an_earlier_version(tmp_path: Path):
    store, kept = FolderNotes(tmp_path / "workspace"), Kept()
    write(tmp_path, "MEMORY.md", FACTS)
    index = MemoryIndex.in_folder(
        MemoryConfig(watch=False),
        store,
        tmp_path / "index",
        NoEmbedder(),
        FakeClock(),
        versions=kept,  # type: ignore[arg-type]
    )
    try:
        await index.sync("test")
        claim = claims.digest("prefers window seats on trains")
        day = date(2026, 11, 21)
        assert await Notes(store).confirm(OWNER_VIEW, "MEMORY.md", claim, day)
        await index.sync("test")
        assert kept.texts == []
        write(tmp_path, "MEMORY.md", "- boats\n")
        await index.sync("test")
        assert [CONFIRMED in text for text in kept.texts] == [True]
    finally:
        await index.close()


async def test_whoever_owns_it_sees_the_same_in_their_own_space(tmp_path: Path):
    write(tmp_path, "MEMORY.md", FACTS)
    async with running(tmp_path) as engine:
        memory = engine.app.memory
        aging = await memory.uses.aging(OWNER_VIEW.spaces)
        loaded = await memory.files.bootstrap(OWNER_VIEW, aging)
        facts = next(file for file in loaded if file.name == "MEMORY.md")
        assert facts.faded == 2
        assert aging.today == date(2026, 11, 21)
