"""A model without a model: no key, no network, and honest about it.

It can keep what it is told, look for what was said, and quote that. It reaches both through the
same tools as a real model, and says a thing is done only when the tool says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bot import i18n
from bot.agent.models import Reply, Request, TextDelta, Window
from bot.agent.models.intent import (
    MAX_QUERY,
    About,
    Intent,
    Recall,
    Remember,
    Remind,
    Reminders,
    query_of,
    understand,
)
from bot.agent.replies import TOKENS
from bot.context import extract
from bot.errors import ModelRejected
from bot.facts import Quote, Quoted, Refused, Scheduled, Stored
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.sessions import when
from bot.sessions.reminders import MAX_TEXT
from bot.sessions.when import When

WRITE = "memory_write"
REMIND = "schedule_message"
SEARCHES = ("memory_search", "transcript_search")
WINDOW = Window(max_input_tokens=1_000_000, max_output_tokens=8_192)  # it has no limit of its own
SEARCH_LIMIT: Final[Mapping[str, int]] = {"transcript_search": 20}  # own questions are left out

_PIECES = re.compile("[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\\s\u3040-\u30ff\u3400-\u9fff]+\\s*|\\s+")


@dataclass(frozen=True, slots=True)
class Wish:
    """One message of the person, what it asks for, and the tools to ask: name and arguments."""

    said: str
    intent: Intent
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """A tool this model asked for, and what it answered."""

    use: ToolUse
    result: ToolResult


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
    """The whole reply to a request. Pure."""
    answered = _answered(request)
    names = {spec.name for spec in request.tools} | {item.use.name for item in answered or ()}
    wishes = [_wish(request, said, names) for said in _words(request)]
    if answered is None:
        calls = [call for wish in wishes for call in wish.calls]
        if calls:
            place = len(request.messages)  # no other call of the conversation has this id
            uses = (ToolUse(f"offline-{place}-{n}", *call) for n, call in enumerate(calls))
            return Message("assistant", tuple(uses))
    return Message("assistant", (Text(_answer(request, wishes, answered or ())),))


def _answer(request: Request, wishes: Sequence[Wish], answered: Sequence[Answered]) -> str:
    """What there is to say to every wish, in order, and about itself where that explains it."""
    left = list(answered)
    parts: list[str] = []
    explain = any(isinstance(wish.intent, About) for wish in wishes)
    for wish in wishes:
        found = _taken(left, wish)
        text, is_whole = _reported(request, wish, found) if found else _plain(request, wish)
        parts.append(text)
        explain = explain or not is_whole
    parts += [_done(request, item) for item in left if item.use.name not in SEARCHES]
    said = [part for part in dict.fromkeys(parts) if part]
    if explain or not said:
        whole = any(isinstance(wish.intent, About) for wish in wishes)
        said.append(_about_itself(request, whole=whole))
    return "\n\n".join(said)


# --- what was asked for --------------------------------------------------------------------------


def _words(request: Request) -> tuple[str, ...]:
    """What the person wrote that this turn answers: often one message, several when they hurry."""
    begins = len(request.messages) - 1 if request.begins is None else request.begins
    if request.begins is None and len(request.messages) > 2 and _answered(request) is not None:
        begins -= 2
    return tuple(
        message.text
        for message in request.messages[begins:]
        if message.role == "user" and not _has_results(message)
    )


def _has_results(message: Message) -> bool:
    return any(isinstance(block, ToolResult) for block in message.blocks)


def _wish(request: Request, said: str, offered: Collection[str]) -> Wish:
    intent = understand(said)
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()
    match intent:
        case Remember(what) if what and WRITE in offered:
            calls = ((WRITE, {"text": what}),)
        case Remind() if REMIND in offered:
            found = _when(request, intent)
            if isinstance(found, When) and found.rest and len(found.rest) <= MAX_TEXT:
                at = found.at.isoformat(timespec="seconds")
                calls = ((REMIND, {"text": found.rest, "at": at}),)
        case Recall() if not (intent.before and _before(request)):
            names = [name for name in SEARCHES if name in offered]
            calls = tuple((name, _search_arguments(name, said, intent.query)) for name in names)
        case _:
            pass
    return Wish(said, intent, calls)


def _when(request: Request, intent: Remind) -> When | when.Problem:
    return when.parse(intent.words, request.now) if request.now else when.Problem.NONE


def _search_arguments(name: str, question: str, query: str) -> dict[str, object]:
    """Memory is searched by sense, so it gets the whole question; other searches get its words."""
    limit = SEARCH_LIMIT.get(name)
    if limit is None:
        return {"query": question.strip()[:MAX_QUERY]}
    return {"query": query, "limit": limit}


# --- what the tools answered ---------------------------------------------------------------------


def _answered(request: Request) -> tuple[Answered, ...] | None:
    """What the tools answered to the calls this reply follows; nothing else counts as an answer."""
    if len(request.messages) < 2:
        return None
    asked, told = request.messages[-2:]
    if asked.role != "assistant" or told.role != "user":
        return None
    known = {WRITE, REMIND, *SEARCHES}
    uses = {b.id: b for b in asked.blocks if isinstance(b, ToolUse) and b.name in known}
    found = tuple(
        Answered(uses[block.tool_use_id], block)
        for block in told.blocks
        if isinstance(block, ToolResult) and block.tool_use_id in uses
    )
    return found or None


def _taken(left: list[Answered], wish: Wish) -> list[Answered]:
    """The answers to a wish's calls, which come in the order of the wishes."""
    found: list[Answered] = []
    for name, _ in wish.calls:
        item = next((each for each in left if each.use.name == name), None)
        if item is not None:
            left.remove(item)
            found.append(item)
    return found


