"""What a model thinks on its way to a reply: seen by whoever watches, kept nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from bot.agent.models import Request
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.channel import Activity, Address, HistoryItem
from bot.config import ServiceConfig
from bot.errors import ModelOverloaded, ModelRejected
from bot.identity.view import MemoryView
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse
from bot.sessions import browsing, entries, forgetting
from bot.sessions.entries import Entry
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes import completions_api, messages_api
from tests.fakes.brain import query, settled
from tests.fakes.messages_api import Answer
from tests.fakes.text_store import TextStoreInMemory
from tests.support import NOON, Engine, FakeClock, beside, running, until

SECRET = "zqwhalesong"
LOOK = json.dumps({"query": "boats"})


class Thinker:
    """A server of one kind: it thinks, calls a tool, thinks again, and answers.

    The first reply waits for `goes_on` in the midst of its thoughts.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.goes_on = asyncio.Event()
        self.bodies: list[dict[str, Any]] = []

    @asynccontextmanager
    async def model(self) -> AsyncGenerator[Any]:
        fake, adapter = (
            (messages_api, AnthropicModel)
            if self.kind == "thinking"
            else (completions_api, OpenAIModel)
        )
        async with fake.running() as server:
            server.bodies = self.bodies
            server.answers = [self._first(), self._second(), fake.says("All right.")]
            config = ServiceConfig(base_url=server.base_url, api_key=SecretStr("k"))
            made = adapter(config, window_store=TextStoreInMemory(), max_retries=0)
            yield made
            await made.close()

    def _first(self) -> Answer:
        if self.kind == "thinking":
            begun, rest = _anthropic_thought(0)
            use = {"type": "tool_use", "id": "toolu_1", "name": "transcript_search", "input": {}}
            looks = {"type": "input_json_delta", "partial_json": LOOK}
            events = (*rest, *messages_api.block(1, use, looks), *messages_api.end("tool_use"))
            return self._paused([messages_api.start(input_tokens=9), *begun], events)
        call = completions_api.call(0, "transcript_search", LOOK, "call_1")
        calls = completions_api.chunk("tool_calls", tool_calls=[call])
        begun, rest = self._completion_thought()
        return self._paused(begun, [*rest, calls, completions_api.DONE])

    def _second(self) -> Answer:
        if self.kind == "thinking":
            begun, rest = _anthropic_thought(0)
            said = messages_api.text(1, "Here they are.")
            ended = messages_api.end(output_tokens=5)
            return messages_api.streams(messages_api.start(), *begun, *rest, *said, *ended)
        begun, rest = self._completion_thought()
        said = completions_api.chunk("stop", content="Here they are.")
        return completions_api.streams(*begun, *rest, said, completions_api.DONE)

    def _completion_thought(self) -> tuple[list[Any], list[Any]]:
        chunk = completions_api.chunk
        if self.kind == "<think>":
            begun = [chunk(content="<think>Hm, "), chunk(content=f"{SECRET} it is, I think")]
            return begun, [chunk(content=".</think>\n")]
        return [chunk(**{self.kind: "Hm, "}), chunk(**{self.kind: SECRET})], []

    def _paused(self, begun: Sequence[Any], rest: Sequence[Any]) -> Answer:
        sse = messages_api.sse if self.kind == "thinking" else completions_api.sse

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for event in (*begun, None, *rest):
                if event is None:
                    await self.goes_on.wait()
                else:
                    await response.write(event if isinstance(event, bytes) else sse(event))
            await response.write_eof()
            return response

        return answer


def _anthropic_thought(index: int) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    start = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = ({"type": "thinking_delta", "thinking": piece} for piece in ("Hm, ", SECRET))
    signed = {"type": "signature_delta", "signature": "c2ln"}
    opening, *middle, closing = messages_api.block(index, start, *deltas, signed)
    return [opening, *middle[:-1]], [middle[-1], closing]


def thoughts(engine: Engine) -> list[Activity]:
    return [each for each in engine.channel.activities if each.kind == "thinking"]


