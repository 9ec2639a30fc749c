"""`/timezone`: what names mean, whose choice counts, and what outlives the database."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import Address, Inbound
from bot.config import Config
from bot.identity import Books, ConversationResolver, Link, Policy
from bot.sessions import zones
from bot.sessions.zone_names import meant, spoken, zone_named
from bot.storage import Database
from tests.support import FakeClock, running

HOME = ZoneInfo("Europe/Berlin")
TOKYO = ZoneInfo("Asia/Tokyo")
LIMA = ZoneInfo("America/Lima")


@pytest.mark.parametrize(
    ("said", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        (" new   york ", "America/New_York"),
        ("New_York", "America/New_York"),
        ("San Francisco", "America/Los_Angeles"),
        ("北京", "Asia/Shanghai"),
        ("香港", "Asia/Hong_Kong"),
        ("utc", "UTC"),
        ("UTC+8", "Etc/GMT-8"),
        ("gmt -3:00", "Etc/GMT+3"),
        ("UTC+0", "UTC"),
        ("buenos aires", "America/Buenos_Aires"),
    ],
)
def test_a_zone_is_known_by_what_people_call_it(said, zone):
    found = zone_named(said)
    assert found is not None
    assert found.key == zone


@pytest.mark.parametrize(
    "said",
    [
        *("", "/", "..", "../etc/passwd", "/etc/localtime", "Europe", "EST", "localtime", "GMT-8x"),
        *("UTC+15", "UTC-13", "UTC+99", "\0", "x" * 10_000, "posix/UTC", "Factory", "UTC+٣"),
    ],
)
def test_anything_else_is_no_zone(said):
    assert zone_named(said) is None
    meant(said)  # and guessing at it does no harm


@given(st.text(max_size=80))
def test_whatever_is_typed_is_a_zone_there_is_or_none(said):
    found = zone_named(said)
    assert found is None or found.key in available_timezones()


def test_hours_from_utc_are_shown_as_people_count_them():
    assert spoken(ZoneInfo("Etc/GMT-8")) == "UTC+8"
    assert spoken(ZoneInfo("Etc/UTC")) == "UTC"
    assert spoken(HOME) == "Europe/Berlin"


def test_a_slip_gets_a_guess():
    assert meant("Europe/Berln") == "Europe/Berlin"
    assert meant("Shanghia") == "Asia/Shanghai"
    assert meant("qqqqqq") == ""


# --- whose choice counts -------------------------------------------------------------------------


def resolver(session: dict[str, object], books: Books) -> ConversationResolver:
    policy = Policy.of(Config.model_validate({"session": session}), HOME)
    return ConversationResolver(policy, books)


def message(channel: str, sender: str, chat_type: str = "direct") -> Inbound:
    return Inbound(channel, "default", "c", chat_type, sender, "1", "hi", 0)


def test_what_somebody_chose_is_theirs_alone_and_never_a_room_s():
    known = resolver({}, Books(zones={"telegram:42": TOKYO}))
    assert known.resolve(message("telegram", "42")).zone == TOKYO
    assert known.resolve(message("telegram", "43")).zone == HOME
    assert known.resolve(message("telegram", "42", "group")).zone == HOME
    assert known.now.zones == {HOME, TOKYO}


def test_what_the_configuration_says_of_somebody_counts_more():
    known = resolver(
        {"timezones": {"telegram:42": "America/Lima"}},
        Books(zones={"telegram:42": TOKYO, "telegram:43": TOKYO}),
    )
    assert known.resolve(message("telegram", "42")).zone == LIMA
    assert known.resolve(message("telegram", "43")).zone == TOKYO


def test_a_choice_is_taken_along_when_accounts_are_joined():
    chosen = {"discord:7": TOKYO}
    linked = {"identity_links": {"ada": ["telegram:42", "discord:7"]}}
    by_name = resolver(linked, Books(zones=chosen))
    seat, root = ("discord", "7"), ("telegram", "42")
    link = Link(seat, root, Address("discord", "default", "7"), "en")
    by_code = resolver({}, Books(zones=chosen, links=(link,)))
    for known in (by_name, by_code):
        for channel, sender in (root, seat):
            assert known.resolve(message(channel, sender)).zone == TOKYO
    # Of two choices that of the account all others count as.
    both = resolver({}, Books(zones={**chosen, "telegram:42": LIMA}, links=(link,)))
    assert both.resolve(message("discord", "7")).zone == LIMA


# --- kept ----------------------------------------------------------------------------------------


async def test_a_choice_is_kept_replaced_and_forgotten(each_database: Database):
    await each_database.write(lambda tx: zones.choose(tx, "ada", TOKYO, 1))
    await each_database.write(lambda tx: zones.choose(tx, "ada", LIMA, 2))
    await each_database.write(lambda tx: zones.choose(tx, "bob", TOKYO, 2))
    assert await each_database.read(zones.everything) == {"ada": LIMA, "bob": TOKYO}
    assert await each_database.write(lambda tx: zones.drop(tx, ("eve", "ada")))
    assert not await each_database.write(lambda tx: zones.drop(tx, ("eve", "ada")))
    assert await each_database.read(zones.everything) == {"bob": TOKYO}


async def test_a_zone_this_machine_does_not_know_is_as_if_none_was_chosen(each_database: Database):
    await each_database.write(
        lambda tx: tx.execute("INSERT INTO zones VALUES ('ada', 'Moon/Base', 1)")
    )
    assert await each_database.read(zones.everything) == {}


# --- the command ---------------------------------------------------------------------------------


async def test_a_zone_is_shown_chosen_and_forgotten(tmp_path: Path):
    async with running(tmp_path) as engine:
        assert "mine: UTC, where it is 12:00" in await engine.ask("/timezone")
        said = "From now on it is 21:00 for you: Asia/Tokyo."
        assert said in await engine.ask("/timezone tokyo")
        assert "It is 21:00 for you: Asia/Tokyo." in await engine.ask("/timezone")
        answer = await engine.ask("/remind tomorrow at 9 tea")
        assert answer == "I will remind you on Sun 2026-11-22 09:00 (Asia/Tokyo): tea"
        assert "mine: UTC, where it is 12:00" in await engine.ask("/timezone auto")
        assert "(UTC)" in await engine.ask("/remind tomorrow at 9 coffee")
        assert "Did you mean “/timezone Asia/Tokyo”?" in await engine.ask("/timezone Asia/Tokio")
        assert "Say a large city" in await engine.ask("/timezone qqqqqq")
        assert "你那里是 20:00：Asia/Shanghai" in await engine.ask("/时区 北京", locale="zh-CN")


async def test_a_choice_outlives_a_restart_and_the_database(tmp_path: Path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("/timezone tokyo")
    async with running(tmp_path, clock=clock) as engine:
        assert "Asia/Tokyo" in await engine.ask("/timezone")
    for part in ("", "-wal", "-shm"):
        (tmp_path / f"confidant.db{part}").unlink(missing_ok=True)
    for backup in tmp_path.glob("backups/*"):
        backup.unlink()
    async with running(tmp_path, clock=clock) as engine:
        assert "Asia/Tokyo" in await engine.ask("/timezone")


async def test_what_the_operator_set_is_told_and_stays(tmp_path: Path):
    named = {"session": {"timezones": {"memory:ada": "America/Lima"}}}
    async with running(tmp_path, **named) as engine:
        answer = await engine.ask("/timezone tokyo")
        assert "Whoever runs me has set your time zone: America/Lima, where it is 07:00" in answer


async def test_a_room_is_not_told_where_somebody_lives(tmp_path: Path):
    rooms = {"channels": {"memory": {"group_policy": "open"}}}
    async with running(tmp_path, **rooms) as engine:
        await engine.ask("/timezone tokyo")
        for wish in ("/timezone", "/timezone lima"):
            await engine.say(wish, chat="den", chat_type="group", mentions_bot=True)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) == 2)
        assert all("where we are alone" in said for said in engine.sent_to("den"))
        assert "Asia/Tokyo" in await engine.ask("/timezone")
