"""`resolve`: who and where, and accounts that people joined."""

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.discord import DiscordConfig
from bot.channel import (
    Address,
    Capabilities,
    ChannelConfig,
    ChannelPlugin,
    Engine,
    Health,
    Inbound,
    Media,
    Outbound,
    Piece,
)
from bot.channel.kit.accounts import Account, AccountChannel
from bot.channel.kit.supervisor import Supervisor
from bot.config import Config
from bot.errors import SendRefused, SendTransient
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
    routing,
)
from bot.identity.view import folder_name
from bot.sessions import links, pairing
from bot.sessions.links import VALID_MS, LinkCode
from bot.settings import config_model
from bot.storage.sqlite import _connect_and_migrate
from bot.storage.sqlite_sql import SqliteTransaction
from bot.testing import InMemoryChannel, RecordingEngine

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
    resolver.adopt(policy(SHANGHAI, agent={"language": "zh"}))
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
        lambda: resolver.adopt(policy()),
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


NOW = 1_795_262_400_000
ADA_SEAT, THERE, EVE = ("telegram", "42"), ("discord", "77"), ("nct", "eve")
SEATS = st.tuples(st.sampled_from(["t", "d"]), st.sampled_from(["1", "2", "3"]))


def offered(person: str = "telegram:42", code: str = "ABCDEFGH", root=ADA_SEAT) -> LinkCode:
    return LinkCode(person, code, root, Address("telegram", "default", "c42"), "key", "en")


def link(seat=THERE, root=ADA_SEAT) -> Link:
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
    links.join(tx, link(ADA_SEAT, EVE), NOW)
    assert links.claim(tx, "ABCDEFGH", "discord:77", NOW) is None


def test_no_code_is_nobodys():
    assert not pairing.is_same_code("", "")
    assert pairing.is_same_code("ABC", "abc\n")


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
    ada, there = message(ADA_SEAT), message(THERE)
    assert known.resolve(there).person == known.resolve(ada).person == "telegram:42"
    assert known.resolve(there).view.space == known.resolve(ada).view.space
    assert set(known.resolve(ada).view.people) == {"telegram:42", "discord:77"}
    assert set(known.resolve(there).view.people) == {"telegram:42", "discord:77"}
    assert known.resolve(message(EVE)).view.people == ("nct:eve",)


def test_linked_to_the_owner_is_the_owner_but_not_let_in_for_that():
    known = people(link(), owner=["telegram:42"])
    there = message(THERE)
    assert known.resolve(there).is_owner
    assert known.resolve(there).view.space == "main"
    assert "discord:77" in known.resolve(message(ADA_SEAT)).view.people
    assert known.resolve(there).verdict == "pair"
    assert known.resolve(message(ADA_SEAT)).verdict == "allow"


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
    assert known.resolve(message(ADA_SEAT)).view == plain.resolve(message(ADA_SEAT)).view


def test_all_places_of_somebody_the_configuration_links_have_what_was_joined_to_one_of_them():
    ada = {"identity_links": {"ada": ["telegram:42", "nct:eve"]}}
    known = people(link(), **ada)
    for seat in (ADA_SEAT, THERE, EVE):
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


HERE = Address("pigeon", "default", "1")
ELSEWHERE = Address("pigeon", "work", "1")


class Bird(Account):
    async def run(self) -> None:
        self.supervisor.well("receiving")

    async def send(self, piece: Piece) -> str:
        return piece.id

    async def typing(self, address: Address) -> None:
        raise SendRefused("it does not type")


class Pigeon(AccountChannel[Bird]):
    name, title = "pigeon", "Pigeon"
    capabilities = Capabilities()

    async def start(self, engine: Engine) -> None:
        await self.start_all(
            {"default": Bird(Supervisor("pigeon", "default", engine, waiting="-"))}
        )

    def render(self, outbound: Outbound) -> list[Piece]:
        return [Piece(outbound, outbound.text)]


async def test_a_channel_that_does_not_run_may_later() -> None:
    channel = Pigeon()
    with pytest.raises(SendTransient, match="Pigeon is not connected"):
        await channel.send(Piece(Outbound("o", HERE, "x"), "x"))
    await channel.start(RecordingEngine())
    await channel.stop()
    with pytest.raises(SendTransient):
        await channel.send(Piece(Outbound("o", HERE, "x"), "x"))


async def test_an_account_that_is_not_there_never_will_be() -> None:
    channel = Pigeon()
    await channel.start(RecordingEngine())
    assert await channel.send(Piece(Outbound("o", HERE, "x"), "x")) == "o"
    with pytest.raises(SendRefused, match="not configured"):
        await channel.send(Piece(Outbound("o", ELSEWHERE, "x"), "x"))
    await channel.stop()


async def test_what_an_account_cannot_do_raises_only_where_a_person_waits_for_it() -> None:
    channel = Pigeon()
    await channel.start(RecordingEngine())
    for address in (HERE, ELSEWHERE):
        await channel.typing(address)
        await channel.draft(address, "d", "x")
        assert not await channel.is_admin(address, "7")
        assert not channel.invitation(address.account)
    with pytest.raises(SendRefused, match="too large"):
        await channel.fetch(HERE, Media("photo", size=11), 10)
    with pytest.raises(SendRefused, match="no files"):
        await channel.fetch(HERE, Media("photo", size=10), 10)
    await channel.stop()


def test_what_an_account_lacks_is_told() -> None:
    engine = RecordingEngine()
    Pigeon().lack(engine, {"work"}, "This account has no token.")
    assert engine.health == {("pigeon", "work"): (Health.DOWN, "This account has no token.")}
