"""Reads from an entry the few facts somebody has one of, in English and Chinese. Pure.

Where somebody lives and works, their age, phone number and e-mail address: of two entries that
differ in one of these the later counts. Of two others that are the same sentence but for numbers,
dates or names, `frame` tells that much, in any language; the rest is left to the model.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from bot.clock import MONTH_NAME
from bot.context import wording

MOST: Final = 300  # characters of an entry that is looked at

_WHO = r"(?:(?:The )?(?P<who>[Mm]y \w+|[A-Za-z]\w*)(?:['’](?:ve|m))? )?"
_LATELY = r"(?i:(?:just |recently |now |have |has |am )*)"
_NAME = r"(?P<value>[A-ZÀ-Þ][\w'’-]*(?: [A-ZÀ-Þ][\w'’-]*){0,3})"
_SINCE = r"(?i: now| today| yesterday| recently| since .{1,20}| (?:last|this) \w+)?"
_HAS = r"(?:(?P<who>[Mm]y \w+|[A-Z]\w*)['’]s |[Mm]y )?(?i:new )?(?P<kind>(?i:work|home|private) )?"
_PHONE = r"(?P<value>[+\d][\d ()/.-]{4,20}\d)"
_EMAIL = r"(?P<value>\S{1,60}@\S{1,60})"
_KIN_ZH = "妹妹|姐姐|哥哥|弟弟|妈妈|爸爸|母亲|父亲|女儿|儿子|老婆|妻子|老公|丈夫|奶奶|爷爷"
_WHO_ZH = (
    rf"(?:我们?|用户)?的?(?P<who>{_KIN_ZH}|[A-Za-z]{{2,20}}|)的?(?:现在|已经|刚|最近|今年)?新?的?"
)
_NAME_ZH = r"(?P<value>(?![一这那哪个家早晚])[\w·]{2,12}?)(?<!公寓)(?<!房子)(?<!附近)"
_IS_ZH = r"(?:现在)?(?:是|改成|换成|变成|[:：])了?\s?"
_TABLE: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("home", rf"{_WHO}{_LATELY}(?i:lives?|moved|relocated)(?: now)? (?:in|to) {_NAME}{_SINCE}"),
        (
            "work",
            rf"{_WHO}{_LATELY}(?i:works?|started|working)(?: now)? (?:at|for) {_NAME}{_SINCE}",
        ),
        ("age", rf"{_WHO}(?:am |is )?(?P<value>\d{{1,3}}) years? old{_SINCE}"),
        ("age", rf"{_WHO}(?:just )?(?i:turned|turns) (?P<value>\d{{1,3}}){_SINCE}"),
        ("phone", rf"{_HAS}(?i:(?:tele|mobile )?phone(?: number)?)(?: is|:)?(?: now)? {_PHONE}"),
        ("email", rf"{_HAS}(?i:e-?mail(?: address)?)(?: is|:)?(?: now)? {_EMAIL}"),
        ("home", rf"{_WHO_ZH}(?:住在|定居在|搬家?到|搬去)了?{_NAME_ZH}(?:生活)?了?"),
        ("work", rf"{_WHO_ZH}在{_NAME_ZH}(?:工作|上班)了?"),
        ("age", rf"{_WHO_ZH}(?P<value>\d{{1,3}})岁了?"),
        ("phone", rf"{_WHO_ZH}(?:电话|手机)(?:号码?)?{_IS_ZH}{_PHONE}"),
        ("email", rf"{_WHO_ZH}(?:电子)?邮[箱件](?:地址)?{_IS_ZH}{_EMAIL}"),
    )
)
GAP: Final = "…"
LEAST: Final = 1  # words, or Chinese characters, that tell what an entry is about
# A name is a word with a capital that does not begin the sentence, where it is the subject.
_VALUE: Final = re.compile(
    rf"\d+(?:[.,:/]\d+)*|\b(?i:{MONTH_NAME})\b|(?<=\S )[A-ZÀ-ÖØ-Þ\u0410-\u042f]\w+"
)
_CJK: Final = re.compile(r"[\u3400-\u9fff]")
_SELF: Final = frozenset({"", "i", "user", "owner", "person"})
_NOBODY: Final = frozenset({"he", "she", "they", "it", "we", "who", "this", "that", "there"})


def read(words: str) -> tuple[str, str] | None:
    """Of whom an entry says what (`sister home`), and its value; None when it fits no pattern."""
    flat = " ".join(unicodedata.normalize("NFKC", words[: MOST + 1]).split()).rstrip("。.!！~ ")
    if len(flat) > MOST:
        return None
    for name, pattern in _TABLE:
        if (found := pattern.fullmatch(flat)) is not None:
            who = (found["who"] or "").casefold().removeprefix("my ")
            kind = (found.groupdict().get("kind") or "").casefold()
            who = "" if who in _SELF else f"{who} "
            return None if who.strip() in _NOBODY else (f"{who}{kind}{name}", found["value"])
    return None


def frame(words: str) -> tuple[str, tuple[str, ...]]:
    """An entry with a gap for each number, month and name, and what stood there.

    Both are empty where nothing would be left that tells what the entry is about.
    """
    if len(words) > MOST or words.endswith(("?", "\uff1f")):
        return "", ()
    flat = " ".join(unicodedata.normalize("NFKC", words).split()).rstrip("。.!！ ")
    bare = _VALUE.sub(GAP, flat)
    if len(wording.stems(bare)) < LEAST:
        return "", ()
    return bare.casefold(), tuple(value.casefold() for value in _VALUE.findall(flat))


def contradict(one: str, other: str) -> bool:
    """True for two values of one slot that cannot both be so at the same time."""
    numbers = [re.sub(r"\D", "", each)[-7:] for each in (one, other)]
    if all(len(each) >= 5 for each in numbers):
        return numbers[0] != numbers[1]
    one, other = one.casefold(), other.casefold()
    # "Bonn" and 波恩 may be one place, and "Bonn-Beuel" is in Bonn.
    is_one_script = bool(_CJK.search(one)) == bool(_CJK.search(other))
    return is_one_script and one not in other and other not in one
