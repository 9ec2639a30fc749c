"""What the offline model understands of a message: keep, remind, find. Pure.

Wishes are read in every language of `bot.context.phrases`; questions, whose own words are looked
for, in English and Chinese.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from bot.context import sentences, wishes
from bot.context.phrases import folded, phrases

MAX_QUERY = 500  # characters

Kind = Literal["", "remember", "find", "notes", "before", "remind", "reminders", "about"]
"""What a message asks for; `find` looks for something, `notes` is all that is noted of the person,
`before` the end of the conversation before, `about` what the bot is. Empty for everything else."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a message asks for, and its words.

    They are what to keep, each thing apart (none when that was not said), what to look for, or the
    time and the words of a reminder, as `due_time` reads them.
    """

    kind: Kind
    words: tuple[str, ...] = ()


_ASKS = re.compile(
    r"""(?:what|when|where|who|whom|whose|which|how|why
          |(?:do|did|does|have|has|had|is|are|was|were|can|could|will|would)\s+(?:you|i|we|my|the|it)
          |(?:tell|remind)\s+me|search|find|recall|look\s+up|show\s+(?:me|my)
          |remember\s+(?:what|when|where|who|which|how|why))\b
        |[^\n]*(?:还记得|记不记得|我说过|我提过|我告诉过|查一下|查查|搜一下|搜索|找一下|回忆|什么|谁
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
    r"(?!.*\b(?:say|said|about|set|need|want|make)\b)[^\n]{0,40}\breminders?\b[^\n]{0,30}"
    r"|(?!.*[说谢])[^\n]{0,16}提醒[吗呢吧\s？?。！]*"
)
_POLITE_END = re.compile(
    r"""(?:(?:[,，。.!！]|\s)+(?:please|pls)|[,，。.!！]\s*(?:thanks?(?:\s+you)?|thx|谢谢你?|多谢|拜托了?)
        |[,，]?(?:好吗|好不好|可以吗|行吗|吗))[\s.!?。！？]*$""",
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
    wanted = wishes.read(text)
    if wanted.reminder is not None:
        return Intent("remind", (_POLITE_END.sub("", wanted.reminder),))
    if wanted.wishes:
        return Intent("remember", tuple(wish.words for wish in wanted.wishes if wish.words))
    small = folded(text).strip()
    asked = small[phrases().opened(small) :]
    if _REMINDERS.fullmatch(small):
        return Intent("reminders")
    if _ABOUT.fullmatch(asked):
        return Intent("about")
    return _question(text) if sentences.is_question(text) or _ASKS.match(asked) else Intent("")


def _question(text: str) -> Intent:
    if query := query_of(text):
        return Intent("find", (query,))
    if _OF_BEFORE.search(text):
        return Intent("before")
    return Intent("notes" if _OF_ME.search(text) else "")


def query_of(text: str) -> str:
    """The content words of a question; empty when it has none."""
    spaced = _FUNCTION_ZH.sub(" ", _PUNCTUATION.sub(" ", text))
    words = (_CONTRACTED.sub("", word) for word in spaced.split())
    content = [word for word in words if word.lower() not in _FUNCTION_WORDS]
    is_about_something = any(not _FUNCTION_CHARACTERS.issuperset(word) for word in content)
    return " ".join(content)[:MAX_QUERY].strip() if is_about_something else ""
