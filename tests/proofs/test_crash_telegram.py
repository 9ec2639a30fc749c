"""Kill the program between the parts of what belongs together, and while it writes a reply."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from adapters.telegram.send import MARK
from tests.fakes.ports import free_port
from tests.fakes.telegram import FakeTelegram
from tests.proofs.crash import SEED, Program
from tests.proofs.crash_platforms import OverTelegram, telegram
from tests.proofs.rounds import lengths
from tests.proofs.zygote import SLOWLY

ROOM = -1001
SECTION = "CONFIDANT_CHANNELS__TELEGRAM__"

pytestmark = pytest.mark.slow


@lengths("albums", None, 20, 8)
async def test_kills_between_the_parts_of_albums_lose_none_of_them(tmp_path, capsys, albums):
    chance, names = random.Random(SEED), list[str]()  # noqa: S311 - chance, not a secret

    async def send(album: int) -> None:
        for part in range(3):
            name = f"r{album}m{part}"
            names.append(name)
            photo = [{"file_id": name, "file_unique_id": "u", "file_size": 9}]
            extra = {"media_group_id": str(album), "photo": photo, "caption": f"{name}w0"}
            fake.push_text(1 + album % 3, None, **extra)
            await asyncio.sleep(chance.uniform(0, 0.3))

    async with FakeTelegram(record_calls=False, webhook_retry=0.6) as fake:
        port = str(free_port())
        webhook = {
            f"{SECTION}MODE": "webhook",
            f"{SECTION}WEBHOOK_URL": f"http://127.0.0.1:{port}",
            f"{SECTION}WEBHOOK_PORT": port,
            f"{SECTION}WEBHOOK_SECRET": "a-good_Secret1",
        }
        settings = {**OverTelegram(fake).settings(), **webhook}
        async with Program.launched(tmp_path / "data", settings) as program:
            cut = 0
            for album in range(albums):
                await program.start()
                taken = fake.deliveries.count(200) + 1
                sending = asyncio.create_task(send(album))
                if album % 4:
                    await asyncio.sleep(chance.uniform(0, 1.8))
                else:  # the first part is taken, and the others are not there yet
                    await fake.wait_for(lambda n=taken: fake.deliveries.count(200) >= n, 30)
                await program.kill()
                cut += held(tmp_path / "data")
                await sending
            await program.start()

            def heard() -> list[list[str]]:
                return [re.findall(r"r\d+m\d+", sent.text) for sent in fake.sent]

            await fake.wait_for(lambda: {*names} <= {n for one in heard() for n in one}, 30)
    assert fake.pending() == 0
    answers = {tuple(one) for one in heard()}
    assert all([*one] == sorted(one) for one in answers)
    whole = sum(len(one) == 3 for one in answers)
    assert cut
    with capsys.disabled():
        print(
            f"\nTelegram's webhook: {albums} albums of 3 pictures, a kill each, {cut} in the "
            f"middle of an album; {whole} whole, 0 pictures lost"
        )


def held(folder: Path) -> bool:
    """Whether a program died with parts it had taken and not stored as a message."""
    with closing(apsw.Connection(str(folder / "confidant.db"))) as database:
        where = "WHERE key LIKE 'channel/telegram/default/update %'"
        return bool(database.execute(f"SELECT 1 FROM meta {where}").fetchall())


@pytest.mark.proof
async def test_a_kill_while_a_reply_is_being_written_leaves_nothing_unfinished(tmp_path):
    words = " ".join(f"word{number}" for number in range(100))
    async with telegram(tmp_path / "data", **{f"{SECTION}GROUP_POLICY": "open"}) as (fake, program):
        fake.room(ROOM)
        await program.start()
        fake.say(ROOM, 7, f"@confidant_bot {SLOWLY} {words}")
        await fake.wait_for(lambda: any(s.text.endswith(MARK.strip()) for s in fake.sent))
        await asyncio.sleep(0.1)  # to be noted
        await program.kill()
        assert [sent.text.endswith(MARK.strip()) for sent in fake.sent] == [True]
        await program.start()
        await fake.wait_for(lambda: fake.sent[-1].text.endswith("word99"), 30)
    assert len(fake.sent) == 1
