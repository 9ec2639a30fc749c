"""Condensing what was said without a model. Pure.

Nothing is written here, only picked: whole sentences, in the words they were said in. The offline
model works with this, and so do tests that need the same summary every time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bot.clock import MONTH_NAME, month_of
from bot.context import statements, tokens, wording
from bot.context.quoting import Said, Who, clipped

_DATE = re.compile(
    rf"\b(?:(?P<iso>\d{{4}}-\d{{1,2}}-\d{{1,2}})"
    rf"|(?P<day1>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month1>{MONTH_NAME})\.?"
    rf"|(?P<month2>{MONTH_NAME})\.?\s+(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?)\b"
    r"|(?P<month3>\d{1,2})\s*月\s*(?P<day3>\d{1,2})\s*[日号]",
    re.IGNORECASE,
)
LINK = re.compile(r"(?:https?://|www\.)[^\s<>\"'”）)\]]+|\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
CODE = re.compile(r"\b(?=[A-Za-z0-9-]*\d)(?=[A-Za-z0-9-]*[A-Z])[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\b")
NUMBER = re.compile(
    r"(?<![\w.,:])[€$£¥#]?\d+(?:[.,:/-]\d+)*\s?(?:%|°C?|€|(?:km|kg|cm|mm|GB|MB|am|pm)\b"
    r"|[元块个只条号岁年米斤次万页楼天]|点半?)?(?![\w])"
    r"|[€$£¥#]?\d+(?:[.,:/-]\d+)*[元块个只条号岁年米斤次万页楼天点]"
)
_UPPER = "A-ZÀ-ÖØ-Þ"
_LETTER = r"[^\W\d_]"
_WORD = rf"[{_UPPER}](?:{_LETTER}|[’'-](?={_LETTER}))+"
_NAME = re.compile(rf"\b{_WORD}(?:[ -](?:(?:of|de|van|von)\s)?{_WORD})*\b")
_NAME_FIRST = re.compile(
    rf"^[{_UPPER}]\w+(?=(?:['’]s|\s+(?:is|was|has|had|wants|likes|loves|lives|works|said|will"
    rf"|called"
    r"|moved|needs|and|plays|studies|teaches|speaks|owns|drives|hates|prefers|comes|goes|gets|takes"
    r"|starts|turns|keeps|knows|collects|sings|cooks|reads|writes|runs)\b))"
)
_NO_NAMES = frozenset(
    """I I'm I’m I've I’ve I'd I’d I'll I’ll OK Ok The This That These Those It He She We They You
    My Dr Mr Mrs Ms Prof
    Our Your His Her Their There Here What When Where Who Why How Which And But So If As At In On
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June
    July August September October November December Everything Nothing Something Someone Everyone
    Today Tomorrow Yesterday Dinner Lunch Breakfast Work Life Also Then Now""".split()  # noqa: SIM905
)
_CJK = "\u4e00-\u9fff"
_NAME_CJK = re.compile(
    rf"(?:[叫姓]|名字是)(?P<named>[{_CJK}]{{1,4}})|[《“「](?P<titled>[^》”」]{{1,20}})[》”」]"
    rf"|(?P<place>(?:(?![日号去在到从住来的我你他她是了和与往])[{_CJK}]){{1,5}}(?:大学|公司"
    rf"|医院|酒店|机场|[市省区县路街站镇]))"
    rf"|(?P<person>[{_CJK}]{{1,2}}(?:老师|先生|女士|医生|经理|阿姨|叔叔))"
)
_NOT_NAMED = re.compile("[做什么我你他她的了是在]")

AM = re.compile(
    r"\b(?:I['’]?m|I am|I was|we['’]?re|we are)\s+(?!fine|good|ok|okay|sorry|sure|not sure|glad"
    r"|happy|tired|back|here|done|ready|just|so|afraid|curious|wondering|thinking|trying|looking"
    r"|going to bed|hungry|bored|asking|kidding|on it)\w",
    re.IGNORECASE,
)
_OWN = re.compile(
    r"\b(?:I|we)\s+(?:[a-z]+ly\s+|always\s+|never\s+|just\s+|also\s+|now\s+|once\s+)?(?:live"
    r"|lived|work|worked|was born|were born|moved|own|drive|speak|stud(?:y|ied)|like|love|prefer"
    r"|hate|dislike|avoid|can['’]?t (?:stand|eat|have)|cannot (?:stand|eat|have)"
    r"|don['’]?t (?:eat|drink|like|work|drive|have)|(?:do not|never) (?:eat|drink|like|have)|eat"
    r"|drink|play|plan|planned|decided|agreed|chose|settled|bought|booked|ordered|signed|married"
    r"|adopted|quit|started|finished|grew up|collect|use|used to|belong|teach|run|practi[sc]e"
    r"|take|pay|keep|wear|need to|have (?:a|an|two|three|four|no|to|\d)|have (?:decided|booked"
    r"|moved|bought)|celebrate|go to|get up|wake up|promised)\b|\b(?:my|our)\s+\w+|\bcall me\b"
    r"|\b(?:allergic|allergy|intolerant|vegetarian|vegan|diabetic)\b",
    re.IGNORECASE,
)
_OWN_ZH = re.compile(
    "我们?(?:叫|姓|是|住|在|有|没有|喜欢|不喜欢|最喜欢|讨厌|爱|不爱|怕|对|不吃|不能|不喝|每"
    "|打算|决定"
    "|计划|准备|搬|买|订|养|出生|结婚|换|学|会|从|属|今年|已经|约|答应|签|报|从来|一直|下|明"
    "|后天|想学)"
    "|[我咱]们?(?:的|家)?(?:女儿|儿子|孩子|老婆|妻子|太太|丈夫|老公|妈妈?|爸爸?|父亲|母亲|奶奶"
    "|爷爷|外婆"
    "|哥哥?|姐姐?|弟弟?|妹妹?|朋友|同事|老板|医生|老师|房东|邻居|室友|[狗猫车]|生日|电话|手机"
    "|地址|航班)"
)
WEIGHTY = re.compile(
    r"\b(?:birthday|anniversary|wedding|appointment|deadline|due|flight|address|phone|meeting"
    r"|passport|insurance|doctor|surgery|medication|rent|salary|budget|prefers?|favou?rite"
    r"|hates?|loves?|likes?|called|named|born|lives?|works?|allergic|must|need|always|never)\b"
    "|生日|纪念日|婚礼|预约|截止|航班|地址|电话|会议|护照|保险|医生|手术|药|房租|工资|预算"
    "|过敏|喜欢|最爱"
    "|讨厌|住在|叫做|必须|一定要",
    re.IGNORECASE,
)
_WHERE = re.compile(
    r"\b(?:is|are|stands?|lies?|hangs?|lives?|kept)\s+(?:\w+\s+)?(?:in|on|under|behind|at"
    r"|above|below"
    r"|beside|next to|inside|between)\s+(?:the|my|our|a|an)\b|放在|就在|在.{1,8}(?:后面|前面"
    r"|旁边|里面?|上面|下面|底下|抽屉|柜)",
    re.IGNORECASE,
)
DECIDED = re.compile(
    r"\b(?:decided|decision|agreed|settled on|chose|let['’]?s|we['’]?ll|going with|conclusion"
    r"|todo|to do|remember to|don['’]?t forget|remind|next step|by (?:mon|tues|wednes|thurs|fri"
    r"|satur|sun)day|must|has to|have to|needs? to|promised?|constraint|blocked|instead of)\b"
    "|决定|定了|说好|商量好|同意|待办|别忘|记得|提醒|下一步|必须|需要|要在|改成|改到|答应",
    re.IGNORECASE,
)
_WORTH: Final = {
    "summary": 2.5,
    "memory": 2.0,
    "person": 1.0,
    "other": 0.5,
    "failure": 0.5,
    "result": 0.5,
    "assistant": -1.0,
    "call": -4.0,
    "note": -4.0,
}
_LABELS: Final = {
    "other": "(passed on) ",
    "assistant": "(assistant) ",
    "result": "(tool) ",
    "failure": "(tool failed) ",
}


@dataclass(frozen=True, slots=True)
class _Candidate:
    place: int
    text: str
    score: float
    words: frozenset[str]  # without numbers where only the person's own tell two sentences apart


def dates(text: str) -> dict[tuple[int, int], str]:
    """The days a text names, as (month, day), each as it was written."""
    found: dict[tuple[int, int], str] = {}
    for match in _DATE.finditer(text):
        if match["iso"]:
            _, month, day = map(int, match["iso"].split("-"))
        elif match["month3"]:
            month, day = int(match["month3"]), int(match["day3"])
        else:
            name: str = match["month1"] or match["month2"]
            month, day = month_of(name), int(match["day1"] or match["day2"])
        found.setdefault((month, day), match.group())
    return found


def without_dates(text: str) -> str:
    """The text with a gap where a day is named, so that its numbers are not counted again."""
    return _DATE.sub(" ", text)


def names(sentence: str) -> list[str]:
    """What in a sentence looks like a name: capitals inside it, or what Chinese marks as one."""
    first = _NAME_FIRST.match(sentence)
    found = [first.group()] if first else []
    # A sentence begins with a capital, whatever its first word is.
    found += [
        match.group() if match.start() else match.group().partition(" ")[2]
        for match in _NAME.finditer(sentence)
    ]
    found += [
        name
        for match in _NAME_CJK.finditer(sentence)
        if (name := next(filter(None, match.groups()), "")) and not _NOT_NAMED.search(name)
    ]
    bare = (name.removesuffix("'s").removesuffix("’s") for name in found)
    return [name for name in bare if len(name) > 1 and not _is_common(name)]


def summarise(said: Sequence[Said], limit: int) -> str:
    """The sentences that matter most, as a list of at most about `limit` tokens, in their order.

    What repeats is said once, in its latest words; of what was summarised before, as much stays as
    its weight allows.
    """
    candidates = list(_candidates(said))
    chosen: list[_Candidate] = []
    room = limit
    for candidate in sorted(candidates, key=lambda each: (-each.score, -each.place)):
        cost = tokens.estimate(candidate.text) + 1
        if cost > room or (chosen and candidate.score <= 0):
            continue
        if any(wording.alike(candidate.words, other.words) for other in chosen):
            continue
        chosen.append(candidate)
        room -= cost
    chosen.sort(key=lambda each: each.place)
    return "\n".join(f"- {each.text}" for each in chosen)


def states(sentence: str) -> bool:
    """True when a statement is about the person, or about a matter with names, days or numbers."""
    about = len(wording.words(sentence))
    if about and AM.search(sentence):
        return True
    if about < 2:
        return False
    if _OWN.search(sentence) or _OWN_ZH.search(sentence):
        return True
    named, counted = bool(names(sentence)), is_exact(sentence)
    weighty = bool(WEIGHTY.search(sentence) or DECIDED.search(sentence))
    placed = is_placed(sentence)
    person = bool(_NAME_FIRST.match(sentence)) and named
    return placed or person or (named and counted) or (weighty and (named or counted))


def is_placed(sentence: str) -> bool:
    """True when a sentence says where something is kept."""
    return len(wording.words(sentence)) > 3 and bool(_WHERE.search(sentence))


def _candidates(said: Sequence[Said]) -> Iterator[_Candidate]:
    place, whole = 0, max(1, len(said))
    answered = max((n for n, each in enumerate(said) if each.who == "assistant"), default=-1)
    for number, each in enumerate(said):
        if _WORTH[each.who] < -2:
            continue
        is_machine = each.who in {"other", "assistant", "result", "failure"}
        # A result begins with the tool's name.
        said_text = each.text.partition(": ")[2] if each.who == "result" else each.text
        recent = 0.8 * number / whole
        for sentence in statements.sentences(said_text):
            place += 1
            bare = sentence if each.who in {"summary", "memory"} else statements.unthanked(sentence)
            said_words = wording.words(bare)
            if not said_words or (each.who == "summary" and bare.endswith((":", "："))):
                continue  # nothing, or a heading
            score = _WORTH[each.who] + recent + _weight(bare, each.who)
            if (
                statements.is_question(bare)
                and each.who in {"person", "assistant"}
                and number >= answered
            ):
                score += 3.0  # nobody has answered it yet
            text = _LABELS.get(each.who, "") + clipped(bare)
            key = (
                frozenset(w for w in said_words if not w.isdecimal()) if is_machine else said_words
            )
            yield _Candidate(place, text, score, key or said_words)


def _weight(sentence: str, who: Who) -> float:
    """How much a sentence says, by what is in it; numbers of the assistant's own say less."""
    about = any(each.search(sentence) for each in (AM, _OWN, _OWN_ZH))
    asks = statements.is_question(sentence)
    stated = who == "person" and not asks and not statements.is_supposed(sentence)
    weight = (0.5 if who == "assistant" else 2.0) * is_exact(sentence)
    weight += 1.5 * bool(names(sentence)) + 1.5 * about + 1.0 * bool(WEIGHTY.search(sentence))
    weight += 2.0 * bool(DECIDED.search(sentence)) + 1.0 * (stated and states(sentence))
    weight -= 2.0 * asks + 1.0 * bool(
        statements.is_supposed(sentence) or statements.is_command(sentence)
    )
    return weight - 2.0 * (len(wording.words(sentence)) < 2)


def is_exact(sentence: str) -> bool:
    """True when a sentence names a day, an address, a code or a number."""
    patterns = (_DATE, LINK, CODE, NUMBER)
    return any(pattern.search(sentence) for pattern in patterns)


def _is_common(name: str) -> bool:
    parts = re.split(r"[ ]", name)
    return all(part in _NO_NAMES for part in parts)
