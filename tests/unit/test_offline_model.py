"""The offline model: honest, deterministic, and through the same tools as a real one."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import i18n
from bot.agent.models import Purpose, Reply, Request, TextDelta, ToolSpec, Usage
from bot.agent.offline import (
    MAX_QUERY,
    Intent,
    Kind,
    OfflineModel,
    best_lines,
    understand,
)
from bot.agent.tools import ToolContext
from bot.agent.tools.memory import MemoryWrite
from bot.agent.tools.schedule_message import ManageReminders, ScheduleMessage
from bot.agent.tools.search import Elsewhere, Hit, TranscriptSearch
from bot.agent.tools.toolbox import Toolbox
from bot.context import sentences, wishes
from bot.context.history import new_entry
from bot.errors import ModelRejected
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory.note_store import FolderNotes
from bot.memory.notes import Notes, SpaceFiles
from bot.messages import (
    Canned,
    Message,
    Quote,
    Quoted,
    Refused,
    Scheduled,
    Stored,
    Text,
    ToolResult,
    ToolUse,
    ToolValue,
)
from bot.sessions import due_time
from bot.sessions.due_time import Every, Problem, When
from bot.sessions.reminders import MAX_TEXT
from bot.storage import fulltext

INTRODUCTION = ("intro", "can", "key")
BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 7, 1, 14, 3, tzinfo=UTC)
CONTEXT = ToolContext(MemoryView(MAIN_SPACE, ("agent:main",), private=True), "s9", NOW)
BLIND = ToolContext(MemoryView("", (), private=False), "s9", NOW)


class FakeTranscripts:
    """Finds a message when one of the query's terms is in it."""

    def __init__(self, *texts: str) -> None:
        self.said: list[tuple[Any, str, Any]] = [("user", text, ()) for text in texts]

    async def search(self, view: MemoryView, query: str, limit: int) -> Sequence[Hit]:
        at = int(NOW.timestamp() * 1000)
        return [
            Hit("s1", f"s1.{n}", role, text, at, content)
            for n, (role, text, content) in enumerate(self.said)
            if any(term.replace(" ", "") in text.lower() for term in fulltext.phrases(query))
        ][:limit]


class Conversation:
    """A person talking with the offline model, its tools being run as a turn runs them."""

    def __init__(
        self, toolbox: Toolbox, context: ToolContext = CONTEXT, language: str = "en"
    ) -> None:
        self.toolbox, self.context, self.language = toolbox, context, language
        self.past = FakeTranscripts()
        self.messages: list[Message] = []

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


def asking(text: str, *tools: str, **also: Any) -> Request:
    specs = tuple(ToolSpec(name, "", {"type": "object"}) for name in tools)
    return Request("offline", "", (Message("user", (Text(text),)),), specs, **also)


async def after(request: Request, *results: str | ToolValue, is_error: bool = False) -> str:
    """What is said once the tools it asked for have answered."""
    asked = (await run(request)).message
    uses = [block for block in asked.blocks if isinstance(block, ToolUse)]
    told = tuple(
        ToolResult(
            use.id,
            str(result),
            is_error=is_error or isinstance(result, Refused),
            value=None if isinstance(result, str) else result,
        )
        for use, result in zip(uses, results, strict=True)
    )
    messages = (*request.messages, asked, Message("user", told))
    return (await run(replace(request, messages=messages))).message.text


def said(text: str, by: Any = "said") -> Quote:
    return Quote(("2026-07-01 14:03", "said", "m1"), text, by=by)


def noted(*lines: tuple[str, float, float] | str, match: float | None = None) -> Quote:
    """A note, with what a search found in each of its lines, by words and by meaning."""
    text = "\n".join(line if isinstance(line, str) else line[0] for line in lines)
    scores = tuple(line[1:] for line in lines if not isinstance(line, str))
    return Quote(("memory/a.md:1-3", "memory"), text, "memory/a.md", 1, match=match, lines=scores)


