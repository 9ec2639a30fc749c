"""The offline model: honest, deterministic, and through the same tools as a real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import i18n
from bot.agent.models import Reply, Request, TextDelta, ToolSpec, Usage
from bot.agent.models.offline import OfflineModel
from bot.agent.tools import ToolContext, TurnMemory
from bot.agent.tools.memory import MemoryWrite
from bot.agent.tools.search import Elsewhere, Hit, TranscriptSearch
from bot.agent.tools.toolbox import Toolbox
from bot.agent.transcript import new_entry
from bot.errors import ModelRejected
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory.files import SpaceFiles
from bot.memory.folder_notes import FolderNotes
from bot.memory.notes import Notes
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.tool_results import Quote, Quoted, Refused, Stored, ToolValue

INTRODUCTION = ("intro", "can", "key")
NOW = datetime(2026, 7, 1, 14, 3, tzinfo=UTC)
CONTEXT = ToolContext(MemoryView(MAIN_SPACE, ("agent:main",), private=True), "s9", NOW)
BLIND = ToolContext(MemoryView("", (), private=False), "s9", NOW)


class FakeTranscripts:
    """Finds a message when one of the query's words is in it."""

    def __init__(self, *texts: str) -> None:
        self.said: list[tuple[Any, str, Any]] = [("user", text, ()) for text in texts]
        self.queries: list[str] = []

    async def search(self, view: MemoryView, query: str, limit: int) -> Sequence[Hit]:
        self.queries.append(query)
        at = int(NOW.timestamp() * 1000)
        return [
            Hit("s1", f"s1.{n}", role, text, at, content)
            for n, (role, text, content) in enumerate(self.said)
            if any(word.lower() in text.lower() for word in query.split())
        ][:limit]


class Conversation:
    """A person talking with the offline model, its tools being run as a turn runs them."""

    def __init__(
        self, toolbox: Toolbox, context: ToolContext = CONTEXT, language: str = "en"
    ) -> None:
        self.toolbox, self.context, self.language = toolbox, context, language
        self.past = FakeTranscripts()
        self.messages: list[Message] = []
        self.results: list[str] = []

    async def say(self, text: str, *notes: str, begins: int | None = None) -> str:
        blocks = (*(Text(note, note=True) for note in notes), Text(text))
        self.messages.append(Message("user", blocks))
        begins = len(self.messages) - 1 if begins is None else begins
        while True:
            request = Request(
                "offline",
                "",
                tuple(self.messages),
                self.toolbox.specs,
                language=self.language,
                begins=begins,
            )
            reply = await run(request)
            self.messages.append(reply.message)
            uses = [block for block in reply.message.blocks if isinstance(block, ToolUse)]
            assert (reply.stop == "tool_use") == bool(uses)
            if not uses:
                return reply.message.text
            results = [await self.toolbox.run(use, self.context) for use in uses]
            self.results += [result.text for result in results]
            self.messages.append(Message("user", tuple(results)))


async def run(request: Request) -> Reply:
    events = [event async for event in OfflineModel().stream(request)]
    *deltas, reply = events
    assert isinstance(reply, Reply)
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.message.text
    assert reply.usage == Usage()
    return reply


def talk(tmp_path: Path, *past: str, context: ToolContext = CONTEXT, language: str = "en"):
    transcripts = FakeTranscripts(*past)
    tools = [
        MemoryWrite(Notes(FolderNotes(tmp_path)), SpaceFiles(FolderNotes(tmp_path))),
        TranscriptSearch(transcripts),
    ]
    talking = Conversation(Toolbox(tools), context, language)
    talking.past = transcripts
    return talking


def says(language: str, key: str, **values: Any) -> str:
    return i18n.text(language, f"offline.{key}", **values)


