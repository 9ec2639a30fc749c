"""Kill the program between asking, pressing and running: what was allowed is done at most once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_parts import Sent
from tests.proofs.crash import ANSWERED, SEED
from tests.proofs.crash_platforms import stopped, telegram
from tests.proofs.rounds import lengths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHAT = 1
OWNER = {"CONFIDANT_SESSION__OWNER": f"telegram:{CHAT}"}


@lengths("orders", None, 25, 15)
async def test_kills_at_any_moment_let_an_allowed_call_be_made_at_most_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], orders: int
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    oven = tmp_path / "oven"
    async with telegram(tmp_path / "data", OVEN=str(oven), **OWNER) as (fake, program):

        async def kill_within(seconds: float) -> None:
            await asyncio.sleep(chance.uniform(0, seconds))
            await program.kill()
            await program.start()

        def question(order: int) -> Sent | None:
            wanted = f'"order": {order}\n'
            return next((each for each in fake.sent if wanted in each.text), None)

        def told(order: int) -> bool:
            return any(text.startswith(f"Order {order}:") for text in fake.texts(CHAT))

        await program.start()
        for order in range(orders):
            fake.push_text(CHAT, f"bake {order}")
            if chance.random() < 0.5:
                await kill_within(0.3)
            await fake.wait_for(lambda order=order: question(order) is not None, ANSWERED)
            asked = question(order)
            assert asked is not None
            allows = order % 5 != 4
            _press(fake, asked, "Allow once" if allows else "No")
            await kill_within(0.15)
            if chance.random() < 0.3:
                await kill_within(0.15)
            _press(fake, asked, "Allow once")  # nobody has told them yet
            await fake.wait_for(lambda order=order: told(order), ANSWERED)
        await stopped(fake, CHAT, program)
    answers = {
        order: next(t for t in fake.texts(CHAT) if t.startswith(f"Order {order}:"))
        for order in range(orders)
    }
    made = Counter(json.loads(line)["order"] for line in oven.read_text().splitlines())
    unknown = [order for order, text in answers.items() if "begun before" in text]
    for order, text in answers.items():
        if order % 5 == 4:
            assert "said no" in text
            assert made[order] == 0
        elif order in unknown:
            assert made[order] <= 1
        else:
            assert text == f"Order {order}: baked"
            assert made[order] == 1
    assert set(made) <= set(range(orders))
    with capsys.disabled():
        print(
            f"\n{orders} orders over kills: {made.total()} calls made, none twice, none that was "
            f"denied; of {len(unknown)} nobody knows what came of them"
        )


def _press(fake: FakeTelegram, asked: Sent, label: str) -> None:
    data = next(data for row in asked.buttons for name, data in row if name == label)
    fake.press(CHAT, asked.message_id, data)
