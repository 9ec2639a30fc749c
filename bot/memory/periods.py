"""Times that a question asks about, as ranges of days, in English and Chinese. Pure.

"Last May", "in spring 2023", "the week before last", "between March and May 2024", 去年五月, 上上周
mean what they mean on the day they are asked on. A month or a season without a year is that of
any of the last years. Days that are written by numbers alone are read by `dates`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from bot.clock import MONTH_NAME, month_of
from bot.sessions.time_words import NUMERAL, WEEKDAYS, WORDS, any_of, compiled, number

# Days and months that a text names, in the ways people and programs write them. Pure.

_MONTH_NAME = rf"(?P<month>{MONTH_NAME})\.?"
_YEAR_NUMBER = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_WRITTEN = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<!\d)(?<!\d\.)"
        + _YEAR_NUMBER
        + r"[-/.](?P<number>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d|\.\d)",
        r"(?<![\w.])(?P<day>\d{1,2})\. ?(?P<number>\d{1,2})\. ?" + _YEAR_NUMBER + r"(?!\d|\.\d)",
        r"(?<!\d)"
        + _YEAR_NUMBER
        + r"\s*年\s*(?P<number>\d{1,2})\s*月(?:\s*(?P<day>\d{1,2})\s*[日号])?",
        r"\b" + _DAY + r"\s+(?:of\s+)?" + _MONTH_NAME + r",?\s+" + _YEAR_NUMBER + r"\b",
        r"\b" + _MONTH_NAME + r"\s+" + _DAY + r",?\s+" + _YEAR_NUMBER + r"\b",
        r"\b" + _MONTH_NAME + r",?\s+(?:of\s+)?" + _YEAR_NUMBER + r"\b",
    )
)
_HAS_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


@dataclass(frozen=True, slots=True)
class Named:
    """A day, or a whole month when `day` is 0."""

    year: int
    month: int
    day: int

    def as_date(self) -> date | None:
        """The day, or None for a month."""
        return date(self.year, self.month, self.day) if self.day else None


def named_days(text: str) -> tuple[Named, ...]:
    """The days and months a text names with their year, each once, in the order of the text.

    A month that is part of a named day is not named again by itself.
    """
    found: dict[tuple[int, int], Named] = {}
    taken: set[int] = set()  # characters
    for pattern in _WRITTEN:
        for match in pattern.finditer(text):
            if match.start() in taken:
                continue
            for value in _valid(match):
                found[match.span()] = value
                taken.update(range(*match.span()))
    return tuple(dict.fromkeys(found[span] for span in sorted(found)))


def days_of(text: str) -> frozenset[date]:
    """The whole days a text names."""
    if not _HAS_YEAR.search(text):  # which is quickly seen, and so with most texts
        return frozenset()
    return frozenset(day for value in named_days(text) if (day := value.as_date()))


def first_day(text: str) -> date | None:
    """The first whole day a text names."""
    return next((day for value in named_days(text) if (day := value.as_date())), None)


def _valid(match: re.Match[str]) -> Iterator[Named]:
    parts = match.groupdict()
    number = parts.get("number")
    month = int(number) if number else month_of(parts["month"])
    value = Named(int(parts["year"]), month, int(parts.get("day") or 0))
    try:
        date(value.year, value.month, value.day or 1)
    except ValueError:
        return
    yield value


MAX_TEXT = 1_000  # characters of a question that are read
YEARS_BACK = 10  # that a month without a year may be of
LONG_AGO = date(1900, 1, 1)
TOLD_WITHIN = 7  # days; what happened on a day is often told within the week after it
TOLD_LATER = 0.5  # of the worth of the day itself
NEAR = 0.5  # at most, of what is not inside, when nothing is


@dataclass(frozen=True, slots=True)
class Period:
    """The days from `first` to `last`, both of them too."""

    first: date
    last: date

    def nearness(self, day: date) -> float:
        """1 for a day inside; half for one within a week after a single day; else 0."""
        if self.first <= day <= self.last:
            return 1.0
        is_told = self.first == self.last and 0 < (day - self.last).days <= TOLD_WITHIN
        return TOLD_LATER if is_told else 0.0

    def closeness(self, day: date) -> float:
        """Less than `NEAR`, the less the farther a day is away, by how long the period is."""
        away = max((self.first - day).days, (day - self.last).days, 0)
        return NEAR / (1 + away / max(TOLD_WITHIN, (self.last - self.first).days + 1))


def asked(text: str, today: date) -> tuple[Period, ...]:
    """The times that a question names; `today` is the day it is asked on where who asks is."""
    # The width of a space says nothing, and a run of them would be looked through again and again.
    rest = " ".join(text[:MAX_TEXT].split()).lower()
    found: list[tuple[int, int, tuple[Period, ...]]] = []
    for pattern, read in _PATTERNS:
        for match in compiled(pattern).finditer(rest):
            if _is_part(rest, match):
                continue
            try:
                named = tuple(read(match, today))
            except (ValueError, OverflowError):  # the calendar has no such day
                continue
            begin = match.start("what" if "what" in match.groupdict() else 0)
            found.append((begin, match.end(), named))
            rest = f"{rest[:begin]}{'#' * (match.end() - begin)}{rest[match.end() :]}"
    found.sort(key=lambda each: each[0])
    return tuple(dict.fromkeys(_joined(found, rest, today)))


def nearest(wanted: Iterable[Period], days: Iterable[date]) -> float:
    """The nearness of a passage's days to the times that are asked about: from 0 to 1."""
    every = tuple(days)
    return max((each.nearness(day) for each in wanted for day in every), default=0.0)


