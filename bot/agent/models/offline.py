"""A model without a model: no key, no network, and honest about it.

It can keep what it is told, look for what was said, and quote that. It reaches both through the
same tools as a real model, and says a thing is done only when the tool says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot import i18n
from bot.agent.models import Reply, Request, TextDelta, Window, answers
from bot.agent.models.answers import Answer
from bot.agent.models.intent import (
    MAX_QUERY,
    About,
    Intent,
    Recall,
    Remember,
    Remind,
    Reminders,
    understand,
)
from bot.agent.replies import TOKENS
from bot.context import excerpt, facts
from bot.errors import ModelRejected
from bot.memory import markdown
from bot.memory.many import asks_for_a_list
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.sessions import due_time, recurrence
from bot.sessions.due_time import Every, Problem, When
from bot.sessions.recurrence import Series
from bot.sessions.reminders import MAX_TEXT
from bot.sessions.rule_words import described
from bot.tool_results import Canned, Quoted, Refused, Scheduled, Stored

WRITE = "memory_write"
REMIND = "schedule_message"
SEARCHES = ("memory_search", "transcript_search")
PASSAGES = 20  # that are asked for: a line far down may be the one
WINDOW = Window(max_input_tokens=1_000_000, max_output_tokens=8_192)  # it has no limit of its own

_PIECES = re.compile("[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\\s\u3040-\u30ff\u3400-\u9fff]+\\s*|\\s+")

Answered = tuple[ToolUse, ToolResult]
"""A tool this model asked for, and what it answered."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One message of the person, what it asks for, and the tools to ask: name and arguments."""

    said: str
    intent: Intent
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()


class OfflineModel:
    """A `Model` that understands a few wishes, and explains itself for all others."""

    name = "offline"

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply, word by word.

        Raises:
            ModelRejected: there is nothing to answer.
        """
        if not request.messages:
            raise ModelRejected("there is nothing to answer")
        if request.purpose == "chat":
            message = _reply(request)
        else:  # a long conversation takes a while to look through
            message = await asyncio.to_thread(chore, request)
        for piece in _PIECES.findall(message.text):
            yield TextDelta(piece)
            await asyncio.sleep(0)  # others may run, and a stop may come, between two words
        uses = any(isinstance(block, ToolUse) for block in message.blocks)
        yield Reply(message, "tool_use" if uses else "end")

    async def window(self, model: str) -> Window:
        """As much as any conversation."""
        return WINDOW

    async def names(self) -> tuple[str, ...]:
        """The one name."""
        return (self.name,)

    async def close(self) -> None:
        """Nothing to release."""


def _reply(request: Request) -> Message:
    """The whole reply to a request: first the tools to ask, then what there is to say. Pure."""
    left = _answered(request)
    offered = {spec.name for spec in request.tools} | {use.name for use, _ in left}
    wishes = [
        _wish(request, message.text, offered)
        for message in request.messages[request.begins :]
        if message.role == "user" and not any(isinstance(b, ToolResult) for b in message.blocks)
    ]
    calls = [call for wish in wishes for call in wish.calls]
    if calls and not left:
        place = len(request.messages)  # no other call of the conversation has this id
        uses = (ToolUse(f"offline-{place}-{n}", *call) for n, call in enumerate(calls))
        return Message("assistant", tuple(uses))
    is_asked = any(isinstance(wish.intent, About) for wish in wishes)
    explain = is_asked
    parts: list[str] = []
    for wish in wishes:
        text, is_whole = _answer(request, wish, _taken(left, wish))
        parts.append(text)
        explain = explain or not is_whole
    parts += [_done(request, *item) for item in left if item[0].name not in SEARCHES]
    parts = [part for part in dict.fromkeys(parts) if part]
    # All of it the first time in a conversation and for who asks, else one line.
    whole = is_asked or not any(_introduces(message) for message in request.messages)
    told = Canned("answer")
    if explain or not parts:
        keys = ("intro", "can", "key") if whole else ("short",)
        parts += [_text(request, f"offline.{key}") for key in keys]
        told = Canned("introduction" if whole else "answer")
    return Message("assistant", (Text("\n\n".join(parts), value=told),))


def _introduces(message: Message) -> bool:
    return any(isinstance(b, Text) and b.value == Canned("introduction") for b in message.blocks)


def _text(request: Request, key: str, **values: object) -> str:
    return i18n.text(request.language, key, **values)


# --- what was asked for --------------------------------------------------------------------------


def _wish(request: Request, said: str, offered: Collection[str]) -> Wish:
    intent = understand(said)
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()
    match intent:
        case Remember(what) if what and WRITE in offered:
            calls = ((WRITE, {"text": what}),)
        case Remind() if REMIND in offered:
            found = _when(request, intent)
            if not isinstance(found, Problem) and found.rest and len(found.rest) <= MAX_TEXT:
                at = found.at if isinstance(found, When) else found.first
                asked = {"text": found.rest, "at": at.isoformat(timespec="seconds")}
                if isinstance(found, Every):
                    asked["rule"] = str(found.series.rule)
                calls = ((REMIND, asked),)
        case Recall(query, before) if not (before and _before(request)):
            # Memory is searched by sense, so it gets the whole question; the other its words. It
            # finds the questions too, which are left out.
            ways: Mapping[str, Mapping[str, object]] = {
                "memory_search": {"query": said.strip()[:MAX_QUERY], "limit": PASSAGES},
                "transcript_search": {"query": query, "limit": PASSAGES},
            }
            calls = tuple((name, ways[name]) for name in SEARCHES if name in offered)
        case _:
            pass
    return Wish(said, intent, calls)


def _when(request: Request, intent: Remind) -> When | Every | Problem:
    return due_time.parse(intent.words, request.now) if request.now else Problem.NONE


# --- what the tools answered ---------------------------------------------------------------------


def _answered(request: Request) -> list[Answered]:
    """What the tools answered to the calls this reply follows; nothing else counts as an answer."""
    asked, told = request.messages[-2:] if len(request.messages) > 1 else (None, None)
    if asked is None or told is None or (asked.role, told.role) != ("assistant", "user"):
        return []
    known = {WRITE, REMIND, *SEARCHES}
    uses = {b.id: b for b in asked.blocks if isinstance(b, ToolUse) and b.name in known}
    results = (block for block in told.blocks if isinstance(block, ToolResult))
    return [(uses[each.tool_use_id], each) for each in results if each.tool_use_id in uses]


def _taken(left: list[Answered], wish: Wish) -> list[Answered]:
    """The answers to a wish's calls, which come in the order of the wishes."""
    found: list[Answered] = []
    for name, _ in wish.calls:
        item = next((each for each in left if each[0].name == name), None)
        if item is not None:
            left.remove(item)
            found.append(item)
    return found


