"""Kill the program at any moment, again and again: nothing is lost, nothing is answered twice.

The one exception is the send in flight: the platform may have taken it although the program died
before it could note so. Every repeated send must be exactly that.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.nextcloud import FakeNextcloud
from tests.fakes.telegram import FakeTelegram
from tests.proofs.crash import Proof
from tests.proofs.crash_platforms import OverDiscord, OverNextcloud, OverTelegram

pytestmark = pytest.mark.slow


async def test_two_hundred_kills_lose_nothing_and_repeat_at_most_the_send_in_flight(
    tmp_path, capsys
):
    async with (
        FakeTelegram(record_calls=False) as fake,
        Proof(OverTelegram(fake), tmp_path / "data") as proof,
    ):
        await proof.kill_often(200)
        answers = await proof.finish()
    repeats = proof.repeats(answers)
    assert answers.keys() == proof.asked.keys()
    with capsys.disabled():
        print(
            f"\nTelegram: {len(proof.kills)} kills, {len(proof.asked)} messages, 0 lost, "
            f"{repeats} sends in flight repeated"
        )


async def test_kills_lose_nothing_on_discord_and_its_nonces_leave_nothing_to_repeat(
    tmp_path, capsys
):
    async with FakeDiscord(record_calls=False) as fake:
        async with Proof(OverDiscord(fake), tmp_path / "data") as proof:
            await proof.greet()  # only what came after something in the same chat can be found
            await proof.kill_often(30)
            fake.message("11", "my very first words")
            missed = await proof.ask(100)
            answers = await proof.finish()
        assert fake.texts(fake.dm("11")) == []
    assert missed in answers
    assert answers.keys() == proof.asked.keys()
    copies = Counter((said.chat, said.text) for found in answers.values() for said in found)
    assert {*copies.values()} == {1}
    with capsys.disabled():
        print(
            f"\nDiscord: {len(proof.kills)} kills, {len(proof.asked)} messages, 0 lost, "
            f"0 repeated; {len(fake.recognised)} sends in flight known by their nonce"
        )


async def test_kills_lose_nothing_on_nextcloud_where_no_call_is_repeated(tmp_path, capsys):
    async with FakeNextcloud() as fake:
        platform = OverNextcloud(fake, tmp_path / "data")
        async with Proof(platform, tmp_path / "data") as proof:
            await proof.greet()  # only the records of rooms it knows are read
            await proof.kill_often(30)
            answers = await proof.finish()
    assert answers.keys() == proof.asked.keys()
    repeats = proof.repeats(answers)
    references = Counter(posted.reference for posted in fake.posted)
    assert sum(count - 1 for count in references.values()) == repeats
    met_nobody = sum(status != 200 for status in platform.statuses.values())
    assert met_nobody
    with capsys.disabled():
        print(
            f"\nNextcloud Talk: {len(proof.kills)} kills, {len(proof.asked)} messages, 0 lost, "
            f"{met_nobody} of their calls not answered, {repeats} sends in flight repeated"
        )
