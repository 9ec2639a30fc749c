"""What is forgotten leaves no trace in what the night keeps, nor in what tells when it was used.

Whenever it is forgotten, also in the middle of a night, of telling it or of a model's thinking:
afterwards no table but the transcripts holds the word, nor a digest of an entry that held it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from bot.memory.memory import OWNER_VIEW
from bot.memory.night import edits
from bot.memory.night.keeper import Keeper
from bot.memory.uses import digests_of
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.integration.test_night import NIGHT, look, put, receipts
from tests.support import Engine, FakeClock, running

WORD = "quokka"
NOTES = {
    "MEMORY.md": "- My email is ada@quokka.example\n"
    "- Collects quokka stamps <!-- agent 2019-01-05 -->\n"
    "- Prefers quokka trains <!-- agent 2026-08-01 -->\n"
    "- Lives in Bonn <!-- owner 2026-01-05 -->\n",
    "memory/2026-01-09.md": "- I like quokka songs "
    "<!-- owner 2026-01-02 confirmed 2026-06-01 -->\n",
    "memory/2026-10-01.md": "- 14:03 I like quokka tea <!-- owner -->\n"
    "- 14:04 I like green tea <!-- owner -->\n",
    "memory/2026-11-01.md": "- 08:00 I moved to Quokka <!-- owner -->\n"
    "- 09:00 I like quokka tea! <!-- owner -->\n"
    "- 10:00 I like green tea! <!-- owner -->\n"
    "- 11:00 Prefers quokka trains <!-- owner -->\n"
    "- 12:00 My email is ada@example.org <!-- owner -->\n",
}
SAID = "You like quokka tea, quokka songs and green tea, moved to Quokka."
KINDS = {"same", "ended", "moved", "dropped", "kept"}


def notes_of(folder: Path) -> dict[str, str]:
    root = folder / "workspace"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.md")}


class Life:
    """An owner whose notes are kept in order, and every digest of what held the word."""

    def __init__(self, folder: Path, engine: Engine, clock: FakeClock) -> None:
        self.folder = folder
        self.engine = engine
        self.clock = clock
        self.digests: set[str] = set()
        self.note()

    @property
    def keeper(self) -> Keeper:
        return self.engine.app.maintenance.nights.keeper

    def note(self) -> None:
        """Remember the digests of what holds the word by now."""
        for path, text in notes_of(self.folder).items():
            for entry in edits.entries(path, text):
                if WORD in entry.raw.lower():
                    self.digests |= {entry.digest, *digests_of(entry.raw)}

    async def night(self) -> None:
        self.clock.now = NIGHT
        await look(self.engine)
        self.note()

    async def morning(self) -> None:
        self.clock.advance(hours=6)
        await look(self.engine)
        await self.engine.channel.wait_until(lambda _: "strike these out" in self.last)
        self.note()

    @property
    def last(self) -> str:
        return self.engine.sent_to("ada")[-1]

    async def forget(self) -> None:
        await self.engine.ask(f"/memory forget {WORD}")
        await self.engine.ask("/memory forget yes")

    def traces(self) -> list[tuple[str, str]]:
        """The tables but the transcripts' that hold the word or one of the digests, and where."""
        found: list[tuple[str, str]] = []
        tables = query(
            self.folder,
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%' "
            "AND name NOT LIKE 'entries%'",
        )
        for (table,) in tables:
            for row in query(self.folder, f'SELECT * FROM "{table}"'):
                said = repr(row).lower()
                found += [(table, each) for each in (WORD, *self.digests) if each in said]
        return found


@asynccontextmanager
async def lived(folder: Path) -> AsyncGenerator[Life]:
    clock = FakeClock()
    put(folder, NOTES)
    model = ScriptedModel(script=lambda _: SAID)
    async with running(
        folder, clock=clock, model=model, session={"owner": ["memory:ada"]}
    ) as engine:
        await engine.ask("what do I like?")
        assert await engine.app.agent.memory.store_uses() >= 3
        yield Life(folder, engine, clock)


Moment = Callable[[Life, pytest.MonkeyPatch], Awaitable[None]]


