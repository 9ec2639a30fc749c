"""Who may talk and remember where, and which conversation a message belongs to."""

import re
import string
from dataclasses import replace
from pathlib import PurePosixPath
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bot.channel import Address, ScopeConfig, ScopeRule
from bot.config import AgentsConfig, SendPolicyConfig, SessionConfig
from bot.identity import Books, Link, MessageOrigin, Place, Policy, PolicySnapshot, resolve, routing
from bot.identity.routing import OWNER, channels_of, names_of, part
from bot.identity.view import (
    MAIN_SPACE,
    MemoryView,
    Subject,
    folder_name,
    permits,
    room_name,
    view_for,
)
from bot.memory import layout
from bot.settings import config_model

SCOPES = ["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]
KINDS = ["direct", "group", "channel", "thread"]

EVERYTHING = config_model({})()


def allows(config: ScopeConfig, subject: Subject) -> bool:
    """True if a session may see memory."""
    return view_for(config, subject, people=("ada",), is_owner=False).space != ""


def session_key(
    config: SessionConfig, origin: MessageOrigin, seat: tuple[str, str] | None = None
) -> str:
    person = routing.person_of(config, seat or origin.seat)
    return routing.session_key(config, origin, person)


def place_of(
    config: SessionConfig, origin: MessageOrigin, seat: tuple[str, str] | None = None
) -> Place:
    """The place of something said, by an account that counts as another one's `seat`."""
    policy = Policy.of(EVERYTHING.model_copy(update={"session": config}), ZoneInfo("UTC"))
    links = (Link(origin.seat, seat, Address("", "", ""), ""),) if seat else ()
    return resolve(PolicySnapshot.of(policy, Books(links=links)), origin).place


def person_of(config: SessionConfig, channel: str, sender: str) -> str:
    return routing.person_of(config, (channel, sender)).identity


def is_owner(config: SessionConfig, channel: str, sender: str) -> bool:
    return routing.person_of(config, (channel, sender)).is_owner


# Ids made to look like parts of a key, so that a careless join would mix them up.
HOSTILE = st.lists(
    st.sampled_from(
        [
            *(":", "@", "%", "~", "%3a", "%25", "dm", "main", "group", "thread", "topic", "1", "a"),
            *("A", "ada", "Ada", "\u0130", "ß", "ẞ", "Σ", "ς", "é", "e\u0301", " ", ".", "/"),
            "\x00",
        ]
    ),
    max_size=5,
).map("".join)
IDS = HOSTILE | st.text(max_size=8).filter(lambda text: text.isprintable())
NAMES = st.text(string.ascii_lowercase + string.digits + "_-", min_size=1, max_size=6)


@st.composite
def inbounds(draw: st.DrawFn) -> MessageOrigin:
    return MessageOrigin(
        channel=draw(NAMES),
        account=draw(NAMES | st.sampled_from(["default", "group", "channel", "dm", "a:b"])),
        chat=draw(IDS),
        chat_type=draw(st.sampled_from(KINDS)),
        sender=draw(IDS),
        thread=draw(st.just("") | IDS),
    )


def facets(scope: str, inbound: MessageOrigin) -> tuple[str, ...]:
    """What a key may depend on: two messages share it exactly when these are equal."""
    if inbound.chat_type != "direct":
        kind = "group" if inbound.chat_type == "group" else "channel"
        return (kind, inbound.channel, inbound.account, inbound.chat, inbound.thread)
    peer = {
        "main": (),
        "per-peer": (inbound.channel, inbound.sender),
        "per-channel-peer": (inbound.channel, inbound.sender),
        "per-account-channel-peer": (inbound.channel, inbound.account, inbound.sender),
    }[scope]
    return ("direct", *peer, inbound.thread)


@given(st.sampled_from(SCOPES), inbounds(), inbounds())
def test_a_key_is_shared_exactly_when_the_scope_says_so(scope, one, other):
    config = SessionConfig(dm_scope=scope)
    key = session_key(config, one)
    assert (key == session_key(config, other)) == (facets(scope, one) == facets(scope, other))
    assert key == key.lower() == session_key(config, one)
    assert key.startswith("agent:main:")


AGENTS = st.sampled_from(["main", "cook", "dm", "group", "memory"])


@given(st.sampled_from(SCOPES), inbounds(), inbounds(), AGENTS, AGENTS)
def test_agents_never_share_a_key(scope, one, other, agent, another):
    config = SessionConfig(dm_scope=scope)

    def key(origin: MessageOrigin, agent: str) -> str:
        return routing.session_key(config, origin, routing.person_of(config, origin.seat), agent)

    assert routing.agent_of(key(one, agent)) == agent
    assert (key(one, agent) == key(other, another)) == (
        agent == another and facets(scope, one) == facets(scope, other)
    )
    assert routing.room_of(key(one, agent)) == key(one, "main")


VALUES = st.sampled_from(["", "a", "B"])
RULES = st.builds(
    dict, channel=VALUES, account=VALUES, chat=VALUES, thread=VALUES, chat_type=st.just("")
) | st.builds(dict, sender=VALUES, person=st.sampled_from(["", "a:a", "cleo"]))


@given(st.lists(st.lists(RULES, min_size=1, max_size=3), max_size=3), st.data())
def test_the_first_rule_that_matches_says_which_agent_answers(rules, data):
    tables = {f"a{n}": {"bind": each} for n, each in enumerate(rules)}
    config = config_model({})(agents=AgentsConfig.model_validate(tables))
    small = st.sampled_from(["a", "b", "c"])
    origin = MessageOrigin(
        *(data.draw(small), data.draw(small), data.draw(small)),
        *(data.draw(st.sampled_from(KINDS)), data.draw(small), data.draw(st.just("") | small)),
    )
    session = SessionConfig(identity_links={"cleo": ("b:b",)})
    config = config.model_copy(update={"session": session})
    here = resolve(PolicySnapshot.of(Policy.of(config, ZoneInfo("UTC")), Books()), origin)
    people = {"cleo"} if origin.seat == ("b", "b") else {f"{origin.channel}:{origin.sender}"}
    people |= {"b:b"} if origin.seat == ("b", "b") else set()

    def matches(rule: dict[str, str]) -> bool:
        ones = rule.get("sender") or rule.get("person")
        if ones and origin.chat_type != "direct":
            return False
        if rule.get("person") and rule["person"] not in people:
            return False
        named = {name: value for name, value in rule.items() if name != "person" and value}
        return all(getattr(origin, name) == value.lower() for name, value in named.items())

    every = ((name, rule) for name, table in tables.items() for rule in table["bind"])
    expected = next((name for name, rule in every if matches(rule)), "main")
    assert here.agent == expected
    assert here.key.startswith(f"agent:{expected}:")


def test_a_chat_stands_for_its_threads_and_for_the_ids_it_had_before():
    agents = AgentsConfig.model_validate({"cook": {"bind": [{"chat": "kitchen"}]}})
    policy = Policy.of(EVERYTHING.model_copy(update={"agents": agents}), ZoneInfo("UTC"))
    books = Books().with_moved(("memory", "default", "new"), "kitchen")

    def agent(chat: str, *, parent: str = "", thread: str = "") -> str:
        origin = MessageOrigin("memory", "default", chat, "group", "ada", thread, parent)
        return resolve(PolicySnapshot.of(policy, books), origin).agent

    assert [agent("kitchen"), agent("new"), agent("t1", parent="kitchen")] == ["cook"] * 3
    assert agent("kitchen", thread="7") == "cook"
    assert agent("den") == "main"


def test_a_person_is_bound_in_every_channel():
    agents = AgentsConfig.model_validate({"family": {"bind": [{"person": "ada"}]}})
    session = SessionConfig(identity_links={"ada": ("telegram:42", "discord:77")})
    config = EVERYTHING.model_copy(update={"agents": agents, "session": session})
    snapshot = PolicySnapshot.of(Policy.of(config, ZoneInfo("UTC")), Books())

    def agent(channel: str, sender: str, kind: str = "direct") -> str:
        return resolve(snapshot, MessageOrigin(channel, "default", "1", kind, sender)).agent

    assert [agent("telegram", "42"), agent("discord", "77")] == ["family"] * 2
    assert [agent("telegram", "77"), agent("telegram", "42", "group")] == ["main"] * 2


@pytest.mark.parametrize(
    ("rule", "memories"),
    [
        ({"person": "ada"}, ("own", "main")),  # it answers in the page itself
        ({"sender": "42"}, ("main", "own")),
        ({"channel": "telegram"}, ("main", "own")),
        ({"chat": "42", "thread": "7"}, ("main", "own")),
        ({"person": "bob"}, ("main",)),
        ({"channel": "discord", "sender": "42"}, ("main",)),
        ({"channel": "telegram", "chat_type": "group"}, ("main",)),
        ({"chat": "den"}, ("main",)),
        ({"channel": "web"}, ("own", "main")),
    ],
)
def test_somebody_looks_at_the_memories_of_agents_that_may_answer_them(rule, memories):
    tables = {"own": {"memory": "own", "bind": [rule]}, "shares": {"bind": [{"person": "ada"}]}}
    agents = AgentsConfig.model_validate(tables)
    session = SessionConfig(identity_links={"ada": ("telegram:42", "web:ada")})
    config = EVERYTHING.model_copy(update={"agents": agents, "session": session})
    snapshot = PolicySnapshot.of(Policy.of(config, ZoneInfo("UTC")), Books())
    page = MessageOrigin("web", "default", "ada", "direct", "ada")
    assert resolve(snapshot, page).memories == memories
    theirs = resolve(snapshot, page, agent="own")
    assert theirs.view.space == "agents/own/people/ada"
    assert theirs.key == "agent:own:web:dm:@ada"


@given(IDS, IDS, st.booleans(), st.sampled_from(["", "room"]), NAMES)
def test_an_agent_with_memory_of_its_own_shares_no_partition(one, other, is_owner, room, channel):
    """Whoever talks to it: nothing somebody is called makes one agent's view hold another's."""
    agents = AgentsConfig.model_validate({"a": {}, "b": {"memory": "own"}, "c": {"memory": "own"}})
    kind, chat = ("group", room) if room else ("direct", one)
    rules = ScopeConfig(default="allow", rules=())
    held: dict[str, set[str]] = {}
    for agent, who in (("main", one), ("a", one), ("b", one), ("c", other), ("c", one)):
        subject = Subject(channel, "default", kind, chat, who, f"agent:{agent}:x")
        people = (f"{channel}:{who}", "ada")
        sharing = agents.sharing(agent)
        view = view_for(
            rules, subject, people=people, is_owner=is_owner, agent=agent, agents=sharing
        )
        held.setdefault(agent, set()).update(view.partitions)
        assert view.spaces == (view.space, "shared")
        assert layout.space_folders(view) == tuple(
            part for part in view.space.split("/") if view.space != "main"
        )
        for path in ("memory/a.md", "MEMORY.md"):
            partition = layout.locate(PurePosixPath(*layout.space_folders(view), path))
            assert partition is not None or (room and path == "MEMORY.md")
            assert partition is None or partition.partition in view.partitions
    for agent in ("b", "c"):
        for rest in held.keys() - {agent}:
            assert held[agent] & held[rest] == {"shared"}
    talk = {each for each in held["main"] if each.startswith("talk:")} - {"talk:agent:main:x"}
    assert talk <= held["a"]  # they share one memory


@given(IDS, IDS)
def test_a_part_is_distinct_has_no_separator_and_is_lower_case(one, other):
    assert (part(one) == part(other)) == (one == other)
    assert ":" not in part(one)
    assert "@" not in part(one)
    assert part(one) == part(one).lower() != ""


@given(inbounds(), st.sampled_from(SCOPES), IDS)
def test_a_link_joins_one_persons_places_and_nobody_else(inbound, scope, stranger):
    assume(stranger != inbound.sender)
    ada = replace(inbound, chat_type="direct", channel="telegram")
    there = replace(ada, channel="discord", sender="77")
    other = replace(ada, sender=stranger)
    links = {"ada": (f"telegram:{ada.sender}", "discord:77")}
    config = SessionConfig(dm_scope=scope, identity_links=links)
    keys = [session_key(config, each) for each in (ada, there, other)]
    assert (keys[0] == keys[1]) == (scope in {"main", "per-peer"})
    assert (keys[0] == keys[2]) == (scope == "main")
    assert person_of(config, "telegram", ada.sender) == person_of(config, "discord", "77") == "ada"
    assert person_of(config, "telegram", stranger) == f"telegram:{stranger}"


@given(IDS.filter(lambda id_: id_ != "42"), NAMES)
def test_nobodys_id_can_spell_a_linked_persons_key(sender, channel):
    links = {"ada": ("telegram:42",)}
    for scope in SCOPES[1:]:
        config = SessionConfig(dm_scope=scope, identity_links=links)
        ada = MessageOrigin("telegram", "default", "c", "direct", "42")
        eve = MessageOrigin(channel, "default", "c", "direct", sender)
        assert session_key(config, ada) != session_key(config, eve)


@given(inbounds(), st.text(max_size=12))
def test_a_chat_of_an_unknown_kind_counts_as_a_group(inbound, kind):
    assume(kind not in KINDS)
    config = SessionConfig(dm_scope="main")
    odd = replace(inbound, chat_type=kind)
    assert session_key(config, odd) == session_key(config, replace(inbound, chat_type="group"))
    assert place_of(config, odd).person == ""


@given(NAMES, IDS, IDS)
def test_only_whoever_the_configuration_names_is_the_owner(channel, owner, other):
    assume(channel not in {"web", "console"})
    config = SessionConfig(owner=(f"{channel}:{owner}",))
    assert is_owner(config, channel, owner)
    assert person_of(config, channel, owner) == OWNER
    assert is_owner(config, channel, other) == (owner == other)
    assert not is_owner(SessionConfig(), channel, other)


OWNS = {"owner": ("telegram:42",)}
BY_LINK = {"owner": ("ada",), "identity_links": {"ada": ("telegram:7",)}}


@pytest.mark.parametrize(
    ("options", "seat", "owns"),
    [
        ({}, ("web", "owner"), True),  # the page of this machine
        ({}, ("console", "owner"), True),
        ({}, ("web", "ada"), False),  # whom the owner let into the page
        # A link to a place of the owner's makes an owner.
        (OWNS | {"identity_links": {"a": ("web:owner", "telegram:7")}}, ("telegram", "7"), True),
        (OWNS | {"identity_links": {"a": ("telegram:42", "telegram:7")}}, ("telegram", "7"), True),
        (OWNS | {"identity_links": {"a": ("telegram:42", "telegram:7")}}, ("telegram", "8"), False),
        (BY_LINK, ("telegram", "7"), True),  # an owner can be named by their link
        (BY_LINK, ("telegram", "ada"), False),
        (BY_LINK, ("ada", ""), False),
        ({"identity_links": {"main": ("telegram:7",)}}, ("telegram", "7"), False),
    ],
)
def test_who_is_the_owner(options, seat, owns):
    assert is_owner(SessionConfig(**options), *seat) is owns
    assert person_of(SessionConfig(), "web", "ada") == "web:ada"


def test_ids_that_differ_in_case_only_are_different_people():
    links = {"ada": ("nextcloud_talk:ada", "telegram:7")}
    config = SessionConfig(owner=("nextcloud_talk:Ada",), identity_links=links)
    assert routing.person_of(config, ("nextcloud_talk", "ada")).link == "ada"
    assert routing.person_of(config, ("nextcloud_talk", "Ada")).link == ""
    assert not is_owner(config, "telegram", "7")


SEATS = st.tuples(NAMES.filter(lambda name: name not in {"web", "console"}), IDS)


@given(st.sampled_from(SCOPES), inbounds(), SEATS, st.booleans())
def test_an_account_that_counts_as_another_one_is_that_person(scope, one, seat, owner):
    assume(one.channel not in {"web", "console"})
    there = replace(one, chat_type="direct", thread="")
    first = replace(there, channel=seat[0], sender=seat[1])
    config = SessionConfig(dm_scope=scope, owner=(f"{seat[0]}:{seat[1]}",) if owner else ())
    joined = place_of(config, there, seat)
    assert joined.person == place_of(config, first).person
    assert (joined.channel, joined.chat) == (there.channel, there.chat)
    if scope in {"main", "per-peer"}:
        assert joined.key == session_key(config, first)
    else:  # the first account's conversations are as they were
        assert (joined.key == session_key(config, first)) == ((one.channel, one.sender) == seat)


@given(st.sampled_from(SCOPES[2:]), inbounds(), inbounds(), SEATS)
def test_nobody_else_has_the_key_of_a_linked_account(scope, one, other, seat):
    config = SessionConfig(dm_scope=scope)
    linked_one = replace(one, chat_type="direct")
    assume((linked_one.channel, linked_one.sender) != seat)
    assert session_key(config, linked_one, seat) != session_key(config, other)


def test_a_linked_account_shares_the_conversation_of_whom_the_configuration_names():
    config = SessionConfig(identity_links={"ada": ("telegram:42", "discord:77")})
    there = MessageOrigin("nct", "default", "c", "direct", "ada")
    assert session_key(config, there, ("telegram", "42")) == "agent:main:nct:dm:@ada"
    assert session_key(config, there, ("telegram", "43")) == "agent:main:nct:dm:@@telegram%3a43"


SALLY = MessageOrigin("telegram", "default", "c1", "direct", "42")
WORK = replace(SALLY, account="work")


@pytest.mark.parametrize(
    ("scope", "inbound", "key"),
    [
        ("main", SALLY, "agent:main:main"),
        ("main", replace(SALLY, thread="7"), "agent:main:main:thread:7"),
        ("per-peer", SALLY, "agent:main:dm:telegram.42"),
        ("per-channel-peer", WORK, "agent:main:telegram:dm:42"),
        ("per-account-channel-peer", SALLY, "agent:main:telegram:default:dm:42"),
        ("per-account-channel-peer", WORK, "agent:main:telegram:work:dm:42"),
        ("main", replace(SALLY, chat_type="group"), "agent:main:telegram:group:c1"),
        ("main", replace(WORK, chat_type="group"), "agent:main:telegram:work:group:c1"),
        ("main", replace(SALLY, chat_type="channel"), "agent:main:telegram:channel:c1"),
        (
            "main",
            replace(SALLY, chat_type="thread", thread="9"),
            "agent:main:telegram:channel:c1:topic:9",
        ),
    ],
)
def test_a_key_reads_as_the_table_in_the_docs_says(scope, inbound, key):
    # Conversations are stored under it: another spelling would lose all of them.
    assert session_key(SessionConfig(dm_scope=scope), inbound) == key


@pytest.mark.parametrize(
    ("id_", "start"),
    [
        ("ada_1-2.3", "ada_1-2.3"),
        ("a:b", "a%3ab"),
        ("50%", "50%25"),
        ("ada@example.org", "ada%40example.org"),
        ("~ada", "%7eada"),
        ("Ada", "ada~"),
        ("", "~"),
    ],
)
def test_a_part_spells_out_what_would_separate_parts(id_, start):
    assert part(id_) == start or (
        part(id_).startswith(start) and len(part(id_)) == len(id_) + 1 + 32
    )


def test_the_place_of_a_message_says_where_it_was_written_and_by_whom():
    config = SessionConfig(owner=("telegram:1",))
    written = replace(WORK, thread="7")
    key = session_key(config, written)
    assert place_of(config, written) == Place(
        key=key,
        person="telegram:42",
        channel="telegram",
        account="work",
        chat="c1",
        thread="7",
        chat_type="direct",
        sender="42",
    )
    as_other = place_of(config, written, ("discord", "77"))
    assert (as_other.key, as_other.person) == (
        session_key(config, written, ("discord", "77")),
        "discord:77",
    )
    assert as_other.key != key
    assert (as_other.channel, as_other.chat) == ("telegram", "c1")
    assert place_of(config, replace(written, sender="1")).person == OWNER
    assert place_of(config, replace(written, chat_type="group")).chat_type == "group"


LINKS: dict[str, tuple[str, ...]] = {
    "ada": ("telegram:42", "discord:77"),
    "main": ("telegram:9",),
    "me": ("telegram:1", "matrix:m"),
}


@pytest.mark.parametrize(
    ("seat", "identities"),
    [
        (("discord", "77"), ("ada", "telegram:42", "discord:77")),
        (("telegram", "77"), ("telegram:77",)),
        (("telegram", "9"), ("@main", "telegram:9")),
        (("telegram", "1"), (OWNER, "me", "telegram:1", "matrix:m")),
        (("matrix", "m"), (OWNER, "me", "telegram:1", "matrix:m")),
        (("web", "owner"), (OWNER, "web:owner")),
    ],
)
def test_what_was_said_before_a_link_is_found_under_it(seat, identities):
    config = SessionConfig(owner=("telegram:1",), identity_links=LINKS)
    found = routing.person_of(config, seat)
    assert found.identities == identities
    assert found.identity == identities[0]
    assert found.is_configured == (seat != ("telegram", "77"))


@pytest.mark.parametrize(
    ("person", "names"),
    [
        ("telegram:5", ("telegram:5",)),
        ("ada", ("ada", "telegram:42", "discord:77")),
        (OWNER, (OWNER, "me", "telegram:1", "console:owner", "web:owner", "matrix:m")),
    ],
)
def test_the_configuration_names_a_person_by_all_their_places(person, names):
    config = SessionConfig(owner=("telegram:1",), identity_links=LINKS)
    assert names_of(config, person) == names


def test_an_owner_who_is_named_by_their_link_has_all_its_places():
    config = SessionConfig(owner=("me",), identity_links=LINKS)
    assert set(names_of(config, OWNER)) == {
        *(OWNER, "me", "telegram:1", "matrix:m", "console:owner", "web:owner")
    }


def test_in_which_channels_somebody_is_known():
    config = SessionConfig(owner=("telegram:1",), identity_links={"ada": LINKS["ada"]})
    assert channels_of(config)["ada"] >= {"telegram", "discord"}
    assert channels_of(config)[OWNER] >= {"telegram", "web", "console"}
    assert set(channels_of(config)) == {OWNER, "ada"}
    federated = SessionConfig(identity_links={"ada": ("matrix:@ada:example.org",)})
    assert "matrix" in channels_of(federated)["ada"]


WORDS = st.sampled_from(["", "telegram", "discord", "work", "42", "Ada", "ada", "agent:main:x"])
ANY_KIND = st.sampled_from(["direct", "group", "channel", "thread", "dm", ""])
SUBJECTS = st.builds(
    Subject, channel=WORDS, account=WORDS, chat_type=ANY_KIND, chat=WORDS, sender=WORDS, key=WORDS
)
RULES = st.builds(
    ScopeRule,
    action=st.sampled_from(["allow", "deny"]),
    channel=WORDS,
    account=WORDS,
    chat_type=st.sampled_from(["", "direct", "group", "channel", "thread"]),
    chat=WORDS,
    sender=WORDS,
    key_prefix=st.sampled_from(["", "agent:", "AGENT:main", "agent:other"]),
)
CONFIGS = st.builds(
    ScopeConfig,
    default=st.sampled_from(["allow", "deny"]),
    rules=st.lists(RULES, max_size=4).map(tuple),
)
IDENTITIES = st.text(max_size=60) | st.sampled_from(
    ["..", ".", "", "/", "a/b", "../main", "CON", "ada", "Ada", "ada-", "telegram:42", "\x00", "İ"]
)


@given(SUBJECTS)
def test_without_rules_nothing_may_be_seen_and_by_default_direct_chats_alone(subject):
    config = ScopeConfig(rules=())
    assert not allows(config, subject)
    view = view_for(config, subject, people=("ada",), is_owner=True)
    assert (view.space, view.keys, view.private) == ("", (), False)
    assert allows(ScopeConfig(), subject) == (subject.chat_type == "direct")


@given(CONFIGS, SUBJECTS, st.booleans())
def test_whatever_the_rules_say_private_files_load_in_direct_chats_and_only_own_talk_is_searched(
    config, subject, owner
):
    view = view_for(config, subject, people=("ada",), is_owner=owner)
    assert not view.private or subject.chat_type == "direct"
    assert view.space != MAIN_SPACE or (owner and subject.chat_type == "direct")
    assert view.space.startswith("people/") <= (subject.chat_type == "direct")
    assert view.keys == ((subject.key,) if allows(config, subject) else ())


@given(CONFIGS, SUBJECTS)
def test_the_first_rule_that_matches_decides(config, subject):
    expected = config.default
    for rule in config.rules:
        alone = ScopeConfig(default="deny", rules=(rule.model_copy(update={"action": "allow"}),))
        if allows(alone, subject):
            expected = rule.action
            break
    assert allows(config, subject) == (expected == "allow")


@given(RULES, SUBJECTS)
def test_a_rule_matches_when_everything_it_names_does(rule, subject):
    config = ScopeConfig(rules=(rule.model_copy(update={"action": "allow"}),))
    names = ("channel", "account", "chat_type", "chat", "sender")
    same = all(
        not getattr(rule, name) or getattr(rule, name).lower() == getattr(subject, name).lower()
        for name in names
    )
    assert allows(config, subject) == (same and subject.key.startswith(rule.key_prefix.lower()))


@given(CONFIGS, SUBJECTS, IDENTITIES, IDENTITIES)
def test_two_people_never_share_a_space(config, subject, one, other):
    assume(one != other)
    views = [view_for(config, subject, people=(person,), is_owner=False) for person in (one, other)]
    if views[0].private:
        assert views[0].space != views[1].space
    assert MAIN_SPACE not in {view.space for view in views}


@given(IDENTITIES, st.text(max_size=12))
def test_a_person_and_a_room_never_share_a_space(person, chat):
    config = ScopeConfig(default="allow", rules=())
    direct = Subject("telegram", "default", "direct", chat, person, "key")
    room = Subject("telegram", "default", "group", chat, person, "key")
    mine = view_for(config, direct, people=(person,), is_owner=False)
    ours = view_for(config, room, people=(person,), is_owner=False)
    assert mine.space.split("/")[0] == "people"
    assert ours.space.split("/")[0] == "rooms"


@given(IDENTITIES, IDENTITIES)
def test_two_ids_never_share_a_folder(one, other):
    assert (folder_name(one) == folder_name(other)) == (one == other)


@given(IDENTITIES)
def test_a_folder_name_is_one_safe_part_of_a_path_that_no_other_id_can_spell(identity):
    name = folder_name(identity)
    assert re.fullmatch(r"[a-z0-9_][a-z0-9_.-]*", name)
    assert ".." not in name.split("/")
    assert not name.endswith(".")
    assert len(name) <= 48 + 1 + 32
    assert name == identity or folder_name(name) != name


def test_what_is_too_long_for_a_folder_is_cut_and_told_apart_by_its_digest():
    name = folder_name("a" * 49)
    assert re.fullmatch("a{48}-[0-9a-f]{32}", name)
    assert folder_name("a" * 48) == "a" * 48
    assert folder_name("a" * 50) != name


@pytest.mark.parametrize("identity", ["ada", "telegram-42", "a.b_c-d"])
def test_ids_that_are_safe_stay_readable(identity):
    assert folder_name(identity) == identity


# --- where the model may answer -------------------------------------------------------------------

POLICIES = st.builds(
    SendPolicyConfig,
    default=st.sampled_from(["allow", "deny"]),
    rules=st.lists(RULES, max_size=4).map(tuple),
)


@given(POLICIES, SUBJECTS)
def test_a_deny_wins_then_an_allow_then_the_default(policy, subject):
    found = [
        rule.action
        for rule in policy.rules
        if allows(ScopeConfig(rules=(rule.model_copy(update={"action": "allow"}),)), subject)
    ]
    wanted = "deny" if "deny" in found else "allow" if found else policy.default
    assert permits(policy, subject) == (wanted == "allow")


@given(POLICIES, SUBJECTS, st.randoms())
def test_the_order_of_its_rules_does_not_matter(policy, subject, chance):
    rules = list(policy.rules)
    chance.shuffle(rules)
    mixed = policy.model_copy(update={"rules": tuple(rules)})
    assert permits(mixed, subject) == permits(policy, subject)


# --- rooms ---------------------------------------------------------------------------------------

PARTS = st.sampled_from(["default", "a", "b", "a/b", "/", "%2F", "a-b", ":", "", "..", "é", "A"])


@given(PARTS, PARTS, PARTS, PARTS)
def test_no_two_rooms_of_a_channel_share_a_folder(account, chat, other_account, other_chat):
    config = ScopeConfig(default="allow", rules=())
    spaces = [
        view_for(
            config, Subject("telegram", *ids, "42", "key"), people=("ada",), is_owner=False
        ).space
        for ids in ((account, "group", chat), (other_account, "group", other_chat))
    ]
    assert (spaces[0] == spaces[1]) == ((account, chat) == (other_account, other_chat))
    assert all(re.fullmatch(r"rooms/[a-z0-9_.-]+", space) for space in spaces)


@pytest.mark.parametrize("chat", ["-42", "-100123", "-100456"])
def test_a_rule_means_a_chat_that_has_moved_by_any_of_its_ids(chat):
    subject = Subject("telegram", "default", "group", "-42", "7", "k", ("-100123", "-100456"))
    rules = (ScopeRule(action="deny", chat=chat),)
    assert not allows(ScopeConfig(default="allow", rules=rules), subject)


@pytest.mark.parametrize(
    ("account", "name"),
    [
        ("default", "telegram-42"),
        ("work", "telegram/work/42"),
        ("a/b", "telegram/a%2Fb/42"),
        ("ada x@y", "telegram/ada%20x%40y/42"),
    ],
)
def test_a_room_of_another_account_is_another_room(account, name):
    assert room_name("telegram", account, "42") == name
    subject = Subject("telegram", account, "group", "42", "7", "agent:main:k")
    view = view_for(ScopeConfig(default="allow", rules=()), subject, people=("7",), is_owner=False)
    assert view == MemoryView(f"rooms/{folder_name(name)}", ("agent:main:k",), private=False)
    assert view.private is False


def test_a_direct_chat_sees_all_that_is_its_persons_and_nothing_else():
    subject = Subject("telegram", "default", "direct", "42", "42", "agent:main:k")
    people = ("ada", "telegram:42")
    view = view_for(ScopeConfig(), subject, people=people, is_owner=False)
    assert view == MemoryView("people/ada", ("agent:main:k",), private=True, people=people)
    assert view.private is True
    assert view.spaces == ("people/ada", "shared")
    assert view.partitions == (
        *("people/ada", "shared", "people/ada#private"),
        *("talk:agent:main:k", "talk:ada", "talk:telegram:42"),
    )
    mine = view_for(ScopeConfig(), subject, people=people, is_owner=True)
    assert mine.partitions[:3] == ("main", "shared", "main#private")


def test_who_may_see_nothing_has_no_partition_to_search():
    subject = Subject("telegram", "default", "group", "42", "42", "agent:main:k")
    view = view_for(ScopeConfig(), subject, people=("ada",), is_owner=True)
    assert view == MemoryView("", (), private=False)
    assert view.private is False
    assert (view.spaces, view.partitions) == ((), ())
