"""A model without a model: no key, no network, and honest about it.

It can keep what it is told, look for what was said, and quote that. It reaches both through the
same tools as a real model, and says a thing is done only when the tool says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bot import i18n
from bot.agent.models import Reply, Request, TextDelta, Window, chores
from bot.agent.models.intent import MAX_QUERY, Recall, Remember, understand
from bot.agent.tools.quotes import BEFORE, Quote, parse
from bot.context.prompt import NO_CITE
from bot.errors import ModelRejected, NotVisible
from bot.messages import Message, Text, ToolResult, ToolUse

WRITE = "memory_write"
SEARCHES = ("memory_search", "transcript_search")
WINDOW = Window(max_input_tokens=1_000_000, max_output_tokens=8_192)  # it has no limit of its own
QUOTES = 3
QUOTE_LENGTH = 300  # characters of what was said
NOTE_LENGTH = 700  # of a passage of notes, which may hold several entries
SEARCH_LIMIT: Final[Mapping[str, int]] = {"transcript_search": 20}  # own questions are left out

_END = "its end"
_ROLES = ("user", "assistant", "said")  # of what was said, not noted
# Of this model's own answers, by how they begin.
_OWN_HEADS = (
    *("intro", "short", "found", "before", "nothing", "not_searched", "no_search", "no_store"),
    *("stored", "stored_already", "not_stored", "remember_what"),
)
_STORED = re.compile(r"stored in (?P<path>\S.*\.md) line (?P<line>\d+)")
_ALREADY = re.compile(r"already in (?P<path>\S.*\.md) line (?P<line>\d+); nothing was written")
_PIECES = re.compile("[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\\s\u3040-\u30ff\u3400-\u9fff]+\\s*|\\s+")


@dataclass(frozen=True, slots=True)
class Answered:
    """A tool this model asked for, and what it answered."""

    use: ToolUse
    result: ToolResult


class OfflineModel:
    """A `Model` that understands two wishes, and explains itself for all others."""

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
            message = await asyncio.to_thread(chores.reply, request)
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
    before = "" if answered else _before(request)
    blocks = () if answered or before else _tool_calls(request)
    if blocks:
        return Message("assistant", blocks)
    text = before or _answer(request, answered)
    return Message("assistant", (Text(text),))


def _answer(request: Request, answered: Sequence[Answered]) -> str:
    return _report(request, answered) if answered else _without_tools(request)


def _before(request: Request) -> str:
    """The end of the conversation before, for who asks for that; empty when it is not known."""
    intent = understand(_words(request.messages))
    if not isinstance(intent, Recall) or not intent.before:
        return ""
    notes = (b.text for m in request.messages for b in m.blocks if isinstance(b, Text) and b.note)
    quotes = [quote for note in notes for quote in parse(note)]
    ends = [quote for quote in quotes if quote.where[0].startswith(BEFORE) and _END in quote.where]
    if not ends:
        return ""
    lines: list[str] = []
    for line in ends[-1].text.splitlines():
        who, _, said = line.partition(": ")
        key = {"person": "offline.before_user", "you": "offline.before_assistant"}.get(who)
        lines.append(f"> - {i18n.text(request.language, key, text=said) if key else line}")
    until = ends[-1].where[0].removeprefix(BEFORE)
    return "\n".join([i18n.text(request.language, "offline.before", date=until), "", *lines])


# --- asking for tools ----------------------------------------------------------------------------


def _tool_calls(request: Request) -> tuple[ToolUse, ...]:
    said = _words(request.messages)
    intent = understand(said)
    offered = {spec.name for spec in request.tools}
    if isinstance(intent, Remember) and intent.what and WRITE in offered:
        return (ToolUse(_call_id(request, 0), WRITE, {"text": intent.what}),)
    if isinstance(intent, Recall):
        names = [name for name in SEARCHES if name in offered]
        return tuple(
            ToolUse(_call_id(request, n), name, _search_arguments(name, said, intent.query))
            for n, name in enumerate(names)
        )
    return ()


def _search_arguments(name: str, question: str, query: str) -> dict[str, object]:
    """Memory is searched by sense, so it gets the whole question; other searches get its words."""
    limit = SEARCH_LIMIT.get(name)
    if limit is None:
        return {"query": question.strip()[:MAX_QUERY]}
    return {"query": query, "limit": limit}


def _call_id(request: Request, number: int) -> str:
    """An id that no other call of the conversation has, and always the same for the same place."""
    return f"offline-{len(request.messages)}-{number}"


def _answered(request: Request) -> tuple[Answered, ...]:
    """What the tools answered to the calls this reply follows; nothing else counts as an answer."""
    if len(request.messages) < 2:
        return ()
    asked, told = request.messages[-2:]
    if asked.role != "assistant" or told.role != "user":
        return ()
    known = {WRITE, *SEARCHES}
    uses = {b.id: b for b in asked.blocks if isinstance(b, ToolUse) and b.name in known}
    return tuple(
        Answered(uses[block.tool_use_id], block)
        for block in told.blocks
        if isinstance(block, ToolResult) and block.tool_use_id in uses
    )


# --- saying what came of it ----------------------------------------------------------------------


def _report(request: Request, answered: Sequence[Answered]) -> str:
    writes = [item for item in answered if item.use.name == WRITE]
    if writes:
        return "\n".join(_stored(request.language, item) for item in writes)
    return _found(request, answered)


def _stored(language: str, item: Answered) -> str:
    answer = "" if item.result.is_error else item.result.text.strip()
    if place := _ALREADY.fullmatch(answer):
        return i18n.text(language, "offline.stored_already", **place.groupdict())
    if _is_closed(item.result):
        return i18n.text(language, "offline.no_store")
    if not _STORED.fullmatch(answer):
        return i18n.text(language, "offline.not_stored", reason=_reason(item.result))
    return i18n.text(language, "offline.stored", text=str(item.use.input.get("text", "")))


def _found(request: Request, answered: Sequence[Answered]) -> str:
    language, question = request.language, _question(request)
    works = [item for item in answered if not item.result.is_error]
    if not works and all(_is_closed(item.result) for item in answered):
        return i18n.text(language, "offline.no_search")
    if not works:
        reason = _reason(answered[0].result)
        return i18n.text(language, "offline.not_searched", reason=reason)
    quotes = [quote for item in works for quote in parse(item.result.text)]
    useful = list(_useful(quotes, question))[:QUOTES]
    if useful:
        cite = NO_CITE not in request.system
        lines = [_quoted(language, quote, cite=cite) for quote in useful]
        return "\n\n".join([i18n.text(language, "offline.found"), *lines])
    query = str(works[-1].use.input.get("query", ""))
    nothing = i18n.text(language, "offline.nothing", query=query)
    return f"{nothing}\n\n{_about_itself(request)}"


def _useful(quotes: Sequence[Quote], question: str) -> Iterator[Quote]:
    """Quotes that can answer: the person's own words first, without what they only asked."""
    own = [quote for quote in quotes if not _is_by(quote, "assistant")]
    seen = {question.strip()}
    for quote in (*own, *(quote for quote in quotes if _is_by(quote, "assistant"))):
        text = quote.text.strip()
        if text in seen or not text:
            continue
        seen.add(text)
        theirs, mine = (
            _is_by(quote, "said") or _is_by(quote, role) for role in ("user", "assistant")
        )
        asked = theirs and isinstance(understand(text), Recall)
        if not asked and not (mine and _is_own_answer(text)):
            yield quote