def closest(wanted: Iterable[Period], days: Iterable[date]) -> float:
    """The closeness of a passage's days to the times that are asked about: from 0 to `NEAR`."""
    every = tuple(days)
    return max((each.closeness(day) for each in wanted for day in every), default=0.0)


# --- from a match to a period ---------------------------------------------------------------------

Read = Callable[[re.Match[str], date], Iterable[Period]]
_Found = tuple[int, int, tuple[Period, ...]]

_SEASONS = {
    **dict.fromkeys(("spring", "春"), 3),
    **dict.fromkeys(("summer", "夏"), 6),
    **dict.fromkeys(("autumn", "fall", "秋"), 9),
    **dict.fromkeys(("winter", "冬"), 12),
}
_YEARS = {"大前": -3, "前": -2, "去": -1, "今": 0, "本": 0, "明": 1, "后": 2, "後": 2}
_DAYS = {"大前": -3, "前": -2, "昨": -1, "今": 0, "明": 1, "后": 2, "後": 2}


def _months(first: int, count: int = 1) -> Period:
    """So many months, the first one counted from the year 0."""
    end = first + count
    begin = date(first // 12, first % 12 + 1, 1)
    return Period(begin, date(end // 12, end % 12 + 1, 1) - timedelta(days=1))


def _days(first: date, count: int = 1) -> Period:
    return Period(first, first + timedelta(days=count - 1))


def _year(year: int) -> Period:
    return _months(year * 12, 12)


def _part(parts: dict[str, str | None]) -> tuple[int, int] | None:
    """The first month of what is named within a year, and how many months that has."""
    if month := parts.get("month"):
        is_english = month[0] in "abcdefghijklmnopqrstuvwxyz"
        return (month_of(month) if is_english else int(number(month))), 1
    if season := parts.get("season"):
        return _SEASONS[season], 3
    return None


def _in_year(year: int, parts: dict[str, str | None]) -> Period:
    """A year, or what is named of it."""
    part = _part(parts)
    if part is None:
        return _year(year)
    month, count = part
    if day := parts.get("day"):
        return _days(date(year, month, int(number(day))))
    if not 1 <= month <= 12:
        raise ValueError(month)
    return _months(year * 12 + month - 1, count)


def _of_year(match: re.Match[str], _today: date) -> Iterator[Period]:
    parts = match.groupdict()
    digits = "".join(str(int(number(digit))) for digit in str(parts["year"]))
    yield _in_year(int(digits), parts)


def _of_years_ago(match: re.Match[str], today: date) -> Iterator[Period]:
    """Of a year that is told by how long ago it was, or is ahead."""
    parts = match.groupdict()
    if ago := parts.get("ago"):
        ahead = -_count(ago)
    elif word := parts.get("word"):
        ahead = _YEARS[word]
    else:
        ahead = -2 if parts.get("twice") else _AHEAD[str(parts["which"])]
    yield _in_year(today.year + ahead, parts)


def _of_any_year(match: re.Match[str], today: date) -> Iterator[Period]:
    """That of each of the last years, as far as it has begun; a day also when it is to come."""
    for year in range(today.year, today.year - YEARS_BACK, -1):
        try:
            found = _in_year(year, match.groupdict())
        except ValueError:  # the 29th of February
            continue
        if found.first <= today or match.groupdict().get("day"):
            yield found


def _which(match: re.Match[str], today: date) -> Iterator[Period]:
    """The last, this or the next month or season of a name."""
    parts = match.groupdict()
    ahead = _AHEAD[str(parts["which"])]
    found = [_in_year(today.year + each, parts) for each in (-2, -1, 0, 1)]
    if ahead < 0:
        yield max((each for each in found if each.last < today), key=lambda each: each.first)
    elif ahead > 0:
        yield min((each for each in found if each.first > today), key=lambda each: each.first)
    else:
        yield next((each for each in found if each.first <= today <= each.last), found[2])


def _unit(match: re.Match[str], today: date) -> Iterator[Period]:
    """The last, this or the next week, month, weekend or day of the week."""
    parts = match.groupdict()
    unit = str(parts["unit"])
    if parts.get("twice"):
        ahead = -2
    elif word := parts.get("word"):
        ahead = word.count("下") - word.count("上")
    else:
        ahead = _AHEAD[str(parts["which"])]
    if unit in {"month", "月"}:
        yield _months(today.year * 12 + today.month - 1 + ahead)
        return
    week = _days(today + timedelta(days=7 * ahead - today.weekday()), 7)
    if unit == "weekend" or parts.get("end"):
        # A weekend that has begun is this one, and the one before it the last.
        yield _days(week.first + timedelta(days=5), 2)
    elif name := parts.get("weekday"):
        yield _days(week.first + timedelta(days=min("一二三四五六日天".index(name), 6)))
    elif unit[:3] in WEEKDAYS:
        yield _days(_weekday(today, WEEKDAYS.index(unit[:3]), ahead))
    else:
        yield week


def _weekday(today: date, weekday: int, ahead: int) -> date:
    """The last one before today, the next one after it, or that of this week."""
    if ahead < 0:
        return today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1)
    if ahead > 0:
        return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)
    return today + timedelta(days=weekday - today.weekday())


def _ago(match: re.Match[str], today: date) -> Iterator[Period]:
    """So many days, weeks or months before today."""
    count, unit = _count(match["ago"]), match["unit"]
    if unit[0] == "m" or unit == "月":
        yield _months(today.year * 12 + today.month - 1 - count)
    elif unit[0] == "w" or unit in _WEEKS:
        yield _days(today - timedelta(days=7 * count + 3), 7)
    else:
        yield _days(today - timedelta(days=count))


def _lately(match: re.Match[str], today: date) -> Iterator[Period]:
    """The last so many days, weeks, months or years, up to today."""
    count, unit = _count(match["count"] or "1"), match["unit"]
    size = {"d": 1, "天": 1, "日": 1, "w": 7, "m": 30, "月": 30, "y": 365, "年": 365}
    days = size.get(unit[0], 7) * count
    yield Period(today - timedelta(days=days), today)


def _count(words: str) -> int:
    return 2 if "couple" in words else int(number(words))


def _day(match: re.Match[str], today: date) -> Iterator[Period]:
    """A day by its name: yesterday, 前天."""
    word, name = match.groupdict().get("word"), match[0]
    ahead = _DAYS[word] if word else {"yes": -1, "las": -1, "tom": 1}.get(name[:3], 0)
    yield _days(today + timedelta(days=ahead))


def _two_days_off(match: re.Match[str], today: date) -> Iterator[Period]:
    yield _days(today + timedelta(days=-2 if match["side"] == "before" else 2))


def _written(match: re.Match[str], _today: date) -> Iterator[Period]:
    """A day or a month that is written out; either reading of 03/04/2023."""
    for each in named_days(match[0]):
        day = each.as_date()
        yield _days(day) if day else _months(each.year * 12 + each.month - 1)
    if slashed := re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{4})", match[0]):
        a, b, year = map(int, slashed.groups())
        for month, day_of_month in dict.fromkeys(((a, b), (b, a))):
            if month <= 12:
                yield _days(date(year, month, day_of_month))


