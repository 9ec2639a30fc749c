"""How full a conversation is, through the whole engine: notices, saving, summaries, overflow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from bot.agent.models import Reply, Request, TextDelta, Usage
from bot.agent.models.anthropic import AnthropicModel
from bot.channel import Capabilities, Piece
from bot.config import ServiceConfig
from bot.errors import ModelContextFull, ModelOverloaded, ModelTooLarge
from bot.gateway.commits import TurnRecorder
from bot.identity.view import folder_name
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.shares import Share
from bot.testing import InMemoryChannel, ScriptedModel
from bot.unit_of_work import Committer
from tests.fakes import messages_api as api
from tests.fakes.brain import LONG, SUMMARY, Brain, current, query, says, settled, writing
from tests.fakes.text_store import TextStoreInMemory
from tests.fakes.time_limits import TimeIsUp
from tests.proofs.rounds import sample
from tests.support import Engine, pause, running, until, write_file

FLUSH_FROM, FULL, HARD = 176_000, 180_000, 191_808  # of a window of 200 000
pytestmark = pytest.mark.usefixtures("believes_every_figure")
PLAIN = Capabilities(max_length=4000)
ADA = f"people/{folder_name('memory:ada')}"


SAVED = "Ada keeps a boat called Wanda."
BOAT = f"{SAVED} {LONG[len(SAVED) + 1 :]}"  # as long


def begun(folder: Path, model: ScriptedModel, **context: Any) -> Any:
    """An engine with a window of 200 000 tokens that saves memory."""
    extra = {name: context.pop(name) for name in ("channel", "clock") if name in context}
    others = ("channels", "session", "scope")
    sections = {name: context.pop(name) for name in others if name in context}
    wanted = {"enable_memory_flush": True, "context_tokens": 200_000, **context}
    return running(folder, model=model, context=wanted, **extra, **sections)


async def talk(engine: Engine, turns: int, about: str = LONG, **changes: Any) -> None:
    """So many turns with something in them, then quiet."""
    for number in range(turns):
        await ask(engine, f"turn {number}: {about}", **changes)


async def ask(engine: Engine, words: str, **changes: Any) -> str:
    """A turn's reply, once everything it led to is over."""
    answer = await engine.ask(words, **changes)
    await done(engine)
    return answer


async def done(engine: Engine) -> None:
    """Wait until everything is answered, summarised and sent."""
    for table in ("inbox", "outbox"):
        waiting = f"SELECT 1 FROM {table} WHERE state IN ('waiting', 'command')"
        await until(lambda waiting=waiting: not query(engine.folder, waiting))
        await settled()


async def reaching(engine: Engine, used: int, **changes: Any) -> list[Piece]:
    """What is sent beside the reply of a turn that leaves so many tokens in the window."""
    assert isinstance(engine.model, Brain)
    engine.model.used = used
    before = len(engine.channel.sent)
    await ask(engine, f"and then: {LONG}", **changes)
    engine.model.used = 1_000
    return [each for each in engine.channel.sent[before:] if each.kind != "reply"]


async def command(engine: Engine, words: str, **changes: Any) -> str:
    return await ask(engine, words, **changes)


def first_note(request: Request) -> str:
    block = request.messages[0].blocks[0]
    assert isinstance(block, Text)
    return block.text if block.note else ""


def words_of(request: Request) -> list[str]:
    return [message.text.partition(":")[0] for message in request.messages if message.text]


def is_paired(request: Request) -> bool:
    """Whether every call has its answer right behind it, and every answer its call."""
    asked: set[str] = set()
    for message in request.messages:
        answered = {b.tool_use_id for b in message.blocks if isinstance(b, ToolResult)}
        if answered != asked:
            return False
        asked = {b.id for b in message.blocks if isinstance(b, ToolUse)}
    return not asked


def texts(sent: list[Piece]) -> list[str]:
    return [each.text for each in sent]


PATH = {"path": "memory/boats.md"}


def boats(folder: Path) -> None:
    """A note of about 2 500 tokens."""
    note = folder / "workspace" / ADA / PATH["path"]
    write_file(note, "the boats of the harbour are red and blue and green and white again\n" * 110)


def reading(times: int) -> Any:
    """A model that reads the note whenever it is told to look; it reports nothing."""

    def chat(request: Request) -> Reply:
        if isinstance(request.messages[-1].blocks[-1], ToolResult):
            return says("I looked.")
        if "look" not in request.messages[-1].text:
            return says("Yes.")
        calls = (f"c{len(request.messages)}-{each}" for each in range(times))
        return says("", 0, *(ToolUse(call, "memory_get", PATH) for call in calls))

    return chat


# --- notices -------------------------------------------------------------------------------------


@pytest.fixture
def brain():
    return Brain()


@pytest.fixture
async def engine(tmp_path, brain):
    async with begun(tmp_path, brain) as found:
        yield found


async def test_each_level_is_told_once_in_each_cycle(engine, tmp_path):
    await talk(engine, 4)
    told: list[tuple[int, int]] = []
    for cycle in range(2):
        for used in (125_999, 126_000, 140_000, 152_999, 153_000, 170_000, 175_000):
            found = await reaching(engine, used)
            told += [(cycle, used) for each in found if "% full" in each.text]
            assert all(each.kind == "notice" for each in found)
        assert [each.kind for each in await reaching(engine, FULL + 1)] == ["receipt"]
    assert told == [(0, 126_000), (0, 153_000), (1, 126_000), (1, 153_000)]
    assert current(tmp_path)["compaction_count"] == 2


@pytest.mark.parametrize(
    ("locale", "begins", "labels"),
    [
        ("en", "This conversation is 70 % full", ["Compact", "Start fresh", "Not now"]),
        ("zh", "这次对话已满 70 %", ["写摘要", "新对话", "以后再说"]),
    ],
)
async def test_a_notice_speaks_the_persons_language_and_has_buttons(engine, locale, begins, labels):
    await talk(engine, 1, locale=locale)
    (notice,) = await reaching(engine, 126_000, locale=locale)
    assert notice.text.startswith(begins)
    assert "/compact" not in notice.text
    assert [each.label for each in notice.buttons] == labels
    commands = [each.command for each in notice.buttons]
    assert commands == ["/compact", "/new", "/notices later"]


@pytest.mark.parametrize("locale", ["en", "zh"])
async def test_without_buttons_the_commands_are_spelled_out(tmp_path, locale):
    channel = InMemoryChannel(capabilities=PLAIN)
    async with begun(tmp_path, Brain(), channel=channel) as engine:
        await talk(engine, 1, locale=locale)
        (notice,) = await reaching(engine, 126_000, locale=locale)
        assert notice.buttons == ()
        assert all(each in notice.text for each in ("/compact", "/new", "/notices later"))


async def test_pressing_not_now_ends_notices_for_this_conversation_only(engine, tmp_path):
    await talk(engine, 1)
    (notice,) = await reaching(engine, 126_000)
    await engine.channel.press(notice, "Not now")
    await until(lambda: current(tmp_path)["notices"] == "later")
    await done(engine)
    assert await reaching(engine, 160_000) == []
    await command(engine, "/new")
    await talk(engine, 1)
    assert len(await reaching(engine, 126_000)) == 1


@pytest.mark.parametrize("off", ["/notices off", "/notices later"])
async def test_who_turned_notices_off_gets_none_and_no_receipt(tmp_path, off):
    async with begun(tmp_path, Brain(flush=writing("Ada likes boats."))) as engine:
        await talk(engine, 4)
        await command(engine, off)
        assert await reaching(engine, 160_000) == []
        assert await reaching(engine, FLUSH_FROM) == []
        assert await reaching(engine, FULL + 1) == []
        assert current(tmp_path)["compaction_count"] == 1  # it was done all the same
        await command(engine, "/notices on")
        assert len(await reaching(engine, 160_000)) == 1


async def swept(engine: Engine) -> list[str]:
    """What the scheduler's sweep tells of."""
    before = len(engine.channel.sent)
    count = await engine.app.maintenance.notices.sweep(engine.clock())
    await done(engine)
    told = texts(engine.channel.sent[before:])
    assert len(told) == count
    return told


