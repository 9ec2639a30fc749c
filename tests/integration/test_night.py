"""At night notes are kept in order, in the morning that is told, and /undo night takes it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Request
from bot.errors import ModelOverloaded
from bot.identity.view import folder_name
from bot.memory.memory import OWNER_VIEW
from bot.memory.night.keeper import Keeper
from bot.sessions import belongings, erasing
from bot.sessions.erasing import NIGHT as NIGHT_KEPT
from bot.storage import Transaction
from bot.testing import ScriptedModel
from tests.fakes.pair import pair
from tests.support import NOON, Engine, FakeClock, running, until

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
        path = folder / "workspace" / space / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def held(folder: Path, space: str = "") -> dict[str, str]:
    return {name: (folder / "workspace" / space / name).read_text() for name in NOTES}


@asynccontextmanager
async def owned(folder: Path, clock: FakeClock, **sections: Any) -> AsyncIterator[Engine]:
    sections = {"session": {"owner": ["memory:ada"]}, **sections}
    async with running(folder, clock=clock, **sections) as engine:
        yield engine


async def look(engine: Engine, to: str = "ada") -> list[str]:
    """Look once; the receipts so far."""
    await engine.app.nights._memory.index.sync("test")
    await engine.app.nights.look()
    return receipts(engine, to)


def receipts(engine: Engine, to: str = "ada") -> list[str]:
    return [text for text in engine.sent_to(to) if text.startswith(HEAD)]


async def test_a_night_is_told_in_the_morning_once_and_taken_back_as_a_whole(tmp_path: Path):
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
        await engine.app.nights.look()
        await engine.channel.wait_until(lambda _: len(receipts(engine)) == 1)
        (told,) = await look(engine)
        assert told == (
            "I tidied your notes in the night of 2026-11-22:\n"
            "- MEMORY.md:3: “Lives in Bonn” is over, by what memory/2026-11-01.md says; "
            "struck out\n"
            f"- {TEA}:3: “I like green tea” stays, with the first day it was said and the last\n"
            f"- memory/2026-11-01.md:4: “I like green tea!” says the same as {TEA}; struck out\n\n"
            "Nothing was deleted. /undo night takes all of it back."
        )
        (button,) = engine.channel.sent[-1].buttons
        assert button.command == "/undo night"
        said = await engine.ask("/undo night")
        assert said == "Taken back: 3 entries of your notes stand as before."
        assert held(tmp_path) == NOTES
        assert await engine.ask("/undo night") == ("There is no change of the night to take back.")
        # What was taken back is not done again; what is new is.
        clock.advance(hours=19)
        await look(engine)
        now = held(tmp_path)
        assert "ended by memory/2026-11-22.md" in now["MEMORY.md"]
        assert now[TEA] == NOTES[TEA]


async def test_each_is_told_of_their_own_where_they_are_and_rooms_stay_as_they_are(
    tmp_path: Path,
):
    clock = FakeClock(NIGHT)
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
        await engine.app.nights.look()
        await engine.channel.wait_until(lambda _: "夜里我整理了" in engine.sent_to("bo")[-1])
        assert held(tmp_path, room) == NOTES
        assert {name: (tmp_path / "workspace/shared" / name).read_text() for name in shared} == (
            shared
        )
        assert "Nothing" not in await engine.ask("/undo 昨夜", sender="bo", locale="zh")
        assert held(tmp_path, bo) == NOTES
        assert held(tmp_path) == AFTER


async def test_it_is_done_and_told_when_and_as_far_as_configured(tmp_path: Path):
    clock = FakeClock(NIGHT)
    put(tmp_path, NOTES)

    async def looked(**night: Any) -> int:
        async with owned(tmp_path, clock, memory={"night": night}) as engine:
            await engine.ask("hello")
            await engine.app.memory.index.sync("test")  # whose notes it knows is looked at
            await engine.app.nights.look()
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
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
        assert await engine.ask("/undo night") == "There is no change of the night to take back."
    async with owned(tmp_path, clock) as engine:
        await look(engine)
        assert held(tmp_path) == AFTER
        with monkeypatch.context() as patch:
            left = writes
            patch.setattr(Keeper, "_put_note", dying)
            with pytest.raises(Killed):
                await engine.app.nights.keeper.take_back(OWNER_VIEW)
        assert held(tmp_path) != NOTES
    async with owned(tmp_path, clock) as engine:
        await look(engine)
        assert held(tmp_path) == NOTES
        clock.advance(hours=8)
        assert await look(engine) == []


async def test_what_a_person_writes_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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
            "Taken back: 2 entries of your notes stand as before. "
            "1 was changed or removed since, and stays as it is."
        )
        back = {name: text + more for name, text in NOTES.items()}
        back[TEA] = AFTER[TEA].replace("green", "black") + more
        assert held(tmp_path) == back


async def test_what_is_forgotten_meanwhile_is_gone_and_nothing_rests_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = FakeClock(NIGHT)
    put(tmp_path, NOTES)
    real = Keeper._put_note
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")

        async def forgotten(*given: Any) -> None:
            monkeypatch.setattr(Keeper, "_put_note", real)
            await engine.ask("/memory forget moved to Kiel")
            await engine.ask("/memory forget yes")
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


async def test_what_drops_is_asked_for_and_done_or_left_as_they_say(tmp_path: Path):
    clock = FakeClock(NIGHT)
    old = "- Collects {} <!-- agent 2019-01-05 -->\n"
    put(tmp_path, {"MEMORY.md": old.format("stamps")})
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        await look(engine)
        clock.advance(hours=5)
        await look(engine)
        await engine.channel.wait_until(lambda _: "strike these out" in engine.sent_to("ada")[-1])
        sent = engine.channel.sent[-1]
        assert "MEMORY.md:1: “Collects stamps” has not been needed for long" in sent.text
        assert receipts(engine) == []
        yes, no = (button.command for button in sent.buttons)
        assert no == "/memory night no 2026-11-22"
        assert await engine.ask("/memory night yes 2026-11-21") == (
            "That question is no longer open, and nothing was changed."
        )
        path = tmp_path / "workspace/MEMORY.md"
        assert path.read_text() == old.format("stamps")
        assert await engine.ask(yes) == "Struck out: 1. /undo night takes it back."
        assert path.read_text() == (
            "- ~~Collects stamps~~ <!-- agent 2019-01-05, until 2026-11-22, let go -->\n"
        )
        assert "is struck out, as you said" in await engine.ask("/memory night")
        assert "no longer open" in await engine.ask(yes)
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
        assert await engine.ask(no.replace("22", "23")) == "They stay as they are: 1."
        assert "~~" not in path.read_text()


async def test_a_model_proposes_within_the_rules_and_what_it_costs_is_counted(tmp_path: Path):
    clock = FakeClock(NIGHT)
    answers: list[str | Exception] = ['{"same": [2, 3]}', ModelOverloaded(), "no idea"]

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
        rows = await engine.app.nights._database.read(
            lambda tx: tx.execute("SELECT purpose, runs FROM usage_counts WHERE purpose = 'night'")
        )
        assert rows == [("night", 1)]
        # One that fails, or answers rubbish, leaves the rules to it.
        for place in ("Rome", "Oslo"):
            clock.advance(hours=6)
            await look(engine)
            clock.advance(hours=18)
            day = f"{datetime.fromtimestamp(clock.now / 1000, UTC):%Y-%m-%d}"
            put(tmp_path, {f"memory/{day}.md": f"- I moved to {place}\n"})
            await look(engine)
        assert not answers
        kiel = (tmp_path / "workspace/memory/2026-11-01.md").read_text()
        assert "~~I moved to Kiel~~" in kiel


async def test_of_two_nodes_one_keeps_the_notes_in_order_and_either_takes_it_back(
    postgres_url: str, tmp_path: Path
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
        await until(lambda: any(text.startswith("Taken back: 3") for text in nodes.sent))
        assert stored() == NOTES
        assert await looked() == NOTES
        assert sum(text.startswith(HEAD) for text in nodes.sent) == 1


async def test_what_is_kept_of_a_night_holds_no_words_and_goes_with_its_person(tmp_path: Path):
    space = f"people/{folder_name('memory:ada')}"
    put(tmp_path, NOTES, space)
    async with running(tmp_path, clock=FakeClock(NIGHT)) as engine:
        await engine.ask("hello")
        await look(engine)
        assert held(tmp_path, space) == AFTER
        database = engine.app.nights._database

        def kept(tx: Transaction) -> str:
            rows = tx.execute("SELECT value FROM meta WHERE key = ?", (f"{NIGHT_KEPT}{space}",))
            return "".join(str(row[0]) for row in rows)

        said = await database.read(kept)
        assert "memory/2026-11-01.md" in said
        assert not [word for word in ("Bonn", "Kiel", "tea") if word in said]
        await database.write(
            lambda tx: erasing.erase(tx, belongings.of(tx, ["memory:ada"]), engine.clock())
        )
        assert await database.read(kept) == ""


async def test_what_they_take_back_while_a_model_thinks_stays_taken_back(tmp_path: Path):
    put(tmp_path, NOTES)
    clock = FakeClock(NIGHT)
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        await look(engine)
        clock.advance(hours=6)
        await look(engine)
        await engine.channel.wait_until(lambda _: len(receipts(engine)) == 1)
        keeper = engine.app.nights.keeper
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


async def test_a_model_is_not_asked_again_about_the_same_entries(tmp_path: Path):
    clock = FakeClock(NIGHT)
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