def _christmas(match: re.Match[str], today: date) -> Iterator[Period]:
    parts = match.groupdict()
    latest = today.year if today >= date(today.year, 12, 24) else today.year - 1
    year = int(parts["year"]) if parts.get("year") else latest
    yield _days(date(year, 12, 24), 3)


def _from_to(match: re.Match[str], today: date) -> Iterator[Period]:
    """From one month to another; a year that only one of them has is that of both."""
    parts = match.groupdict()
    begin, end = ({"month": parts["month"]}, {"month": parts["until"]})
    year = parts.get("year") or parts.get("until_year")
    if year is None and not parts.get("word"):
        years = range(today.year, today.year - YEARS_BACK, -1)
    else:
        known = int(year) if year else today.year + _YEARS[str(parts["word"])]
        years = range(known, known - 1, -1)
    last_year = parts.get("until_year")
    for each in years:
        last = _in_year(int(last_year) if last_year else each, end)
        first = _in_year(int(parts["year"]) if parts.get("year") else each, begin)
        if first.first > last.first and not parts.get("year"):
            first = _in_year(first.first.year - 1, begin)
        elif first.first > last.first and not last_year:
            last = _in_year(last.first.year + 1, end)
        if first.first <= last.last:
            yield Period(first.first, last.last)


def _joined(found: list[_Found], rest: str, today: date) -> Iterator[Period]:
    """The times found, joined into stretches, and open-ended where the text says so."""
    at = 0
    while at < len(found):
        start, end, named = found[at]
        at += 1
        if at < len(found) and named and found[at][2]:
            between = rest[end : found[at][0]]
            joins = compiled(_TO).fullmatch(between)
            joins = joins or (
                compiled(_AND).fullmatch(between)
                and compiled(_FROM).search(rest[max(0, start - 16) : start])
            )
            if joins and named[0].first <= found[at][2][0].last:
                yield Period(named[0].first, found[at][2][0].last)
                at += 1
                continue
        yield from _opened(named, rest[max(0, start - 24) : start], rest[end : end + 2], today)


