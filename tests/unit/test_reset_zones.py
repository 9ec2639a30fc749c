"""Whose clock counts: the time zones of people, and mistakes in their names."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.channel import Inbound
from bot.config import Config
from bot.identity import ConversationResolver, Policy
from tests.fakes.config_channels import load, problems

HOME = ZoneInfo("Europe/Berlin")


def people(session: dict[str, object]) -> ConversationResolver:
    return ConversationResolver(Policy.of(Config.model_validate({"session": session}), HOME))


def message(channel: str, sender: str, chat_type: str = "direct") -> Inbound:
    return Inbound(channel, "default", "c", chat_type, sender, "1", "hi", 0)


def test_who_is_not_named_lives_where_the_program_does():
    assert people({}).resolve(message("telegram", "42")).zone == HOME
    named = people({"timezones": {"telegram:42": "Asia/Shanghai"}})
    assert named.resolve(message("telegram", "43")).zone == HOME
    assert named.now.zone_of("") == HOME
    assert named.now.zone_of("telegram:42") == ZoneInfo("Asia/Shanghai")
    assert named.now.zones == {HOME, ZoneInfo("Asia/Shanghai")}


def test_a_linked_person_takes_the_zone_along():
    links = {"ada": ["telegram:42", "discord:77"]}
    by_name = people({"identity_links": links, "timezones": {"ada": "Asia/Shanghai"}})
    by_place = people({"identity_links": links, "timezones": {"discord:77": "Asia/Shanghai"}})
    for known in (by_name, by_place):
        for channel, sender in (("telegram", "42"), ("discord", "77")):
            inbound = message(channel, sender)
            assert known.resolve(inbound).zone == ZoneInfo("Asia/Shanghai")
            assert known.now.zone_of(known.resolve(inbound).person) == ZoneInfo("Asia/Shanghai")
        assert known.resolve(message("discord", "42")).zone == HOME


@pytest.mark.parametrize("name", ["main", "ada", "telegram:42", "web:owner"])
def test_the_owner_is_found_under_every_name(name):
    session = {
        "owner": ["telegram:42"],
        "identity_links": {"ada": ["telegram:42", "discord:77"]},
        "timezones": {name: "Asia/Shanghai"},
    }
    known = people(session)
    for inbound in (message("telegram", "42"), message("discord", "77"), message("web", "owner")):
        assert known.resolve(inbound).person == "main"
        assert known.resolve(inbound).zone == ZoneInfo("Asia/Shanghai")


def test_the_owner_s_zone_is_nobody_elses():
    links = {"ada": ["telegram:42"], "bob": ["telegram:43"]}
    known = people({"owner": ["telegram:42"], "identity_links": links, "timezones": {"ada": "UTC"}})
    assert known.resolve(message("telegram", "43")).zone == HOME


def test_a_zone_that_is_none_stops_the_start_with_its_line(tmp_path: Path):
    toml = '[session]\n[session.timezones]\n"owl:1" = "UTC"\nada = "Asia/Shanghia"\n'
    (line,) = problems(tmp_path, toml)
    assert line == (
        'confidant.toml:4: session.timezones.ada: "Asia/Shanghia" is not a time zone; '
        'did you mean "Asia/Shanghai"?'
    )


@pytest.mark.parametrize("zone", ["", "../etc/passwd", "/etc/localtime", "Europe", "5" * 999])
def test_what_could_not_be_opened_is_no_zone_either(tmp_path: Path, zone: str):
    (line,) = problems(tmp_path, f'[session.timezones]\n"owl:1" = "{zone}"\n')
    assert line.startswith("confidant.toml:2: session.timezones.owl:1: ")
    assert "is not a time zone" in line


def test_a_zone_for_nobody_is_pointed_out(tmp_path: Path):
    toml = """
        [session.identity_links]
        ada = ["owl:1"]
        [session.timezones]
        adda = "UTC"
        ada = "UTC"
        main = "UTC"
        "owl:2" = "UTC"
    """
    (warning,) = load(tmp_path, toml).warnings
    assert warning == (
        'confidant.toml:5: session.timezones.adda: "adda" is nobody; did you mean "ada"?'
    )