# --- keeping and reminding -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "told", "kept"),
    [
        ("en", "Remember that Mia is allergic to peanuts", "Mia is allergic to peanuts"),
        ("zh", "请记住：我女儿对花生过敏", "我女儿对花生过敏"),
    ],
)
async def test_it_says_what_it_keeps_and_leaves_the_tick_to_the_engine(
    tmp_path, language, told, kept
):
    answer = await talk(tmp_path, language=language).say(told)
    assert answer == says(language, "stored", text=kept)
    assert f"- 14:03 {kept} <!--" in (tmp_path / "memory/2026-07-01.md").read_text()


async def test_where_it_may_not_or_cannot_it_says_so(tmp_path: Path):
    blind = talk(tmp_path, context=BLIND)
    assert await blind.say("remember tea") == says("en", "no_store")
    assert await blind.say("what about tea?") == says("en", "no_search")
    assert "note" not in await blind.say("My flight is on 3 May.")
    bare = Conversation(Toolbox([]))
    assert (await bare.say("remember that I like tea")).startswith(says("en", "no_store"))
    assert (await bare.say("what about tea?")).startswith(says("en", "no_search"))
    assert (await bare.say("Remember")).startswith(says("en", "remember_what"))
    assert await bare.say("remind me in 2 hours to call") == says("en", "no_reminders")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("result", [Refused("no space"), "stored in a.md line 3", ""])
@pytest.mark.parametrize(
    ("wish", "tool", "head"),
    [
        ("remember tea", "memory_write", "I couldn't store that."),
        ("remind me in 2 hours to go", "schedule_message", "I couldn't set a reminder."),
    ],
)
async def test_it_confirms_nothing_the_tool_did_not(wish, tool, head, result):
    assert (await after(asking(wish, tool, now=NOW), result)).startswith(head)


@pytest.mark.parametrize(
    ("language", "rule", "told"),
    [
        ("en", "", "I'll remind you on Sat 2026-11-21 09:00 (Europe/Berlin): go"),
        ("zh", "", "我会在 周六 2026-11-21 09:00 (Europe/Berlin) 提醒你：go"),
        ("en", "FREQ=DAILY", "I'll remind you every day at 09:00, starting Sat 2026-11-21 09:00"),
    ],
)
async def test_a_reminder_is_confirmed_on_the_persons_clocks(language: str, rule: str, told: str):
    due = datetime(2026, 11, 21, 9, tzinfo=BERLIN)
    request = asking("remind me tomorrow at 9 to go", ScheduleMessage.spec.name)
    request = replace(request, now=due.replace(day=20), language=language)
    begins = "2026-11-21T09:00:00"
    result = Scheduled(int(due.timestamp() * 1000), "Saturday", rule, begins)
    assert (await after(request, result)).startswith(told)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("remind me to call Bob", "reminder.problem_none"),
        ("每分钟提醒我吃药", "reminder.problem_often"),
        ("10分钟后提醒我", "reminder.what"),
        (f"remind me in 2 hours to {'call ' * MAX_TEXT}", "reminder.long"),
        ("what reminders do I have?", "reminder.usage"),
        ("cancel the reminder about the call", "reminder.usage"),
        ("forget that I like tea", "offline.forget"),
        ("forget it", "offline.forget_what"),
    ],
)
async def test_what_it_cannot_set_is_answered_with_how_to_say_it(text: str, why: str):
    answer = (await run(asking(text, "schedule_message", now=NOW))).message.text
    assert answer.startswith(i18n.catalog("en")[why].split("{")[0])


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("我有哪些提醒？", {"action": "list", "about": ""}),
        ("cancel reminder 2", {"action": "cancel", "number": 2}),
        ("暂停吃药的提醒", {"action": "pause", "about": "吃药"}),
        ("cancel my reminder", {"action": "cancel", "about": ""}),
    ],
)
async def test_of_reminders_it_says_what_the_tool_answers(said: str, asked: dict[str, Any]):
    request = asking(said, ManageReminders.spec.name)
    (use,) = (await run(request)).message.blocks
    assert isinstance(use, ToolUse)
    assert (use.name, use.input) == ("reminders", asked)
    assert await after(request, "Cancelled: call Bob") == "Cancelled: call Bob"
    refused = await after(request, Refused("the disk is full"))
    assert refused == "I couldn't do that with your reminders. the disk is full"


