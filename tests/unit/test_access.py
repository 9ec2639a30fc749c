from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import ChannelConfig, GroupConfig, Inbound
from bot.identity.access import AccessDecision, decide

ADA = Inbound("telegram", "default", "42", "direct", "42", "1", "hi", 0, sender_name="Ada")
POLICIES = ["pairing", "allowlist", "open", "disabled"]


def config(policy: str, *allowed: str) -> ChannelConfig:
    # Built without its own check of "open", so that the decision is tested alone.
    return ChannelConfig.model_construct(dm_policy=policy, allow_from=allowed)


def test_by_default_nobody_is_let_in_without_a_code():
    assert decide(ChannelConfig(), ADA, is_owner=False) is AccessDecision.PAIR


@pytest.mark.parametrize(
    ("policy", "allowed", "verdict"),
    [
        ("pairing", (), AccessDecision.PAIR),
        ("pairing", ("42",), AccessDecision.ALLOW),
        ("pairing", ("telegram:42",), AccessDecision.ALLOW),
        ("pairing", ("discord:42",), AccessDecision.PAIR),
        ("pairing", ("*",), AccessDecision.PAIR),
        ("allowlist", (), AccessDecision.DENY),
        ("allowlist", ("42",), AccessDecision.ALLOW),
        ("allowlist", ("*",), AccessDecision.DENY),
        ("open", ("*",), AccessDecision.ALLOW),
        ("open", (), AccessDecision.DENY),
        ("open", ("7",), AccessDecision.DENY),
        ("open", ("42",), AccessDecision.ALLOW),
        ("disabled", ("42", "*"), AccessDecision.DENY),
    ],
)
def test_the_policy_decides_in_direct_chats(policy, allowed, verdict):
    assert decide(config(policy, *allowed), ADA, is_owner=False) is verdict


@pytest.mark.parametrize("policy", POLICIES)
def test_the_owner_is_let_in_unless_the_channel_is_closed(policy):
    wanted = AccessDecision.DENY if policy == "disabled" else AccessDecision.ALLOW
    assert decide(config(policy), ADA, is_owner=True) is wanted


@pytest.mark.parametrize("policy", POLICIES)
def test_a_message_without_a_sender_is_never_let_in(policy):
    assert (
        decide(config(policy, "*", ""), replace(ADA, sender=""), is_owner=True)
        is AccessDecision.DENY
    )


@pytest.mark.parametrize(
    ("policy", "verdict"), [("pairing", AccessDecision.PAIR), ("allowlist", AccessDecision.DENY)]
)
def test_a_star_names_nobody_not_even_who_is_called_so(policy, verdict):
    assert decide(config(policy, "*"), replace(ADA, sender="*"), is_owner=False) is verdict


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(POLICIES[:2]))
def test_names_decide_nothing(name, text, policy):
    named = replace(ADA, sender_name=name, text=text, chat="someone", mentions_bot=True)
    allowed = tuple(entry for entry in (name, text, f"telegram:{name}", "someone") if entry != "42")
    strangers = tuple(entry for entry in allowed if entry != "telegram:42")
    assert decide(config(policy, *strangers), named, is_owner=False) is not AccessDecision.ALLOW


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_an_id_lets_in_only_itself(listed, sender):
    found = decide(config("allowlist", listed), replace(ADA, sender=sender), is_owner=False)
    same = listed != "*" and listed in (sender, f"telegram:{sender}")
    assert (found is AccessDecision.ALLOW) == same


# --- rooms ---------------------------------------------------------------------------------------

KINDS = ["group", "channel", "thread", "", "dm", "DIRECT", "supergroup"]
DEN = replace(ADA, chat_type="group", chat="den", mentions_bot=True)
LISTS = st.lists(st.sampled_from(["*", "42", "telegram:42", "7", "discord:42", "Ada", "den"]))


def rooms(policy: str = "allowlist", **fields: object) -> ChannelConfig:
    return ChannelConfig(group_policy=policy, **fields)


def test_by_default_no_room_is_let_in():
    assert decide(ChannelConfig(), DEN, is_owner=False) is AccessDecision.DECLINE
    assert decide(ChannelConfig(), DEN, is_owner=True) is AccessDecision.DECLINE


