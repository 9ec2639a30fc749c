"""How people take back what they said a moment ago: "no wait, Friday", 不去了. Pure."""

from __future__ import annotations

import re
from typing import Final

from bot.clock import MONTH_NAME
from bot.context import wording

ABOUT = 0.34  # of the earlier one's words are said again by what corrects it
LONGEST_MENDING = 60  # characters of what only names another day, number or name

_CORRECTS = re.compile(
    r"^(?:oops|whoops|sorry)\b|^(?:oh\s+|ah\s+|no[, ]+|sorry[, ]+|oops[, ]+)*+(?:no wait|wait"
    r"|scratch that|correction|i meant|i mean|make that|that was (?:wrong|the old)|not any ?more)\b"
    r"|\b(?:don['’]?t|no longer|not)\b[^.]{1,40}\bany ?more\b"
    r"|\b(?:moved|changed|postponed|rescheduled|pushed|shifted) (?:it |them )?to\b"
    r"|\bis (?:on |at |in )?\w+ now\b"
    r"|(?:说|打|记|写|弄|搞|看|听)错了|不对(?![称劲着])|更正|改到|改成|改为|改在",
    re.IGNORECASE,
)
# Begins a message that mends the one before it, whatever else it says.
_MENDS = re.compile(
    r"^(?:(?:oh|ah|ok|no|nah|lol)[\s,]+)*+(?:oops|whoops|argh|no wait|wait|hold on|scratch that"
    r"|correction|i meant|make that)\b"
    r"|^(?:哦|啊|呃)*(?:我?[说打记写搞]错了?|更正|改了|哦?不对(?![称劲着])|等等)",
    re.IGNORECASE,
)
# Begins one that mends it if it is short and names a day, a number or a name.
_MAY_MEND = re.compile(r"^(?:sorry|actually|no|nope)\b[\s,]", re.IGNORECASE)
_DETAIL = re.compile(
    r"\d|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|(?<=[a-z,] )(?-i:[A-Z])\w+", re.IGNORECASE
)
_CALLS_OFF = re.compile(
    r"^(?:(?:oh|ah|ok|okay|no|nah|well|hm+|right)[\s,]+)*+(?:forget (?:it|that|about)|never ?mind"
    r"|on second thoughts?)\b|\b(?:scrap|cancel) (?:it|that|the)\b"
    r"|\b(?:call(?:ed|ing)? (?:\w+ ){0,2}off|fell through|chang(?:ed|ing) (?:my|our) minds?"
    r"|cancell?ed|not happening)\b"
    r"|^(?:唉|哎|嗯|那|还是)*算了|取消|作罢|黄了|泡汤|改主意|变卦",
    re.IGNORECASE,
)
_PLANNED = re.compile(
    r"\b(?:will|going to|gonna|plan\w*|book\w*|decided|agreed|promised|let['’]?s|tomorrow|tonight"
    rf"|next (?:week|month|year)|(?:mon|tues|wednes|thurs|fri|satur|sun)day|{MONTH_NAME})\b"
    r"|['’]ll\b|\b(?:i['’]?m|we['’]?re|i am|we are) \w+ing\b"
    r"|要|打算|决定|准备|[定约订]了?|报了?名|明[天晚年]|后天|下(?:周|个?月|星期)"
    r"|周[一二三四五六日天末]|\d[号日点]",
    re.IGNORECASE,
)
_NOT_DONE = re.compile(
    r"(?:\bnot|n['’]t|\bno longer)\s+(?:going to\s+|gonna\s+)?(?P<verb>[a-z]{3,})", re.IGNORECASE
)
_NOT_DONE_ZH = re.compile(
    "不(?:打算|想|准备|用|再)?(?P<verb>[\u4e00-\u9fff])[^，。！？,!?]{0,8}?了"
)
_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")  # "quitt" of "quitting"
_NO_DEED: Final = frozenset({"sure", "going", "know", "think", "have", "been", "want", "need"})
_NO_DEED_ZH: Final = frozenset("是在好行对能会要知了多少错同")
_INSTEAD = re.compile(r"\b(?:instead|rather|will)\b|['’]ll\b|改|换成", re.IGNORECASE)


def corrects(sentence: str) -> bool:
    """True when a sentence says that something is not so, or no longer."""
    return bool(_CORRECTS.search(sentence))


def mends(message: str) -> bool:
    """True when a message begins by taking back the one before it: "hold on", 说错了."""
    if _MENDS.match(message):
        return True
    is_short = len(message) <= LONGEST_MENDING and not message.endswith("?")
    lead = _MAY_MEND.match(message)
    return bool(is_short and lead and _DETAIL.search(message, lead.end()))


def calls_off(sentence: str) -> bool:
    """True when a sentence says that a plan came to nothing."""
    return bool(_CALLS_OFF.search(sentence))


def is_plan(sentence: str) -> bool:
    """True when a sentence says what is going to be done."""
    return bool(_PLANNED.search(sentence))


def restates(later: str, earlier: str) -> bool:
    """True when a sentence says again so much of an earlier one that it is about the same."""
    then = wording.stems(earlier)
    return len(then & wording.stems(later)) > len(then) * ABOUT


def undoes(later: str, earlier: str) -> bool:
    """True when a sentence says that what an earlier one plans is not done after all."""
    return is_plan(earlier) and bool(_denied(later) & (wording.stems(earlier) - _denied(earlier)))


def puts_instead(sentence: str) -> bool:
    """True when a sentence says what is done in the place of something."""
    return bool(_INSTEAD.search(sentence))


def _denied(sentence: str) -> frozenset[str]:
    """What a sentence says is not done."""
    said = {wording.stem(found["verb"].lower()) for found in _NOT_DONE.finditer(sentence)}
    verbs = said | {_DOUBLED.sub(r"\1", verb) for verb in said}
    verbs_zh = {found["verb"] for found in _NOT_DONE_ZH.finditer(sentence)}
    return frozenset(verbs - _NO_DEED | (verbs_zh - _NO_DEED_ZH))
