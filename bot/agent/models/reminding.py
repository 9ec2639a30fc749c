"""Whether somebody asks the offline model to remind them, in English and Chinese. Pure.

Only what a message begins with counts, and a time before it only when nothing else stands there:
"you remind me of someone", "he reminded me" and 谢谢你提醒我 ask for nothing.
"""

from __future__ import annotations

import re
from typing import Final

from bot.sessions import phrases

# Possessive ("*+"): what can be read in two ways is read in one, or long texts would take forever.
_OPENING = r"(?:(?:please|pls|hey|hi|hello|ok|okay|and|also|so|now|oh|then|great|yes)\b[\s,!.:]*)*+"
_POLITE = r"""(?:(?:can|could|would|will)\s+you\s+|i(?:['’]d|\s+would)\s+like\s+you\s+to\s+
    |i\s+(?:need|want)\s+you\s+to\s+|(?:do\s+not|don['’]?t)\s+forget\s+to\s+|remember\s+to\s+)"""
_REMIND_ME = r"(?:please\s+|kindly\s+)*remind\s+(?:me|us)\b"
_SET = r"""(?:please\s+)?(?:(?:set|make|add|create|schedule|put)(?:\s+up)?(?:\s+me)?
    |give\s+me|i\s+(?:need|want))\s+(?:a|an|another|the)\s+reminder\b(?:\s+for\s+(?:me|us)\b)?
    (?:\s+for\b)?"""
_OPENING_ZH = (
    r"(?:请你?|麻烦你?|帮我|帮忙|给我|替我|你好|你|好的?|另外|还有|那就|那|嗨|喂|记得|要记得|别忘记?了?"
    r"|不要忘记?了?|到时候?|能不能|可不可以|可以|能否|可否|能|[\s,，。！!、：:])*+"
)
_REMIND_ME_ZH = (
    r"(?:提醒(?:一下)?(?:我们|咱们|我|咱)(?:一下)?"
    r"|(?:设置?|设定|定|加|添加|建|创建|新建)(?:一?个|一下)?提醒)"
)

_ASKED: Final = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL | re.VERBOSE)
    for pattern in (
        rf"(?P<time>){_OPENING}{_POLITE}?(?:{_REMIND_ME}|{_SET})(?P<rest>.*)",
        rf"{_OPENING}(?P<time>\S.{{1,63}}?)[\s,:]+{_OPENING}{_POLITE}?{_REMIND_ME}(?P<rest>.*)",
    )
]
_ASKED_ZH: Final = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rf"(?P<time>){_OPENING_ZH}{_REMIND_ME_ZH}(?P<rest>.*)",
        rf"{_OPENING_ZH}在?(?P<time>[^提]{{2,40}}?){_OPENING_ZH}{_REMIND_ME_ZH}(?P<rest>.*)",
    )
]
_LISTING: Final = re.compile(
    rf"""{_OPENING}(?:(?:what|which)(?:\s+are)?(?:\s+my|\s+the)?\s+reminders?
          (?:\s+do\s+(?:i|you)\s+have(?:\s+for\s+me)?|\s+(?:are|have)\s+.{{1,30}})?
        |(?:show|list|see|cancel|delete|remove|stop)(?:\s+(?:me|all|my|the|this|that|last|of))*
          \s+reminders?|do\s+i\s+have\s+(?:any\s+|a\s+)?reminders?|my\s+reminders?)[\s?.!]*
      |{_OPENING_ZH}(?:我|现在|目前|还|都|一共)*(?:有|设了|定了)?(?:什么|哪些|多少|几个|没有)提醒[吗呢\s？?。！]*
      |{_OPENING_ZH}(?:查看|看看|看一下|列出|取消|删除|删掉|停止)
        (?:我|的|所有|全部|这个|那个|刚才|上一个|一下)*提醒[吧\s？?。！]*""",
    re.IGNORECASE | re.VERBOSE,
)
_WANTS_AN_ANSWER = re.compile(
    r"(?:what|when|where|who|whose|which|how|why|if|whether|again)\b", re.IGNORECASE
)
_ABOUT = re.compile(r"(?:of|about)\b", re.IGNORECASE)
# 了吗 asks whether it was done, 提醒我的人 is somebody, 提醒我想起 a likeness.
_TOLD_ZH = re.compile(r"[了过的着]|想[起到]|.*(?:了|过)(?:吗|没有?|么)[\s？?。！!]*$", re.DOTALL)
_ASKS_ZH = re.compile(r"什么|哪|谁|怎么|多少|几")
_POLITE_END = re.compile(
    r"""(?:(?:[,，。.!！]|\s)+(?:please|pls)|[,，。.!！]\s*(?:thanks?(?:\s+you)?|thx|谢谢你?|多谢|拜托了?)
        |[,，]?(?:好吗|好不好|可以吗|行吗|吗))[\s.!?。！？]*$|[\s?？]+$""",
    re.IGNORECASE | re.VERBOSE,
)
_EDGES = " \t\r\n,，:：、;；"


def asked(text: str) -> str | None:
    """The time and the words of a wish to be reminded, as `when` reads them; None for others."""
    for pattern in (*_ASKED, *_ASKED_ZH):
        found = pattern.fullmatch(text)
        if found is None or (found["time"] and not _is_time(found["time"])):
            continue
        is_chinese = pattern in _ASKED_ZH
        rest = _POLITE_END.sub("", found["rest"].lstrip(_EDGES))
        words = ("，" if is_chinese else " ").join(part for part in (found["time"], rest) if part)
        told = is_chinese and _TOLD_ZH.match(found["rest"])
        return None if told or _is_question(rest, words) else words
    return None


def lists(text: str) -> bool:
    """Whether somebody wants to see or cancel what they are to be reminded of."""
    return _LISTING.fullmatch(text.strip()) is not None


def _is_time(text: str) -> bool:
    found = phrases.find(text)
    return found is not None and not found.rest


def _is_question(rest: str, words: str) -> bool:
    """Whether it asks for something to be told now: "remind me what I said about Rome"."""
    if _WANTS_AN_ANSWER.match(rest):
        return True
    vague = _ABOUT.match(rest) or _ASKS_ZH.search(rest)
    return bool(vague) and phrases.find(words) is None
