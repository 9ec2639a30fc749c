"""Times as people write them, in English and Chinese, as values; `due_time` says what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from bot.sessions.repeat_phrases import Repetition, completed, month_at, repetition_at
from bot.sessions.time_words import (
    BETWEEN,
    NUMERAL,
    WORDS,
    Clock,
    Day,
    Reader,
    Span,
    any_of,
    clock_at,
    compiled,
    day_at,
    joined,
    span_at,
)

LEAD = 160  # characters at the beginning of a text in which a time is looked for
TAIL = 64  # and at its end


@dataclass(frozen=True, slots=True)
class Phrase:
    """The time in a text, as written, and its other words."""

    span: Span | None
    day: Day | None
    clock: Clock | None
    rest: str = ""
    repetition: Repetition | None = None  # how often, when it comes again and again
    # Nothing of it is to be used: how often cannot be read, or there is more of it.
    unread: Literal["", "repeats", "partly"] = ""


def find(text: str) -> Phrase | None:
    """The time a text begins with, or else ends with."""
    text = text.strip()
    return _at_beginning(text) or _at_end(text)


def beginning(text: str) -> int:
    """The number of characters at the beginning of a text that say when, once or repeatedly."""
    reader = Reader(_plain(text[:LEAD]))
    if reader.read(repetition_at) is None and _phrase(reader) is None:
        return 0
    return reader.at


# One character for one, so that places in the text stay what they are.
_NARROW: Final = {
    0xA0: " ",
    0x3000: " ",
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
}


_AGAIN: Final = Phrase(None, None, None, unread="repeats")
_PARTLY: Final = Phrase(None, None, None, unread="partly")
_ASKING = r"(?:(?:please\s+)?(?:remind\s+)?me(?:\s+|$)|[请請]?提醒我[\s,:]*)?"
_FILLING = (
    r"[\s,;:，。、；：—–-]*(?:(?:(?:please\s+)?remind\s+)?me(?:\s+|$))?"
    r"(?:(?:to|that|about|of)(?:\s+|$))?(?:[请請]?提醒我[\s,，:：]*)?"
)
# A time after one of these belongs to the words ("pack for tomorrow"), or is half of what nobody
# can read for sure ("3/4 18:00").
_BELONGING = (
    r".*(?:\b(?:for|until|till|by|before|after|about|since|of|from|than|the)|"
    r"[0-9][./:][0-9./]*)\s*$"
)
# "every day", "on mondays", 每天: no one time, wherever a time may stand.
_EVERY = (
    r"(?:\b(?:every|each)\s+(?:(?:single|other|second|few|couple\s+of|[0-9]{1,3}|"
    rf"{any_of(WORDS)})\s+)?(?:(?:mon|tues|wednes|thurs|fri|satur|sun|week)days?|weekends?|"
    r"mornings?|noon|afternoons?|evenings?|nights?|hours?|minutes?|days?|weeks?|months?|years?)\b|"
    r"\bon\s+(?:mon|tues|wednes|thurs|fri|satur|sun|week)days\b|"
    rf"每[个個隔]?(?:[0-9]{{1,3}}|{NUMERAL}{{1,3}}|半)?[个個]?"
    r"(?:天|日|早|晚|周|週|星期|礼拜|禮拜|月|年|小时|小時|分钟|分鐘)|天天)"
)
_REPEATING = rf"(?:{_EVERY}|\b(?:daily|weekly|monthly|yearly|hourly|nightly)\b)"
_MAY_REPEAT = (
    r".*(?:every|each|on\s|at\s+weekends|(?:dai|week|month|year|hour|night|annual)ly|[每隔]|"
    r"天天|工作日)"
)
_EDGES = " \t\r\n,，;；、"
_END = " \t\r\n.!?。！？"
_GAP = r"[\s,]*"
_ENDING = r"(?:\b(?:until|till|except)\s|直到|[到至])"
# What says that more of a time comes, whatever stands behind it …
_MORE = (
    r"[\s,(]*(?:(?:except|excluding|but\s+not|unless|until|till|once|twice|[a-z0-9]+\s+times)"
    r"(?![a-z])|(?:between|from)\s+[0-9]|"
    r"(?:(?:and|or|to)\s|[&–-])\s*[0-9]{1,2}(?:st|nd|rd|th)?(?:\s*[ap]m)?(?![0-9a-z.:])|"
    rf"[和及跟与與或到至、]{NUMERAL}{{1,3}}[日号號点點时時]|[和及跟与與或到至、][0-9]{{1,2}}[日号號点點]|"
    rf"除了|直到|截止|的?(?:第{NUMERAL}|最[后後]一)[天日]|{NUMERAL}{{1,3}}[次回遍]|"
    r"[\u4e00-\u9fff]{1,6}那[天日])"
)
# … what says so if a time stands behind it …
_CONNECTOR = (
    r"(?:(?:and|or|plus|to|through|thru|then|from|starting|beginning|between|on|again|also)"
    r"(?![a-z])|[&~–—+-]|或者|还是|還是|[和及跟与與或到至从從自、])"
)
_CONNECTED = rf"[\s,]*(?:{_CONNECTOR}[\s,]*)+(?:(?:at|in|the|next)\s+)*"
# … and what is one but cannot be read.
_UNREAD = (
    r"(?:(?:(?:on|at|in|by)\s+)?(?:(?:the\s+)?end\s+of\s+)?(?:the|this|next|last)\s+"
    r"(?:weekend|week|month|quarter|year)s?(?!['’a-z])|"
    r"[月年][底初]|[下这這本][个個]?(?:月|季度|[周週]末)|[明后後]年)"
)


def _at_beginning(text: str) -> Phrase | None:
    reader = Reader(_plain(text[:LEAD]))
    reader.take(_ASKING)
    repetition = reader.read(repetition_at)
    if repetition is not None:
        found = Phrase(None, None, None, repetition=repetition)
    elif reader.take(_REPEATING) is not None:
        return _AGAIN
    else:
        found = _phrase(reader)
        if found is not None and reader.take(rf"[\s,]*{_EVERY}") is not None:
            return _AGAIN
    if found is None:
        return None
    if _goes_on(reader, found):
        return _PARTLY
    return _completed(replace(found, rest=_words(text[reader.at :])))


def _goes_on(reader: Reader, found: Phrase) -> bool:
    """True if more of a time stands here than was read."""
    if reader.take(_MORE) is not None:
        return True
    before = reader.at
    if reader.take(_CONNECTED) is not None:
        return any(reader.read(part) is not None for part in (_phrase, repetition_at, month_at))
    if reader.take(rf"[\s,]*{_UNREAD}") is not None or reader.read(clock_at, between=_GAP):
        return True
    reader.at = before
    if found.repetition is not None:
        rule = found.repetition.rule
        lacks_day = rule.frequency == "WEEKLY" and not rule.weekdays
    else:
        is_whole = found.day is not None and found.clock is not None
        lacks_day = not is_whole and not (found.span is not None and found.span.seconds)
    is_more = lacks_day and reader.read(day_at, between=_GAP) is not None
    reader.at = before
    return is_more


def _completed(found: Phrase) -> Phrase:
    """With what the words end with, if it belongs to a time that the text began with."""
    words = found.rest.rstrip(_END)
    offset = max(0, len(words) - TAIL)
    window = _plain(words[offset:])
    for start in _starts(window):
        reader = Reader(window, start)
        more = _added(reader, found)
        if more is not None and reader.at == len(window):
            before = window[:start]
            if compiled(rf".*{_ENDING}\s*$").match(before) or _is_vague(
                found, more, window[start:]
            ):
                return _PARTLY
            if compiled(_BELONGING).match(before):
                return found
            if _ends_in_time(before):
                return _PARTLY
            if more.repetition is None:
                return more  # its time may be one of the words: "that lunch is at noon"
            return replace(more, rest=words[: offset + start].strip(_EDGES))
    is_ended = compiled(rf".*(?:{_ENDING}\s*{_UNREAD}|{NUMERAL}次)$").match(window)
    return _PARTLY if found.repetition is not None and is_ended else found


def _is_vague(found: Phrase, more: Phrase, words: str) -> bool:
    """True if an end may as well be one of the words: "every monday plan meals for a week"."""
    before, after = found.repetition, more.repetition
    is_lasting = before is not None and after is not None and before.lasting != after.lasting
    return is_lasting and words.lstrip(_EDGES).isascii()


def _added(reader: Reader, found: Phrase) -> Phrase | None:
    """With what stands here, if that was still missing."""
    if found.repetition is not None:
        more = completed(reader, found.repetition)
        return replace(found, repetition=more) if more != found.repetition else None
    by_calendar = found.span is not None and not found.span.seconds
    if found.clock is None and (found.day is not None or by_calendar):
        clock = reader.read(clock_at)
        return replace(found, clock=clock) if clock is not None else None
    if found.day is None and found.span is None:
        day = reader.read(day_at)
        return replace(found, day=day) if day is not None else None
    return None


def _at_end(text: str) -> Phrase | None:
    text = text.rstrip(_END)
    offset = max(0, len(text) - TAIL)
    window = _plain(text[offset:])
    found, start = _last_phrase(window)
    before = window[:start]
    if found is None:
        return _AGAIN if compiled(rf".*{_REPEATING}$").match(window) else None
    if compiled(rf".*(?:{_REPEATING}|\b(?:every|each))[\s,]*$").match(before):
        return _AGAIN
    if compiled(_BELONGING).match(before):
        return None if found.repetition is None else _AGAIN
    if _ends_in_time(before):
        return _PARTLY
    return replace(found, rest=_words(text[: offset + start]))


def _last_phrase(window: str) -> tuple[Phrase | None, int]:
    """The time a text ends with, and where that begins."""
    if compiled(_MAY_REPEAT).match(window):
        for start in _starts(window):
            reader = Reader(window, start)
            repetition = reader.read(repetition_at)
            if repetition is not None and reader.at == len(window):
                return Phrase(None, None, None, repetition=repetition), start
    for start in _starts(window):
        reader = Reader(window, start)
        found = _phrase(reader)
        if found is not None and reader.at == len(window):
            return found, start
    return None, len(window)


def _starts(window: str) -> Iterator[int]:
    """The places where a word or a number begins."""
    return (at for at in range(len(window)) if not window[at].isspace() and not joined(window, at))


def _ends_in_time(window: str) -> bool:
    """True if a text ends with a time, and perhaps with what connects it to another."""
    connectors = compiled(rf".*?((?:(?<![a-z]){_CONNECTOR}|[\s,])*)$").match(window)
    window = window[: connectors.start(1)] if connectors else window
    window = window.rstrip(_EDGES)
    if compiled(rf".*{_UNREAD}$").match(window):
        is_of_words = rf".*\b(?:for|(?<!end\s)of|about|from|since)\s+{_UNREAD}$"
        return compiled(is_of_words).match(window) is None
    found, start = _last_phrase(window)
    return found is not None and compiled(_BELONGING).match(window[:start]) is None


def _plain(text: str) -> str:
    """The text as it is read, with every character where it was."""
    text = text.translate(_NARROW).replace("\n", " ")
    return compiled(r"(?<=[0-9])t(?=[0-9]{1,2}:)").sub(" ", text)  # 2026-12-24T18:00


def _words(rest: str) -> str:
    """The words to say, without what leads to them."""
    filling = compiled(_FILLING).match(rest[:LEAD])
    return rest[filling.end() if filling else 0 :].strip(_EDGES)


def _phrase(reader: Reader) -> Phrase | None:
    span = reader.read(span_at)
    if span is not None:
        by_calendar = not span.seconds and (span.days or span.months)
        clock = reader.read(clock_at, between=BETWEEN) if by_calendar else None
        return Phrase(span, None, clock)
    day = reader.read(day_at)
    if day is not None:
        return Phrase(None, day, reader.read(clock_at, between=BETWEEN))
    clock = reader.read(clock_at)
    if clock is not None:
        return Phrase(None, reader.read(day_at, between=r"\s+"), clock)
    return None