# --- finding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "asked", "past"),
    [
        ("en", "What is my daughter allergic to?", "My daughter is allergic to peanuts"),
        ("zh", "你还记得我女儿对什么过敏吗？", "我女儿对花生过敏"),
    ],
)
async def test_it_quotes_what_was_said_with_its_date(tmp_path, language, asked, past):
    answer = await talk(tmp_path, past, "天气很好 weather", language=language).say(asked)
    line = says(language, "said_user", date="2026-07-01 14:03", text=past)
    assert answer == f"{says(language, 'found')}\n\n- {line}"


async def test_questions_and_its_own_answers_are_no_answers(tmp_path: Path):
    talking = talk(tmp_path, "What do you know about tea?", "tea?", "Tea is ready.")
    for question in ("tea?", "What about the tea?", "remember tea"):
        own = await talking.say(question)
        reply = new_entry(talking.messages[-1])
        talking.past.said.append(("assistant", own, reply.content))
    answer = await talking.say("what of tea?")
    assert answer.count("“") == 1
    assert "you said: “Tea is ready.”" in answer


async def test_every_search_there_is_is_used_and_one_that_fails_is_not_nothing_found():
    request = asking("what about tea?", "memory_search", "transcript_search", "other")
    reply = await run(request)
    assert [(b.name, b.input["query"]) for b in reply.message.blocks if isinstance(b, ToolUse)] == [
        ("memory_search", "what about tea?"),
        ("transcript_search", "what about tea?"),
    ]
    away = Refused("the index is away")
    assert "you said: “Tea.”" in await after(request, away, Quoted((said("Tea.", "user"),)))
    assert await after(request, away, away) == "I couldn't search. the index is away"
    answer = await after(request, Quoted(()), Quoted(()))
    assert answer.startswith("I looked for “what about tea?” and found nothing.")


@pytest.mark.parametrize("cite", [True, False])
async def test_a_line_of_notes_comes_with_its_place_where_files_may_be_named(*, cite: bool):
    request = asking("what about tea?", "memory_search", cite=cite)
    answer = await after(request, Quoted((noted("# Tea", "- tea at five", "- eggs"),)))
    where = "memory/a.md:1-3" if cite else "your notes"
    assert answer.endswith(f"\n\n- In {where}: “tea at five”")


@pytest.mark.parametrize(
    ("question", "quotes", "first"),
    [
        ("Where is home?", [noted(("- we live in Kiel", 0, 0.4), ("- tea", 0, 0.05))], ["- we li"]),
        ("茶？", [said("我喜欢喝茶"), said("hello")], ["我喜欢喝茶"]),
        ("Which town?", [noted("- a", match=0.41), noted("- b", match=0.14)], ["- a"]),
        (
            "When did we marry?",
            [noted(("- 结婚纪念日是十月二日", 0, 0.32), ("- Our wedding is on 2 May", 0, 0.3))],
            ["- Our wedding is on 2 May", "- 结婚纪念日是十月二日"],
        ),
        (
            "Where is home?",
            [
                said("You live in Bonn, home", "assistant"),
                noted(("- ~~home is Bonn~~", 0.5, 0.5), ("- lives in Kiel", 0, 0.4)),
            ],
            ["- lives in Kiel", "- ~~home is Bonn~~", "You live"],
        ),
        (
            "What about the peanuts?",
            [said("Remember: no peanuts for Mia", "user"), noted("- 14:03 no peanuts for Mia")],
            ["- 14:03 no peanuts for Mia"],
        ),
        (
            "Who did we meet in May?",
            [
                noted(("- We met Jonas", 0.9, 0.6)),
                replace(noted(("- We met Ines", 0.5, 0.4)), of_time=True),
            ],
            ["- We met Ines", "- We met Jonas"],
        ),
        ("tea?", [noted(*(f"- tea {n}" for n in range(9)))], ["- tea 0", "- tea 1", "- tea 2"]),
    ],
)
def test_the_three_best_lines_are_quoted_each_once(question, quotes, first):
    found = [line for _, line in best_lines(question, quotes)]
    assert [line[: len(part)] for line, part in zip(found, first, strict=True)] == first


