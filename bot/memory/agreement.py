"""Whether an entry says the same as the sentence it is made of: whose it is, its "not". Pure.

An entry may be made of somebody's own words and yet turn them round: it leaves out a "not", has
done what was only promised, gives one's illness to another, or one number to another thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bot.context import extract, statements, wording
from bot.memory.evidence import ISO_DAY, tokens_of
from bot.storage import fulltext

YEARS = range(1900, 2100)  # which stand with a day, whether they were said or not
BESIDE = 2  # words that an entry's clause and one of the person's have in common, to compare them

KIN = re.compile(
    r"\b(?:daughter|son|wife|husband|partner|girlfriend|boyfriend|mother|mum|mom|father|dad"
    r"|sister|brother"
    r"|aunt|uncle|niece|nephew|cousin|grand\w+|boss|neighbou?r|friend|colleague|cat|dog)s?\b"
    r"|女儿|儿子|老公|丈夫|老婆|妻子|妈|爸|姐|妹|哥|弟|爷爷|奶奶|外公|外婆|朋友|同事|老板|室友"
    r"|邻居|猫|狗"
)
_PRONOUN = re.compile(r"\b(?:he|she|they|his|her|their)\b|[他她]", re.IGNORECASE)
_SUBJECT = re.compile(
    r"^(?:my|our)\s+\w+(?:\s+(?!is|was|has|had|are)\w+)?|^[A-ZÀ-Þ][\w-]+(?=\s+(?:is|was|has"
    r"|wants|likes|loves|lives"
    r"|works|plays|said|moved|wrote)\b)"
    r"|^我们?(?:家"
    r"|的)*(?![住做学读用去有喜爱想会能对属是来工出毕现也还就一每之平最不都已今明下常从只给把要觉选定换])"
    r"[\u4e00-\u9fff]{1,3}?(?=叫|姓|是|在|今年|下|喜欢|爱|要|住|学|有|每|昨|明|刚|过|不|得|的)",
    re.IGNORECASE,
)
_WORD_OR_SOMEBODY = re.compile(
    r"(?P<own>\b(?:I|we|me)\b(?!\W+(?:said|told|know))|[我咱]们?(?!的|家|们?(?:爸|妈|姐|哥|弟|妹|女儿|儿子|老)))"
    rf"|(?P<other>\b(?:he|she|they)\b|[他她]|(?:(?<=\bmy )|(?<=\bour )|(?<=我))(?:{KIN.pattern}))"
    r"|[\u4e00-\u9fff]|\w+",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"\b(?:not|never|no|without|don't|doesn't)\b|n['’]t\b|[不没别无]|\binstead\b|\bhates?\b"
)
_DENIED = re.compile(
    r"(?:\bnot|\bnever|n['’]t|\bno longer|\binstead of|\bhate)((?:\s+[\w-]+){1,3})"
)
_DENIED_ZH = re.compile("(?:不肯|不想|不会|不再|不能|不要|没有|[不没别])([\u4e00-\u9fff]{2})")
_CANNOT_ZH = re.compile("(?P<verb>[\u4e00-\u9fff])不(?:惯|了|得|动|到|完|起|来|下|见|太[惯见])")
_DONE_ZH = re.compile("已经|完了|好了|过了")
_TO_DO = re.compile(
    r"\b(?:must|needs?|ha(?:ve|s) to|should|promised?|will|plans?|wants?|going to|tomorrow)\b"
    r"|['’]ll\b",
    re.IGNORECASE,
)
_TO_DO_ZH = re.compile("要|得|必须|打算|准备|想|还差|之前|提醒|答应")
_OFTEN = re.compile(
    r"每[天周月年晚早]|天天|从不|总是|\b(?:every|each) \w+|\b(?:always|never|daily|weekly"
    r"|monthly)\b",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:\w{2,}ed|sent|got|bought|paid|did|made|took|went|wrote|found|sold|met|won|lost|left)\b"
)
_NO_DEED = frozenset("called named decided planned promised scheduled needed supposed".split())  # noqa: SIM905


_CLAUSE = re.compile(r"[，,;；。！？]\s*|[.!?]\s+|\s[–—-]\s")
_WEEKDAY = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:周|星期|礼拜)[一二三四五六日天]",
    re.IGNORECASE,
)
_TIME = re.compile(r"\b\d{1,2}[:.]\d\d\b")  # said in other words: "half past four"
_COUNT_ZH = re.compile("[零〇一二两三四五六七八九十百千万]+")


def kin(text: str) -> frozenset[str]:
    """The people and animals a text is about, by what they are to the person."""
    return frozenset(map(wording.stem, KIN.findall(text.lower())))


def is_mended(text: str, old: str, new: str) -> bool:
    """Whether a text says a detail as it was mended, and none of the kind as it was before."""
    here, then, now = _details(text), _details(old), _details(new)
    mended = {kind for kind, _ in here & (now - then)}
    return bool(mended) and here <= then | now and not mended & {k for k, _ in here & (then - now)}


def _details(text: str) -> frozenset[tuple[str, str]]:
    """What of a text may be mended, each with its kind: its numbers, weekdays and names."""
    numbers = (("number", str(number)) for number in wording.numbers(text))
    days = (("day", found.group().lower()) for found in _WEEKDAY.finditer(text))
    names = (("name", stem) for name in extract.names(text) for stem in wording.stems(name))
    return frozenset((*numbers, *days, *names))


def turns(text: str, said: str) -> bool:
    """True when a text leaves out a "not" of what was said, or has done what is to be done."""
    denied = {wording.stem(word) for part in _DENIED.findall(said.lower()) for word in part.split()}
    if denied & wording.stems(text) and not _DENIES.search(text.lower()):
        return True
    for match in (*_DENIED_ZH.finditer(said), *_CANNOT_ZH.finditer(said)):
        at = text.find(match[1])
        if said.count(match[1]) > 1:
            continue  # they say it once so and once so
        if at >= 0 and not _DENIES.search(text[max(0, at - 4) : at + 4]):
            return True
    if _DONE_ZH.search(text) and not _DONE_ZH.search(said):
        return True
    if "了" in text and "了" not in said and _TO_DO_ZH.search(said):
        return True
    if not set(_OFTEN.findall(text.lower())) <= set(_OFTEN.findall(said.lower())):
        return True
    deeds = set(_PAST.findall(text.lower())) - _NO_DEED
    return bool(_TO_DO.search(said) and deeds - set(_PAST.findall(said.lower())))


def is_of_another(text: str, tokens: frozenset[str], said: str) -> bool:
    """True when a text leaves out of whom the person said something."""
    bare = statements.bare(said)
    if _PRONOUN.match(bare) and not _PRONOUN.search(text):
        return not _has_subject(text)
    if found := _SUBJECT.match(bare):
        subject = wording.stems(found.group())
        whose = subject.union(*map(wording.stems, extract.names(said)))
        if subject and not whose & tokens:
            return True
    return not _has_subject(text) and _is_others(said, tokens)


def _has_subject(text: str) -> bool:
    """Whether a text says of whom it is: "Daughter Lena is ill", not "Is moving to Ghent"."""
    names = extract.names(text)
    begins = any(text.startswith(name) or fulltext.is_cjk(name[0]) for name in names)
    return bool(begins or kin(text) or _PRONOUN.search(text))


def _is_others(said: str, tokens: frozenset[str]) -> bool:
    """Whether the last one named in a sentence before some of its words is not the person."""
    who = ""
    for found in _WORD_OR_SOMEBODY.finditer(said):
        word = found.group()
        if found["own"]:
            who = "own"
        elif found["other"]:
            who = "other"
        elif who and wording.stems(word) & tokens:
            return who == "other"
    return False


def mispairs(text: str, said: Iterable[str]) -> bool:
    """True when a text has a number, or a weekday, of another thing than the person said it of.

    By the words that stand with it between two commas: "paid 1800, rent 720" has no rent of 1800.
    """
    there = [_Clause.of(clause) for sentence in said for clause in _CLAUSE.split(sentence)]
    for clause in map(_Clause.of, _CLAUSE.split(text)):
        common = [len(clause.words & each.words) for each in there]
        most = max(common, default=0)
        nearest = [each for each, count in zip(there, common, strict=True) if count == most]
        if most < BESIDE:
            continue
        for own, theirs in (
            (clause.numbers, [each.numbers for each in nearest]),
            (clause.weekdays, [each.weekdays for each in nearest]),
        ):
            if own and all(theirs) and not any(own <= each for each in theirs):
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Clause:
    """The words between two commas, apart from the numbers and weekdays among them."""

    words: frozenset[str]
    numbers: frozenset[int]
    weekdays: frozenset[str]

    @classmethod
    def of(cls, clause: str) -> _Clause:
        rest = _TIME.sub(" ", extract.without_dates(ISO_DAY.sub(" ", clause)))
        rest = _WEEKDAY.sub(" ", rest)
        words = (word for word in tokens_of(_COUNT_ZH.sub(" ", rest)) if not word.isdecimal())
        weekdays = (found.group().lower() for found in _WEEKDAY.finditer(clause))
        numbers = (number for number in wording.numbers(rest) if number not in YEARS)
        return cls(frozenset(words), frozenset(numbers), frozenset(weekdays))