# --- remembering ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "said", "kept", "answer"),
    [
        (
            "en",
            "Remember that my daughter is allergic to peanuts",
            "my daughter is allergic to peanuts",
            "Noted: “my daughter is allergic to peanuts”",
        ),
        (
            "zh",
            "请记住：我女儿对花生过敏",
            "我女儿对花生过敏",
            "记下了：“我女儿对花生过敏”",
        ),
        (
            "en",
            "记住我女儿对花生过敏",
            "我女儿对花生过敏",
            "Noted: “我女儿对花生过敏”",
        ),
        (
            "zh",
            "please remember I like tea.",
            "I like tea.",
            "记下了：“I like tea.”",
        ),
    ],
)
async def test_it_says_what_it_keeps_and_leaves_the_tick_to_the_engine(
    tmp_path: Path, language: str, said: str, kept: str, answer: str
):
    assert await talk(tmp_path, language=language).say(said) == answer
    assert f"- 14:03 {kept} <!--" in (tmp_path / "memory/2026-07-01.md").read_text()


@pytest.mark.parametrize(
    ("result", "is_error"),
    [
        (Refused("the note could not be written: No space left on device"), True),
        ("stored in memory/2026-07-01.md line 3", True),
        ("I will store it later", False),
        ("stored in memory/2026-07-01.md line 3", False),
        ("", False),
    ],
)
async def test_it_confirms_nothing_the_tool_did_not(result: str | ToolValue, *, is_error: bool):
    use = ToolUse("1", "memory_write", {"text": "tea"})
    messages = (
        Message("user", (Text("remember tea"),)),
        Message("assistant", (use,)),
        Message("user", (answering("1", result, is_error=is_error),)),
    )
    text = (await run(Request("offline", "", messages))).message.text
    assert "✓" not in text
    assert text.startswith("I could not store that.")


async def test_a_session_that_may_not_write_is_told_so(tmp_path: Path):
    answer = await talk(tmp_path, context=BLIND).say("remember tea")
    assert answer == says("en", "no_store")
    answer = await talk(tmp_path, context=BLIND).say("what about tea?")
    assert answer == says("en", "no_search")
    assert list(tmp_path.iterdir()) == []


async def test_without_the_tool_it_says_so():
    answer = await Conversation(Toolbox([])).say("remember that I like tea")
    assert answer.startswith(says("en", "no_store"))


@pytest.mark.parametrize("said", ["Remember", "remember:", "请记住"])
async def test_remember_what(tmp_path: Path, said: str):
    assert (await talk(tmp_path).say(said)).startswith(says("en", "remember_what"))
    assert list(tmp_path.iterdir()) == []


# --- recalling -----------------------------------------------------------------------------------


async def test_it_quotes_what_was_said_with_its_date(tmp_path: Path):
    past = ("Remember that my daughter is allergic to peanuts", "The weather is fine")
    answer = await talk(tmp_path, *past).say("What is my daughter allergic to?")
    assert answer == (
        "I can only quote what I found:\n\n"
        "On 2026-07-01 14:03 you said: “Remember that my daughter is allergic to peanuts”"
    )


async def test_it_does_so_in_chinese(tmp_path: Path):
    talking = talk(tmp_path, "记住我女儿对花生过敏", "今天天气很好", language="zh")
    answer = await talking.say("你还记得我女儿对什么过敏吗？")
    assert answer == "我只能引用找到的内容：\n\n2026-07-01 14:03 你说过：“记住我女儿对花生过敏”"


async def test_questions_are_no_answers(tmp_path: Path):
    talking = talk(tmp_path, "What do you know about tea?", "tea?", "I drink tea at five")
    answer = await talking.say("What do you know about tea?")
    assert "I drink tea at five" in answer
    assert answer.count("“") == 1


async def test_its_own_answers_are_no_answers(tmp_path: Path):
    talking = talk(tmp_path, "Tea is ready.")
    for question in ("tea?", "What about the tea?", "remember tea"):
        own = await talking.say(question)
        reply = new_entry(talking.messages[-1])
        assert reply.text == own
        talking.past.said.append(("assistant", own, reply.content))
    answer = await talking.say("what of tea?")
    assert answer.count("“") == 1
    assert "you said: “Tea is ready.”" in answer


