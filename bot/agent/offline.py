"""A model without a model: no key, no network, and honest about it.

It can keep what it is told, remind, look for what was said and quote that. It reaches all of these
through the same tools as a real model, and says a thing is done only when the tool says so.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal

from bot import i18n
from bot.agent.models import Model, Reply, Request, TextDelta, Window
from bot.agent.turn import TOKENS
from bot.context import quoting, sentences, wishes
from bot.context.quoting import clipped
from bot.context.sentences import folded, phrases
from bot.errors import ModelRejected
from bot.memory import markdown
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
)
from bot.sessions import due_time, recurrence
from bot.sessions.due_time import Every, Next, Problem, When
from bot.sessions.recurrence import Series, described
from bot.sessions.reminders import MAX_TEXT
from bot.sessions.repeats import Change
from bot.storage import fulltext

# What the offline model understands of a message: keep, remind, find. Pure.
#
# Wishes are read in every language of `bot.context.sentences`; questions in English and Chinese.

MAX_QUERY = 500  # characters

Kind = (
    Change | Literal["", "remember", "find", "notes", "before", "forget", "about", "remind", "list"]
)
"""The kind of request in a message; `find` looks for something, `notes` is all that is noted,
`before` the end of the conversation before, `about` what the bot is; `list` lists reminders, and
a `Change` changes one. Empty for everything else."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The kind of wish in a message, and its words.

    They are what to keep, each thing apart (none when that was not said), what to look for or to
    forget, the time and the words of a reminder, as `due_time` reads them, or of one to change the
    words or, as "#2", the number.
    """

    kind: Kind
    words: tuple[str, ...] = ()


_ASKS = re.compile(
    r"""(?:what|when|where|who|whom|whose|which|how|why
          |(?:do|did|does|have|has|had|is|are|was|were|can|could|will|would)\s+(?:you|i|we|my|the|it)
          |(?:tell|remind)\s+me|search|find|recall|look\s+up|show\s+(?:me|my)
          |remember\s+(?:what|when|where|who|which|how|why)
          |(?:list|summari[sz]e)\s+(?:what|everything|all))\b
        |(?:列出|说说|讲讲)你|[^\n]*(?:你记得的|还记得|记不记得|我说过|我提过|我告诉过|查一下|查查|搜一下|搜索|找一下|回忆|什么|谁
          |哪[里儿个些天年位]|多少|几[个点月号岁次]|怎么|何时|是不是|有没有)""",
    re.VERBOSE,
)
_ABOUT = re.compile(
    r"""(?:who\s+are\s+you|what\s+(?:can|do)\s+you\s+(?:do|understand)(?:\s+for\s+me)?
          |(?:what['’]?s|what\s+is)\s+your\s+name|how\s+(?:do|does)\s+(?:you|this)\s+work|help(?:\s+me)?
          |tell\s+me\s+about\s+yourself|are\s+you\s+an?\s+(?:bot|robot|human|ai)
          |叫什么(?:名字)?|[能会]?(?:做|干)?(?:些|点)?(?:什么|啥)|有(?:什么|哪些)(?:功能|用)|怎么用|帮助
          |是(?:谁|什么|机器人|真人|人|ai)吗?)[\s?.!？。！]*""",
    re.VERBOSE,
)
_REMINDERS = re.compile(
    r"(?!.*\b(?:say|said|thanks?|about|set|need|want|make)\b)[^\n]{0,40}\breminders?\b[^\n]{0,30}"
    r"|(?!.*[说谢])[^\n]{0,16}提醒[吗呢吧\s？?。！]*"
)
# Wishes to change a reminder, named before that word or behind it, and wishes to forget.
_VERBS: Final[Mapping[str, Change]] = {
    **dict.fromkeys("cancel delete remove drop stop 取消 删除 删掉 撤销".split(), "cancel"),  # noqa: SIM905
    **dict.fromkeys(("pause", "暂停"), "pause"),
    **dict.fromkeys(("resume", "continue", "恢复", "继续"), "resume"),
}
_VERB, _NEAR_ZH = "|".join(_VERBS), r"[^\s，。；！？,;.!?]{0,40}?提醒"
_ASKING = re.compile(
    r"(?:(?:(?:can|could|would|will)\s+you|i(?:\s+want|\s+need|['’]d\s+like|\s+would\s+like)\s+to)\s+"
    r"(?:please\s+)?|(?:你?(?:能不能|可不可以|能|可以)|我[想要]|帮我|麻烦你?)+)?",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    rf"(?P<en>{_VERB})\s+(?:(?!about\b|of\b|from\b|to\b|for\b)[^\s,;.!?]+\s+){{0,6}}?"
    rf"remind(?:ers?|ing\s+(?:me|us))\b[^\n]*|(?P<zh>{_VERB}){_NEAR_ZH}[^\n]*|请?把{_NEAR_ZH}(?P<ba>{_VERB})[掉了吧]*"
)
_NUMBERED = re.compile(r"(?:the|number|no\.?|[\s#第])*(\d{1,3})[条个吧\s.!?。！？]*")
_UNNAMED = re.compile(
    r"^\s*(?:请?把|掉|一下)?(?:关于)?|(?:所有|全部|刚才)?的?[这那]?[条个]?(?:提醒|\s|$)|\bremind(?:ers?|ing)\b|\ball\b|\b[掉了吧]+$"
)
_FORGETS = re.compile(
    r"forget\s+(?:(?:all|everything)\s+)?(?:(?:what\s+)?(?:i|you)\s+(?:said|told\s+you|know)\s+)?"
    r"(?:(?:about|that)\s+)?(?P<en>[^\n]+)|请?把(?P<ba>[^\n]+?)(?:这件事|的事情?)?忘掉吧?"
    r"|(?:请你?忘[掉记了]|忘掉)(?:关于)?(?P<zh>[^\n]+?)(?:这件事|的事情?)?吧?",
    re.IGNORECASE,
)
_POLITE_END = re.compile(
    r"""(?:(?<![,，。.!！\s])[,，。.!！\s]++(?:please|pls)|[,，。.!！]\s*+(?:thanks?(?:\s+you)?|thx|谢谢你?|多谢|拜托了?)
        |[,，]?(?:好吗|好不好|可以吗|行吗|吗))[\s.!?。！？]*+$""",
    re.IGNORECASE | re.VERBOSE,
)

_REMIND_ME = re.compile(r"\bremind me\b|提醒我", re.IGNORECASE)


def understand(text: str) -> Intent:
    """Classifies a message."""
    wanted = wishes.read(text)
    asks = wanted.reminder is not None or _REMIND_ME.search(text) is not None
    reminder = text if asks and due_time.next_time(text) is not None else wanted.reminder
    if reminder is not None:
        return Intent("remind", (_POLITE_END.sub("", reminder),))
    if wanted.wishes:
        return Intent("remember", tuple(wish.words for wish in wanted.wishes if wish.words))
    small = folded(text).strip()
    asked = small[phrases().opened(small) :]
    if wish := _change(asked) or _forgetting(text.strip()):
        return wish
    kind: Kind = ""
    if _REMINDERS.fullmatch(small):
        kind = "list"
    elif _ABOUT.fullmatch(asked):
        kind = "about"
    elif asked_for := wishes.asks_to_read(text):
        kind = "notes" if asked_for == "notes" else "before"
    elif sentences.is_question(text) or _ASKS.match(asked):
        query = text.strip()[:MAX_QUERY]
        return Intent("find", (query,)) if fulltext.has_content(query) else Intent("")
    return Intent(kind)


def _change(asked: str) -> Intent | None:
    """The wish to change a reminder, with the words or the number that name it."""
    asked = _ASKING.sub("", _POLITE_END.sub("", asked), count=1)
    found = _CHANGES.fullmatch(asked)
    if found is None:
        return None
    begin, end = found.span(found.lastgroup or 0)
    named = _UNNAMED.sub(" ", f"{asked[:begin]} {asked[end:]}")
    number = _NUMBERED.fullmatch(named)
    about = f"#{number[1]}" if number else _without_stop_words(named)
    return Intent(_VERBS[asked[begin:end]], (about,) if about else ())


def _forgetting(text: str) -> Intent | None:
    """The wish to forget, with the words to look for; none where it names nothing."""
    text = _POLITE_END.sub("", text).rstrip(" .!?。！？…")
    asked = _ASKING.sub("", text[phrases().opened(folded(text)) :], count=1)
    found = _FORGETS.fullmatch(text) or _FORGETS.fullmatch(asked)
    if found is None:
        return None
    words = found[found.lastgroup or 0].strip()
    names = fulltext.has_content(words) and not phrases().points_back(folded(words))
    return Intent("forget", (words,) if names else ())


def _without_stop_words(text: str) -> str:
    return " ".join(filter(fulltext.has_content, fulltext.runs(text)))[:MAX_QUERY]


WRITE = "memory_write"
REMIND = "schedule_message"
REMINDERS = "reminders"
UNDONE = {WRITE: "not_stored", REMIND: "not_reminding", REMINDERS: "not_managed"}
SEARCHES = ("memory_search", "transcript_search")
PASSAGES = 20  # that are asked for: a line far down may be the one
NOTES = 10  # lines that answer "what do you know about me?"
KNOWN = 3  # passages in which something is looked for before it is offered to be kept
WINDOW = Window(max_input_tokens=1_000_000, max_output_tokens=8_192)  # it has no limit of its own

_PIECES = re.compile("[\u3040-\u30ff\u3400-\u9fff]{1,2}|[^\\s\u3040-\u30ff\u3400-\u9fff]+\\s*|\\s+")

Answered = tuple[ToolUse, ToolResult]
"""A tool this model asked for, and what it answered."""


@dataclass(frozen=True, slots=True)
class MessageIntent:
    """One message of the person, what it asks for, and the tools to ask: name and arguments.

    `offer` is a sentence of it that may be kept, where nothing is asked for.
    """

    said: str
    intent: Intent
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()
    offer: str = ""


class OfflineModel(Model):
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
    intents = (wish.intent for wish in asked)
    forgets = next((each.words[0] for each in intents if each.kind == "forget" and each.words), "")
    told = Canned("answer", offered, forgets)
    if explain or not parts:
        told_of = ("about",) if is_asked else ("intro", "can")
        keys = (*told_of, "key") if whole else ("short",)
        parts += [_text(request, key) for key in keys]
        told = replace(told, kind="introduction" if whole else "answer")
    return Message("assistant", (Text("\n\n".join(parts), value=told),))


def _introduces(message: Message) -> bool:
    values = (block.value for block in message.blocks if isinstance(block, Text))
    return any(isinstance(each, Canned) and each.kind == "introduction" for each in values)


def _text(request: Request, key: str, **values: object) -> str:
    key = key if "." in key else f"offline.{key}"
    return i18n.text(request.language, key, **values)


# --- what was asked for --------------------------------------------------------------------------


def _wish(request: Request, place: int) -> MessageIntent:
    """The wish of a message, and the tool calls it needs."""
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
                calls.append((REMIND, {"text": found.rest, **_time_of(found)}))
        case "list" | "cancel" | "pause" | "resume":
            (about,) = intent.words or ("",)
            named = {"number": int(about[1:])} if about.startswith("#") else {"about": about}
            calls.append((REMINDERS, {"action": intent.kind, **named}))
        case "notes" | "before" if not (intent.kind == "before" and _before(request)):
            searches = {SEARCHES[0]: {"query": "me", "limit": NOTES}}  # which names nothing
        case "find":
            (query,) = intent.words
            searches = {name: {"query": query, "limit": PASSAGES} for name in SEARCHES}
        case "" if WRITE in offered and (offer := sentences.sentence_of(request.messages[place])):
            searches = {name: {"query": offer, "limit": KNOWN} for name in SEARCHES}
        case _:
            pass
    asked_of = tuple(call for call in (*calls, *searches.items()) if call[0] in offered)
    return MessageIntent(said, intent, asked_of, offer)


def _said_before(messages: Sequence[Message]) -> tuple[str, ...]:
    """The last thing that was stated, which "remember that" is about."""
    stated = (wishes.stated(each.own_text) for each in reversed(messages) if each.begins_turn)
    return tuple(itertools.islice(filter(None, stated), 1))


def _time_of(found: When | Every | Next) -> Mapping[str, str]:
    """The time of a reminder as its tool takes it."""
    if isinstance(found, Next):
        return {"about": found.about}
    at = found.at if isinstance(found, When) else found.first
    rule = {"rule": str(found.series.rule)} if isinstance(found, Every) else {}
    return {"at": at.isoformat(timespec="seconds"), **rule}


def _when(request: Request, intent: Intent) -> When | Every | Next | Problem:
    return due_time.parse(intent.words[0], request.now) if request.now else Problem.NONE


# --- what the tools answered ---------------------------------------------------------------------


def _answered(request: Request) -> list[Answered]:
    """The results of the calls this reply follows; nothing else counts as an answer."""
    asked, told = request.messages[-2:] if len(request.messages) > 1 else (None, None)
    if asked is None or told is None or (asked.role, told.role) != ("assistant", "user"):
        return []
    uses = {block.id: block for block in asked.blocks if isinstance(block, ToolUse)}
    results = (block for block in told.blocks if isinstance(block, ToolResult))
    return [(uses[each.tool_use_id], each) for each in results if each.tool_use_id in uses]


def _taken(left: list[Answered], wish: MessageIntent) -> list[Answered]:
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


def _answer(request: Request, wish: MessageIntent, found: Sequence[Answered]) -> tuple[str, bool]:
    """The answer to a wish, and whether that says it all."""
    kind, words, is_whole = wish.intent.kind, "", True
    match kind:
        case "find" | "notes" | "before" if found:
            return _found(request, wish, found)
        case "before" if before := _before(request):
            words = before
        case "find" | "notes" | "before":
            words, is_whole = _text(request, "no_search"), False
        case "remember" | "remind" | "list" | "cancel" | "pause" | "resume" if found:
            words = "\n\n".join(_done(request, *item) for item in found)
        case "remind":
            words = _not_reminding(request, wish.intent)
        case "list" | "cancel" | "pause" | "resume":
            words = _text(request, "reminder.usage")
        case "forget":
            key = "forget" if wish.intent.words else "forget_what"
            words = _text(request, key, words="".join(wish.intent.words))
        case "remember":
            key = "no_store" if wish.intent.words else "remember_what"
            words, is_whole = _text(request, key), False
        case _:
            pass
    return words, is_whole


def _done(request: Request, use: ToolUse, result: ToolResult) -> str:
    """The sentence about something that was to be stored, or said later."""
    words = str(use.input.get("text", ""))
    match result.value:
        case Stored(path, line, already=True):
            return _text(request, "stored_already", path=path, line=line)
        case Stored():
            return _text(request, "stored", text=words)
        case Scheduled() as later:
            return _later(request, later, words)
        case Refused(hidden=True) if use.name == WRITE:
            return _text(request, "no_store")
        case _:
            is_done = use.name == REMINDERS and not result.is_error
            undone = _text(request, UNDONE[use.name], reason=_reason(result))
            return result.text if is_done else undone


def _later(request: Request, later: Scheduled, words: str) -> str:
    """The sentence about something that is to be said later."""
    if later.about:
        return _text(request, "reminder.set_about", about=later.about, text=words)
    zone = request.now.tzinfo if request.now else UTC
    moment = due_time.shown(request.language, datetime.fromtimestamp(later.due_at / 1000, zone))
    if not later.rule:
        return _text(request, "reminder.set", when=moment, text=words)
    series = Series(recurrence.parse(later.rule), datetime.fromisoformat(later.begins))
    often = described(request.language, series)
    return _text(request, "repeat.set_text", often=often, when=moment, text=words)


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
    elif found.rest or isinstance(found, Next):
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


def _found(request: Request, wish: MessageIntent, found: Sequence[Answered]) -> tuple[str, bool]:
    values = [result.value for _, result in found]
    if all(isinstance(each, Refused) and each.hidden for each in values):
        return _text(request, "no_search"), True
    works = [use for use, result in found if not result.is_error]
    if not works:
        return _text(request, "not_searched", reason=_reason(found[0][1])), True
    quotes, head = _quotes(found), "found"
    if wish.intent.kind == "find":
        best = best_lines(wish.said, quotes)
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


def best_lines(question: str, quotes: Sequence[Quote]) -> list[tuple[Quote, str]]:
    """The lines that may answer a question, best first, each once: a note before the same talk."""
    asked, is_cjk = sentences.terms(question), _is_cjk(question)
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
        share = sentences.shared(asked, line) / max(1, len(asked))
        if len(known) == len(lines):
            words, near = known[number]
            score, least = near + BY_WORDS * words, NEAR
        else:
            near, least = quote.match or 0.0, LIKELY
            score = max(near, UNSCORED * share)
        if share or near >= least:
            yield line, score


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
    summary = quoting.summarise(request.said, request.max_tokens // SUMMARY_SHARE)
    return Message("assistant", (Text(summary if len(summary) > len(NOTHING) else NOTHING),))