async def test_a_conversation_that_became_nearly_full_without_a_turn_is_told_of_once(tmp_path):
    async with begun(tmp_path, Brain()) as engine:
        await talk(engine, 1)
        assert await reaching(engine, 72_000) == []
        await ask(engine, "hello", sender="bob")
        assert await swept(engine) == []
        engine.model.input_window = 100_000  # a smaller model: full above 80 000
        (told,) = await swept(engine)
        assert told.startswith("This conversation is 90 % full (72")
        assert engine.channel.sent[-1].kind == "notice"
        assert [b.command for b in engine.channel.sent[-1].buttons] == [
            "/compact",
            "/new",
            "/notices later",
        ]
        assert await swept(engine) == []
        assert await reaching(engine, 73_000) == []
    async with begun(tmp_path, Brain()) as engine:
        engine.model.input_window = 100_000
        assert await swept(engine) == []


async def test_a_changed_window_is_told_of_at_the_level_it_reaches(tmp_path):
    async with begun(tmp_path, Brain()) as engine:
        await talk(engine, 1)
        await reaching(engine, 72_000)
    async with begun(tmp_path, Brain(), context_tokens=120_000) as engine:
        (told,) = await swept(engine)
        assert told.startswith("This conversation is 72 % full")
    async with begun(tmp_path, Brain(), context_tokens=100_000) as engine:
        (told,) = await swept(engine)
        assert told.startswith("This conversation is 90 % full")


async def test_a_sweep_tells_nobody_who_does_not_want_to_hear_or_was_silent_for_long(tmp_path):
    session = {"reset": {"mode": "none"}}
    async with begun(tmp_path, Brain(), session=session) as engine:
        for sender, wish in (("ada", "off"), ("bob", "later"), ("cid", "")):
            await ask(engine, "hello", sender=sender)
            if wish:
                await command(engine, f"/notices {wish}", sender=sender)
            engine.model.used = 72_000
            await ask(engine, f"and then: {LONG}", sender=sender)
        engine.clock.advance(days=8)
        engine.model.input_window = 100_000
        assert await swept(engine) == []
    closed = {"memory": {"dm_policy": "allowlist", "allow_from": ["ada"]}}
    async with begun(tmp_path, Brain(), session=session, channels=closed) as engine:
        engine.clock.now -= 8 * 86_400_000
        engine.model.input_window = 100_000
        assert await swept(engine) == []  # whoever may not talk here any more is told nothing


@pytest.mark.parametrize(
    ("context", "channel", "told"),
    [({}, {}, 0), ({"notices": "on"}, {}, 1), ({}, {"notices": "on"}, 1),
     ({"notices": "on"}, {"notices": "off"}, 0)],
)  # fmt: skip
async def test_a_group_is_told_nothing_unless_the_configuration_wants_it(
    tmp_path, context, channel, told
):
    open_group = {"memory": {"group_policy": "open", "require_mention": False, **channel}}
    den = {"chat_type": "group"}
    async with begun(tmp_path, Brain(), channels=open_group, **context) as engine:
        await talk(engine, 4, **den)
        assert len(await reaching(engine, 160_000, **den)) == told
        assert len(await reaching(engine, FULL + 1, **den)) == told


@pytest.mark.parametrize("where", ["context", "channels"])
async def test_notices_turned_off_by_the_configuration_can_be_turned_on(tmp_path, where):
    wish: dict[str, Any] = {"notices": "off"}
    sections = {"channels": {"memory": wish}} if where == "channels" else wish
    async with begun(tmp_path, Brain(), **sections) as engine:
        await talk(engine, 1)
        assert await reaching(engine, 126_000) == []
        assert "I don't warn" in await command(engine, "/notices")
        await command(engine, "/notices on")
        assert "I'll warn you" in await command(engine, "/notices")
        assert len(await reaching(engine, 160_000)) == 1


async def test_a_notice_says_what_a_turn_has_just_filled_it_with(tmp_path):
    async with begun(tmp_path, Brain(chat=reading(4), input_window=16_000)) as engine:
        boats(tmp_path)
        await ask(engine, "look")
        (notice,) = [each for each in engine.channel.sent if each.kind == "notice"]
        assert "tool results 6" in notice.text
        assert "everything else" not in notice.text


# --- saving memory -------------------------------------------------------------------------------


async def test_memory_is_saved_at_the_border_and_once_in_each_cycle(tmp_path, engine, brain):
    brain.flush = writing("Ada keeps a boat called Wanda.")
    await talk(engine, 4, BOAT)
    await command(engine, "/notices on")
    await reaching(engine, FLUSH_FROM - 1)
    assert brain.asked("flush") == []
    assert current(tmp_path)["memory_flush_compaction_count"] == -1
    engine.clock.advance(seconds=5)
    (notice,) = await reaching(engine, FLUSH_FROM)
    assert notice.text == "Saved to memory (1): memory/2026-11-21.md:3"
    assert len(brain.asked("flush")) == 1
    row = current(tmp_path)
    assert row["memory_flush_at"] == engine.clock()
    assert (row["memory_flush_compaction_count"], row["compaction_count"]) == (0, 0)
    for used in (FLUSH_FROM + 1, FULL):
        assert await reaching(engine, used) == []
    (receipt,) = await reaching(engine, FULL + 1)
    assert "Saved first: memory/2026-11-21.md:3." in receipt.text
    assert len(brain.asked("flush")) == 1
    row = current(tmp_path)
    assert (row["memory_flush_compaction_count"], row["compaction_count"]) == (0, 1)
    await reaching(engine, FLUSH_FROM - 1)
    assert len(brain.asked("flush")) == 1
    await reaching(engine, FLUSH_FROM)
    assert len(brain.asked("flush")) == 2
    assert current(tmp_path)["memory_flush_compaction_count"] == 1


async def test_who_watches_sees_that_memory_is_saved_and_what_no_message_tells(tmp_path):
    async with begun(tmp_path, Brain(flush=writing("Ada keeps a boat"))) as engine:
        await talk(engine, 4, BOAT)
        await reaching(engine, FLUSH_FROM)
        (begin, end) = engine.channel.activities
        assert (begin.kind, begin.state, begin.where) == ("saving", "begun", "")
        # Where it stands is told by a message.
        assert (end.id, end.kind, end.state, end.where) == (begin.id, "saving", "done", "")
        assert "Saved to memory (1): memory" in str(engine.channel.sent)
        await reaching(engine, FULL + 1)
        kinds = [(each.kind, each.state) for each in engine.channel.activities[2:]]
        assert kinds == [("summarising", "begun"), ("summarising", "done")]


async def test_who_watches_sees_what_was_saved_without_a_word(tmp_path):
    async with begun(tmp_path, Brain(flush=writing("Ada keeps a boat"))) as engine:
        await talk(engine, 1, BOAT)
        await command(engine, "/notices off")
        await command(engine, "/new")
        assert "Saved to memory" not in str(engine.channel.sent)
        end = engine.channel.activities[-1]
        assert (end.kind, end.state) == ("saving", "done")
        assert end.where.startswith("memory/2026-11-21.md:")


async def test_who_watches_sees_that_it_failed(engine, brain):
    brain.flush, brain.summary = ModelOverloaded(), ModelOverloaded()
    await talk(engine, 4)
    await reaching(engine, FULL + 1)
    shown = [(each.kind, each.state) for each in engine.channel.activities]
    assert shown == [
        ("saving", "begun"),
        ("saving", "failed"),
        ("summarising", "begun"),
        ("summarising", "failed"),
    ]


async def test_a_flush_knows_the_date_has_no_tools_and_is_seen_by_nobody(engine, brain):
    brain.flush = "I saved nothing, I just talk."
    await talk(engine, 1)
    await reaching(engine, FLUSH_FROM)
    (request,) = brain.asked("flush")
    assert "2026-11-21" in request.system
    assert request.tools == ()
    assert not any("just talk" in each.text for each in engine.channel.sent)
    assert not any("just talk" in draft for draft in engine.channel.drafts)
    await ask(engine, "go on")
    assert "just talk" not in str(brain.asked("chat")[-1].messages)


