"""Several agents in one program: each room has the persona, the model and the tools of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Request
from bot.channel import Address
from bot.errors import ModelUnreachable
from bot.identity import MessageOrigin
from bot.identity.routing import agent_of
from bot.identity.view import folder_name, talk_of
from bot.memory.note_store import FolderNotes
from bot.memory.notes import SpaceFiles
from bot.memory.transcripts import TranscriptFeed
from bot.portability import person
from bot.sessions import repeats
from bot.sessions.browsing import find, keys_of
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel
from tests.integration.test_archive import invoke
from tests.integration.test_night import AFTER, NIGHT, NOTES, held, look, put, receipts
from tests.integration.test_tasks import due, ran
from tests.support import NOON, FakeClock, make_config, running, until, write_file

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


# --- memory of an agent's own -------------------------------------------------------------------

SECRET = "cornflower"  # said to the main agent, or in its notes
OWN = "marigold"  # the same of the agent with memory of its own
ADA = "agent:main:memory:dm:ada"


def shown(request: Request) -> str:
    """Everything a model was shown."""
    return request.system + repr(request.messages)


def knows(where: Path, word: str) -> None:
    for name in ("MEMORY.md", "memory/garden.md"):
        write_file(where / name, f"# Garden\n\n- The garden flower of the year is {word}.\n")


@asynccontextmanager
async def apart(folder: Path, **changes: Any):
    """An engine whose owner, and Eve, talk to the main agent and to one with its own memory."""
    workspace = folder / "workspace"
    knows(workspace, SECRET)
    knows(workspace / "agents" / "family", OWN)
    eve = f"people/{folder_name('memory:eve')}"
    knows(workspace / eve, "eve-main")
    knows(workspace / "agents" / "family" / eve, "eve-own")
    bind = [{"sender": "ada", "thread": "f"}, {"sender": "eve", "thread": "f"}]
    agents = {"family": {"memory": "own", "bind": bind}}
    owner = {"owner": ("memory:ada",)}
    async with running(folder, **{**sections(**agents), "session": owner, **changes}) as engine:
        await until(lambda: engine.app.agent.memory.index.generation != "")
        await engine.app.agent.memory.index.sync("test")
        yield engine


ASKED = "What is the garden flower of the year?"


async def test_no_agent_is_shown_the_memory_of_another(tmp_path):
    seen: dict[tuple[str, str], str] = {}
    async with apart(tmp_path) as engine:
        for sender in ("ada", "eve"):
            for thread in ("", "f"):
                await engine.ask(
                    f"{sender} tells {thread or 'main'}: tulip{thread}", **at(sender, thread)
                )
                await engine.ask_each("/new", ASKED, **at(sender, thread))
                seen[sender, thread] = shown(engine.model.requests[-1])
    words = (SECRET, OWN, "eve-main", "eve-own")
    found = {place: [word for word in words if word in text] for place, text in seen.items()}
    assert found == {
        ("ada", ""): [SECRET],
        ("ada", "f"): [OWN],
        ("eve", ""): ["eve-main"],
        ("eve", "f"): ["eve-own"],
    }


def at(sender: str, thread: str) -> dict[str, str]:
    return {"sender": sender, "thread": thread}


async def test_what_was_said_to_one_agent_is_not_found_by_another(tmp_path):
    async with apart(tmp_path) as engine:
        core, memory = engine.app.core, engine.app.agent.memory
        await engine.ask("my locker code is heron", sender="ada")
        await engine.ask("my locker code is egret", **at("ada", "f"))
        feed = TranscriptFeed(core.database, memory.index, core.settings, core.clock)
        await feed.look()
        for thread, own in (("", "heron"), ("f", "egret")):
            origin = MessageOrigin("memory", "default", "ada", "direct", "ada", thread)
            view = core.resolver.of(origin).view
            hits = await core.database.read(lambda tx, v=view: find(tx, v, "locker code", 9))
            assert hits
            assert all(own in hit.text for hit in hits)
            keys = await core.database.read(lambda tx, v=view: keys_of(tx, v))
            assert [agent_of(key) for key in keys] == ["family" if thread else "main"]
            by_meaning = await memory.index.search("locker code", view.partitions, 9)
            said = [hit.snippet for hit in by_meaning.hits if "locker" in hit.snippet]
            assert said
            assert all(own in each for each in said)


async def test_an_export_and_an_erasure_reach_the_memory_of_every_agent(tmp_path):
    async with apart(tmp_path) as engine:
        await engine.ask("hello", **at("eve", "f"))
    config, _ = make_config(tmp_path)  # the agent is not even configured any more
    space = f"people/{folder_name('memory:eve')}"
    lost = tmp_path / "workspace" / "agents" / "gone" / space
    knows(lost, "eve-gone")
    (tmp_path / "workspace" / "agents" / ".trash").mkdir()  # nobody's
    async with await SqliteDatabase.open(tmp_path / "confidant.db") as database:
        whose = await database.read(lambda tx: person.find(tx, config, "memory:eve"))
        views = {view.space for view in whose.views}
        assert views >= {space, f"agents/family/{space}", f"agents/gone/{space}"}
        plan = await database.read(lambda tx: person.plan_of(tx, whose, NOON))
    with person.exporting(tmp_path / "eve.zip", NOON) as export:
        assert await export.notes(whose, SpaceFiles(FolderNotes(config.workspace))) == 6
    assert {talk_of("family", "memory:eve"), f"agents/family/{space}#private"} < {*plan.partitions}
    await person.erase(config, plan, lambda: NOON, lambda _: None)
    left = [path for path in (tmp_path / "workspace").rglob("*.md") if "eve-" in path.read_text()]
    assert left == []
    assert SECRET in (tmp_path / "workspace" / "MEMORY.md").read_text()


async def test_a_task_is_not_carried_out_with_the_memory_of_another_agent(tmp_path):
    task = "/task every day at 15:00 what is the garden flower of the year?"
    async with apart(tmp_path) as engine:
        await engine.ask_each("hello", task, sender="ada")
    moved = {"family": {"memory": "own", "bind": [{"sender": "ada"}]}}
    async with apart(tmp_path, agents=moved) as engine:
        await due(engine, hours=4)
        await ran(engine)
        assert engine.model.requests == []
        read = engine.app.core.database.read
        (made,) = await read(lambda tx: repeats.of_key(tx, ADA))
        (run,) = await read(lambda tx: repeats.runs(tx, made, 9))
        assert "another agent" in run.error
    async with apart(tmp_path) as engine:  # when the rule is gone it goes on
        await due(engine, hours=28)
        await engine.channel.wait_until(lambda _: engine.sent_to("ada"))
        assert SECRET in shown(engine.model.requests[-1])


async def test_a_page_of_theirs_hears_what_any_agent_was_asked_to_forget(tmp_path, monkeypatch):
    heard: list[tuple[bool, bool]] = []

    async def forgotten(is_about: Callable[[Address], bool]) -> None:
        ada, eve = (is_about(Address("memory", "default", name)) for name in ("ada", "eve"))
        heard.append((ada, eve))

    async with apart(tmp_path) as engine:
        monkeypatch.setattr(engine.channel, "forgotten", forgotten)
        await engine.ask_each(f"/memory forget {OWN}", "/memory forget yes", **at("ada", "f"))
        await until(lambda: bool(heard))
    assert set(heard) == {(True, False)}
    kept = (tmp_path / "workspace" / "agents" / "family" / "MEMORY.md").read_text()
    assert OWN not in kept


OF_FAMILY = "agents/family"


async def test_at_night_each_memory_of_a_person_is_tidied_and_undone_by_itself(tmp_path):
    clock = FakeClock(NIGHT)
    async with apart(tmp_path, clock=clock) as engine:
        for space in ("", OF_FAMILY):
            put(tmp_path, NOTES, space)
        await engine.ask("hello")
        await engine.ask("hello", **at("ada", "f"))
        await look(engine)
        assert held(tmp_path) == held(tmp_path, OF_FAMILY) == AFTER
        clock.advance(hours=5)
        await engine.app.maintenance.nights.look()
        await until(lambda: len(receipts(engine)) == 2)
        assert "3 entries" in await engine.ask("/undo night", **at("ada", "f"))
        assert held(tmp_path, OF_FAMILY) == NOTES
        assert held(tmp_path) == AFTER


@pytest.mark.usefixtures("logs_stay")
async def test_what_was_forgotten_with_one_agent_stays_so_after_a_restore(tmp_path):
    home, target = tmp_path / "home", tmp_path / "x.backup"
    eve = f"people/{folder_name('memory:eve')}/memory/trip.md"
    notes = [home / "workspace" / space / eve for space in ("", OF_FAMILY)]
    for note in notes:
        write_file(note, "- the word is heron\n- the boat is blue\n")
    async with apart(home) as engine:
        for thread in ("", "f"):
            await engine.ask("my secret is heron", **at("eve", thread))
    made = await asyncio.to_thread(invoke, home, "backup", str(target))
    assert made.exit_code == 0, made.exception
    async with apart(home) as engine:
        await engine.ask("/memory forget heron", **at("eve", "f"))
        assert "Forgotten" in await engine.ask("/memory forget yes", **at("eve", "f"))
    done = await asyncio.to_thread(invoke, home, "restore", str(target))
    assert done.exit_code == 0, done.exception
    assert [note.read_text() for note in notes] == [
        "- the word is heron\n- the boat is blue\n",
        "- the boat is blue\n",
    ]
    async with apart(home) as engine:
        for thread in ("", "f"):
            await engine.ask("what do you know?", **at("eve", thread))
            assert ("heron" in shown(engine.model.requests[-1])) == (thread == "")


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