def _opened(named: tuple[Period, ...], before: str, after: str, today: date) -> Iterator[Period]:
    """Times as they are, or what is before, after or since them."""
    said = compiled(_SIDE).search(before)
    side = _SIDES.get(after) or (said["side"] if said else "")
    is_week = said is not None and said["week"] is not None
    one, week = timedelta(days=1), timedelta(days=7)
    for each in named:
        if side == "since":
            yield Period(each.first, max(today, each.last))
        elif side == "after":
            yield Period(
                each.last + one, each.last + week if is_week else max(today, each.last + one)
            )
        elif side and each.first > LONG_AGO:
            yield Period(each.first - week if is_week else LONG_AGO, each.first - one)
        else:
            yield each


def _is_part(text: str, match: re.Match[str]) -> bool:
    """True if it is part of something else: a phone number, a version, a price."""
    before, after = text[max(0, match.start() - 12) : match.start()], text[match.end() :][:12]
    begins, ends = match[0][0] in _DIGITS, match[0][-1] in _DIGITS
    return bool(
        (begins and compiled(_SOMETHING).search(before)) or (ends and compiled(_MORE).match(after))
    )


_DIGITS = frozenset("0123456789")
_SIDE = r"(?P<week>\bthe week )?\b(?P<side>since|before|until|till|after) (?:the )?$"
_SIDES = {"以来": "since", "以來": "since", "以后": "after", "之后": "after", "以後": "after",
          "之後": "after", "以前": "before", "之前": "before"}  # fmt: skip
_TO = r" ?(?:to|until|till|through|-|–|—|~|到|至) ?(?:the )?"
_AND = r" ?(?:and|和|与) ?"
_FROM = r"(?:between|from) (?:the )?$"
_SOMETHING = (
    r"(?:\b(?:versions?|release|build|v|tel|phone|call|no|nr|ip|room|page)[.:]? ?|"
    r"(?:版本|电话|型号|号码|价格)[:：]? ?|[$€£¥+] ?|[0-9][.,/:-]|[0-9a-z_]-|(?<=[0-9]) )$"
)
_MORE = (
    r" ?(?:[€$£¥%]|(?:eur|usd|euros?|dollars?|pounds?|yuan|km|kg)\b|[元块円])|"
    r"[.,:/][0-9]|[/_]|-[0-9a-z]"
)

