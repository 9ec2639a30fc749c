from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import codes
from bot.channel import Inbound
from bot.gateway import pairing
from bot.storage.sqlite import SqliteTransaction, _connect_and_migrate
from tests.support import NOON

MINUTE = 60_000


@pytest.fixture
def tx(tmp_path: Path):
    connection: apsw.Connection = _connect_and_migrate(tmp_path / "confidant.db")
    yield SqliteTransaction(connection)
    connection.close()


def who(sender: str, channel: str = "telegram", account: str = "default") -> Inbound:
    return Inbound(channel, account, f"chat-{sender}", "direct", sender, "1", "hi", 0, locale="zh")


def ask(tx, sender: str, now: int = NOON, **place: str) -> pairing.Asked:
    return pairing.ask(tx, who(sender, **place), codes.new_code(), now)


def test_codes_are_eight_letters_nobody_can_misread_and_never_the_same():
    made = {codes.new_code() for _ in range(500)}
    assert len(made) == 500
    assert all(len(code) == 8 and set(code) <= set(codes.ALPHABET) for code in made)
    assert len(set(codes.ALPHABET)) == 32
    assert not set(codes.ALPHABET) & set("IO01")


def test_a_stranger_gets_a_code_and_a_repeat_gets_silence(tx):
    first = ask(tx, "1")
    assert not first.approved
    assert first.code
    assert ask(tx, "1", NOON + 59 * MINUTE) == pairing.Asked(approved=False)


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title, lambda c: f"  {c}\n"])
def test_a_code_is_approved_in_any_spelling_and_only_once(tx, spelling):
    code = ask(tx, "1").code
    found = pairing.approve(tx, "telegram", spelling(code), NOON)
    assert found is not None
    assert (found.sender, found.locale) == ("1", "zh")
    assert found.address.chat == "chat-1"
    assert ask(tx, "1").approved
    assert pairing.approve(tx, "telegram", code, NOON) is None


def test_a_code_is_good_for_its_own_channel_and_account_only(tx):
    code = ask(tx, "1", account="work").code
    assert pairing.approve(tx, "discord", code, NOON) is None
    assert pairing.approve(tx, "telegram", code, NOON) is not None
    assert ask(tx, "1", account="work").approved
    assert not ask(tx, "1").approved
    assert not ask(tx, "2", account="work").approved


@pytest.mark.parametrize("wrong", ["", " ", "AAAAAAAA", "ⅠⅠⅠⅠⅠⅠⅠⅠ", "ß", "\x00", "%", "'"])
def test_what_is_no_code_approves_nobody(tx, wrong):
    ask(tx, "1")
    pairing.approve(tx, "telegram", ask(tx, "2").code, NOON)  # leaves a row with an empty code
    assert pairing.approve(tx, "telegram", wrong, NOON) is None


def test_a_code_is_valid_for_an_hour_and_the_next_question_gets_a_new_one(tx):
    code = ask(tx, "1").code
    assert pairing.pending(tx, NOON + 60 * MINUTE - 1)
    assert not pairing.pending(tx, NOON + 60 * MINUTE)
    assert pairing.approve(tx, "telegram", code, NOON + 60 * MINUTE) is None
    again = ask(tx, "1", NOON + 60 * MINUTE)
    assert again.code not in ("", code)
    assert pairing.approve(tx, "telegram", code, NOON + 60 * MINUTE) is None
    assert pairing.approve(tx, "telegram", again.code, NOON + 60 * MINUTE) is not None


def test_three_codes_wait_at_most_for_a_channels_account(tx):
    assert all(ask(tx, sender).code for sender in "123")
    assert not ask(tx, "4").code
    assert ask(tx, "4", account="work").code
    assert ask(tx, "4", channel="discord").code
    assert ask(tx, "4", NOON + 61 * MINUTE).code


def test_an_approval_frees_its_place_and_never_expires(tx):
    codes = [ask(tx, sender).code for sender in "123"]
    pairing.approve(tx, "telegram", codes[0], NOON)
    assert ask(tx, "4").code
    assert ask(tx, "1", NOON + 10**11).approved


def test_whoever_is_revoked_must_ask_again(tx):
    for account in ("default", "work"):
        code = ask(tx, "1", account=account).code
        pairing.approve(tx, "telegram", code, NOON)
    assert pairing.revoke(tx, "discord", "1") == 0
    assert pairing.revoke(tx, "telegram", "1") == 2
    assert pairing.approved(tx) == []
    assert ask(tx, "1").code


def test_a_pending_code_can_be_revoked(tx):
    code = ask(tx, "1").code
    assert pairing.revoke(tx, "telegram", "1") == 1
    assert pairing.approve(tx, "telegram", code, NOON) is None


def test_a_clock_set_back_a_little_keeps_codes_good(tx):
    code = ask(tx, "1").code
    assert ask(tx, "1", NOON - 30 * MINUTE) == pairing.Asked(approved=False)
    assert pairing.approve(tx, "telegram", code, NOON - 30 * MINUTE) is not None


def test_codes_from_a_clock_that_was_years_ahead_neither_last_nor_take_up_room(tx):
    codes = [ask(tx, sender, NOON + 10**11).code for sender in "123"]
    assert pairing.approve(tx, "telegram", codes[0], NOON) is None
    assert pairing.pending(tx, NOON) == []
    assert ask(tx, "4").code
    assert ask(tx, "1").code


@given(st.lists(st.tuples(st.sampled_from("12345"), st.integers(-120, 120)), max_size=30))
def test_however_the_clock_jumps_three_codes_are_valid_at_most(steps):
    connection = _connect_and_migrate_in_memory()
    try:
        tx = SqliteTransaction(connection)
        now = NOON
        for sender, minutes in steps:
            now += minutes * MINUTE
            asked = ask(tx, sender, now)
            waiting = pairing.pending(tx, now)
            assert not asked.approved
            assert all(abs(now - each.asked_at) < 60 * MINUTE for each in waiting)
            if asked.code:
                assert len(waiting) <= pairing.MAX_PENDING
    finally:
        connection.close()


def _connect_and_migrate_in_memory() -> apsw.Connection:
    from bot.storage import schema

    connection = apsw.Connection(":memory:")
    for statement in schema.MIGRATIONS[0]:
        connection.execute(statement.replace("{serial}", "INTEGER PRIMARY KEY"))
    return connection


def test_a_name_is_kept_for_the_operator_only(tx):
    inbound = replace(who("1"), sender_name="Eve'); DROP TABLE pairing; --")
    pairing.ask(tx, inbound, codes.new_code(), NOON)
    assert pairing.pending(tx, NOON)[0].name == inbound.sender_name
