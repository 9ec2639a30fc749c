"""A hostile server: it refuses in the words of many vendors, and yet every message is answered."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from bot import errors
from bot.agent.models import Reply, Request, TextDelta, ToolSpec, Usage
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.capabilities import LEAST, RUN, cleaned
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.registry import Models
from bot.agent.models.service import ServiceModel
from bot.config import ServiceConfig
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse
from bot.testing import ScriptedModel, says
from tests.fakes import completions_api, messages_api
from tests.fakes.model_server import Answer, drops, waits
from tests.fakes.text_store import TextStoreInMemory
from tests.support import running, settings_of, until

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "refusals.toml").read_text("utf-8")
)["answer"]
ENDS: Mapping[str, type[errors.ModelError]] = {
    "auth": errors.ModelAuth,
    "billing": errors.ModelBilling,
    "context_full": errors.ModelContextFull,
    "expired": errors.ModelExpired,
    "failed": errors.ModelFailed,
    "moderated": errors.ModelModerated,
    "no_api": errors.ModelNoApi,
    "not_found": errors.ModelNotFound,
    "overloaded": errors.ModelOverloaded,
    "proxy": errors.ModelProxy,
    "rate": errors.ModelRateLimited,
    "region": errors.ModelRegion,
}
SECRET = "sk-not-to-be-shown"
EARLIER = "what was said in this conversation before today"
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
PHOTO = Picture("image/png", "r", "QUJD")


def _assistant(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in body["messages"] if each["role"] == "assistant"]


def _blocks(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    contents = (each["content"] for each in body["messages"])
    return [block for each in contents if isinstance(each, list) for block in each]


# What of a request a server may refuse, by the word of the table; with the number that it names.
REFUSES: Mapping[str, Callable[[Mapping[str, Any], int], bool]] = {
    "always": lambda *_: True,
    "images": lambda body, _: any(b["type"] in {"image", "image_url"} for b in _blocks(body)),
    "tools": lambda body, _: "tools" in body,
    "tool_choice": lambda body, _: "tool_choice" in body,
    "parallel": lambda body, _: any(len(m.get("tool_calls", ())) > 1 for m in _assistant(body)),
    "stream_options": lambda body, _: "stream_options" in body,
    "max_tokens": lambda body, _: "max_tokens" in body,
    "system": lambda body, _: body["messages"][0]["role"] == "system",
    "reasoning": lambda body, _: any("reasoning_content" in m for m in _assistant(body)),
    "no_reasoning": lambda body, _: any(
        "tool_calls" in m and not m.get("reasoning_content") for m in _assistant(body)
    ),
    "thoughts": lambda body, _: any(b["type"] == "thinking" for b in _blocks(body)),
    "limit": lambda body, most: body.get("max_tokens", 0) > most,
    "context": lambda body, _: len(body["messages"]) > 2,
    "long": lambda body, most: len(orjson.dumps(body)) > most,
    "history": lambda body, _: EARLIER in orjson.dumps(body["messages"]).decode(),
}


@dataclass
class HostileServer:
    """Speaks both APIs; refuses what its `rules` name with that answer."""

    kind: str
    rules: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    refused: list[str] = field(default_factory=list[str])
    used: int = 3  # tokens, as it says

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        for rule in self.rules:
            if REFUSES[rule["when"]](body, rule.get("number", 0)):
                self.refused.append(rule["when"])
                text = rule["body"]
                is_json = text[:1] in {"{", "["}
                is_page = text[:1] == "<"
                sort = "application/json" if is_json else "text/html" if is_page else "text/plain"
                return web.Response(text=text, status=rule["status"], content_type=sort)
        if self.kind == "anthropic":
            return await messages_api.says("An", " answer.")(request)
        said = (completions_api.chunk(content=each) for each in ("An", " answer."))
        end = (completions_api.chunk("stop"), completions_api.usage(self.used, 2))
        return await completions_api.streams(*said, *end, completions_api.DONE)(request)


@pytest.fixture
async def opened():
    """Opens a model of a kind on a hostile server of its own."""
    closing: list[Any] = []

    async def open_(kind: str) -> tuple[HostileServer, ServiceModel]:
        server = HostileServer(kind)
        app = web.Application()
        app.router.add_post("/v1/{path:.*}", server.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        made = AnthropicModel if kind == "anthropic" else OpenAIModel
        config = ServiceConfig(
            base_url=address if kind == "anthropic" else f"{address}/v1", api_key=SecretStr(SECRET)
        )
        model = made(config, window_store=TextStoreInMemory(), max_retries=0)
        if isinstance(model, AnthropicModel):
            await model.load_sdk()
        closing.extend((model.close, runner.cleanup))
        return server, model

    yield open_
    for close in closing:
        await close()


def thought(kind: str) -> Opaque:
    if kind == "anthropic":
        return Opaque({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"})
    return Opaque({"type": "thought", "field": "reasoning_content", "text": "Hm."})


def everything(kind: str, when: str = "") -> Request:
    """A conversation that holds whatever may be refused; its turn is in the middle."""
    calls = (ToolUse("call_1", "look", {}), ToolUse("call_2", "look", {}))
    results = (ToolResult("call_1", "seen"), ToolResult("call_2", "seen too"))
    before = (thought(kind),) if when not in {"no_reasoning", "reasoning"} else ()
    earlier = (
        Message("user", (PHOTO, Text(EARLIER))),
        Message("assistant", (*before, *calls)),
        Message("user", results),
        Message("assistant", (Text("I see."),)),
    )
    # What stands within the turn has its thoughts, unless they are what is missing.
    within = (thought(kind),) if when != "no_reasoning" else ()
    turn = (
        Message("user", (PHOTO, Text("And what is this?"))),
        Message("assistant", (*within, *(replace(each, id=f"{each.id}b") for each in calls))),
        Message("user", tuple(replace(r, tool_use_id=f"{r.tool_use_id}b") for r in results)),
    )
    request = Request("m", "Be brief.", (*earlier, *turn), (LOOK,), begins=len(earlier))
    return replace(request, may_call=when != "tool_choice")


def following(request: Request, words: str = "Thanks.") -> Request:
    said = (*request.messages, Message("assistant", (Text("An answer."),)))
    return replace(request, messages=(*said, Message("user", (Text(words),))), begins=len(said))


async def asked(model: ServiceModel, request: Request) -> Reply:
    words, reply = "", None
    async for event in model.stream(request):
        if isinstance(event, TextDelta):
            words += event.text
        else:
            reply = event
    assert reply is not None
    assert words == reply.message.text == "An answer."
    return reply


def name_of(case: Mapping[str, Any]) -> str:
    return f"{case['by']}: {case.get('ends') or case['when']}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
async def test_each_refusal_ends_in_an_answer_or_the_right_error_and_the_next_is_answered(
    case, opened
):
    kind = case.get("api", "openai")
    server, model = await opened(kind)
    request = everything(kind, case["when"])
    server.rules = [case]
    if "ends" in case:
        with pytest.raises(errors.ModelError) as caught:
            await asked(model, request)
        assert type(caught.value) is ENDS[case["ends"]]
        assert SECRET not in caught.value.reason
        assert len(caught.value.told) <= 200
        if case["when"] == "context":
            learned = (await model.window("m")).max_input_tokens
            assert learned == (case.get("number", 0) if case.get("number", 0) >= LEAST else 0)
        server.rules = []
        await asked(model, following(request))
        return
    reply = await asked(model, request)
    before = len(server.bodies)
    assert before <= 8
    again = await asked(model, following(request))
    if case.get("each"):
        assert len(server.refused) > 1, "of the model nothing is learned"
    else:
        assert len(server.bodies) == before + 1, "what was learned is not asked for again"
    told = {"images": "images", "tools": "tools", "history": "history"}.get(case["when"])
    if told is not None:
        assert {"picture"} >= set(reply.left_out) or told in reply.left_out
        assert "tools" not in again.left_out, "a person is told once"
    if case["when"] == "limit":
        assert 0 < server.bodies[-1].get("max_tokens", 1) <= case["number"]


def test_the_table_has_enough_of_every_kind():
    assert len(CASES) >= 80
    assert len({case["by"] for case in CASES}) >= 25
    assert all(case["source"] for case in CASES)
    assert sum(case.get("api") == "anthropic" for case in CASES) >= 20
    assert sum(any("\u4e00" <= c <= "\u9fff" for c in case["body"]) for case in CASES) >= 10


# --- what a service says is shown, and what was said to it is not ---------------------------------


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_what_the_service_says_is_told_without_what_was_said_to_it(kind, opened):
    server, model = await opened(kind)
    private = "我把钥匙放在门口的花盆下面，别告诉任何人，谢谢你。"
    said = f"My daughter is allergic to peanuts. {private}"
    words = f"Rejected {said} of key {SECRET}: see the manual of the service for more."
    body = orjson.dumps({"error": words}).decode()
    server.rules = [{"when": "always", "status": 403, "body": body}]
    request = Request("m", "Be brief.", (Message("user", (Text(said),)),))
    with pytest.raises(errors.ModelAuth) as caught:
        await asked(model, request)
    told = caught.value.told
    assert told.startswith("Rejected")
    assert told.endswith("see the manual of the service for more.")
    assert SECRET not in told
    for at in range(len(said) - 20):
        assert said[at : at + 20] not in told


@given(st.text("ab 你好\n", max_size=200), st.text("ab 你好", max_size=60), st.data())
def test_no_run_of_what_was_said_is_ever_shown(said, around, data):
    start = data.draw(st.integers(0, max(0, len(said) - 1)))
    echo = said[start : start + data.draw(st.integers(0, 90))]
    told = cleaned(f"{around}{echo}{around}", said)
    assert len(told) <= 200
    plain = " ".join(said.split())
    runs = {plain[at : at + RUN] for at in range(len(plain) - RUN + 1)}
    assert not any(told[at : at + RUN] in runs for at in range(len(told)))


# --- learning -------------------------------------------------------------------------------------


def rule(when: str, **more: Any) -> dict[str, Any]:
    return {"when": when, "status": 400, "body": '{"error":{"message":"no"}}', **more}


IMAGES = rule("images", body='{"error":{"message":"this model does not support image input"}}')


class Clock:
    now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


def on(server: HostileServer, base: ServiceModel, store: TextStoreInMemory, clock: Clock) -> Any:
    config = ServiceConfig(base_url=base.url, api_key=SecretStr(SECRET))
    return OpenAIModel(config, window_store=store, max_retries=0, clock=clock)


@pytest.fixture
async def pair(opened):
    """Two processes with one store."""
    server, base = await opened("openai")
    store, clock = TextStoreInMemory(), Clock()
    first, second = (on(server, base, store, clock) for _ in range(2))
    yield server, first, second, store, clock
    await first.close()
    await second.close()


async def test_what_was_told_counts_for_a_week_and_what_was_guessed_for_a_day(pair):
    server, first, _, _, clock = pair
    for rules, after in (([IMAGES], 7), ([rule("tools", status=501)], 1)):
        server.rules, server.refused[:] = rules, []
        await asked(first, everything("openai"))
        refused = len(server.refused)
        clock.now += after * 24 * 3600 * 1000
        await asked(first, everything("openai"))
        assert len(server.refused) == refused
        clock.now += 1
        await asked(first, everything("openai"))
        assert len(server.refused) > refused
        server.rules = []
        clock.now += 30 * 24 * 3600 * 1000


async def test_another_process_and_the_next_start_know_it(pair):
    server, first, second, store, _ = pair
    server.rules = [IMAGES]
    await asked(first, everything("openai"))
    await asked(second, everything("openai"))
    assert server.refused == ["images"]
    assert any("learned:m" in key for key in store.texts)


async def test_two_that_learn_at_once_lose_nothing(pair):
    server, first, second, _, _ = pair
    server.rules = [IMAGES]
    await asked(
        second, Request("m", "", (Message("user", (Text("Hi"),)),))
    )  # has read what is kept
    await asked(first, everything("openai"))
    server.rules = [IMAGES, rule("tools", body='{"error":"m does not support tools"}')]
    await asked(second, everything("openai"))
    third = on(server, first, pair[3], pair[4])
    server.refused[:] = []
    await asked(third, everything("openai"))
    await third.close()
    assert server.refused == []


@pytest.mark.parametrize(
    "stored", ["", "no json", "[]", '{"images": 5}', '{"output_limit": {"at": 1, "number": "x"}}',
               '{"output_limit": {"at": 1800000000000, "number": 3}}',
               '{"context_full": {"at": 1800000000000, "number": -7}}',
               '{"unheard_of": {"at": 1800000000000}}']
)  # fmt: skip
async def test_a_store_with_rubbish_costs_nothing(pair, stored):
    server, first, _, store, _ = pair
    store.texts[f"models:{first.url}:learned:m"] = stored
    await asked(first, everything("openai"))
    assert server.bodies[-1]["max_tokens"] == 8192
    server.rules = [IMAGES]
    await asked(first, everything("openai"))


async def test_a_limit_that_a_reply_goes_beyond_is_forgotten(pair):
    server, first, _, store, clock = pair
    learned = orjson.dumps({"context_full": {"at": clock.now, "number": 300}}).decode()
    store.texts[f"models:{first.url}:learned:m"] = learned
    assert (await first.window("m")).max_input_tokens == 300
    server.used = 900
    await asked(first, everything("openai"))
    assert (await first.window("m")).max_input_tokens == 0


async def test_choosing_a_model_finds_out_anew(pair):
    server, first, _, _, _ = pair
    server.rules = [IMAGES]
    await asked(first, everything("openai"))
    await first.catalog.forget("m")
    server.rules = []
    await asked(first, everything("openai"))
    assert any(b["type"] == "image_url" for b in _blocks(server.bodies[-1]))


async def test_a_server_that_refuses_something_new_every_hour_is_answered_all_the_same(pair):
    server, first, _, _, clock = pair
    request = everything("openai")
    for when in ("images", "stream_options", "parallel", "limit", "system", "reasoning", "tools"):
        told = SAYS[when]
        server.rules = [*server.rules, rule(when, body=f'{{"error":"{told}"}}', number=2048)]
        server.refused[:] = []
        await asked(first, request)
        assert server.refused == [when], "what was refused before is not sent again"
        request = following(request)
        clock.now += 3600 * 1000


# --- anything at all ------------------------------------------------------------------------------

SAYS = {
    "images": "this model does not support image input",
    "tools": "m does not support tools",
    "stream_options": "Unrecognized request argument supplied: stream_options",
    "system": "System role not supported",
    "reasoning": "property 'reasoning_content' is unsupported",
    "no_reasoning": "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "parallel": "This model only supports single tool-calls at once!",
    "limit": "Range of max_tokens should be [1, 2048]",
    "thoughts": "messages.1.content.0: Invalid `signature` in `thinking` block",
}
GUESSED = ("images", "tools", "limit", "reasoning")  # what is found out when nothing is said


@st.composite
def servers(draw: st.DrawFn) -> list[dict[str, Any]]:
    lacks = draw(st.lists(st.sampled_from(sorted(SAYS)), unique=True, max_size=4))
    if "reasoning" in lacks and "no_reasoning" in lacks:
        lacks.remove("reasoning")  # nobody could speak with such a server
    rules: list[dict[str, Any]] = []
    for each in lacks:
        is_told = each not in GUESSED or draw(st.booleans())
        body = orjson.dumps({"error": {"message": SAYS[each] if is_told else "no"}}).decode()
        status = draw(st.sampled_from([400, 404, 422, 500]))
        rules.append({"when": each, "status": status, "body": body, "number": 2048})
    return rules


@st.composite
def conversations(draw: st.DrawFn, kind: str) -> list[Message]:
    messages: list[Message] = []
    for number in range(draw(st.integers(0, 4))):
        photo = (PHOTO,) if draw(st.booleans()) else ()
        messages.append(Message("user", (*photo, Text(f"message {number}"))))
        if count := draw(st.integers(0, 3)):
            ids = [f"call_{number}_{each}" for each in range(count)]
            before = (thought(kind),) if draw(st.booleans()) else ()
            messages += [
                Message("assistant", (*before, *(ToolUse(id_, "look", {}) for id_ in ids))),
                Message("user", tuple(ToolResult(id_, "seen") for id_ in ids)),
            ]
        messages.append(Message("assistant", (Text("An answer."),)))
    return messages


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from(["openai", "anthropic"]), servers(), st.data(), st.booleans())
async def test_no_cause_fails_twice_in_a_row_whatever_a_server_lacks(
    opened, kind, rules, data, sees
):
    server, model = await opened(kind)
    server.rules = rules
    said = data.draw(conversations(kind))
    photo = (PHOTO,) if sees else ()
    turn = Message("user", (*photo, Text("And this?")))
    request = Request("m", "Be brief.", (*said, turn), (LOOK,), begins=len(said))
    heard: list[Usage] = []
    request = replace(request, on_usage=heard.append)
    first = await asked(model, request)
    server.refused[:] = []
    request = following(request)
    replies = [first, await asked(model, request), await asked(model, following(request))]
    # Of a thought that is refused nothing is learned: the next one is another.
    assert set(server.refused) <= {"thoughts"}
    counted = Usage(3, 2) if kind == "openai" else Usage(1, 1)
    assert [each.usage for each in replies] == [counted] * 3, "tokens of refusals are nobody's"
    assert {each.output_tokens for each in heard} <= {0, counted.output_tokens}


# --- in a chat ------------------------------------------------------------------------------------


OWNER = {"owner": ("memory:olga",)}


async def test_the_owner_reads_what_the_service_said_and_others_do_not(tmp_path):
    failure = errors.ModelBilling()
    failure.told = "Your account org-x is in arrears"
    model = ScriptedModel(script=lambda _: failure)
    async with running(tmp_path, model=model, session=OWNER) as engine:
        assert "org-x" not in await engine.ask("hello")
        assert "“Your account org-x is in arrears”" in await engine.ask("hello", sender="olga")


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ("images", "cannot see pictures"),
        ("picture", "did not accept the picture"),
        ("tools", "can't use tools here"),
        ("history", "rejected the earlier messages"),
    ],
)
async def test_the_person_is_told_in_one_line_what_was_left_out(tmp_path, lacks, told):
    replies = [replace(says("Here you are."), left_out=(lacks,)), says("And again.")]
    async with running(tmp_path, model=ScriptedModel(lambda _: replies.pop(0))) as engine:
        first = await engine.ask("hello")
        assert first.startswith("Here you are.")
        assert told in first
        assert await engine.ask("hello") == "And again."


# Replies that break, over both APIs, and what the person reads then.
BROKEN: Mapping[str, tuple[Answer, Answer, str]] = {
    "a page": (
        completions_api.streams(b"<html>A page</html>"),
        messages_api.streams(b"<html>A page</html>"),
        "a web page, not to a model",
    ),
    "cut": (
        completions_api.streams(completions_api.chunk(content="Some"), then=drops),
        messages_api.streams(messages_api.start(), *messages_api.text(0, "Some"), then=drops),
        "couldn't reach the model's service",
    ),
    "without an end": (
        completions_api.streams(completions_api.chunk(content="Some")),
        messages_api.streams(messages_api.start(), *messages_api.text(0, "Some")),
        "reply could not be read",
    ),
    "doubled": (
        completions_api.streams(
            completions_api.chunk(content="An answer."),
            *[completions_api.chunk("stop"), completions_api.DONE] * 2,
            completions_api.chunk(content="An answer."),
            completions_api.DONE,
        ),
        messages_api.streams(
            messages_api.start(),
            *messages_api.text(0, "An answer."),
            *messages_api.end() * 2,
            *messages_api.text(1, "An answer."),
            *messages_api.end(),
        ),
        "An answer.",
    ),
    "silent": (waits(asyncio.Event()), waits(asyncio.Event()), "took too long"),
    "only thought": (
        completions_api.streams(
            completions_api.chunk(reasoning_content="Hm."), completions_api.chunk("stop")
        ),
        messages_api.streams(
            messages_api.start(),
            *messages_api.block(
                0,
                {"type": "thinking", "thinking": ""},
                {"type": "thinking_delta", "thinking": "Hm."},
            ),
            *messages_api.end(),
        ),
        "wrote no answer",
    ),
}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(("broken", "other", "sentence"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_reply_is_told_the_message_kept_and_the_next_one_answered(
    tmp_path, kind, broken, other, sentence
):
    api = completions_api if kind == "openai" else messages_api
    made = OpenAIModel if kind == "openai" else AnthropicModel
    answers = [broken if kind == "openai" else other]
    answers *= 2 if sentence == "wrote no answer" else 1  # that one is asked for once more
    async with api.running(*answers, api.says("Again.")) as server:
        config = ServiceConfig(base_url=server.base_url, timeout=0.3, api_key=SecretStr(SECRET))
        model = made(config, window_store=TextStoreInMemory(), max_retries=0)
        async with running(tmp_path, model=model, agent={"model": "m"}) as engine:
            first = await engine.ask("The first message.")
            assert first.count(sentence) == 1
            assert await engine.ask("The second message.") == "Again."
        assert b"The first message." in orjson.dumps(server.bodies[-1]["messages"])


class Blind(ScriptedModel):
    """One model that takes no pictures, and another that does, or not either."""

    def __init__(self, *blind: str) -> None:
        super().__init__()
        self.blind = blind

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        if request.must_see and request.model in self.blind:
            raise errors.ModelBlind
        yield TextDelta("Seen.")
        yield Reply(Message("assistant", (Text("Seen."),)), "end")


@pytest.mark.parametrize(
    ("blind", "answers"), [(("one",), "two"), (("one", "two"), "one"), ((), "one")]
)
async def test_a_fallback_that_can_see_is_asked_before_a_picture_is_left_out(blind, answers):
    models = Models(
        settings_of(agent={"model": "one", "fallback": ("two",)}), {"anthropic": Blind(*blind)}
    )
    request = Request("anthropic/one", "", (Message("user", (PHOTO, Text("What is it?"))),))
    replies = [each async for each in models.stream(request) if isinstance(each, Reply)]
    assert [each.model for each in replies] == [f"anthropic/{answers}"]


async def test_a_window_that_is_smaller_than_assumed_is_learned_and_the_message_answered(
    tmp_path, opened
):
    server, model = await opened("openai")
    words = "This model's maximum context length is 20000 tokens. Please reduce the length."
    body = orjson.dumps({"error": {"message": words}}).decode()
    server.rules = [{"when": "long", "number": 60_000, "status": 400, "body": body}]
    async with running(tmp_path, model=model, agent={"model": "m"}) as engine:
        for number in range(10):
            await engine.ask(
                f"Story {number}. " + "It rained all day in the harbour of our town. " * 170
            )
        await until(lambda: sum("An answer." in each for each in engine.sent_to("ada")) == 10)
    assert "long" in server.refused
    assert len(server.refused) <= 4
    assert (await model.window("m")).max_input_tokens == 20_000
