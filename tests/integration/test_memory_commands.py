"""`/memory`, `/whosees` and `GET /api/memory/search`: what is remembered, shown and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from bot.agent.models import Request
from bot.app import App, Parts
from bot.cli.common import reading, writing
from bot.clock import system_clock
from bot.config import MemoryConfig, Settings
from bot.errors import ModelOverloaded
from bot.identity.view import folder_name
from bot.memory import chunking, embed
from bot.memory.index import MemoryIndex
from bot.memory.index.cache import digest
from bot.memory.index.service import CACHE, leave_folder
from bot.memory.memory import OWNER_VIEW, Memory
from bot.memory.note_store import FolderNotes
from bot.messages import Text, ToolResult
from bot.sessions import entries
from bot.storage import Transaction
from bot.testing import HashEmbedder, InMemoryChannel, ScriptedModel, calls
from tests.fakes import brain as brains
from tests.fakes.brain import Brain, settled
from tests.integration.test_cli import confidant
from tests.support import Engine, FakeClock, make_config, running, settings_of, until, write_file

ADA, EVE = (f"people/{folder_name(f'memory:{name}')}" for name in ("ada", "eve"))
TODAY = "memory/2026-11-21.md"
PEANUTS = "The daughter is allergic to peanuts"
TOKEN = "correct-horse-battery-staple"


def write(folder: Path, name: str, text: str) -> Path:
    return write_file(folder / "workspace" / name, text)


def furnish(folder: Path) -> None:
    write(folder, f"{ADA}/MEMORY.md", f"# MEMORY\n\n- {PEANUTS}\n- Lives in Lyon\n")
    write(folder, f"{ADA}/memory/family.md", f"# family\n\n- {PEANUTS}, since 2019\n")
    write(folder, f"{EVE}/MEMORY.md", "- Eve is allergic to peanuts too\n")
    write(folder, "MEMORY.md", "- The owner is allergic to peanuts as well\n")
    write(folder, "shared/kitchen.md", "- The kitchen keeps peanuts apart\n")


def searching(tool: str, query: str) -> ScriptedModel:
    """A model that searches for `query` and says what it found."""

    def script(request: Request) -> Any:
        for block in request.messages[-1].blocks:
            if isinstance(block, ToolResult):
                return block.text
        return calls(tool, query=query)

    return ScriptedModel(script=script)


async def index(folder: Path, **sections: Any) -> None:
    """Let the index know every file before the program starts."""
    config, _ = make_config(folder, **sections)
    memory = Memory.from_settings(Settings(config), FakeClock())
    await memory.open()
    await memory.index.sync("test")
    await memory.close()


@asynccontextmanager
async def started(folder: Path, **sections: Any) -> AsyncIterator[Engine]:
    """A running engine that knows every file."""
    await index(folder)
    async with running(folder, **sections) as engine:
        yield engine


@asynccontextmanager
async def page(
    folder: Path, memory: Mapping[str, Any] | None = None, **dashboard: Any
) -> AsyncIterator[str]:
    """A whole program with its HTTP interface; its address."""
    await index(folder)
    config, plugins = make_config(
        folder, dashboard={"port": 0, **dashboard}, memory=dict(memory or {})
    )
    channels = {"memory": InMemoryChannel()}
    parts = Parts(clock=FakeClock(), remote=ScriptedModel(), channels=channels, dashboard=True)
    async with App(config, plugins, parts) as app:
        assert app.address is not None
        yield f"{app.address.url}api/memory/search"


# --- /memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locale", "command", "told"),
    [
        (
            "en",
            "/memory",
            (
                "Memory: 3 files, ",
                "Search by words: on",
                "Search by meaning: off (memory.embedder is off in the configuration)",
                "Nothing has been saved from a conversation yet",
            ),
        ),
        ("en", "/memory status", ("Memory: 3 files, ", "Search by words: on")),
        (
            "zh",
            "/memory",
            (
                "记忆：3 个文件，",
                "按词语查找：开",
                "按意思查找：关（配置里关闭了 memory.embedder）",
            ),
        ),
    ],
)
async def test_status_tells_how_memory_is_doing(tmp_path, locale, command, told):
    furnish(tmp_path)
    async with started(tmp_path) as engine:
        answer = await engine.ask(command, locale=locale)
        assert [part for part in told if part not in answer] == []


async def test_memory_begins_with_the_newest_of_what_is_remembered(tmp_path):
    furnish(tmp_path)
    async with started(tmp_path) as engine:
        boats = "".join(f"- 1{n}:00 boat {n} <!-- owner -->\n" for n in range(7))
        write(tmp_path, f"{ADA}/{TODAY}", boats)
        told = await engine.ask("/memory")
        assert told.startswith("The newest of ")
        assert "- “boat 6” · You said it today\n- “boat 5” ·" in told
        assert "boat 1" not in told
        assert "boat" not in await engine.ask("/memory status")
        assert "boat" not in await engine.ask("/memory", sender="eve")
        zh = await engine.ask("/memory", locale="zh")
        assert "- “boat 6” · 你今天说的" in zh


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ({}, ("words: on", "meaning: on (hash)")),
        ({"text_weight": 0}, ("words: off (its weight is 0", "meaning: on")),
        ({"vector_weight": 0}, ("words: on", "meaning: off (its weight is 0")),
    ],
)
async def test_memory_says_of_words_and_of_meaning_whether_they_work_and_why_not(
    tmp_path, memory, told, monkeypatch
):
    furnish(tmp_path)
    monkeypatch.setattr("bot.memory.memory.embed.make", lambda *_given: HashEmbedder())
    sections = {"memory": {"embedder": {"provider": "multilingual"}, **memory}}
    await index(tmp_path, **sections)
    async with running(tmp_path, **sections) as engine:
        answer = await engine.ask("/memory")
        assert [part for part in told if part not in answer] == []


async def test_memory_and_status_tell_of_the_last_save_and_of_no_other_persons(tmp_path):
    brain = Brain(flush=brains.writing("The boat is called Orinoco"))
    context = {"enable_memory_flush": True}
    async with running(tmp_path, model=brain, context=context) as engine:
        await engine.ask("my boat is called Orinoco")
        assert "Nothing has been saved from a conversation yet" in await engine.ask("/status")
        await engine.ask("/new")
        await until(lambda: "Saved to memory (1): memory" in str(engine.sent_to("ada")))
        told = f"Last saved from a conversation: today at 12:00, {TODAY}:"
        assert told in await engine.ask("/memory")
        assert told in await engine.ask("/status")
        assert told not in await engine.ask("/status", sender="eve")
        assert told not in await engine.ask("/memory", sender="eve")


async def test_the_last_save_is_told_in_the_persons_own_time(tmp_path):
    brain = Brain(flush=brains.writing("The boat is called Orinoco"))
    changes = {
        "context": {"enable_memory_flush": True},
        "session": {"timezones": {"memory:ada": "Asia/Tokyo"}},
        "agent": {"timezone": ""},
    }
    async with running(tmp_path, model=brain, **changes) as engine:
        await engine.ask_each("my boat is called Orinoco", "/new")
        await until(lambda: "Saved to memory (1): memory" in str(engine.sent_to("ada")))
        told = "Last saved from a conversation: today at 21:00, "
        assert told in await engine.ask("/memory")
        assert told in await engine.ask("/status")


async def test_yesterday_is_that_of_whoever_asks(tmp_path):
    changes = {"agent": {"timezone": ""}, "session": {"timezones": {"memory:ada": "Asia/Tokyo"}}}
    async with running(tmp_path, **changes) as engine:
        for sender in ("ada", "eve"):
            folder = tmp_path / "workspace/people" / folder_name(f"memory:{sender}") / "memory"
            folder.mkdir(parents=True)
            for day in ("2026-11-20", "2026-11-21"):
                (folder / f"{day}.md").write_text(f"- The walk of the {day[-2:]}th\n")
        await engine.app.agent.memory.index.sync("test")
        engine.clock.advance(hours=8)  # 20:00 in Greenwich is the next morning in Tokyo
        for sender, day in (("ada", "21"), ("eve", "20")):
            answer = await engine.ask("/memory search walk yesterday", sender=sender)
            first = next(line for line in answer.splitlines() if "walk of the" in line)
            assert f"walk of the {day}th" in first


async def test_a_save_that_failed_is_not_told_of_as_one(tmp_path):
    brain = Brain(flush=ModelOverloaded())
    context = {"enable_memory_flush": True}
    async with running(tmp_path, model=brain, context=context) as engine:
        await engine.ask_each("my boat is called Orinoco", "/new")
        await until(lambda: bool(brain.asked("flush")))
        await settled()
        assert "Nothing has been saved from a conversation yet" in await engine.ask("/memory")


async def test_without_a_package_for_vectors_memory_is_searched_by_words_and_says_why(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(embed, "PACKAGE", "not_here")
    furnish(tmp_path)
    async with started(tmp_path, memory={"embedder": {"provider": "multilingual"}}) as engine:
        status = await engine.ask("/memory")
        assert "Search by meaning: off (the package not_here is not installed" in status
        assert "trouble" not in status
        assert "peanuts" in await engine.ask("/memory search peanuts")


@pytest.mark.parametrize(("options", "most"), [({}, 6), ({"max_results": 2}, 2)])
async def test_a_search_quotes_as_many_passages_as_configured(tmp_path, options, most):
    for number in range(9):
        write(tmp_path, f"{ADA}/memory/boat{number}.md", f"- The boat number {number} is blue\n")
        write(tmp_path, f"memory/boat{number}.md", f"- The boat number {number} is blue\n")
    model = searching("memory_search", "boat")
    async with started(tmp_path, model=model, memory=options) as engine:
        assert (await engine.ask("/memory search boat")).count("> ") == most
        assert (await engine.ask("What about the boat?")).count("is blue") == most
    async with (
        page(tmp_path, memory=options) as url,
        aiohttp.ClientSession() as client,
        client.get(f"{url}?q=boat") as answer,
    ):
        assert len((await answer.json())["results"]) == most


async def test_a_question_for_many_is_answered_with_more_and_a_program_with_as_many_as_it_names(
    tmp_path,
):
    for number in range(30):
        for folder in (f"{ADA}/memory", "memory"):
            write(tmp_path, f"{folder}/boat{number}.md", f"- The boat number {number} is blue\n")
    asked, options = "which boats are blue", {"max_results": 3}
    model = searching("memory_search", asked)
    async with started(tmp_path, model=model, memory=options) as engine:
        assert (await engine.ask(f"/memory search {asked}")).count("> ") == 6
        assert (await engine.ask("What about the boat?")).count("is blue") == 6
    async with page(tmp_path, memory=options) as url, aiohttp.ClientSession() as client:
        for more, most in (("", 6), ("&k=4", 4)):
            async with client.get(f"{url}?q={asked.replace(' ', '+')}{more}") as answer:
                assert len((await answer.json())["results"]) == most


async def test_status_tells_of_ones_own_troubled_files_and_of_no_others(tmp_path):
    write_file(tmp_path / "workspace" / ADA / "memory" / "odd.md", b"- caf\xe9 \xff\n")
    write(tmp_path, f"{EVE}/memory/odd.md", "- fine\n")
    async with started(tmp_path) as engine:
        assert "Problem: memory/odd.md: not UTF-8" in await engine.ask("/memory")
        assert "odd" not in await engine.ask("/memory", sender="eve")


@pytest.mark.parametrize("locale", ["en", "zh"])
async def test_search_tells_words_and_where_they_stand(tmp_path, locale):
    furnish(tmp_path)
    async with started(tmp_path) as engine:
        answer = await engine.ask("/memory search peanuts", locale=locale)
        assert "MEMORY.md:" in answer
        assert "memory/family.md:" in answer
        assert "shared/kitchen.md:" in answer
        assert f"> - {PEANUTS}" in answer
        assert "Eve" not in answer
        assert "owner" not in answer
        nothing = await engine.ask("/memory search zeppelin", locale=locale)
        assert ("I found nothing" if locale == "en" else "没有找到合适的内容") in nothing


async def test_what_search_names_can_be_shown(tmp_path):
    furnish(tmp_path)
    async with started(tmp_path) as engine:
        for name in ("MEMORY.md", "memory/family.md", "shared/kitchen.md"):
            shown = await engine.ask(f"/memory show {name}")
            assert shown.startswith("```markdown\n")
            assert "peanuts" in shown


async def test_every_other_name_is_refused_in_the_same_words(tmp_path):
    furnish(tmp_path)
    (tmp_path / "workspace" / ADA / "memory" / "link.md").symlink_to(
        tmp_path / "workspace" / "MEMORY.md"
    )
    async with started(tmp_path) as engine:
        missing = await engine.ask("/memory show memory/nowhere.md")
        assert missing.startswith("I couldn't do that")
        for name in (
            *("../MEMORY.md", f"{EVE}/MEMORY.md", f"../../{EVE}/MEMORY.md", "/etc/hosts.md"),
            *("USER.md", "memory/../MEMORY.md", "memory/link.md", "kitchen.md", "MEMORY.md/"),
        ):
            assert await engine.ask(f"/memory show {name}") == missing


async def test_search_tells_when_a_thing_was_said_and_shows_no_marks(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.memory.transcripts.EVERY_SECONDS", 0.01)
    write(tmp_path, f"{ADA}/USER.md", "# About me\n\n<!-- Who you are. -->\n")
    write(tmp_path, f"{ADA}/memory/trip.md", "- To Rome by train <!-- owner 2026-11-20 -->\n")
    write(tmp_path, f"{ADA}/memory/door.md", "- The code of Rome is 4711 <!-- untrusted -->\n")
    async with started(tmp_path) as engine:
        await engine.ask("Rome is where I was born")
        found = ""
        while "born" not in found:
            found = await engine.ask("/memory search Rome about me")
        assert "**said 2026-11-21 12:00** · matched by words: Rome" in found
        assert "> - To Rome by train\n" in found
        assert "(from an untrusted source) - The code of Rome" in found
        assert "<!--" not in found
        assert "USER.md" not in found  # it says nothing yet
        assert "<!--" not in await engine.ask("/whosees Rome by train")


async def test_what_was_only_asked_comes_after_what_answers(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.memory.transcripts.EVERY_SECONDS", 0.01)
    write(tmp_path, f"{ADA}/memory/moor.md", "- Once we saw a boat in Norway\n")
    async with started(tmp_path) as engine:
        for said in ("What is the boat called?", "Is our boat sound?", "The boat is called Ida."):
            await engine.ask(said)
        found = ""
        while not all(words in found for words in ("What is", "sound", "Ida", "Norway")):
            found = await engine.ask("/memory search boat")
        places = [found.index(words) for words in ("Ida", "Norway", "What is", "sound")]
        assert max(places[:2]) < min(places[2:])


async def test_what_was_said_again_in_the_same_words_is_shown_once(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.memory.transcripts.EVERY_SECONDS", 0.01)
    async with started(tmp_path) as engine:
        for _ in range(3):
            await engine.ask_each("Where is my green boat?", "My green boat lies in Kiel")
        await engine.ask("The green boat is sold")  # when this is found, all is in the index
        found = ""
        while "sold" not in found:
            found = await engine.ask("/memory search green boat")
        assert found.count("Where is my green boat") == 1
        assert found.count("lies in Kiel") == 1


async def test_a_refusal_is_in_the_persons_language(tmp_path):
    async with started(tmp_path) as engine:
        assert "/memory show PATH" in await engine.ask("/memory show")
        answer = await engine.ask("/memory show memory/nowhere.md", locale="zh")
        assert answer == "没能做到：这里没有你可以读取的同名文件。"


async def test_what_is_not_understood_is_explained(tmp_path):
    too_long = "/memory search " + "x" * 501
    async with started(tmp_path) as engine:
        for command in ("/memory bogus", "/memory search", "/memory forget", too_long):
            assert "/memory forget WORDS" in await engine.ask(command)
        assert "/whosees TEXT" in await engine.ask("/whosees")


async def test_a_conversation_without_memory_says_so(tmp_path):
    furnish(tmp_path)
    async with started(tmp_path, scope={"default": "deny", "rules": []}) as engine:
        for command in (
            *("/memory", "/memory search peanuts", "/memory show MEMORY.md"),
            *("/memory forget peanuts", "/memory forget yes", "/whosees peanuts"),
        ):
            assert "has no memory" in await engine.ask(command)


# --- /memory forget ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locale", "yes", "asks", "done"),
    [
        (
            "en",
            "yes",
            "I would remove:",
            ("Forgotten:", "MEMORY.md: 1 entry", "memory/family.md: 1 entry", "passages", "1 "),
        ),
        (
            "zh",
            "是",
            "我会删除：",
            ("已忘记：", "MEMORY.md：删除了 1 条", "memory/family.md：删除了 1 条", "段落", "1 "),
        ),
    ],
)
async def test_forgetting_asks_then_removes_everywhere_and_reports(
    tmp_path, locale, yes, asks, done
):
    furnish(tmp_path)
    words = "allergic to peanuts"
    async with started(tmp_path) as engine:
        await engine.ask("My daughter is allergic to peanuts, you know")
        question = await engine.ask(f"/memory forget {words}", locale=locale)
        assert asks in question
        assert "MEMORY.md:3 “- The daughter is allergic to peanuts”" in question
        assert "memory/family.md:3" in question
        assert "shared/" not in question
        mine = tmp_path / "workspace" / ADA
        assert PEANUTS in (mine / "MEMORY.md").read_text()  # nothing was done yet
        answer = await engine.ask(f"/memory forget {yes}", locale=locale)
        for part in done:
            assert part in answer
        assert (mine / "MEMORY.md").read_text() == "# MEMORY\n\n- Lives in Lyon\n"
        assert (mine / "memory/family.md").read_text() == "# family\n\n"
        await _is_gone(engine)
    async with started(tmp_path) as engine:  # and it stays so
        await _is_gone(engine)
    assert "Eve is allergic" in (tmp_path / "workspace" / EVE / "MEMORY.md").read_text()
    assert "as well" in (tmp_path / "workspace/MEMORY.md").read_text()
    assert "peanuts" in (tmp_path / "workspace/shared/kitchen.md").read_text()


def shown(request: Request) -> str:
    """Everything a model is given but its own calls."""
    blocks = (block for message in request.messages for block in message.blocks)
    return request.system + "".join(b.text for b in blocks if isinstance(b, (Text, ToolResult)))


async def _is_gone(engine: Engine) -> None:
    found = await engine.ask("/memory search allergic")
    assert PEANUTS not in found
    for tool in ("memory_search", "transcript_search"):
        engine.model.script = searching(tool, "allergic").script
        await engine.ask("/new")
        assert "allergic to peanuts" not in await engine.ask("what was it?")
        assert "allergic to peanuts" not in shown(engine.model.requests[-1])


async def test_what_is_forgotten_the_running_conversation_does_not_show_either(tmp_path):
    furnish(tmp_path)
    async with started(tmp_path) as engine:
        engine.model.script = searching("memory_search", "peanuts").script
        await engine.ask_each("What about lunch?", "My daughter is ALLERGIC  to peanuts, you know")
        before = transcript_of(tmp_path)
        assert "allergic to peanuts" in shown(engine.model.requests[-1])
        question = await engine.ask("/memory forget allergic to peanuts")
        assert "messages that showed it to me" in question
        assert "search results that I no longer see" in await engine.ask("/memory forget yes")
        assert transcript_of(tmp_path)[: len(before)] == before  # nothing that was said is lost
        assert "in none of your files" in await engine.ask("/memory forget allergic to peanuts")
        engine.model.script = lambda _: "Well."
        await engine.ask("And dinner?")
        await _does_not_show_it(engine)
    async with started(tmp_path) as engine:  # and it stays so
        await engine.ask("And dinner?")
        await _does_not_show_it(engine)
        await engine.ask_each("/new", "/undo", "And dinner?")
        await _does_not_show_it(engine)


async def _does_not_show_it(engine: Engine) -> None:
    request = engine.model.requests[-1]
    told = shown(request) + repr([b for m in request.messages for b in m.blocks])
    assert "allergic to peanuts" not in " ".join(told.casefold().split())
    assert "What about lunch?" in told  # only what held the words is gone
    assert entries.GONE in told


def transcript_of(folder: Path) -> list[str]:
    """Every line of every transcript."""
    files = sorted((folder / "sessions").rglob("*.jsonl"))
    return [line for file in files for line in file.read_text().splitlines()]


async def test_forgetting_leaves_no_file_out_however_many_places_there_are(tmp_path):
    for number in range(3):
        write(tmp_path, f"{ADA}/memory/{number}.md", f"- {PEANUTS}\n" * 150 + "- Likes tea\n")
    async with started(tmp_path) as engine:
        await engine.ask("/memory forget peanuts")
        answer = await engine.ask("/memory forget yes")
    for number in range(3):
        assert f"memory/{number}.md: 150 entries" in answer
        path = tmp_path / "workspace" / ADA / f"memory/{number}.md"
        assert path.read_text() == "- Likes tea\n"


async def test_a_reminder_that_holds_the_words_is_named_and_comes_no_more(tmp_path):
    async with started(tmp_path) as engine:
        for words in ("in 2 hours: see the oculist", "in 3 hours: tea"):
            await engine.ask(f"/remind {words}")
        assert "1 reminder or task" in await engine.ask("/memory forget oculist")
        assert "oculist" in await engine.ask("/remind list")  # it was only asked so far
        assert "1 reminder or task removed" in await engine.ask("/memory forget yes")
        left = await engine.ask("/remind list")
        assert "tea" in left
        assert "oculist" not in left
        assert "in none of your files" in await engine.ask("/memory forget oculist")


@pytest.mark.parametrize("place", ["shared", "room"])
async def test_a_question_is_answered_by_who_asked_it_alone(tmp_path, place):
    here: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
    section = {"group_policy": "open", "dm_scope": "main"}
    if place == "shared":
        here = {"chat": "den"}  # where the double shows what it answers
    scope = {"default": "allow", "rules": []}
    async with running(tmp_path, channels={"memory": section}, scope=scope) as engine:

        async def command(words: str, sender: str) -> str:
            before = len(engine.sent_to("den"))
            await engine.say(words, sender=sender, **here)
            await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) > before)
            return engine.sent_to("den")[before]

        await command("my boat is called Orinoco", "ada")
        assert "Send “/memory forget yes”" in await command("/memory forget orinoco", "ada")
        assert "nothing to confirm" in await command("/memory forget yes", "eve")
        await command("/memory forget no", "eve")  # nor does it take the question back
        assert "Forgotten:" in await command("/memory forget yes", "ada")


async def test_no_takes_the_question_back(tmp_path):
    furnish(tmp_path)
    async with started(tmp_path) as engine:
        for no in ("no", "No", "取消"):
            await engine.ask("/memory forget peanuts")
            assert await engine.ask(f"/memory forget {no}") == "Nothing was forgotten."
            assert "nothing to confirm" in await engine.ask("/memory forget yes")
        assert PEANUTS in (tmp_path / "workspace" / ADA / "MEMORY.md").read_text()


async def test_a_question_is_over_after_a_while(tmp_path, monkeypatch):
    furnish(tmp_path)
    monkeypatch.setattr("bot.commands.memory.ASKED_MS", -1)
    async with started(tmp_path) as engine:
        await engine.ask("/memory forget peanuts")
        assert "nothing to confirm" in await engine.ask("/memory forget yes")
        assert PEANUTS in (tmp_path / "workspace" / ADA / "MEMORY.md").read_text()


async def test_a_question_outlives_a_restart_and_no_longer_than_its_words(tmp_path):
    furnish(tmp_path)
    asked = "SELECT value FROM meta WHERE key LIKE 'forgetting:%'"
    async with started(tmp_path) as engine:
        await engine.ask("/memory forget peanuts")
        assert brains.query(tmp_path, asked) == [("peanuts",)]
    async with started(tmp_path) as engine:
        assert "Forgotten:" in await engine.ask("/memory forget yes")
        assert brains.query(tmp_path, asked) == []


async def test_what_is_nowhere_is_not_asked_about(tmp_path):
    furnish(tmp_path)
    async with started(tmp_path) as engine:
        assert "in none of your files" in await engine.ask("/memory forget zeppelin")
        assert "nothing to confirm" in await engine.ask("/memory forget yes")


# --- /whosees ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locale", "seen", "everybody"),
    [
        ("en", "These conversations could surface it:", "and everyone"),
        ("zh", "这些对话可能提到它：", "以及所有人"),
    ],
)
async def test_whosees_names_places_and_conversations(tmp_path, locale, seen, everybody):
    furnish(tmp_path)
    links = {"ada": ["memory:ada", "memory:ada2"]}
    write(tmp_path, "people/ada/MEMORY.md", f"- {PEANUTS}\n")
    async with started(tmp_path, session={"identity_links": links}) as engine:
        await engine.ask("hello", sender="ada2")
        await engine.ask("hello", sender="eve")
        mine = await engine.ask("/whosees allergic to peanuts", locale=locale)
        assert "MEMORY.md:1" in mine
        assert seen in mine
        assert "`agent:main:memory:dm:@ada`" in mine
        assert "eve" not in mine
        assert everybody not in mine
        both = await engine.ask("/whosees peanuts", locale=locale)
        assert "shared/kitchen.md:1" in both
        assert everybody in both
        nothing = await engine.ask("/whosees the owner is", locale=locale)
        assert ("in none of your files" if locale == "en" else "都没有这些词") in nothing


# --- GET /api/memory/search ----------------------------------------------------------------------


async def test_the_page_answers_with_passages_and_how_they_were_found(tmp_path):
    furnish(tmp_path)
    async with page(tmp_path) as url, aiohttp.ClientSession() as client:
        for query in ("?q=peanuts", "?space=main&q=peanuts&k=2"):
            async with client.get(f"{url}{query}") as answer:
                assert answer.status == 200
                assert answer.headers["Cache-Control"] == "no-store"
                found = await answer.json()
            assert set(found) == {"results", "mode"}
            assert found["mode"] == "keyword"
            assert {hit["path"] for hit in found["results"]} == {"MEMORY.md", "shared/kitchen.md"}
            first = next(hit for hit in found["results"] if hit["path"] == "MEMORY.md")
            assert set(first) == {"path", "start_line", "end_line", "score", "snippet", "source"}
            assert (first["start_line"], first["source"]) == (1, "memory")
            assert 0 < first["score"] <= 1
            assert "The owner" in first["snippet"]
        async with client.get(f"{url}?q=peanuts&k=1") as answer:
            assert len((await answer.json())["results"]) == 1
        async with client.get(f"{url}?q=peanuts&space=shared") as answer:
            found = await answer.json()
            assert [hit["path"] for hit in found["results"]] == ["shared/kitchen.md"]


async def test_the_page_refuses_what_it_cannot_answer(tmp_path):
    furnish(tmp_path)
    spaces = (ADA, EVE, "people", "rooms/memory-den", "..", "MAIN", "main%23private")
    refused = {
        **{f"?q={q}": 400 for q in ("", "%20%20", "x" * 2_001)},
        **{f"?q=x&k={k}": 400 for k in ("0", "51", "-1", "1.5", "many", "", "٣", "9" * 400)},
        **{f"?q=peanuts&space={space}": 404 for space in spaces},
    }
    async with page(tmp_path) as url, aiohttp.ClientSession() as client:
        for query, status in refused.items():
            async with client.get(f"{url}{query}") as answer:
                assert (query, answer.status) == (query, status)
                assert set(await answer.json()) == {"error"}


async def test_the_page_needs_the_token_where_there_is_one(tmp_path):
    furnish(tmp_path)
    async with page(tmp_path, token=TOKEN) as url, aiohttp.ClientSession() as client:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ):
            async with client.get(f"{url}?q=peanuts", headers=headers) as answer:
                assert answer.status == status
                assert ("owner" in await answer.text()) is (status == 200)


async def test_readiness_tells_of_trouble_without_names(tmp_path):
    write_file(tmp_path / "workspace" / ADA / "memory" / "divorce.md", b"- caf\xe9 \xff\n")
    async with page(tmp_path) as url, aiohttp.ClientSession() as client:
        base = url.removesuffix("api/memory/search")
        async with client.get(f"{base}readyz") as answer:
            text = await answer.text()
    assert "1 note has a problem (1: not UTF-8" in text
    assert "divorce" not in text
    assert "ada" not in text


# --- confidant memory ----------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_command_line_finds_and_forgets_and_says_what_it_did(tmp_path):
    write(tmp_path / "data", "MEMORY.md", f"- {PEANUTS} <!-- owner -->\n- Lives in Lyon\n")
    write(tmp_path / "data", "USER.md", "# About me\n\n<!-- Who you are. -->\n")
    async with running(tmp_path / "data", session={"owner": ["memory:ada"]}) as engine:
        await engine.ask("She is allergic to peanuts")
        asked = await confidant(tmp_path, "memory", "forget", "allergic to peanuts")
        assert asked.code == 1  # nobody said yes
        assert "MEMORY.md:1  - The daughter is allergic to peanuts\n" in asked.out
        assert "1 message of conversations" not in asked.out  # ada is linked to nobody here
    found = await confidant(tmp_path, "memory", "search", "peanuts", "about", "me")
    assert "MEMORY.md:1-2" in found.out
    assert "<!--" not in found.out
    assert "USER.md" not in found.out
    for words in ("zeppelin", " "):
        nowhere = await confidant(tmp_path, "memory", "forget", words, "--yes")
        assert (nowhere.code, nowhere.out.startswith("These words are in none")) == (0, True)
    done = await confidant(tmp_path, "memory", "forget", "allergic to peanuts", "--yes")
    assert "MEMORY.md: 1 entry removed" in done.out
    assert "The bot is running" not in done.out
    assert (tmp_path / "data/workspace/MEMORY.md").read_text() == "- Lives in Lyon\n"
    assert (await confidant(tmp_path, "memory", "search", "x", "--limit", "0")).code == 2


@pytest.mark.slow
async def test_the_command_line_forgets_long_results_of_tools_too(tmp_path):
    async with running(tmp_path / "data") as engine:
        await engine.ask("Hello")
    config, _ = make_config(tmp_path / "data")

    def keep(tx: Transaction) -> None:
        tx.execute("UPDATE sessions SET person = ?", (OWNER_VIEW.people[0],))
        tx.execute(
            "INSERT INTO artifacts(id, session_id, tool, at, text) "
            "SELECT 'a-1', id, 'tool', 1, ? FROM sessions",
            (PEANUTS,),
        )

    await asyncio.to_thread(writing, config, keep)
    done = await confidant(tmp_path, "memory", "forget", "allergic to peanuts", "--yes")
    assert "and 1 long tool result\n" in done.out
    assert "1 long tool result removed\n" in done.out
    left = await asyncio.to_thread(
        reading, config, lambda tx: tx.execute("SELECT count(*) FROM artifacts")
    )
    assert left == [(0,)]


OWNERS, ADAS = "- the bike is blue\n", "- my cat is grey\n"
BEFORE = "- my dog is brown\n"


def hashes_of(path: str, text: str) -> set[bytes]:
    return {digest(each) for passage in chunking.of_note(path, text) for each in passage.windows}


def cached(folder: Path) -> set[bytes]:
    path = folder / CACHE
    if not path.exists():
        return set()
    connection = apsw.Connection(str(path))
    rows = list(connection.execute("SELECT hash FROM embeddings"))
    connection.close()
    return {bytes(row[0]) for row in rows}


async def built(tmp_path: Path) -> Path:
    """An index with a note of the owner's and one of Ada's, which said something else before."""
    notes, folder = tmp_path / "workspace", tmp_path / "index"
    ada = notes / "people" / "ada" / "MEMORY.md"
    ada.parent.mkdir(parents=True)
    (notes / "MEMORY.md").write_text(OWNERS)
    config = MemoryConfig.model_validate({"watch": False})
    for words in (BEFORE, ADAS):
        ada.write_text(words)
        index = MemoryIndex.in_folder(
            settings_of(memory=config), FolderNotes(notes), folder, HashEmbedder(), system_clock
        )
        await index.sync("test")
        await index.close()
    return folder


async def test_erasing_leaves_no_index_and_no_vector(tmp_path):
    folder = await built(tmp_path)
    known = [hashes_of("MEMORY.md", text) for text in (OWNERS, ADAS, BEFORE)]
    assert cached(folder) == set.union(*known)
    leave_folder(folder)
    assert not [*folder.glob("*.db*")]
    leave_folder(tmp_path / "none")