async def test_a_tools_answer_that_jumps_over_the_border_is_noticed_within_the_turn(engine, brain):
    def chat(request: Request) -> Reply:
        if isinstance(request.messages[-1].blocks[-1], ToolResult):
            return says("Here you are.", FLUSH_FROM + 600)
        if "look" in request.messages[-1].text:
            return says("", FLUSH_FROM - 5, ToolUse("c1", "transcript_search", {"query": "boats"}))
        return says("Yes.", 1_000)

    brain.chat = chat
    await talk(engine, 3)
    brain.held["chat"] = asyncio.Event()
    brain.held["flush"] = asyncio.Event()
    await engine.say("look")
    await until(lambda: len(brain.asked("chat")) == 4)
    assert brain.asked("flush") == []
    brain.held.pop("chat").set()
    brain.held["chat"] = asyncio.Event()  # for the step after the tool
    await until(lambda: len(brain.asked("flush")) == 1)
    assert engine.sent_to("ada")[-1] != "Here you are."
    brain.held.pop("chat").set()
    brain.held.pop("flush").set()
    await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "Here you are.")
    await settled()
    assert len(brain.asked("flush")) == 1


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_flush_that_fails_is_not_tried_each_turn_and_blocks_nothing(tmp_path, how):
    brain = Brain(flush=ModelOverloaded() if how == "fails" else "x")
    seconds = 60.0
    if how == "hangs":
        brain.held["flush"], seconds = asyncio.Event(), 1.0
    async with begun(tmp_path, brain, memory_flush_timeout=seconds) as engine:
        await talk(engine, 4)
        await reaching(engine, FLUSH_FROM - 1)
        for used in (FLUSH_FROM, FLUSH_FROM + 1, FULL):
            assert await reaching(engine, used) == []
        assert len(brain.asked("flush")) == 1
        (receipt,) = await reaching(engine, FULL + 1)
        assert "older messages became a summary" in receipt.text
        assert "Saved" not in receipt.text
        assert len(brain.asked("flush")) == 1


async def test_what_a_failed_flush_left_is_saved_at_the_end(tmp_path, engine, brain):
    brain.flush = ModelOverloaded()
    await talk(engine, 2, BOAT)
    await reaching(engine, FLUSH_FROM)
    brain.flush = writing("Ada keeps a boat called Wanda.")
    await command(engine, "/new")
    assert "Wanda" in next((tmp_path / "workspace").rglob("2026-11-21.md")).read_text()


async def test_a_new_conversation_saves_only_what_was_not_saved(engine, brain):
    await talk(engine, 2)
    await reaching(engine, FLUSH_FROM)
    (before,) = brain.asked("flush")
    await ask(engine, "the last thing: blue")
    await command(engine, "/new")
    after = brain.asked("flush")[-1]
    assert after is not before
    shown = after.messages[0].text
    assert "the last thing" in shown
    assert "turn 0" not in shown


async def test_a_turn_that_ends_after_new_is_saved_too_and_no_summary_is_written(engine, brain):
    await talk(engine, 4)
    brain.held["chat"] = asyncio.Event()
    brain.used = FULL + 1
    await engine.say("the last thing: blue")
    await until(lambda: len(brain.asked("chat")) == 5)
    await engine.ask("/new")
    await settled()
    brain.held.pop("chat").set()
    await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "All right.")
    await settled()
    assert "the last thing" in brain.asked("flush")[-1].messages[0].text
    assert brain.asked("summary") == []


def saved_from(brain: Brain, begins: str) -> int:
    """How many requests to save memory showed something the person said."""
    return sum(begins in request.messages[0].text for request in brain.asked("flush"))


async def test_a_turn_that_ends_while_its_conversation_is_being_saved_is_saved_too(engine, brain):
    await talk(engine, 2)
    brain.held["chat"] = asyncio.Event()
    brain.held["flush"] = asyncio.Event()
    await engine.say("the last thing: blue")
    await until(lambda: len(brain.asked("chat")) == 3)
    await engine.ask("/new")
    await until(lambda: len(brain.asked("flush")) == 1)
    brain.held.pop("chat").set()
    await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "All right.")
    brain.held.pop("flush").set()
    await settled()
    assert (saved_from(brain, "the last thing"), saved_from(brain, "turn 0")) == (1, 1)


async def test_what_was_said_while_memory_was_saved_is_saved_at_the_end(engine, brain):
    brain.used = FLUSH_FROM
    brain.held["flush"] = asyncio.Event()
    await engine.ask(f"turn 0: {LONG}")
    await until(lambda: len(brain.asked("flush")) == 1)
    await engine.ask_each("the last thing: blue", "/new")
    brain.held.pop("flush").set()
    await settled()
    assert (saved_from(brain, "the last thing"), saved_from(brain, "turn 0")) == (1, 1)


async def test_a_conversation_gone_back_to_is_saved_before_it_is_summarised(engine, brain):
    await talk(engine, 1)
    await command(engine, "/new")
    await command(engine, "/undo")
    await ask(engine, f"gone back to: {LONG}")
    await talk(engine, 4)
    await reaching(engine, FLUSH_FROM)
    await reaching(engine, FULL + 1)
    assert saved_from(brain, "gone back to") == 1
    assert "gone back to" in str(brain.asked("summary")[0].messages)


async def test_after_a_wished_summary_that_failed_the_cycle_is_still_saved(engine, brain):
    brain.summary = ModelOverloaded()
    await talk(engine, 5)
    await command(engine, "/compact")
    brain.summary = SUMMARY
    await ask(engine, f"after that: {LONG}")
    await talk(engine, 4)
    await reaching(engine, FLUSH_FROM)
    await reaching(engine, FULL + 1)
    assert saved_from(brain, "after that") == 1
    assert "after that" in str(brain.asked("summary")[-1].messages)


@pytest.mark.parametrize("on", [True, False])
async def test_saving_can_be_turned_off(tmp_path, on):
    brain = Brain()
    async with begun(tmp_path, brain, enable_memory_flush=on) as engine:
        await talk(engine, 4)
        await reaching(engine, FLUSH_FROM)
        await reaching(engine, FULL + 1)
        await command(engine, "/new")
        assert bool(brain.asked("flush")) is on
        assert len(brain.asked("summary")) == 1


# --- compaction ----------------------------------------------------------------------------------


async def test_a_full_conversation_goes_on_from_a_summary_and_undo_takes_it_back(
    tmp_path, engine, brain
):
    def chat(request: Request) -> Reply:
        said = request.messages[-1]
        if "tool" in said.text:
            return says("", brain.used, ToolUse(f"c{len(request.messages)}", "no_such", {}))
        return says("All right.", brain.used)

    brain.chat = chat
    await ask(engine, f"first tool: {LONG}")
    await talk(engine, 3)
    await ask(engine, f"second tool: {LONG}")
    assert [each.kind for each in await reaching(engine, FULL)] == ["notice"]
    (receipt,) = await reaching(engine, FULL + 1)
    assert receipt.kind == "receipt"
    assert receipt.text.startswith("10 older messages became a summary: 180\u202f001 → ")
    assert [button.command for button in receipt.buttons] == ["/undo"]
    row = current(tmp_path)
    assert row["context_tokens"] < 10_000
    assert (row["told"], row["held"]) == (0, 0)

    await ask(engine, f"after: {LONG}")
    request = brain.asked("chat")[-1]
    assert "summarised by the program" in first_note(request)
    assert all(f"> {line}" in first_note(request) for line in SUMMARY.splitlines())
    assert words_of(request) == [
        *("second tool", "All right.", "and then", "All right.", "and then", "All right."),
        "after",
    ]
    assert is_paired(request)

    await engine.channel.press(receipt, "Undo")
    await engine.channel.wait_until(lambda sent: "was undone" in sent[-1].text)
    await ask(engine, f"whole: {LONG}")
    request = brain.asked("chat")[-1]
    assert words_of(request)[0] == "first tool"
    assert "summarised" not in first_note(request)
    assert is_paired(request)


