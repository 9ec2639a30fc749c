"""Accounts that people joined: codes, what is kept, and who somebody is then."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import codes
from bot.channel import Address, Inbound
from bot.config import Config
from bot.identity import Books, ConversationResolver, Link, Policy, routing
from bot.sessions import links
from bot.sessions.links import VALID_MS, Offer
from bot.storage.sqlite import _connect_and_migrate
from bot.storage.sqlite_sql import SqliteTransaction

NOW = 1_795_262_400_000
ADA, THERE, EVE = ("telegram", "42"), ("discord", "77"), ("nct", "eve")
SEATS = st.tuples(st.sampled_from(["t", "d"]), st.sampled_from(["1", "2", "3"]))


@pytest.fixture
def tx(tmp_path):
    connection = _connect_and_migrate(tmp_path / "confidant.db")
    yield SqliteTransaction(connection)
    connection.close()


def offered(person: str = "telegram:42", code: str = "ABCDEFGH", root=ADA) -> Offer:
    return Offer(person, code, root, Address("telegram", "default", "c42"), "key", "en")


def link(seat=THERE, root=ADA) -> Link:
    return Link(seat, root, Address(seat[0], "default", f"c{seat[1]}", ""), "zh")


def people(*made: Link, **session: object) -> ConversationResolver:
    config = Config.model_validate({"session": session})
    return ConversationResolver(Policy.of(config, ZoneInfo("UTC")), Books(links=made))


def message(seat: tuple[str, str], chat_type: str = "direct") -> Inbound:
    return Inbound(seat[0], "default", f"c{seat[1]}", chat_type, seat[1], "1", "hi", 0)


# --- codes ----------------------------------------------------------------------------------------


def test_a_code_is_used_up_by_whoever_types_it_first_in_whatever_case(tx):
    links.offer(tx, offered(), NOW)
    assert links.claim(tx, " abcdefgh ", "discord:77", NOW + VALID_MS - 1) == offered()
    assert links.claim(tx, "ABCDEFGH", "nct:eve", NOW) is None


@pytest.mark.parametrize(
    "typed", ["", " ", "ABCDEFG", "ABCDEFGHJ", "HGFEDCBA", "%", "ABCDEFG\u202eH"]
)
def test_what_is_no_code_claims_nothing(tx, typed):
    links.offer(tx, offered(), NOW)
    assert links.claim(tx, typed, "discord:77", NOW) is None
    assert links.claim(tx, "ABCDEFGH", "discord:77", NOW) is not None


def test_an_own_or_an_old_code_claims_nothing(tx):
    links.offer(tx, offered(), NOW)
    assert links.claim(tx, "ABCDEFGH", "telegram:42", NOW) is None
    assert links.claim(tx, "ABCDEFGH", "discord:77", NOW + VALID_MS) is None
    assert links.claim(tx, "ABCDEFGH", "discord:77", NOW - VALID_MS) is None


def test_only_the_newest_code_of_a_person_is_good_and_old_ones_go(tx):
    links.offer(tx, offered(), NOW)
    links.offer(tx, offered(code="JKLMNPQR"), NOW + 1)
    assert links.claim(tx, "ABCDEFGH", "discord:77", NOW + 1) is None
    links.offer(tx, offered(person="nct:eve"), NOW + VALID_MS + 1)
    assert tx.execute("SELECT person FROM link_codes") == [("nct:eve",)]


def test_whoever_was_joined_to_another_one_has_no_code_to_give(tx):
    links.offer(tx, offered(), NOW)
    links.join(tx, link(ADA, EVE), NOW)
    assert links.claim(tx, "ABCDEFGH", "discord:77", NOW) is None


def test_no_code_is_nobodys():
    assert not codes.is_same("", "")
    assert codes.is_same("ABC", "abc\n")


# --- what is kept ---------------------------------------------------------------------------------


@given(st.lists(st.tuples(SEATS, SEATS, st.booleans()), max_size=12))
def test_a_root_is_never_linked_itself_and_who_was_joined_stays_together(tmp_path_factory, steps):
    connection = _connect_and_migrate(tmp_path_factory.mktemp("db") / "confidant.db")
    tx = SqliteTransaction(connection)
    groups = {seat: {seat} for step in steps for seat in step[:2]}
    for seat, other, joins in steps:
        roots = {each.seat: each.root for each in links.everything(tx)}
        if joins and roots.get(seat, seat) != roots.get(other, other):
            links.join(tx, link(seat, roots.get(other, other)), NOW)
            moving = {seat} | {each for each, root in roots.items() if root == seat}
            for each in moving:
                groups[each].discard(each)
            for each in set(groups) - moving:
                groups[each] -= moving
            whole = groups[other] | moving
            for each in whole:
                groups[each] = whole
        elif not joins and links.part(tx, seat) is not None:
            for each in set(groups) - {seat}:
                groups[each] = groups[each] - {seat}
            groups[seat] = {seat}
    found = {each.seat: each.root for each in links.everything(tx)}
    assert not set(found) & set(found.values())
    for one, together in groups.items():
        for other in groups:
            same = found.get(one, one) == found.get(other, other)
            assert same == (other in together)
    connection.close()


def test_what_is_parted_says_where_it_can_be_told(tx):
    links.join(tx, link(), NOW)
    assert links.part(tx, THERE) == link()
    assert links.part(tx, THERE) is None
    assert links.everything(tx) == []


# --- who somebody is ------------------------------------------------------------------------------


def test_a_linked_account_has_the_memory_of_the_first_one_and_what_it_said_itself():
    known = people(link())
    ada, there = message(ADA), message(THERE)
    assert known.resolve(there).person == known.resolve(ada).person == "telegram:42"
    assert known.resolve(there).view.space == known.resolve(ada).view.space
    assert set(known.resolve(ada).view.people) == {"telegram:42", "discord:77"}
    assert set(known.resolve(there).view.people) == {"telegram:42", "discord:77"}
    assert known.resolve(message(EVE)).view.people == ("nct:eve",)


def test_in_a_room_a_link_opens_nothing():
    known = people(link())
    room = known.resolve(message(THERE, "group")).view
    assert (room.space, room.people, room.private) == ("", (), False)


def test_linked_to_the_owner_is_the_owner_but_not_let_in_for_that():
    known = people(link(), owner=["telegram:42"])
    there = message(THERE)
    assert known.resolve(there).is_owner
    assert known.resolve(there).view.space == "main"
    assert "discord:77" in known.resolve(message(ADA)).view.people
    assert known.resolve(there).verdict == "pair"
    assert known.resolve(message(ADA)).verdict == "allow"


@pytest.mark.parametrize(
    "session", [{"owner": ["discord:77"]}, {"identity_links": {"bob": ["discord:77"]}}]
)
def test_whom_the_configuration_names_stays_that_whatever_was_linked(session):
    known, plain = people(link(), **session), people(**session)
    assert (
        known.resolve(message(THERE)).person
        == plain.resolve(message(THERE)).person
        != "telegram:42"
    )
    assert known.resolve(message(ADA)).view == plain.resolve(message(ADA)).view


def test_all_places_of_somebody_the_configuration_links_have_what_was_joined_to_one_of_them():
    ada = {"identity_links": {"ada": ["telegram:42", "nct:eve"]}}
    known = people(link(), **ada)
    for seat in (ADA, THERE, EVE):
        assert known.resolve(message(seat)).person == "ada"
        assert "discord:77" in known.resolve(message(seat)).view.people


@given(st.lists(st.tuples(SEATS, SEATS), max_size=4), SEATS, SEATS)
def test_two_people_share_a_memory_exactly_when_they_are_linked(pairs, one, other):
    roots = {seat: root for seat, root in pairs if seat != root}
    made = [link(seat, root) for seat, root in roots.items() if root not in roots]
    known = people(*made)
    kept = {each.seat: each.root for each in made}
    same = kept.get(one, one) == kept.get(other, other)
    views = [known.resolve(message(seat)).view for seat in (one, other)]
    assert (views[0].space == views[1].space) == same
    assert bool(set(views[0].people) & set(views[1].people)) == same
    assert routing.named(one) in views[0].people
