"""The time something is to happen, read from what people write, in English and Chinese. Pure.

Written here because no library reads both: of ten plain Chinese phrases dateparser 1.x knows two
("10分钟后", "后天"), and it takes 0.1 s to import, guesses ("the 2 may") and ignores clock changes.

A bare time of day is the next one; a bare day is at nine. "next friday" and 下周五 are the Friday
of the week after this one (weeks begin on Monday), "friday" and 周五 the next one to come.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final, Literal
from zoneinfo import ZoneInfo

from bot import i18n
from bot.sessions import recurrence, zones
from bot.sessions.recurrence import (
    Repetition,
    Rule,
    Series,
    TooOften,
    completed,
    month_at,
    repetition_at,
)
from bot.sessions.reminders import MAX_ABOUT, MAX_AHEAD, MAX_TEXT, moment
from bot.sessions.time_words import (
    BETWEEN,
    NUMERAL,
    WORDS,
    Clock,
    Day,
    Part,
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


# --- what they mean at a moment -------------------------------------------------------------------


# The hour of a part of the day when none is said.
_HOURS: Final[dict[Part, int]] = {
    "": 9,
    "dawn": 5,
    "morning": 9,
    "noon": 12,
    "afternoon": 15,
    "dusk": 18,
    "evening": 20,
    "midnight": 24,
}
_HALF_A_DAY = 12 * 3600
_NIGHT_ENDS = 6  # an hour before this is seldom meant when no more is said
_LEAP = 8  # years within which every date comes again


class Problem(StrEnum):
    """Why a text says no time to come; `bot.i18n` has a sentence for each."""

    NONE = "none"  # no time was found in it
    WRONG = "wrong"  # there is no such day or time
    PAST = "past"
    FAR = "far"  # further away than `MAX_AHEAD`
    REPEATS = "repeats"  # again and again, in a way that cannot be read
    OFTEN = "often"  # again and again, with less than `MIN_MINUTES` in between
    PARTLY = "partly"  # there is more of a time in it than could be read
    HALF = "half"  # in the morning or in the afternoon?
    ZONE = "zone"  # no such time zone, or several
    ZONE_REPEATS = "zone_repeats"  # again and again, by the clocks of another zone


@dataclass(frozen=True, slots=True)
class When:
    """A moment to come, in the time zone that was asked in, and the other words of the text."""

    at: datetime
    rest: str


@dataclass(frozen=True, slots=True)
class Every:
    """Moments to come, the first one of them, and the other words of the text."""

    series: Series
    first: datetime
    rest: str


@dataclass(frozen=True, slots=True)
class Next:
    """The next time somebody talks about something, and the other words of the text."""

    about: str
    rest: str


_NEXT = re.compile(
    r"\b(?:the )?next time (?:i|we) (?:talk|speak|chat|ask|write|say|mention|bring up)"
    r"(?: something)?(?: about| of)?\b|下(?:一次|次|回)(?:我们?|咱们)?再?[说聊谈提讲问][到起及]?",
    re.IGNORECASE,
)
_THEN = re.compile(
    r"(?:的时候|时候|时)?(?:[,:;，：；]|请?提醒我)| (?=(?:please )?remind me )|的时候",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"[ ,:;，：；]*(?:please |then )?(?:remind me ?|请?提醒我)?(?:(?:to|that|of|about) )?",
    re.IGNORECASE,
)


def next_time(text: str) -> Next | None:
    """The reminder in a text for the next time its person talks about something. Pure.

    Such as "next time I talk about Berlin, remind me to book" or 下次我说到柏林的时候提醒我订酒店.
    """
    words = " ".join(text[: MAX_TEXT * 2].split())
    found = _NEXT.search(words)
    if found is None:
        return None
    before, after = words[: found.start()], words[found.end() :]
    if lead := _LEAD.sub("", before, count=1).strip(" ,:;，：；。请在"):
        about, rest = after, lead
    elif (then := _THEN.search(after)) is not None:
        about, rest = after[: then.start()], after[then.end() :]
        rest = _LEAD.sub("", rest, count=1)
    else:
        return None
    about, rest = about.strip(" .!?。！？“”\"'"), rest.strip(" 。")
    return Next(about, rest) if 0 < len(about) <= MAX_ABOUT and rest else None


def parse(text: str, now: datetime) -> When | Every | Next | Problem:
    """The time or times a text begins with, or else ends with, and what else it says.

    Args:
        text: such as "tomorrow at 9 call Bob", "明天上午9点半开会" or "call Bob in 2 hours".
        now: with a time zone, which is that of the text.

    Raises:
        ValueError: `now` has no time zone.
    """
    if now.tzinfo is None:
        raise ValueError("now needs a time zone")
    if (topic := next_time(text)) is not None:
        return topic
    phrase = find(text)
    if phrase is None:
        return Problem.NONE
    if phrase.repetition is not None:
        return _every(phrase.repetition, phrase.rest, now)
    if phrase.unread:
        return Problem(phrase.unread)
    return _once(phrase, now)


def _once(phrase: Phrase, now: datetime) -> When | Problem:
    here = now.tzinfo
    if phrase.clock is not None and phrase.clock.zone:
        zone = zones.zone_named(phrase.clock.zone)
        if zone is None:
            return Problem.ZONE
        now = now.astimezone(zone)
    try:
        at = _moment(phrase, now)
    except OverflowError:
        return Problem.FAR
    except ValueError:
        return Problem.WRONG
    ahead = at.timestamp() - now.timestamp()
    if phrase.clock is not None and phrase.clock.loose and not (phrase.day and phrase.day.part):
        is_today = phrase.day == Day()
        if is_today and -_HALF_A_DAY < ahead <= 0 and _is_spoken(phrase.clock):
            # "today at 3", said at two in the afternoon.
            at, ahead = at + timedelta(hours=12), ahead + _HALF_A_DAY
        elif ahead > 0 and _may_be_either(phrase.clock, ahead, is_dated=phrase.day is not None):
            return Problem.HALF
    if ahead <= 0:
        return Problem.PAST
    is_far = ahead > MAX_AHEAD.total_seconds()
    return Problem.FAR if is_far else When(at.astimezone(here), phrase.rest)


def _may_be_either(clock: Clock, ahead: float, *, is_dated: bool) -> bool:
    """True if nobody can tell if an hour is one of the morning or of the afternoon.

    `ahead` is how many seconds the one of the morning is away.
    """
    is_at_night = (clock.hour or 0) < _NIGHT_ENDS
    if is_dated:
        return is_at_night and clock.loose == "spoken"
    if ahead <= _HALF_A_DAY:  # the next one is that of the morning
        return is_at_night and ahead > _NIGHT_ENDS * 3600
    return _is_spoken(clock)


def _is_spoken(clock: Clock) -> bool:
    """True if an hour is counted up to twelve; "9:30" is one of twenty-four, "3:30" seldom."""
    return clock.loose == "spoken" or (clock.hour or 0) < _NIGHT_ENDS


_NEAR = {-1: "yesterday", 0: "today", 1: "tomorrow"}


def shown(language: str, at: datetime, now: datetime | None = None) -> str:
    """A moment as people read it: day of the week, date, hour and minute, and time zone.

    With `now`, a day near it is named: "today at 14:49".
    """
    away = (at.date() - now.astimezone(at.tzinfo).date()).days if now is not None else None
    if away in _NEAR:
        return i18n.text(language, f"reminder.{_NEAR[away]}", time=f"{at:%H:%M}")
    days = i18n.text(language, "reminder.days").split()
    return f"{days[at.weekday()]} {at:%Y-%m-%d %H:%M} ({zones.spoken(at.tzinfo)})"


def _every(found: Repetition, rest: str, now: datetime) -> Every | Problem:
    try:
        rule = recurrence.checked(found.rule)
        if (problem := _unclear(found, rule, now)) is not None:
            return problem
        rule, time = _timed_rule(found, rule)
    except TooOften:
        return Problem.OFTEN
    except ValueError:
        return Problem.WRONG
    try:
        series, first = _series(found, rule, time, now)
    except (OverflowError, ValueError):
        return Problem.WRONG
    until = series.rule.until
    is_over = until is not None and first.replace(tzinfo=None) > until
    return Problem.PAST if is_over else Every(series, first, rest)


def _series(
    found: Repetition, rule: Rule, time: timedelta, now: datetime
) -> tuple[Series, datetime]:
    """All of its times, and the first one to come.

    Raises:
        OverflowError, ValueError: there is none.
    """
    if rule.is_elapsed:
        days = [now.date(), now.date() + timedelta(days=1)]
        start = _next(days, time, now) if found.clocks else now
        begins = start.astimezone(UTC).replace(tzinfo=None)
        if not found.clocks:
            begins += timedelta(seconds=rule.seconds)
    else:
        today = datetime.combine(now.date(), datetime.min.time()) + time
        begins = today.replace(second=0)
        # Every second week is counted from the first time to come.
        first = _first(Series(replace(rule, interval=1), begins), now)
        begins = datetime.combine(first.date(), begins.time())
    first = _first(Series(rule, begins), now)
    return Series(replace(rule, until=_until(found, first, now)), begins), first


def _unclear(found: Repetition, rule: Rule, now: datetime) -> Problem | None:
    """Why it cannot be told when this is, although all of it was read."""
    minutes = {clock.minute for clock in found.clocks}
    if len(minutes) > 1 or (rule.is_elapsed and len(found.clocks) > 1):
        return Problem.PARTLY
    for clock in found.clocks:
        if not rule.is_elapsed and clock.loose and _may_be_either(clock, 0, is_dated=True):
            return Problem.HALF
        if clock.zone:
            zone = zones.zone_named(clock.zone)
            if zone is None:
                return Problem.ZONE
            if str(zone) != str(now.tzinfo):
                return Problem.ZONE_REPEATS
    return None


def _timed_rule(found: Repetition, rule: Rule) -> tuple[Rule, timedelta]:
    """The rule with its times of day, and the time at which its days begin.

    Raises:
        TooOften: two times are too close.
        ValueError: there is no such time, or no rule for these.
    """
    if len(found.clocks) > 1:  # at the same minute of several hours; see `_unclear`
        times = [_time(clock, found.part) for clock in found.clocks]
        if any(time.days for time in times):
            raise ValueError
        hours = tuple(sorted({time.seconds // 3600 for time in times}))
        minutes = (found.clocks[0].minute,)
        return recurrence.checked(replace(rule, hours=hours, minutes=minutes)), timedelta()
    clock = found.clocks[0] if found.clocks else Clock(None)
    over, time = divmod(_time(clock, found.part), timedelta(days=1))
    if over and rule.weekdays and rule.frequency == "WEEKLY":  # "twelve at night" ends a day
        days = sorted((day + 1) % 7 for _, day in rule.weekdays)
        rule = replace(rule, weekdays=tuple((0, day) for day in days))
    elif over and rule.frequency != "DAILY":
        raise ValueError
    return rule, time


def _until(found: Repetition, first: datetime, now: datetime) -> datetime | None:
    """The last moment on the wall clock; None when it has no end.

    Raises:
        OverflowError, ValueError: there is no such day.
    """
    if found.lasting is not None:
        end = _after(found.lasting, None, first).replace(tzinfo=None)
        return end - timedelta(seconds=1)
    if found.until is None:
        return None
    days = _dates(found.until, now.date())
    day = next((each for each in days if each >= first.date()), days[-1])
    midnight = datetime.combine(day, datetime.min.time())
    return midnight + timedelta(seconds=-1 if found.is_before else _HALF_A_DAY * 2 - 1)


def _first(series: Series, now: datetime) -> datetime:
    """The first time to come.

    Raises:
        ValueError: there is none.
    """
    zone = now.tzinfo if isinstance(now.tzinfo, ZoneInfo) else ZoneInfo("UTC")
    at = series.after(int(now.timestamp() * 1000), zone)
    if at is None:
        raise ValueError
    return datetime.fromtimestamp(at / 1000, now.tzinfo)


def _moment(phrase: Phrase, now: datetime) -> datetime:
    """The time a phrase means.

    Raises:
        ValueError: there is no such day or time.
        OverflowError: no calendar goes that far.
    """
    if phrase.span is not None:
        return _after(phrase.span, phrase.clock, now)
    clock = phrase.clock or Clock(None)
    if phrase.day is None:
        # From yesterday on, because "twelve at night" ends a day.
        days = [now.date() + timedelta(days=ahead) for ahead in (-1, 0, 1)]
        return _next(days, _time(clock, ""), now)
    time = _time(clock, phrase.day.part)
    return _next(_dates(phrase.day, now.date()), time, now)


def _after(span: Span, clock: Clock | None, now: datetime) -> datetime:
    """Days go by the calendar, so that a time of day stays what it is; hours go by the clock."""
    month = now.year * 12 + now.month - 1 + span.months
    if month // 12 > date.max.year:
        raise OverflowError
    first = date(month // 12, month % 12 + 1, 1)
    day = min(now.day, monthrange(first.year, first.month)[1]) - 1
    wall = datetime.combine(first, now.time()) + timedelta(days=day + span.days)
    if clock is not None:
        return moment(datetime.combine(wall, datetime.min.time()) + _time(clock, ""), now)
    begun = moment(wall, now) if span.months or span.days else now
    return (begun.astimezone(UTC) + timedelta(seconds=span.seconds)).astimezone(now.tzinfo)


def _next(days: list[date], time: timedelta, now: datetime) -> datetime:
    """That time on the first of some days on which it is still to come, else on the last."""
    at = now
    for day in days:
        at = moment(datetime.combine(day, datetime.min.time()) + time, now)
        if at.timestamp() > now.timestamp():
            break
    return at


def _dates(day: Day, today: date) -> list[date]:
    """The dates that may be meant, in order.

    Raises:
        ValueError: there is none.
    """
    if day.of_month is not None:
        return _of_month(*day.of_month, day.weekday, today)
    if day.weekday is not None:
        monday = today - timedelta(days=today.weekday())
        if day.weeks is not None:
            return [monday + timedelta(days=day.weekday, weeks=day.weeks)]
        coming = today + timedelta(days=(day.weekday - today.weekday()) % 7)
        return [coming, coming + timedelta(days=7)]
    if day.date is None:
        return [today + timedelta(days=day.ahead)]
    year, month, number = day.date
    if year is not None:
        return [date(year, month, number)]
    date(2000, month, number)  # there is such a day in some years
    years = range(today.year, today.year + _LEAP + 1)
    return [date(y, month, number) for y in years if (month, number) != (2, 29) or isleap(y)]


def _of_month(ahead: int | None, number: int, weekday: int | None, today: date) -> list[date]:
    """The dates with a day's number, and its weekday if it has one, in the order they come."""
    first = today.year * 12 + today.month - 1
    months = range(first, first + 12 * _LEAP) if ahead is None else [first + ahead]
    found = [
        date(month // 12, month % 12 + 1, number)
        for month in months
        if 1 <= number <= monthrange(month // 12, month % 12 + 1)[1]
    ]
    found = [each for each in found if weekday in {None, each.weekday()}]
    if not found:
        raise ValueError
    return found


def _time(clock: Clock, of_day: Part) -> timedelta:
    """A time of day as what has gone by since midnight; more than a day for "twelve at night".

    Raises:
        ValueError: there is no such time.
    """
    part = clock.part or of_day
    if clock.hour is None:
        return timedelta(hours=_HOURS[part])
    hour = _hour_of_half(clock.hour, clock.half) if clock.half else _hour_of_part(clock.hour, part)
    is_end = (hour, clock.minute, clock.second) == (24, 0, 0)
    if clock.minute > 59 or clock.second > 59 or (clock.hour > 23 and not is_end):
        raise ValueError
    return timedelta(hours=hour, minutes=clock.minute, seconds=clock.second)


def _hour_of_half(hour: int, half: str) -> int:
    if not 1 <= hour <= 12:
        raise ValueError
    return hour % 12 + (12 if half == "pm" else 0)


def _hour_of_part(hour: int, part: Part) -> int:
    """The hour of "eight in the evening": those after midnight belong to the day after."""
    if part in {"dawn", "morning"}:
        return 0 if hour == 12 and part == "dawn" else hour
    if part in {"noon", "afternoon", "dusk"} and hour < (6 if part == "noon" else 12):
        return hour + 12
    if part in {"evening", "midnight"}:
        if hour in {0, 12}:
            return 24
        return hour + (24 if hour < 5 else 12 if hour < 12 else 0)
    return hour
