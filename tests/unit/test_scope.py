import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bot.channel import Rule, ScopeConfig
from bot.config import SendPolicyConfig
from bot.identity.view import (
    MAIN_SPACE,
    MemoryView,
    Subject,
    allows,
    folder_name,
    permits,
    room_name,
    view_for,
)

WORDS = st.sampled_from(["", "telegram", "discord", "work", "42", "Ada", "ada", "agent:main:x"])
KINDS = st.sampled_from(["direct", "group", "channel", "thread", "dm", ""])
SUBJECTS = st.builds(
    Subject, channel=WORDS, account=WORDS, chat_type=KINDS, chat=WORDS, sender=WORDS, key=WORDS
)
RULES = st.builds(
    Rule,
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
def test_without_rules_nothing_may_be_seen(subject):
    config = ScopeConfig(rules=())
    assert not allows(config, subject)
    view = view_for(config, subject, people=("ada",), is_owner=True)
    assert (view.space, view.keys, view.private) == ("", (), False)


@given(SUBJECTS)
def test_by_default_direct_chats_are_let_in_and_nothing_else(subject):
    assert allows(ScopeConfig(), subject) == (subject.chat_type == "direct")


@given(CONFIGS, SUBJECTS, st.booleans())
def test_private_files_load_in_direct_chats_only_whatever_the_rules_say(config, subject, owner):
    view = view_for(config, subject, people=("ada",), is_owner=owner)
    assert not view.private or subject.chat_type == "direct"
    assert view.space != MAIN_SPACE or (owner and subject.chat_type == "direct")
    assert view.space.startswith("people/") <= (subject.chat_type == "direct")


@given(CONFIGS, SUBJECTS, st.booleans())
def test_a_session_searches_its_own_conversations_and_no_others(config, subject, owner):
    view = view_for(config, subject, people=("ada",), is_owner=owner)
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


@pytest.mark.parametrize(
    ("prefix", "key", "is_meant"),
    [
        ("", "agent:main:x", True),
        ("agent:", "agent:main:x", True),
        ("AGENT:Main", "agent:main:x", True),
        ("agent:other", "agent:main:x", False),
        ("main", "agent:main:x", False),
    ],
)
def test_a_rule_for_keys_means_those_that_begin_so(prefix, key, is_meant):
    subject = Subject("telegram", "default", "direct", "42", "42", key)
    rules = (Rule(action="deny", channel="telegram", key_prefix=prefix),)
    assert allows(ScopeConfig(default="allow", rules=rules), subject) is not is_meant


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
def test_a_folder_name_is_one_safe_part_of_a_path(identity):
    name = folder_name(identity)
    assert re.fullmatch(r"[a-z0-9_][a-z0-9_.-]*", name)
    assert ".." not in name.split("/")
    assert not name.endswith(".")
    assert len(name) <= 48 + 1 + 32


@given(IDENTITIES)
def test_no_id_can_spell_the_folder_of_another(identity):
    assume(folder_name(identity) != identity)
    spelled = folder_name(identity)
    assert folder_name(spelled) != spelled


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


@given(SUBJECTS)
def test_everybody_is_answered_unless_something_is_said(subject):
    assert permits(SendPolicyConfig(), subject)


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
    rules = (Rule(action="deny", chat=chat),)
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


@pytest.mark.parametrize(
    ("actions", "default", "answered"),
    [
        ((), "allow", True),
        ((), "deny", False),
        (("allow",), "deny", True),
        (("deny",), "allow", False),
        (("allow", "deny"), "allow", False),
        (("deny", "allow"), "allow", False),
    ],
)
def test_who_is_denied_anywhere_is_not_answered_and_who_is_allowed_is(actions, default, answered):
    subject = Subject("telegram", "default", "group", "42", "7", "agent:main:k")
    rules = tuple(Rule(action=action, channel="telegram") for action in actions)
    others = (Rule(action="deny", channel="discord"), Rule(action="allow", channel="discord"))
    policy = SendPolicyConfig(default=default, rules=(*others, *rules))
    assert permits(policy, subject) is answered
