"""Asking a person whether a tool may be called: one question, one answer, one call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.tools import DecidedCall, ToolContext
from bot.channel import Piece
from bot.gateway.commits import Approvals
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.sessions import approvals
from bot.sessions.inbox import QueuedMessage
from bot.testing import ScriptedModel
from tests.support import Engine, FakeClock, running, until

OWNER = {"owner": ("memory:ada",)}
DEN: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
OPEN = {"memory": {"group_policy": "open"}}
GIVEN = [{"action": "allow", "tools": ("oven",)}]
CLOSED = "That question is no longer open, and nothing was done. Tell me if you still want it."


class Oven:
    """A tool that changes something. `gate`, when set, holds every call."""

    def __init__(self) -> None:
        self.calls: list[Mapping[str, Any]] = []
        self.started = asyncio.Event()
        self.gate: asyncio.Event | None = None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("oven", "Heat the oven.", {"type": "object"}, changes=True)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls.append(dict(arguments))
        self.started.set()
        if self.gate is not None:
            await self.gate.wait()
        return f"the oven has {arguments['degrees']} degrees"


def baking(*degrees: int | str) -> ScriptedModel:
    """A model that heats the oven, once for each number, whenever it is asked to; else it says what
    the last tool answered.
    """

    def script(request: Request) -> str | Reply:
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResult):
            return f"So: {last.text}"
        if "please" not in request.messages[-1].text:
            return "Hello."
        said = Text("Let me see.")
        number = len(request.messages)
        uses = [ToolUse(f"t{number}-{n}", "oven", {"degrees": n}) for n in degrees or (180,)]
        return Reply(Message("assistant", (said, *uses)), "tool_use")

    return ScriptedModel(script)


async def question(engine: Engine, number: int = 1, chat: str = "ada") -> Piece:
    """The n-th question that was asked in a chat."""

    def asked() -> list[Piece]:
        return [p for p in engine.channel.sent if p.buttons and p.address.chat == chat]

    await engine.channel.wait_until(lambda _: len(asked()) >= number)
    return asked()[number - 1]


async def bake(engine: Engine, number: int = 1) -> Piece:
    """The question that a wish to bake leads to, the n-th of the test."""
    await engine.ask("bake, please")
    return await question(engine, number)


def command(asked: Piece, name: str = "allow") -> str:
    return next(b.command for b in asked.buttons if b.command.startswith(f"/{name} "))


async def test_the_person_is_asked_and_what_they_allow_is_done_once(tmp_path):
    oven, model = Oven(), baking()
    async with running(tmp_path, model=model, tools=(oven,), session=OWNER) as engine:
        assert await engine.ask("bake, please") == "Let me see."
        asked = await question(engine)
        assert "May I use `oven` with this?" in asked.text
        assert '"degrees": 180' in asked.text
        assert [button.label for button in asked.buttons] == ["Allow once", "No"]
        assert oven.calls == []
        await engine.channel.press(asked.whole, "Allow once")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 4)
        assert engine.sent_to("ada")[2:] == [
            "Allowed, once: `oven`.",
            "So: the oven has 180 degrees",
        ]
        assert oven.calls == [{"degrees": 180}]
        # The model was shown the question's end, the person's word, the call and what came of it.
        shown = [block for message in model.requests[-1].messages for block in message.blocks]
        results = [block.text for block in shown if isinstance(block, ToolResult)]
        assert results[0].startswith("The person is asked whether this may be done")
        assert results[1] == "the oven has 180 degrees"
        assert len(model.requests) == 2
        # Neither the same button nor its words do it again.
        assert await engine.ask(command(asked)) == CLOSED
        assert await engine.ask(command(asked, "deny")) == CLOSED
        assert len(oven.calls) == 1
        told = [each for each in engine.channel.activities if each.kind == "calling"]
        assert [each.state for each in told] == ["begun", "asked", "begun", "done"]
        assert {each.text for each in told} == {"oven"}


async def test_what_is_denied_is_not_done_and_the_model_knows(tmp_path):
    oven, model = Oven(), baking()
    async with running(tmp_path, model=model, tools=(oven,), session=OWNER) as engine:
        await engine.ask("bake, please")
        await engine.channel.press((await question(engine)).whole, "No")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 4)
        assert engine.sent_to("ada")[2] == "Then I won't: `oven`."
        assert "the person said no" in engine.sent_to("ada")[3]
    assert oven.calls == []


async def test_where_there_are_no_buttons_words_do(tmp_path):
    oven = Oven()
    async with running(tmp_path, model=baking(), tools=(oven,), session=OWNER) as engine:
        asked = await bake(engine)
        assert command(asked) in asked.text
        await engine.ask(command(asked).upper().replace("ALLOW", "Allow"))
        await until(lambda: len(oven.calls) == 1)


async def test_with_one_question_open_its_id_may_be_left_out(tmp_path):
    oven = Oven()
    async with running(tmp_path, model=baking(), tools=(oven,), session=OWNER) as engine:
        assert await engine.ask("/allow") == "No question of mine is open."
        await bake(engine)
        await bake(engine, 2)
        assert (await engine.ask("/deny")).startswith("Several questions are open.")
        assert await engine.ask(command(await question(engine, 2), "deny")) == (
            "Then I won't: `oven`."
        )
        await engine.channel.wait_until(lambda _: "said no" in engine.sent_to("ada")[-1])
        assert await engine.ask("/允许") == "Allowed, once: `oven`."
        await until(lambda: len(oven.calls) == 1)


async def test_only_whoever_was_asked_can_answer(tmp_path):
    oven = Oven()
    async with running(
        tmp_path, model=baking(), tools=(oven,), channels=OPEN, tool_rules=GIVEN
    ) as engine:
        await engine.say("bake, please", sender="bob", **DEN)
        asked = await question(engine, chat="den")
        for sender in ("eve", "ada"):
            await engine.say(command(asked), sender=sender, **DEN)
            await engine.channel.wait_until(
                lambda _: engine.sent_to("den")[-1] == "Only the person I asked can answer that."
            )
            await engine.say("/allow", sender=sender, **DEN)
            await engine.channel.wait_until(
                lambda _: engine.sent_to("den")[-1].startswith("No question of mine")
            )
            # In a chat of their own there is no such question.
            assert await engine.ask(command(asked), sender=sender) == CLOSED
        assert await engine.ask(command(asked), sender="bob") == CLOSED
        assert oven.calls == []
        await engine.say(command(asked), sender="bob", **DEN)
        await until(lambda: len(oven.calls) == 1)


async def test_an_answer_begins_only_what_was_asked_in_its_own_conversation(tmp_path):
    async with running(tmp_path, model=baking(), session=OWNER, tools=(Oven(),)) as engine:
        await engine.ask("bake, please")
        id_ = command(await question(engine)).removeprefix("/allow ")
        database, now = engine.app.core.database, engine.clock()
        found = await database.read(lambda tx: approvals.of_id(tx, id_))
        assert found is not None
        await database.write(lambda tx: approvals.answer(tx, found, now, is_allowed=True))

        async def begun(session: str, answers: str) -> tuple[DecidedCall, ...]:
            inbound = replace(engine.message("yes"), answers=answers)
            conversation = engine.app.core.resolver.resolve(inbound)
            row = QueuedMessage(0, conversation.key, session, inbound, conversation)
            return await Approvals(engine.app.core).begin([row])

        assert await begun(found.session_id, "0" * 8) == ()
        assert await begun(found.session_id, "") == ()
        assert await begun("another", id_) == ()
        (call,) = await begun(found.session_id, id_)
        assert (call.use.id, call.use.name) == (f"approved_{id_}", "oven")
        assert call.verdict == "begun"  # by whoever tried first, and never again


async def test_an_answer_comes_too_late_after_an_hour(tmp_path):
    oven, clock = Oven(), FakeClock()
    async with running(
        tmp_path, model=baking(), tools=(oven,), clock=clock, session=OWNER
    ) as engine:
        asked = await bake(engine)
        clock.advance(minutes=60, seconds=1)
        assert await engine.ask(command(asked)) == CLOSED
        again = await bake(engine, 2)
        clock.advance(minutes=60)
        assert await engine.ask(command(again)) == "Allowed, once: `oven`."
        await until(lambda: len(oven.calls) == 1)


async def test_of_several_calls_the_first_is_asked_about(tmp_path):
    oven, model = Oven(), baking(180, 220)
    async with running(tmp_path, model=model, tools=(oven,), session=OWNER) as engine:
        asked = await bake(engine)
        assert '"degrees": 180' in asked.text
        assert '"degrees": 220' not in asked.text
        await engine.ask(command(asked))
        await until(lambda: len(oven.calls) == 1)
    results = [
        block.text
        for message in model.requests[-1].messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    ]
    assert "one call at a time" in results[1]
    assert oven.calls == [{"degrees": 180}]


async def test_a_new_conversation_leaves_no_question_open(tmp_path):
    oven = Oven()
    async with running(tmp_path, model=baking(), tools=(oven,), session=OWNER) as engine:
        asked = await bake(engine)
        await engine.ask("/new")
        assert await engine.ask(command(asked)) == CLOSED
    assert oven.calls == []


async def test_a_call_that_was_forgotten_is_not_made(tmp_path):
    oven = Oven()
    async with running(
        tmp_path, model=baking("a secret heat"), tools=(oven,), session=OWNER
    ) as engine:
        asked = await bake(engine)
        await engine.ask_each("/memory forget a secret heat", "/memory forget yes")
        assert await engine.ask(command(asked)) == CLOSED
    assert oven.calls == []


async def test_a_rule_that_takes_the_tool_away_counts_for_what_was_allowed(tmp_path):
    oven, model, clock = Oven(), baking(), FakeClock()
    sections: dict[str, Any] = {"model": model, "tools": (oven,), "clock": clock, "session": OWNER}
    async with running(tmp_path, **sections) as engine:
        asked = await bake(engine)
    denied = [{"action": "deny", "tools": ("oven",)}]
    async with running(tmp_path, tool_rules=denied, **sections) as engine:
        await engine.say(command(asked))
        await engine.channel.wait_until(
            lambda _: any("may not be used here" in words for words in engine.sent_to("ada"))
        )
    assert oven.calls == []


async def test_an_answer_is_good_after_a_restart(tmp_path):
    oven, model, clock = Oven(), baking(), FakeClock()
    sections: dict[str, Any] = {"model": model, "tools": (oven,), "clock": clock, "session": OWNER}
    async with running(tmp_path, **sections) as engine:
        asked = await bake(engine)
    async with running(tmp_path, **sections) as engine:
        await engine.say(command(asked))
        await engine.channel.wait_until(
            lambda _: "So: the oven has 180 degrees" in engine.sent_to("ada")
        )
    assert oven.calls == [{"degrees": 180}]


async def test_a_made_up_id_answers_nothing(tmp_path):
    oven = Oven()
    async with running(tmp_path, model=baking(), tools=(oven,), session=OWNER) as engine:
        await bake(engine)
        for typed in ("/allow x", "/allow %", "/allow ' OR 1=1 --", "/deny \u202e"):
            assert await engine.ask(typed) == CLOSED
    assert oven.calls == []