@pytest.mark.parametrize(
    ("policy", "groups", "verdict"),
    [
        ("allowlist", {}, AccessDecision.DECLINE),
        ("allowlist", {"den": {}}, AccessDecision.ALLOW),
        ("allowlist", {"*": {}}, AccessDecision.ALLOW),
        ("allowlist", {"other": {}}, AccessDecision.DECLINE),
        ("allowlist", {"parent": {}}, AccessDecision.ALLOW),
        ("allowlist", {"den": {"enabled": False}, "*": {}}, AccessDecision.DECLINE),
        ("allowlist", {"den": {"enabled": False}, "parent": {}}, AccessDecision.DECLINE),
        ("open", {}, AccessDecision.ALLOW),
        ("open", {"den": {"enabled": False}}, AccessDecision.DECLINE),
        ("open", {"*": {"enabled": False}}, AccessDecision.DECLINE),
        ("open", {"*": {"enabled": False}, "den": {}}, AccessDecision.ALLOW),
        ("disabled", {"den": {}, "*": {}}, AccessDecision.DENY),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_decides_about_rooms_of_any_kind(policy, groups, verdict, kind):
    there = replace(DEN, chat_type=kind, parent="parent")
    assert decide(rooms(policy, groups=groups), there, is_owner=False) is verdict


@pytest.mark.parametrize(
    ("own", "general", "verdict"),
    [
        (None, (), AccessDecision.ALLOW),
        (None, ("7",), AccessDecision.LISTEN),
        (None, ("42",), AccessDecision.ALLOW),
        (None, ("telegram:42",), AccessDecision.ALLOW),
        (None, ("discord:42",), AccessDecision.LISTEN),
        (None, ("*",), AccessDecision.ALLOW),
        (("7",), ("42",), AccessDecision.LISTEN),
        (("42",), ("7",), AccessDecision.ALLOW),
        (("*",), ("7",), AccessDecision.ALLOW),
        ((), ("42",), AccessDecision.LISTEN),
    ],
)
def test_who_may_talk_is_the_rooms_own_list_then_the_channels_then_everyone(own, general, verdict):
    group = GroupConfig() if own is None else GroupConfig(allow_from=own)
    config = rooms(groups={"den": group}, group_allow_from=general)
    assert decide(config, DEN, is_owner=False) is verdict
    assert decide(config, DEN, is_owner=True) is AccessDecision.ALLOW


@given(
    st.sampled_from(POLICIES),
    LISTS,
    st.sampled_from(["allowlist", "open", "disabled"]),
    LISTS,
    st.none() | LISTS,
    st.sampled_from(KINDS),
    st.booleans(),
)
def test_what_lets_in_to_a_direct_chat_means_nothing_in_a_room(  # noqa: PLR0917
    dm_policy, allowed, policy, general, own, kind, is_owner
):
    group = GroupConfig() if own is None else GroupConfig(allow_from=tuple(own))
    fields = {"group_policy": policy, "group_allow_from": tuple(general), "groups": {"den": group}}
    there = replace(DEN, chat_type=kind)
    found = {
        decide(
            ChannelConfig.model_construct(**fields, dm_policy=dm, allow_from=tuple(allow)),
            there,
            is_owner=is_owner,
        )
        for dm in (dm_policy, "disabled")
        for allow in (allowed, ())
    }
    assert len(found) == 1
    assert AccessDecision.PAIR not in found


@given(st.text(max_size=20), LISTS)
def test_names_decide_nothing_in_rooms(name, general):
    config = rooms(groups={"den": {}}, group_allow_from=tuple(general) or ("7",))
    named = replace(DEN, sender_name=name, text=name, server=name)
    assert decide(config, named, is_owner=False) is decide(config, DEN, is_owner=False)


@pytest.mark.parametrize("policy", ["allowlist", "open"])
def test_whoever_has_no_id_is_only_overheard(policy):
    config = rooms(policy, groups={"den": {}})
    assert decide(config, replace(DEN, sender=""), is_owner=True) is AccessDecision.LISTEN


def test_a_chat_without_an_id_is_no_room():
    assert decide(rooms("open"), replace(DEN, chat=""), is_owner=True) is AccessDecision.DENY