async def test_only_answers_to_its_own_calls_are_quoted():
    stray = ToolResult("1", "", value=Quoted((said("Not yours."),)))
    for asked in (
        Text("hm"),
        ToolUse("2", "transcript_search", {}),
        ToolUse("1", "web_search", {}),
    ):
        messages = (
            Message("user", (Text("what about tea?"),)),
            Message("assistant", (asked,)),
            Message("user", (stray, Text("hello"))),
        )
        assert "Not yours" not in (await run(replace(asking("x"), messages=messages))).message.text


@pytest.mark.parametrize(
    ("language", "asked"),
    [("en", "What did we talk about last time?"), ("zh", "我们上次聊了什么？")],
)
async def test_whoever_asks_for_the_conversation_before_is_told_its_end(language: str, asked: str):
    turns = (("person", "Tea?"), ("you", "At five: be there."))
    end = Quote(("until",), "…", until="2026-06-30 21:10", turns=turns)
    note = Text("recalled", note=True, value=Quoted((Quote(("short",), "x"), end)))
    messages = (Message("user", (note, Text("hello"))), Message("user", (Text(asked),)))
    request = replace(asking(asked, "memory_search", language=language), messages=messages)
    told = (await run(replace(request, begins=1))).message.text
    assert told.startswith(says(language, "before", date="2026-06-30 21:10"))
    assert told.endswith(f"> - {says(language, 'before_assistant', text='At five: be there.')}")


async def test_what_was_said_with_another_account_is_not_found_and_it_says_how_it_would_be():
    context = replace(CONTEXT, view=replace(CONTEXT.view, people=("telegram:1",)))
    tools = [TranscriptSearch(FakeTranscripts(), Elsewhere(("telegram", "discord")))]
    conversation = Conversation(Toolbox(tools), context)
    assert says("en", "elsewhere") in await conversation.say("What did I say about tea?")
    assert says("en", "elsewhere") not in await conversation.say("What did I say about tea?")


# --- offering ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "offered"),
    [
        ("Hello. My sister Ines lives in Bergen. She is 40.", "My sister Ines lives in Bergen."),
        ("I drink tea.\nThe rent is 900 a month", "The rent is 900 a month"),
        ("我女儿叫小雨。", "我女儿叫小雨。"),
        ("爸爸的生日是五月三号", "爸爸的生日是五月三号"),
        *(
            (said, "")
            for said in ("I drink tea.", "What about May?", "五月三号有什么事吗", "hello")
        ),
        ("My password is Blue4711x", ""),
        ("My sister Ines lives in Bergen. Don't write that down!", ""),
        ("> My sister Ines lives in Bergen", ""),
        ("He wrote “I come on 3 May”", ""),
        ("a 1\nb 2\nc 3\nd 4", ""),
        (f"{'so it goes on ' * 60} 3 May", ""),
    ],
)
async def test_a_plain_sentence_with_a_name_a_number_or_a_date_is_offered(said: str, offered: str):
    assert sentences.sentence_of(Message("user", (Text(said),))) == offered
    assert sentences.sentence_of(Message("user", (Text(said, origin="forwarded"),))) == ""


async def test_it_is_offered_unless_it_is_known_and_the_reply_says_of_which_message():
    request = asking("My flight is on 3 May.", "memory_write", "memory_search")
    offer = says("en", "offer", text="My flight is on 3 May.")
    assert offer in await after(request, Quoted(()))
    for known in (
        noted("- 12:00 my flight is on 3 May"),
        said("Hi! My flight is on 3 May.", "user"),
    ):
        assert offer not in await after(request, Quoted((known,)))
    hurried = (Message("user", (Text("hello"),)), *request.messages)
    use = ToolUse("1", "memory_search", {})
    answer = Message("user", (ToolResult("1", "", value=Quoted(())),))
    messages = (*hurried, Message("assistant", (use,)), answer)
    (block,) = (await run(replace(request, messages=messages))).message.blocks
    assert isinstance(block, Text)
    assert block.value == Canned("introduction", 1)


# --- being itself --------------------------------------------------------------------------------