_AHEAD = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
_WEEKS = ("周", "週", "星期", "礼拜", "禮拜")
_WEEK = f"(?:{'|'.join(_WEEKS)})"
_WHICH = rf"\b(?:the )?(?P<which>{any_of(_AHEAD)}) "
_COUNT = rf"[0-9]{{1,3}}|an?|(?:a )?couple of|{any_of(WORDS)}"
_CHINESE_COUNT = f"[0-9]{{1,3}}|{NUMERAL}{{1,3}}"
_MONTH = rf"(?P<month>{MONTH_NAME})\b\.?"
_SEASON = r"(?P<season>spring|summer|autumn|fall|winter)\b"
_PART = rf"(?:{_MONTH}|{_SEASON})"
_YEAR = r"(?P<year>(?:19|20)[0-9][0-9])(?![0-9])"
_YEAR_AGO = (
    rf"(?:the (?P<twice>year before last)|(?:the )?(?P<which>{any_of(_AHEAD)}) year|"
    rf"(?P<ago>{_COUNT}) years? ago)\b"
)
_ORDINAL = r"(?:st|nd|rd|th)?"
_MONTH_NUMBER = "1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九]"
_CHINESE_MONTH = rf"(?P<month>{_MONTH_NUMBER})月份?"
_CHINESE_DAY = rf"(?:的?(?P<day>[0-9]{{1,2}}|{NUMERAL}{{1,3}})[日号號])?"
_CHINESE_SEASON = r"(?P<season>[春夏秋冬])[天季日]?"
_CHINESE_PART = rf"(?:的?(?:{_CHINESE_MONTH}{_CHINESE_DAY}|{_CHINESE_SEASON}))"
_NO_NUMBER = rf"(?<!{NUMERAL})(?<![0-9])"
_UNTIL = rf"(?P<until>{MONTH_NAME})\b\.?(?: (?:of )?(?P<until_year>(?:19|20)[0-9][0-9])(?![0-9]))?"
_CHINESE_UNTIL = rf"(?:(?P<until_year>(?:19|20)[0-9][0-9])年)?(?P<until>{_MONTH_NUMBER})月"
_CHINESE_YEAR = r"(?P<year>(?:19|20)[0-9][0-9]|[一二][零〇○一二三四五六七八九]{3})年"