async def test_a_question_that_was_said_is_no_answer_whoever_found_it():
    quotes = [said(text) for text in ("Where is tea?", "Tea: shelf")]
    answer = await after_search(Quoted(tuple(quotes)), "memory_search")
    assert "“Tea: shelf”" in answer
    assert "Where is tea?" not in answer


async def test_it_names_no_files_where_it_is_told_not_to():
    found = noted("memory/tea.md:1", "Tea at five.")
    answer = await after_search(found, "memory_search", cite=False)
    assert answer.endswith("In your notes: “Tea at five.”")


async def test_several_lines_of_notes_are_quoted_as_lines_without_their_headings():
    found = noted("memory/tea.md:1-4", "# Tea\n\n- At five\n- With milk")
    answer = await after_search(found, "memory_search")
    assert "In memory/tea.md:1-4:\n\n> - At five\n> - With milk" in answer
    assert "#" not in answer


async def test_of_a_long_note_the_lines_that_answer_are_quoted():
    note = "- milk\n- tea at five\n- eggs\n- bread\n- no tea for Bob"
    answer = await after_search(noted("memory/a.md:1-5", note), "memory_search")
    assert answer.endswith("In memory/a.md:1-5:\n\n> - tea at five\n> - no tea for Bob")


async def test_a_long_note_in_other_words_is_quoted_as_it_is():
    note = "- milk\n- juice\n- eggs\n- bread"
    answer = await after_search(noted("memory/a.md:1-4", note, match=0.3), "memory_search")
    assert all(f"> {line}" in answer for line in note.splitlines())


async def test_the_best_few_and_no_more(tmp_path: Path):
    talking = talk(tmp_path, *(f"tea number {n} {'x' * 400}" for n in range(9)))
    answer = await talking.say("tea?")
    assert answer.count("“") == 3
    assert len(answer) < 1200


async def test_nothing_found_is_said(tmp_path: Path):
    answer = await talk(tmp_path, "The weather is fine").say("What do you know about tea?")
    assert answer.startswith("I looked for “tea” and found nothing.")
    assert says("en", "intro") in answer


async def test_notes_are_quoted_with_their_place():
    found = Quoted((Quote(("memory/2026-06-01.md:3-4",), "Tea at five."),))
    answer = await after_search(found, "memory_search")
    assert "In memory/2026-06-01.md:3-4: “Tea at five.”" in answer


async def test_every_search_there_is_is_used():
    request = asking("what about tea?", "memory_search", "transcript_search", "other")
    reply = await run(request)
    assert [(b.name, b.input["query"]) for b in reply.message.blocks if isinstance(b, ToolUse)] == [
        ("memory_search", "what about tea?"),
        ("transcript_search", "tea"),
    ]
    uses = [block for block in reply.message.blocks if isinstance(block, ToolUse)]
    results = (
        answering(uses[0].id, Refused("the index is away")),
        answering(uses[1].id, Quoted((Quote(("d", "user", "s"), "Tea.", by="user"),))),
    )
    messages = (*request.messages, reply.message, Message("user", results))
    answer = (await run(replace(request, messages=messages))).message.text
    assert answer == "I'm not sure. My best guesses, word for word:\n\nOn d you said: “Tea.”"


async def test_a_search_that_failed_is_not_nothing_found():
    answer = await after_search(Refused("the index is away"))
    assert answer == "I could not search. the index is away"


async def test_without_a_search_it_says_so():
    answer = await Conversation(Toolbox([])).say("what about tea?")
    assert answer.startswith(says("en", "no_search"))


async def test_only_results_of_its_own_calls_are_quoted():
    stray = Quoted((Quote(("d", "user", "s"), "Not yours.", by="user"),))
    for asked in (
        Message("assistant", (Text("hm"),)),
        Message("assistant", (ToolUse("2", "transcript_search", {"query": "tea"}),)),
        Message("assistant", (ToolUse("1", "web_search", {"query": "tea"}),)),
    ):
        messages = (
            Message("user", (Text("what about tea?"),)),
            asked,
            Message("user", (answering("1", stray), Text("hello"))),
        )
        answer = (await run(replace(asking("x"), messages=messages))).message.text
        assert "Not yours" not in answer