async def test_every_message_that_is_answered_gets_its_answer(tmp_path: Path):
    talking = talk(tmp_path, "tea at five")
    hurried = ("remember the milk", "hello", "tea?", "remember the eggs", "remember", "coffee?")
    talking.messages += [Message("user", (Text(each),)) for each in ("remember x", *hurried)]
    answer = await talking.say("thanks", begins=1)
    expected = (
        *("Noted: “the milk”", says("en", "found")),
        *("- On 2026-07-01 14:03 you said: “tea at five”", "Noted: “the eggs”"),
        *(says("en", "remember_what"), "I looked for “coffee?” and found nothing."),
        *(says("en", key) for key in INTRODUCTION),
    )
    assert answer.split("\n\n") == list(expected)
    note = (tmp_path / "memory/2026-07-01.md").read_text()
    assert "the milk" in note
    assert "x <!--" not in note  # it was answered before


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_it_explains_itself_once_and_is_short_later_but_for_who_asks(tmp_path, language):
    talking = talk(tmp_path, language=language)
    whole = "\n\n".join(says(language, key) for key in INTRODUCTION)
    # What the engine puts beside the words is not what the person said.
    assert await talking.say("hello", "It is 14:03. Remember that tea is good?") == whole
    assert "ANTHROPIC_API_KEY" in whole
    assert await talking.say("你好") == says(language, "short")
    asked = "\n\n".join(says(language, key) for key in ("about", "key"))
    assert await talking.say("what can you do?") == asked
    talking.language = "en"
    assert await talking.say("hello") == says("en", "short")


@pytest.mark.parametrize("purpose", ["flush", "night"])
async def test_it_saves_nothing_by_itself(purpose: Purpose):
    reply = await run(asking("I moved to Graz on 3 May.", "memory_write", purpose=purpose))
    assert reply.message.text == "NO_REPLY"


async def test_nothing_to_answer_is_refused():
    with pytest.raises(ModelRejected):
        await run(Request("offline", "", ()))


@given(st.text(max_size=60), st.sampled_from(["en", "zh", "fr", ""]))
async def test_any_words_get_the_same_answer_twice(text: str, language: str):
    request = asking(text, "memory_write", "transcript_search", language=language)
    assert await run(request) == await run(request)


@given(
    st.text(max_size=200)
    | st.sampled_from([Stored("memory/a.md", 1), Quoted(()), Refused("no"), Refused("no", True)]),
    st.booleans(),
)
async def test_any_tool_result_gets_an_answer(result: str | ToolValue, is_error: bool):  # noqa: FBT001
    for wish, tool in (("remember tea", "memory_write"), ("tea?", "transcript_search")):
        assert await after(asking(wish, tool), result, is_error=is_error)


FRIDAY = datetime(2026, 11, 20, 12, 0, 7, tzinfo=BERLIN)

