"""Finding what in a person's messages is worth keeping, without a model. Pure.

Nothing is written here, only picked: whole sentences, in the words they were said in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bot.clock import MONTH_NAME
from bot.context import extract, statements, wording
from bot.context.quoting import clipped

SHORT = 16  # characters of a Chinese sentence that say what somebody is about to do
BRIEF = 8  # characters of what has a day and says nothing besides

# More of the person's own, for facts alone: what they always do, decided, or have to do.
_OWN_MORE = re.compile(
    r"\b(?:I|we)(?:['’]ve|['’]ll| have| will| must| still)?\s+(?:always|never|usually|often|decided"
    r"|chosen|agreed|promised|quit|moved|switched|signed|been|going|go|hike|meet|take|sing"
    r"|play|have to"
    r"|teach|train|get|listen|return|run|work|live)\b|\b(?:I['’]m|we['’]re) (?:going|learning"
    r"|flying|moving"
    r"|paid|getting|training|seeing)\b|\blet['’]s go with\b",
    re.IGNORECASE,
)
_WHEN = re.compile(
    rf"\b(?:tomorrow|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|next (?:week|month|year)"
    rf"|between \d"
    rf"|at \d|weekdays?|the end of|{MONTH_NAME})\b"
    r"|(?:这|下|每|本|上)?(?:周|星期|礼拜)[一二三四五六日天]|明天|后天|下(?:周|个?月)|明年"
    r"|月底|年底|春节|[\d一二三四五六七八九十两]\s*[号点]"
    r"|\b(?:19|20)\d\d\b|(?:19|20)\d\d年",
    re.IGNORECASE,
)
_HAPPENS = re.compile(
    r"\b(?:I|we|my|our|comes?|leaves?|arrives?|starts?|begins?|opens?|is|moved|ends?|expires?)\b"
    r"|我|咱|家|孩子|爸|妈|考试|会|约|定|手术|检查|改|签|到|飞|要|去|办|开|起",
    re.IGNORECASE,
)
_KIN_ZH = re.compile(
    "爸|妈|爷|奶|外[公婆]|老[公婆]|女儿|儿子|孩子|姐|哥|弟|妹|升职|搬|换了|离婚|结婚|怀孕|生了|毕业"
)
_THEIRS = re.compile(
    r"\b(?:he|she|they)(?:['’]s|['’]re|\s(?:is|are|was|were|has|have))\s(?:an?|\d|from|called"
    r"|allergic|born|in|at)\b"
    r"|\b(?:he|she|they)\s(?:lives?|works?|loves?|hates?|plays?|turns?|prefers?|speaks?"
    r"|stud\w+|teach\w*)\b"
    r"|^[她他](?:们)?(?:在|是|叫|住|读|学|喜欢|不喜欢|今年|属|对)",
    re.IGNORECASE,
)
# Chinese leaves out whose it is where that is clear.
_OWN_MORE_ZH = re.compile(
    "[我咱]们?(?:家|的|俩|这边)?.{0,12}?(?:在|是|叫|读|学|用|姓|做|养|住|去|选|订|定|换|约|要"
    "|给|想|只|习惯"
    "|喜欢|不喜欢|不吃|对|商量|说好|决定|答应|属|生|毕业|工作|上班|看牙|预算|得)"
    "|(?:用的(?:是|数据库)|读的是|报的是|学过|住的?是|属[鼠牛虎兔龙蛇马羊猴鸡狗猪]|出生的?"
    "|预算.{0,4}(?:最多|不超过|是)|(?:最后|还是|都)选了|定了|商量好|说好了|决定|就定|改到"
    "|部署在|乳糖不耐受|过敏"
    "|升职|获奖|拿了.{1,8}奖)"
    "|(?:爸爸?|妈妈?|爷爷|奶奶|外公|外婆|老公|老婆|女儿|儿子|孩子|哥哥?|姐姐?|弟弟?|妹妹?|婆婆"
    "|公公|岳父|岳母"
    "|室友|老板|女朋友|男朋友|宝宝).{0,12}(?:在|是|叫|住|读|学|喜欢|不|手术|去|今年|过|有|病|定)"
)
# What is over in a moment, whoever's it is.
_PASSING_ZH = re.compile(
    "(?:^|[，,])[我咱]们?(?:已经|就|再|先|自己|现在|这就|马上|待会儿?|得)*(?:去"
    "|来)?(?P<verb>[想看试问查找改等躺睡吃写打走])"
    "(?:(?P=verb)|一下|一会|饭|了|完)|(?:^|[，,])[我咱]们?(?:先|这就|马上|待会儿?|回头)"
    "|^(?:我)?(?:知道|明白|懂|没事|就说)"
    "|真的?(?:离谱|好笑|烦|服了)|太(?:好笑|多|贵|吵)"
)
_PASSING = re.compile(
    r"\b(?:nearly|almost) \w+ed\b|\bI was (?:just |only )?(?:thinking|wondering|about to"
    r"|going to|in the (?:bath|shower|car|kitchen"
    r"|garden)|there|asleep|out|away|busy|looking)\b|\bin (?:a|one|two|five|ten"
    r"|\d+) (?:minutes?|seconds?|moment)\b"
    r"|\b(?:right now|at the moment|just now|for a (?:moment|minute|second|bit)|any minute"
    r"|as we speak)\b|\bhere\W*$"
    r"|\b(?:I|we) (?:just )?(?:tried|clicked|changed|restarted|rebooted|ran|typed|installed"
    r"|deleted|pasted|copied|removed|opened"
    r"|closed|pressed|uploaded|updated|took an?|forgot|spilled|dropped|ate|drank|watched|slept"
    r"|read|saw|heard|met a|found)\b"
    r"|\b(?:I|we) (?:have|['’]ve got|had) (?:a|an|another|one|two|some|no) (?:more |quick "
    r"|other )?(?:question|call|idea|problem|issue"
    r"|request|wish|minute|moment|guess|error|bug|clue|nap|walk|coffee|look|laugh)s?\b"
    r"|\b(?:error|exception|traceback|warning|fails?"
    r"|failed|crash\w*)\b|\bI (?:get|got|see|saw|keep getting) (?:an? |the |this )?(?:\d|error"
    r"|message|warning|nothing|result)"
    r"|\bwhat an?\b|^now I(?:['’]m| am) (?:on|in|at|lying|sitting)\b"
    r"|\bover my dead body\b|\byou\b(?=\W*$)",
    re.IGNORECASE,
)
_EVENT = re.compile(
    r"\b(?:interview|appointment|meeting|exam|test|surgery|flight|train|wedding|party|funeral"
    r"|concert|deadline"
    r"|vet|dentist|doctor|match|rehearsal|class|course|launch|reunion|viewing|delivery)\b"
    r"|面试|考试|会议|手术|航班|婚礼|聚会|体检|家长会|预约|答辩|演出|比赛|年会|合同",
    re.IGNORECASE,
)
_BARE_PAIR = re.compile(r"\W*\w+ (?:and|or) \w+\W*")  # "balloons and candles"
_TODAY = re.compile(
    r"\b(?:keeps? (?:on )?\w+ing|today|tonight|this (?:morning|afternoon|evening)|last night"
    r"|yesterday|again)\b"
    r"|今[天晚早]|昨[天晚]|刚刚?|又",
    re.IGNORECASE,
)
# What cannot be understood without what was said before it.
_LEANS = re.compile(
    r"^(?:that['’]?s?|it['’]?s?|this|these|those|he|she|they|him|her|there)\b|^(?:这|那|它|他"
    r"|她|是|也|还)",
    re.IGNORECASE,
)


def stated(messages: Iterable[str]) -> list[str]:
    """What a person's own messages state that will matter later, oldest first, each once.

    Questions, wishes to the bot, small talk, moods, jokes, what they quote, take back or want
    nobody to note, and secrets are not among them.
    """
    found: dict[frozenset[str], str] = {}
    for sentence in statements.read(list(messages)):
        if sentence.kind == "said" and (fact := _fact(sentence.text)):
            found[wording.words(fact)] = fact
    kept: list[tuple[frozenset[str], str]] = []
    for key, fact in found.items():
        kept = [(other, text) for other, text in kept if not wording.alike(other, key)]
        kept.append((key, fact))
    return [fact for _, fact in kept]


def unknown(facts_: Sequence[str], known: Iterable[str]) -> list[str]:
    """Those facts that none of the known texts says already, line by line."""
    there = [line for text in known for line in statements.sentences(text)]
    keys = [wording.words(line) for line in there]
    return [
        fact
        for fact in dict.fromkeys(facts_)
        if not any(wording.alike(wording.words(fact), key) for key in keys)
        and not any(wording.says(line, fact) for line in there)
    ]


def _fact(sentence: str) -> str:
    """A sentence as a fact, without what leads to it; empty when it is none."""
    bare = statements.bare(sentence)
    if not bare or leans(bare):
        return ""
    if not (
        is_lasting(bare) or (statements.is_announced(sentence) and len(wording.words(bare)) > 1)
    ):
        return ""
    return clipped(bare)


def _matters(sentence: str) -> bool:
    """True when a sentence about today has something in it that lasts."""
    return bool(
        extract.names(sentence)
        or extract.is_exact(sentence)
        or extract.WEIGHTY.search(sentence)
        or _WHEN.search(sentence)
        or extract.DECIDED.search(sentence)
        or _KIN_ZH.search(sentence)
    )


def _is_passing(sentence: str) -> bool:
    """True when what a sentence says is over in a moment, or is nothing."""
    if _BARE_PAIR.fullmatch(sentence) or _PASSING.search(sentence):
        return True
    if _TODAY.search(sentence) and not _matters(sentence):
        return True
    if extract.AM.search(sentence):
        return False
    is_short = len(sentence) < SHORT
    return len(wording.words(sentence)) < 2 or bool(is_short and _PASSING_ZH.search(sentence))


def leans(sentence: str) -> bool:
    """True when a sentence cannot be understood without what was said before it."""
    return _LEANS.match(sentence) is not None


def is_lasting(sentence: str) -> bool:
    """True when a statement is worth keeping: `_states`, and more that only the person says."""
    if _is_passing(sentence):
        return False
    if (
        extract.AM.search(sentence)
        or extract.states(sentence)
        or _OWN_MORE.search(sentence)
        or _THEIRS.search(sentence)
        or _OWN_MORE_ZH.search(sentence)
    ):
        return True
    dated = bool(_WHEN.search(sentence) or extract.is_exact(sentence))
    if dated and _EVENT.search(sentence):
        return True
    return bool(_WHEN.search(sentence) and _HAPPENS.search(sentence) and len(sentence) > BRIEF)