def _reported(request: Request, wish: Wish, found: Sequence[Answered]) -> tuple[str, bool]:
    """What came of a wish, and whether that says it all."""
    if isinstance(wish.intent, Recall):
        return _found(request, wish, found)
    return "\n\n".join(_done(request, item) for item in found), True


def _done(request: Request, item: Answered) -> str:
    """What came of something that was to be kept, or said later."""
    language, words = request.language, str(item.use.input.get("text", ""))
    match item.result.facts:
        case Stored(path, line, already=True):
            return i18n.text(language, "offline.stored_already", path=path, line=line)
        case Stored():
            return i18n.text(language, "offline.stored", text=words)
        case Scheduled(due_at):
            zone = request.now.tzinfo if request.now else UTC
            moment = when.shown(language, datetime.fromtimestamp(due_at / 1000, zone))
            return i18n.text(language, "reminder.set", when=moment, text=words)
        case Refused(hidden=True) if item.use.name == WRITE:
            return i18n.text(language, "offline.no_store")
        case _:
            key = "offline.not_stored" if item.use.name == WRITE else "offline.not_reminding"
            return i18n.text(language, key, reason=_reason(item.result))


def _found(request: Request, wish: Wish, answered: Sequence[Answered]) -> tuple[str, bool]:
    language = request.language
    facts = [item.result.facts for item in answered]
    if all(isinstance(each, Refused) and each.hidden for each in facts):
        return i18n.text(language, "offline.no_search"), True
    works = [item for item in answered if not item.result.is_error]
    if not works:
        reason = _reason(answered[0].result)
        return i18n.text(language, "offline.not_searched", reason=reason), True
    found = [each for each in facts if isinstance(each, Quoted)]
    useful = _best([quote for each in found for quote in each.quotes], wish.said)
    if useful:
        lines = [_shown(language, quote, wish.said, cite=request.cite) for quote in useful]
        return "\n\n".join([i18n.text(language, "offline.found"), *lines]), True
    query = str(works[-1].use.input.get("query", ""))
    nothing = i18n.text(language, "offline.nothing", query=query)
    if any(each.elsewhere for each in found):
        return f"{nothing}\n\n{i18n.text(language, 'offline.elsewhere')}", True
    return nothing, False


def _reason(result: ToolResult) -> str:
    return result.facts.reason if isinstance(result.facts, Refused) else result.text.strip()


# --- what needs no tool --------------------------------------------------------------------------


