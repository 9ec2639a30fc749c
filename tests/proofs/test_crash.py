"""Kill the program at any moment, again and again: nothing is lost, nothing is answered twice.

The one exception is the send in flight: the platform may have taken it although the program died
before it could note so. Every repeated send must be exactly that.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.gateway.lanes import MAX_DEATHS
from tests.fakes import synapse
from tests.fakes.discord import FakeDiscord
from tests.fakes.nextcloud import FakeNextcloud
from tests.fakes.slack import FakeSlack
from tests.fakes.synapse import Synapse
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_parts import Fault
from tests.proofs.crash import ANSWERED, SEED, Platform, Proof, Said
from tests.proofs.crash_platforms import (
    OverDiscord,
    OverMatrix,
    OverNextcloud,
    OverSlack,
    OverTelegram,
    telegram,
)
from tests.proofs.rounds import lengths
from tests.proofs.zygote import POISON

pytestmark = pytest.mark.slow


@asynccontextmanager
async def proving(platform: Platform, folder: Path, kills: int) -> AsyncGenerator[Proof]:
    """People on a platform whose program is killed so often; then all of them are answered."""
    async with Proof(platform, folder) as proof:
        if not isinstance(platform, OverTelegram):
            await proof.greet()  # elsewhere only what came after something in a chat can be found
        await proof.kill_often(kills)
        yield proof


def told(capsys: pytest.CaptureFixture[str], name: str, proof: Proof, *more: str) -> None:
    counts = f"{len(proof.kills)} kills, {len(proof.asked)} messages, 0 lost"
    with capsys.disabled():
        print(f"\n{name}: {', '.join((counts, *more))}")


def must_be_once(answers: Mapping[str, Sequence[Said]]) -> None:
    copies = Counter((said.chat, said.text) for found in answers.values() for said in found)
    assert {*copies.values()} == {1}


@lengths("kills", 4, 200, 40)
async def test_kills_lose_nothing_and_repeat_at_most_the_send_in_flight(tmp_path, capsys, kills):
    async with (
        FakeTelegram(record_calls=False) as fake,
        proving(OverTelegram(fake), tmp_path / "data", kills) as proof,
    ):
        answers = await proof.finish()
    assert answers.keys() == proof.asked.keys()
    told(capsys, "Telegram", proof, f"{proof.repeats(answers)} sends in flight repeated")


@lengths("kills", None, 30, 12)
async def test_kills_lose_nothing_on_discord_and_its_nonces_leave_nothing_to_repeat(
    tmp_path, capsys, kills
):
    async with FakeDiscord(record_calls=False) as fake:
        async with proving(OverDiscord(fake), tmp_path / "data", kills) as proof:
            fake.message("11", "my very first words")
            missed = await proof.ask(100)
            answers = await proof.finish()
        assert fake.texts(fake.dm("11")) == []
    assert missed in answers
    assert answers.keys() == proof.asked.keys()
    must_be_once(answers)
    known = f"{len(fake.recognised)} sends in flight known by their nonce"
    told(capsys, "Discord", proof, "0 repeated", known)


@lengths("kills", None, 30, 12)
async def test_kills_lose_nothing_on_slack_and_repeat_at_most_the_send_in_flight(
    tmp_path, capsys, kills
):
    async with FakeSlack() as fake, proving(OverSlack(fake), tmp_path / "data", kills) as proof:
        answers = await proof.finish()
    assert answers.keys() == proof.asked.keys()
    told(capsys, "Slack", proof, f"{proof.repeats(answers)} sends in flight repeated")


@lengths("kills", None, 30, 12)
async def test_kills_lose_nothing_on_nextcloud_where_no_call_is_repeated(tmp_path, capsys, kills):
    async with FakeNextcloud() as fake:
        platform = OverNextcloud(fake, tmp_path / "data")
        async with proving(platform, tmp_path / "data", kills) as proof:
            answers = await proof.finish()
    assert answers.keys() == proof.asked.keys()
    repeats = proof.repeats(answers)
    references = Counter(posted.reference for posted in fake.posted)
    assert sum(count - 1 for count in references.values()) == repeats
    met_nobody = sum(status != 200 for status in platform.statuses.values())
    assert met_nobody
    calls = f"{met_nobody} of their calls not answered"
    told(capsys, "Nextcloud Talk", proof, calls, f"{repeats} sends in flight repeated")


@lengths("kills", None, 50, 12)
async def test_kills_lose_nothing_and_repeat_nothing_on_matrix_encrypted_or_not(
    tmp_path, capsys, kills
):
    server = Synapse()
    try:
        await asyncio.to_thread(server.start)
        platform = OverMatrix(server, await server.register())
        async with synapse.person(server, "ada") as ada, synapse.person(server, "bob") as bob:
            await platform.furnish(ada, bob)
            async with proving(platform, tmp_path / "data", kills) as proof:
                answers = await proof.finish()
    finally:
        server.close()
    assert answers.keys() == proof.asked.keys()
    must_be_once(answers)
    told(capsys, "Matrix", proof, "0 repeated")


@pytest.mark.proof
async def test_a_message_that_kills_the_program_is_set_aside_and_everybody_else_is_answered(
    tmp_path, capsys
):
    async with telegram(tmp_path / "data") as (fake, program):
        fake.push_text(1, "before")
        fake.push_text(1, POISON)
        for chat in (1, 2, 3):
            fake.push_text(chat, f"after {chat}")
        # The first time nobody knows which one it was.
        for _ in range(1 + MAX_DEATHS):
            await program.start()
            await program.died()
        await program.start()
        await fake.wait_for(lambda: "You said: after 1" in fake.texts(1), ANSWERED)
        await fake.wait_for(lambda: fake.texts(2) and fake.texts(3), ANSWERED)
    told, *_ = [words for words in fake.texts(1) if "couldn't answer" in words]
    assert told.startswith("I couldn't answer your message of ")
    # A send in flight at a death may come again.
    assert [*dict.fromkeys(fake.texts(1))] == ["You said: before", told, "You said: after 1"]
    assert {*fake.texts(2), *fake.texts(3)} == {"You said: after 2", "You said: after 3"}
    assert fake.texts(1).count(told) == 1
    with capsys.disabled():
        print(f"\nA deadly message: {1 + MAX_DEATHS} deaths, then set aside; 4 others answered")


@pytest.mark.proof
async def test_a_text_that_always_fails_is_parked_over_kills_and_sent_once_when_it_can_be(
    tmp_path, capsys
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    async with telegram(tmp_path / "data") as (fake, program):
        fake.fail_next("sendMessage", Fault(502, "Bad Gateway", match="stuck"), 100_000)
        fake.push_text(1, "stuck")
        fake.push_text(1, "after")
        for _ in range(10):
            await program.start()
            await asyncio.sleep(chance.uniform(0, 0.3))
            await program.kill()
        await program.start()
        await fake.wait_for(lambda: "You said: after" in fake.texts(1), ANSWERED)
        assert any("won't go through" in words for words in fake.texts(1))
        fake.recover("sendMessage")
        await fake.wait_for(lambda: "You said: stuck" in fake.texts(1), ANSWERED)
        fake.push_text(1, "bye")
        await fake.wait_for(lambda: "You said: bye" in fake.texts(1), ANSWERED)
    assert fake.texts(1).count("You said: stuck") == 1
    assert fake.texts(1)[-1] == "You said: bye"
    with capsys.disabled():
        print("\nA text that always fails: 10 kills, parked, the rest sent, itself sent once later")