@pytest.mark.parametrize("kind", ["thinking", "reasoning_content", "reasoning", "<think>"])
async def test_it_is_seen_while_it_is_thought_and_goes_to_its_service_alone_afterwards(
    tmp_path, kind, caplog, logs
):
    caplog.set_level(logging.DEBUG)
    thinker = Thinker(kind)
    context = {"enable_memory_flush": True}
    async with (
        thinker.model() as model,
        running(tmp_path, model=model, agent={"model": "one"}, context=context) as engine,
    ):
        await engine.say("what did I say of boats?")
        await until(lambda: any(SECRET in each.text for each in thoughts(engine)))
        assert not engine.channel.drafts
        thinker.goes_on.set()
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada") == ["Here they are."]
        assert thoughts(engine)[-1] == replace(thoughts(engine)[-1], state="done", text="")
        # The service has its thoughts back with what its tool answered …
        during = json.dumps(thinker.bodies[1])
        assert (SECRET in during) is (kind != "<think>")
        # … and with that call in the same conversation; in no other, no summary and no saving.
        await engine.ask("and now?")
        await engine.ask("who are you?", sender="bob")
        await engine.ask("/new")
        await settled()
        await engine.ask("and then?")
        for body in thinker.bodies[2:]:
            others = [each for each in body["messages"] if each["role"] != "assistant"]
            assert SECRET not in json.dumps({**body, "messages": others})
        assert SECRET not in json.dumps(thinker.bodies[-1])
        assert len(thinker.bodies) >= 6
        assert SECRET not in "".join([*engine.channel.drafts, *engine.sent_to("ada")])
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert any(each.name == "confidant.db" for each in files)
    for each in files:  # its conversation keeps it, for its service alone
        is_kept = kind != "<think>" and (
            each.name.startswith("confidant") or each.suffix == ".jsonl"
        )
        assert is_kept or SECRET.encode() not in each.read_bytes(), each
    assert logs
    assert SECRET not in f"{logs}{caplog.text}"


async def test_claude_is_asked_to_tell_what_it_thinks_where_it_thinks_by_itself(monkeypatch):
    refuses = messages_api.fails(400, "invalid_request_error", "thinking.display: not permitted")
    async with messages_api.running(
        messages_api.says("Hi"), refuses, messages_api.says("Hi")
    ) as to:
        monkeypatch.setattr(AnthropicModel, "default_url", to.base_url)
        config = ServiceConfig(api_key=SecretStr("k"))
        model = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
        asked = Request("claude-opus-5-5", "", (Message("user", (Text("hello"),)),))
        watched = replace(asked, on_thought=lambda _: None)
        older = replace(watched, model="claude-opus-4-6")
        for request in (watched, watched, watched, asked, older):
            assert [event async for event in model.stream(request)]
        await model.close()
    wish = {"type": "adaptive", "display": "summarized"}
    # It was refused once: from then on it is not asked for any more.
    assert [body.get("thinking") for body in to.bodies] == [wish, wish, *[None] * 4]


async def test_thoughts_that_a_model_does_not_take_back_are_left_out():
    words = "messages.1.content.0: `thinking` blocks must remain as they were"
    refuses = messages_api.fails(400, "invalid_request_error", words)
    thought = Opaque({"type": "thinking", "thinking": "Hm", "signature": "eA=="})
    asked = Request(
        "claude-opus-5-5",
        "",
        (
            Message("user", (Text("hello"),)),
            Message("assistant", (thought, ToolUse("t1", "look", {}))),
            Message("user", (ToolResult("t1", "seen"),)),
        ),
    )
    async with messages_api.running(refuses, messages_api.says("Hi"), refuses) as server:
        config = ServiceConfig(base_url=server.base_url, api_key=SecretStr("k"))
        model = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
        assert [event async for event in model.stream(asked)]
        shown = [body["messages"][1]["content"] for body in server.bodies]
        assert [[block["type"] for block in each] for each in shown] == [
            ["thinking", "tool_use"],
            ["tool_use"],
        ]
        with pytest.raises(ModelRejected):  # with nothing left to leave out it is told
            assert [event async for event in model.stream(asked)]
        assert len(server.bodies) <= 8
        await model.close()


