"""`write_elsewhere`: to other places of the same person, once they allowed it, and to no others."""

from __future__ import annotations

from typing import Any

import pytest

from bot.agent.models import Reply, Request
from bot.agent.tools.sending import MAX_TEXT, MOST
from bot.channel import Piece
from bot.errors import SendUnreachable
from bot.messages import Message, ToolResult, ToolUse
from bot.testing import ScriptedModel
from tests.support import Engine, running, until

ADA = {"identity_links": {"ada": ("memory:ada", "memory:ada2")}, "owner": ("memory:boss",)}
ROOMS = {"memory": {"group_policy": "open"}}
DEN: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}


def writing(*places: str, text: str = "Dinner at 7.") -> ScriptedModel:
    """A model that writes to each of these places in turn, and says what came of it."""
    left = list(places)

    def script(request: Request) -> str | Reply:
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResult):
            return last.text
        if "please" not in request.messages[-1].text:
            return "Hello."
        number = len(request.messages)
        use = ToolUse(f"t{number}", "write_elsewhere", {"to": left.pop(0), "text": text})
        return Reply(Message("assistant", (use,)), "tool_use")

    return ScriptedModel(script)


def running_with(tmp_path: Any, model: ScriptedModel, **changes: Any) -> Any:
    sections: dict[str, Any] = {"session": ADA, "channels": ROOMS}
    return running(tmp_path, model=model, **(sections | changes))


async def asked(engine: Engine, chat: str = "ada") -> Piece:
    """Have it asked for; the question that this leads to."""

    def questions() -> list[Piece]:
        return [p for p in engine.channel.sent if p.buttons and p.address.chat == chat]

    before = len(questions())
    await engine.say("write it, please", sender=chat)
    await engine.channel.wait_until(lambda _: len(questions()) > before)
    return questions()[-1]


async def test_to_a_room_of_theirs_after_they_said_yes_and_once(tmp_path):
    async with running_with(tmp_path, writing("den")) as engine:
        await engine.say("hi", **DEN, sender_name="Ada [x](y)")
        await engine.channel.wait_sent(1)
        await engine.ask("hello", sender_name="Ada [x](y)")
        question = await asked(engine)
        assert "Dinner at 7." in question.text
        assert len(engine.sent_to("den")) == 1
        await engine.channel.press(question.whole, "Allow once")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) == 2)
        words = engine.sent_to("den")[1]
        assert words.startswith("✉️ Dinner at 7.\n\n(From ")
        assert words.endswith(", ada, who asked me to write this.)")
        assert "[" not in words
        await engine.ask("/allow")
        assert len(engine.sent_to("den")) == 2
        # What was said in private is not shown to the model that goes on there.
        await engine.say("what?", **DEN)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) == 3)
        assert not any("Dinner" in str(m) for m in engine.model.requests[-1].messages)


async def test_to_another_chat_of_their_own_and_in_no_other_name(tmp_path):
    session = ADA | {"dm_scope": "per-account-channel-peer"}
    async with running_with(tmp_path, writing("memory/work"), session=session) as engine:
        await engine.say("hi", account="work", chat="desk")
        await engine.say("hi", account="work", chat="bobs", sender="bob")
        await engine.channel.wait_sent(2)
        question = await asked(engine)
        await engine.channel.press(question.whole, "Allow once")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("desk")) == 2)
        last = next(
            piece for piece in reversed(engine.channel.sent) if piece.address.chat == "desk"
        )
        assert last.text == "✉️ Dinner at 7.\n\n(You asked for this in another chat.)"
        assert (last.address.account, last.kind) == ("work", "reminder")
        assert len(engine.sent_to("bobs")) == 1