def _is_by(quote: Quote, role: str) -> bool:
    return len(quote.where) > 1 and quote.where[1] == role


def _is_own_answer(text: str) -> bool:
    """Whether this model wrote it, so that quoting it would quote a quote."""
    catalogs = [i18n.catalog(language) for language in i18n.LANGUAGES]
    heads = (catalog[f"offline.{key}"].split("{")[0] for catalog in catalogs for key in _OWN_HEADS)
    return text.startswith(tuple(head for head in heads if head))


def _quoted(language: str, quote: Quote, *, cite: bool) -> str:
    for role in _ROLES:
        if _is_by(quote, role):
            text = _clipped(" ".join(quote.text.split()), QUOTE_LENGTH)
            return i18n.text(language, f"offline.said_{role}", date=quote.where[0], text=text)
    where = quote.where[0] if cite else i18n.text(language, "offline.notes")
    kept = _clipped(quote.text, NOTE_LENGTH).splitlines()
    lines = [line for line in kept if line.strip() and not line.startswith("#")] or kept
    if len(lines) == 1:
        return i18n.text(language, "offline.noted", where=where, text=" ".join(lines[0].split()))
    head = i18n.text(language, "offline.noted_lines", where=where)
    return "\n".join([head, "", *(f"> {line}" for line in lines)])


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _is_closed(result: ToolResult) -> bool:
    """Whether this conversation has no memory."""
    return result.is_error and _reason(result).rstrip(".") == str(NotVisible()).rstrip(".")


def _reason(result: ToolResult) -> str:
    return result.text.removeprefix("Error: ").strip()


# --- saying what it is ---------------------------------------------------------------------------


def _without_tools(request: Request) -> str:
    """The answer when there is no tool to ask."""
    intent = understand(_words(request.messages))
    if isinstance(intent, Remember):
        key = "offline.no_store" if intent.what else "offline.remember_what"
        first = i18n.text(request.language, key)
    elif isinstance(intent, Recall):
        first = i18n.text(request.language, "offline.no_search")
    else:
        return _about_itself(request)
    return f"{first}\n\n{_about_itself(request)}"


def _about_itself(request: Request) -> str:
    """All of it the first time in a conversation, one line later."""
    language = request.language
    if any(_explains(message) for message in request.messages):
        return i18n.text(language, "offline.short")
    return "\n\n".join(i18n.text(language, f"offline.{key}") for key in ("intro", "can", "key"))


def _explains(message: Message) -> bool:
    return message.role == "assistant" and any(
        i18n.text(language, "offline.intro") in message.text for language in i18n.LANGUAGES
    )


def _words(messages: Sequence[Message]) -> str:
    """What the person wrote last."""
    last = messages[-1]
    return last.text if last.role == "user" else ""


def _question(request: Request) -> str:
    """The person's words that led to the tools."""
    return _words(request.messages[:-2]) if len(request.messages) > 2 else ""