async def test_an_old_result_is_not_an_answer_to_a_new_question(tmp_path: Path):
    talking = talk(tmp_path, "tea at five")
    assert "tea at five" in await talking.say("tea?")
    assert "tea at five" not in await talking.say("hello")


@pytest.mark.parametrize(
    ("question", "said", "shown"),
    [
        ("What is the capital of France?", "hello there", False),
        ("What is she allergic to?", "Mia has allergies", True),
        ("你住在哪里？", "hello there", False),
        ("我住在哪里？", "我住在柏林", True),
        ("茶？", "我喜欢喝茶", True),
    ],
)
async def test_what_was_said_of_something_else_is_no_answer(
    question: str, said: str, *, shown: bool
):
    request = asking(question, "memory_search")
    found = Quoted((Quote(("2026-07-01 14:03", "said", "m1"), said, by="said"),))
    messages = (
        *request.messages,
        Message("assistant", (ToolUse("1", "memory_search", {"query": question}),)),
        Message("user", (answering("1", found),)),
    )
    answer = (await run(replace(request, messages=messages))).message.text
    assert (said in answer) == shown


async def test_what_matches_well_may_be_in_other_words():
    found = {"a": 0.41, "b": 0.14, "c": 0.15}
    notes = [Quote(("memory/n.md:1", "memory"), t, match=m) for t, m in found.items()]
    talk = [replace(said(f"said {t}"), match=m) for t, m in found.items()]
    answer = await after_search(Quoted((*notes, *talk)), "memory_search")
    assert [text for text in ("“a”", "“b”", "“c”") if text in answer] == ["“a”", "“c”"]
    assert "“said a”" in answer
    assert "“said b”" not in answer


@pytest.mark.parametrize(
    ("language", "asked"),
    [("en", "What did we talk about last time?"), ("zh", "我们上次聊了什么？")],
)
async def test_whoever_asks_for_the_conversation_before_is_told_its_end(language: str, asked: str):
    turns = (("person", "Tea?"), ("you", "At five: be there."))
    end = Quote(("until",), "…", until="2026-06-30 21:10", turns=turns)
    note = Text("recalled", note=True, value=Quoted((Quote(("short",), "x"), end)))
    messages = (
        Message("user", (note, Text("hello"))),
        Message("assistant", (Text("hello"),)),
        Message("user", (Text(asked),)),
    )
    request = replace(asking(asked, "memory_search", language=language), messages=messages)
    told = (await run(request)).message.text
    assert told.startswith(says(language, "before", date="2026-06-30 21:10"))
    assert told.endswith(
        f"> - {says(language, 'before_user', text='Tea?')}\n"
        f"> - {says(language, 'before_assistant', text='At five: be there.')}"
    )


# --- several messages answered together ----------------------------------------------------------


async def test_every_message_that_is_answered_gets_its_answer(tmp_path: Path):
    talking = talk(tmp_path, "tea at five")
    hurried = ("remember the milk", "hello", "tea?", "remember the eggs", "remember", "coffee?")
    talking.messages += [Message("user", (Text(said),)) for said in hurried]
    answer = await talking.say("thanks", begins=0)
    parts = answer.split("\n\n")
    assert parts[:6] == [
        "Noted: “the milk”",
        says("en", "guesses"),
        "On 2026-07-01 14:03 you said: “tea at five”",
        "Noted: “the eggs”",
        says("en", "remember_what"),
        "I looked for “coffee” and found nothing.",
    ]
    assert "\n\n".join(parts[6:]) == "\n\n".join(says("en", key) for key in INTRODUCTION)
    note = (tmp_path / "memory/2026-07-01.md").read_text()
    assert "the milk" in note
    assert "the eggs" in note


async def test_what_was_answered_before_is_not_done_again(tmp_path: Path):
    talking = talk(tmp_path)
    talking.messages += [Message("user", (Text("remember the milk"),))]
    await talking.say("hello", begins=1)
    assert list(tmp_path.iterdir()) == []


