"""Models that are slow, small or answer one request at a time, through the whole engine."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from bot.agent.models import Request
from bot.agent.models.speed import Speed
from bot.context import tokens
from bot.errors import ModelOverloaded, ModelTimeout
from bot.identity.view import folder_name
from bot.messages import ToolUse
from bot.sessions.unsaved import PAUSES_MS
from bot.testing import ScriptedModel
from tests.fakes.brain import LONG, SUMMARY, Brain, added, numbered, query, says, writing
from tests.integration.test_context_engine import ask, done
from tests.support import Engine, FakeClock, running, until, write_file

pytestmark = pytest.mark.usefixtures("believes_every_figure")
WANDA = "Ada keeps a boat called Wanda."
BOAT = f"{WANDA} {LONG}"
MARKS = "SELECT value FROM meta WHERE key LIKE 'unsaved:%'"
ONE = {"anthropic": {"lanes": 1}}


def begun(folder: Path, model: ScriptedModel, **more: Any) -> Any:
    context = {"enable_memory_flush": True, **more.pop("context", {})}
    return running(folder, model=model, context=context, **more)


async def look(engine: Engine) -> None:
    await engine.app.maintenance.upkeep.look()
    await done(engine)


def saved(folder: Path) -> str:
    return "\n".join(note.read_text() for note in (folder / "workspace").rglob("2026-*.md"))


# --- one request at a time ------------------------------------------------------------------------


async def test_after_new_a_person_is_answered_before_their_last_conversation_is_saved(tmp_path):
    brain = Brain(flush=writing(WANDA))
    async with begun(tmp_path, brain, models=ONE) as engine:
        await ask(engine, BOAT)
        gate = brain.held["flush"] = asyncio.Event()
        await engine.ask("/new")
        await until(lambda: len(brain.asked("flush")) == 1)  # it has the only place
        assert await engine.ask("hello") == "All right."
        assert "Wanda" not in saved(tmp_path)
        gate.set()
        await done(engine)
        assert "Wanda" in saved(tmp_path)
        assert len(brain.asked("flush")) > 1
        assert query(tmp_path, MARKS) == []


async def test_two_people_are_answered_one_after_the_other_in_their_order(tmp_path):
    together: list[int] = []

    class Single(Brain):
        running = 0

        async def stream(self, request: Request) -> Any:
            self.running += 1
            together.append(self.running)
            try:
                async for event in super().stream(request):
                    await asyncio.sleep(0)
                    yield event
            finally:
                self.running -= 1

    brain = Single()
    async with begun(tmp_path, brain, models=ONE) as engine:
        for sender in ("ada", "bob", "cid"):
            await engine.say("hello", sender=sender)
        for sender in ("ada", "bob", "cid"):
            await engine.channel.wait_until(lambda _, who=sender: bool(engine.sent_to(who)))
        await done(engine)
    assert together == [1, 1, 1]


async def test_room_for_a_waiting_person_is_made_before_memory_is_saved_and_nothing_is_lost(
    tmp_path,
):
    brain = Brain(flush=writing(WANDA), summary=SUMMARY)
    async with begun(tmp_path, brain, context={"context_tokens": 200_000}) as engine:
        for _ in range(4):
            await ask(engine, BOAT)
        brain.held["flush"] = asyncio.Event()
        brain.used = 200_000  # the next request does not fit
        await engine.ask(BOAT)
        await until(lambda: bool(brain.asked("flush")))
        brain.used = 1_000
        await engine.say("and now?")
        await until(lambda: "and now?" in str(brain.asked("chat")[-1].messages))
        assert brain.asked("summary")
        brain.held.pop("flush").set()
        await ask(engine, "/new")
        assert "Wanda" in saved(tmp_path)
        assert "Wanda" in brain.asked("flush")[-1].messages[0].text


# --- saving without tools -------------------------------------------------------------------------


async def test_a_model_that_calls_no_tools_saves_and_changes_what_memory_has(tmp_path):
    def flush(request: Request) -> str:
        assert request.tools == ()
        entries, lines = numbered(request, "memory"), numbered(request)
        (old,) = [number for number, text in entries.items() if "harbour" in text]
        (line,) = [number for number, text in lines.items() if "sold" in text]
        return f"Sure, here it is:\n\n* ~ [{old}] I sold the boat in the harbour [{line}]\n"

    note = tmp_path / "workspace" / "people" / folder_name("memory:ada") / "memory" / "boats.md"
    write_file(note, "- Has a boat in the harbour <!-- owner 2026-01-05 -->\n")
    async with begun(tmp_path, Brain(flush=flush)) as engine:
        await engine.app.agent.memory.index.sync("test")
        await ask(engine, "I sold the boat in the harbour, by the way")
        await ask(engine, "/new")
        receipt = [each.text for each in engine.channel.sent if "Saved to memory" in each.text]
        assert receipt == ["Saved to memory (1): memory/boats.md:1"]
        versions = query(tmp_path, "SELECT path, kind FROM note_versions")
    assert "- I sold the boat in the harbour <!-- owner" in note.read_text()
    assert "~~Has a boat in the harbour~~ <!-- owner 2026-01-05, in" in saved(tmp_path)
    assert ("memory/boats.md", "bot") in versions


async def test_in_a_small_window_a_conversation_is_saved_in_pieces(tmp_path):
    def flush(request: Request) -> str:
        facts = (text[:30] for text in numbered(request).values() if "cousin" in text)
        return added(request, *facts)

    brain = Brain(used=0, flush=flush, input_window=4_096)
    async with begun(tmp_path, brain) as engine:
        for number in range(11, 17):
            await ask(engine, f"My cousin number {number} is nice. {LONG[:1_100]}")
        await ask(engine, "/new")
        asked = brain.asked("flush")
        assert len(asked) > 1
        assert all(r.tokens + r.max_tokens <= 4_096 for r in asked)
        assert query(tmp_path, MARKS) == []
    assert all(f"My cousin number {number} is" in saved(tmp_path) for number in range(11, 17))


@pytest.mark.parametrize("answer", [ModelOverloaded(), "I cannot do that.", ""])
async def test_what_was_saved_before_the_model_failed_is_kept_and_the_receipt_says_so(
    tmp_path, answer
):
    def flush(request: Request) -> Any:
        return added(request, WANDA) if len(brain.asked("flush")) == 1 else answer

    brain, clock = Brain(used=0, flush=flush, input_window=4_096), FakeClock()
    async with begun(tmp_path, brain, clock=clock) as engine:
        await ask(engine, f"Remember that my bike is blue. {WANDA}")
        for number in range(6):
            await ask(engine, f"My cousin number {number} is nice. {LONG[:1_100]}")
        await ask(engine, "/new")
        (receipt,) = [each.text for each in engine.channel.sent if "Saved to" in each.text]
        assert receipt.startswith("Saved to memory (1): memory/")
        assert "\nThe conversation that began" in receipt
        assert "my bike is blue" in saved(tmp_path)
        brain.flush = lambda request: added(request, "The bike is blue", WANDA)
        clock.advance(minutes=2)
        await look(engine)
    assert saved(tmp_path).count("bike") == saved(tmp_path).count(WANDA) == 1


# --- what couldn't save ----------------------------------------------------------------------


async def test_what_could_not_be_saved_is_tried_again_and_told_until_it_is(tmp_path):
    brain, clock = Brain(flush=ModelOverloaded()), FakeClock()
    async with begun(tmp_path, brain, clock=clock) as engine:
        await ask(engine, BOAT)
        await ask(engine, "/new")
        assert "isn't saved to memory yet" in await ask(engine, "/status")
        await ask(engine, "hello")
        assert "isn't saved to memory yet" in await ask(engine, "/new")
        tried = len(brain.asked("flush"))
        await look(engine)
        assert len(brain.asked("flush")) == tried  # not before its time
        brain.flush = writing(WANDA)
        clock.advance(minutes=2)
        await look(engine)
        assert "Wanda" in saved(tmp_path)
        assert "Not saved" not in await ask(engine, "/status")
        assert query(tmp_path, MARKS) == []


async def test_what_could_not_be_saved_is_named_and_tried_again_after_a_restart_too(tmp_path):
    clock = FakeClock()
    async with begun(tmp_path, Brain(flush=ModelOverloaded()), clock=clock) as engine:
        await ask(engine, BOAT)
        await ask(engine, "/new")
    clock.advance(minutes=2)
    brain = Brain(flush=ModelOverloaded())
    async with begun(tmp_path, brain, clock=clock) as engine:
        await ask(engine, "hello")
        assert "The conversation that began" in await ask(engine, "/new")
        brain.flush = writing(WANDA)
        clock.advance(minutes=6)
        await look(engine)
        assert "Wanda" in saved(tmp_path)
        assert query(tmp_path, MARKS) == []


async def test_after_the_last_try_the_person_is_told_once_what_to_do(tmp_path):
    brain, clock = Brain(flush=ModelTimeout()), FakeClock()
    async with begun(tmp_path, brain, clock=clock) as engine:
        await ask(engine, BOAT)
        await ask(engine, "/new")
        for pause in (*PAUSES_MS, 0, PAUSES_MS[-1]):
            clock.now += pause
            await look(engine)
        told = [each.text for each in engine.channel.sent if "couldn't save" in each.text]
        assert len(told) == 1
        assert "took too long" in told[0]
        assert len(brain.asked("flush")) == 1 + len(PAUSES_MS)
        assert "couldn't save" in await ask(engine, "/status")
        brain.flush = writing(WANDA)
        assert "trying again" in await ask(engine, "/memory save")
        await look(engine)
        assert "Wanda" in saved(tmp_path)
        assert "nothing to try again" in await ask(engine, "/memory save")


async def test_it_is_told_in_chinese_too(tmp_path):
    brain = Brain(flush=ModelOverloaded())
    async with begun(tmp_path, brain) as engine:
        await engine.say(BOAT, locale="zh")
        await engine.channel.wait_sent(1)
        await done(engine)
        await engine.say("/new", locale="zh")
        await done(engine)
        await engine.say("/status", locale="zh")
        await done(engine)
        assert "还没有保存到记忆" in engine.channel.sent[-1].text


async def test_what_was_being_saved_when_the_program_ended_is_saved_after_the_next_start(tmp_path):
    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await ask(engine, BOAT)
        brain.held["flush"] = asyncio.Event()
        await engine.ask("/new")
        await until(lambda: bool(brain.asked("flush")))
    assert len(query(tmp_path, MARKS)) == 1
    async with begun(tmp_path, Brain(flush=writing(WANDA))) as engine:
        await look(engine)
        assert "Wanda" in saved(tmp_path)
        assert query(tmp_path, MARKS) == []


# --- speed ----------------------------------------------------------------------------------------


async def test_the_measured_speed_is_shown_and_outlasts_a_restart(tmp_path):
    name = "anthropic/claude-sonnet-5-5"
    async with begun(tmp_path, Brain()) as engine:
        engine.app.agent.models.speeds[name] = Speed(41.0, 8.0)
        assert "41 tokens a second read, 8 written" in await ask(engine, "/status")
    async with begun(tmp_path, Brain()) as engine:
        assert engine.app.agent.models.speeds == {name: Speed(41.0, 8.0)}


@pytest.mark.parametrize("configured", [None, 7.0])
async def test_a_slow_model_has_the_time_it_needs_unless_a_limit_is_configured(
    tmp_path, configured, monkeypatch
):
    limits: dict[str, list[float]] = {"chat": [], "flush": []}
    brain = Brain()
    agent = {"timezone": "UTC"} | ({} if configured is None else {"turn_timeout": configured})
    context = {} if configured is None else {"memory_flush_timeout": configured}

    class Watching(Brain):
        async def stream(self, request: Request) -> Any:
            assert request.deadline is not None
            limits[request.purpose].append(request.deadline - asyncio.get_running_loop().time())
            async for event in super().stream(request):
                yield event

    brain = Watching()
    async with begun(tmp_path, brain, agent=agent, context=context) as engine:
        engine.app.agent.models.speeds["anthropic/claude-sonnet-5-5"] = Speed(4.0, 0.8)
        await ask(engine, BOAT)
        await ask(engine, "/new")
    for found in limits.values():
        if configured is None:
            assert found[0] > 1_500
        else:
            assert all(each <= configured for each in found)


# --- a short prompt -------------------------------------------------------------------------------


def prompt_of(request: Request) -> tuple[str, bytes]:
    listed = [
        {"name": t.name, "description": t.description, "schema": t.schema} for t in request.tools
    ]
    return request.system, orjson.dumps(listed)


def size_of(request: Request) -> int:
    system, tools = prompt_of(request)
    return tokens.estimate(system) + tokens.estimate(tools.decode())


@pytest.mark.parametrize("window", [4_096, 8_192, 15_999])
async def test_a_small_window_has_a_short_prompt_with_the_same_bytes_in_every_turn(
    tmp_path, window
):
    brain = Brain(used=0, input_window=window)
    folder = tmp_path / "workspace"
    folder.mkdir()
    for name in ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md"):
        (folder / name).write_text(
            f"# {name}\n\n" + "Be kind, and say what you know of boats.\n" * 200
        )
    async with begun(tmp_path, brain) as engine:
        for number in range(12):
            await ask(engine, f"turn {number}: {LONG[:300]}")
        chats = brain.asked("chat")
        assert len(chats) == 12
        assert len({prompt_of(request) for request in chats}) == 1
        assert size_of(chats[0]) <= 900
        assert [t.name for t in chats[0].tools] == [
            "memory_search",
            "memory_write",
            "reminders",
            "schedule_message",
        ]
        assert "Be kind" in chats[0].system


async def test_a_request_repeats_the_one_before_byte_by_byte(tmp_path):
    brain = Brain(used=0, input_window=8_192)
    async with begun(tmp_path, brain) as engine:
        for number in range(4):
            await ask(engine, f"turn {number}")
        chats = brain.asked("chat")
        for before, after in pairwise(chats):
            assert after.messages[: len(before.messages)] == before.messages


async def test_a_slow_model_has_a_short_prompt_from_the_next_conversation_on(tmp_path):
    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await ask(engine, "hello")
        engine.app.agent.models.speeds["anthropic/claude-sonnet-5-5"] = Speed(40.0, 8.0)
        await ask(engine, "hello again")
        first, second = brain.asked("chat")
        assert prompt_of(first) == prompt_of(second)
        assert size_of(first) > 900
        await ask(engine, "/new")
        await ask(engine, "and now")
        assert size_of(brain.asked("chat")[-1]) <= 900
    async with begun(tmp_path, (after := Brain())) as engine:  # fast again
        engine.app.agent.models.speeds.clear()
        await ask(engine, "still the same conversation")
        assert prompt_of(after.asked("chat")[-1]) == prompt_of(brain.asked("chat")[-1])


async def test_the_tools_of_a_short_prompt_work(tmp_path):
    def chat(request: Request) -> Any:
        if "remember" in request.messages[-1].text:
            return says("", 0, ToolUse("c1", "memory_write", {"text": "Ada is allergic to nuts."}))
        return says("Done.")

    brain = Brain(chat=chat, used=0, input_window=8_192)
    async with begun(tmp_path, brain) as engine:
        await ask(engine, "remember that I am allergic to nuts")
        assert "allergic to nuts" in saved(tmp_path)


async def test_a_narrow_window_is_summarised_beside_the_reply_and_not_before_it(tmp_path):
    brain = Brain(used=0, input_window=4_096)
    async with begun(tmp_path, brain) as engine:
        for _ in range(5):
            await ask(engine, BOAT)
        brain.used = 3_100  # full, and there is room for another turn
        brain.held["summary"] = asyncio.Event()
        await engine.ask("one more")
        await until(lambda: bool(brain.asked("summary")))
        asked = len(brain.asked("chat"))
        await engine.say("and one more")
        await until(lambda: len(brain.asked("chat")) > asked)
        brain.held.pop("summary").set()
        await done(engine)