REMEMBER = {
    "remember that my daughter is allergic to peanuts": "my daughter is allergic to peanuts",
    "Remember: the code is 4711": "the code is 4711",
    "please remember I like tea.": "I like tea",
    "Hey, remember the milk": "the milk",
    "Could you remember that I moved to Berlin?": "I moved to Berlin",
    "Can you please remember my size is 42?": "my size is 42",
    "Don't forget that Ada comes on Friday": "Ada comes on Friday",
    "don’t forget the keys": "the keys",
    "Keep in mind: no sugar": "no sugar",
    "note that I'm out on Friday": "I'm out on Friday",
    "make a note: buy milk": "buy milk",
    "remember that he asked what time it is": "he asked what time it is",
    'remember "open sesame"': '"open sesame"',
    "remember:\none\ntwo": "one\ntwo",
    "recuerda que la llave está bajo la alfombra": "la llave está bajo la alfombra",
    "Merk dir bitte, dass Mia keine Nüsse verträgt": "Mia keine Nüsse verträgt",
    **dict.fromkeys(("remember", "Remember that.", "remember this", "记住", "记住这个"), ""),
    "记住我女儿对花生过敏": "我女儿对花生过敏",
    "请记住：密码是4711": "密码是4711",
    "请你记住，我喜欢喝茶。": "我喜欢喝茶",
    "帮我记一下:车停在B2": "车停在B2",
    "记得我喜欢喝茶": "我喜欢喝茶",
    "不要忘记艾达周五来": "艾达周五来",
    "记下来:买牛奶": "买牛奶",
    "remember that you remind me tomorrow at 9": "you remind me tomorrow at 9",
    "记住明天九点他会提醒我": "明天九点他会提醒我",
}
FIND = [
    *("What do you know about peanuts?", "what is my daughter allergic to", "peanuts?", "花生？"),
    *("Did I say anything about Berlin?", "do you remember my daughter?", "search for the café"),
    *("Remember when we met Ada?", "remember what I told you about Berlin", "查一下柏林"),
    *("tell me what you know about Ada", "What did we say about Rome last time?"),
    *("你还记得我女儿对什么过敏吗", "我女儿对什么过敏？", "你记得我的名字吗？", "我女儿几岁"),
    *("上次聊罗马说了什么？", "what do I like?", "what should I do?", "我喜欢什么？"),
    # What only looks like a wish to be reminded.
    *("do you remind me of someone", "remind me what I said about Berlin"),
    *("remind me of my wife's birthday", "did I ask you to remind me tomorrow at 9?"),
    *("what did I say about reminders?", "今天你提醒我吃药了吗？"),
]
OTHERS = {
    "about": (
        *("who are you?", "What can you do", "what can you do for me?", "help", "are you a bot?"),
        *("你是谁？", "你能做什么", "你会什么？", "帮助", "你好，怎么用"),
    ),
    "notes": (
        *("What do you know about me?", "what do you remember?", "who am I", "show my notes"),
        *("What have you saved about me?", "what's in your memory?", "list what you remember"),
        *("What information do you have about me?", "summarize what you know about me"),
        *("你知道我什么", "你记得我的哪些事？", "你了解我吗", "我是谁？", "我告诉过你什么"),
        *("你记得我的哪些事", "说说你对我的了解", "你记住了我的哪些事情？", "你的记忆里有什么？"),
        *("把你记得的告诉我", "列出你记得的内容", "你记得哪些关于我的信息？"),
    ),
    "before": (
        *("What did we talk about last time?", "what were we talking about", "Where were we?"),
        *("what did I say before?", "what have we discussed in our last conversation?"),
        *("上次聊了什么？", "我们之前聊到哪里了？", "我们上次都说了些什么", "刚才我们谈到哪了？"),
    ),
    "list": (
        *("what reminders do I have?", "show my reminders", "my reminders"),
        *("Do I have any reminders?", "which reminders are there", "我有哪些提醒？"),
        *("我有什么提醒", "查看我的提醒"),
    ),
    "": (
        *("", " ", "hello", "I like tea.", "Notebooks are nice", "thanks!", "？", "今天天气很好"),
        *("how are you?", "are you there?", "在吗", "谢谢"),
        *("you remind me of someone", "he reminded me tomorrow at 9 to call", "never remind me"),
        *("don't remind me tomorrow at 9 to call", "remind him tomorrow at 9 to call"),
        *("My boss said: remind me tomorrow at 9 to call", "thanks for reminding me at 9"),
        *("evenings like tonight remind me of you", "谢谢你提醒我明天九点开会", "提醒我的人明天来"),
        *("老师提醒我明天早上九点交作业", "不用提醒我明天九点开会", "你提醒我想起了妈妈"),
    ),
}  # fmt: skip
CHANGES: dict[str, tuple[Kind, str]] = {
    "cancel the reminder about the call": ("cancel", "call"),
    "Please cancel my dentist reminder!": ("cancel", "dentist"),
    "Can you delete the reminder to call Bob, please?": ("cancel", "call bob"),
    "remove the reminder that the bins go out": ("cancel", "bins go out"),
    "stop the reminders about my pills, thanks": ("cancel", "pills"),
    "stop reminding me to take the pills": ("cancel", "take pills"),
    "cancel reminder 2": ("cancel", "#2"),
    "cancel reminder number 2, please": ("cancel", "#2"),
    "cancel reminder #12.": ("cancel", "#12"),
    "pause my medicine reminder": ("pause", "medicine"),
    "resume the reminder about the plants": ("resume", "plants"),
    "cancel that reminder": ("cancel", ""),
    "cancel my reminders": ("cancel", ""),
    "cancel all reminders": ("cancel", ""),
    "取消打电话的提醒": ("cancel", "打电话"),
    "请取消关于打电话的那个提醒，谢谢": ("cancel", "打电话"),
    "你能取消吃药的提醒吗？": ("cancel", "吃药"),
    "删除第2条提醒": ("cancel", "#2"),
    "取消提醒2": ("cancel", "#2"),
    "帮我取消一下提醒2": ("cancel", "#2"),
    "我想取消给妈妈打电话的那条提醒": ("cancel", "给妈妈打电话"),
    "取消提醒：交报告": ("cancel", "交报告"),
    "把开会的提醒取消掉": ("cancel", "开会"),
    "暂停吃药的提醒": ("pause", "吃药"),
    "恢复吃药的提醒吧": ("resume", "吃药"),
    "取消提醒": ("cancel", ""),
    "取消所有提醒": ("cancel", ""),
    "删除刚才的提醒吧": ("cancel", ""),
    "forget that I like tea": ("forget", "I like tea"),
    "Please forget about Berlin.": ("forget", "Berlin"),
    "can you forget my address?": ("forget", "my address"),
    "forget everything you know about Ines": ("forget", "Ines"),
    "forget what I said about the boat, please": ("forget", "the boat"),
    "forget it": ("forget", ""),
    "Forget that!": ("forget", ""),
    "忘掉我喜欢喝茶": ("forget", "我喜欢喝茶"),
    "请忘记关于柏林的事": ("forget", "柏林"),
    "请把我的地址忘掉吧": ("forget", "我的地址"),
    "忘掉这个": ("forget", ""),
}
NO_CHANGES = {
    "did you cancel the reminder about the call?": "find",
    "delete the note about the reminder": "",
    "thanks for the reminder!": "",
    "don't forget that I like tea": "remember",
    "I forget where my keys are": "",
    "my boss said: cancel the reminder about the call": "",
    "取消会议，然后明天九点提醒我打电话": "",
    "谢谢你取消了打电话的提醒": "",
    "忘了带钥匙": "",
    "别忘了我喜欢喝茶": "remember",
    "老师说取消打电话的提醒": "",
}
REMIND = {
    "remind me in 2 hours to call mum": ("Fri 14:00", "call mum"),
    "remind me to call mum in 2 hours": ("Fri 14:00", "call mum"),
    "in 2 hours remind me to call mum": ("Fri 14:00", "call mum"),
    "Tomorrow at 9, please remind me to call Bob": ("Sat 09:00", "call Bob"),
    "Please remind me tomorrow at 9am to leave, thanks!": ("Sat 09:00", "leave"),
    "Can you remind me to call mum at 6pm?": ("Fri 18:00", "call mum"),
    "Hey, I'd like you to remind me in 5 min to breathe": ("Fri 12:05", "breathe"),
    "don’t forget to remind me tomorrow to call mum": ("Sat 09:00", "call mum"),
    "remind me of the meeting tomorrow at 9": ("Sat 09:00", "the meeting"),
    "set a reminder for tomorrow at 9 to call mum": ("Sat 09:00", "call mum"),
    "I need a reminder for 6pm: dinner": ("Fri 18:00", "dinner"),
    "every monday at 9 remind me to jog": ("Mon 09:00", "jog"),
    "提醒我明天早上九点吃药": ("Sat 09:00", "吃药"),
    "两小时后提醒我开会": ("Fri 14:00", "开会"),
    "请提醒我明天九点吃药，谢谢": ("Sat 09:00", "吃药"),
    "别忘了提醒我周五下午三点交报告": ("Fri 15:00", "交报告"),
    "你能提醒我明天九点吃药吗？": ("Sat 09:00", "吃药"),
    "明天早上九点你能提醒我吃药好吗？": ("Sat 09:00", "吃药"),
    "帮我设个提醒：明天九点开会": ("Sat 09:00", "开会"),
    "每周一早上九点提醒我开会": ("Mon 09:00", "开会"),
    "remind me at 3 p.m. to call mum": ("Fri 15:00", "call mum"),
    "Hi! How are you? Remind me at 6pm to call mum.": ("Fri 18:00", "call mum"),
    "别忘了明天开会": ("Sat 09:00", "开会"),
    "remember to call mum": "none",
    "remind me": "none",
    "remind me to call mum": "none",
    "remind me today at 11:00 to call mum": "past",
    "remind me at 25:00 to call mum": "wrong",
    "remind me every minute to take pills": "often",
    "提醒我吃药": "none",
}


