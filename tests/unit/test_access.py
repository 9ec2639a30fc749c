from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import ChannelConfig, Inbound
from bot.gateway.access import Verdict, decide

ADA = Inbound("telegram", "default", "42", "direct", "42", "1", "hi", 0, sender_name="Ada")
POLICIES = ["pairing", "allowlist", "open", "disabled"]


def config(policy: str, *allowed: str) -> ChannelConfig:
    # Built without its own check of "open", so that the decision is tested alone.
    return ChannelConfig.model_construct(dm_policy=policy, allow_from=allowed)


def test_by_default_nobody_is_let_in_without_a_code():
    assert decide(ChannelConfig(), ADA, is_owner=False) is Verdict.PAIR


@pytest.mark.parametrize(
    ("policy", "allowed", "verdict"),
    [
        ("pairing", (), Verdict.PAIR),
        ("pairing", ("42",), Verdict.ALLOW),
        ("pairing", ("telegram:42",), Verdict.ALLOW),
        ("pairing", ("discord:42",), Verdict.PAIR),
        ("pairing", ("*",), Verdict.PAIR),
        ("allowlist", (), Verdict.DENY),
        ("allowlist", ("42",), Verdict.ALLOW),
        ("allowlist", ("*",), Verdict.DENY),
        ("open", ("*",), Verdict.ALLOW),
        ("open", (), Verdict.DENY),
        ("open", ("7",), Verdict.DENY),
        ("open", ("42",), Verdict.ALLOW),
        ("disabled", ("42", "*"), Verdict.DENY),
    ],
)
def test_the_policy_decides_in_direct_chats(policy, allowed, verdict):
    assert decide(config(policy, *allowed), ADA, is_owner=False) is verdict


@pytest.mark.parametrize("policy", POLICIES)
def test_the_owner_is_let_in_unless_the_channel_is_closed(policy):
    wanted = Verdict.DENY if policy == "disabled" else Verdict.ALLOW
    assert decide(config(policy), ADA, is_owner=True) is wanted


@given(
    st.sampled_from(POLICIES),
    st.lists(st.sampled_from(["*", "42", "telegram:42"]), max_size=3),
    st.sampled_from(["group", "channel", "thread", "", "dm", "DIRECT"]),
    st.booleans(),
)
def test_anything_but_a_direct_chat_is_closed(policy, allowed, kind, is_owner):
    inbound = replace(ADA, chat_type=kind)
    assert decide(config(policy, *allowed), inbound, is_owner=is_owner) is Verdict.DENY


@pytest.mark.parametrize("policy", POLICIES)
def test_a_message_without_a_sender_is_never_let_in(policy):
    assert decide(config(policy, "*", ""), replace(ADA, sender=""), is_owner=True) is Verdict.DENY


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(POLICIES[:2]))
def test_names_decide_nothing(name, text, policy):
    named = replace(ADA, sender_name=name, text=text, chat="someone", mentions_bot=True)
    allowed = tuple(entry for entry in (name, text, f"telegram:{name}", "someone") if entry != "42")
    strangers = tuple(entry for entry in allowed if entry != "telegram:42")
    assert decide(config(policy, *strangers), named, is_owner=False) is not Verdict.ALLOW


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_an_id_lets_in_only_itself(listed, sender):
    found = decide(config("allowlist", listed), replace(ADA, sender=sender), is_owner=False)
    same = listed != "*" and listed in (sender, f"telegram:{sender}")
    assert (found is Verdict.ALLOW) == same
