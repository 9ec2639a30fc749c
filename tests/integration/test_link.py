"""One person with several accounts: `/link` and `/unlink` from beginning to end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Request
from bot.app import App, Parts
from bot.channel import ChannelPlugin, Inbound
from bot.messages import ToolResult
from bot.settings import config_model
from bot.testing import InMemoryChannel, ScriptedModel, calls
from tests.fakes import brain as brains
from tests.fakes.brain import Brain, settled
from tests.support import FakeClock, OpenConfig

SAVING = {"enable_memory_flush": True}
CODE = re.compile(r"/link ([A-Z2-9]{8})")
WRONG = "That is no code I can use. Ask for a new one with /link in the other app."


@dataclass
class Two:
    """An engine with two channels."""

    channels: dict[str, InMemoryChannel]
    model: ScriptedModel
    clock: FakeClock
    app: App
    count: int = 0

    async def say(self, who: str, text: str, **changes: Any) -> Inbound:
        channel, sender = who.split(":")
        self.count += 1
        number = f"{id(self)}-{self.count}"
        inbound = Inbound(
            channel, "default", sender, "direct", sender, number, text, self.clock(), locale="en"
        )
        inbound = replace(inbound, **changes)
        await self.channels[channel].push(inbound)
        return inbound

    async def ask(self, who: str, text: str, **changes: Any) -> str:
        channel, sender = who.split(":")
        chat = changes.get("chat", sender)
        before = len(self.sent(channel, chat))
        await self.say(who, text, **changes)
        await self.channels[channel].wait_until(lambda _: len(self.sent(channel, chat)) > before)
        return self.sent(channel, chat)[before]

    def sent(self, channel: str, chat: str) -> list[str]:
        return [out.text for out in self.channels[channel].sent if out.address.chat == chat]

    async def code(self, who: str) -> str:
        found = CODE.search(await self.ask(who, "/link"))
        assert found is not None
        return found[1]

    async def link(self, there: str, first: str) -> str:
        return await self.ask(there, f"/link {await self.code(first)}")

    async def person(self, who: str) -> str:
        found = re.search("known to me as `(.*?)`|(my owner)", await self.ask(who, "/whoami"))
        assert found is not None
        return found[1] or found[2]


@asynccontextmanager
async def two(
    folder: Path, *, model: ScriptedModel | None = None, clock: FakeClock | None = None, **more: Any
) -> AsyncIterator[Two]:
    names = ("memory", "other")
    plugins = {
        name: ChannelPlugin(name, OpenConfig, lambda _config: InMemoryChannel()) for name in names
    }
    data = {
        "agent": {"timezone": "UTC"},
        "storage": {"dir": folder, "backup_hours": 0},
        "memory": {"embedder": {"provider": "none"}, "watch": False},
        "context": {"enable_memory_flush": False},
        **more,
    }
    channels = {name: InMemoryChannel(name) for name in names}
    scripted, ticking = model or ScriptedModel(), clock or FakeClock()
    parts = Parts(clock=ticking, remote=scripted, channels=dict(channels), dashboard=False)
    async with App(config_model(plugins).model_validate(data), plugins, parts) as app:
        yield Two(channels, scripted, ticking, app)


def remembering(request: Request) -> Any:
    """A model that keeps what it is told, and finds what it is asked for."""
    last = request.messages[-1]
    if last.text.startswith("keep "):
        return calls("memory_write", text=last.text.removeprefix("keep "), path="MEMORY.md")
    if last.text.startswith("find "):
        return calls("transcript_search", query=last.text.removeprefix("find "))
    return "".join(b.text for b in last.blocks if isinstance(b, ToolResult)) or "hm"


async def test_a_code_of_one_account_joins_another_one_and_both_are_told(tmp_path):
    async with two(tmp_path) as engine:
        assert await engine.person("other:77") == "other:77"
        answer = await engine.link("other:77", "memory:ada")
        assert "the one in memory for the same person" in answer
        await engine.channels["memory"].wait_until(lambda _: len(engine.sent("memory", "ada")) > 1)
        assert "Another account of yours, in other" in engine.sent("memory", "ada")[-1]
        assert await engine.person("other:77") == "memory:ada"
        assert await engine.person("memory:ada") == "memory:ada"
        assert await engine.person("other:78") == "other:78"
        listed = await engine.ask("memory:ada", "/link")
        assert "1. `other:77`\n" in f"{listed}\n"
        assert "1. `other:77` (this account)" in await engine.ask("other:77", "/link")
    async with two(tmp_path) as engine:
        assert await engine.person("other:77") == "memory:ada"


async def test_memory_and_what_was_said_are_shared_both_ways_and_no_longer_after_unlink(tmp_path):
    model = ScriptedModel(script=remembering)
    async with two(tmp_path, model=model) as engine:
        await engine.ask("other:77", "my turtle is called Zeno")
        await engine.ask("memory:ada", "keep The boat is red")
        await engine.ask("memory:ada", "my parrot is called Plato")
        assert "Zeno" not in await engine.ask("memory:ada", "find turtle")
        await engine.link("other:77", "memory:ada")
        assert "Zeno" in await engine.ask("memory:ada", "find turtle")
        assert "Plato" in await engine.ask("other:77", "find parrot")
        assert "boat is red" in model.requests[-1].system
        assert "boat is red" in await engine.ask("other:77", "/memory show MEMORY.md")
        assert "Accounts that are on their own again: 1" in await engine.ask("other:77", "/unlink")
        assert await engine.person("other:77") == "other:77"
        assert "Plato" not in await engine.ask("other:77", "find parrot")
        assert "boat" not in model.requests[-1].system
        assert "Zeno" in await engine.ask("other:77", "find turtle")
        await engine.ask("other:77", "my fish is called Kant")
        assert "Kant" not in await engine.ask("memory:ada", "find fish")


async def test_one_conversation_where_that_is_the_scope_and_own_ones_elsewhere(tmp_path):
    async with two(tmp_path, session={"dm_scope": "per-peer"}) as engine:
        await engine.ask("memory:ada", "first")
        await engine.link("other:77", "memory:ada")
        await engine.ask("other:77", "second")
        assert [m.text for m in engine.model.requests[-1].messages][0::2] == ["first", "second"]
        await engine.ask("other:77", "/unlink")
        await engine.ask("other:77", "third")
        assert [m.text for m in engine.model.requests[-1].messages] == ["third"]
    async with two(tmp_path / "other") as engine:
        await engine.ask("memory:ada", "first")
        await engine.ask("other:77", "before")
        await engine.link("other:77", "memory:ada")
        await engine.ask("other:77", "linked")
        assert [m.text for m in engine.model.requests[-1].messages] == ["linked"]
        await engine.ask("other:77", "/unlink")
        await engine.ask("other:77", "after")
        texts = [m.text for m in engine.model.requests[-1].messages]
        assert texts[0::2] == ["before", "after"]


@pytest.mark.parametrize("scope", ["main", "per-peer"])
async def test_a_conversation_of_several_accounts_is_saved_for_the_person_it_is(tmp_path, scope):
    brain = Brain(flush=brains.writing("The boat is called Orinoco"))
    sections: dict[str, Any] = {"session": {"dm_scope": scope}, "context": SAVING}
    async with two(tmp_path, model=brain, **sections) as engine:
        await engine.link("other:77", "memory:ada")
        await engine.ask("memory:ada", "my boat is called Orinoco")
        await engine.ask("other:77", "it is red")
        await engine.ask("other:77", "/new")
        await settled()
        assert len(brain.asked("flush")) > 0
        assert "Orinoco" in await engine.ask("memory:ada", "/memory search Orinoco")
        assert "Orinoco" in await engine.ask("other:77", "/memory search Orinoco")
        # Somebody else, whose account in the first app is called as the second is in its own.
        assert "Orinoco" not in await engine.ask("memory:77", "/memory search Orinoco")


@pytest.mark.parametrize("other", ["other:ada", "other:77"])
async def test_a_conversation_of_several_people_is_saved_for_none_of_them(tmp_path, other):
    brain = Brain(flush=brains.writing("The boat is called Orinoco"))
    sections: dict[str, Any] = {"session": {"dm_scope": "main"}, "context": SAVING}
    async with two(tmp_path, model=brain, **sections) as engine:
        await engine.ask("memory:ada", "my boat is called Orinoco")
        await engine.ask(other, "hello")
        await engine.ask(other, "/new")
        await settled()
        assert brain.asked("flush") == []
        assert "Orinoco" not in await engine.ask(other, "/memory search Orinoco")


async def test_whatever_is_wrong_with_a_code_is_said_in_the_same_words(tmp_path):
    async with two(tmp_path) as engine:
        code = await engine.code("memory:ada")
        for typed in ("ABCDEFGH", code[:-1], f"{code}2", "x" * 4_000, "\u202e", "%"):
            assert await engine.ask(f"other:{len(typed)}", f"/link {typed}") == WRONG
        assert await engine.ask("memory:ada", f"/link {code}") == WRONG
        engine.clock.advance(minutes=11)
        assert await engine.ask("other:77", f"/link {code}") == WRONG
        code = await engine.code("memory:ada")
        assert await engine.ask("other:77", f"/link {code.lower()}") != WRONG
        assert await engine.ask("other:88", f"/link {code}") == WRONG


async def test_tries_are_limited_and_nobody_can_tell(tmp_path):
    async with two(tmp_path) as engine:
        for _ in range(5):
            assert await engine.ask("other:eve", "/link ABCDEFGH") == WRONG
        code = await engine.code("memory:ada")
        assert await engine.ask("other:eve", f"/link {code}") == WRONG
        assert await engine.ask("other:77", f"/link {code}") != WRONG


async def test_a_right_code_is_a_try_too(tmp_path):
    async with two(tmp_path) as engine:
        for _ in range(4):
            assert await engine.ask("other:77", "/link ABCDEFGH") == WRONG
        assert await engine.link("other:77", "memory:ada") != WRONG
        await engine.ask("other:77", "/unlink")
        assert await engine.link("other:77", "memory:ada") == WRONG


async def test_only_direct_chats_take_or_give_codes(tmp_path):
    channels = {name: {"group_policy": "open"} for name in ("memory", "other")}
    async with two(tmp_path, channels=channels) as engine:
        den = {"chat": "den", "chat_type": "group"}
        code = await engine.code("memory:ada")
        for command in ("/link", f"/link {code}", "/unlink", "/unlink all"):
            assert "direct chat" in await engine.ask("other:77", command, **den)
        assert await engine.person("other:77") == "other:77"


IN_ROOM = "A code was typed here, where others can read it"


@pytest.mark.parametrize("spoken", ["/link {}", "it is {} I think", "`{}`", "是{}吗"])
@pytest.mark.parametrize("addressed", [True, False])
async def test_a_code_that_is_typed_in_a_room_is_void_at_once_and_that_is_said(
    tmp_path, spoken, addressed
):
    channels = {name: {"group_policy": "open"} for name in ("memory", "other")}
    async with two(tmp_path, channels=channels) as engine:
        code = await engine.code("memory:ada")
        den = {"chat": "den", "chat_type": "group", "mentions_bot": addressed}
        answer = await engine.ask("other:77", spoken.format(code.lower()), **den)
        assert answer.startswith(IN_ROOM)
        await engine.channels["memory"].wait_until(lambda _: len(engine.sent("memory", "ada")) > 1)
        assert "was typed in a room of other" in engine.sent("memory", "ada")[1]
        assert await engine.ask("other:77", f"/link {code}") == WRONG
        assert await engine.ask("other:eve", f"/link {code}") == WRONG
        assert await engine.person("other:77") == "other:77"
        # A new one is as good as ever, and the old one in a room does nothing any more.
        again = await engine.code("memory:ada")
        await engine.say("other:77", code, **den)
        assert await engine.ask("other:77", f"/link {again}") != WRONG
        assert sum(said.startswith(IN_ROOM) for said in engine.sent("other", "den")) == 1


@pytest.mark.parametrize(
    "config", [{"group_policy": "allowlist"}, {"group_policy": "disabled"}, {}]
)
async def test_where_the_bot_may_not_talk_a_code_is_void_all_the_same(tmp_path, config):
    async with two(tmp_path, channels={"other": config}) as engine:
        code = await engine.code("memory:ada")
        await engine.say("other:77", code, chat="den", chat_type="group")
        await engine.channels["memory"].wait_until(lambda _: len(engine.sent("memory", "ada")) > 1)
        assert "was typed in a room" in engine.sent("memory", "ada")[1]
        assert await engine.ask("other:77", f"/link {code}") == WRONG
        assert engine.sent("other", "den") == []


async def test_ordinary_words_in_a_room_void_nothing_and_are_not_written_down(tmp_path):
    channels = {"other": {"group_policy": "open"}}
    async with two(tmp_path, channels=channels) as engine:
        code = await engine.code("memory:ada")
        for words in ("STANDARD umbrella", f"x{code}", f"{code}9", code[:-1], "ABCDEFGH"):
            await engine.say("other:77", words, chat="den", chat_type="group")
        assert await engine.ask("other:77", f"/link {code}") != WRONG
        assert engine.sent("other", "den") == []


async def test_linked_to_the_owner_is_the_owner_and_the_owners_accounts_join_nobody(tmp_path):
    async with two(tmp_path, session={"owner": ["memory:boss"]}) as engine:
        (tmp_path / "workspace" / "MEMORY.md").write_text("- The boat is red\n")
        code = await engine.code("other:eve")
        assert "stands in my configuration" in await engine.ask("memory:boss", f"/link {code}")
        assert await engine.person("memory:boss") == "my owner"
        await engine.link("other:77", "memory:boss")
        assert await engine.person("other:77") == "my owner"
        assert "boat is red" in await engine.ask("other:77", "/memory show MEMORY.md")
    session = {"owner": ["memory:boss"], "identity_links": {"bob": ["other:77"]}}
    async with two(tmp_path, session=session) as engine:  # the configuration has the last word
        assert await engine.person("other:77") == "bob"


async def test_a_link_lets_nobody_in(tmp_path):
    channels = {"other": {"dm_policy": "allowlist", "allow_from": ["77"]}}
    session = {"owner": ["memory:boss"]}
    async with two(tmp_path, channels=channels, session=session) as engine:
        code = await engine.code("memory:boss")
        await engine.say("other:eve", f"/link {code}")
        assert "same person" in await engine.ask("other:77", f"/link {code}")
        assert engine.sent("other", "eve") == []
    async with two(tmp_path, session=session, channels={"other": {"dm_policy": "disabled"}}) as e:
        await e.say("other:77", "am I still the owner?")
        assert await e.ask("memory:ada", "hi") == "You said: hi"
        assert e.channels["other"].sent == []


async def test_with_several_accounts_one_says_which_is_to_go(tmp_path):
    async with two(tmp_path) as engine:
        assert "No account" in await engine.ask("memory:ada", "/unlink")
        for there in ("other:1", "other:2", "other:3"):
            await engine.link(there, "memory:ada")
            await engine.channels["memory"].wait_until(lambda _: True)
        assert "Which one" in await engine.ask("memory:ada", "/unlink")
        for wish in ("0", "4", "x", "-1", "²", "1" * 5_000):
            assert "Which one" in await engine.ask("memory:ada", f"/unlink {wish}")
        before = len(engine.sent("other", "2"))
        assert ": 1." in await engine.ask("memory:ada", "/unlink 2")
        await engine.channels["other"].wait_until(lambda _: len(engine.sent("other", "2")) > before)
        assert "on its own again" in engine.sent("other", "2")[-1]
        assert await engine.person("other:2") == "other:2"
        assert await engine.person("other:3") == "memory:ada"
        assert ": 2." in await engine.ask("other:3", "/unlink all")
        assert await engine.person("other:3") == "other:3"


async def test_who_was_joined_takes_along_whom_they_had_joined(tmp_path):
    async with two(tmp_path) as engine:
        await engine.link("other:2", "other:1")
        await engine.link("other:1", "memory:ada")
        assert await engine.person("other:2") == "memory:ada"
        assert await engine.ask("memory:ada", f"/link {await engine.code('other:2')}") == WRONG


async def test_what_waits_while_accounts_are_joined_is_answered_in_the_new_conversation(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with two(tmp_path, model=model) as engine:
        await engine.say("other:77", "one")
        await engine.say("other:77", "two")
        await model.started.wait()
        code = await engine.code("memory:ada")
        await engine.ask("other:77", f"/link {code}")
        model.gate.set()
        await engine.channels["other"].wait_until(
            lambda _: {"You said: one", "You said: two"} <= set(engine.sent("other", "77"))
        )
        assert [m.text for m in model.requests[-1].messages] == ["two"]


async def test_no_code_is_in_a_log(tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    async with two(tmp_path) as engine:
        code = await engine.code("memory:ada")
        await engine.ask("other:eve", f"/link {code}X")
        await engine.ask("other:77", f"/link {code}")
        void = await engine.code("memory:ada")
        await engine.say("other:77", void, chat="den", chat_type="group")
    out = capsys.readouterr()
    assert code not in out.out + out.err + caplog.text
    assert void not in out.out + out.err + caplog.text
    assert "code.void" in out.out + out.err + caplog.text


@pytest.mark.parametrize("times", [3])
async def test_a_code_typed_by_several_at_once_joins_one(tmp_path, times):
    async with two(tmp_path) as engine:
        code = await engine.code("memory:ada")
        answers = await asyncio.gather(
            *(engine.ask(f"other:{number}", f"/link {code}") for number in range(times))
        )
        assert sum(answer != WRONG for answer in answers) == 1


async def test_whoever_asks_in_vain_for_what_they_said_elsewhere_hears_of_link(tmp_path):
    async with two(tmp_path, model=ScriptedModel(script=remembering)) as engine:
        await engine.ask("memory:ada", "my parrot is called Plato")
        answer = await engine.ask("other:77", "find parrot, as I told you in memory")
        assert "Plato" not in answer
        assert "/link gives a code" in answer
        assert "/link gives a code" not in await engine.ask("other:77", "find it in memory")
        await engine.link("other:77", "memory:ada")
        answer = await engine.ask("other:77", "find parrot, as I told you in memory")
        assert "Plato" in answer
        assert "/link gives a code" not in answer