# What stands further up is looked for first, and what it has taken nothing else is found in.
_PATTERNS: tuple[tuple[str, Read], ...] = (
    # from one month to another
    (rf"\b(?:between|from) {_MONTH}(?: (?:of )?{_YEAR})? (?:and|to|until|till|through) {_UNTIL}",
     _from_to),
    ((rf"\b{_MONTH}(?: {_YEAR})? ?(?:-|–|—|to|through|until) ?(?P<until>{MONTH_NAME})\b\.?,? "
     rf"(?P<until_year>(?:19|20)[0-9][0-9])(?![0-9])"), _from_to),
    ((rf"(?:{_NO_NUMBER}{_YEAR}年|(?P<word>大前|前|去|今|本)年)?{_NO_NUMBER}{_CHINESE_MONTH}份?"
     rf"(?:到|至|和|与|-|~|—){_CHINESE_UNTIL}"), _from_to),
    # written out
    (r"(?<![0-9])[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}(?![0-9])", _written),
    (r"(?<![0-9a-z])[0-9]{1,2}\. ?[0-9]{1,2}\. ?(?:19|20)[0-9][0-9](?![0-9])", _written),
    (r"(?<![0-9a-z])[0-9]{1,2}/[0-9]{1,2}/(?:19|20)[0-9][0-9](?![0-9])", _written),
    (r"(?<![0-9a-z])(?P<month>0?[1-9]|1[0-2])/(?P<year>(?:19|20)[0-9][0-9])(?![0-9])", _of_year),
    (r"(?<![0-9a-z])(?P<year>(?:19|20)[0-9][0-9])-(?P<month>0[1-9]|1[0-2])(?![0-9])", _of_year),
    (rf"\b(?P<day>[0-9]{{1,2}}){_ORDINAL} (?:of )?{_MONTH},? (?:of )?{_YEAR}", _of_year),
    (rf"\b{_MONTH} (?:the )?(?P<day>[0-9]{{1,2}}){_ORDINAL},? (?:of )?{_YEAR}", _of_year),
    (rf"\b{_PART},? (?:of )?{_YEAR}", _of_year),
    (rf"\b{_YEAR},? (?:in )?{_SEASON}", _of_year),
    (rf"\bin {_YEAR},? in {_PART}", _of_year),
    (rf"{_NO_NUMBER}{_CHINESE_YEAR}{_CHINESE_PART}?", _of_year),
    # from today
    (rf"\b{_YEAR_AGO},? (?:in )?(?:the )?{_PART}(?: (?P<day>[0-9]{{1,2}}){_ORDINAL}\b)?",
     _of_years_ago),
    (rf"\b{_PART}(?: (?P<day>[0-9]{{1,2}}){_ORDINAL}\b)?,? (?:in |of )?{_YEAR_AGO}", _of_years_ago),
    (rf"\b{_YEAR_AGO}", _of_years_ago),
    (rf"(?<![以之])(?P<word>大前|前|去|今|本|明|[后後])年{_CHINESE_PART}?", _of_years_ago),
    (rf"(?P<ago>{_CHINESE_COUNT})年(?:以|之)?前{_CHINESE_PART}?", _of_years_ago),
    (r"\bthe day (?P<side>before) yesterday\b", _two_days_off),
    (r"\bthe day (?P<side>after) tomorrow\b", _two_days_off),
    (r"\b(?:yesterday|last night|to(?:day|night|morrow)|this (?:morning|evening))\b", _day),
    (r"(?<![以之])(?P<word>大前|前|昨|今|明|[后後])(?:天|晚|早|日(?!期))", _day),
    (rf"\b(?:last )?christmas(?:,? (?:of |in )?{_YEAR})?\b", _christmas),
    (rf"{_WHICH}{_PART}", _which),
    (r"\bthe (?P<unit>week|month|weekend) (?P<twice>before last)\b", _unit),
    (rf"{_WHICH}(?P<unit>weekend|week|month|(?:{any_of(WEEKDAYS)})[a-z]{{0,6}}day)\b", _unit),
    ((rf"(?<![晚早网线马路])(?P<word>上{{1,3}}|[这這本]|下{{1,3}})[个個]?(?P<unit>{_WEEK})"
     r"(?:(?P<weekday>[一二三四五六日天])|(?P<end>末))?"), _unit),
    (r"(?<![晚早网线马路])(?P<word>上{1,3}|[这這本]|下{1,3})[个個]?(?P<unit>月)", _unit),
    (rf"\b(?P<ago>{_COUNT}) (?P<unit>days|weeks|months|day|week|month) ago\b", _ago),
    (rf"(?P<ago>{_CHINESE_COUNT})[个個]?(?P<unit>天|日|月|{_WEEK})(?:以|之)?前", _ago),
    (rf"\b(?:the )?(?:last|past) (?P<count>{_COUNT}) (?P<unit>days|weeks|months|years)\b", _lately),
    ((rf"(?:最近|过去|過去|近)的?(?P<count>{_CHINESE_COUNT})[个個]?"
      rf"(?P<unit>天|日|月|年|{_WEEK})"), _lately),
    # of any year
    (rf"\b(?P<day>[0-9]{{1,2}}){_ORDINAL} (?:of )?{_MONTH}", _of_any_year),
    (rf"\b{_MONTH} (?:the )?(?P<day>[0-9]{{1,2}}){_ORDINAL}\b", _of_any_year),
    ((rf"\b(?:in|of|during|since|until|by|before|after|every|each|late|early|mid) (?:the )?"
     rf"(?P<what>{_PART})"), _of_any_year),
    (rf"{_NO_NUMBER}{_CHINESE_MONTH}{_CHINESE_DAY}", _of_any_year),
    (r"(?P<season>[春夏秋冬])[天季]", _of_any_year),
    # years
    ((rf"\b(?:in|during|of|since|until|by|from|before|after|to|and|between|year) "
     rf"(?P<what>{_YEAR})(?! ?[0-9])"),
     _of_year),
)  # fmt: skip