def _answer(request: Request, wish: Wish, found: Sequence[Answered]) -> tuple[str, bool]:
    """What there is to say to a wish, and whether that says it all."""
    words, is_whole = "", True
    match wish.intent:
        case Recall() if found:
            return _found(request, wish, found)
        case _ if found:
            words = "\n\n".join(_done(request, *item) for item in found)
        case Remind():
            words = _not_reminding(request, wish.intent)
        case Reminders():
            words = _text(request, "reminder.usage")
        case Recall(before=True) if before := _before(request):
            words = before
        case Recall():
            words, is_whole = _text(request, "offline.no_search"), False
        case Remember(what):
            key = "offline.no_store" if what else "offline.remember_what"
            words, is_whole = _text(request, key), False
        case _:
            pass
    return words, is_whole


def _done(request: Request, use: ToolUse, result: ToolResult) -> str:
    """What came of something that was to be kept, or said later."""
    words = str(use.input.get("text", ""))
    match result.value:
        case Stored(path, line, already=True):
            return _text(request, "offline.stored_already", path=path, line=line)
        case Stored():
            return _text(request, "offline.stored", text=words)
        case Scheduled(due_at, _, rule, begins):
            zone = request.now.tzinfo if request.now else UTC
            moment = due_time.shown(request.language, datetime.fromtimestamp(due_at / 1000, zone))
            if rule:
                series = Series(recurrence.parse(rule), datetime.fromisoformat(begins))
                often = described(request.language, series)
                return _text(request, "repeat.set_text", often=often, when=moment, text=words)
            return _text(request, "reminder.set", when=moment, text=words)
        case Refused(hidden=True) if use.name == WRITE:
            return _text(request, "offline.no_store")
        case _:
            key = "offline.not_stored" if use.name == WRITE else "offline.not_reminding"
            return _text(request, key, reason=_reason(result))


def _found(request: Request, wish: Wish, answered: Sequence[Answered]) -> tuple[str, bool]:
    values = [result.value for _, result in answered]
    if all(isinstance(each, Refused) and each.hidden for each in values):
        return _text(request, "offline.no_search"), True
    works = [use for use, result in answered if not result.is_error]
    if not works:
        return _text(request, "offline.not_searched", reason=_reason(answered[0][1])), True
    found = [each for each in values if isinstance(each, Quoted)]
    ranked = answers.ranked(wish.said, [quote for each in found for quote in each.quotes])
    if ranked:
        return _quoted(request, wish.said, ranked), True
    nothing = _text(request, "offline.nothing", query=str(works[-1].input.get("query", "")))
    if any(each.elsewhere for each in found):
        return f"{nothing}\n\n{_text(request, 'offline.elsewhere')}", True
    return nothing, False


def _reason(result: ToolResult) -> str:
    return result.value.reason if isinstance(result.value, Refused) else result.text.strip()