async def test_it_is_gone_when_the_answer_begins_and_another_thought_is_another(engine):
    engine.model.thinks, engine.model.thought_gate, engine.model.gate = (
        "One and two",
        asyncio.Event(),
        asyncio.Event(),
    )
    await engine.say("hello")
    await until(lambda: bool(thoughts(engine)) and bool(thoughts(engine)[-1].text))
    begun, thought = thoughts(engine)
    assert (begun.state, begun.text) == ("begun", "")
    assert (thought.state, thought.text) == ("begun", "One and two ")
    assert engine.model.thought_gate is not None
    assert engine.model.gate is not None
    engine.model.thought_gate.set()
    await until(lambda: thoughts(engine)[-1].state == "done")
    assert not engine.sent_to("ada")
    engine.model.gate.set()
    await engine.channel.wait_sent(1)
    assert len({each.id for each in thoughts(engine)}) == 1


async def test_of_a_long_thought_the_end_is_shown(engine):
    engine.model.thinks, engine.model.thought_gate = "a " * 9_000 + "end", asyncio.Event()
    await engine.say("hello")
    await until(lambda: bool(thoughts(engine)) and bool(thoughts(engine)[-1].text))
    shown = thoughts(engine)[-1].text
    assert shown.endswith("end ")
    assert len(shown) == 4_000
    await engine.ask("/stop")
    await until(lambda: thoughts(engine)[-1].state == "done")


@pytest.mark.parametrize("where", ["room", "direct"])
async def test_in_a_room_nobody_sees_it_nor_where_replies_are_not_shown_as_they_grow(
    tmp_path, where
):
    model = ScriptedModel(thinks="One and two", thought_gate=asyncio.Event())
    room = {"chat": "den", "chat_type": "group", "mentions_bot": True}
    channels = {"memory": {"group_policy": "open", "streaming": where == "room"}}
    async with running(tmp_path, model=model, channels=channels) as engine:
        await engine.say("hello", **(room if where == "room" else {}))
        await until(lambda: bool(engine.channel.typed))  # by then it would be seen
        assert model.thought_gate is not None
        model.thought_gate.set()
        await engine.channel.wait_sent(1)
        assert bool(engine.channel.drafts) is (where == "room")
        assert not thoughts(engine)


async def test_it_is_paid_for_also_when_it_leads_to_nothing(tmp_path):
    class Breaking(ScriptedModel):
        """Thinks, and is down before its first word."""

        async def stream(self, request: Any) -> Any:
            if request.on_thought is not None:
                request.on_thought("One and two and three and four")
            if request.model == "one":
                raise ModelOverloaded
            async for event in super().stream(request):
                yield event

    agent = {"model": "one", "fallback": ("two",)}
    async with running(tmp_path, model=Breaking(), agent=agent) as engine:
        assert (await engine.ask("hello")).startswith("You said: hello")
    rows = dict(query(tmp_path, "SELECT model, output_tokens FROM usage_counts"))
    assert rows["anthropic/one"] > 0


ADA = Address("memory", "default", "ada")


async def history(engine: Engine, limit: int = 100, before: str = "") -> list[HistoryItem]:
    return list(await engine.channel.engine.history(ADA, limit, before))


def words(items: list[HistoryItem]) -> list[str]:
    return [item.text.partition(".")[0] if item.text else f"({item.role})" for item in items]