@pytest.mark.parametrize(("text", "words"), REMEMBER.items())
def test_a_wish_to_keep(text: str, words: str):
    assert understand(text) == Intent("remember", (words,) if words else ())


def test_each_wish_of_a_message_is_one():
    assert understand("I like tea. Remember that. And remember: rice!").words == (
        "I like tea.",
        "rice",
    )


@pytest.mark.parametrize("text", FIND)
def test_a_question_is_looked_for(text: str):
    assert understand(text) == Intent("find", (text,))
    assert wishes.asks_to_read(text) == ""


@pytest.mark.parametrize(
    ("kind", "text"), [(k, text) for k, some in OTHERS.items() for text in some]
)
def test_what_has_no_words_of_its_own(kind: str, text: str):
    assert understand(text) == Intent(kind)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("text", "expected"), CHANGES.items())
def test_a_wish_to_change_a_reminder_or_to_forget(text: str, expected: tuple[Kind, str]):
    kind, words = expected
    assert understand(text) == Intent(kind, (words,) if words else ())


@pytest.mark.parametrize(("text", "kind"), NO_CHANGES.items())
def test_what_only_looks_like_a_wish_to_change_something(text: str, kind: str):
    assert understand(text).kind == kind


@pytest.mark.parametrize(("text", "expected"), REMIND.items())
def test_a_wish_to_be_reminded(text: str, expected: tuple[str, str] | str):
    asked = understand(text)
    assert asked.kind == "remind"
    found = due_time.parse(*asked.words, FRIDAY)
    match found:
        case Problem():
            assert found.value == expected
        case When(at, rest) | Every(_, at, rest):
            assert (f"{at:%a %H:%M}", rest) == expected


