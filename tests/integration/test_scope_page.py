"""Where memory is used, as sentences on the page: added, moved, removed, and in effect at once."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from bot.channel import ScopeRule
from bot.dashboard.channels import sentence, written
from bot.identity.routing import MessageOrigin
from tests.fakes.started import Started, load, started, unchanged

__all__ = ["unchanged"]
PATH = "/channels/scope"
SENTENCE = re.compile(r'<span id="rule-\d+"><bdi>(.*?)</bdi>')


def sentences(page: str) -> list[str]:
    return [unescape(each) for each in SENTENCE.findall(page)]


def forms(page: str) -> list[dict[str, str]]:
    found = re.findall(
        r'name="number" value="(\d+)">\s*<input[^>]*name="rule" value="([^"]*)"', page
    )
    return [{"number": number, "rule": unescape(rule)} for number, rule in found]


def space(program: Started, chat: str, sender: str = "7", kind: str = "group") -> str:
    """Where a chat writes what it remembers; empty where it may not."""
    origin = MessageOrigin("telegram", "default", chat, kind, sender)
    return program.app.core.resolver.of(origin).view.space


async def test_a_rule_is_added_before_the_others_moved_and_removed_and_counts_at_once(tmp_path):
    async with started(tmp_path) as program:
        page = await program.get(PATH)
        assert sentences(page) == ["In direct chats: memory is used."]
        assert "Everywhere else: memory is not used." in page
        assert space(program, "-5") == ""
        status, page = await program.post(
            f"{PATH}/add", channel="telegram", chat="-5", chat_type="group", effect="allow"
        )
        assert (status, "Added. In effect now." in page) == (200, True)
        assert sentences(page)[0] == (
            "In the chat -5 of telegram: the room's notes and the shared ones are used."
        )
        assert space(program, "-5") == "rooms/telegram--5"
        assert space(program, "-6") == ""
        await program.post(f"{PATH}/add", effect="deny", sender="7")
        assert space(program, "-5") == ""
        assert space(program, "-5", sender="8") != ""
        page = await program.get(PATH)
        _, page = await program.post(f"{PATH}/up", **forms(page)[1])
        assert "Moved. In effect now." in page
        assert space(program, "-5") != ""
        _, page = await program.post(f"{PATH}/remove", **forms(page)[0])
        assert sentences(page)[0] == "In every chat, for 7: memory is not used."
        assert space(program, "-5") == ""
    assert [each.action for each in load(tmp_path).config.scope.rules] == ["deny", "allow"]


async def test_private_notes_stay_out_of_a_room_whatever_the_rules_say(tmp_path):
    async with started(tmp_path) as program:
        await program.post(f"{PATH}/add", effect="allow_every_turn")
        origin = MessageOrigin("telegram", "default", "-5", "group", "7")
        view = program.app.core.resolver.of(origin).view
        assert (view.private, view.recall) == (False, "every_turn")


async def test_what_another_tab_changed_meanwhile_is_not_changed_again(tmp_path):
    async with started(tmp_path) as program:
        await program.post(f"{PATH}/add", effect="deny", sender="7")
        page = await program.get(PATH)
        first = forms(page)[0]
        await program.post(f"{PATH}/remove", **first)
        for act in ("remove", "up"):
            _, page = await program.post(f"{PATH}/{act}", **first)
            assert "Nothing was changed" in page
        assert sentences(page) == ["In direct chats: memory is used."]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"effect": "allow", "chat": "telegram:42"}, "Enter only the id"),
        ({"effect": "allow", "sender": "discord:42"}, "Enter only the id"),
        ({"effect": "allow", "chat": "x" * 201}, "Enter only the id"),
        ({"effect": "allow", "chat": "a\x07b"}, "Enter only the id"),
        ({"effect": "allow", "channel": "pigeon"}, "Choose a channel from the list."),
        ({"effect": "sometimes"}, "Choose from the lists."),
        ({}, "Choose from the lists."),
        ({"effect": "allow", "chat_type": "party"}, "Choose from the lists."),
        ({"effect": "allow", "chat_type": "direct"}, "This rule is there already."),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_rule_that_cannot_be_says_what_to_enter_when_typed_and_when_added(
    unchanged, fields: dict[str, str], said: str
):
    headers = {"Origin": unchanged.url}
    url = f"{unchanged.url}{PATH}/check"
    async with unchanged.page.post(url, data=fields, headers=headers) as answer:
        assert said in (await answer.json())["problem"]
    status, page = await unchanged.post(f"{PATH}/add", **fields)
    assert (status, said in page, unchanged.kept) == (422, True, "")


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_typed_is_told_as_a_sentence_and_an_unknown_chat_is_noticed(unchanged):
    headers = {"Origin": unchanged.url, "Accept-Language": "zh"}
    fields = {"effect": "allow_off", "chat": "<b>5</b>"}
    url = f"{unchanged.url}{PATH}/check"
    async with unchanged.page.post(url, data=fields, headers=headers) as answer:
        found: dict[str, Any] = await answer.json()
    assert found["problem"] == ""
    assert found["sentence"] == "在聊天 <b>5</b> 中：使用记忆，只在模型主动查找时。"
    assert "还没有人" in found["hint"]
    assert unchanged.kept == ""


async def test_a_name_with_markup_is_shown_as_it_is(tmp_path):
    async with started(tmp_path) as program:
        _, page = await program.post(f"{PATH}/add", effect="deny", chat="<img src=x>\u202e")
        assert "Enter only the id" in page  # a character that turns words around
        _, page = await program.post(f"{PATH}/add", effect="deny", chat="<img src=x>")
        assert "<img" not in page
        assert sentences(page)[0] == "In the chat <img src=x>: memory is not used."


async def test_rules_of_the_environment_say_so_and_are_not_changed(tmp_path):
    rules = '[{"action": "deny", "account": "work", "key_prefix": "agent:main:telegram:"}]'
    environ = {"CONFIDANT_SCOPE__RULES": rules.replace('"account": "work", ', "")}
    async with started(tmp_path, **environ) as program:
        page = await program.get(PATH)
        assert "CONFIDANT_SCOPE__RULES" in page
        assert "where the session key begins with agent:main:telegram:" in page
        status, page = await program.post(f"{PATH}/add", effect="allow", sender="8")
        assert (status, "takes precedence" in page) == (422, True)
        assert program.kept == ""


async def test_so_many_rules_that_they_could_not_be_kept_are_refused(tmp_path):
    async with started(tmp_path) as program:
        for number in range(60):
            status, page = await program.post(
                f"{PATH}/add", effect="deny", chat=f"{'9' * 190}{number}"
            )
            if status != 200:
                break
        assert "too many rules" in page
        assert 10 < len(program.app.core.resolver.policy.config.scope.rules) < 30


def test_a_rule_is_written_with_what_it_says_and_nothing_else():
    rule = ScopeRule(action="allow", chat="5")
    assert written([rule]) == '[{"action":"allow","chat":"5"}]'
    assert sentence("en", ScopeRule(action="allow", account="work", recall="start")) == (
        "In every chat, account work: memory is used and searched before the first reply."
    )