async def test_after_undo_the_next_summary_waits_until_it_must_be(engine):
    await talk(engine, 4)
    assert len(await reaching(engine, FULL + 1)) == 1
    await command(engine, "/undo")
    engine.model.requests.clear()
    for used in (FULL + 1, HARD - 2_000):  # what has no room beside it is summarised before
        assert not any(each.kind == "receipt" for each in await reaching(engine, used))
    assert engine.model.asked("summary") == []
    assert [each.kind for each in await reaching(engine, HARD + 1)] == ["receipt"]


@pytest.mark.parametrize(
    ("window", "full", "hard", "longest"),
    [
        (16_000, 12_000, 14_000, 2_000),
        (20_000, 15_000, 17_500, 2_500),
        (32_000, 24_000, 28_000, 4_000),
    ],
)
async def test_in_a_small_window_nobody_waits_for_a_summary(
    tmp_path, *, window, full, hard, longest
):
    async with begun(tmp_path, Brain(input_window=window)) as engine:
        await talk(engine, 4)
        brain = engine.model
        brain.held["summary"] = asyncio.Event()
        brain.used = full + 1
        await engine.ask(f"and then: {LONG}")
        await until(lambda: bool(brain.asked("summary")))
        brain.used = hard - 500
        await engine.ask("and meanwhile?")  # answered while the summary is being written
        await engine.ask("and once more?")
        assert len(brain.asked("summary")) == 1
        assert brain.asked("chat")[-1].max_tokens == longest
        brain.held.pop("summary").set()
        brain.used = 1_000
        await done(engine)
        await ask(engine, "after")
        assert brain.asked("chat")[-1].max_tokens > longest


UNDONE = {
    "en": ("You had undone the last summary", "older messages became a summary"),
    "zh": ("你撤回过上一次的摘要", "已写成摘要"),
}


@pytest.mark.parametrize(
    ("window", "full", "hard", "longest", "locale"),
    [(16_000, 12_000, 14_000, 2_000, "en"), (32_000, 24_000, 28_000, 4_000, "zh")],
)
async def test_in_a_small_window_an_undo_lasts_until_there_is_no_room(
    tmp_path, *, window, full, hard, longest, locale
):
    why, done = UNDONE[locale]
    said = {"locale": locale}
    async with begun(tmp_path, Brain(input_window=window)) as engine:
        await talk(engine, 4, **said)
        (receipt,) = await reaching(engine, full + 1, **said)
        assert why not in receipt.text
        await command(engine, "/undo", **said)
        engine.model.requests.clear()
        for used in (full + 1, hard - 500):  # beside it there is room for what is said next
            assert not any(each.kind == "receipt" for each in await reaching(engine, used, **said))
        chats = engine.model.asked("chat")
        assert words_of(chats[-1])[0] == "turn 0"
        assert chats[-1].max_tokens == longest
        assert engine.model.asked("summary") == []
        (receipt,) = await reaching(engine, hard + 1, **said)
        assert receipt.text.startswith(why)
        assert done in receipt.text
        await ask(engine, "after", **said)
        assert engine.model.asked("chat")[-1].max_tokens > longest
        await talk(engine, 3, **said)
        (receipt,) = await reaching(engine, full + 1, **said)
        assert why not in receipt.text


async def test_who_wishes_a_summary_after_an_undo_is_not_told_why(engine):
    await talk(engine, 5)
    await command(engine, "/compact")
    await command(engine, "/undo")
    await command(engine, "/compact")
    receipts = [each.text for each in engine.channel.sent if each.kind == "receipt"]
    assert len(receipts) == 2
    assert all(each.startswith("4 older messages became a summary") for each in receipts)


@pytest.mark.parametrize(("window", "full"), [(200_000, FULL), (16_000, 12_000)])
async def test_an_undo_within_a_turn_counts_for_it(engine, brain, window, full):
    brain.input_window = window
    await talk(engine, 4)
    await reaching(engine, full + 1)
    brain.held["chat"] = asyncio.Event()
    brain.used = full + 1
    asked = len(brain.asked("chat"))
    await engine.say(f"during: {LONG}")
    await until(lambda: len(brain.asked("chat")) > asked)
    assert "was undone" in await engine.ask("/undo")
    brain.held.pop("chat").set()
    await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "All right.")
    await settled()
    assert len(brain.asked("summary")) == 1  # and not another one at once
    await ask(engine, f"after: {LONG}")
    assert words_of(brain.asked("chat")[-1])[0] == "turn 0"
    assert "during" in words_of(brain.asked("chat")[-1])


async def test_an_undo_while_a_turn_is_stored_counts_for_it(tmp_path, monkeypatch):
    commit, reached, stored = Committer.commit, asyncio.Event(), asyncio.Event()

    async def slow(self: Committer, now: int, work: Any, **options: Any) -> Any:
        name = getattr(work, "__qualname__", "")  # a `partial` has none
        if name.startswith(TurnRecorder.__qualname__) and not reached.is_set():
            reached.set()
            await stored.wait()
        return await commit(self, now, work, **options)

    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 4)
        await reaching(engine, FULL + 1)
        brain.used = FULL + 1
        monkeypatch.setattr(Committer, "commit", slow)
        await engine.say(f"during: {LONG}")
        await reached.wait()
        assert "was undone" in await engine.ask("/undo")
        stored.set()
        await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == "All right.")
        await settled()
        assert len(brain.asked("summary")) == 1  # and not another one at once


async def test_a_later_summary_carries_the_one_before_and_undo_goes_back_one_by_one(engine):
    await talk(engine, 4)
    await reaching(engine, FULL + 1)
    await talk(engine, 3)
    engine.model.summary = "- A second summary, of the harbour as well."
    await reaching(engine, FULL + 1)
    shown = engine.model.asked("summary")[-1].messages[0].text
    assert "They talked about the harbour and its boats." in shown
    await ask(engine, "one")
    assert "A second summary" in first_note(engine.model.asked("chat")[-1])
    await command(engine, "/undo")
    await ask(engine, "two")
    assert "its boats." in first_note(engine.model.asked("chat")[-1])
    assert "A second summary" not in first_note(engine.model.asked("chat")[-1])
    await command(engine, "/undo")
    await ask(engine, "three")
    assert words_of(engine.model.asked("chat")[-1])[0] == "turn 0"


async def test_the_transcript_keeps_every_word_and_says_what_became_a_summary(tmp_path):
    async with begun(tmp_path, Brain()) as engine:
        await talk(engine, 4)
        await reaching(engine, FULL + 1)
        await command(engine, "/undo")
    kinds = [row[0] for row in query(tmp_path, "SELECT kind FROM entries ORDER BY seq")]
    assert kinds.count("message") == 10
    lines = query(tmp_path, "SELECT line FROM entries WHERE kind = 'compaction'")
    assert len(lines) == 1
    assert all(each in lines[0][0] for each in ("first_kept_entry_id", '"tokens_before":180001'))
    mirrored = next((tmp_path / "sessions").rglob("*.jsonl")).read_text().splitlines()
    assert mirrored[1:] == [row[0] for row in query(tmp_path, "SELECT line FROM entries")]


async def test_a_restart_between_saving_and_summarising_saves_nothing_twice(tmp_path):
    brain = Brain(flush=writing("Ada keeps a boat called Wanda."))
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 4, BOAT)
        await reaching(engine, FLUSH_FROM)
    brain = Brain(used=FULL + 1, summary=f"{SUMMARY}\n- {SAVED}")
    async with begun(tmp_path, brain) as engine:
        await ask(engine, "and on")
        assert (len(brain.asked("flush")), len(brain.asked("summary"))) == (0, 1)
        receipt = engine.channel.sent[-1]
        assert "Saved first: memory/2026-11-21.md:3." in receipt.text


