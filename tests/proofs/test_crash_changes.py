"""Kill the program under load and lose its database: what it said was done stands again.

People forget, link and ask to be reminded; whatever the bot confirmed before a kill must be there
after the database is gone, also when that happens while it was being read back.
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes.brain import query
from tests.fakes.telegram import FakeTelegram
from tests.proofs.crash import ANSWERED, SEED
from tests.proofs.crash_platforms import telegram
from tests.proofs.rounds import lengths

LIVES = 8
LOST_EVERY = 3  # lives
CODE = re.compile(r"/link ([A-Z2-9]{8})")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass
class Confirmed:
    """What the bot told people was done."""

    forgotten: set[str] = field(default_factory=set)
    reminders: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)


async def answered(fake: FakeTelegram, who: int, text: str, sign: str) -> str:
    """Write something and return the answer that has a sign."""
    fake.push_text(who, text)

    def found() -> list[str]:
        return [sent.text for sent in fake.sent if sent.chat_id == who and sign in sent.text]

    await fake.wait_for(lambda: bool(found()), ANSWERED)
    return found()[0]


async def forget(fake: FakeTelegram, who: int, done: Confirmed) -> None:
    await answered(fake, who, f"my secret{who} is here", f"secret{who}")
    await answered(fake, who, f"/memory forget secret{who}", "I would remove:")
    await answered(fake, who, "/memory forget yes", "Forgotten:")
    done.forgotten.add(f"secret{who}")


async def remind(fake: FakeTelegram, who: int, done: Confirmed) -> None:
    await answered(fake, who, f"/remind in 3 hours tea{who}", f"tea{who}")
    done.reminders.add(f"tea{who}")


async def link(fake: FakeTelegram, who: int, done: Confirmed) -> None:
    code = CODE.search(await answered(fake, who, "/link", "/link "))
    assert code is not None
    await answered(fake, who + 1, f"/link {code[1]}", "Done. This account")
    done.links.add(str(who + 1))


def lose(folder: Path) -> None:
    for part in ("", "-wal", "-shm"):
        (folder / f"confidant.db{part}").unlink(missing_ok=True)


def check(folder: Path, done: Confirmed) -> None:
    """Everything that was confirmed is in the database."""
    reminders = {row[0] for row in query(folder, "SELECT text FROM reminders")}
    assert done.reminders <= reminders
    links = {row[0] for row in query(folder, "SELECT sender FROM links")}
    assert done.links <= links
    shown = query(
        folder,
        "SELECT line FROM entries WHERE kind = 'message' "
        "AND seq NOT IN (SELECT seq FROM forgotten)",
    )
    assert not [word for word in done.forgotten for row in shown if word in row[0]]
    unhidden = query(
        folder,
        "SELECT line FROM entries WHERE kind = 'message' AND seq NOT IN (SELECT seq FROM hidden)",
    )
    assert not [word for word in done.forgotten for row in unhidden if word in row[0]]


@lengths("lives", 4, LIVES)
async def test_what_was_confirmed_stands_again_after_kills_and_the_loss_of_the_database(
    tmp_path, capsys, lives
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    done = Confirmed()
    folder = tmp_path / "data"
    losses = 0
    async with telegram(folder) as (fake, program):
        for life in range(lives):
            if life and life % LOST_EVERY == 0:
                lose(folder)
                losses += 1
            await program.start()
            who = 10_000 + 10 * life  # nobody hears what an earlier life still had to say
            goal = life % 4  # how many things are confirmed first
            work = {
                asyncio.create_task(forget(fake, who, done)),
                asyncio.create_task(remind(fake, who + 2, done)),
                asyncio.create_task(link(fake, who + 4, done)),
            }
            load = [
                asyncio.create_task(answered(fake, n, f"load{life}", f"load{life}"))
                for n in (1, 2, 3)
            ]
            waiting = work
            while waiting and len(work) - len(waiting) < goal:
                _, waiting = await asyncio.wait(
                    waiting, return_when=asyncio.FIRST_COMPLETED, timeout=ANSWERED
                )
            await asyncio.sleep(chance.uniform(0, 0.05))
            await program.kill()
            for task in (*work, *load):
                task.cancel()
            ended = await asyncio.gather(*work, *load, return_exceptions=True)
            assert not [each for each in ended if isinstance(each, Exception)]
        lose(folder)
        losses += 1
        await program.start()
        await answered(fake, 5, "are you there", "are you there")
    check(folder, done)
    assert all((done.forgotten, done.reminders, done.links))
    with capsys.disabled():
        print(
            f"\nChanges: {lives} kills, the database lost {losses} times; {len(done.forgotten)} "
            f"forgotten, {len(done.reminders)} reminders, {len(done.links)} links: all there"
        )
