"""Rights: whatever the rules say, nobody uses what none of them gives, in the list or by a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import ToolSpec
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import NOT_GIVEN, Toolbox
from bot.channel import ChannelConfig, ChannelPlugin, Inbound, ToolRule
from bot.identity import Conversation, ConversationResolver, Policy
from bot.identity.rights import Permission, ToolRights, permission
from bot.messages import ToolUse
from bot.settings import config_model
from bot.testing import InMemoryChannel
from tests.support import OpenConfig

OWNER = "memory:ada"
PEOPLE = ("ada", "bob", "eve")
SESSION = {"owner": (OWNER,), "identity_links": {"bobby": ("memory:bob", "other:bob")}}
BUILT_IN, OTHERS = ("memory_search",), ("web_fetch", "web_search", "files_Write")

RULES = st.lists(
    st.builds(
        dict[str, Any],
        action=st.sampled_from(["allow", "deny"]),
        tools=st.lists(
            st.sampled_from(
                ["*", "web_*", "web_fetch", "WEB_search", "files_write", "memory_*", "x"]
            ),
            min_size=1,
            max_size=2,
        ).map(tuple),
        person=st.sampled_from(["", "", "main", "bobby", "Bobby", "memory:eve", "other:bob"]),
        channel=st.sampled_from(["", "", "memory", "other"]),
        account=st.sampled_from(["", "", "default", "second"]),
        chat_type=st.sampled_from(["", "", "direct", "group", "channel", "thread"]),
        chat=st.sampled_from(["", "", "den", "ada"]),
        sender=st.sampled_from(["", "", "ada", "eve"]),
        key_prefix=st.sampled_from(["", "", "agent:main:memory:dm", "AGENT:main:other"]),
    ),
    max_size=4,
)
MESSAGES = st.builds(
    Inbound,
    channel=st.sampled_from(["memory", "other"]),
    account=st.sampled_from(["default", "second"]),
    chat=st.sampled_from(["den", "ada", "eve"]),
    chat_type=st.sampled_from(["direct", "group", "channel", "thread"]),
    sender=st.sampled_from(PEOPLE),
    message_id=st.just("1"),
    text=st.just("hi"),
    sent_at=st.just(0),
)


class Noting:
    """A tool that notes that it was called."""

    def __init__(self, name: str, *, built_in: bool = False) -> None:
        self.spec = ToolSpec(name, "", {"type": "object"}, built_in=built_in)
        self.calls = 0

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls += 1
        return "done"


def resolved(inbound: Inbound, rules: list[dict[str, Any]], **session: Any) -> Conversation:
    kinds: dict[str, type[ChannelConfig]] = {"memory": OpenConfig, "other": OpenConfig}
    plugins = {
        name: ChannelPlugin(name, kind, lambda _config: InMemoryChannel())
        for name, kind in kinds.items()
    }
    config = config_model(plugins).model_validate(
        {"session": {**SESSION, **session}, "tools": {"rules": rules}}
    )
    return ConversationResolver(Policy.of(config, ZoneInfo("UTC"))).resolve(inbound)


def gives(rule: dict[str, Any], name: str, inbound: Inbound, key: str) -> bool:
    """Whether a rule is about a call: said again, in other words than the program's."""
    people = {"bob": {"bobby", "memory:bob", "other:bob"}, "ada": {f"{inbound.channel}:ada"}}
    called = people.get(inbound.sender, {f"{inbound.channel}:{inbound.sender}"})
    if f"{inbound.channel}:{inbound.sender}" == OWNER:
        called = called | {"main"}
    facts = ("channel", "account", "chat_type", "chat", "sender")
    return (
        any(fnmatchcase(name.lower(), each.lower()) for each in rule["tools"])
        and all(rule[fact] in {"", getattr(inbound, fact)} for fact in facts)
        and (not rule["person"] or rule["person"].lower() in called)
        and key.startswith(rule["key_prefix"].lower())
    )


@given(RULES, MESSAGES)
async def test_nobody_uses_what_no_rule_gives_in_the_list_or_by_a_call(
    rules: list[dict[str, Any]], inbound: Inbound
):
    here = resolved(inbound, rules)
    tools = [Noting(name, built_in=True) for name in BUILT_IN] + [Noting(name) for name in OTHERS]
    toolbox = Toolbox(tools)
    listed = {spec.name for spec in toolbox.offered((here.rights,)).specs}
    context = ToolContext(here.view, "s", datetime(2026, 7, 1, tzinfo=UTC), rights=(here.rights,))
    is_owners = f"{inbound.channel}:{inbound.sender}" == OWNER and inbound.chat_type == "direct"
    for tool in tools:
        name = tool.spec.name
        decides = next((rule for rule in rules if gives(rule, name, inbound, here.key)), None)
        by_default = is_owners or name in BUILT_IN
        wanted = decides["action"] == "allow" if decides is not None else by_default
        answer = await toolbox.run(ToolUse("t", name, {}), context)
        assert (name in listed) is wanted
        assert tool.calls == wanted
        assert answer.is_error is not wanted
        assert wanted or answer.text == f"Error: {NOT_GIVEN}"