async def test_a_program_that_ends_while_it_summarises_has_lost_nothing(tmp_path):
    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 4)
        brain.held["summary"] = asyncio.Event()
        brain.used = FULL + 1
        await engine.ask(f"full: {LONG}")
        await until(lambda: bool(brain.asked("summary")))
    async with begun(tmp_path, Brain()) as engine:
        await ask(engine, "and on")
        request = engine.model.asked("chat")[-1]
        assert words_of(request)[0] == "turn 0"
        assert len(await reaching(engine, FULL + 1)) == 1


@dataclass
class Stuck(InMemoryChannel):
    """A channel that takes no receipts."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, piece: Piece) -> str:
        if piece.kind == "receipt":
            self.reached.set()
            await asyncio.Event().wait()
        return await super().send(piece)


async def test_a_receipt_that_was_not_sent_is_sent_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.SEND_GRACE", 0.01)
    stuck = Stuck()
    async with begun(tmp_path, Brain(), channel=stuck) as engine:
        await talk(engine, 4)
        engine.model.used = FULL + 1
        await engine.ask(f"full: {LONG}")
        await stuck.reached.wait()
    async with begun(tmp_path, Brain()) as engine:
        await engine.channel.wait_sent(1)
        assert "older messages became a summary" in engine.channel.sent[0].text
        await ask(engine, "and on")
        assert "summarised by the program" in first_note(engine.model.asked("chat")[-1])
        assert engine.model.asked("summary") == []
        texts_ = texts(engine.channel.sent)
        assert len([each for each in texts_ if "became a summary" in each]) == 1


@pytest.mark.parametrize("how", ["times out", "nonsense", "overflows", "refuses"])
async def test_without_a_summary_the_history_stays_and_the_person_is_told_once(
    tmp_path, how, monkeypatch
):
    answers: dict[str, Any] = {
        "times out": SUMMARY,
        "nonsense": "NO_REPLY",
        "overflows": ModelTooLarge(),
        "refuses": says("no", stop="refusal"),
    }
    brain = Brain(summary=answers[how])
    if how == "times out":
        brain.held["summary"] = TimeIsUp(monkeypatch)
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 4)
        (told,) = await reaching(engine, FULL + 1)
        assert told.text.startswith("I couldn't summarise the older part of this conversation.")
        calls = len(brain.asked("summary"))
        assert calls > 0
        (notice,) = await reaching(engine, FULL + 1)  # with buttons that help
        assert "% full" in notice.text
        for used in (FULL + 2_000, int((FULL + 1) * 1.05)):
            assert await reaching(engine, used) == []
        assert len(brain.asked("summary")) == calls
        assert words_of(brain.asked("chat")[-1])[0] == "turn 0"
        brain.summary = SUMMARY
        brain.held.clear()
        (receipt,) = await reaching(engine, int((FULL + 1) * 1.05) + 2)
        assert receipt.kind == "receipt"


# --- overflow ------------------------------------------------------------------------------------


def overflows_at(brain: Brain, words: str) -> None:
    """The window is too small the first time that somebody says this."""
    failures = [ModelContextFull()]

    def chat(request: Request) -> Any:
        if words in request.messages[-1].text and failures:
            return failures.pop()
        return says("All right.", 2_000)

    brain.chat = chat


async def test_an_overflow_is_compacted_and_asked_once_more(tmp_path, engine, brain):
    overflows_at(brain, "now")
    await talk(engine, 4)
    await ask(engine, "now")
    replies = [each.text for each in engine.channel.sent if each.kind == "reply"]
    assert replies[-1] == "All right."
    first, second = brain.asked("chat")[-2:]
    assert words_of(first)[0] == "turn 0"
    assert words_of(second)[-1] == "now"
    assert "summarised by the program" in first_note(second)
    (receipt,) = [each for each in engine.channel.sent if each.kind == "receipt"]
    assert "became a summary" in receipt.text
    stored = query(tmp_path, "SELECT count(*) FROM entries WHERE kind = 'message'")
    assert stored == [(10,)]


@dataclass
class Busy(Brain):
    """Chores that have to do with the sea take until `over`."""

    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        if request.purpose != "chat" and "the sea" in request.messages[-1].text:
            await self.over.wait()
        async for event in super().stream(request):
            yield event


@pytest.mark.parametrize("chores", ["own saving", "others' summaries", "own summary too"])
async def test_a_turn_that_has_to_make_room_waits_for_no_chore(tmp_path, monkeypatch, chores):
    for pool in ("FLUSHES", "SUMMARIES"):
        one = Share(at_once=1, each=1, waiting=None)
        monkeypatch.setattr(f"bot.upkeep.active_session.{pool}", one)
    failures = [ModelContextFull()]

    def chat(request: Request) -> Any:
        if request.messages[-1].text == "now" and failures:
            return failures.pop()
        used = FULL + 1_000 if request.messages[-1].text == "full" else 2_000
        return says("All right.", used)

    brain = Busy(chat=chat)
    limits = {"each": {"day_tokens": 50_000_000}}  # the chores of each person come one by one
    context = {"enable_memory_flush": chores == "own saving", "context_tokens": 200_000}
    async with running(tmp_path, model=brain, context=context, limits=limits) as engine:
        if chores == "own saving":
            await engine.ask_each(f"the sea: {LONG}", "/new")
            await until(lambda: _busy() == 1)
        else:
            for _ in range(4):
                await engine.ask(f"the sea: {LONG}", sender="bob")
            await engine.ask("full", sender="bob")
            await until(lambda: _busy() == 1)
        for _ in range(4):
            await engine.ask(f"the harbour: {LONG}")
        if chores == "own summary too":
            await engine.ask("full")
            await until(lambda: _busy() == 2)
        assert "became a summary" in await engine.ask("now")
        await engine.channel.wait_until(lambda sent: sent[-1].text == "All right.")
        assert not brain.over.is_set()
        assert len(brain.asked("summary")) == 1
        brain.over.set()
        await settled()


def _busy() -> int:
    """How many chores are at work, or wait."""
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    return sum(name == "Upkeep._unfenced" for name in names)


NO_SUMMARY = {
    "en": ("I couldn't summarise 4 older messages", "latest messages and any earlier"),
    "zh": ("较早的 4 条消息没能写成摘要", "最近的消息和以前的摘要都保留着"),
}


@pytest.mark.parametrize(
    ("notices", "saved", "locale"),
    [("on", "", "zh"), ("on", "memory/2026-11-21.md:3", "en"), ("off", "", "en")],
)
async def test_a_receipt_does_not_call_a_note_a_summary(engine, brain, *, notices, saved, locale):
    begins, kept = NO_SUMMARY[locale]
    failures = [ModelContextFull()]

    def chat(request: Request) -> Any:
        if "now" in request.messages[-1].text and failures:
            return failures.pop()
        return says("All right.", 2_000)

    brain.chat, brain.summary = chat, ModelOverloaded()
    brain.flush = writing("Ada keeps a boat called Wanda.") if saved else "NO_REPLY"
    await talk(engine, 5, BOAT, locale=locale)
    await command(engine, f"/notices {notices}", locale=locale)
    await ask(engine, "now", locale=locale)
    (receipt,) = [each for each in engine.channel.sent if each.kind == "receipt"]
    assert receipt.text.startswith(begins)
    assert kept in receipt.text
    assert "memory/" not in receipt.text  # a person waited, so memory was saved afterwards
    assert any("memory/" in each.text for each in engine.channel.sent) is bool(saved)
    assert saved in engine.channel.sent[-1].text
    assert "became a summary" not in receipt.text
    assert "已写成摘要" not in receipt.text
    assert [button.command for button in receipt.buttons] == ["/undo"]
    request = brain.asked("chat")[-1]
    assert "could not be summarised; the transcript has them" in first_note(request)
    whole = [each for number in (2, 3, 4) for each in (f"turn {number}", "All right.")]
    assert words_of(request) == [*whole, "now"]


@pytest.mark.parametrize(
    ("locale", "told"),
    [("en", "I couldn't summarise the older part"), ("zh", "没能为这次对话较早的部分写出摘要")],
)
async def test_a_wished_summary_that_fails_leaves_all_as_it_was_and_says_so(
    locale, told, engine, brain
):
    brain.summary = ModelOverloaded()
    await talk(engine, 5, locale=locale)
    await command(engine, "/compact", locale=locale)
    assert engine.channel.sent[-1].text.startswith(told)
    assert not any(each.kind == "receipt" for each in engine.channel.sent)
    await ask(engine, "after")
    assert words_of(brain.asked("chat")[-1])[0] == "turn 0"


@pytest.mark.parametrize("how", ["error", "half a reply", "stop"])
async def test_an_overflow_after_tools_goes_on_behind_their_results(tmp_path, how, engine, brain):
    overflows = [True]

    def chat(request: Request) -> Any:
        last = request.messages[-1]
        if not isinstance(last.blocks[-1], ToolResult):
            if "write" not in last.text:
                return says("Yes.", 2_000)
            use = ToolUse("w1", "memory_write", {"text": "The boat is called Wanda."})
            return says("A moment.", 2_000, use)
        if overflows.pop() if overflows else False:
            full = says("Half a", 3_000, stop="context_full")
            return full if how != "error" else ModelContextFull()
        return says("It is done.", 3_000)

    brain.chat = chat
    await talk(engine, 4)
    await command(engine, "/usage tokens")
    await ask(engine, "write it down")
    (reply,) = [each.text for each in engine.channel.sent if "It is done." in each.text]
    assert reply.startswith("A moment.\n\nIt is done.\n\n✓ Stored in memory/2026-11-21.md:3")
    assert "Half a" not in reply
    note = next((tmp_path / "workspace").rglob("2026-11-21.md")).read_text()
    assert note.count("Wanda") == 1
    last = brain.asked("chat")[-1]
    assert is_paired(last)
    assert "summarised by the program" in first_note(last)
    await ask(engine, "and on")
    assert is_paired(brain.asked("chat")[-1])
    assert "Half a" not in str(brain.asked("chat")[-1].messages)
    # What the first try cost is counted as well.
    assert current(tmp_path)["input_tokens"] >= 4 * 1_990 + 1_990 + 2_990


async def test_a_second_overflow_is_told_and_the_conversation_is_still_there(engine, brain):
    await talk(engine, 4)
    brain.chat = ModelContextFull()
    before = len(brain.asked("chat"))
    await ask(engine, "now")
    assert len(brain.asked("chat")) == before + 2
    replies = [each.text for each in engine.channel.sent if each.kind == "reply"]
    assert replies[-1].startswith("This conversation no longer fits the model. Send /new")
    brain.chat = "All right."
    await ask(engine, "better?")
    request = brain.asked("chat")[-1]
    assert words_of(request)[-2:] == ["now", "better?"]
    assert "summarised by the program" in first_note(request)
    assert "was undone" in await command(engine, "/undo")
    await ask(engine, "all of it")
    assert words_of(brain.asked("chat")[-1])[0] == "turn 0"


async def test_one_message_that_is_larger_than_the_window_does_not_block_what_comes(engine, brain):
    brain.used, brain.input_window = 0, 16_000
    await ask(engine, "giant: " + "boats and harbours " * 5_000)
    replies = [each.text for each in engine.channel.sent if each.kind == "reply"]
    assert replies[-1].startswith("This conversation no longer fits the model.")
    for _ in range(2):
        await ask(engine, "small")
    assert engine.channel.sent[-1].text == "All right."
    assert len(str(brain.asked("chat")[-1].messages)) < 40_000


async def test_an_overflow_of_three_turns_keeps_the_last_one(engine, brain):
    overflows_at(brain, "now")
    await talk(engine, 3)
    await ask(engine, "now")
    assert words_of(brain.asked("chat")[-1]) == ["turn 2", "All right.", "now"]


# --- windows -------------------------------------------------------------------------------------


async def test_a_window_that_is_too_small_is_refused_with_the_reason(tmp_path, engine, brain):
    brain.input_window = 3_999
    answer = await ask(engine, "hello")
    assert "4 000 tokens" in answer
    assert "“anthropic/claude-sonnet-5-5”" in answer
    assert brain.requests == []
    stored = query(tmp_path, "SELECT line FROM entries WHERE kind = 'message'")
    assert "hello" in stored[0][0]


@pytest.mark.parametrize("window", sample([4_096, 31_999], [8_192, 16_000]))
async def test_a_small_window_converses(tmp_path, window, engine, brain):
    brain.used, brain.input_window = 0, window
    for number in range(30):
        await ask(engine, f"turn {number}: {LONG}")
    assert len(brain.asked("chat")) == 30
    compactions = current(tmp_path)["compaction_count"]
    assert compactions <= 3
    assert "This window is small" in await command(engine, "/context detail")


# --- commands ------------------------------------------------------------------------------------


async def test_context_shows_what_fills_it_with_a_picture(engine):
    await talk(engine, 2)
    engine.model.used = 90_000
    await ask(engine, "how full?")
    answer = await command(engine, "/context")
    assert answer.startswith("**50 % full**: 90\u202f000 of 180\u202f000 tokens\n`█")
    for part in ("who I am", "tools", "messages", "everything else"):
        assert part in answer
    assert "The total is counted by the model" in answer
    assert "`memory_search`" not in answer
    (picture,) = engine.channel.sent[-1].attachments
    assert picture.data.startswith(b"\x89PNG")
    listed = await command(engine, "/context list")
    assert "  - `AGENTS.md`: " in listed
    assert "`memory_search`" not in listed
    detail = await command(engine, "/context detail")
    assert "`memory_search`" in detail
    assert "Memories are saved from 176\u202f000 tokens on" in detail
    assert "a window of 200\u202f000 tokens" in detail
    status = await command(engine, "/status")
    assert "90\u202f000" in status
    assert "50 %" in status


async def test_context_says_so_when_a_window_is_capped_and_is_plain_without_pictures(tmp_path):
    channel = InMemoryChannel(capabilities=PLAIN)
    async with begun(tmp_path, Brain(), channel=channel, context_tokens=120_000) as engine:
        answer = await command(engine, "/context detail", locale="zh")
        assert "120\u202f000" in answer
        assert "context_tokens" in answer
        assert engine.channel.sent[-1].attachments == ()


async def test_usage_shows_what_replies_cost_until_it_is_turned_off(engine):
    await talk(engine, 1)
    await command(engine, "/usage tokens")
    engine.model.used = 18_000
    await ask(engine, "how much?")
    assert engine.channel.sent[-1].text == (
        "All right.\n\n_17\u202f990 in · 10 out · 10 % full · $0.0361_"
    )
    assert "in · 10 out" not in str(engine.model.requests[-1].messages)
    usage = await command(engine, "/usage")
    assert "18\u202f980 tokens in, 0 more read from the model's cache, 20 out" in usage
    assert "turns: 2" in usage
    await command(engine, "/usage off")
    assert await ask(engine, "more") == "All right."
    await ask(engine, "and more")
    assert "in · 10 out" not in str(engine.model.requests[-1].messages)


async def test_what_is_read_from_the_cache_is_told_apart_from_what_is_sent(tmp_path):
    cached = Reply(
        Message("assistant", (Text("All right."),)),
        "end",
        Usage(input_tokens=100, output_tokens=10, cache_read_tokens=9_000, cache_write_tokens=50),
    )
    async with begun(tmp_path, Brain(chat=cached)) as engine:
        await talk(engine, 1)
        usage = await command(engine, "/usage")
        assert "150 tokens in, 9\u202f000 more read from the model's cache, 10 out" in usage
        assert "150 in, 9\u202f000 from the cache, 10 out" in await command(engine, "/status")
        await command(engine, "/usage tokens")
        reply = await ask(engine, "more")
        assert "_150 in, 9\u202f000 from the cache · 10 out · 5 % full · $0.0013_" in reply


async def test_status_tells_of_summaries_notices_and_the_next_fresh_start(engine):
    await talk(engine, 4)
    status = await command(engine, "/status")
    assert "Summaries of its older part: 0" in status
    assert "Notices when it gets full: on" in status
    assert "Next fresh start: tomorrow at 04:00, with the new day" in status
    await reaching(engine, FULL + 1)
    await command(engine, "/notices off")
    status = await command(engine, "/status")
    assert "Summaries of its older part: 1" in status
    assert "Notices when it gets full: off" in status


@pytest.mark.parametrize(
    ("reset", "told"),
    [
        ({"mode": "none"}, "when you send /new"),
        ({"mode": "idle", "idle_minutes": 90}, "today at 13:30, if you don't write"),
    ],
)
async def test_status_tells_the_fresh_start_that_is_configured(tmp_path, reset, told):
    async with begun(tmp_path, Brain(), session={"reset": reset}) as engine:
        await ask(engine, "hello")
        assert f"Next fresh start: {told}" in await command(engine, "/status")
        engine.clock.advance(minutes=91)
        if reset["mode"] == "idle":
            status = await command(engine, "/status")
            assert "Next fresh start: with your next message" in status


@pytest.mark.parametrize("locale", ["en", "zh"])
async def test_a_notice_says_what_a_new_conversation_takes_along(locale, engine):
    words = {"en": "starts with a short summary", "zh": "会带上这次对话的简短摘要"}
    await talk(engine, 1, locale=locale)
    (notice,) = await reaching(engine, 130_000, locale=locale)
    assert words[locale] in notice.text


async def test_a_notice_where_nothing_is_remembered_says_that_nothing_comes_along(tmp_path):
    async with begun(tmp_path, Brain(), scope={"rules": [], "default": "deny"}) as engine:
        await talk(engine, 1)
        (notice,) = await reaching(engine, 130_000)
        assert "starts with nothing from it" in notice.text


async def test_compact_tells_the_summariser_what_to_keep_in_mind(engine, brain):
    brain.flush = writing("Ada keeps a boat called Wanda.")
    await talk(engine, 5, BOAT)
    assert "I'm summarising" in await command(engine, "/compact the names of the boats")
    receipt = engine.channel.sent[-1]
    assert receipt.text.startswith("4 older messages became a summary: ")
    assert "Saved first: memory/2026-11-21.md:3." in receipt.text
    assert "the names of the boats" in brain.asked("summary")[0].messages[0].text
    await ask(engine, "and on")
    assert words_of(brain.asked("chat")[-1])[0] == "turn 2"


async def test_a_short_conversation_has_nothing_to_compact(engine):
    assert "still short" in await command(engine, "/compact")
    await talk(engine, 3)
    assert "still short" in await command(engine, "/compact")
    assert engine.model.asked("summary") == []


async def test_two_compacts_at_once_make_one_summary(tmp_path, engine, brain):
    await talk(engine, 5)
    brain.held["summary"] = asyncio.Event()
    await engine.ask("/compact")
    await until(lambda: bool(brain.asked("summary")))
    await engine.ask("/compact")
    brain.held.pop("summary").set()
    await done(engine)
    receipts = [each for each in engine.channel.sent if each.kind == "receipt"]
    assert len(receipts) == 1
    assert current(tmp_path)["compaction_count"] == 1


# --- at the same time ----------------------------------------------------------------------------


async def during_a_turn(engine: Engine, words: str, chats: int) -> str:
    """Give a command while a turn runs, and let both end; the command's answer."""
    brain = engine.model
    assert isinstance(brain, Brain)
    brain.held["chat"] = asyncio.Event()
    await engine.say(f"during: {LONG}")
    await until(lambda: len(brain.asked("chat")) == chats + 1)
    answer = await engine.ask(words)
    await settled()
    brain.held.pop("chat").set()
    await engine.channel.wait_until(lambda sent: sent[-1].text == "All right.")
    await done(engine)
    return answer


