"""What the offline model understands, in English and Chinese: keep, find, remind. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from bot.context import sentences
from bot.sessions import time_phrases

MAX_QUERY = 500  # characters

Kind = Literal["", "remember", "find", "notes", "before", "remind", "reminders", "about"]
"""What a message asks for; `find` looks for something, `notes` is all that is noted of the person,
`before` the end of the conversation before, `about` what the bot is. Empty for everything else."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a message asks for, and its words.

    They are what to keep (empty when that was not said), what to look for, or the time and the
    words of a reminder, as `due_time` reads them.
    """

    kind: Kind
    words: str = ""


# Possessive ("*+"): what can be read in two ways is read in one, or long texts would take forever.
_OPENING = (
    r"(?:(?:please|pls|hey|hi|hello|ok|okay|and|also|so|now|oh|then|yes)\b|请你?|麻烦你?|帮我|给我|替我"
    r"|你好|你要|你|好的?|另外|还有|那就|那|能不能|可不可以|可以|可否|能|[\s,.!:，。！、：])*+"
)
_POLITE = r"(?:can|could|would|will)\s+you\s+(?:please\s+)?"
# "do you remember", "remember when we …" ask; "can you remember that …" asks to keep.
_KEEP = re.compile(
    rf"""{_OPENING}(?P<polite>{_POLITE})?(?:always\s+)?
        (?:(?:remember|memori[sz]e|keep\s+in\s+mind|do\s+not\s+forget|don['’]?t\s+forget
            |(?:take|make)\s+a\s+note(?:\s+of)?|note\s+down|write\s+down|note)\b
           (?P<that>\s*(?:[:,]|\bthat\b|\bthis\b\s*:?))?
          |(?:记住|记一下|记下来?|记得|记着|别忘记?了?|不要忘记?了?|牢记)(?:一下|了)?[\s,，：:。、]*)
        \s*(?P<what>.*)$""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_ONLY_THAT = re.compile(r"(?:it|that|this|这个|这句话?|这件事|这一?点)?[\s.!。！]*", re.IGNORECASE)
_ASKS_AFTER = re.compile(
    r"(?:what|when|where|who|whose|which|how|why|if|whether|again)\b", re.IGNORECASE
)
_RECALLS = re.compile(r"还记得|记不记得|说过什么|什么时候来着")
_ASKS = re.compile(
    rf"""{_OPENING}(?:what|when|where|who|whom|whose|which|how|why
          |(?:do|did|does|have|has|had|is|are|was|were|can|could|will|would)\s+(?:you|i|we|my|the|it)
          |(?:tell|remind)\s+me|search|find|recall|look\s+up|show\s+(?:me|my))\b
        |[^\n]*(?:还记得|记不记得|我说过|我提过|我告诉过|查一下|查查|搜一下|搜索|找一下|回忆|什么|谁
          |哪[里儿个些天年位]|多少|几[个点月号岁次]|怎么|何时|是不是|有没有)""",
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT = re.compile(
    rf"""{_OPENING}(?:who\s+are\s+you|what\s+(?:can|do)\s+you\s+(?:do|understand)(?:\s+for\s+me)?
          |(?:what['’]?s|what\s+is)\s+your\s+name|how\s+(?:do|does)\s+(?:you|this)\s+work|help(?:\s+me)?
          |tell\s+me\s+about\s+yourself|are\s+you\s+an?\s+(?:bot|robot|human|ai)
          |叫什么(?:名字)?|会?(?:做|干)?(?:些|点)?(?:什么|啥)|有(?:什么|哪些)(?:功能|用)|怎么用|帮助
          |是(?:谁|什么|机器人|真人|人|AI)吗?)[\s?.!？。！]*""",
    re.IGNORECASE | re.VERBOSE,
)

# What a question is made of beside the thing it asks about. When nothing else is left, it asks
# about the person, the conversation before, or nothing.
_FUNCTION_WORDS = frozenset(
    """a about again all already am an and any anything are as at be been before by can chat
    conversation could did discuss discussed do does doing earlier everything far find for from
    going had has have he hello her hers hey hi him his how i if in into is it its just know
    known last leave left let like look lookup me mean mention mentioned mine my note noted
    notes now of off on or our ours please previous previously recall remember remind said say
    saying search she should show so some something speak spoke stop talk talked talking tell
    that the their them there these they thing things think this those time to today told up us
    was we were what when where which who whom whose why will with would you your yours yourself
    """.split()  # noqa: SIM905
)
_CONTRACTED = re.compile(r"['’](?:s|re|m|ve|d|ll)$")
_FUNCTION_ZH = re.compile(
    "你还记得|还记得|记不记得|记得|我有没有|有没有|是不是|能不能|可不可以|告诉过|告诉|说过|提过|提到|聊过"
    "|知道|了解|关于|什么时候|什么|为什么|怎么样|怎么|多少|哪里|哪儿|哪个|哪些|哪天|哪年|哪位|何时|几个|几点|几月"
    "|几号|几岁|几次|查一下|查查|搜一下|搜索|找一下|回忆一下|回忆|请问|一下|之前|以前|上次|最近|我们|你们|他们"
    "|她们|[我你您他她它的谁吗呢吧啊呀]"
)
_FUNCTION_CHARACTERS = frozenset(
    "了都些事情对跟和在有没是聊谈讨论说到过讲得着那这好咱刚才上一次回哪"
)
_OF_BEFORE = re.compile(
    r"\b(?:talk(?:ed|ing)?|discuss(?:ed)?|chat|spoke|speak|sa(?:y|id|ying)|were we|did we)\b"
    r"|聊|谈|讨论|[^我]说(?!过)",
    re.IGNORECASE,
)
_OF_ME = re.compile(
    r"\b(?:i|me|my|mine|know|remember|recall|notes?)\b|我|记得|知道|了解", re.IGNORECASE
)
_PUNCTUATION = re.compile(r"[^\w\s'’-]+")


def understand(text: str) -> Intent:
    """What a message asks for."""
    text = text.strip()
    if (words := _reminder(text)) is not None:
        return Intent("remind", words)
    for kind, pattern in _WHOLE:
        if pattern.fullmatch(text):
            return Intent(kind)
    return _of_memory(text)


def _of_memory(text: str) -> Intent:
    asks = sentences.is_question(text)
    keep = _KEEP.match(text)
    if keep and not _RECALLS.search(text):
        what = keep["what"].strip()
        if not _ASKS_AFTER.match(what) or keep["that"]:
            if not asks or keep["polite"] or keep["that"]:
                return _kept(what.rstrip("?？ ") if keep["polite"] else what)
        else:
            asks = True
    return _question(text) if asks or _ASKS.match(text) else Intent("")


def query_of(text: str) -> str:
    """The content words of a question; empty when it has none."""
    spaced = _FUNCTION_ZH.sub(" ", _PUNCTUATION.sub(" ", text))
    words = (_CONTRACTED.sub("", word) for word in spaced.split())
    content = [word for word in words if word.lower() not in _FUNCTION_WORDS]
    is_about_something = any(not _FUNCTION_CHARACTERS.issuperset(word) for word in content)
    return " ".join(content)[:MAX_QUERY].strip() if is_about_something else ""


def _kept(what: str) -> Intent:
    what = what.strip().strip('“”"').strip()
    return Intent("remember", "" if _ONLY_THAT.fullmatch(what) else what)


def _question(text: str) -> Intent:
    if query := query_of(text):
        return Intent("find", query)
    if _OF_BEFORE.search(text):
        return Intent("before")
    return Intent("notes" if _OF_ME.search(text) else "")


# --- wishes to be reminded -----------------------------------------------------------------------

# Only what a message begins with counts, and a time before it only when nothing else stands there:
# "you remind me of someone", "he reminded me" and 谢谢你提醒我 ask for nothing.
_REMIND = re.compile(
    rf"""{_OPENING}(?:要?记得|(?:别|不要)忘记?了?)?+在?(?P<time>[^提]{{0,64}}?)[\s,:]*{_OPENING}
        (?:{_POLITE}|i(?:['’]d|\s+would)\s+like\s+you\s+to\s+|i\s+(?:need|want)\s+you\s+to\s+
          |(?:do\s+not|don['’]?t)\s+forget\s+to\s+|remember\s+to\s+)?
        (?:(?:please\s+|kindly\s+)*remind\s+(?:me|us)\b
          |(?:(?:set|make|add|create|schedule)(?:\s+up)?(?:\s+me)?|give\s+me|i\s+(?:need|want))\s+
           (?:a|an|another|the)\s+reminder\b(?:\s+for\s+(?:me|us)\b)?(?:\s+for\b)?
          |(?P<zh>提醒(?:一下)?(?:我们|咱们|我|咱)(?:一下)?
            |(?:设置?|设定|定|加|添加|建|创建|新建)(?:一?个|一下)?提醒))(?P<rest>.*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_LISTING = re.compile(
    r"(?!.*\b(?:say|said|about|set|need|want|make)\b)[^\n]{0,40}\breminders?\b[^\n]{0,30}"
    r"|(?!.*[说谢])[^\n]{0,16}提醒[吗呢吧\s？?。！]*",
    re.IGNORECASE,
)
# 了吗 asks whether it was done, 提醒我的人 is somebody, 提醒我想起 a likeness.
_TOLD_ZH = re.compile(r"[了过的着]|想[起到]|.*(?:了|过)(?:吗|没有?|么)[\s？?。！!]*$", re.DOTALL)
_VAGUE = re.compile(r"(?:of|about)\b|.*(?:什么|哪|谁|怎么|多少|几)", re.IGNORECASE | re.DOTALL)
_POLITE_END = re.compile(
    r"""(?:(?:[,，。.!！]|\s)+(?:please|pls)|[,，。.!！]\s*(?:thanks?(?:\s+you)?|thx|谢谢你?|多谢|拜托了?)
        |[,，]?(?:好吗|好不好|可以吗|行吗|吗))[\s.!?。！？]*$|[\s?？]+$""",
    re.IGNORECASE | re.VERBOSE,
)

_WHOLE: tuple[tuple[Kind, re.Pattern[str]], ...] = (("reminders", _LISTING), ("about", _ABOUT))


def _reminder(text: str) -> str | None:
    """The time and the words of a wish to be reminded; None for everything else."""
    found = _REMIND.fullmatch(text)
    if found is None or (found["time"] and not _is_time(found["time"])):
        return None
    rest = _POLITE_END.sub("", found["rest"].lstrip(" \t\r\n,，:：、;；"))
    between = "，" if found["zh"] else " "
    words = between.join(part for part in (found["time"], rest) if part)
    # "remind me what I said about Rome" is to be told now.
    asks = _ASKS_AFTER.match(rest) or (_VAGUE.match(rest) and time_phrases.find(words) is None)
    is_told = found["zh"] and _TOLD_ZH.match(found["rest"])
    return None if asks or is_told else words


def _is_time(text: str) -> bool:
    found = time_phrases.find(text)
    return found is not None and not found.rest