def _plain(request: Request, wish: Wish) -> tuple[str, bool]:
    """The answer to a wish without a tool, and whether that says it all."""
    language = request.language
    match wish.intent:
        case Remind():
            return _not_reminding(request, wish.intent), True
        case Reminders():
            return i18n.text(language, "reminder.usage"), True
        case Recall() if wish.intent.before and (words := _before(request)):
            return words, True
        case Recall():
            return i18n.text(language, "offline.no_search"), False
        case Remember(what):
            key = "offline.no_store" if what else "offline.remember_what"
            return i18n.text(language, key), False
        case _:
            return "", True


def _before(request: Request) -> str:
    """The end of the conversation before; empty when it is not known."""
    end = next((quote for quote in _recalled(request) if quote.turns), None)
    if end is None:
        return ""
    language = request.language
    keys = {"person": "offline.before_user", "you": "offline.before_assistant"}
    lines = [f"> - {i18n.text(language, keys[who], text=said)}" for who, said in end.turns]
    return "\n".join([i18n.text(language, "offline.before", date=end.until), "", *lines])


def _recalled(request: Request) -> Iterator[Quote]:
    """What the notes of a conversation quote, the newest first."""
    for message in reversed(request.messages):
        for block in message.blocks:
            if isinstance(block, Text) and isinstance(block.facts, Quoted):
                yield from block.facts.quotes


def _not_reminding(request: Request, intent: Remind) -> str:
    """Why no reminder was set, and how to say it."""
    language = request.language
    if REMIND not in {spec.name for spec in request.tools}:
        return i18n.text(language, "offline.no_reminders")
    found = _when(request, intent)
    if not isinstance(found, When):
        why = i18n.text(language, f"reminder.problem_{found.value}")
    elif found.rest:
        return i18n.text(language, "reminder.long", most=MAX_TEXT)
    else:
        why = i18n.text(language, "reminder.what", when=when.shown(language, found.at))
    return f"{why}\n\n{i18n.text(language, 'offline.remind_examples')}"


def _about_itself(request: Request, *, whole: bool) -> str:
    """All of it the first time in a conversation and for who asks, else one line."""
    language = request.language
    if not whole and any(_explains(message) for message in request.messages):
        return i18n.text(language, "offline.short")
    return "\n\n".join(i18n.text(language, f"offline.{key}") for key in ("intro", "can", "key"))


def _explains(message: Message) -> bool:
    return message.role == "assistant" and any(
        i18n.text(language, "offline.intro") in message.text for language in i18n.LANGUAGES
    )


# --- quoting what was found ----------------------------------------------------------------------

QUOTES = 3
QUOTE_LENGTH = 300  # characters of what was said
NOTE_LENGTH = 700  # of a passage of notes, which may hold several entries
LIKELY = 0.15  # how well a passage in other words matches; what has nothing to do with it less
WHOLE_LINES = 3  # of a note are quoted whether they answer or not
STEM = 4  # letters two words begin with to count as one: "allergic" and "allergies"

# Of this model's own answers, by how they begin.
_OWN_HEADS: Final = (
    *("offline.intro", "offline.short", "offline.found", "offline.before", "offline.nothing"),
    *("offline.not_searched", "offline.no_search", "offline.no_store", "offline.stored"),
    *("offline.stored_already", "offline.not_stored", "offline.remember_what"),
    *("offline.not_reminding", "offline.no_reminders", "reminder.set", "reminder.what"),
    *("reminder.long", "reminder.usage", *(f"reminder.problem_{p.value}" for p in when.Problem)),
)
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]+")
_WORD = re.compile("[^\\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]+")


def _best(quotes: Sequence[Quote], question: str) -> list[Quote]:
    """The few that may answer a question: by a word in common, or because they match it well."""
    wanted = _terms(query_of(question))
    useful = (
        quote
        for quote in _useful(quotes, question)
        if _has_any(quote.text, wanted) or (quote.match or 0.0) >= LIKELY
    )
    return list(useful)[:QUOTES]