async def before_it_is_told(life: Life, _patch: pytest.MonkeyPatch) -> None:
    await life.night()
    record = await life.keeper.of("main")
    assert record.night is not None
    kinds = {edit.kind for edit in (*record.night.edits, *record.night.questions)}
    assert kinds == KINDS
    assert any(each in repr(record) for each in life.digests)
    await life.forget()


async def once_it_is_told(life: Life, _patch: pytest.MonkeyPatch) -> None:
    await life.night()
    await life.morning()
    await life.forget()


async def once_they_answered(life: Life, _patch: pytest.MonkeyPatch) -> None:
    await life.night()
    await life.morning()
    assert "Struck out" in await life.engine.ask("/memory night yes 2026-11-22")
    life.note()
    await life.forget()


async def once_it_is_taken_back(life: Life, _patch: pytest.MonkeyPatch) -> None:
    await life.night()
    await life.morning()
    await life.engine.ask("/undo night")
    assert {path: notes_of(life.folder)[path] for path in NOTES} == NOTES
    await life.forget()
    assert life.traces() == []
    life.clock.advance(hours=20)
    await look(life.engine)
    # What has nothing to do with it is known to be taken back, and not done again.
    assert "~~" not in "".join(notes_of(life.folder).values())


async def once_an_entry_was_edited(life: Life, _patch: pytest.MonkeyPatch) -> None:
    await life.night()
    for path, text in notes_of(life.folder).items():
        put(life.folder, {path: text.replace("quokka tea", "hot quokka tea")})
    await life.engine.app.agent.memory.index.sync("test")
    await life.forget()


async def while_it_is_done(life: Life, patch: pytest.MonkeyPatch) -> None:
    real, left = Keeper._put_note, 2

    async def forgotten(*given: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            patch.setattr(Keeper, "_put_note", real)
            life.note()
            await life.forget()
        await real(*given)

    patch.setattr(Keeper, "_put_note", forgotten)
    await life.night()


async def while_it_is_told(life: Life, patch: pytest.MonkeyPatch) -> None:
    await life.night()
    real = Keeper.spots

    async def forgotten(*given: Any, **named: Any) -> Any:
        patch.setattr(Keeper, "spots", real)
        found = await real(*given, **named)
        await life.forget()
        return found

    patch.setattr(Keeper, "spots", forgotten)
    life.clock.advance(hours=6)
    await look(life.engine)
    assert receipts(life.engine) == []


async def while_a_model_thinks(life: Life, _patch: pytest.MonkeyPatch) -> None:
    async def thinking(listed: str) -> str:
        assert WORD in listed
        await life.forget()
        return '{"drop": 1}\n{"same": [2, 3]}'

    assert await life.keeper.look(OWNER_VIEW, date(2026, 11, 22), 10, thinking) is None
    assert (await life.keeper.of("main")).night is None


MOMENTS: tuple[Moment, ...] = (
    before_it_is_told,
    once_it_is_told,
    once_they_answered,
    once_it_is_taken_back,
    once_an_entry_was_edited,
    while_it_is_done,
    while_it_is_told,
    while_a_model_thinks,
)


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
async def test_what_is_forgotten_at_any_moment_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    async with lived(tmp_path) as life:
        assert life.traces()
        await moment(life, monkeypatch)
        assert life.traces() == []
        sent = len(life.engine.channel.sent)
        for _ in range(3):  # what was left is completed and told, and what is new is done
            life.clock.advance(hours=8)
            await look(life.engine)
        for command in ("/memory night", "/memory faded", "/memory confirm green", "/undo night"):
            await life.engine.ask(command)
        await life.engine.app.agent.memory.store_uses()
        assert not [out for out in life.engine.channel.sent[sent:] if WORD in out.text.lower()]
        assert life.traces() == []
        assert WORD not in "".join(notes_of(life.folder).values()).lower()
        # What was beside it is as it was.
        texts = notes_of(life.folder)
        assert "Lives in Bonn" in texts["MEMORY.md"]
        assert "green tea" in texts["memory/2026-10-01.md"]
        assert "green tea!" in texts["memory/2026-11-01.md"]