async def test_a_compaction_within_a_turn_loses_nothing_of_it(tmp_path):
    brain = Brain(used=100_000)
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 5)
        await during_a_turn(engine, "/compact", 5)
        # What the running turn reported was about the conversation before the summary.
        assert current(tmp_path)["context_tokens"] < 10_000
        assert "100\u202f000" not in await command(engine, "/context")
        await ask(engine, "after: x")
        request = brain.asked("chat")[-1]
        shown = [words for words in words_of(request) if words != "All right."]
        assert shown == ["turn 2", "turn 3", "turn 4", "during", "after"]
        assert "summarised by the program" in first_note(request)
    async with begun(tmp_path, Brain()) as engine:
        await ask(engine, "restarted: x")
        assert words_of(engine.model.requests[-1])[:2] == ["turn 2", "All right."]


async def test_new_within_a_turn_leaves_it_in_its_conversation(engine, brain):
    await talk(engine, 2)
    await during_a_turn(engine, "/new", 2)
    await ask(engine, "fresh: x")
    assert words_of(brain.asked("chat")[-1]) == ["fresh"]
    await command(engine, "/undo")
    await ask(engine, "back: x")
    shown = [words for words in words_of(brain.asked("chat")[-1]) if words != "All right."]
    assert shown == ["turn 0", "turn 1", "during", "back"]