AHEAD = st.integers(1, 4 * 365 * 24 * 60).map(lambda minutes: timedelta(minutes=minutes))
FORMS = st.sampled_from(
    [
        "remind me on {at:%Y-%m-%d} at {at:%H:%M} to {what}",
        "please remind me to {what} on {at:%Y-%m-%d} at {at:%H:%M}",
        "on {at:%Y-%m-%d} at {at:%H:%M} remind me to {what}",
        "can you set a reminder for {at:%Y-%m-%d %H:%M} to {what}?",
        "提醒我{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分，{what}",
        "{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分提醒我{what}",
    ]
)
OTHERS_SAY = st.sampled_from(
    ["my boss", "she said", "you", "I do not", "memories", "他", "老师", "谁"]
)


@given(AHEAD, FORMS, st.sampled_from(["call mum", "喝水", "drink 2 glasses"]), OTHERS_SAY)
def test_the_time_that_was_written_is_read_and_only_of_who_asks_for_themselves(
    ahead, form, what, who
):
    now = FRIDAY.replace(second=0)
    at = (now.astimezone(UTC) + ahead).astimezone(BERLIN)
    said = form.format(at=at, what=what)
    found = due_time.parse(*understand(said).words, now)
    assert isinstance(found, When)
    assert found.rest == what
    # Of a time that comes twice, the other one may be meant.
    assert found.at == at or found.at.replace(tzinfo=None) == at.replace(tzinfo=None)
    assert understand(f"{who}: {said}").kind != "remind"


@given(st.text())
def test_any_text_is_understood_one_way_or_another(text: str):
    asked = understand(text)
    assert all(len(words) <= max(MAX_QUERY, len(text) + 1) for words in asked.words)
    assert len(asked.words) == 1 or asked.kind not in {"find", "remind"}
    assert asked.kind == "remember" or len(asked.words) < 2


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    [
        *("please " * 5000, "请" * 9000, "a" * 20000 + "?", "remember " * 3000, "可以" * 9000),
        *("请你" * 40, "你好" * 4000, "好的你要" * 4000, "remind me " * 3000, "提醒我" * 6000),
        *("a" + " " * 20000, "你能" * 4000 + "提醒", "tomorrow " * 3000, "please remind " * 3000),
        *("cancel " * 3000 + "reminder", "取消" * 9000 + "提醒", "把" * 9000, "forget " * 3000),
        *("忘掉" * 9000, "cancel reminder " + "了" * 9000, "可以" * 9000 + "取消提醒"),
    ],
)
def test_long_texts_take_no_time(text: str):
    understand(text)
