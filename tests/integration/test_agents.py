"""Several agents in one program: each room has the persona, the model and the tools of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.agent.models import Request
from bot.errors import ModelUnreachable
from bot.testing import ScriptedModel
from tests.support import make_config, running, write_file

ROOMS = {"memory": {"group_policy": "open", "require_mention": False}}
COOK = {
    "name": "Coco",
    "model": "small",
    "fallback": ["spare"],
    "tools": ["memory_*"],
    "bind": [{"channel": "memory", "chat": "kitchen"}],
}
FAMILY = {"name": "Fam", "bind": [{"sender": "ada"}, {"chat": "den", "thread": "7"}]}
KITCHEN = {"chat": "kitchen", "chat_type": "group"}
DEN = {"chat": "den", "chat_type": "group"}


def sections(**agents: Any) -> dict[str, Any]:
    return {"channels": ROOMS, "agents": agents or {"cook": COOK, "family": FAMILY}}


@asynccontextmanager
async def talking(folder: Path, **changes: Any):
    """An engine with two agents beside the usual one."""
    write_file(folder / "workspace" / "SOUL.md", "You are everybody's.")
    write_file(folder / "workspace" / "agents" / "cook" / "SOUL.md", "You love soup.")
    async with running(folder, **{**sections(), **changes}) as engine:
        yield engine


def said(request: Request) -> list[str]:
    return [message.text for message in request.messages]


async def test_each_room_has_the_persona_the_model_and_the_tools_of_its_agent(tmp_path):
    count = 0
    async with talking(tmp_path) as engine:
        for where in (KITCHEN, DEN, {**DEN, "thread": "7"}, {"chat": "eve"}, {"chat": "ada"}):
            chat = where["chat"]
            sender = chat if "chat_type" not in where else "bob"
            await engine.say("hello", **{**where, "sender": sender})
            count += 1
            await engine.channel.wait_sent(count)
        cook, den, topic, eve, ada = engine.model.requests
    assert cook.model == "small"
    assert {each.model for each in (den, topic, eve, ada)} == {"claude-sonnet-5-5"}
    assert "You are Coco," in cook.system
    assert "You love soup." in cook.system
    assert "everybody's" not in cook.system
    for each in (topic, ada):
        assert "You are Fam," in each.system
    for each in (den, eve):
        assert "You are Confidant," in each.system
    assert all("You are everybody's." in each.system for each in (den, topic, eve, ada))
    assert all(tool.name.startswith("memory_") for tool in cook.tools)
    assert any(not tool.name.startswith("memory_") for tool in ada.tools)


async def test_a_conversation_belongs_to_its_agent_and_goes_on_after_a_restart(tmp_path):
    async with talking(tmp_path) as engine:
        await engine.ask("soup", sender="kitchen", chat_type="group")
    async with talking(tmp_path) as engine:
        await engine.ask("salt", sender="kitchen", chat_type="group")
        assert said(engine.model.requests[-1])[0] == "soup"
        assert "New conversation" in await engine.ask("/new", sender="kitchen", chat_type="group")
        await engine.ask("bread", sender="kitchen", chat_type="group")
        assert said(engine.model.requests[-1]) == ["bread"]
        assert engine.model.requests[-1].model == "small"
        listed = await engine.ask("/model", sender="kitchen", chat_type="group")
        assert "anthropic/small" in listed.partition("\n")[0]


async def test_another_agent_begins_afresh_and_the_old_conversation_stays(tmp_path):
    async with talking(tmp_path) as engine:
        await engine.ask("soup", sender="kitchen", chat_type="group")
    elsewhere = {"cook": COOK | {"bind": [{"chat": "attic"}]}}
    async with talking(tmp_path, **sections(**elsewhere)) as engine:
        await engine.ask("hello", sender="kitchen", chat_type="group")
        assert said(engine.model.requests[-1]) == ["hello"]
        assert engine.model.requests[-1].model == "claude-sonnet-5-5"
    async with talking(tmp_path) as engine:
        await engine.ask("salt", sender="kitchen", chat_type="group")
        assert said(engine.model.requests[-1])[0] == "soup"


async def test_a_room_keeps_when_it_is_answered_whichever_agent_answers(tmp_path):
    rooms = {"memory": {"group_policy": "open"}}
    owner = {"owner": ("memory:ada",)}
    async with talking(tmp_path, channels=rooms, session=owner) as engine:
        await engine.say("/activation always", **DEN, mentions_bot=True)
        await engine.channel.wait_sent(1)
    bound = {"cook": COOK | {"bind": [{"chat": "den"}]}}
    changed = sections(**bound) | {"channels": rooms, "session": owner}
    async with talking(tmp_path, **changed) as engine:
        await engine.say("hello", **DEN, sender="bob")
        await engine.channel.wait_sent(1)
        assert engine.model.requests[-1].model == "small"


async def test_an_agents_own_fallback_stands_in_for_its_model(tmp_path):
    def script(request: Request) -> str:
        if request.model == "small":
            raise ModelUnreachable
        return f"by {request.model}"

    async with talking(tmp_path, model=ScriptedModel(script)) as engine:
        answer = await engine.ask("hello", sender="kitchen", chat_type="group")
        assert "by spare" in answer
        assert await engine.ask("hello", sender="eve") == "by claude-sonnet-5-5"


async def test_agents_change_while_the_program_runs(tmp_path):
    async with talking(tmp_path) as engine:
        await engine.ask("soup", sender="kitchen", chat_type="group")
        config, _ = make_config(tmp_path, **sections(cook=COOK | {"model": "large"}))
        await engine.app.adopt(config)
        await engine.ask("salt", sender="kitchen", chat_type="group")
        assert engine.model.requests[-1].model == "large"
        assert said(engine.model.requests[-1])[0] == "soup"
