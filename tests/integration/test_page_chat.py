"""What the chat page shows of a conversation, through the whole engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Reply, Request, ToolSpec, Usage
from bot.channel import HistoryItem
from bot.errors import ModelUnreachable
from bot.gateway import attempts
from bot.messages import Message, ToolUse
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.support import PATIENCE, Engine, running, until

CODE = "Here:\n\n```python\nprint(1)"
ANYWHERE: dict[str, Any] = {"agent": {"timezone": ""}}  # the zone is this machine's


async def history(engine: Engine) -> Sequence[HistoryItem]:
    """The conversation as a page that is loaded again has it."""
    assert engine.channel.engine is not None
    return await engine.channel.engine.history(engine.message("").address, 50)


async def shown(engine: Engine) -> list[str]:
    """What the bot said of it."""
    return [line.text for line in await history(engine) if line.role == "bot"]


async def test_that_a_reply_was_stopped_stands_outside_of_its_code(tmp_path: Path):
    model = ScriptedModel(script=lambda _: CODE, gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("show me")
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.say("/stop")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        told = next(text for text in engine.sent_to("ada") if "(stopped)" in text)
    assert told.count("```") % 2 == 0


async def test_what_a_reply_cost_stands_outside_of_its_code_and_is_there_after_a_reload(
    tmp_path: Path,
):
    model = ScriptedModel(script=lambda _: CODE)
    async with running(tmp_path, model=model) as engine:
        await engine.ask("/usage tokens")
        said = await engine.ask("show me")
        assert "print(1)\n```\n\n_" in said
        assert (await shown(engine))[-1] == said
    async with running(tmp_path, model=model) as engine:
        assert (await shown(engine))[-1] == said
        await engine.ask("/usage off")
        said = await engine.ask("show me")
        assert (await shown(engine))[-1] == said == CODE


async def test_the_zone_of_the_browser_counts_for_who_chose_none(tmp_path: Path):
    async with running(tmp_path, **ANYWHERE) as engine:
        assert "it is mine" in await engine.ask("/timezone")
        said = await engine.ask("/timezone", zone="Asia/Kathmandu")
        assert "it is your browser's: Asia/Kathmandu" in said
        await engine.ask("/remind every day at 8 stretch", zone="Asia/Kathmandu")
        assert query(tmp_path, "SELECT zone FROM repeats") == [("Asia/Kathmandu",)]
        await engine.ask("hello", zone="Asia/Tokyo")  # they travelled
        assert query(tmp_path, "SELECT zone FROM repeats") == [("Asia/Tokyo",)]
        assert "it is mine" in await engine.ask("/timezone", sender="bob")
    async with running(tmp_path, **ANYWHERE) as engine:
        assert "your browser's: Asia/Tokyo" in await engine.ask("/timezone")


async def test_a_zone_that_was_chosen_comes_before_that_of_the_browser(tmp_path: Path):
    async with running(tmp_path, **ANYWHERE) as engine:
        await engine.ask("/timezone Berlin", zone="Asia/Tokyo")
        assert "Europe/Berlin" in await engine.ask("/timezone", zone="Asia/Kathmandu")
        assert "Asia/Kathmandu" in await engine.ask("/timezone auto")
    for chosen in (
        {"agent": {"timezone": "Europe/Oslo"}},
        {
            **ANYWHERE,
            "session": {
                "timezones": {"ada": "Europe/Oslo"},
                "identity_links": {"ada": ["memory:ada"]},
            },
        },
    ):
        async with running(tmp_path, **chosen) as engine:
            assert "Europe/Oslo" in await engine.ask("/timezone", zone="Asia/Tokyo")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "UTC\0"])
async def test_a_zone_that_is_none_changes_nothing(tmp_path: Path, zone: str):
    async with running(tmp_path, **ANYWHERE) as engine:
        assert "it is mine" in await engine.ask("/timezone", zone=zone)
    assert query(tmp_path, "SELECT * FROM told_zones") == []


async def test_forgetting_is_confirmed_by_buttons(tmp_path: Path):
    async with running(tmp_path) as engine:
        await engine.ask("My locker code is 4711.")
        await engine.ask("/memory forget 4711")
        [*_, asked] = engine.channel.sent
        assert [each.command for each in asked.buttons] == [
            "/memory forget yes",
            "/memory forget no",
        ]
        assert "Nothing was forgotten" in await engine.ask(asked.buttons[1].command)
        await engine.ask("/memory forget 4711")
        assert "Forgotten:" in await engine.ask(asked.buttons[0].command)


@pytest.mark.parametrize(("words", "is_found"), [("harbour", True), ("xylophone", False)])
async def test_a_search_says_what_for_and_whether_it_found_any(
    tmp_path: Path, words: str, *, is_found: bool
):
    use = ToolUse("c1", "transcript_search", {"query": f"{words}\n  "})

    def script(request: Request) -> str | Reply:
        last = request.messages[-1]
        if "go" in last.text.split():
            return Reply(Message("assistant", (use,)), "tool_use", Usage(1, 1))
        return "Done."

    async with running(tmp_path, model=ScriptedModel(script=script)) as engine:
        await engine.ask("The harbour opens at seven.")
        await engine.ask("/new")
        await engine.ask("go")
        looked = [each for each in engine.channel.activities if each.kind == "searching"]
    assert [(each.state, each.text) for each in looked] == [("begun", words), ("done", words)]
    assert looked[0].id == looked[1].id
    assert (looked[1].found > 0) is is_found


async def test_a_turn_that_failed_says_which_message_may_be_asked_again(tmp_path: Path):
    model = ScriptedModel(script=lambda _: ModelUnreachable())
    async with running(tmp_path, model=model) as engine:
        asked = await engine.say("are you there?")
        await engine.channel.wait_sent(1)
        assert engine.channel.sent[0].failed == (asked.message_id,)
    async with running(tmp_path, model=model) as engine:  # also when it is read back
        line = (await history(engine))[-1]
        assert line.failed == (asked.message_id,)
        again = replace(asked, message_id=f"again-{line.id}", sent_at=asked.sent_at + 1)
        model.script = lambda request: f"You said: {request.messages[-1].text}"
        for _ in range(3):  # pressed again, on another page, on another node
            await engine.channel.push(again)
        await engine.channel.wait_sent(1)
        await engine.ask("good bye")
        assert engine.sent_to("ada") == ["You said: are you there?", "You said: good bye"]
        assert [line.failed for line in await history(engine) if line.failed] == [line.failed]
        assert all(not piece.failed for piece in engine.channel.sent)


async def test_what_was_asked_in_a_burst_is_asked_again_together(tmp_path: Path):
    model, queue = ScriptedModel(gate=asyncio.Event()), {"mode": "collect", "debounce": 0}
    async with running(tmp_path, model=model, session={"queue": queue}) as engine:
        await engine.say("first")
        await asyncio.wait_for(model.started.wait(), 30)
        burst = [await engine.say(text) for text in ("second", "third")]
        model.script = lambda _: ModelUnreachable()
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_sent(2)
        assert engine.channel.sent[1].failed == tuple(each.message_id for each in burst)


async def test_a_message_that_says_nothing_or_was_stopped_is_no_failure(tmp_path: Path):
    model = ScriptedModel(script=lambda _: "Once upon a time", gate=asyncio.Event())
    async with running(tmp_path, model=model, limits={"each": {"day_tokens": 10}}) as engine:
        await engine.say("tell me")
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.say("/stop")
        await engine.channel.wait_until(lambda sent: len(sent) >= 2)
        model.gate = None
        assert "limit" in (await engine.ask("and on?")).lower()  # nothing is left for today
        assert [piece.failed for piece in engine.channel.sent if piece.failed] == []


async def test_an_empty_reply_may_be_asked_again(tmp_path: Path):
    async with running(tmp_path, model=ScriptedModel(script=lambda _: "")) as engine:
        asked = await engine.say("well?")
        await engine.channel.wait_sent(1)
        assert engine.channel.sent[0].failed == (asked.message_id,)


async def test_a_message_set_aside_may_be_asked_again(tmp_path: Path, monkeypatch: Any):
    async with running(tmp_path) as engine:
        await engine.ask("hello")

    async def broken(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(attempts, "MAX_TRIES", 1)
    monkeypatch.setattr("bot.gateway.requests.Requests.of", broken)
    async with running(tmp_path) as engine:
        asked = await engine.say("never")
        await engine.channel.wait_sent(1)
        assert engine.channel.sent[0].failed == (asked.message_id,)
        assert (await history(engine))[-1].failed == (asked.message_id,)


def calls(*uses: ToolUse) -> Reply:
    return Reply(Message("assistant", uses), "tool_use", Usage(1, 1))


def steps(engine: Engine) -> list[tuple[str, str, str]]:
    shown = [each for each in engine.channel.activities if each.kind in {"searching", "calling"}]
    return [(each.id.partition(".")[2], each.text, each.state) for each in shown]


async def test_tools_are_told_by_name_with_how_they_ended_and_nothing_of_what_they_said(
    tmp_path: Path,
):
    long = "x" * 300
    script = [
        calls(
            ToolUse("call_0", "memory_write", {"text": "tea, secret-1"}),
            ToolUse("call_1", long, {"query": "secret-2"}),
        ),
        calls(ToolUse("call_0", "memory_get", {"path": "secret-3.md"})),  # with an id used before
        "Done.",
    ]
    model = ScriptedModel(script=lambda _: script[len(model.requests) - 1])
    async with running(tmp_path, model=model) as engine:
        await engine.ask("go")
        drafts = {each.draft for each in engine.channel.activities}
        assert drafts == {engine.channel.sent[0].draft}
        assert steps(engine) == [
            ("1", "memory_write", "begun"),
            ("1", "memory_write", "done"),
            ("2", "x" * 120, "begun"),
            ("2", "x" * 120, "failed"),
            ("3", "memory_get", "begun"),
            ("3", "memory_get", "failed"),
        ]
        assert "secret" not in str([asdict(each) for each in engine.channel.activities])


async def test_of_very_many_calls_the_first_are_told(tmp_path: Path):
    uses = [ToolUse(f"c{n}", "memory_get", {"path": "no.md"}) for n in range(100)]
    model = ScriptedModel(script=lambda _: calls(*uses) if len(model.requests) == 1 else "Done.")
    async with running(tmp_path, model=model) as engine:
        await engine.ask("go")
        assert len(steps(engine)) == 2 * 64


async def test_a_call_that_is_stopped_did_not_work(tmp_path: Path):
    use = ToolUse("c1", "slow", {})
    begun = asyncio.Event()

    class Slow:
        spec = ToolSpec("slow", "Takes for ever.", {"type": "object"})

        async def run(self, arguments: object, context: object) -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

    model, owner = ScriptedModel(script=lambda _: calls(use)), {"owner": ("memory:ada",)}
    async with running(tmp_path, model=model, tools=(Slow(),), session=owner) as engine:
        await engine.say("go")
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await engine.say("/stop")
        await until(lambda: len(steps(engine)) == 2)
        assert [state for *_, state in steps(engine)] == ["begun", "failed"]
