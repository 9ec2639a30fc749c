"""`resolve`: one value of who and where, and what becomes of it when something changes."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.discord import DiscordConfig
from bot.channel import Address, ChannelConfig, ChannelPlugin, Inbound
from bot.identity import (
    MANY,
    AccessDecision,
    Books,
    Conversation,
    ConversationResolver,
    Link,
    MessageOrigin,
    Parsed,
    Policy,
    PolicySnapshot,
    resolve,
)
from bot.identity.view import folder_name
from bot.settings import config_model
from bot.testing import InMemoryChannel

UTC = ZoneInfo("UTC")
SHANGHAI = ZoneInfo("Asia/Shanghai")
ADA = Inbound("memory", "default", "ada", "direct", "ada", "1", "hi", 0)
DEN = replace(ADA, chat="den", chat_type="group")
LINK = Link(("memory", "eve"), ("memory", "ada"), Address("memory", "default", "eve"), "en")
AWAY = replace(LINK, seat=("other", "77"))
COMMANDS = frozenset({"help"})


def policy(zone: ZoneInfo = UTC, **sections: object) -> Policy:
    kinds = {"memory": ChannelConfig, "discord": DiscordConfig}
    plugins = {
        name: ChannelPlugin(name, kind, lambda _config: InMemoryChannel())
        for name, kind in kinds.items()
    }
    return Policy.of(config_model(plugins).model_validate(sections), zone, COMMANDS)


def resolved(inbound: Inbound, books: Books | None = None, **sections: object) -> Conversation:
    return ConversationResolver(policy(**sections), books).resolve(inbound)


# --- what it says ---------------------------------------------------------------------------------


def test_a_stranger_in_a_direct_chat():
    found = resolved(replace(ADA, locale="zh-CN"))
    assert (found.key, found.person) == ("agent:main:memory:dm:ada", "memory:ada")
    assert (found.verdict, found.is_admitted, found.is_owner) == (AccessDecision.PAIR, False, False)
    assert (found.language, found.zone, found.is_addressed) == ("zh", UTC, True)
    space = f"people/{folder_name('memory:ada')}"
    assert (found.view.space, found.view.people) == (space, ("memory:ada",))


def test_a_pairing_lets_in_where_it_was_approved_and_nowhere_else():
    books = Books(paired=frozenset({("memory", "default", "ada")}))
    assert resolved(ADA, books).is_admitted
    assert not resolved(replace(ADA, account="second"), books).is_admitted
    assert not resolved(replace(ADA, sender="eve"), books).is_admitted
    closed = {"channels": {"memory": {"dm_policy": "allowlist"}}}
    assert not resolved(ADA, books, **closed).is_admitted


@pytest.mark.parametrize(
    ("text", "changes", "command", "addressed"),
    [
        ("/help me", {}, Parsed("help", "me"), True),
        ("/weather", {}, Parsed("weather"), False),
        ("/help@other", {}, None, False),
        ("/help", {"edit_of": "0"}, None, True),
        ("hello", {}, None, False),
        ("hello", {"mentions_bot": True}, None, True),
    ],
)
def test_what_is_said_in_a_room(text, changes, command, addressed):
    channels = {"channels": {"memory": {"group_policy": "open"}}}
    found = resolved(replace(DEN, text=text, **changes), **channels)
    assert (found.command, found.is_addressed) == (command, addressed)
    assert found.zone == UTC


def test_what_was_chosen_for_a_room_comes_before_what_is_configured():
    channels = {"channels": {"memory": {"group_policy": "open"}}}
    always = Books().activated("agent:main:memory:group:den", "always")
    assert resolved(DEN, always, **channels).is_addressed
    assert not resolved(replace(DEN, text="/weather"), always, **channels).is_addressed


def test_a_room_that_moved_is_the_one_it_was_in_every_way():
    groups = {"channels": {"memory": {"groups": {"den": {"language": "zh"}}}}}
    rules = {"scope": {"rules": ({"action": "allow", "chat": "den"},)}}
    books = Books().with_moved(("memory", "default", "new"), "den")
    old, new = (
        resolved(replace(DEN, chat=chat), books, **groups, **rules) for chat in ("den", "new")
    )
    assert (new.key, new.view, new.language) == (old.key, old.view, "zh")
    assert (new.address.chat, new.place.chat) == ("new", "new")
    assert new.is_admitted


def test_a_servers_own_table_holds_in_its_rooms():
    guilds = {"1": {"require_mention": False, "language": "zh"}, "2": {}}
    section = {"channels": {"discord": {"group_policy": "open", "guilds": guilds}}}
    for server, addressed, language in (("1", True, "zh"), ("2", False, "en"), ("1", True, "zh")):
        said = replace(DEN, channel="discord", chat=f"c{server}", server=server)
        found = resolved(said, **section)
        assert (found.is_addressed, found.language) == (addressed, language)


# --- what changes ---------------------------------------------------------------------------------


def test_nothing_is_made_anew_while_nothing_changes():
    resolver = ConversationResolver(policy())
    found = resolver.resolve(ADA)
    resolver.read(Books())
    assert resolver.renewed(found) is found


def test_what_it_says_stays_and_the_rest_is_of_another_generation():
    resolver = ConversationResolver(policy(agent={"language": "en"}))
    found = resolver.resolve(replace(ADA, text="/help"))
    resolver.configure(policy(SHANGHAI, agent={"language": "zh"}))
    anew = resolver.renewed(found)
    assert (found.language, found.zone) == ("en", UTC)
    assert (anew.language, anew.zone, anew.command) == ("zh", SHANGHAI, Parsed("help"))
    assert anew.snapshot.version == found.snapshot.version + 1


def test_each_change_makes_a_generation_and_leaves_the_one_before_alone():
    resolver = ConversationResolver(policy())
    changes = (
        lambda: resolver.linked((LINK,)),
        lambda: resolver.admitted("memory", "default", "ada"),
        lambda: resolver.activated("agent:main:memory:group:den", "always"),
        lambda: resolver.moved(("memory", "default", "new"), "den"),
        lambda: resolver.configure(policy()),
    )
    seen = [resolver.now]
    for change in changes:
        change()
        seen.append(resolver.now)
    assert [each.version for each in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[0].books == Books()
    assert seen[1].books == Books(links=(LINK,))


@given(
    st.builds(
        MessageOrigin,
        st.sampled_from(["memory", "discord", "gone"]),
        st.sampled_from(["default", "second"]),
        st.sampled_from(["ada", "eve", "den", ""]),
        st.sampled_from(["direct", "group", "thread", "odd"]),
        st.sampled_from(["ada", "eve", ""]),
        st.sampled_from(["", "7"]),
        st.sampled_from(["", "den"]),
        st.sampled_from(["", "1"]),
        st.sampled_from(["", "zh", "xx"]),
    ),
    st.sampled_from([(), (LINK,)]),
    st.sampled_from([{}, {("memory", "default", "eve"): "den"}]),
)
def test_it_is_the_same_for_the_same_values_and_never_private_in_a_room(origin, links, moved):
    snapshot = PolicySnapshot.of(policy(), Books(links=links, moved=moved))
    found = resolve(snapshot, origin)
    assert found == resolve(PolicySnapshot.of(policy(), Books(links=links, moved=moved)), origin)
    assert found.address == Address(origin.channel, origin.account, origin.chat, origin.thread)
    assert found.place.person == (found.person if found.is_direct else "")
    assert found.is_direct or (not found.view.private and found.view.people == ())
    assert found.view.keys in {(), (found.key,)}


# --- who wrote in a session -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "links", "after"),
    [
        ("", (), "ada"),
        ("ada", (), "ada"),
        ("eve", (), MANY),
        ("eve", (LINK,), "ada"),
        (MANY, (LINK,), MANY),
    ],
)
def test_who_writes_in_a_session_is_one_person_or_many(before, links, after):
    known = MessageOrigin.of(replace(ADA, sender=before))
    assert resolved(ADA, Books(links=links)).sender_after(known, "memory:ada") == after
    assert resolved(DEN, Books(links=links)).sender_after(known, "") == "ada"
    nobody = resolved(replace(ADA, sender=""), Books(links=links))
    assert nobody.sender_after(known, "memory:ada") == MANY


@pytest.mark.parametrize(
    ("before", "person", "links", "after"),
    [
        ("ada", "memory:ada", (), MANY),  # one id on two channels is no person
        ("77", "memory:77", (), MANY),
        ("ada", "memory:ada", (AWAY,), "ada"),
        ("77", "memory:77", (AWAY,), MANY),
        ("", "memory:ada", (AWAY,), ""),  # not known since a restore
        ("", "memory:eve", (AWAY,), MANY),
        (MANY, "memory:ada", (AWAY,), MANY),
    ],
)
def test_nor_is_somebody_on_another_channel_taken_for_who_has_that_id_here(
    before, person, links, after
):
    known = MessageOrigin.of(replace(ADA, sender=before))
    for sender in ("ada", "77"):
        there = resolved(replace(ADA, channel="other", sender=sender), Books(links=links))
        is_linked = sender == "77" and bool(links)
        assert there.sender_after(known, person) == (after if is_linked else MANY)