async def forget(engine: Engine, words: str) -> None:
    await engine.ask(f"/memory forget {words}")
    assert "Forgotten" in await engine.ask("/memory forget yes")


async def test_what_is_forgotten_within_a_turn_is_not_shown_after_it(engine, brain):
    await ask(engine, "the code is xyzzy-42")
    await talk(engine, 2)
    brain.held["chat"] = asyncio.Event()
    await engine.say(f"during: {LONG}")
    await until(lambda: len(brain.asked("chat")) == 4)
    await forget(engine, "xyzzy-42")
    brain.held.pop("chat").set()
    await engine.channel.wait_until(lambda sent: sent[-1].text == "All right.")
    await ask(engine, "after: x")
    request = brain.asked("chat")[-1]
    assert "xyzzy" not in str(request.messages)
    assert "during" in words_of(request)


async def test_what_is_forgotten_while_it_is_summarised_is_in_no_summary(tmp_path, engine, brain):
    brain.summary = "- The code is xyzzy-42, they said.\n- They talked about boats."
    await ask(engine, f"the code is xyzzy-42. {LONG}")
    await talk(engine, 4)
    brain.held["summary"] = asyncio.Event()
    await engine.ask("/compact")
    await until(lambda: bool(brain.asked("summary")))
    await forget(engine, "xyzzy-42")
    brain.held.pop("summary").set()
    await settled()
    assert current(tmp_path)["compaction"] is None
    await ask(engine, "after: x")
    assert "xyzzy" not in str(brain.asked("chat")[-1].messages)
    brain.summary = SUMMARY
    await command(engine, "/compact")
    assert "xyzzy" not in brain.asked("summary")[-1].messages[0].text
    assert current(tmp_path)["compaction"]


async def test_who_wished_a_summary_is_told_that_it_was_dropped(engine, brain):
    await talk(engine, 5)
    brain.held["summary"] = asyncio.Event()
    await engine.ask("/compact")
    await until(lambda: bool(brain.asked("summary")))
    await forget(engine, "turn 0")
    brain.held.pop("summary").set()
    await done(engine)
    assert engine.sent_to("ada")[-1].startswith("I couldn't summarise the older part")


async def test_what_is_forgotten_within_a_turn_is_not_summarised_after_it(engine, brain):
    await ask(engine, f"the code is xyzzy-42. {LONG}")
    await talk(engine, 4)
    brain.used = FULL + 1
    brain.held["chat"] = asyncio.Event()
    await engine.say(f"during: {LONG}")
    await until(lambda: len(brain.asked("chat")) == 6)
    await forget(engine, "xyzzy-42")
    brain.held.pop("chat").set()
    await engine.channel.wait_until(lambda sent: sent[-1].kind == "receipt")
    await settled()
    for purpose in ("summary", "flush"):
        assert brain.asked(purpose)
        assert all("xyzzy" not in str(each.messages) for each in brain.asked(purpose))


