"""At night notes are kept in order, in the morning that is told, and /undo night reverses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bot.agent.models import Request
from bot.errors import ModelOverloaded
from bot.identity.view import folder_name
from bot.memory import claims, uses
from bot.memory.embed import NoEmbedder
from bot.memory.index import MemoryIndex
from bot.memory.memory import OWNER_VIEW
from bot.memory.night.keeper import Keeper
from bot.memory.note_store import FolderNotes
from bot.memory.notes import Notes, SpaceFiles
from bot.sessions import erasing
from bot.sessions.erasing import NIGHT as NIGHT_KEPT
from bot.storage import Row, Transaction
from bot.storage.sqlite_sql import SqliteTransaction
from bot.testing import ScriptedModel
from bot.upkeep.nights import TRIES
from tests.fakes.pair import pair
from tests.integration.test_memory_engine import ADA, EVE, TODAY, recalled, space_of, write, writing
from tests.integration.test_memory_pages import house, query
from tests.support import NOON, Engine, FakeClock, running, settings_of, until, write_file

HEAD = "I tidied your notes"
NIGHT = NOON + 15 * 3_600_000 + 600_000  # ten past three, on 2026-11-22
TEA = "memory/2026-10-01.md"
NOTES = {
    "MEMORY.md": "# Memory\n\n- Lives in Bonn <!-- owner 2026-01-05 -->\n",
    TEA: "# 2026-10-01\n\n- 14:03 I like green tea <!-- owner -->\n",
    "memory/2026-11-01.md": "# 2026-11-01\n\n- 08:00 I moved to Kiel <!-- owner -->\n"
    "- 09:00 I like green tea! <!-- owner -->\n- 10:00 I like tea <!-- untrusted -->\n",
}
AFTER = {
    "MEMORY.md": "# Memory\n\n- ~~Lives in Bonn~~ <!-- owner 2026-01-05, until 2026-11-22, "
    "ended by memory/2026-11-01.md -->\n",
    TEA: "# 2026-10-01\n\n"
    "- 14:03 I like green tea <!-- owner 2026-10-01 confirmed 2026-11-01 -->\n",
    "memory/2026-11-01.md": "# 2026-11-01\n\n- 08:00 I moved to Kiel <!-- owner -->\n"
    f"- 09:00 ~~I like green tea!~~ <!-- owner until 2026-11-22, same as {TEA} -->\n"
    "- 10:00 I like tea <!-- untrusted -->\n",
}


def put(folder: Path, notes: dict[str, str], space: str = "") -> None:
    for name, text in notes.items():
        write_file(folder / "workspace" / space / name, text)


def held(folder: Path, space: str = "") -> dict[str, str]:
    return {name: (folder / "workspace" / space / name).read_text() for name in NOTES}


@pytest.fixture
def clock():
    return FakeClock(NIGHT)


@asynccontextmanager
async def owned(folder: Path, clock: FakeClock, **sections: Any) -> AsyncIterator[Engine]:
    sections = {"session": {"owner": ["memory:ada"]}, **sections}
    async with running(folder, clock=clock, **sections) as engine:
        yield engine


async def look(engine: Engine, to: str = "ada") -> list[str]:
    """Look once; the receipts so far."""
    await engine.app.maintenance.nights._memory.index.sync("test")
    await engine.app.maintenance.nights.look()
    return receipts(engine, to)


def receipts(engine: Engine, to: str = "ada") -> list[str]:
    return [text for text in engine.sent_to(to) if text.startswith(HEAD)]


async def test_a_night_is_told_in_the_morning_once_and_taken_back_as_a_whole(tmp_path):
    clock = FakeClock()
    put(tmp_path, NOTES)
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello there")
        await look(engine)
        assert held(tmp_path) == NOTES  # it is noon
        clock.now = NIGHT
        assert await look(engine) == []
        assert held(tmp_path) == AFTER
        clock.advance(hours=1)
        put(tmp_path, {"memory/2026-11-22.md": "- I live in Rome <!-- owner -->\n"})
        assert await look(engine) == []  # once a night
        assert held(tmp_path) == AFTER
    clock.advance(hours=4)
    async with owned(tmp_path, clock) as engine:
        await engine.app.maintenance.nights.look()
        await engine.channel.wait_until(lambda _: len(receipts(engine)) == 1)
        (told,) = await look(engine)
        assert told == (
            "I tidied your notes in the night of 2026-11-22:\n"
            "- MEMORY.md:3: “Lives in Bonn” is over, according to memory/2026-11-01.md; "
            "struck out\n"
            f"- {TEA}:3: “I like green tea” stays, with the first and last day it was said\n"
            f"- memory/2026-11-01.md:4: “I like green tea!” says the same as {TEA}; struck out\n\n"
            "Nothing was deleted. /undo night reverses it all."
        )
        (button,) = engine.channel.sent[-1].buttons
        assert button.command == "/undo night"
        said = await engine.ask("/undo night")
        assert said == "Undone: 3 entries of your notes are back as before."
        assert held(tmp_path) == NOTES
        assert await engine.ask("/undo night") == ("There is no nightly change to undo.")
        # What was taken back is not done again; what is new is.
        clock.advance(hours=19)
        await look(engine)
        now = held(tmp_path)
        assert "ended by memory/2026-11-22.md" in now["MEMORY.md"]
        assert now[TEA] == NOTES[TEA]


async def test_each_is_told_of_their_own_where_they_are_and_rooms_stay_as_they_are(tmp_path, clock):
    bo, room = f"people/{folder_name('memory:bo')}", "rooms/memory-den"
    shared = {name: text for name, text in NOTES.items() if name != "MEMORY.md"}
    for space in ("", bo, room):
        put(tmp_path, NOTES, space)
    put(tmp_path, shared, "shared")
    zones = {"owner": ["memory:ada"], "timezones": {"memory:bo": "Asia/Shanghai"}}
    async with owned(tmp_path, clock, session=zones) as engine:
        await engine.ask("hello")
        await engine.ask("hello", sender="bo")
        await engine.ask("hello", sender="cy")
        await engine.ask("hello", sender="den", chat_type="group", mentions_bot=True)
        await look(engine)
        assert held(tmp_path) == AFTER
        assert held(tmp_path, bo) == NOTES  # it is eleven there
        assert await look(engine, "bo") == []
        clock.advance(hours=16)
        await engine.ask("hello again", sender="bo", locale="zh")
        await look(engine, "bo")
        assert held(tmp_path, bo) == {
            name: text.replace("2026-11-22", "2026-11-23") for name, text in AFTER.items()
        }
        await engine.channel.wait_until(lambda _: len(receipts(engine)) == 1)
        clock.advance(hours=5)
        await engine.app.maintenance.nights.look()
        await engine.channel.wait_until(lambda _: "夜间我整理了" in engine.sent_to("bo")[-1])
        assert held(tmp_path, room) == NOTES
        assert {name: (tmp_path / "workspace/shared" / name).read_text() for name in shared} == (
            shared
        )
        assert "Nothing" not in await engine.ask("/undo 昨夜", sender="bo", locale="zh")
        assert held(tmp_path, bo) == NOTES
        assert held(tmp_path) == AFTER


async def test_it_is_done_and_told_when_and_as_far_as_configured(tmp_path, clock):
    put(tmp_path, NOTES)

    async def looked(**night: Any) -> int:
        async with owned(tmp_path, clock, memory={"night": night}) as engine:
            await engine.ask("hello")
            await engine.app.agent.memory.index.sync("test")  # whose notes it knows is looked at
            await engine.app.maintenance.nights.look()
            before = len(engine.channel.sent)
            await engine.ask("hello")
            await engine.channel.wait_sent(before + 1)
            return len(receipts(engine))

    await looked(mode="off")
    await looked(hour=4)
    assert held(tmp_path) == NOTES
    assert await looked(hour=3, tell_hour=4, most=1) == 0
    one = held(tmp_path)
    assert one == {**NOTES, "MEMORY.md": AFTER["MEMORY.md"]}
    assert await looked(hour=3, tell_hour=4, most=1) == 0
    assert await looked(hour=2, tell_hour=3) == 1
    assert held(tmp_path) == one


class Killed(Exception):
    """The program ended here."""


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_ended_between_two_notes_it_is_completed_and_so_is_taking_it_back(
    tmp_path, monkeypatch, writes
):
    clock, left = FakeClock(NIGHT), writes
    put(tmp_path, NOTES)
    real = Keeper._put_note

    async def dying(*given: Any) -> None:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        await real(*given)

    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "_put_note", dying)
            with pytest.raises(Killed):
                await look(engine)
        assert held(tmp_path) != AFTER
        assert await engine.ask("/undo night") == "There is no nightly change to undo."
    async with owned(tmp_path, clock) as engine:
        await look(engine)
        assert held(tmp_path) == AFTER
        with monkeypatch.context() as patch:
            left = writes
            patch.setattr(Keeper, "_put_note", dying)
            with pytest.raises(Killed):
                await engine.app.maintenance.nights.keeper.take_back(OWNER_VIEW)
        assert held(tmp_path) != NOTES
    async with owned(tmp_path, clock) as engine:
        await look(engine)
        assert held(tmp_path) == NOTES
        clock.advance(hours=8)
        assert await look(engine) == []


async def test_what_a_person_writes_meanwhile_stays(tmp_path, monkeypatch):
    put(tmp_path, NOTES)
    real = Keeper._put_note
    more = "- by hand, meanwhile\n"
    async with owned(tmp_path, FakeClock(NIGHT)) as engine:
        await engine.ask("hello")

        async def edited(*given: Any) -> None:
            path = tmp_path / "workspace" / given[2]
            if more not in path.read_text():
                path.write_text(path.read_text() + more)
            await real(*given)

        monkeypatch.setattr(Keeper, "_put_note", edited)
        await look(engine)
        assert held(tmp_path) == {name: text + more for name, text in AFTER.items()}
        # An entry that was changed since is not put back, and that is said.
        path = tmp_path / "workspace" / TEA
        path.write_text(path.read_text().replace("green tea", "black tea"))
        assert await engine.ask("/undo night") == (
            "Undone: 2 entries of your notes are back as before. "
            "1 was changed or removed since then, so I left it as it is."
        )
        back = {name: text + more for name, text in NOTES.items()}
        back[TEA] = AFTER[TEA].replace("green", "black") + more
        assert held(tmp_path) == back


async def test_what_is_forgotten_meanwhile_is_gone_and_nothing_rests_on_it(
    tmp_path, monkeypatch, clock
):
    put(tmp_path, NOTES)
    real = Keeper._put_note
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")

        async def forgotten(*given: Any) -> None:
            monkeypatch.setattr(Keeper, "_put_note", real)
            await engine.ask_each("/memory forget moved to Kiel", "/memory forget yes")
            await real(*given)

        monkeypatch.setattr(Keeper, "_put_note", forgotten)
        await look(engine)
        now = held(tmp_path)
        assert "Kiel" not in "".join(now.values())
        assert "~~" not in "".join(now.values())
        await look(engine)
        now = held(tmp_path)
        assert now["MEMORY.md"] == NOTES["MEMORY.md"]  # what ended it is gone
        assert now[TEA] == AFTER[TEA]
        clock.advance(hours=6)
        await look(engine)
        await engine.channel.wait_until(lambda _: len(receipts(engine)) == 1)
        assert "Bonn" not in receipts(engine)[0]
        await engine.ask("/undo night")
        assert "Kiel" not in "".join(held(tmp_path).values())


async def test_what_drops_is_asked_for_and_done_or_left_as_they_say(tmp_path, clock):
    old = "- Collects {} <!-- agent 2019-01-05 -->\n"
    put(tmp_path, {"MEMORY.md": old.format("stamps")})
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        await look(engine)
        clock.advance(hours=5)
        await look(engine)
        await engine.channel.wait_until(lambda _: "strike these out" in engine.sent_to("ada")[-1])
        sent = engine.channel.sent[-1]
        assert "MEMORY.md:1: “Collects stamps” hasn't been needed for a long time" in sent.text
        assert receipts(engine) == []
        yes, no = (button.command for button in sent.buttons)
        assert no == "/memory night no 2026-11-22"
        assert await engine.ask("/memory night yes 2026-11-21") == (
            "That question is closed, and nothing was changed."
        )
        path = tmp_path / "workspace/MEMORY.md"
        assert path.read_text() == old.format("stamps")
        assert await engine.ask(yes) == "Struck out: 1. /undo night reverses it."
        assert path.read_text() == (
            "- ~~Collects stamps~~ <!-- agent 2019-01-05, until 2026-11-22, let go -->\n"
        )
        assert "was struck out, as you asked" in await engine.ask("/memory night")
        assert "question is closed" in await engine.ask(yes)
        await engine.ask("/undo night")
        assert path.read_text() == old.format("stamps")
        # Nobody is asked twice; of what is new they are.
        clock.advance(hours=19)
        path.write_text(old.format("stamps") + old.format("coins"))
        await look(engine)
        clock.advance(hours=5)
        await look(engine)
        await engine.channel.wait_until(lambda _: "Collects coins" in engine.sent_to("ada")[-1])
        assert "stamps" not in engine.sent_to("ada")[-1]
        assert await engine.ask(no.replace("22", "23")) == "Left as they are: 1."
        assert "~~" not in path.read_text()


async def test_a_model_proposes_within_the_rules_and_what_it_costs_is_counted(tmp_path, clock):
    failures = [ModelOverloaded() for _ in range(TRIES)]
    answers: list[str | Exception] = ['{"same": [2, 3]}', *failures, "no idea"]

    def script(request: Request) -> Any:
        return answers.pop(0) if request.purpose == "night" else "All right."

    model, alike = ScriptedModel(script), ("Our cottage has 3 rooms", "3 rooms has our cottage")
    notes = {
        **NOTES,
        **{f"memory/2026-09-0{n}.md": f"- {words}\n" for n, words in enumerate(alike, start=1)},
    }
    put(tmp_path, notes)
    memory = {"night": {"mode": "model"}}
    async with owned(tmp_path, clock, model=model, memory=memory) as engine:
        await engine.ask("hello")
        await look(engine)
        (asked,) = [request for request in model.requests if request.purpose == "night"]
        lines = asked.messages[0].text.split("\n")
        assert [line for line in lines if line.startswith(("2. ", "3. "))] == [
            f"{n}. 2026-09-0{n - 1}, hand, memory/2026-09-0{n - 1}.md: {words}"
            for n, words in enumerate(alike, start=2)
        ]
        assert "I like tea" not in asked.messages[0].text  # it came from elsewhere
        assert held(tmp_path) == AFTER
        struck = (tmp_path / "workspace/memory/2026-09-02.md").read_text()
        assert struck == (
            "- ~~3 rooms has our cottage~~ "
            "<!-- until 2026-11-22, same as memory/2026-09-01.md -->\n"
        )
        rows = await engine.app.core.database.read(
            lambda tx: tx.execute("SELECT purpose, runs FROM usage_counts WHERE purpose = 'night'")
        )
        assert rows == [("night", 1)]
        # One that fails is asked again and then told of; or it answers rubbish: the rules are left.
        kiel = tmp_path / "workspace/memory/2026-11-01.md"
        for place, fails in (("Rome", True), ("Oslo", False)):
            clock.advance(hours=6)
            await look(engine)
            clock.advance(hours=18)
            day = f"{datetime.fromtimestamp(clock.now / 1000, UTC):%Y-%m-%d}"
            put(tmp_path, {f"memory/{day}.md": f"- I moved to {place}\n"})
            for left in reversed(range(TRIES if fails else 0)):
                await look(engine)
                assert len(answers) == left + 1
                assert "~~I moved to Kiel~~" not in kiel.read_text()
            await look(engine)
            assert "~~I moved to Kiel~~" in kiel.read_text()
            said = await engine.ask("/status")
            assert ("couldn't help tidy your notes" in said) is fails
        assert not answers


async def test_of_two_nodes_one_keeps_the_notes_in_order_and_either_takes_it_back(
    postgres_url, tmp_path
):
    # The server's clock counts there: let it be noon.
    off = 12 - datetime.now(UTC).hour
    sections: dict[str, Any] = {
        "session": {"owner": ["memory:ada"]},
        "agent": {"timezone": f"Etc/GMT{-off:+d}" if off else "UTC"},
        "memory": {"night": {"hour": 11, "tell_hour": 12}},
    }
    async with pair(postgres_url, tmp_path, ScriptedModel(), **sections) as nodes:
        both = (nodes.one, nodes.other)
        await nodes.one.say("hello")
        await nodes.answered(1)
        nodes.do("DELETE FROM notes WHERE path = 'MEMORY.md'")
        nodes.do(
            "INSERT INTO notes(path, space, version, text, size, made_at, changed_at) VALUES "
            + ", ".join(f"('{n}', 'main', 1, '{t}', {len(t)}, 1, 1)" for n, t in NOTES.items())
        )

        def stored() -> dict[str, str]:
            found = nodes.look("SELECT path, text FROM notes")
            return {str(path): str(text) for path, text in found if path in NOTES}

        async def looked() -> dict[str, str]:
            await asyncio.gather(*(look(node) for node in both))
            return stored()

        after = await looked()
        assert [after[name].count("~~") for name in NOTES] == [2, 0, 2]
        await until(lambda: any(text.startswith(HEAD) for text in nodes.sent))
        assert await looked() == after
        await nodes.other.say("/undo night")
        await until(lambda: any(text.startswith("Undone: 3") for text in nodes.sent))
        assert stored() == NOTES
        assert await looked() == NOTES
        assert sum(text.startswith(HEAD) for text in nodes.sent) == 1


async def test_what_is_kept_of_a_night_holds_no_words_and_goes_with_its_person(tmp_path):
    space = f"people/{folder_name('memory:ada')}"
    put(tmp_path, NOTES, space)
    async with running(tmp_path, clock=FakeClock(NIGHT)) as engine:
        await engine.ask("hello")
        await look(engine)
        assert held(tmp_path, space) == AFTER
        database = engine.app.core.database

        def kept(tx: Transaction) -> str:
            rows = tx.execute("SELECT value FROM meta WHERE key = ?", (f"{NIGHT_KEPT}{space}",))
            return "".join(str(row[0]) for row in rows)

        said = await database.read(kept)
        assert "memory/2026-11-01.md" in said
        assert not [word for word in ("Bonn", "Kiel", "tea") if word in said]
        await database.write(
            lambda tx: erasing.erase(tx, erasing.belongings_of(tx, ["memory:ada"]), engine.clock())
        )
        assert await database.read(kept) == ""


async def test_what_they_take_back_while_a_model_thinks_stays_taken_back(tmp_path, clock):
    put(tmp_path, NOTES)
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        await look(engine)
        clock.advance(hours=6)
        await look(engine)
        await engine.channel.wait_until(lambda _: len(receipts(engine)) == 1)
        keeper = engine.app.maintenance.nights.keeper
        put(tmp_path, {"memory/2026-11-22.md": "- I live in Rome <!-- owner -->\n"})

        async def thinking(_: str) -> str:
            await keeper.take_back(OWNER_VIEW)
            return '{"same": [1, 2]}'

        assert await keeper.look(OWNER_VIEW, date(2026, 11, 23), 10, thinking) is None
        assert held(tmp_path) == NOTES
        record = await keeper.of("main")
        assert record.night is not None
        assert record.night.state == "undone"
        assert len(record.left) == 2


async def test_a_model_is_not_asked_again_about_the_same_entries(tmp_path, clock):
    model = ScriptedModel(lambda request: "{}" if request.purpose == "night" else "All right.")
    note = "- Sings in a choir <!-- owner 2026-09-01 -->\n- Has a boat <!-- owner 2026-09-01 -->\n"
    put(tmp_path, {"MEMORY.md": note})
    async with owned(tmp_path, clock, model=model) as engine:
        await engine.ask("hello")
        for text, times in ((note, 1), (note, 1), (f"{note}- Has a cat\n", 2)):
            put(tmp_path, {"MEMORY.md": text})
            await look(engine)
            clock.advance(hours=24)
            assert [request.purpose for request in model.requests].count("night") == times


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


async def test_what_has_faded_is_left_out_of_the_opening_and_stays_in_the_file(tmp_path):
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
        assert "2 entries shown at the start of conversations have faded" in await engine.ask(
            "/memory"
        )


async def test_what_an_answer_used_is_in_the_next_opening_again(tmp_path):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    said = "I'd book trains with window seats, as you prefer."
    async with running(tmp_path, model=saying(said)) as engine:
        memory = engine.app.agent.memory
        await engine.ask("how shall I travel?")
        assert rows(engine) == []  # nothing of it is a part of the turn
        assert await memory.store_uses() == 1
        words = claims.digest("prefers window seats on trains")
        assert rows(engine) == [(ADA, words, "2026-11-21")]
        await engine.ask("how shall I travel back?")
        assert await memory.store_uses() == 0  # once a day is enough
        await engine.ask_each("/new", "hello again")
        system = engine.model.requests[-1].system
        assert "window seats" in system
        assert "chess" not in system


async def test_a_use_by_one_person_changes_nothing_that_another_sees(tmp_path):
    for space in (ADA, EVE):
        write(tmp_path, f"{space}/MEMORY.md", FACTS)
    write(tmp_path, "shared/rules.md", "- Prefers window seats on boats <!-- agent 2024-01-01 -->")
    async with running(tmp_path, model=saying("Trains: window seats, on boats too.")) as engine:
        await engine.ask("hello")
        assert await engine.app.agent.memory.store_uses() == 1
        assert {space for space, _, _ in rows(engine)} == {ADA}
        await engine.ask("hello", sender="eve")
        assert "window seats" not in engine.model.requests[-1].system


async def test_what_is_forgotten_leaves_no_trace_of_its_use(tmp_path):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    said = "Ada collects old maps, lives in Berlin, prefers window seats on trains."
    async with running(tmp_path, model=saying(said)) as engine:
        await engine.ask("what do you know?")
        assert await engine.app.agent.memory.store_uses() == 3
        await engine.ask("and?")  # waits to be stored while the words are forgotten
        await engine.ask_each("/memory forget window seats", "/memory forget yes")
        assert await engine.app.agent.memory.store_uses() == 0
        left = {claim for _, claim, _ in rows(engine)}
        assert left == {claims.digest("lives in berlin"), claims.digest("collects old maps")}


async def test_what_is_forgotten_while_uses_are_stored_is_not_stored(tmp_path, monkeypatch):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    async with running(tmp_path, model=saying("Window seats on trains, and old maps.")) as engine:
        await engine.ask("hello")
        memory = engine.app.agent.memory
        plain = uses.says

        def forgets(answer: Any, claim: claims.Claim) -> bool:
            for watch in memory.notes._watches[ADA]:
                watch.words.append("window seats")
            return plain(answer, claim)

        monkeypatch.setattr(uses, "says", forgets)
        assert await memory.store_uses() == 0
        assert rows(engine) == []


async def test_an_end_while_uses_are_stored_leaves_them_to_the_last_time(tmp_path, monkeypatch):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    reading = asyncio.Event()

    async def never(*_: object) -> str:
        reading.set()
        return await asyncio.Future[str]()

    async with running(tmp_path, model=saying("Window seats on trains.")) as engine:
        await engine.ask("hello")
        with monkeypatch.context() as patch:
            patch.setattr(SpaceFiles, "text", never)
            storing = asyncio.create_task(engine.app.agent.memory.store_uses())
            await reading.wait()
            storing.cancel()
            await asyncio.wait([storing])
        assert rows(engine) == []
    async with running(tmp_path) as engine:
        assert len(rows(engine)) == 1


async def test_answers_in_a_conversation_ask_the_database_nothing_of_uses(tmp_path):
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


async def test_a_command_lists_what_has_faded_and_confirms_one_of_it(tmp_path):
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
            assert "None of my conclusions or imported entries" in await engine.ask(
                f"/memory confirm {none}"
            )
        assert memory_of(tmp_path) == FACTS + more
        told = await engine.ask("/memory confirm window seats")
        assert told == ("Noted as still true: MEMORY.md:5 “Prefers window seats on trains”")
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
    tmp_path,
    said,
    confirms,
):
    write(tmp_path, f"{ADA}/MEMORY.md", FACTS)
    text = "Prefers window seats on trains"
    async with running(tmp_path, model=writing("Good.", text=text, path="MEMORY.md")) as engine:
        await engine.ask(said)
        assert (CONFIRMED in memory_of(tmp_path)) == confirms
        assert memory_of(tmp_path).count("window seats") == 1


async def test_what_came_from_elsewhere_is_written_anew_once_the_person_says_it(tmp_path):
    text = "Prefers window seats on trains"
    elsewhere = f"- {text} <!-- untrusted 2026-01-01 -->\n"
    write(tmp_path, f"{ADA}/{TODAY}", elsewhere)
    async with running(tmp_path, model=writing("Good.", text=text)) as engine:
        await engine.ask("Ada prefers window seats on trains")
        note = (space_of(tmp_path) / TODAY).read_text()
        assert note == f"{elsewhere}- 12:00 {text} <!-- owner -->\n"


WRONG = "- ~~Plays chess on Fridays~~ <!-- owner 2026-01-05, until 2026-11-21, let go -->"


async def test_what_is_wrong_is_struck_out_by_a_command_in_ones_own_notes(tmp_path):
    chess = "- Plays chess on Fridays <!-- owner 2026-01-05 -->"
    for space in (ADA, EVE):
        write(tmp_path, f"{space}/MEMORY.md", f"# Memory\n\n{chess}\n- Plays <b>go</b> ~~well~~\n")
        write(tmp_path, f"{space}/memory/games.md", "- plays chess on Fridays\n")
    write(tmp_path, "shared/club.md", "- Chess is on Fridays\n")
    async with running(tmp_path, model=saying("Hello.")) as engine:
        assert "Several entries" in await engine.ask("/memory wrong plays")
        for none in ("Chess is on", "unknown words"):
            assert "None of your entries" in await engine.ask(f"/memory wrong {none}")
        assert "left it alone" in await engine.ask("/memory wrong Plays <b>go")
        told = await engine.ask("/memory wrong plays chess")
        assert told == (
            "Struck out as not true: “Plays chess on Fridays” (MEMORY.md, memory/games.md). "
            "Nothing was deleted, but I no longer rely on it."
        )
        assert WRONG in memory_of(tmp_path)
        assert "~~plays chess" in (tmp_path / "workspace" / ADA / "memory/games.md").read_text()
        assert chess in memory_of(tmp_path, EVE)
        await engine.ask("When do I play chess?")
        seen = "".join(map(str, engine.model.requests[-1].messages))
        assert "chess on Fridays" not in engine.model.requests[-1].system + seen
        assert "None of your entries" in await engine.ask("/memory wrong plays chess")
        assert "没有含这些词语" in await engine.ask("/memory wrong 围棋", sender="bob", locale="zh")


async def test_what_is_wrong_is_struck_out_in_the_page_and_can_be_had_back(tmp_path):
    async with house(tmp_path) as it, it.browser() as owner, it.browser("ada") as ada:
        for each in (owner, ada):
            each.write("MEMORY.md", "- Plays chess on Fridays <!-- owner 2026-01-05 -->\n- Hand\n")
        page = await owner.seen("memory/file", path="MEMORY.md")
        assert page.count('action="/memory/wrong"') == 2
        assert 'aria-label="Not true: Plays chess on Fridays"' in page
        claim = claims.digest("plays chess on fridays")
        _, where, page = await owner.post("memory/wrong", path="MEMORY.md", claim=claim)
        assert where == "/memory/file?path=MEMORY.md&told=struck"
        assert "Nothing was deleted" in page
        assert page.count('action="/memory/wrong"') == 1
        assert owner.read("MEMORY.md") == f"{WRONG}\n- Hand\n"
        assert "a change of mine" in await owner.seen("memory/history", path="MEMORY.md")
        _, _, page = await owner.post("memory/wrong", path="MEMORY.md", claim=claim)
        assert "nothing was changed" in page
        assert "chess on Fridays <!-- owner" in ada.read("MEMORY.md")


async def test_the_page_tells_ages_in_words_and_has_a_button(tmp_path):
    async with house(tmp_path) as it, it.browser() as owner, it.browser("ada") as ada:
        for each in (owner, ada):
            each.write("MEMORY.md", FACTS)
        owner.write("shared/rules.md", "- Quiet at night <!-- agent 2020-01-01 -->\n")
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
        status, _, page = await ada.post("memory/confirm", path="MEMORY.md", claim="x")
        assert status == 303
        assert "nothing was saved" in page
        for path, status in (("memory/none.md", 404), ("../x.md", 404), ("shared/rules.md", 404)):
            assert (await owner.post("memory/confirm", path=path, claim=claim))[0] == status
        assert (await owner.post("memory/confirm", path="x" * 100_000))[0] == 413
        assert owner.read("MEMORY.md") == FACTS
        status, where, page = await owner.post("memory/confirm", path="MEMORY.md", claim=claim)
        assert (status, where) == (303, "/memory/file?path=MEMORY.md&told=confirmed")
        assert "it is still true" in page
        assert "Still true: Prefers window" not in page
        assert CONFIRMED in owner.read("MEMORY.md")
        assert ada.read("MEMORY.md") == FACTS
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


async def test_a_confirmation_is_no_change_that_has_an_earlier_version(tmp_path):
    store, kept = FolderNotes(tmp_path / "workspace"), Kept()
    write(tmp_path, "MEMORY.md", FACTS)
    index = MemoryIndex.in_folder(
        settings_of(memory={"watch": False}),
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


async def test_whoever_owns_it_sees_the_same_in_their_own_space(tmp_path):
    write(tmp_path, "MEMORY.md", FACTS)
    async with running(tmp_path) as engine:
        memory = engine.app.agent.memory
        aging = await memory.uses.aging(OWNER_VIEW.spaces)
        loaded = await memory.files.bootstrap(OWNER_VIEW, aging)
        facts = next(file for file in loaded if file.name == "MEMORY.md")
        assert facts.faded == 2
        assert aging.today == date(2026, 11, 21)
