"""What the offline model understands, in English and Chinese: keep, find, remind. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bot.sessions import time_phrases

MAX_QUERY = 500  # characters


@dataclass(frozen=True, slots=True)
class Remember:
    """The person asks to keep `what`; empty when they did not say what."""

    what: str


@dataclass(frozen=True, slots=True)
class Recall:
    """The person asks about the past; `query` is the words to look for.

    `before` when they ask for nothing but what was said in the conversation before.
    """

    query: str
    before: bool = False


@dataclass(frozen=True, slots=True)
class Remind:
    """The person asks to be reminded; `words` hold the time and what of, as `when` reads them."""

    words: str


@dataclass(frozen=True, slots=True)
class Reminders:
    """The person asks what they are to be reminded of, or wants to cancel it."""


@dataclass(frozen=True, slots=True)
class About:
    """The person asks what the bot is, or what it can do."""


Intent = Remember | Recall | Remind | Reminders | About | None

# Possessive ("*+"): what can be read in two ways is read in one, or long texts would take forever.
# "do you remember", "remember when we …" ask; "can you remember that …" asks to keep.
_KEEP_EN = re.compile(
    r"""^(?:(?:please|pls|hey|hi|hello|ok|okay|and|also|so|now)\b[\s,!.:]*)*+
        (?P<polite>(?:can|could|would|will)\s+you\s+(?:please\s+)?)?(?:please\s+)?(?:always\s+)?
        (?:remember|memori[sz]e|keep\s+in\s+mind|do\s+not\s+forget|don['’]?t\s+forget
          |(?:take|make)\s+a\s+note(?:\s+of)?|note\s+down|write\s+down|note)\b
        (?P<that>\s*(?:[:,]|\bthat\b|\bthis\b\s*:?))?\s*(?P<what>.*)$""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_KEEP_ZH = re.compile(
    r"""^(?:请你?|麻烦你?|帮我|给我|你要|你|好的?|另外|还有|那就|那|[\s,，。！!、])*+
        (?:记住|记一下|记下来?|记得|记着|别忘记?了?|不要忘记?了?|牢记)(?:一下|了)?
        [\s,，：:。、]*(?P<what>.*)$""",
    re.DOTALL | re.VERBOSE,
)
_QUESTION_WORD_AFTER = re.compile(
    r"^(?:what|when|where|who|whose|which|how|why|if|whether|the\s+(?:time|day)\s+(?:when|we))\b",
    re.IGNORECASE,
)
_ASKS_EN = re.compile(
    r"""^(?:(?:please|hey|hi|hello|ok|okay|and|so|but)\b[\s,!.:]*)*+
        (?:what|when|where|who|whom|whose|which|how|why
          |(?:do|did|does|have|has|had|is|are|was|were|can|could|will|would)\s+(?:you|i|we|my|the|it)
          |tell\s+me|remind\s+me|search|find|recall|look\s+up|show\s+me)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKS_ZH = re.compile(
    r"还记得|记不记得|我说过|我提过|我告诉过|说过什么|查一下|查查|搜一下|搜索|找一下|回忆"
    r"|什么|哪[里儿个些天年位]|谁|多少|几[个点月号岁次]|怎么|为什么|何时|是不是|有没有|[吗呢么][\s。！!]*$"
)
_BEFORE = re.compile(
    r"""^(?:(?:so|and|hey|hi|hello)\b[\s,]*)?(?:where\s+(?:were|did)\s+we(?:\s+(?:stop|leave\s+off))?
          |what\s+(?:did|have|were|was)\s+(?:we|i|you)\s+(?:just\s+)?
           (?:talk(?:ed|ing)?|spea?k(?:ing)?|spoken|discuss(?:ed|ing)?|say(?:ing)?|chat(?:ted|ting)?)
           (?:\s+about)?
           (?:\s+(?:last\s+time|before|earlier|previously|in\s+(?:the|our)\s+(?:last|previous)
                  \s+conversation))?)\s*[?.!]*$
        |^(?:我们|咱们)?(?:上次|之前|以前|刚才|刚刚|上一次|上回)?(?:我们|咱们)?都?(?:聊|说|谈|讨论)
         (?:了|过|到)?(?:些)?(?:什么|哪里|哪儿|哪些|哪)了?[\s？?。]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT = re.compile(
    r"""(?:(?:hey|hi|hello|so|ok|okay)\b[\s,!.]*)*+(?:(?:who|what)\s+are\s+you|what['’]?s\s+your\s+name
          |what\s+(?:can|do)\s+you\s+(?:do|understand)|how\s+(?:do|does)\s+(?:you|this)\s+work
          |what\s+is\s+this|are\s+you\s+(?:a\s+|an\s+)?(?:bot|robot|human|real|ai|offline)
          |help(?:\s+me)?)[\s?.!]*
        |(?:你好|请问|那|[\s,，])*+(?:你是谁|你是什么|你叫什么(?:名字)?|你(?:能|会|可以)(?:做|干)?(?:些|点)?(?:什么|啥)
          |你有(?:什么|哪些)(?:功能|用)|这是什么|怎么用|帮助|你是(?:机器人|真人|人|AI)吗)[\s？?。！!]*""",
    re.IGNORECASE | re.VERBOSE,
)
_SMALL_TALK = re.compile(
    r"""(?:(?:hey|hi|hello|so|and)\b[\s,!.]*)*+(?:how\s+are\s+you(?:\s+doing)?(?:\s+today)?|how\s+do\s+you\s+do
          |how['’]?s\s+it\s+going|what['’]?s\s+up|are\s+you\s+(?:there|ok|okay))[\s?.!]*
        |(?:(?:你好|嗨)[\s,，!！。]+)*+(?:你?(?:还|最近)?好[吗么]|(?:你|最近)+怎么样|你?在[吗么]|在不在|吃了[吗么])[\s？?。！!]*""",
    re.IGNORECASE | re.VERBOSE,
)
_ENDS_ASKING = re.compile(r"[?？]\s*[\"'”’)）]*\s*$|吗[\s。！!]*$")

# What an English question is made of beside the thing it asks about.
_FUNCTION_WORDS = frozenset(
    """a about again all am an and any anything are as at be been by can could did do does for from
    find had has have he her hers him his how i if in is it its know let like look lookup me mean
    mention mentioned mine my of on or our ours please recall remember remind said say search she
    show so some something talk talked tell that the their them there these they thing things think
    this those to told up us was we were what when where which who whom whose why will with would
    you your yours""".split()  # noqa: SIM905 - a paragraph reads better than 100 strings
)
# The same for Chinese, where they stand between the words without spaces.
_FUNCTION_ZH = re.compile(
    "你还记得|还记得|记不记得|记得|我有没有|有没有|是不是|能不能|可不可以|告诉过|告诉|说过|提过|提到|聊过"
    "|知道|关于|什么时候|什么|为什么|怎么样|怎么|多少|哪里|哪儿|哪个|哪些|哪天|哪年|哪位|何时|几个|几点|几月"
    "|几号|几岁|几次|查一下|查查|搜一下|搜索|找一下|回忆一下|回忆|请问|一下|之前|以前|上次|我们|你们|他们"
    "|她们|[我你您他她它的谁吗呢吧啊呀]"
)
_PUNCTUATION = re.compile(r"[^\w\s'’-]+")


def understand(text: str) -> Intent:
    """What a message asks for, or None when it is anything else."""
    text = text.strip()
    if _SMALL_TALK.fullmatch(text):
        return None
    return _of_itself(text) or _of_memory(text)


def _of_itself(text: str) -> Remind | Reminders | About | None:
    if (words := _reminder(text)) is not None:
        return Remind(words)
    if _lists_reminders(text):
        return Reminders()
    return About() if _ABOUT.fullmatch(text) else None


def _of_memory(text: str) -> Remember | Recall | None:
    asks = bool(_ENDS_ASKING.search(text))
    if keep := _KEEP_ZH.match(text):
        if not asks and not _asks_chinese(text):
            return Remember(_tidy(keep["what"]))
    elif keep := _KEEP_EN.match(text):
        what = _tidy(keep["what"])
        told = bool(keep["that"]) or not _QUESTION_WORD_AFTER.match(what)
        asks = asks or not told
        if told and (not asks or keep["polite"] or keep["that"]):
            return Remember(what.rstrip("?？ ") if keep["polite"] else what)
    if asks or _ASKS_EN.match(text) or _ASKS_ZH.search(text):
        return Recall(query_of(text), before=bool(_BEFORE.match(text)))
    return None


def query_of(text: str) -> str:
    """The content words of a question; the question itself when it has none."""
    spaced = _FUNCTION_ZH.sub(" ", _PUNCTUATION.sub(" ", text))
    words = [word for word in spaced.split() if word.lower() not in _FUNCTION_WORDS]
    return (" ".join(words) or text.strip())[:MAX_QUERY].strip()


def _asks_chinese(text: str) -> bool:
    """Whether "记得…" asks rather than tells: 记得我说过什么."""
    return bool(re.search(r"还记得|记不记得|说过什么|什么时候来着", text))


def _tidy(text: str) -> str:
    return text.strip().strip('“”"').strip()


# --- wishes to be reminded -----------------------------------------------------------------------

# Only what a message begins with counts, and a time before it only when nothing else stands there:
# "you remind me of someone", "he reminded me" and 谢谢你提醒我 ask for nothing.
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
_OF_WHAT = re.compile(r"(?:of|about)\b", re.IGNORECASE)
# 了吗 asks whether it was done, 提醒我的人 is somebody, 提醒我想起 a likeness.
_TOLD_ZH = re.compile(r"[了过的着]|想[起到]|.*(?:了|过)(?:吗|没有?|么)[\s？?。！!]*$", re.DOTALL)
_VAGUE_ZH = re.compile(r"什么|哪|谁|怎么|多少|几")
_POLITE_END = re.compile(
    r"""(?:(?:[,，。.!！]|\s)+(?:please|pls)|[,，。.!！]\s*(?:thanks?(?:\s+you)?|thx|谢谢你?|多谢|拜托了?)
        |[,，]?(?:好吗|好不好|可以吗|行吗|吗))[\s.!?。！？]*$|[\s?？]+$""",
    re.IGNORECASE | re.VERBOSE,
)
_EDGES = " \t\r\n,，:：、;；"


def _reminder(text: str) -> str | None:
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


def _lists_reminders(text: str) -> bool:
    """Whether somebody wants to see or cancel what they are to be reminded of."""
    return _LISTING.fullmatch(text.strip()) is not None


def _is_time(text: str) -> bool:
    found = time_phrases.find(text)
    return found is not None and not found.rest


def _is_question(rest: str, words: str) -> bool:
    """Whether it asks for something to be told now: "remind me what I said about Rome"."""
    if _WANTS_AN_ANSWER.match(rest):
        return True
    vague = _OF_WHAT.match(rest) or _VAGUE_ZH.search(rest)
    return bool(vague) and time_phrases.find(words) is None