@pytest.mark.parametrize("changes", [True, False])
def test_before_what_changes_something_they_are_asked(*, changes: bool):
    owners = (ToolRights(is_private=True),)
    assert permission(owners, "oven", built_in=False, changes=changes).asks is changes
    assert not permission(owners, "oven", built_in=False).asks


@given(RULES, st.lists(MESSAGES, max_size=3), st.sampled_from([*BUILT_IN, *OTHERS]))
def test_of_several_who_are_answered_together_all_must_have_it(
    rules: list[dict[str, Any]], inbounds: list[Inbound], name: str
):
    rights = tuple(resolved(inbound, rules).rights for inbound in inbounds)
    alone = [permission((each,), name, built_in=name in BUILT_IN).is_given for each in rights]
    together = permission(rights, name, built_in=name in BUILT_IN).is_given
    assert together is (bool(alone) and all(alone))


def test_by_themselves_rights_give_the_built_in_tools_and_nothing_else():
    rights = ToolRights()
    assert rights.of("memory_search", built_in=True) == Permission(is_given=True)
    assert rights.of("web_fetch", built_in=False) == Permission(is_given=False)
    assert permission((), "memory_search", built_in=True) == Permission(is_given=False)


ADA = Inbound("memory", "default", "ada", "direct", "ada", "1", "hi", 0)


@pytest.mark.parametrize(
    ("inbound", "has_it"),
    [
        (ADA, True),
        (replace(ADA, chat="den", chat_type="group"), False),
        (replace(ADA, chat_type="channel"), False),
        (replace(ADA, chat_type="thread"), False),
        (replace(ADA, chat_type="new kind"), False),  # pyright: ignore[reportArgumentType]
        (replace(ADA, sender="bob", chat="bob"), False),
        (replace(ADA, channel="other"), False),
        (replace(ADA, sender="ADA"), False),
    ],
)
def test_without_a_rule_only_the_owners_direct_chats_have_other_tools(
    inbound: Inbound, *, has_it: bool
):
    rights = resolved(inbound, []).rights
    assert rights.of("web_fetch", built_in=False).is_given is has_it
    assert rights.of("memory_search", built_in=True).is_given


def test_where_everybody_shares_one_conversation_it_counts_who_speaks():
    bob = replace(ADA, sender="bob", chat="bob")
    mine, theirs = (resolved(each, [], dm_scope="main") for each in (ADA, bob))
    assert mine.key == theirs.key
    assert mine.rights.of("web_fetch", built_in=False).is_given
    assert not theirs.rights.of("web_fetch", built_in=False).is_given


def test_the_first_rule_that_is_about_it_decides_and_has_a_number():
    rules = [
        {"action": "deny", "tools": ("web_fetch",), "person": "bobby"},
        {"action": "allow", "tools": ("web_*",)},
        {"action": "deny"},
    ]
    bob = replace(ADA, channel="other", sender="bob", chat="den", chat_type="group")
    rights, ours = resolved(bob, rules).rights, resolved(ADA, rules).rights
    assert rights.of("web_fetch", built_in=False) == Permission(is_given=False, rule=1)
    assert rights.of("web_search", built_in=False) == Permission(is_given=True, rule=2)
    assert rights.of("memory_search", built_in=True) == Permission(is_given=False, rule=3)
    assert ours.of("web_fetch", built_in=False) == Permission(is_given=True, rule=2)


@pytest.mark.parametrize(
    ("option", "mine", "other"),
    [("tools", ("web_*",), ("files_*",)), ("person", "bobby", "carl")],
)
def test_a_rule_is_about_the_tools_and_the_person_it_names(option: str, mine: Any, other: Any):
    bob = replace(ADA, channel="other", sender="bob", chat="bob")
    for value in (mine, other):
        rule = {"action": "allow", "tools": ("web_*",), option: value}
        given = resolved(bob, [rule]).rights.of("web_fetch", built_in=False).is_given
        assert given is (value == mine)


def test_a_rule_that_names_no_tool_is_about_all_of_them():
    assert ToolRule(action="allow").tools == ("*",)


def test_the_list_of_the_built_in_tools_alone_has_no_mark_and_every_other_has_its_own():
    tools = [Noting("memory_search", built_in=True), Noting("web_fetch"), Noting("web_search")]
    toolbox = Toolbox(reversed(tools))
    usual, owners = (toolbox.offered((ToolRights(is_private=each),)) for each in (False, True))
    one = toolbox.offered((ToolRights(((1, ToolRule(action="allow", tools=("web_fetch",))),)),))
    none = toolbox.offered((ToolRights(((1, ToolRule(action="deny")),)),))
    assert [spec.name for spec in usual.specs] == ["memory_search"]
    assert [spec.name for spec in owners.specs] == ["memory_search", "web_fetch", "web_search"]
    assert (none.specs, none.json) == ((), "[]")
    assert usual.mark == ""
    assert len({usual.mark, owners.mark, one.mark, none.mark}) == 4
    again = Toolbox(tools).offered((ToolRights(is_private=True),))
    assert (again.json, again.mark) == (owners.json, owners.mark)