async def test_no_means_no(tmp_path):
    async with running_with(tmp_path, writing("den")) as engine:
        await engine.say("hi", **DEN)
        await engine.channel.wait_sent(1)
        question = await asked(engine)
        await engine.channel.press(question.whole, "No")
        await engine.channel.wait_until(lambda _: "said no" in engine.sent_to("ada")[-1])
        assert len(engine.sent_to("den")) == 1


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("bob", "no such place"),  # a direct chat of somebody else's
        ("closet", "no such place"),  # a room where only Bob was answered
        ("attic", "no such place"),  # … and one where nobody is answered any more
        ("memory:ada", "no such place"),  # where it is asked
        ("room", "several places are called so"),
        ("x" * 300, "at most 200"),
        (" ", "is empty"),
    ],
)
async def test_what_is_not_theirs_is_refused_before_anybody_is_asked(tmp_path, to, why):
    groups = {"attic": {"enabled": False}}
    channels = {"memory": {"group_policy": "open", "groups": groups}}
    async with running_with(tmp_path, writing(to), channels=channels) as engine:
        await engine.ask("hi", sender="bob")
        await engine.say("hi", **(DEN | {"chat": "closet"}), sender="bob")
        for room in ("den", "hall", "attic"):
            await engine.say("hi", **(DEN | {"chat": room}))
        await engine.channel.wait_until(
            lambda _: all(map(engine.sent_to, ("closet", "den", "hall", "attic")))
        )
        answer = await engine.ask("write it, please")
        assert why in answer
        assert "closet" not in answer
        assert "bob" not in answer
        assert not [piece for piece in engine.channel.sent if piece.buttons]


async def test_nobody_in_a_room_hears_of_anybodys_places(tmp_path):
    async with running_with(tmp_path, writing("den")) as engine:
        await engine.ask("hello")
        await engine.say("write it, please", **DEN)
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("den")))
        assert "in a direct chat only" in engine.sent_to("den")[0]
        assert not [piece for piece in engine.channel.sent if piece.buttons]


async def test_a_room_where_nobody_answered_them_for_a_month_is_not_theirs(tmp_path):
    async with running_with(tmp_path, writing("den", "den")) as engine:
        await engine.say("hi", **DEN)
        await engine.channel.wait_sent(1)
        engine.clock.advance(days=29)
        await asked(engine)
        engine.clock.advance(days=2)
        await engine.say("write it, please")
        await engine.channel.wait_until(lambda _: "no such place" in engine.sent_to("ada")[-1])


async def test_what_cannot_be_delivered_waits_like_a_reminder(tmp_path):
    async with running_with(tmp_path, writing("den")) as engine:
        await engine.say("hi", **DEN)
        await engine.channel.wait_sent(1)
        question = await asked(engine)
        await engine.channel.press(question.whole, "Allow once")

        async def send(piece: Piece) -> str:
            if piece.address.chat == "den":
                raise SendUnreachable("not there")
            return await type(engine.channel).send(engine.channel, piece)

        engine.channel.send = send  # type: ignore[method-assign]
        await engine.channel.wait_until(lambda _: "together with" in engine.sent_to("ada")[-1])
        parked = "SELECT count(*) FROM outbox WHERE state = 'parked' AND again = 2"
        database = engine.app.core.database

        async def waits() -> int:
            return int((await database.read(lambda tx: tx.execute(parked)))[0][0])

        while not await waits():
            await until(lambda: True)
        assert len(engine.sent_to("den")) == 1


async def test_an_hour_takes_only_so_many(tmp_path):
    async with running_with(tmp_path, writing(*["den"] * (MOST + 1))) as engine:
        await engine.say("hi", **DEN)
        await engine.channel.wait_sent(1)
        for number in range(MOST):
            question = await asked(engine)
            await engine.channel.press(question.whole, "Allow once")
            count = number + 2
            await engine.channel.wait_until(lambda _, n=count: len(engine.sent_to("den")) == n)
        assert f"{MOST} messages in an hour" in await engine.ask("write it, please")


async def test_a_text_that_is_too_long_is_refused(tmp_path):
    async with running_with(tmp_path, writing("den", text="x" * (MAX_TEXT + 1))) as engine:
        await engine.say("hi", **DEN)
        await engine.channel.wait_sent(1)
        assert f"at most {MAX_TEXT}" in await engine.ask("write it, please")