async def test_what_is_forgotten_in_a_first_turn_does_not_begin_its_conversation(tmp_path):
    brain = Brain()
    async with begun(tmp_path, brain) as engine:
        await ask(engine, "hello")
        facts = tmp_path / "workspace" / ADA / "MEMORY.md"
        write_file(facts, "# Facts\n\n- The code is xyzzy-42.\n- Ada likes tea.\n")
        await engine.ask("/new")
        await settled()
        brain.held["chat"] = asyncio.Event()
        await engine.say("first: x")
        await until(lambda: len(brain.asked("chat")) == 2)
        assert "xyzzy" in brain.asked("chat")[-1].system
        await forget(engine, "xyzzy-42")
        brain.held.pop("chat").set()
        await engine.channel.wait_until(lambda sent: sent[-1].text == "All right.")
        await ask(engine, "second: x")
        assert "xyzzy" not in brain.asked("chat")[-1].system
        assert "Ada likes tea" in brain.asked("chat")[-1].system
    assert query(tmp_path, "SELECT 1 FROM prefix_texts WHERE text LIKE '%xyzzy%'") == []


async def test_what_a_summary_says_is_found_until_it_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.memory.transcripts.EVERY_SECONDS", 0.01)
    brain = Brain(summary="- A tool said that the ferry leaves from pier xyzzy-42.")
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 5)
        await command(engine, "/compact")
        found = ""
        while "xyzzy-42" not in found:  # it is indexed in the background
            await pause(0.02)
            found = await command(engine, "/memory search where does the ferry leave")
        assert "xyzzy" not in await command(engine, "/memory search ferry", sender="bob")
        await forget(engine, "xyzzy-42")
        assert "xyzzy" not in await command(engine, "/memory search where does the ferry leave")
        await ask(engine, "after: x")
        assert "xyzzy" not in str(brain.asked("chat")[-1].messages)
        assert "(forgotten" in first_note(brain.asked("chat")[-1])


async def test_an_undo_of_a_summary_while_the_next_is_written_drops_that_one(
    tmp_path, engine, brain
):
    await talk(engine, 5)
    await command(engine, "/compact")
    await talk(engine, 3)
    brain.held["summary"] = asyncio.Event()
    await engine.ask("/compact")
    await until(lambda: len(brain.asked("summary")) == 2)
    assert "was undone" in await engine.ask("/undo")
    brain.held.pop("summary").set()
    await settled()
    assert current(tmp_path)["compaction"] is None
    await ask(engine, "after: x")
    assert words_of(brain.asked("chat")[-1])[0] == "turn 0"


async def test_a_summary_that_is_ready_after_new_is_not_told_of(engine, brain):
    await talk(engine, 5)
    brain.held["summary"] = asyncio.Event()
    await engine.ask("/compact")
    await until(lambda: bool(brain.asked("summary")))
    await engine.ask("/new")
    brain.held.pop("summary").set()
    await done(engine)
    assert not any(each.kind == "receipt" for each in engine.channel.sent)


# --- pruning -------------------------------------------------------------------------------------


async def test_after_a_restart_a_conversation_that_was_shortened_is_not_thought_to_be_short(
    tmp_path,
):
    async with begun(tmp_path, Brain(chat=reading(1), input_window=32_000)) as engine:
        boats(tmp_path)
        for number in range(7):
            await ask(engine, f"look {number}")
        engine.clock.advance(minutes=10)
        for number in range(3):
            await ask(engine, f"talk {number}")
        assert "Only the beginning and the end" in str(engine.model.asked("chat")[-1].messages)
        clock = engine.clock
    async with begun(tmp_path, Brain(chat=reading(1), input_window=32_000), clock=clock) as engine:
        whole = int((await command(engine, "/context")).split(" %")[0].removeprefix("**"))
        assert whole > 60  # what was shortened is whole again, and counted so


# --- silence -------------------------------------------------------------------------------------


@dataclass
class Pieces(Brain):
    """A model that streams its reply in pieces, with a pause behind the last of them."""

    pieces: tuple[str, ...] = ()
    pause: asyncio.Event | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Any]:
        from bot.agent.models import TextDelta

        self.requests.append(request)
        for piece in self.pieces:
            yield TextDelta(piece)
            await asyncio.sleep(0)
        self.started.set()
        if self.pause is not None:
            await self.pause.wait()
        yield says("".join(self.pieces))


@pytest.mark.parametrize(
    "pieces", [("NO", "_RE", "PLY"), ("N", "O_REPLY", "\n"), (" no_", "reply "), ("[SIL", "ENT]")]
)
async def test_a_silent_reply_is_never_seen(tmp_path, pieces):
    async with begun(tmp_path, Pieces(pieces=pieces)) as engine:
        await engine.say("hello")
        await until(lambda: current(tmp_path)["turns"] == 1)
        await done(engine)
        assert engine.channel.sent == []
        assert [draft for draft in engine.channel.drafts if draft] == []
        engine.model.pieces = ("Yes.",)
        assert await ask(engine, "and now?") == "Yes."


async def test_a_token_at_the_end_is_not_shown_in_a_direct_chat(tmp_path):
    pieces = ("NO_", "RELATION to that. ", "Bye. NO_REPLY")
    async with begun(tmp_path, Pieces(pieces=pieces)) as engine:
        assert await ask(engine, "hello") == "NO_RELATION to that. Bye."
        assert not [draft for draft in engine.channel.drafts if draft == "NO_" or "NO_REP" in draft]


async def test_stopped_in_the_middle_of_the_token_nothing_is_shown(tmp_path):
    model = Pieces(pieces=("NO", "_RE"), pause=asyncio.Event())
    async with begun(tmp_path, model) as engine:
        await engine.say("hello")
        await model.started.wait()
        assert await engine.ask("/stop") == "Stopped."
        await until(lambda: current(tmp_path)["turns"] == 1)
        await done(engine)
        assert texts(engine.channel.sent) == ["Stopped."]
        assert [draft for draft in engine.channel.drafts if draft] == []


async def test_usage_adds_up():
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)


# --- long results --------------------------------------------------------------------------------


async def test_a_long_result_is_cut_kept_whole_and_forgotten_with_its_words(tmp_path):
    seen: list[str] = []

    def chat(request: Request) -> Reply:
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResult):
            seen.append(last.text)
            return says("I looked.")
        if "look" not in request.messages[-1].text:
            return says("Yes.")
        return says("", 0, ToolUse(f"c{len(request.messages)}", "memory_get", PATH))

    async with begun(tmp_path, Brain(chat=chat, input_window=16_000)) as engine:
        boats(tmp_path)
        note = tmp_path / "workspace" / ADA / PATH["path"]
        # Many tokens to the character, so that what one call may show is too long already.
        filler = "船在港口里停着，" * 700
        note.write_text(f"{filler}\n- 密码是芝麻开门四十二\n{filler}\n")
        await ask(engine, "look")
        assert "artifact_get" in seen[0]
        assert "芝麻" not in seen[0]
        note.unlink()
        answer = await command(engine, "/memory forget 芝麻开门四十二")
        assert "1 long tool result" in answer
        answer = await command(engine, "/memory forget yes")
        assert "1 long tool result removed" in answer
        assert query(tmp_path, "SELECT 1 FROM artifacts") == []
        assert "in none of your files" in await command(engine, "/memory forget 芝麻开门四十二")


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({}, "120\u202f000"),
        ({"windows": {"claude-sonnet-5-5": 64_000}}, "64\u202f000"),
        ({"windows": {"another": 64_000}}, "120\u202f000"),
        ({"context_tokens": 50_000}, "50\u202f000"),
    ],
)
async def test_a_window_that_the_service_does_not_tell_is_the_configured_one(
    tmp_path, context, said
):
    async with api.running(api.says("Hi")) as server:
        server.models["claude-sonnet-5-5"] = api.model_info("claude-sonnet-5-5", None, 8_192)
        config = ServiceConfig(base_url=server.base_url, api_key=SecretStr("k"))
        store = TextStoreInMemory()
        model = AnthropicModel(config, window_store=store, max_retries=0)
        async with running(tmp_path, model=model, context=context) as engine:
            await engine.ask("Hello")
            await store.written.wait()
            assert said in await engine.ask("/context detail")