def _before(request: Request) -> str:
    """The end of the conversation before, as the newest note of it says; empty without one."""
    blocks = (block for message in reversed(request.messages) for block in message.blocks)
    notes = (b.value for b in blocks if isinstance(b, Text) and isinstance(b.value, Quoted))
    end = next((quote for note in notes for quote in note.quotes if quote.turns), None)
    if end is None:
        return ""
    keys = {"person": "offline.before_user", "you": "offline.before_assistant"}
    lines = [f"> - {_text(request, keys[who], text=said)}" for who, said in end.turns]
    return "\n".join([_text(request, "offline.before", date=end.until), "", *lines])


def _not_reminding(request: Request, intent: Remind) -> str:
    """Why no reminder was set, and how to say it."""
    if REMIND not in {spec.name for spec in request.tools}:
        return _text(request, "offline.no_reminders")
    found = _when(request, intent)
    if isinstance(found, Problem):
        why = _text(request, f"reminder.problem_{found.value}")
    elif found.rest:
        return _text(request, "reminder.long", most=MAX_TEXT)
    else:
        at = found.at if isinstance(found, When) else found.first
        why = _text(request, "reminder.what", when=due_time.shown(request.language, at))
    return f"{why}\n\n{_text(request, 'offline.remind_examples')}"


# --- quoting what was found ----------------------------------------------------------------------

QUOTES = 3
QUOTES_OF_A_LIST = 6
QUOTE_LENGTH = 300  # characters of what was said
NOTE_LENGTH = 700  # of a passage of notes, which may hold several entries


def _quoted(request: Request, question: str, ranked: Sequence[Answer]) -> str:
    """The answer when it is certain, else the best few as guesses."""
    if answers.is_sure(question, ranked):
        return f"{_text(request, 'offline.found')}\n\n{_shown(request, ranked[:1])}"
    guesses: dict[int, list[Answer]] = {}
    most = QUOTES_OF_A_LIST if asks_for_a_list(question) else QUOTES
    for each in ranked[:most]:  # lines of one passage together
        guesses.setdefault(id(each.quote), []).append(each)
    shown = (_shown(request, each) for each in guesses.values())
    return "\n\n".join([_text(request, "offline.guesses"), *shown])


def _shown(request: Request, found: Sequence[Answer]) -> str:
    """What was found in one place, as a person reads it."""
    quote, said = found[0].quote, found[0].said
    if quote.by:
        text = _clipped(" ".join(quote.text.split()), QUOTE_LENGTH)
        return _text(request, f"offline.said_{quote.by}", date=quote.where[0], text=text)
    where = quote.where[0] if request.cite else _text(request, "offline.notes")
    text = "\n".join(line for each in found for line in each.lines)
    lines = _clipped(text, NOTE_LENGTH).splitlines()
    if len(lines) > 1:
        head = _text(request, "offline.noted_lines", where=where)
        return "\n".join([head, "", *(f"> {line}" for line in lines)])
    text = " ".join(markdown.unlisted(lines[0]).split())
    if said and said[:10] not in where:
        return _text(request, "offline.noted_said", where=where, date=said, text=text)
    return _text(request, "offline.noted", where=where, text=text)


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


# --- what it does beside talking -----------------------------------------------------------------

AT_ONCE = 8  # entries in one step
NOTHING = "- (Little was said.)"
SUMMARY_SHARE = 2  # what is asked for is this part of what may be written


def chore(request: Request) -> Message:
    """The whole reply to a request whose purpose is not to chat."""
    if request.purpose == "summary":
        summary = excerpt.summarise(request.said, request.max_tokens // SUMMARY_SHARE)
        few = f"{NOTHING}\n{summary}".strip()
        return Message("assistant", (Text(summary if len(summary) > len(NOTHING) else few),))
    blocks = _writes(request)
    return Message("assistant", blocks or (Text(TOKENS[0]),))


def _writes(request: Request) -> tuple[ToolUse, ...]:
    """The next entries to write; none when all are there, or when writing does not work."""
    last = request.messages[-1].blocks if request.messages else ()
    results = [block for block in last if isinstance(block, ToolResult)]
    failed = results and all(block.is_error for block in results)
    if failed or WRITE not in {spec.name for spec in request.tools}:
        return ()
    blocks = [block for message in request.messages for block in message.blocks]
    written = [str(b.input.get("text", "")) for b in blocks if isinstance(b, ToolUse)]
    known = [each.text for each in request.said if each.who == "memory"]
    # What the program keeps by itself is no memory: reminders, and asking for them.
    person = (each.text for each in request.said if each.who == "person")
    stated = facts.stated(
        text for text in person if not isinstance(understand(text), Remind | Reminders)
    )
    news = facts.unknown(stated, (*written, *known))
    start = len(written)
    return tuple(
        ToolUse(f"offline-flush-{start + number}", WRITE, {"text": fact})
        for number, fact in enumerate(news[:AT_ONCE])
    )
