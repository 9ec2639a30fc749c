"""What happens at the same time, or is broken off in the middle, or comes from a broken part."""

from __future__ import annotations

import asyncio

import pytest

from bot.agent.models import Reply, Request, Usage
from bot.errors import StorageError
from bot.messages import Message, ToolUse
from bot.testing import ScriptedModel
from bot.upkeep.active_session import ActiveSessions
from tests.support import Engine, running


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


async def test_a_message_whose_caller_gave_up_is_answered(tmp_path):
    async with running(tmp_path) as engine:
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
    real, failures = ActiveSessions.of, iter((StorageError(), StorageError()))

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


async def test_the_first_message_of_a_slow_new_is_answered_once(tmp_path):
    model = SlowNames()
    async with running(tmp_path, model=model, session={"queue": {"cap": 1}}) as engine:
        for number in range(4):
            await engine.say(f"n{number}")
        command = asyncio.create_task(engine.say("/new hello there"))
        await model.names_asked.wait()
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda _: "You said: n3" in engine.sent_to("ada"))
        model.names_ready.set()
        await command
        await engine.channel.wait_until(lambda _: "You said: hello there" in engine.sent_to("ada"))
        await engine.ask("last")
        texts = engine.sent_to("ada")
        assert sum("New conversation" in text for text in texts) == 1
        assert texts.count("You said: hello there") == 1


async def test_a_command_cut_short_by_the_end_is_answered_after_a_restart(tmp_path):
    model = SlowNames()
    async with running(tmp_path, model=model) as engine:
        command = asyncio.create_task(engine.say("/model"))
        await model.names_asked.wait()
    async with running(tmp_path) as engine:
        assert "You can choose" in (await answered(engine, 1))[0]
    command.cancel()


async def test_a_stop_before_the_reply_has_begun_ends_it_and_the_lane_goes_on(tmp_path):
    async with running(tmp_path) as engine:
        for number in range(20):  # at one of them the stop comes before the first step
            sends = [engine.say(f"n{number}"), engine.say("/stop")]
            await asyncio.gather(*sends)
            assert await engine.ask(f"after {number}") is not None
        texts = engine.sent_to("ada")
        await engine.channel.wait_until(lambda _: "You said: after 19" in engine.sent_to("ada"))
        assert [t for t in texts if t in {"Stopped.", "Nothing is running."}]


async def test_a_model_that_breaks_is_told_once_and_the_lane_goes_on(tmp_path):
    model = ScriptedModel(script=lambda _: KeyError("a mistake of ours"))
    async with running(tmp_path, model=model) as engine:
        assert "could not answer" in await engine.ask("hello")
        model.script = lambda request: f"{len(request.messages)} messages"
        assert await engine.ask("again") == "2 messages"
        assert len(model.requests) == 2


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


async def test_a_flood_from_many_people_at_once_is_answered_once_each_and_in_order(tmp_path):
    async with running(tmp_path, session={"queue": {"cap": 2}}) as engine:
        people = [f"p{n}" for n in range(10)]
        says = [engine.say(f"m{n}", sender=person) for n in range(6) for person in people]
        await asyncio.gather(*says)
        await engine.channel.wait_until(
            lambda _: all(engine.sent_to(person)[-1:] == ["You said: m5"] for person in people)
        )
        for person in people:
            seen = [
                message.text
                for request in engine.model.requests
                for message in request.messages[-2:]
                if message.role == "user"
            ]
            assert seen
            replies = [t for t in engine.sent_to(person) if t.startswith("You said")]
            assert replies == sorted(replies)
            assert len(replies) == len(set(replies))
