"""A model without a model: no key, no network, and honest about it.

It can keep what it is told, remind, look for what was said and quote that. It reaches all of these
through the same tools as a real model, and says a thing is done only when the tool says so.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot import i18n
from bot.agent.models import Reply, Request, TextDelta, Window
from bot.agent.offline.intent import MAX_QUERY, Intent, understand
from bot.agent.turn import TOKENS
from bot.context import excerpt, sentences, wishes, wording
from bot.context.quoting import clipped
from bot.errors import ModelRejected
from bot.memory import markdown
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.sessions import due_time, recurrence
from bot.sessions.due_time import Every, Problem, When
from bot.sessions.recurrence import Series, described
from bot.sessions.reminders import MAX_TEXT
from bot.storage import fulltext
from bot.tool_results import Canned, Quote, Quoted, Refused, Scheduled, Stored

WRITE = "memory_write"
REMIND = "schedule_message"
SEARCHES = ("memory_search", "transcript_search")
PASSAGES = 20  # that are asked for: a line far down may be the one
NOTES = 10  # lines that answer "what do you know about me?"
KNOWN = 3  # passages in which something is looked for before it is offered to be kept
WINDOW = Window(max_input_tokens=1_000_000, max_output_tokens=8_192)  # it has no limit of its own

_PIECES = re.compile("[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\\s\u3040-\u30ff\u3400-\u9fff]+\\s*|\\s+")

Answered = tuple[ToolUse, ToolResult]
"""A tool this model asked for, and what it answered."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One message of the person, what it asks for, and the tools to ask: name and arguments.

    `offer` is a sentence of it that may be kept, where nothing is asked for.
    """

    said: str
    intent: Intent
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()
    offer: str = ""


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
        write = _reply if request.purpose == "chat" else chore
        message = await asyncio.to_thread(write, request)
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
    asked = [
        _wish(request, place)
        for place, message in enumerate(request.messages)
        if place >= request.begins and message.begins_turn
    ]
    calls = [call for wish in asked for call in wish.calls]
    if calls and not left:
        place = len(request.messages)  # no other call of the conversation has this id
        uses = (ToolUse(f"offline-{place}-{n}", *call) for n, call in enumerate(calls))
        return Message("assistant", tuple(uses))
    is_asked = any(wish.intent.kind == "about" for wish in asked)
    # All of it the first time in a conversation and for who asks, else one line.
    whole = is_asked or not any(_introduces(message) for message in request.messages)
    parts: list[str] = []
    explain, offered = is_asked, None
    for number, wish in enumerate(asked):
        found = _taken(left, wish)
        text, says_all = _answer(request, wish, found)
        if wish.offer and _is_news(wish.offer, found):
            text, says_all, offered = _text(request, "offer", text=wish.offer), not whole, number
        parts.append(text)
        explain = explain or not says_all
    parts = [part for part in dict.fromkeys(parts) if part]
    told = Canned("answer", offered)
    if explain or not parts:
        keys = ("intro", "can", "key") if whole else ("short",)
        parts += [_text(request, key) for key in keys]
        told = Canned("introduction" if whole else "answer", offered)
    return Message("assistant", (Text("\n\n".join(parts), value=told),))


def _introduces(message: Message) -> bool:
    values = (block.value for block in message.blocks if isinstance(block, Text))
    return any(isinstance(each, Canned) and each.kind == "introduction" for each in values)


def _text(request: Request, key: str, **values: object) -> str:
    key = key if "." in key else f"offline.{key}"
    return i18n.text(request.language, key, **values)


# --- what was asked for --------------------------------------------------------------------------


def _wish(request: Request, place: int) -> Wish:
    """What a message asks for, and the tools that are asked for it."""
    said = request.messages[place].text
    intent, offer = understand(said), ""
    searches: Mapping[str, Mapping[str, object]] = {}
    calls: list[tuple[str, Mapping[str, object]]] = []
    offered = {spec.name for spec in request.tools}
    match intent.kind:
        case "remember":
            intent = Intent("remember", intent.words or _said_before(request.messages[:place]))
            calls += [(WRITE, {"text": each}) for each in intent.words]
        case "remind":
            found = _when(request, intent)
            if not isinstance(found, Problem) and found.rest and len(found.rest) <= MAX_TEXT:
                at = found.at if isinstance(found, When) else found.first
                rule = {"rule": str(found.series.rule)} if isinstance(found, Every) else {}
                asked = {"text": found.rest, "at": at.isoformat(timespec="seconds"), **rule}
                calls.append((REMIND, asked))
        case "notes" | "before" if not (intent.kind == "before" and _before(request)):
            searches = {SEARCHES[0]: {"query": "me", "limit": NOTES}}  # which names nothing
        case "find":
            # Memory is searched by sense, so it gets the whole question; the other its words.
            searches = {
                name: {"query": words, "limit": PASSAGES}
                for name, words in zip(
                    SEARCHES, (said.strip()[:MAX_QUERY], *intent.words), strict=True
                )
            }
        case "" if WRITE in offered and (offer := sentences.sentence_of(request.messages[place])):
            searches = {name: {"query": offer, "limit": KNOWN} for name in SEARCHES}
        case _:
            pass
    asked_of = tuple(call for call in (*calls, *searches.items()) if call[0] in offered)
    return Wish(said, intent, asked_of, offer)


def _said_before(messages: Sequence[Message]) -> tuple[str, ...]:
    """What "remember that" is about: the last thing that was stated."""
    stated = (wishes.stated(each.own_text) for each in reversed(messages) if each.begins_turn)
    return tuple(itertools.islice(filter(None, stated), 1))


def _when(request: Request, intent: Intent) -> When | Every | Problem:
    return due_time.parse(intent.words[0], request.now) if request.now else Problem.NONE


# --- what the tools answered ---------------------------------------------------------------------


def _answered(request: Request) -> list[Answered]:
    """What the tools answered to the calls this reply follows; nothing else counts as an answer."""
    asked, told = request.messages[-2:] if len(request.messages) > 1 else (None, None)
    if asked is None or told is None or (asked.role, told.role) != ("assistant", "user"):
        return []
    uses = {block.id: block for block in asked.blocks if isinstance(block, ToolUse)}
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


def _quotes(found: Iterable[Answered]) -> list[Quote]:
    values = (result.value for _, result in found)
    return [quote for each in values if isinstance(each, Quoted) for quote in each.quotes]


def _is_news(offer: str, found: Sequence[Answered]) -> bool:
    """True when a sentence stands in no note, and was not said before."""
    words = markdown.normal(offer)
    is_known = any(words in markdown.normal(quote.text) for quote in _quotes(found))
    return any(isinstance(result.value, Quoted) for _, result in found) and not is_known


def _answer(request: Request, wish: Wish, found: Sequence[Answered]) -> tuple[str, bool]:
    """What there is to say to a wish, and whether that says it all."""
    kind, words, is_whole = wish.intent.kind, "", True
    match kind:
        case "find" | "notes" | "before" if found:
            return _found(request, wish, found)
        case "before" if before := _before(request):
            words = before
        case "find" | "notes" | "before":
            words, is_whole = _text(request, "no_search"), False
        case "remember" | "remind" if found:
            words = "\n\n".join(_done(request, *item) for item in found)
        case "remind":
            words = _not_reminding(request, wish.intent)
        case "reminders":
            words = _text(request, "reminder.usage")
        case "remember":
            key = "no_store" if wish.intent.words else "remember_what"
            words, is_whole = _text(request, key), False
        case _:
            pass
    return words, is_whole


def _done(request: Request, use: ToolUse, result: ToolResult) -> str:
    """What came of something that was to be kept, or said later."""
    words = str(use.input.get("text", ""))
    match result.value:
        case Stored(path, line, already=True):
            return _text(request, "stored_already", path=path, line=line)
        case Stored():
            return _text(request, "stored", text=words)
        case Scheduled(due_at, _, rule, begins):
            zone = request.now.tzinfo if request.now else UTC
            moment = due_time.shown(request.language, datetime.fromtimestamp(due_at / 1000, zone))
            if rule:
                series = Series(recurrence.parse(rule), datetime.fromisoformat(begins))
                often = described(request.language, series)
                return _text(request, "repeat.set_text", often=often, when=moment, text=words)
            return _text(request, "reminder.set", when=moment, text=words)
        case Refused(hidden=True) if use.name == WRITE:
            return _text(request, "no_store")
        case _:
            key = "not_stored" if use.name == WRITE else "not_reminding"
            return _text(request, key, reason=_reason(result))


def _reason(result: ToolResult) -> str:
    return result.value.reason if isinstance(result.value, Refused) else result.text.strip()


def _before(request: Request) -> str:
    """The end of the conversation before, as the newest note of it says; empty without one."""
    blocks = (block for message in reversed(request.messages) for block in message.blocks)
    notes = (b.value for b in blocks if isinstance(b, Text) and isinstance(b.value, Quoted))
    end = next((quote for note in notes for quote in note.quotes if quote.turns), None)
    if end is None:
        return ""
    keys = {"person": "before_user", "you": "before_assistant"}
    lines = [f"> - {_text(request, keys[who], text=said)}" for who, said in end.turns]
    return "\n".join([_text(request, "before", date=end.until), "", *lines])


def _not_reminding(request: Request, intent: Intent) -> str:
    """Why no reminder was set, and how to say it."""
    if REMIND not in {spec.name for spec in request.tools}:
        return _text(request, "no_reminders")
    found = _when(request, intent)
    if isinstance(found, Problem):
        why = _text(request, f"reminder.problem_{found.value}")
    elif found.rest:
        return _text(request, "reminder.long", most=MAX_TEXT)
    else:
        at = found.at if isinstance(found, When) else found.first
        why = _text(request, "reminder.what", when=due_time.shown(request.language, at))
    return f"{why}\n\n{_text(request, 'remind_examples')}"


# --- quoting what was found ----------------------------------------------------------------------

BEST = 3  # lines that are quoted
LENGTH = 300  # characters of one
# Chosen by one half of the questions of `bench/offline`; docs/measured.md has the other half's
# figures.
NEAR = 0.1  # how near in meaning a line is to be quoted
LIKELY = 0.15  # how well a passage matches to be quoted, where its lines were not scored
BY_WORDS = 0.15  # of a line's share of the words asked for, beside the cosine of its meaning
UNSCORED = 0.5  # of the share of the words, where nothing else is known
OTHER_SCRIPT = 0.6  # of a line in Chinese for a question in English, or the other way round
OTHER_TIME = 0.5  # of what is of another time than was asked about, when something is of that
BELIEVED_LESS = 0.5  # of what the bot said itself, and of what was struck out


def _found(request: Request, wish: Wish, found: Sequence[Answered]) -> tuple[str, bool]:
    values = [result.value for _, result in found]
    if all(isinstance(each, Refused) and each.hidden for each in values):
        return _text(request, "no_search"), True
    works = [use for use, result in found if not result.is_error]
    if not works:
        return _text(request, "not_searched", reason=_reason(found[0][1])), True
    quotes, head = _quotes(found), "found"
    if wish.intent.kind == "find":
        best = best_lines(wish.said, wish.intent.words[0], quotes)
    else:
        best, head = [(quote, quote.text) for quote in quotes], "known"
        if not best:
            return _text(request, "known_nothing"), True
    if best:
        lines = [_line(request, *each) for each in best]
        return "\n".join([_text(request, head), "", *lines]), True
    nothing = _text(request, "nothing", query="".join(wish.intent.words))
    if any(isinstance(each, Quoted) and each.elsewhere for each in values):
        return f"{nothing}\n\n{_text(request, 'elsewhere')}", True
    return nothing, False


def _line(request: Request, quote: Quote, line: str) -> str:
    """A line with where it stands, or when it was said, as a person reads it."""
    text = clipped(markdown.unlisted(line), LENGTH)
    if quote.by:
        return f"- {_text(request, f'said_{quote.by}', date=quote.where[0], text=text)}"
    where = quote.where[0] if request.cite else _text(request, "notes")
    return f"- {_text(request, 'noted', where=where, text=text)}"


def best_lines(question: str, query: str, quotes: Sequence[Quote]) -> list[tuple[Quote, str]]:
    """The lines that may answer a question, best first, each once: a note before the same talk.

    `query` has the question's content words.
    """
    asked, is_cjk = _terms(query), _is_cjk(question)
    is_of_time = any(quote.of_time for quote in quotes)
    found: list[tuple[float, Quote, str]] = []
    keys: list[str] = []
    for quote in sorted(quotes, key=lambda each: bool(each.by)):
        asks = quote.by in {"user", "said"} and sentences.only_asks(quote.text)
        if asks or quote.text.strip() == question.strip():
            continue
        factor = OTHER_TIME if is_of_time and not quote.of_time else 1.0
        factor *= BELIEVED_LESS if quote.by == "assistant" else 1.0
        for line, score in _scored(quote, asked):
            bare = markdown.untimed(markdown.unlisted(line))
            key = markdown.normal(bare)
            if any(key == other or (quote.by and other in key) for other in keys):
                continue
            keys.append(key)
            believed = BELIEVED_LESS if bare.startswith("~~") else 1.0
            script = 1.0 if _is_cjk(bare) == is_cjk else OTHER_SCRIPT
            found.append((score * factor * believed * script, quote, line))
    found.sort(key=lambda each: -each[0])
    return [(quote, line) for _, quote, line in found[:BEST]]


def _scored(quote: Quote, asked: frozenset[str]) -> Iterator[tuple[str, float]]:
    """The lines of a quote that may answer, each with how well; what was said is one line."""
    lines = [quote.text] if quote.by else quote.text.split("\n")
    known: Sequence[tuple[float, float]] = quote.lines
    if quote.by and known:
        words, meanings = zip(*known, strict=True)
        known = ((max(words), max(meanings)),)
    for number, line in enumerate(lines):
        if not markdown.normal(line) or (line.startswith("#") and not quote.by):
            continue
        there = _terms(line)  # one Chinese character of a question stands inside of pairs
        shared = sum(term in there or (fulltext.is_cjk(term) and term in line) for term in asked)
        share = shared / max(1, len(asked))
        if len(known) == len(lines):
            words, near = known[number]
            score, least = near + BY_WORDS * words, NEAR
        else:
            near, least = quote.match or 0.0, LIKELY
            score = max(near, UNSCORED * share)
        if share or near >= least:
            yield line, score


def _terms(text: str) -> frozenset[str]:
    """A text's words by how they begin, and its Chinese in pairs of characters."""
    words = wording.words(text)
    return frozenset(word if fulltext.is_cjk(word) else wording.stem(word) for word in words)


def _is_cjk(text: str) -> bool:
    """True when a text is mostly Chinese, Japanese or Korean; a character counts as half a word."""
    runs = fulltext.runs(text)
    cjk = [run for run in runs if fulltext.is_cjk(run)]
    return sum(map(len, cjk)) > 2 * (len(runs) - len(cjk))


# --- what it does beside talking -----------------------------------------------------------------

NOTHING = "- (Little was said.)"
SUMMARY_SHARE = 2  # what is asked for is this part of what may be written


def chore(request: Request) -> Message:
    """The whole reply to a request whose purpose is not to chat; it saves nothing to memory."""
    if request.purpose != "summary":
        return Message("assistant", (Text(TOKENS[0]),))
    summary = excerpt.summarise(request.said, request.max_tokens // SUMMARY_SHARE)
    return Message("assistant", (Text(summary if len(summary) > len(NOTHING) else NOTHING),))