# --- being itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_it_explains_itself_once_and_is_short_later(tmp_path: Path, language: str):
    talking = talk(tmp_path, language=language)
    first = await talking.say("hello")
    assert first == "\n\n".join(says(language, key) for key in INTRODUCTION)
    assert "ANTHROPIC_API_KEY" in first
    assert ".env" in first
    assert await talking.say("你好") == says(language, "short")
    assert await talking.say("hello") == says(language, "short")


async def test_whoever_asks_what_it_is_is_told_again(tmp_path: Path):
    talking = talk(tmp_path)
    await talking.say("hello")
    assert await talking.say("what can you do?") == "\n\n".join(
        says("en", key) for key in INTRODUCTION
    )


async def test_another_language_later_is_still_the_same_conversation(tmp_path: Path):
    talking = talk(tmp_path)
    await talking.say("hello")
    talking.language = "zh"
    assert await talking.say("你好") == says("zh", "short")


async def test_what_the_engine_puts_beside_the_words_is_not_what_the_person_said(tmp_path: Path):
    answer = await talk(tmp_path).say("hello", "It is 14:03. Remember that tea is good?")
    assert answer.startswith(says("en", "intro"))


async def test_nothing_to_answer_is_refused():
    with pytest.raises(ModelRejected):
        await run(Request("offline", "", ()))


@given(st.text(max_size=60), st.sampled_from(["en", "zh", "fr", ""]))
async def test_any_words_get_the_same_answer_twice(text: str, language: str):
    request = asking(text, "memory_write", "transcript_search", language=language)
    assert await run(request) == await run(request)


@given(
    result=st.text(max_size=200)
    | st.sampled_from([Stored("memory/a.md", 1), Quoted(()), Refused("no"), Refused("no", True)]),
    is_error=st.booleans(),
)
async def test_any_tool_result_gets_an_answer(result: str | ToolValue, *, is_error: bool):
    for name in ("memory_write", "transcript_search"):
        assert await after_search(result, name, is_error=is_error)


def asking(text: str, *tools: str, language: str = "en") -> Request:
    schema: Mapping[str, Any] = {"type": "object"}
    specs = tuple(ToolSpec(name, "", schema) for name in tools)
    return Request("offline", "", (Message("user", (Text(text),)),), specs, language=language)


def said(text: str) -> Quote:
    return Quote(("2026-07-01 14:03", "said", "m1"), text, by="said")


def noted(where: str, text: str, match: float | None = None) -> Quoted:
    return Quoted((Quote((where, "memory"), text, match=match),))


def answering(call: str, result: str | ToolValue, *, is_error: bool = False) -> ToolResult:
    facts = None if isinstance(result, str) else result
    is_error = is_error or isinstance(result, Refused)
    return ToolResult(call, str(result), is_error=is_error, value=facts)


async def after_search(
    result: str | ToolValue,
    name: str = "transcript_search",
    *,
    is_error: bool = False,
    cite: bool = True,
) -> str:
    request = asking("what about tea?", name)
    messages = (
        *request.messages,
        Message("assistant", (ToolUse("1", name, {"query": "tea", "text": "tea"}),)),
        Message("user", (answering("1", result, is_error=is_error),)),
    )
    return (await run(replace(request, messages=messages, cite=cite))).message.text


@pytest.mark.parametrize(
    ("language", "asked"),
    [("en", "What did I tell you in Discord about tea?"), ("zh", "我在 Discord 里说过什么茶？")],
)
async def test_what_was_said_elsewhere_is_not_found_and_it_says_how_it_would_be(
    tmp_path: Path, language: str, asked: str
):
    context = replace(
        CONTEXT,
        view=replace(CONTEXT.view, people=("telegram:1",)),
        memory=TurnMemory(words=(asked,)),
    )
    tools = [TranscriptSearch(FakeTranscripts(), Elsewhere(("telegram", "discord")))]
    conversation = Conversation(Toolbox(tools), context, language)
    assert says(language, "elsewhere") in await conversation.say(asked)
    assert says(language, "elsewhere") not in await conversation.say(asked)
