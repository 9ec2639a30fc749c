"""Models: which service a name means, who steps in, and what goes over the wire."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import Reply, Request, TextDelta, ToolSpec
from bot.agent.models.anthropic import CACHEABLE, Accumulator, body_of, merge
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.connection import MOST_BYTES, EventReader
from bot.agent.models.openai import REASONING, THOUGHT
from bot.agent.models.openai import body_of as chat_body
from bot.agent.models.openai import merge as merge_chat
from bot.agent.models.registry import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    LONGEST_WAIT,
    PROBE,
    Breaker,
    Models,
)
from bot.agent.models.wire import NO_OUTPUT, OPENING, load
from bot.config import ModelsConfig
from bot.context.tokens import Folding
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelContextFull,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelUnreachable,
)
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse
from bot.testing import ScriptedModel, says
from bot.unicode import well_formed
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.odd import EXACT_JSON
from tests.support import Seconds, settings_of

LOCAL = {"base_url": "http://127.0.0.1:1"}
OLLAMA = {"ollama": {"kind": "openai", **LOCAL}}

ABLE = Capabilities(thinking=False)


def models(
    configured: str = "claude-x", services: dict[str, Any] | None = None, **sections: Any
) -> Models:
    settings = settings_of(agent={"model": configured}, models=sections)
    known = settings.now.models.services
    found = {name: ScriptedModel() for name, each in known.items() if each.is_set_up}
    return Models(settings, found if services is None else services)


@pytest.mark.parametrize(
    ("chosen", "sections", "full"),
    [
        ("claude-y", {}, "anthropic/claude-y"),
        ("anthropic/claude-y", {}, "anthropic/claude-y"),
        ("ollama/qwen3", OLLAMA, "ollama/qwen3"),
        ("ollama/hf.co/Qwen/Qwen3", OLLAMA, "ollama/hf.co/Qwen/Qwen3"),
        ("gone/qwen3", OLLAMA, "gone/qwen3"),
        ("Qwen/Qwen3", {"anthropic": LOCAL}, "anthropic/Qwen/Qwen3"),
        ("offline", {}, "offline"),
        ("", {}, "anthropic/claude-x"),
    ],
)
def test_a_name_means_the_same_as_ever_or_a_service_of_its_own(chosen, sections, full):
    sections = {"anthropic": {"api_key": "k"}, **sections}
    assert models(**sections).full(chosen) == full


def test_without_a_service_the_offline_model_answers():
    assert models().default == "offline"
    assert models().full("claude-y") == "offline"
    assert models("ollama/m", anthropic=LOCAL, ollama={"kind": "openai"}).default == "offline"


async def test_every_service_lists_its_models():
    found = models("ollama/qwen3", anthropic=LOCAL, **OLLAMA)
    assert await found.names() == (
        "ollama/qwen3",
        "anthropic/scripted",
        "anthropic/scripted-two",
        "ollama/scripted",
        "ollama/scripted-two",
        "offline",
    )


async def test_a_model_that_is_configured_without_its_tag_is_listed_once():
    class Ollama(ScriptedModel):
        async def names(self) -> tuple[str, ...]:
            return "qwen3:latest", "gemma4:latest", "qwen3:4b"

    found = models("ollama/qwen3", services={"ollama": Ollama()}, **OLLAMA)
    names = ("ollama/qwen3", "ollama/gemma4:latest", "ollama/qwen3:4b", "offline")
    assert await found.names() == names


async def run(found: Models, request: Request) -> Reply:
    events = [event async for event in found.stream(request)]
    assert isinstance(events[-1], Reply)
    return events[-1]


async def test_a_request_goes_to_the_service_of_its_model():
    one, two = ScriptedModel(lambda _: "one"), ScriptedModel(lambda _: "two")
    found = models(services={"anthropic": one, "ollama": two}, **OLLAMA)
    said = (Message("user", (Text("hello"),)),)
    assert (await run(found, Request("ollama/a/b", "", said))).message.text == "two"
    assert (await run(found, Request("anthropic/claude-x", "", said))).message.text == "one"
    assert [request.model for request in (*one.requests, *two.requests)] == ["claude-x", "a/b"]
    with pytest.raises(ModelNotFound):
        await run(found, Request("gone/m", "", said))
    assert (await found.window("gone/m")).max_output_tokens


async def test_a_service_is_shown_its_own_blocks_only():
    thought = Opaque({"type": "thought", "text": "hm"})
    reply = Reply(Message("assistant", (thought, Text("Hi"))), "end", says("Hi").usage)
    one, two = ScriptedModel(lambda _: reply), ScriptedModel(lambda _: reply)
    found = models(services={"anthropic": one, "ollama": two}, **OLLAMA)
    said: tuple[Message, ...] = (Message("user", (Text("hello"),)),)
    for name in ("ollama/m", "anthropic/claude-x"):
        said = (*said, (await run(found, Request(name, "", said))).message)
    ours, theirs = (Opaque(thought.data, name) for name in ("ollama/m", "anthropic/claude-x"))
    assert [m.blocks[0] for m in said[1:]] == [ours, theirs]
    for name in ("ollama/m", "anthropic/claude-x", "ollama/other"):
        await run(found, Request(name, "", said))
    last = [each.requests[-1].messages[1:] for each in (one, two)]
    assert [m.blocks for m in last[0]] == [(Text("Hi"),), (theirs, Text("Hi"))]
    assert [m.blocks for m in last[1]] == [(Text("Hi"),), (Text("Hi"),)]  # of another model
    last_but_one = two.requests[-2].messages[1:]
    assert [m.blocks for m in last_but_one] == [(ours, Text("Hi")), (Text("Hi"),)]


CONFIG = ModelsConfig.model_validate({"two": {"kind": "openai"}, "three": {"kind": "openai"}})
NAMES = ("anthropic/one", "two/m", "three/m")


@dataclass
class Chain:
    """Three services, one for each model; `fails` says what each of them does next."""

    clock: Seconds = field(default_factory=Seconds)
    services: dict[str, FaultyModel] = field(
        default_factory=lambda: {name.split("/")[0]: FaultyModel() for name in NAMES}
    )

    def __post_init__(self) -> None:
        agent = {"model": NAMES[0], "fallback": NAMES[1:]}
        self.models = Models(settings_of(agent=agent, models=CONFIG), self.services, self.clock)

    async def ask(self) -> tuple[str, Reply]:
        request = Request(NAMES[0], "", (Message("user", (Text("hello"),)),))
        words, reply = "", None
        async for event in self.models.stream(request):
            if isinstance(event, TextDelta):
                words += event.text
            else:
                reply = event
        assert reply is not None
        assert words == reply.message.text
        return words, reply

    def asked(self) -> list[int]:
        return [service.asked for service in self.services.values()]


@pytest.fixture
def chain() -> Chain:
    return Chain()


@pytest.mark.parametrize(
    "kind", [ModelOverloaded, ModelRateLimited, ModelTimeout, ModelUnreachable, ModelBilling]
)
async def test_the_next_model_answers(chain: Chain, kind: type[ModelError]):
    chain.services["anthropic"].faults = [(0, kind())]
    _, reply = await chain.ask()
    assert reply.model == "two/m"
    assert chain.asked() == [1, 1, 0]


@pytest.mark.parametrize("kind", [ModelAuth, ModelContextFull, ModelBadReply])
async def test_what_another_model_would_do_no_better_is_told(chain: Chain, kind: type[ModelError]):
    chain.services["anthropic"].faults = [(0, kind())]
    with pytest.raises(kind):
        await chain.ask()
    assert chain.asked() == [1, 0, 0]


async def test_after_the_first_word_nothing_is_begun_anew(chain: Chain):
    chain.services["anthropic"].faults = [(1, ModelOverloaded())]
    with pytest.raises(ModelOverloaded):
        await chain.ask()
    assert chain.asked() == [1, 0, 0]


async def test_a_model_that_is_down_is_spared_and_then_tried_once(chain: Chain):
    chain.services["anthropic"].faults = [(0, ModelOverloaded()), (0, ModelOverloaded())]
    assert (await chain.ask())[1].model == "two/m"
    assert (await chain.ask())[1].model == "two/m"
    assert chain.asked() == [1, 2, 0]
    chain.clock.now += FIRST_PAUSE + 1
    assert (await chain.ask())[1].model == "two/m"
    chain.clock.now += FIRST_PAUSE + 1  # it is spared longer now
    assert (await chain.ask())[1].model == "two/m"
    assert chain.asked() == [2, 4, 0]
    chain.clock.now += FIRST_PAUSE
    assert (await chain.ask())[1].model == "anthropic/one"


async def test_it_is_spared_as_long_as_it_asked_for(chain: Chain):
    error = ModelRateLimited()
    error.wait = 900.0
    chain.services["anthropic"].faults = [(0, error)]
    await chain.ask()
    chain.clock.now += 899
    assert (await chain.ask())[1].model == "two/m"
    chain.clock.now += 2
    assert (await chain.ask())[1].model == "anthropic/one"


async def test_only_the_last_one_is_waited_for(chain: Chain):
    deadlines: list[float | None] = []

    def decide(request: Request) -> Fault:
        deadlines.append(request.deadline)
        return (0, ModelOverloaded())

    for service in chain.services.values():
        service.decide = decide
    now = asyncio.get_running_loop().time()
    with pytest.raises(ModelOverloaded):
        await chain.ask()
    one, two, last = deadlines
    assert last is None
    assert one is not None
    assert two is not None
    assert now < one <= two


async def test_when_none_can_the_first_ones_failure_is_told(chain: Chain):
    errors = [ModelRateLimited(), ModelAuth(), ModelUnreachable()]
    for service, error in zip(chain.services.values(), errors, strict=True):
        service.faults = [(0, error)]
    with pytest.raises(ModelRateLimited):
        await chain.ask()
    assert chain.asked() == [1, 1, 1]
    assert (await chain.ask())[1].model == "two/m"  # the others are spared


async def test_when_all_are_spared_they_are_asked_all_the_same(chain: Chain):
    for service in chain.services.values():
        service.faults = [(0, ModelOverloaded())]
    with pytest.raises(ModelOverloaded):
        await chain.ask()
    assert (await chain.ask())[1].model == "anthropic/one"


async def test_without_a_fallback_nothing_is_spared():
    service = FaultyModel(faults=[(0, ModelOverloaded()), (0, ModelOverloaded())])
    chain = Chain(services={"anthropic": service})
    chain.models = Models(settings_of(agent={"model": NAMES[0]}, models=CONFIG), chain.services)
    for _ in range(2):
        with pytest.raises(ModelOverloaded):
            await chain.ask()
    assert (await chain.ask())[1].model == "anthropic/one"


times = st.floats(0, 10_000)
waits = st.floats(0, 1e9)
# What happens to one model: seconds later, it is asked (and then fails after some, or works).
events = st.lists(st.tuples(times, st.sampled_from(["asked", "failed", "worked"]), waits))


def after(happened: list[tuple[float, str, float]]) -> tuple[Breaker, float]:
    breaker, now = Breaker(), 0.0
    for later, what, wait in happened:
        now += later
        if what == "asked":
            breaker = breaker if breaker.is_open(now) else breaker.asked(now)
        else:
            breaker = breaker.failed(now, wait) if what == "failed" else Breaker()
    return breaker, now


@given(events, waits)
def test_what_fails_is_spared_as_long_as_it_asks_for_then_asked_again_by_one_request(
    happened, wait
):
    breaker, now = after(happened)
    assert not breaker.is_open(now + max(LONGEST_PAUSE, LONGEST_WAIT, PROBE) + 1)
    assert breaker.asked(now).is_open(now) == bool(breaker.failures)
    assert Breaker().asked(now) == Breaker()
    failed = breaker.failed(now, wait)
    assert failed.is_open(now)
    assert not now or failed.is_open(now + min(wait, LONGEST_WAIT) * 0.999)


def test_many_that_fail_together_count_as_one_failure():
    breaker = Breaker()
    for _ in range(20):
        breaker = breaker.failed(100.0)
    assert breaker.failures == 1
    assert not breaker.is_open(100.0 + FIRST_PAUSE)


def test_it_is_spared_longer_each_time():
    breaker, now, pauses = Breaker(), 0.0, list[float]()
    for _ in range(8):
        breaker = breaker.asked(now).failed(now)
        pauses.append(breaker.until - now)
        now = breaker.until
    assert pauses[:3] == [30.0, 60.0, 120.0]
    assert pauses[-1] == LONGEST_PAUSE


texts = st.text(max_size=20)
arguments = st.dictionaries(texts, EXACT_JSON, max_size=3)
opaque = texts.map(lambda data: Opaque({"type": "thinking", "thinking": data, "signature": "c2ln"}))
blocks = st.one_of(
    st.builds(Text, texts, st.booleans()),
    st.builds(ToolUse, texts, texts, arguments),
    st.builds(ToolResult, texts, texts, st.booleans()),
    opaque,
)
messages = st.builds(
    Message, st.sampled_from(["user", "assistant"]), st.lists(blocks, max_size=4).map(tuple)
)
histories = st.lists(messages, max_size=8).map(tuple)
ANY_STRING = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates too


def body(*said: Message, **fields: Any) -> dict[str, Any]:
    request = replace(Request("m", "s", said), **fields)
    return orjson.loads(body_of(request, request.max_tokens, ABLE))


def messages_of(messages: Iterable[Message], put: Callable[..., None] = merge) -> list[Any]:
    """Messages as an API takes them."""
    made: list[Any] = []
    for message in messages:
        put(made, message)
    return made


@given(histories)
def test_any_history_becomes_what_the_api_takes_without_losing_a_word_and_the_same_each_time(
    history: tuple[Message, ...],
):
    sent = messages_of(history)
    if sent:
        assert sent[0]["role"] == "user"
    for one, other in pairwise(sent):
        assert one["role"] != other["role"]
    for message in sent:
        assert message["content"]
        kinds = [block["type"] for block in message["content"]]
        if message["role"] == "user":
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        for block in message["content"]:
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_result":
                assert block["content"].strip()
    blocks = [block for message in sent for block in message["content"]]
    for kind, cls in (("tool_use", ToolUse), ("thinking", Opaque), ("tool_result", ToolResult)):
        had = [block for message in history for block in message.blocks if isinstance(block, cls)]
        assert len([block for block in blocks if block["type"] == kind]) == len(had)
    said = [
        block.text
        for message in history
        for block in message.blocks
        if isinstance(block, Text) and block.text.strip()
    ]
    kept = [block["text"] for block in blocks if block["type"] == "text"]
    assert sorted(kept) == sorted([*said, *([OPENING] if OPENING in kept else [])])
    if sent:
        request = Request("m", "s", history)
        assert body_of(request, 9, ABLE) == body_of(request, 9, ABLE)


@given(histories, texts, st.sampled_from([(), (ToolSpec("a", "b", {"type": "object"}),)]))
def test_there_are_never_more_breakpoints_than_allowed(history, system, tools):
    if not messages_of(history):
        with pytest.raises(ModelRejected):
            body(*history, system=system, tools=tools)
        return
    sent = body(*history, system=system, tools=tools)
    content = [block for message in sent["messages"] for block in message["content"]]
    marked = [block for block in content if "cache_control" in block]
    assert len(marked) <= 1
    assert all(
        block["type"] in CACHEABLE and block in sent["messages"][-1]["content"] for block in marked
    )
    prefix = [*sent.get("tools", []), *sent.get("system", [])]
    assert sum("cache_control" in part for part in prefix) == bool(prefix)
    if prefix:
        assert "cache_control" in prefix[-1]


@given(histories, st.lists(st.integers(0, 8), max_size=4))
def test_a_conversation_that_goes_on_makes_the_bytes_it_would_make_alone(history, turns):
    folding = Folding()
    for begins in sorted(turns):  # those before it are folded, what is left is of the turn
        request = Request("m", "s", history, begins=begins, folding=folding)
        if messages_of(history):
            assert body_of(request, 9, ABLE) == body_of(Request("m", "s", history), 9, ABLE)
            assert orjson.loads(body_of(request, 9, ABLE)) == body(*history, max_tokens=9)


@given(st.lists(ANY_STRING, max_size=5))
def test_text_always_arrives_whole_however_it_was_cut(pieces: list[str]):
    reply = Accumulator()
    reply.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}})
    words = ""
    for piece in pieces:
        words += reply.feed(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": piece},
            }
        )
    reply.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    assert reply.reply().message.text == words
    assert words.encode().decode() == words
    assert well_formed("".join(pieces)).startswith(words)


@given(arguments, st.integers(1, 5))
def test_tool_arguments_survive_being_cut_into_pieces(given_: dict[str, Any], size: int):
    text = orjson.dumps(given_).decode()
    reply = Accumulator()
    use: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    reply.feed({"type": "content_block_start", "index": 0, "content_block": use})
    for at in range(0, len(text), size):
        delta = {"type": "input_json_delta", "partial_json": text[at : at + size]}
        reply.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    reply.feed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    assert reply.reply().message.blocks == (ToolUse("1", "look", given_),)


@given(EXACT_JSON)
def test_an_event_that_is_none_is_a_bad_reply_or_ignored(value: object):
    event = {"type": "content_block_delta", "index": 0, "delta": value}
    with pytest.raises(ModelBadReply):
        Accumulator().feed(event)


def test_neighbours_of_one_side_are_one_message_with_results_in_front():
    sent = messages_of(
        (
            Message("assistant", (Text("Welcome"),)),
            Message("user", (Text("a"),)),
            Message("user", (Text("b"),)),
            Message("assistant", (ToolUse("1", "look", {}),)),
            Message("user", (Text("wait"),)),
            Message("user", (ToolResult("1", " ", is_error=True),)),
        )
    )
    assert sent == [
        {"role": "user", "content": [{"type": "text", "text": OPENING}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Welcome"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": NO_OUTPUT, "is_error": True},
                {"type": "text", "text": "wait"},
            ],
        },
    ]


def test_half_a_character_in_the_history_does_not_stop_the_conversation():
    sent = body(
        Message("user", (Text("a\ud83c"),)),
        Message("assistant", (ToolUse("1", "look", {"\ud83c": ["b\udf89"]}),)),
    )
    assert sent["messages"][0]["content"][0]["text"] == "a\ufffd"
    assert sent["messages"][1]["content"][0]["input"] == {"\ufffd": ["b\ufffd"]}


def test_without_a_system_prompt_the_tools_carry_the_breakpoint():
    sent = body(
        Message("user", (Text("a"),)), system="", tools=(ToolSpec("a", "b", {"type": "object"}),)
    )
    assert "system" not in sent
    assert sent["tools"][-1]["cache_control"] == {"type": "ephemeral"}


def test_json_with_half_a_character_is_read_all_the_same():
    assert load('{"a":"\\ud83c"}') == {"a": "\ud83c"}
    with pytest.raises(ValueError, match="line 1"):
        load("{oops")


def test_a_picture_travels_as_the_service_wants_it_and_is_named_when_it_is_gone():
    shown = Message("user", (Picture("image/jpeg", "a-1", "QUJD"), Text("look")))
    gone = Message("user", (Picture("image/jpeg", "a-1"),))
    assert messages_of([shown])[0]["content"][0] == {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"},
    }
    assert messages_of([gone])[0]["content"][0]["type"] == "text"


chat_blocks = st.one_of(
    st.builds(Text, texts, st.booleans()),
    st.builds(ToolUse, texts, texts, st.dictionaries(texts, texts, max_size=2)),
    st.builds(ToolResult, texts, texts, st.booleans()),
    texts.map(lambda text: Opaque({"type": THOUGHT, "field": REASONING[0], "text": text})),
)
any_messages = st.builds(
    Message, st.sampled_from(["user", "assistant"]), st.lists(chat_blocks, max_size=4).map(tuple)
)


@given(st.lists(any_messages, max_size=8).map(tuple), st.lists(st.integers(0, 8), max_size=4))
def test_a_conversation_that_goes_on_is_sent_as_if_it_were_converted_anew(history, turns):
    folding = Folding()
    for begins in sorted(turns):
        if not (alone := messages_of(history, merge_chat)):
            continue
        request = Request("m", "s", history, begins=begins, folding=folding)
        sent = orjson.loads(chat_body(request, 9, ABLE))["messages"]
        assert sent == [{"role": "system", "content": "s"}, *alone]


lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
ENDS = st.sampled_from(["\n", "\r\n"])


def read(*chunks: bytes) -> list[bytes]:
    reader = EventReader()
    return [data for chunk in (*chunks, b"\n\n") for data in reader.feed(chunk)]


@given(st.lists(st.lists(lines, min_size=1, max_size=3), max_size=5), ENDS, st.data())
def test_every_event_comes_out_once(events: list[list[str]], end: str, data: st.DataObject):
    text = "".join(
        f": a comment{end}event: x{end}"
        + "".join(f"data: {line}{end}" for line in event)
        + f"id: 1{end}{end}"
        for event in events
    )
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert read(*chunks) == ["\n".join(event).encode() for event in events]


def test_the_last_event_may_end_with_the_stream():
    assert read(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert read(b"data: a\n\ndata: b\n") == [b"a", b"b"]


@pytest.mark.parametrize("chunk", [b"x" * MOST_BYTES, b"data: " + b"x" * 1024 * 1024 + b"\n"])
def test_an_event_without_end_is_given_up(chunk: bytes):
    with pytest.raises(ModelBadReply):
        read(*[chunk] * 20)
