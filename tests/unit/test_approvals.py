"""Questions before a tool is called, and the rights to call it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent import tools
from bot.agent.models import ToolSpec
from bot.agent.tools import DecidedCall, ToolContext, shown_call
from bot.agent.tools.toolbox import NOT_GIVEN, Toolbox
from bot.channel import Address, Button, ChannelConfig, ChannelPlugin, Inbound, ToolRule
from bot.delivery.outbox import Letter
from bot.gateway.commits import put_approval
from bot.identity import Conversation, ConversationResolver, Policy
from bot.identity.access import Permission, ToolRights, permission
from bot.identity.view import MemoryView
from bot.messages import Asked, ToolUse
from bot.messages import result_from_json as value_of
from bot.messages import result_to_json as json_of
from bot.sessions import approvals, store
from bot.sessions.approvals import KEPT_MS, VALID_MS, Question, Verdict
from bot.sessions.reminders import ReplyTarget
from bot.settings import config_model
from bot.storage import Database, Transaction
from bot.testing import InMemoryChannel
from bot.unit_of_work import UnitOfWork
from tests.odd import EXACT_JSON
from tests.support import NOON, OpenConfig
from tests.unit.test_reminders import PLACE

ADA, EVE = ("telegram", "default", "1"), ("telegram", "default", "2")


async def ask(
    database: Database, asker: approvals.Asker = ADA, at: int = NOON, session: str = "s"
) -> Question:
    return await database.write(
        lambda tx: approvals.ask(tx, asker, at, session_id=session, entry=f"{session}.2", call="t")
    )


async def answer(database: Database, question: Question, *, is_allowed: bool, at: int = NOON):
    await database.write(lambda tx: approvals.answer(tx, question, at, is_allowed=is_allowed))


async def begin(database: Database, question: Question, at: int = NOON) -> str | None:
    found = await database.write(lambda tx: approvals.begin(tx, question.id, at))
    return found[1] if found is not None else None


async def open_ids(database: Database, asker: approvals.Asker = ADA, at: int = NOON) -> list[str]:
    found = await database.read(lambda tx: approvals.open_in(tx, "s", asker, at))
    return [question.id for question in found]


async def test_what_was_allowed_is_begun_once(each_database: Database):
    question = await ask(each_database)
    assert await each_database.read(lambda tx: approvals.of_id(tx, question.id)) == question
    assert question == Question(question.id, "s", "s.2", "t", ADA, "open", NOON)
    await answer(each_database, question, is_allowed=True)
    assert await begin(each_database, question) == "allowed"
    assert await begin(each_database, question) == "begun"
    await answer(each_database, question, is_allowed=True)
    assert await begin(each_database, question) == "begun"


async def test_of_many_who_begin_it_at_once_one_does(each_database: Database):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=True)
    found = await asyncio.gather(*(begin(each_database, question) for _ in range(8)))
    assert sorted(found, key=str) == ["allowed", *["begun"] * 7]


async def test_the_first_answer_counts(each_database: Database):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=False)
    await answer(each_database, question, is_allowed=True)
    assert [await begin(each_database, question) for _ in range(2)] == ["denied", "denied"]


async def test_nothing_is_begun_that_was_not_answered(each_database: Database):
    question = await ask(each_database)
    assert await begin(each_database, question) == "begun"
    found = await each_database.write(lambda tx: approvals.begin(tx, "nothing", NOON))
    assert found is None


@pytest.mark.parametrize(("later", "verdict"), [(VALID_MS, "allowed"), (VALID_MS + 1, "late")])
async def test_what_was_allowed_long_ago_is_not_begun(each_database, later, verdict):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=True)
    assert await begin(each_database, question, NOON + later) == verdict
    assert await begin(each_database, question) == "begun"


async def test_only_what_somebody_may_still_answer_is_open_to_them(each_database: Database):
    first, second = await ask(each_database), await ask(each_database, at=NOON + 1)
    await ask(each_database, EVE)
    await ask(each_database, session="other")
    assert await open_ids(each_database) == [first.id, second.id]
    await answer(each_database, first, is_allowed=True)
    assert await open_ids(each_database) == [second.id]
    assert await open_ids(each_database, at=NOON + 1 + VALID_MS) == [second.id]
    assert await open_ids(each_database, at=NOON + 2 + VALID_MS) == []
    assert second.is_open(NOON + 1 + VALID_MS)
    assert not second.is_open(NOON + 2 + VALID_MS)


async def test_old_questions_go_but_not_what_was_allowed_and_still_waits(each_database: Database):
    old, allowed = await ask(each_database), await ask(each_database)
    await answer(each_database, allowed, is_allowed=True)
    await ask(each_database, at=NOON + KEPT_MS + 1)
    found = [
        await each_database.read(lambda tx, id_=each.id: approvals.of_id(tx, id_))
        for each in (old, allowed)
    ]
    assert [each is not None for each in found] == [False, True]


async def test_a_restored_database_has_no_questions(each_database: Database):
    question = await ask(each_database)
    await answer(each_database, question, is_allowed=True)
    await each_database.write(approvals.drop_all)
    assert await begin(each_database, question) is None


@pytest.mark.parametrize("chat_type", ["direct", "group"])
async def test_a_question_says_what_is_to_be_done_to_whom_it_is_put(each_database, chat_type):
    inbound = Inbound("telegram", "default", "9", chat_type, "1", "m7", "bake", NOON, thread="t1")

    def work(tx: Transaction) -> tuple[Letter, Question, list[tuple[str, str]]]:
        unit = UnitOfWork(tx, NOON)
        session, _ = unit.current(PLACE)
        use = ToolUse("call-1", "oven", {"degrees": 180})
        put_approval(unit, inbound, use, session_id=session.id, entry="s.2", language="en")
        (letter,) = unit.letters
        (question,) = approvals.open_in(tx, session.id, ADA, NOON)
        noted = [(entry.kind, entry.text) for _, entry in store.recent(tx, PLACE.key, 9)]
        return letter, question, noted

    letter, question, noted = await each_database.write(work)
    assert (question.entry, question.call, question.asker) == ("s.2", "call-1", ADA)
    assert letter.text == (
        'May I use `oven` with this?\n\n```json\n{\n  "degrees": 180\n}\n```\n\n'
        "Your answer is for this one call and must come within 60 minutes: "
        f"`/allow {question.id}` or `/deny {question.id}`."
    )
    assert letter.extra.buttons == (
        Button("Allow once", f"/allow {question.id}"),
        Button("No", f"/deny {question.id}"),
    )
    assert (letter.address, letter.kind, letter.language) == (
        Address("telegram", "default", "9", "t1"),
        "notice",
        "en",
    )
    in_room = chat_type == "group"
    assert (letter.asker, letter.reply_to) == (("1", "m7") if in_room else ("", ""))
    assert noted == [("notice", letter.text)]


OWNER = ToolRights(is_private=True)
CONTEXT = ToolContext(
    MemoryView("", (), private=False),
    "s1",
    datetime(2026, 7, 1, tzinfo=UTC),
    target=ReplyTarget("key", "main", Address("memory", "default", "ada"), "en"),
    rights=(OWNER,),
)
USE = ToolUse("t", "lamp", {"which": "kitchen"})


class Lamp:
    def __init__(self, *, changes: bool = True) -> None:
        self.spec = ToolSpec("lamp", "", {"type": "object"}, changes=changes)
        self.calls: list[Mapping[str, Any]] = []

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls.append(arguments)
        return "switched"


def ruled(*, ask: bool | None) -> ToolRights:
    return ToolRights(((1, ToolRule(action="allow", ask=ask)),))


@pytest.mark.parametrize(
    ("rights", "changes", "asks"),
    [
        ((OWNER,), True, True),
        ((OWNER,), False, False),
        ((ruled(ask=True),), False, True),
        ((ruled(ask=None),), True, True),
        ((ruled(ask=None),), False, False),
        ((ruled(ask=False),), True, False),
        ((ruled(ask=False), ruled(ask=True)), False, True),
        ((ruled(ask=True), ruled(ask=False)), False, True),
    ],
)
async def test_the_person_is_asked_by_rule_and_before_what_changes_something(
    rights, *, changes: bool, asks: bool
):
    lamp = Lamp(changes=changes)
    result = await Toolbox([lamp]).run(USE, replace(CONTEXT, rights=rights))
    assert isinstance(result.value, Asked) is asks
    assert lamp.calls == ([] if asks else [USE.input])


LONG = ToolUse("t", "lamp", {"which": "x" * tools.MAX_SHOWN})
REFUSED = {
    "what may not be used": (USE, replace(CONTEXT, rights=(ToolRights(),)), True, NOT_GIVEN),
    "a second call at a time": (USE, CONTEXT, False, tools.ONE_AT_A_TIME),
    "what runs by itself": (USE, replace(CONTEXT, target=None), True, tools.NOBODY_THERE),
    "what is too long to be read": (LONG, CONTEXT, True, tools.TOO_LONG),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_nobody_is_asked_about_what_could_not_be_done_or_judged(what):
    use, context, may_ask, why = REFUSED[what]
    lamp = Lamp()
    result = await Toolbox([lamp]).run(use, context, may_ask=may_ask)
    assert (result.text, result.is_error, lamp.calls) == (f"Error: {why}", True, [])


async def test_what_was_allowed_is_run_and_nothing_else():
    lamp, toolbox = Lamp(), None
    toolbox = Toolbox([lamp])
    verdicts: list[Verdict] = ["denied", "late", "begun"]
    for verdict in verdicts:
        result = await toolbox.carry_out(DecidedCall(USE, verdict, (OWNER,)), CONTEXT)
        assert (result.text, result.is_error) == (f"Error: {tools.UNDONE[verdict]}", True)
    assert lamp.calls == []
    result = await toolbox.carry_out(DecidedCall(USE, "allowed", (OWNER,)), CONTEXT)
    assert (result.text, result.origin) == ("switched", "tool")
    assert lamp.calls == [USE.input]


async def test_rights_that_are_gone_by_then_count():
    lamp = Lamp()
    result = await Toolbox([lamp]).carry_out(DecidedCall(USE, "allowed", (ToolRights(),)), CONTEXT)
    assert result.text == f"Error: {NOT_GIVEN}"
    assert lamp.calls == []


def test_that_somebody_is_asked_is_kept_with_the_call():
    assert value_of(json_of(Asked("lamp"))) == Asked("lamp")


# --- what is shown --------------------------------------------------------------------------------


@given(st.dictionaries(st.text(), EXACT_JSON, max_size=3))
def test_a_call_is_shown_to_the_last_character_and_ends_no_frame(arguments: dict[str, Any]):
    shown = shown_call(arguments)
    assert json.loads(shown) == arguments
    assert not [line for line in shown.split("\n") if line.lstrip()[:3] in {"```", "~~~"}]


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u2028", "\x07", "\u2066", "\ufeff"])
def test_what_cannot_be_seen_is_written_out(hidden: str):
    text = shown_call({"path": f"a{hidden}b"})
    assert hidden not in text
    assert f"a\\u{ord(hidden):04x}b" in text


def test_each_value_has_a_line():
    assert shown_call({"to": ["Zoë"], "sure": True}) == (
        '{\n  "to": [\n    "Zoë"\n  ],\n  "sure": true\n}'
    )


def test_chinese_stays_readable():
    assert "海边" in shown_call({"where": "海边"})


THE_OWNER = "memory:ada"
PEOPLE = ("ada", "bob", "eve")
SESSION = {"owner": (THE_OWNER,), "identity_links": {"bobby": ("memory:bob", "other:bob")}}
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
    if f"{inbound.channel}:{inbound.sender}" == THE_OWNER:
        called = called | {"main"}
    facts = ("channel", "account", "chat_type", "chat", "sender")
    return (
        any(fnmatchcase(name.lower(), each.lower()) for each in rule["tools"])
        and all(rule[fact] in {"", getattr(inbound, fact)} for fact in facts)
        and (not rule["person"] or rule["person"].lower() in called)
        and key.startswith(rule["key_prefix"].lower())
    )


@given(RULES, MESSAGES)
async def test_nobody_uses_what_no_rule_gives_in_the_list_or_by_a_call(rules, inbound):
    here = resolved(inbound, rules)
    tools = [Noting(name, built_in=True) for name in BUILT_IN] + [Noting(name) for name in OTHERS]
    toolbox = Toolbox(tools)
    listed = {spec.name for spec in toolbox.offered((here.rights,), here.view).specs}
    context = ToolContext(here.view, "s", datetime(2026, 7, 1, tzinfo=UTC), rights=(here.rights,))
    is_owners = f"{inbound.channel}:{inbound.sender}" == THE_OWNER and inbound.chat_type == "direct"
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
def test_of_several_who_are_answered_together_all_must_have_it(rules, inbounds, name):
    rights = tuple(resolved(inbound, rules).rights for inbound in inbounds)
    alone = [permission((each,), name, built_in=name in BUILT_IN).is_given for each in rights]
    together = permission(rights, name, built_in=name in BUILT_IN).is_given
    assert together is (bool(alone) and all(alone))


def test_by_themselves_rights_give_the_built_in_tools_and_nothing_else():
    rights = ToolRights()
    assert rights.of("memory_search", built_in=True) == Permission(is_given=True)
    assert rights.of("web_fetch", built_in=False) == Permission(is_given=False)
    assert permission((), "memory_search", built_in=True) == Permission(is_given=False)


ADA_SAYS = Inbound("memory", "default", "ada", "direct", "ada", "1", "hi", 0)


@pytest.mark.parametrize(
    ("inbound", "has_it"),
    [
        (ADA_SAYS, True),
        (replace(ADA_SAYS, chat="den", chat_type="group"), False),
        (replace(ADA_SAYS, chat_type="channel"), False),
        (replace(ADA_SAYS, chat_type="thread"), False),
        (replace(ADA_SAYS, chat_type="new kind"), False),  # pyright: ignore[reportArgumentType]
        (replace(ADA_SAYS, sender="bob", chat="bob"), False),
        (replace(ADA_SAYS, channel="other"), False),
        (replace(ADA_SAYS, sender="ADA"), False),
    ],
)
def test_without_a_rule_only_the_owners_direct_chats_have_other_tools(inbound, *, has_it: bool):
    rights = resolved(inbound, []).rights
    assert rights.of("web_fetch", built_in=False).is_given is has_it
    assert rights.of("memory_search", built_in=True).is_given


def test_where_everybody_shares_one_conversation_it_counts_who_speaks():
    bob = replace(ADA_SAYS, sender="bob", chat="bob")
    mine, theirs = (resolved(each, [], dm_scope="main") for each in (ADA_SAYS, bob))
    assert mine.key == theirs.key
    assert mine.rights.of("web_fetch", built_in=False).is_given
    assert not theirs.rights.of("web_fetch", built_in=False).is_given


def test_the_first_rule_that_is_about_it_decides_and_has_a_number():
    rules = [
        {"action": "deny", "tools": ("web_fetch",), "person": "bobby"},
        {"action": "allow", "tools": ("web_*",)},
        {"action": "deny"},
    ]
    bob = replace(ADA_SAYS, channel="other", sender="bob", chat="den", chat_type="group")
    rights, ours = resolved(bob, rules).rights, resolved(ADA_SAYS, rules).rights
    assert rights.of("web_fetch", built_in=False) == Permission(is_given=False, rule=1)
    assert rights.of("web_search", built_in=False) == Permission(is_given=True, rule=2)
    assert rights.of("memory_search", built_in=True) == Permission(is_given=False, rule=3)
    assert ours.of("web_fetch", built_in=False) == Permission(is_given=True, rule=2)


@pytest.mark.parametrize(
    ("option", "mine", "other"), [("tools", ("web_*",), ("files_*",)), ("person", "bobby", "carl")]
)
def test_a_rule_is_about_the_tools_and_the_person_it_names(option: str, mine: Any, other: Any):
    bob = replace(ADA_SAYS, channel="other", sender="bob", chat="bob")
    for value in (mine, other):
        rule = {"action": "allow", "tools": ("web_*",), option: value}
        given = resolved(bob, [rule]).rights.of("web_fetch", built_in=False).is_given
        assert given is (value == mine)


def test_a_rule_that_names_no_tool_is_about_all_of_them():
    assert ToolRule(action="allow").tools == ("*",)


OWN = MemoryView("main", (), private=True)


def test_the_list_of_the_built_in_tools_alone_has_no_mark_and_every_other_has_its_own():
    tools = [Noting("memory_search", built_in=True), Noting("web_fetch"), Noting("web_search")]
    toolbox = Toolbox(reversed(tools))
    usual, owners = (toolbox.offered((ToolRights(is_private=each),), OWN) for each in (False, True))
    one = toolbox.offered(
        (ToolRights(((1, ToolRule(action="allow", tools=("web_fetch",))),)),), OWN
    )
    none = toolbox.offered((ToolRights(((1, ToolRule(action="deny")),)),), OWN)
    assert [spec.name for spec in usual.specs] == ["memory_search"]
    assert [spec.name for spec in owners.specs] == ["memory_search", "web_fetch", "web_search"]
    assert (none.specs, none.json) == ((), "[]")
    assert usual.mark == ""
    assert len({usual.mark, owners.mark, one.mark, none.mark}) == 4
    again = Toolbox(tools).offered((ToolRights(is_private=True),), OWN)
    assert (again.json, again.mark) == (owners.json, owners.mark)