async def test_the_conversation_that_goes_on_is_read_back_to_its_beginning(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask_each("an earlier one", "/new", *map(str, range(8)))
        await engine.ask("of bob", sender="bob")
        whole = await history(engine)
        assert not whole[0].place
        before = whole[-1].place
        read = whole[-1:]
        while before:
            found = await history(engine, 5, before)
            assert len(found) <= 5
            read = found + read
            before = found[0].place
    assert [(i.id, i.text) for i in read] == [(i.id, i.text) for i in whole]
    assert whole[0].role == "divider"
    assert words(whole)[:2] == ["New conversation", "0"]
    assert not {"of bob", "an earlier one", "/new"} & {*words(whole)}


@pytest.mark.parametrize("before", ["nothing.1", "%", "x" * 200])
async def test_before_a_place_that_is_not_there_there_is_nothing(before, engine):
    await engine.ask("hello")
    assert await history(engine, 5, before) == []


async def test_a_command_that_changes_the_conversation_is_a_sentence_between_its_lines(
    tmp_path,
):
    async with running(tmp_path) as engine:
        await engine.ask_each("first", "/new", "second", "/undo", "third", "/model", "/think high")
        shown = [(item.role, item.text.split("\n")[0]) for item in await history(engine)]
    assert [each for each in shown if each[0] == "divider"] == [
        ("divider", "Back in the previous conversation (2 entries). The other one is kept."),
        ("divider", "Thinking in this conversation from now on: high."),
    ]
    said = [words for role, words in shown if role == "user"]
    assert said == ["first", "third", "/model"]  # below which there are models to press


async def test_a_text_that_tells_of_another_conversation_says_with_what_it_begins(tmp_path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("first")
        said = await engine.say("/new")
        await engine.channel.wait_until(lambda found: len(found) > 1)
        assert [piece.whole.begins for piece in engine.channel.sent] == ["", said.message_id]
        assert [piece.whole.aside for piece in engine.channel.sent] == ["", said.message_id]
        await engine.ask("/new")  # there is nothing to begin
        await engine.ask("second")
        clock.advance(days=2)
        said = await engine.say("another day")
        await engine.channel.wait_until(lambda found: len(found) > 5)
        assert [piece.whole.begins for piece in engine.channel.sent[2:]] == [
            "", "", said.message_id, "",
        ]  # fmt: skip
        shown = words(await history(engine))
    assert shown == ["A new day, a new conversation", "another day", "You said: another day"]


async def test_stopping_stands_below_the_question_that_was_stopped(tmp_path):
    """The question is stored with what there is of its answer, after the command that ended it."""
    clock = FakeClock()
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, clock=clock, model=model) as engine:
        await engine.say("a long question")
        await model.started.wait()
        clock.advance(seconds=5)
        await engine.ask("/stop")
        await until(lambda: len(query(tmp_path, "SELECT 1 FROM entries")) >= 3)
        shown = await history(engine)
    assert words(shown)[:2] == ["a long question", "Stopped"]
    assert [item.role for item in shown][:2] == ["user", "divider"]
    assert shown[0].at == NOON


async def test_a_reply_that_was_stopped_says_so_now_and_when_it_is_read_back(tmp_path):
    model = ScriptedModel(script=lambda _: "A long answer", gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("a long question")
        await model.started.wait()
        await engine.ask("/stop")
        await engine.channel.wait_until(lambda sent: any(each.whole.stopped for each in sent))
        shown = await history(engine)
    assert [(item.text, item.stopped) for item in shown[2:]] == [
        ("A", False),
        ("(stopped)", True),
    ]


def line(kind: str, number: int, at: int, said_at: int) -> Entry:
    what: Any = "message" if kind in {"asked", "answer"} else kind
    role: Any = "user" if kind in {"asked", "command"} else "assistant"
    return Entry(f"s.{number}", None, what, role, at, f"{number}", (), "", said_at=said_at)


@pytest.mark.parametrize(
    ("said", "order"),
    [
        # A command beside a turn, and what it said.
        ([("command", 5, 5), ("notice", 5, 0), ("asked", 9, 1)], "312"),
        # What was asked before, and answered, stays before.
        ([("answer", 5, 0), ("asked", 9, 1)], "12"),
        # Said after the command.
        ([("command", 5, 4), ("notice", 5, 0), ("asked", 9, 6)], "123"),
        # Between the command and its answer: those two stay together.
        ([("command", 5, 3), ("notice", 5, 0), ("asked", 9, 4)], "123"),
        # Before the notice that its conversation has begun.
        ([("notice", 5, 0), ("asked", 9, 4)], "21"),
        # When it was said is not known.
        ([("command", 5, 0), ("asked", 9, 0)], "12"),
    ],
)  # fmt: skip
def test_lines_stand_as_they_were_said(said, order):
    lines = [line(kind, n, at, then) for n, (kind, at, then) in enumerate(said, 1)]
    assert "".join(each.text for each in browsing.in_order(lines)) == order


async def test_when_something_was_said_is_kept_in_its_line(tmp_path):
    new = entries.NewEntry("message", "user", "hi", source="m1", said_at=5)
    entry = entries.parse(entries.line_of(new, "s.1", None, 9))
    assert (entry.at, entry.said_at, entry.said_or_at) == (9, 5, 5)
    assert "saidAt" not in entries.line_of(new, "s.1", None, 5)


async def test_what_was_forgotten_has_no_words_in_the_history(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("my sister is Leonor")
        view = MemoryView("people/ada", (), private=True, people=("memory:ada",))
        async with beside(tmp_path) as database:
            await forgetting.forget(database, view, "Leonor", NOON)
        shown = await history(engine)
    assert words(shown) == ["(user)", *words(shown)[1:]]
    assert len(shown) == 2


class Drafting(InMemoryChannel):
    """A channel that remembers the ids of drafts."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    async def draft(self, address, draft_id, text):
        self.ids.append(draft_id)
        await super().draft(address, draft_id, text)


async def test_a_channels_texts_are_kept_until_an_empty_one_comes(tmp_path):
    async with running(tmp_path) as engine:
        keep = engine.channel.engine.keep
        await keep("memory", "default", "update 1", "one")
        await keep("memory", "default", "update 2", "two")
        await keep("memory", "default", "update 2", "two again")
        await keep("memory", "default_2", "update 1", "another account's")
        await keep("mem%ry", "default", "update 1", "another channel's")
    async with running(tmp_path) as engine:
        keep, kept = engine.channel.engine.keep, engine.channel.engine.kept
        assert await kept("memory", "default") == {"update 1": "one", "update 2": "two again"}
        await keep("memory", "default", "update 1", "")
        await keep("memory", "default", "update 3", "")
        assert await kept("memory", "default") == {"update 2": "two again"}
        assert await kept("memory", "default_2") == {"update 1": "another account's"}
        assert await kept("other", "default") == {}


async def test_a_reply_names_the_draft_it_was_shown_as(tmp_path):
    channel = Drafting()
    async with running(tmp_path, channel=channel) as engine:
        await engine.ask_each("hello", "/whoami", "and again")
    replies = [sent.draft for sent in channel.sent]
    assert replies == [channel.ids[0], "", channel.ids[-1]]
    assert replies[0] != replies[2]


async def test_a_turn_that_is_run_again_shows_the_same_draft(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    model, channel = ScriptedModel(gate=asyncio.Event()), Drafting()
    async with running(tmp_path, model=model, channel=channel) as engine:
        await engine.say("hello there")
        await until(lambda: bool(channel.ids))
    assert channel.sent == []
    again = Drafting()
    async with running(tmp_path, channel=again):
        (sent,) = await again.wait_sent(1)
    assert {sent.draft, *again.ids} == {*channel.ids}


async def test_a_turn_nothing_comes_of_takes_away_what_showed_before(tmp_path):
    channel = Drafting()
    model = ScriptedModel(script=lambda _request: "NO_REPLY")
    async with running(tmp_path, model=model, channel=channel) as engine:
        await engine.say("hello there")
        await until(lambda: bool(channel.drafts))
    assert channel.drafts == [""]
    assert channel.sent == []