def _shown(language: str, quote: Quote, question: str, *, cite: bool) -> str:
    """One of them, as a person reads it; of a long passage the lines that answer."""
    if quote.by:
        text = _clipped(" ".join(quote.text.split()), QUOTE_LENGTH)
        return i18n.text(language, f"offline.said_{quote.by}", date=quote.where[0], text=text)
    where = quote.where[0] if cite else i18n.text(language, "offline.notes")
    kept = _clipped(quote.text, NOTE_LENGTH).splitlines()
    lines = [line for line in kept if line.strip() and not line.startswith("#")] or kept
    if len(lines) > WHOLE_LINES:
        wanted = _terms(query_of(question))
        lines = [line for line in lines if _has_any(line, wanted)] or lines
    if len(lines) == 1:
        return i18n.text(language, "offline.noted", where=where, text=" ".join(lines[0].split()))
    head = i18n.text(language, "offline.noted_lines", where=where)
    return "\n".join([head, "", *(f"> {line}" for line in lines)])


def _has_any(text: str, wanted: Sequence[str]) -> bool:
    """Whether a text has one of some words, or of some pieces of Chinese."""
    lowered = text.lower()
    words = {word[:STEM] for word in _WORD.findall(lowered)}
    return any(term in words if _WORD.fullmatch(term) else term in lowered for term in wanted)


def _terms(query: str) -> list[str]:
    """A query's words by how they begin, and its Chinese in pairs of characters."""
    runs = _CJK.findall(query)
    pairs = [run[at : at + 2] for run in runs for at in range(max(1, len(run) - 1))]
    return [word[:STEM] for word in _WORD.findall(query.lower())] + pairs


def _useful(quotes: Sequence[Quote], question: str) -> Iterator[Quote]:
    """Quotes that can answer: the person's own words first, without what they only asked."""
    seen = {question.strip()}
    for quote in sorted(quotes, key=lambda quote: quote.by == "assistant"):
        text = quote.text.strip()
        if text in seen or not text:
            continue
        seen.add(text)
        asked = quote.by in {"user", "said"} and isinstance(understand(text), Recall)
        own = quote.by in {"assistant", "said"} and _is_own_answer(text)
        if not asked and not own:
            yield quote


def _is_own_answer(text: str) -> bool:
    """Whether this model wrote it, so that quoting it would quote a quote."""
    catalogs = [i18n.catalog(language) for language in i18n.LANGUAGES]
    heads = (catalog[key].split("{")[0] for catalog in catalogs for key in _OWN_HEADS)
    return text.startswith(tuple(head for head in heads if head))


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


# --- what it does beside talking -----------------------------------------------------------------

AT_ONCE = 8  # entries in one step
NOTHING = "- (Little was said.)"
SUMMARY_SHARE = 2  # what is asked for is this part of what may be written


def chore(request: Request) -> Message:
    """The whole reply to a request whose purpose is not to chat."""
    if request.purpose == "summary":
        summary = extract.summarise(request.said, request.max_tokens // SUMMARY_SHARE)
        few = f"{NOTHING}\n{summary}".strip()
        return Message("assistant", (Text(summary if len(summary) > len(NOTHING) else few),))
    blocks = _writes(request)
    return Message("assistant", blocks or (Text(TOKENS[0]),))


def _writes(request: Request) -> tuple[ToolUse, ...]:
    """The next entries to write; none when all are there, or when writing does not work."""
    if WRITE not in {spec.name for spec in request.tools} or _failed(request):
        return ()
    blocks = [block for message in request.messages for block in message.blocks]
    written = [str(b.input.get("text", "")) for b in blocks if isinstance(b, ToolUse)]
    known = [each.text for each in request.said if each.who == "memory"]
    # What the program keeps by itself is no memory: reminders, and asking for them.
    person = (each.text for each in request.said if each.who == "person")
    facts = extract.facts(text for text in person if not _is_reminder(text))
    news = extract.unknown(facts, (*written, *known))
    start = len(written)
    return tuple(
        ToolUse(f"offline-flush-{start + number}", WRITE, {"text": fact})
        for number, fact in enumerate(news[:AT_ONCE])
    )


def _is_reminder(text: str) -> bool:
    return isinstance(understand(text), Remind | Reminders)


def _failed(request: Request) -> bool:
    """Whether the last writes were all refused."""
    last = request.messages[-1].blocks if request.messages else ()
    results = [block for block in last if isinstance(block, ToolResult)]
    return bool(results) and all(block.is_error for block in results)
