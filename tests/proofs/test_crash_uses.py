"""Kill the program between an answer and the note that it used a claim: a day of use is lost alone.

What the notes say stays, to the last byte; what is stored is of claims that an answer really said,
of whose notes they are; the next answer counts, and an orderly end stores what waits.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.identity.view import folder_name
from bot.memory import claims
from tests.fakes.brain import query
from tests.fakes.telegram import FakeTelegram
from tests.proofs.crash import ANSWERED, SEED, Program
from tests.proofs.crash_platforms import telegram
from tests.proofs.dying import Dying
from tests.proofs.rounds import lengths, rounds
from tests.proofs.works import USED_ON

WORK = "use"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SPACES = {1: "main", 2: f"people/{folder_name('telegram:2')}"}
FACTS = 200  # in the notes of each


def fact(number: int) -> str:
    return f"carries{number} maps{number} inland{number}"


def answers(asked: Iterable[str]) -> set[str]:
    return {f"You said: {each}" for each in asked}


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


class Uses:
    """Two people with the same notes, a program, and what is stored of its answers."""

    def __init__(self, folder: Path, fake: FakeTelegram) -> None:
        self.folder = folder
        self.fake = fake
        self.asked: dict[int, list[str]] = {1: [], 2: []}
        self.kills = 0
        self.first_day = today()
        for space in SPACES.values():
            path = self._root(space) / "MEMORY.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = (f"- {fact(n)} <!-- agent 2024-01-01 -->\n" for n in range(FACTS))
            path.write_text("".join(lines))
        self.before = self.notes()

    def _root(self, space: str) -> Path:
        workspace = self.folder / "workspace"
        return workspace if space == "main" else workspace / space

    def notes(self) -> dict[str, bytes]:
        paths = (self._root(space) / "MEMORY.md" for space in SPACES.values())
        return {str(path): path.read_bytes() for path in paths}

    def ask(self, chat: int, number: int, *, again: bool = False) -> None:
        words = f"Once more: {fact(number)}" if again else fact(number)
        self.asked[chat].append(words)
        self.fake.push_text(chat, words)

    def numbers(self, chat: int) -> set[int]:
        """Whose facts were asked for, and so are in an answer."""
        return {n for n in range(FACTS) if any(each.endswith(fact(n)) for each in self.asked[chat])}

    async def answered(self) -> None:
        """Return once everything that was asked so far is."""
        await self.fake.wait_for(
            lambda: all(answers(asked) <= {*self.fake.texts(c)} for c, asked in self.asked.items()),
            ANSWERED,
        )

    def stored(self) -> dict[int, set[int]]:
        """Of whose claims the database has a use, by chat; all of them of answers that were given.

        Asked when no program runs.
        """
        of_claims = {claims.digest(fact(n)): n for n in range(FACTS)}
        found: dict[int, set[int]] = {1: set(), 2: set()}
        chats = {space: chat for chat, space in SPACES.items()}
        for space, claim, day in query(self.folder, "SELECT space, claim, used_on FROM claim_uses"):
            assert day in {self.first_day, today()}
            found[chats[space]].add(of_claims[claim])
        for chat, numbers in found.items():
            assert numbers <= self.numbers(chat)
        return found

    def nothing_else_is_lost(self) -> None:
        assert self.notes() == self.before
        ((sound,),) = query(self.folder, "PRAGMA integrity_check")
        assert sound == "ok"


@asynccontextmanager
async def used(folder: Path, **settings: str) -> AsyncGenerator[tuple[Uses, Program]]:
    owner = {"CONFIDANT_SESSION__OWNER": '["telegram:1"]', "CONFIDANT_AGENT__TIMEZONE": "UTC"}
    async with telegram(folder, **owner, **settings) as (fake, program):
        uses = Uses(folder, fake)
        yield uses, program
    for chat, asked in uses.asked.items():  # each is answered once, but for sends in flight
        said = Counter(uses.fake.texts(chat))
        assert said.keys() == answers(asked)
        assert said.total() - len(said) <= uses.kills


@pytest.mark.proof
async def test_a_kill_after_an_answer_loses_its_day_of_use_and_nothing_else(tmp_path: Path) -> None:
    async with used(tmp_path / "data") as (uses, program):
        for number in range(rounds(20, few=1)):
            await program.start()
            uses.ask(1, number)
            uses.ask(2, number)
            await uses.answered()
            await program.kill()
            uses.kills += 1
            assert uses.stored() == {1: set(), 2: set()}
            uses.nothing_else_is_lost()
        await program.start()
        uses.ask(1, FACTS - 1)
        await uses.answered()
        await program.stop()
        assert uses.stored() == {1: {FACTS - 1}, 2: set()}
        uses.nothing_else_is_lost()


@lengths("kills", None, 60, 5)
async def test_kills_at_any_moment_leave_only_uses_that_were_and_the_next_ones_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kills: int
) -> None:
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    numbers = iter(range(FACTS))
    async with used(tmp_path / "data", USES="0.01") as (uses, program):
        await program.start()
        uses.ask(1, next(numbers))
        await uses.answered()
        await program.stop()
        known = uses.stored()
        assert known == {1: {0}, 2: set()}
        for _ in range(kills):
            await program.start()
            for _ in range(chance.randint(1, 3)):
                uses.ask(chance.choice((1, 2)), next(numbers))
            if chance.random() < 0.7:
                await uses.answered()
            await asyncio.sleep(chance.uniform(0, 0.04))
            await program.kill()
            uses.kills += 1
            stored = uses.stored()
            assert all(known[chat] <= stored[chat] for chat in known)
            known = stored
            uses.nothing_else_is_lost()
        await program.start()
        await uses.answered()
        lost = [(chat, n) for chat in SPACES for n in uses.numbers(chat) - known[chat]]
        for chat, number in lost:
            uses.ask(chat, number, again=True)
        await uses.answered()
        await program.stop()
        assert uses.stored() == {chat: uses.numbers(chat) for chat in SPACES}
        uses.nothing_else_is_lost()
    with capsys.disabled():
        count = sum(map(len, uses.asked.values()))
        print(f"\nUses: {kills} kills, {count} answers, {len(lost)} days of use lost, else nothing")


@lengths("times", 2, 100, 6)
def test_killed_while_uses_are_stored_there_are_all_or_none(
    dying: Dying, tmp_path: Path, times: int
) -> None:
    old = tmp_path / "old"
    (old / "workspace").mkdir(parents=True)
    note = "".join(f"- {fact(n)} <!-- agent 2024-01-01 -->\n" for n in range(20))
    (old / "workspace" / "MEMORY.md").write_text(note)
    done = Path(shutil.copytree(old, tmp_path / "done"))
    points = int(dying.run(done))
    every = {(claims.digest(fact(n)), f"{USED_ON}") for n in range(20)}
    assert rows(done) == every
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    for _ in range(times):
        folder = Path(shutil.copytree(old, tmp_path / "killed"))
        assert dying.run(folder, point=chance.randint(1, points)) == "killed"
        assert rows(folder) in (set(), every)
        assert (folder / "workspace" / "MEMORY.md").read_text() == note
        dying.run(folder)
        assert rows(folder) == every
        shutil.rmtree(folder)


def rows(folder: Path) -> set[tuple[str, str]]:
    """The uses that are stored; none when there are no tables yet."""
    tables = "SELECT 1 FROM sqlite_master WHERE name = 'claim_uses'"
    is_there = (folder / "confidant.db").exists() and query(folder, tables)
    return {*query(folder, "SELECT claim, used_on FROM claim_uses")} if is_there else set()
