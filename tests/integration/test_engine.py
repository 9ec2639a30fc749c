"""A message's whole way, with real storage and everything else in memory."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass, field
from types import FrameType

import pytest

from bot import errors
from bot.agent.models import Reply, Request, Usage
from bot.agent.models.registry import Breaker
from bot.channel import Address, Inbound, ModelChoice
from bot.gateway import gateway
from bot.messages import Message, ToolUse
from bot.sessions.inbox import QueuedMessage
from bot.testing import ScriptedModel, calls
from bot.upkeep.active_session import ActiveSessions
from tests.fakes.brain import LONG, Brain, query
from tests.support import Engine, killed_in_a_turn, running, until


async def test_a_message_is_answered(engine):
    assert await engine.ask("hello") == "You said: hello"


async def test_a_second_copy_is_dropped(engine):
    inbound = await engine.say("once")
    await engine.channel.wait_sent(1)
    await engine.channel.push(inbound)
    await engine.ask("and then")
    assert engine.sent_to("ada") == ["You said: once", "You said: and then"]


async def test_the_conversation_goes_on_after_a_restart(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("my name is Ada")
    async with running(tmp_path) as engine:
        await engine.ask("what is my name?")
        request = engine.model.requests[-1]
        assert [m.text for m in request.messages] == [
            "my name is Ada",
            "You said: my name is Ada",
            "what is my name?",
        ]


async def test_what_was_waiting_when_it_stopped_is_answered_after_a_restart(tmp_path, monkeypatch):
    await killed_in_a_turn(tmp_path, monkeypatch, "one", "two")
    async with running(tmp_path) as engine:
        await engine.channel.wait_until(lambda sent: len(sent) == 2)
        assert engine.sent_to("ada") == ["You said: one", "You said: two"]


async def test_new_starts_afresh_and_undo_goes_back(engine):
    await engine.ask("first talk")
    assert "New conversation" in await engine.ask("/new")
    await engine.ask("second talk")
    assert [m.text for m in engine.model.requests[-1].messages] == ["second talk"]
    assert "Back in the previous conversation" in await engine.ask("/undo")
    await engine.ask("third")
    assert [m.text for m in engine.model.requests[-1].messages] == [
        "first talk",
        "You said: first talk",
        "third",
    ]


async def test_an_earlier_conversation_is_continued_by_number_words_or_button(engine):
    assert await engine.ask("/continue") == "There is no earlier conversation here."
    for words in ("about the heron", "about the garden", "about the boat"):
        await engine.ask_each(words, "/new")
        engine.clock.advance(minutes=1)
    listed = await engine.ask("/continue")
    assert re.findall(r"(?m)^(\d)\. about the (\w+)", listed) == [
        ("1", "boat"),
        ("2", "garden"),
        ("3", "heron"),
    ]
    heron = engine.channel.sent[-1].buttons[2]
    assert "Continuing “about the boat”" in await engine.ask("/continue BOAT")
    assert "Continuing “about the garden”" in await engine.ask("/continue 1")
    assert "Continuing “about the heron”" in await engine.ask(heron.command)
    await engine.ask("and then?")
    assert [m.text for m in engine.model.requests[-1].messages] == [
        "about the heron",
        "You said: about the heron",
        "and then?",
    ]
    assert "has that number or name" in await engine.ask("/continue nothing like it")
    assert "has that number or name" in await engine.ask("/continue 77")
    assert "Which conversation" in await engine.ask("/continue about the")


async def test_nobody_continues_what_is_anothers(engine):
    await engine.ask_each("of ada alone", "/new", "/continue")
    button = engine.channel.sent[-1].buttons[0]
    await engine.ask("hello", sender="bob")
    assert await engine.ask("/continue", sender="bob") == "There is no earlier conversation here."
    said = await engine.ask(button.command, sender="bob")
    assert said == "There is no earlier conversation here."


async def test_the_rest_of_new_is_the_first_message(engine):
    await engine.ask("old")
    await engine.say("/new scripted-two tell me a joke")
    await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 3)
    told, answer = engine.sent_to("ada")[1:]
    assert told.startswith("New conversation with anthropic/scripted-two. /undo brings the")
    assert answer == "You said: tell me a joke"
    assert engine.model.requests[-1].model == "scripted-two"


async def test_stop_keeps_the_partial_text_and_does_not_wait_behind_the_turn(engine):
    engine.model.script, engine.model.gate = lambda _: "one two three", asyncio.Event()
    await engine.say("count")
    await engine.model.started.wait()
    await engine.say("停止")
    await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
    assert sorted(engine.sent_to("ada")) == ["Stopped.", "one\n\n(stopped)"]


async def test_the_word_stop_is_a_message_when_nothing_runs(engine):
    assert await engine.ask("stop") == "You said: stop"


async def test_status_answers_while_a_turn_runs(engine):
    engine.model.gate = asyncio.Event()
    await engine.say("slow")
    await engine.model.started.wait()
    assert "Model:" in await engine.ask("/status")
    engine.model.gate.set()
    await engine.channel.wait_until(lambda _: "You said: slow" in engine.sent_to("ada"))


async def test_collect_answers_what_waited_together(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    queue = {"mode": "collect", "debounce": 0.01}
    async with running(tmp_path, model=model, session={"queue": queue}) as engine:
        await engine.say("first")
        await model.started.wait()
        await engine.say("second")
        await engine.say("third")
        model.gate.set()
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) >= 2)
        assert [m.text for m in model.requests[-1].messages[-2:]] == ["second", "third"]


async def test_a_model_that_fails_is_told_and_the_message_is_kept(engine):
    engine.model.script = lambda _: errors.ModelOverloaded()
    assert "overloaded" in await engine.ask("are you there?")
    engine.model.script = lambda _: KeyError("a mistake of ours")
    assert "could not answer" in await engine.ask("hello?")
    engine.model.script = lambda r: f"{len(r.messages)} messages"
    assert await engine.ask("and now?") == "3 messages"
    assert len(engine.model.requests) == 3


async def test_tools_run_and_their_result_goes_back_to_the_model(tmp_path):
    def script(request: Request):
        if len(request.messages) == 1:
            return calls("memory_write", text="Ada likes tea")
        return f"noted: {request.messages[-1].blocks[0].text}"

    async with running(tmp_path, model=ScriptedModel(script=script)) as engine:
        answer = await engine.ask("remember tea")
        assert answer.startswith("noted: stored in memory/2026-11-21.md")
        note = next((tmp_path / "workspace" / "people").glob("*/memory/2026-11-21.md"))
        assert "Ada likes tea" in note.read_text()


async def test_a_person_never_finds_what_another_one_said(tmp_path):
    def script(request: Request):
        if request.messages[-1].text.startswith("find"):
            return calls("transcript_search", query="canary")
        return "result: " + "".join(getattr(b, "text", "") for b in request.messages[-1].blocks)

    async with running(tmp_path, model=ScriptedModel(script=script)) as engine:
        await engine.ask("my canary is blue", sender="ada")
        assert "blue" not in await engine.ask("find it", sender="eve")
        assert "blue" in await engine.ask("find it", sender="ada")


async def test_sends_are_retried_in_order_and_refused_ones_are_parked(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.delivery.delivery.FIRST_RETRY", 0.001)
    async with running(tmp_path) as engine:
        engine.channel.errors = [
            errors.SendTransient(),
            errors.SendLater(0.001),
            errors.SendTransient(),
        ]
        await engine.say("one")
        await engine.say("two")
        await engine.channel.wait_until(lambda sent: len(sent) == 2)
        assert engine.sent_to("ada") == ["You said: one", "You said: two"]
        engine.channel.errors = [errors.SendRefused("blocked")]
        assert "was not accepted" in await engine.ask("three")
        await engine.ask("four")
        assert "Could not be delivered to you: 1" in await engine.ask("/status")


async def test_what_found_nobody_is_sent_once_they_can_be_reached(engine):
    await engine.ask_each("/remind in 1 hour call Bob", "/remind in 2 hours buy milk")
    engine.channel.errors = [errors.SendUnreachable("blocked")] * 2
    for _ in range(2):
        engine.clock.advance(hours=1)
        await engine.app.engine.reminders.wake()
    await engine.channel.wait_until(lambda _: not engine.channel.errors)
    assert "⏰" not in "".join(engine.sent_to("ada"))
    await engine.say("I am back")
    await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 6)
    late, told, answer = engine.sent_to("ada")[2:4], *engine.sent_to("ada")[4:]
    assert late == ["⏰ call Bob", "⏰ buy milk"]
    assert told == "These 2 messages are from earlier, when I couldn't reach you."
    assert answer == "You said: I am back"
    assert "could not be delivered" not in (await engine.ask("/status")).lower()


async def test_a_daily_reset_is_told_and_can_be_undone(engine):
    await engine.ask("evening talk")
    engine.clock.advance(hours=20)
    await engine.say("good morning")
    await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 3)
    assert engine.sent_to("ada")[1].startswith("A new day")
    assert [m.text for m in engine.model.requests[-1].messages] == ["good morning"]
    assert "Back in" in await engine.ask("/undo")


async def test_a_clock_that_jumps_back_and_comes_back_loses_nothing_and_resets_as_usual(engine):
    await engine.ask("one")
    engine.clock.advance(days=-400)
    await engine.ask("two")
    engine.clock.advance(days=400)
    assert (await engine.ask("three")).startswith("A new day")  # "two" was 400 days ago
    chats = [request for request in engine.model.requests if request.purpose == "chat"]
    said = [[m.text for m in request.messages if m.role == "user"] for request in chats]
    assert said[1] == ["one", "two"]
    assert said[-1][-1] in {"two", "three"}


async def test_unknown_people_get_one_code_and_are_let_in_by_it(tmp_path):
    closed = {"memory": {"dm_policy": "pairing", "allow_from": []}}
    async with running(tmp_path, channels=closed) as engine:
        words = await engine.ask("let me in")
        assert "confidant pairing approve memory" in words
        await engine.say("hello?")
        assert not engine.model.requests
        assert engine.sent_to("ada") == [words]


CLOSED = {"memory": {"dm_policy": "pairing", "allow_from": ["zoe"], "group_policy": "open"}}
CODE = re.compile(r"approve memory ([A-Z2-9]{8})")


async def code_of(engine, sender: str) -> str:
    found = CODE.search(await engine.ask("let me in", sender=sender))
    assert found is not None
    return found[1]


def pending(engine) -> set[str]:
    rows = query(engine.folder, "SELECT code FROM pairing WHERE state = 'pending'")
    return {row[0] for row in rows}


async def test_a_pairing_code_typed_in_a_room_is_void_and_its_holder_is_told(tmp_path):
    async with running(tmp_path, channels=CLOSED) as engine:
        code = await code_of(engine, "ada")
        await engine.say(f"{code} is Ada's", sender="bob", chat="den", chat_type="group")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) > 1)
        assert "Write to me again to get a new one" in engine.sent_to("ada")[1]
        assert engine.sent_to("den")[0].startswith("Someone typed a code here")
        assert pending(engine) == set()
        again = await code_of(engine, "ada")
        assert pending(engine) == {again} != {code}


@pytest.mark.parametrize("typist", ["ada", "eve", "zoe"])
async def test_a_pairing_code_typed_in_a_chat_by_anyone_is_void(tmp_path, typist):
    async with running(tmp_path, channels=CLOSED) as engine:
        code = await code_of(engine, "ada")
        said = await engine.ask(f"my code is {code.lower()}", sender=typist)
        assert said.startswith("That code was for the owner's command line")
        if typist != "ada":
            await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) > 1)
            assert "Write to me again to get a new one" in engine.sent_to("ada")[1]
        assert code not in pending(engine)
        if typist == "zoe":  # who may talk is answered besides
            await engine.channel.wait_until(lambda _: len(engine.sent_to("zoe")) > 1)
        assert len(engine.model.requests) == (typist == "zoe")
        again = await code_of(engine, "ada")
        assert again in pending(engine)
        assert again != code


async def test_strangers_who_ask_and_ask_keep_no_newcomer_out_and_no_code_is_in_a_log(
    tmp_path, capsys, caplog
):
    async with running(tmp_path, channels=CLOSED) as engine:
        given = [await code_of(engine, f"eve{number}") for number in range(4)]
        given.append(await code_of(engine, "newcomer"))
        assert set(given) <= pending(engine)
        await engine.say(given[0], sender="bob", chat="den", chat_type="group")
        await engine.ask(given[1], sender="eve1")
        assert set(given[2:]) == pending(engine)
    written = "".join((*capsys.readouterr(), caplog.text))
    assert "code.void" in written
    assert not [code for code in given if code in written]


async def test_a_second_new_begins_no_second_conversation(engine):
    await engine.ask("hello")
    assert "New conversation" in await engine.ask("/new")
    assert await engine.ask("/new") == "This is already a new conversation."
    assert "with anthropic/scripted-two" in await engine.ask("/new scripted-two")
    assert "scripted-two" in await engine.ask("/model")
    assert "previous conversation" in await engine.ask("/undo")
    await engine.ask("and then")
    assert engine.model.requests[-1].messages[0].text == "hello"


async def test_new_with_words_in_an_empty_conversation_says_them_there(engine):
    await engine.ask_each("hello", "/new")
    await engine.say("/new how are you?")
    await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 4)
    assert engine.sent_to("ada")[2:] == [
        "This is already a new conversation.",
        "You said: how are you?",
    ]


async def test_new_while_the_first_message_is_being_answered_begins_another(engine):
    await engine.ask_each("hello", "/new")
    engine.model.gate = asyncio.Event()
    engine.model.started.clear()
    await engine.say("a first word")
    await engine.model.started.wait()
    assert "/undo brings the last one back" in await engine.ask("/new")
    engine.model.gate.set()


@pytest.mark.parametrize(
    ("wait", "locale", "words"),
    [
        (120, "en", "Your message is saved; please try again in 2 minutes."),
        (61, "en", "try again in 61 seconds"),
        (7300, "en", "try again in 3 hours"),
        (0, "en", "try again in a minute"),
        (300, "zh", "请在 5 分钟后再试"),
    ],
)
async def test_how_long_the_service_wants_to_be_left_alone_is_told(tmp_path, wait, locale, words):
    error = errors.ModelRateLimited()
    error.wait = wait
    async with running(tmp_path, model=ScriptedModel(script=lambda _: error)) as engine:
        assert words in await engine.ask("hello", locale=locale)


async def test_tools_without_end_end_in_words_or_in_saying_so(engine):
    engine.model.script = lambda r: calls("nothing") if r.may_call else "So far: nothing"
    assert await engine.ask("look") == "So far: nothing"
    engine.model.script = lambda _: calls("nothing")
    assert "still have no answer" in await engine.ask("look again")


async def test_what_waits_behind_new_is_not_answered_with_what_was_said_before(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    queue = {"mode": "collect", "debounce": 0}
    async with running(tmp_path, model=model, session={"queue": queue}) as engine:
        await engine.say("running")
        await model.started.wait()
        await engine.say("before")
        await engine.ask("/new")
        await engine.say("after")
        model.gate.set()
        await engine.channel.wait_until(lambda _: "You said: after" in engine.sent_to("ada"))
        assert engine.sent_to("ada")[1:] == [
            "You said: running",
            "You said: before",
            "You said: after",
        ]
        requests = [[m.text for m in request.messages] for request in model.requests]
        assert requests[1:] == [["running", "You said: running", "before"], ["after"]]


class SlowNames(ScriptedModel):
    """A model whose names take until they are released."""

    def __init__(self) -> None:
        super().__init__(gate=asyncio.Event())
        self.asked = 0
        self.names_asked = asyncio.Event()
        self.names_ready = asyncio.Event()

    async def names(self) -> tuple[str, ...]:
        self.asked += 1
        self.names_asked.set()
        await self.names_ready.wait()
        return await super().names()


async def answered(engine: Engine, count: int) -> list[str]:
    await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) >= count)
    return engine.sent_to("ada")


async def test_a_message_whose_caller_gave_up_is_answered(engine):
    pushing = asyncio.create_task(engine.say("hello"))
    await asyncio.sleep(0)  # it is on its way to the disk
    pushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pushing
    assert await answered(engine, 1) == ["You said: hello"]


async def test_a_command_whose_caller_gave_up_is_answered(tmp_path):
    model = SlowNames()
    async with running(tmp_path, model=model) as engine:
        pushing = asyncio.create_task(engine.say("/model"))
        await model.names_asked.wait()
        pushing.cancel()
        model.names_ready.set()
        assert "You can choose" in (await answered(engine, 1))[0]


async def test_a_command_that_the_disk_does_not_let_through_is_answered_later(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.002)
    real, failures = ActiveSessions.of, iter((errors.StorageError(), errors.StorageError()))

    async def of(self, session_id, conversation):
        if (failure := next(failures, None)) is not None:
            raise failure
        return await real(self, session_id, conversation)

    monkeypatch.setattr(ActiveSessions, "of", of)
    async with running(tmp_path) as engine:
        async with asyncio.timeout(60):
            assert "Conversation" in await engine.ask("/status")
        assert await engine.ask("and then") == "You said: and then"
        assert len(engine.sent_to("ada")) == 2


async def test_a_command_is_answered_once_while_its_full_lane_reads_on(tmp_path):
    model = SlowNames()
    async with running(tmp_path, model=model, session={"queue": {"cap": 1}}) as engine:
        for number in range(4):  # more than fits in memory: the lane reads on from its table
            await engine.say(f"n{number}")
        command = asyncio.create_task(engine.say("/model"))
        await model.names_asked.wait()
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda _: "You said: n3" in engine.sent_to("ada"))
        model.names_ready.set()
        await command
        await engine.ask("last")
        assert sum("You can choose" in text for text in engine.sent_to("ada")) == 1
        assert model.asked == 1


async def test_a_command_cut_short_by_the_end_is_answered_after_a_restart(tmp_path):
    model = SlowNames()
    async with running(tmp_path, model=model) as engine:
        command = asyncio.create_task(engine.say("/model"))
        await model.names_asked.wait()
    async with running(tmp_path) as engine:
        assert "You can choose" in (await answered(engine, 1))[0]
    command.cancel()


async def test_a_stop_before_the_reply_has_begun_ends_it_and_the_lane_goes_on(engine):
    for number in range(20):  # at one of them the stop comes before the first step
        sends = [engine.say(f"n{number}"), engine.say("/stop")]
        await asyncio.gather(*sends)
        assert await engine.ask(f"after {number}") is not None
    texts = engine.sent_to("ada")
    await engine.channel.wait_until(lambda _: "You said: after 19" in engine.sent_to("ada"))
    assert [t for t in texts if t in {"Stopped.", "Nothing is running."}]


async def test_half_a_character_from_a_platform_is_answered_and_kept_as_near_as_can_be(tmp_path):
    async with running(tmp_path) as engine:
        odd = {"sender_name": "\udc00", "message_id": "m\ud800"}
        assert await engine.ask("half \ud83d", **odd) == "You said: half \ufffd"
        assert await engine.ask("\ud83d\ude00") == "You said: 😀"
    async with running(tmp_path) as engine:
        await engine.ask("and now?")
        assert engine.model.requests[-1].messages[0].text == "half \ufffd"


async def test_what_a_model_says_that_cannot_be_stored_is_stored_as_near_as_can_be(tmp_path):
    def script(request: Request):
        if len(request.messages) > 1:
            return "half \ud83d"
        use = ToolUse("call", "nothing", {"number": 2**80, "text": "\udc00"})
        return Reply(Message("assistant", (use,)), "tool_use", Usage(1, 1))

    async with running(tmp_path, model=ScriptedModel(script=script)) as engine:
        assert await engine.ask("hello") == "half \ufffd"
    async with running(tmp_path) as engine:
        await engine.ask("and now?")
        uses = [
            block
            for message in engine.model.requests[-1].messages
            for block in message.blocks
            if isinstance(block, ToolUse)
        ]
        assert uses == [ToolUse("call", "nothing", {"number": float(2**80), "text": "\ufffd"})]


async def typed(engine: Engine, text: str) -> str:
    return await engine.ask(text, locale="zh-CN")


async def test_names_choices_and_slashes_may_be_chinese(engine):
    assert "我还认识这些命令" in await typed(engine, "/帮助")
    assert "我还认识这些命令" in await typed(engine, "／help")
    assert "不再提醒你" in await typed(engine, "/notices 关")
    assert "我会提醒你" in await typed(engine, "/notices 打开")
    assert "会显示费用" in await typed(engine, "/usage 开")
    assert "不再显示费用" in await typed(engine, "/usage 关闭")
    assert "不再显示费用" in await typed(engine, "/usage 關閉")
    assert "模型：" in await typed(engine, "/状态")


async def test_reminders_are_set_listed_and_cancelled(engine):
    assert "提醒你：开会" in await typed(engine, "/提醒 两小时后开会")
    listed = await typed(engine, "/提醒列表")
    assert "1. 周六 2026-11-21 14:00 (UTC)：开会" in listed
    assert "/reminders 取消 1" in listed
    assert "已取消：开会" in await typed(engine, "/reminders 取消1")


async def test_words_that_begin_with_a_slash_are_no_command(engine):
    assert await typed(engine, "/吃饭了吗") == "You said: /吃饭了吗"


@dataclass
class Listing(ScriptedModel):
    """A service with models of these names."""

    listed: tuple[str, ...] = ("big", "small")
    fetched: list[str] = field(default_factory=list)

    async def names(self) -> tuple[str, ...]:
        return self.listed


async def test_a_few_models_can_be_pressed(tmp_path):
    async with running(tmp_path, model=Listing(), agent={"model": "big"}) as engine:
        await engine.ask("/model")
        piece = engine.channel.sent[-1]
        assert [each.label for each in piece.buttons] == ["anthropic/small", "offline"]
        await engine.channel.press(piece, "anthropic/small")
        await engine.channel.wait_sent(2)
        assert "uses `anthropic/small`" in engine.channel.sent[-1].text


async def test_a_service_that_lists_nothing_is_asked_for_any(tmp_path):
    async with running(tmp_path, model=Listing(listed=()), agent={"model": "big"}) as engine:
        assert "uses `anthropic/other`" in await engine.ask("/model anthropic/other")
        assert "I don't know that model" in await engine.ask("/model nobody/other")
        assert "I don't know that model" in await engine.ask("/model other")


async def choice(engine: Engine, sender: str = "ada") -> ModelChoice:
    receiving = engine.channel.engine
    assert receiving is not None
    return await receiving.models(Address("memory", "default", sender), sender)


async def test_the_page_offers_what_the_command_does(tmp_path):
    agent = {"model": "big", "choices": ("anthropic/s*",)}
    session = {"owner": ("memory:olga",)}
    model = Listing(listed=("big", "small", "dear"))
    async with running(tmp_path, model=model, agent=agent, session=session) as engine:
        # Before anything was said there is no conversation yet.
        offered = ("anthropic/big", "anthropic/small")
        assert await choice(engine) == ModelChoice("anthropic/big", offered=offered)
        assert "`anthropic/big`, `anthropic/small`." in await engine.ask("/model")
        for wish in ("dear", "anthropic/dear"):
            assert "I don't know that model" in await engine.ask(f"/model {wish}")
        assert "This conversation now uses `anthropic/small`" in await engine.ask("/model small")
        assert (await choice(engine)).chosen == "anthropic/small"
        await engine.ask("hello")
        assert model.requests[-1].model == "small"
        owners = await choice(engine, "olga")
        assert owners.chosen == "anthropic/big"
        assert owners.offered[2:] == ("anthropic/dear", "offline")
        assert "`anthropic/dear`" in await engine.ask("/model dear", sender="olga")
    hundreds = Listing(listed=tuple(f"m{number}" for number in range(300)))
    async with running(tmp_path / "2", model=hundreds, agent={"model": "m0"}) as engine:
        found = await choice(engine)
        assert (len(found.offered), found.more) == (40, 261)
        told = await engine.ask("/model")
        assert (told.count("`"), "and 261 more" in told) == (2 * (1 + 40), True)
        assert not engine.channel.sent[-1].buttons
        assert "uses `anthropic/m299`" in await engine.ask("/model m299")


async def test_the_page_is_told_who_stands_in(tmp_path):
    def script(request: Request) -> str | Exception:
        return errors.ModelOverloaded() if request.model == "big" else "Hello."

    agent = {"model": "big", "fallback": ("small",)}
    async with running(tmp_path, model=Listing(script), agent=agent) as engine:
        await engine.ask("hello")
        found = await choice(engine)
        assert (found.chosen, found.stand_in) == ("anthropic/big", "anthropic/small")


AGENT = {"model": "one", "fallback": ("two",)}
STANDS_IN = "(“anthropic/one” can't be reached right now, so “anthropic/two” is answering.)"
BACK = "(“anthropic/one” is answering again.)"


class Down:
    """A script whose first model fails while it is down."""

    def __init__(self) -> None:
        self.is_down = True

    def __call__(self, request: Request) -> str | Exception:
        if request.model == "one" and self.is_down:
            return errors.ModelOverloaded()
        return f"{request.model} says so"


async def test_it_is_told_once_who_answers_and_once_that_the_first_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr(Breaker, "is_open", lambda _self, _now: False)  # asked each time
    down = Down()
    async with running(tmp_path, model=ScriptedModel(down), agent=AGENT) as engine:
        assert await engine.ask("a") == f"two says so\n\n{STANDS_IN}"
        assert await engine.ask("b") == "two says so"
    async with running(tmp_path, model=ScriptedModel(down), agent=AGENT) as engine:
        assert await engine.ask("c") == "two says so"
        down.is_down = False
        assert await engine.ask("d") == f"one says so\n\n{BACK}"
        assert await engine.ask("e") == "one says so"


async def test_who_chose_another_model_is_told_nothing_of_the_first(tmp_path):
    down = Down()
    async with running(tmp_path, model=ScriptedModel(down), agent=AGENT) as engine:
        await engine.ask_each("a", "/model scripted-two")
        assert await engine.ask("b") == "scripted-two says so"


async def test_the_model_for_chores_summarises_and_saves(tmp_path):
    agent, brain = {"model": "one", "chores": "anthropic/small"}, Brain()
    context = {"enable_memory_flush": True}
    async with running(tmp_path, model=brain, agent=agent, context=context) as engine:
        for number in range(6):
            await engine.ask(f"message {number}: {LONG}")
        await engine.say("/compact")
        await until(lambda: bool(brain.asked("summary")))
        by = {(request.purpose, request.model) for request in brain.requests}
        assert by == {
            *(("chat", "one"), ("flush", "small"), ("summary", "small"), ("title", "small"))
        }


async def test_how_much_the_model_thinks_is_chosen_for_a_conversation_and_outlasts_it(tmp_path):
    async with running(tmp_path) as engine:
        model = engine.model
        assert "Thinking in this conversation: default." in await engine.ask("/think")
        labels = [each.label for each in engine.channel.sent[-1].buttons]
        assert labels == ["off", "low", "medium", "high"]
        await engine.ask("hello")
        assert model.requests[-1].thinking == ""
        assert "from now on: high." in await engine.ask("/think high")
        await engine.ask("hello again")
        await engine.ask("hello", sender="bob")
        assert [each.thinking for each in model.requests[-2:]] == ["high", ""]
        await engine.ask_each("/new", "and now?")
        assert model.requests[-1].thinking == "high"
        assert "You can choose off, low, medium, high" in await engine.ask("/think harder")
        assert "from now on: off." in await engine.ask("/think 关")
    async with running(tmp_path) as engine:
        await engine.ask("after a restart")
        assert engine.model.requests[-1].thinking == "off"
        assert "from now on: default." in await engine.ask("/think default")
        await engine.ask("hello")
        assert engine.model.requests[-1].thinking == ""


@dataclass
class HandedOn:
    """The modules that the gateway hands a message to, in order, as a profiler sees it."""

    modules: list[str] = field(default_factory=list)

    def __enter__(self) -> None:
        sys.setprofile(self._look)

    def __exit__(self, *_exc: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _argument: object) -> None:
        code, caller = frame.f_code, frame.f_back
        if event != "call" or caller is None or code.co_filename == "<string>":
            return
        module = frame.f_globals.get("__name__", "")
        names = code.co_varnames[: code.co_argcount]
        given = [frame.f_locals[each] for each in names if each != "self"]
        if (
            caller.f_globals.get("__name__") == gateway.__name__ != module
            and module.startswith("bot.")
            and any(isinstance(each, Inbound | QueuedMessage) for each in given)
        ):
            self.modules.append(module)


async def test_a_message_that_comes_in_visits_no_module_twice(engine, monkeypatch):
    before_and_after, within, store = HandedOn(), HandedOn(), gateway._store

    def stored(unit, **known):
        with within:
            return store(unit, **known)

    monkeypatch.setattr(gateway, "_store", stored)
    with before_and_after:
        await engine.say("hello")
    assert before_and_after.modules == [
        "bot.gateway.admission",  # whether it is for the bot
        "bot.sessions.inbox",  # as it can be stored
        "bot.commands.commander",  # whether it is a command
        "bot.gateway.lanes",  # to be answered
    ]
    assert within.modules == ["bot.sessions.inbox", "bot.unit_of_work"]
