"""What kind of thing each sentence of a person's messages is: said, asked, supposed, quoted. Pure.

Only what is plainly said counts as a fact. So what is taken back, meant as a joke, pasted, or not
to be written down is told apart from it, and with it what it refers to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bot.context import corrections, moods
from bot.context.secrets import holds_secret

LONGEST_MESSAGE = 4_000  # characters; what is longer was pasted, not said
QUOTED = 20  # characters; longer words in quotation marks are somebody else's
QUOTED_ZH = 8
TAKEN_BACK = 8  # sentences that are looked back over
LONGEST_TAGGED = 400  # characters of a sentence that may end in "you know"
MAX_CLAUSES = 6
PASTED = 150  # characters behind an introduction that make what follows a paste

Kind = Literal[
    "said", "asked", "wished", "supposed", "joked", "quoted", "unwanted", "corrected", "empty",
    "mood", "secret",
]  # fmt: skip
"""`asked` is a question that states nothing, `wished` what the bot is asked for."""

_END = re.compile(
    r"(?<=[.!?…])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bSt\.)(?<!\bNo\.)(?<!\bProf\.)"
    r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\b[A-Z]\.)\s+|(?<=[。！？])|\n+"
)
_LEAD = re.compile(r"^(?:[-*+•]\s+|\d{1,2}[.)]\s+)")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SPAN = re.compile(
    rf"[“\"]([^“”\"\n]{{{QUOTED},}})[”\"]|[「『“]([^「『“」』”\n]{{{QUOTED_ZH},}})[」』”]"
)
_SMALL_TALK = re.compile(
    r"^(?:(?:hi|hello|hey|thanks?|thank you|thx|ok(?:ay)?|sure|great|nice|cool|perfect|right|good"
    r"|good (?:morning|night|evening|idea|point)|bye|lol|haha+|yes|yeah|no|yep|nope|wow|got it"
    r"|hm+|oh"
    r"|sounds good|makes sense|you['’]re welcome|no problem|interesting|i see|well|pity|fine"
    r"|exactly"
    r"|true|back|what a week|anyway)\b[\s,.!;:]*)++(?P<rest>.*)$"
    r"|^(?:(?:你好|您好|谢谢你?|多谢|好的?|嗯+|哈+|行|可以了?|没问题|再见|晚安|早上?好?|不错"
    r"|太好了|是的?"
    r"|对+了?|没事了?|知道了|明白了?|收到|辛苦了?|哦+|算了|不用|放心|唉+|哎+"
    r"|先不用)[\s，。！~,]+|[嗯哦唉哎呃]+)++(?P<rest_zh>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_ONLY_TALK = re.compile(
    r"(?:你好|您好|谢谢你?|多谢|好的?|嗯+|哈+|行吧?|可以了?|没问题|再见|晚安|早上?好?呀?|不错"
    r"|太好了|是的?|是啊"
    r"|对啊?|知道了|明白了?|收到|辛苦啦?了?|哦+|拜拜|没有了|没事了?|在吗|你呢|[\s，。！~,!.?？])*"
)
_SUPPOSED = re.compile(
    r"^(?:if|suppose|supposing|imagine|say|what if|let['’]?s say|pretend|i (?:think|guess|mean"
    r"|see|know"
    r"|wonder|suppose|feel|hope|don['’]?t (?:know|think|mind|get|understand|remember)|wish"
    r"|was (?:just )?(?:wondering|thinking)|might|may|could)|maybe|perhaps|let me|or)\b"
    r"|^(?:如果|假如|要是|假设|也许|可能|万一|我?也?(?:觉得|不知道|猜|在想|可能|希望|好像"
    r"|想(?:做|问|吃|喝|看|知道|听|找|买)|在?(?:考虑|犹豫|纠结)))|要不要"
    r"|^(?:i['’]?m|we['’]?re) (?:still )?(?:thinking (?:of|about)|considering|not sure)\b"
    r"|\bI['’]d\s+(?!like|love|prefer|rather)|\bwould (?:have|be)\b|\bsome ?day\b|\bone day\b"
    r"|要是.{1,20}就好了",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"^(?:(?:and|so|but|ok|okay|hey|please|also|then|now)[\s,]+)*+(?:what|when|where|who|whose"
    r"|which|how|why|any (?:tips|ideas)|(?:can|could|would|will|should|do|does|did|is|are|was"
    r"|were|have|has"
    r"|may|shall)\s+(?:you|i|we|it|the|this|that|there|my|he|she|they))\b",
    re.IGNORECASE,
)
_COMMANDS = re.compile(
    r"^/|^(?:(?:and|so|ok|okay|hey|then|now)[\s,]+)*+(?:please\s+)?(?:tell|show|give|write|explain"
    r"|find|search|look|list|make|help|translate|summari[sz]e|recommend|suggest|fix|check"
    r"|draft|print"
    r"|compare|try|add|change|remove|open|stop|go on|continue|shorten|rewrite|describe|calculate"
    r"|convert|recall|delete|ignore|here['’]?s|here is|here are)\b"
    r"|^(?:I|we)(?:['’]d| would)? (?:want|need|like) (?:you|it|this|that|help|some help"
    r"|something|an? (?:quick|short|new))\b"
    r"|^(?:请|帮我|给我|告诉我|写|翻译|解释|查|搜|找|列|推荐|总结|改写|介绍|打开|看看|润色"
    r"|别信|不用管)",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"[?？]\s*[\"'”’）)]*\s*$|[吗呢么][\s。！!]*$|,\s*(?:isn['’]?t it|right|you know|remember)\W*$"
    r"|(?:怎么|咋|为什么|多少|什么|啥|哪|谁|如何|该不该|是不是|能不能|有没有|可不可以)[^，。]{0,12}$",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"^(?:>|“|\"|「)|^[^\s:：]{1,20}(?:\s[^\s:：]{1,20})?\s(?:said|wrote|writes|says|texted)\s*:"
    r"|(?:说|写|讲|问|发|回复?)(?:着|的是|道|了|的)?\s*[:：]",
    re.IGNORECASE,
)
_PRESENTS = re.compile(
    r"\b(?:here(?:['’]s| is| are)|this is|look at|proofread|polish|translate|summari[sz]e"
    r"|check)\b[^.:\n]{0,60}"
    r"\b(?:text|chapter|mail|e-?mail|letter|draft|article|story|page|note|post|poem|paragraph"
    r"|essay|novel"
    r"|speech|transcript|log|file|message)\b"
    r"|(?:润色|翻译|改写|总结|检查|校对|看看|修改)[^。:：\n]{0,16}[:：]",
    re.IGNORECASE,
)
_CODE_LINE = re.compile(
    r"^\s*(?:[\w.\[\]\"']+\s*[-+*/]?=(?!=)|(?:for|while|if|def|class|import|from|return|print"
    r"|let|const|var"
    r"|function|public|async)\b.*[:;({]|SELECT\b.*\bFROM\b|INSERT INTO|#include"
    r"|[{}\[\]();]+\s*$|\$ \w)"
)
_ANNOUNCES = re.compile(
    r"^(?:please\s+|(?:can|could|would) you (?:please )?)*+(?:remember|remind me|note(?: to self)?"
    r"|keep in mind|save|write down|don['’]?t forget|do not forget)"
    r"(?: (?:this|it|that)(?: (?:for me|please))*[:,]|\s+that|:|,)\s*"
    r"|^(?:but\s+)?you can note that\s+|^(?:fyi|by the way|btw|also|just so you know"
    r"|for the record|one more thing)[\s,:—-]+"
    r"|^(?:你?请?(?:帮我)?(?:记住|记得|记一下|记下|存一下|别忘了?)|对了|顺便说?一?[下句]?|另外|重要的是)"
    r"[\s，：:,]*",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"^(?:oh|oops|sorry|argh|wait|no wait|hold on|since|because|as you know"
    r"|seriously though|anyway|actually|so|but|and)[\s,:—-]+"
    r"|^(?:说正经的|其实|那|但是?|不过|(?:说|打|记|写|弄|搞|看|听)错了)[\s，：:,]*",
    re.IGNORECASE,
)
_WISHES_TO_KEEP = re.compile(
    r"^(?:please\s+|can you\s+|could you\s+|and\s+|also\s+)*+(?:remember|memori[sz]e|note"
    r"|keep (?:in mind|this|that|it|these)|don['’]?t forget"
    r"|do not forget|save|write down|take a note)\b|请?(?:帮我)?(?:记住|记一下|记下|记得|牢记"
    r"|别忘|存一下|保存|留着|收好)",
    re.IGNORECASE,
)
_TAG = re.compile(
    r"[，,]?\s*(?:\b(?:as )?you know|\bremember|\bright|isn['’]?t it|你(?:也|应该)?(?:知道"
    r"|记得)的?吧?|对吧"
    r"|(?:已经)?(?:告诉|跟你说|和你说)过你?了?)[\s。.!！?？]*$",
    re.IGNORECASE,
)
_DAY_TOLD = re.compile(
    r"\bwhat a (?:day|week|night|morning|year)\b|\btell you about (?:today|my (?:day|week)"
    r"|this week)\b"
    r"|\btoday was\b|(?:今天|这一?周|这几天|昨天)(?:真|可|过得)|够呛",
    re.IGNORECASE,
)
_UNWANTED = re.compile(
    r"(?<!\bi )(?:\bdon['’]?t|\bdo not|\bnever|\bplease not)\s+(?:ever\s+)?(?:write|note|save"
    r"|store|keep|remember|record)\s+"
    r"(?:this|that|it|any of (?:this|that))\b"
    r"|(?<!n't )(?<!n’t )(?<!not )(?<!never )\bforget\s+(?:that|this|it|what i)\b"
    r"|\b(?:between us|off the record|not for the record|keep (?:this|it) secret)\b"
    r"|(?:别|不要|不用|勿)(?:再)?(?:记|存|保存|写)(?:下来?|录|住|进去?)?(?![^，。]{0,2}忘)"
    r"|保密|忘掉|当我没说",
    re.IGNORECASE,
)
_JOKED = re.compile(
    r"\b(?:lol|lmao|rofl|xD)\b|[😂🤣]|哈{3,}|开(?:个)?玩笑|逗你|\b(?:just |only )?(?:kidding"
    r"|joking)\b|:D(?:\s|$)",
    re.IGNORECASE,
)
_JOKE_FIRST = re.compile(
    r"(?:just |only |i['’]?m )*+(?:kidding|joking|jk)[\s,，]+|(?:开(?:个)?玩笑的?"
    r"|逗你的?)[哈啦]*[，,]\s*",
    re.IGNORECASE,
)
_JOKED_BEFORE = re.compile(
    r"\b(?:just |only |i['’]?m )?(?:kidding|joking)\b|^\s*jk\b"
    r"|^\s*(?:lol|haha+)[\s,.]+(?:no|nah|nope)\b"
    r"|\bseriously though\b|\bnot really\b"
    r"|开(?:个)?玩笑|逗你|说正经|做梦|随便问|随便说",
    re.IGNORECASE,
)
_HOLLOW = re.compile(
    r"^(?:I |we )?(?:just |really |do )?(?:love|like|enjoy)(?:d|s)? (?:it|this|that|them|you"
    r"|your|the (?:first|second|last|answers?|idea"
    r"|poem|result|new|one))\b|"
    r"\b(?:the )?(?:user|person|assistant|bot|conversation)\b.{0,30}\b(?:said|says|asked|asks"
    r"|talked|chat(?:ted)?|thank\w*"
    r"|helped|answered|replied|greeted|wished|wanted to know|wants? to know|nothing|agreed"
    r"|got it)\b"
    r"|^(?:asked|wanted|wants) (?:for|to (?:know|convert|hear|see)|about|how|what|whether"
    r"|which)\b|^said\b"
    r"|^nothing\b|^(?:had )?a? ?nice (?:chat|conversation)|^conversation (?:on|of|with"
    r"|about)\b|\bwishes? a good\b"
    r"|用户.{0,6}(?:说|问|感谢|谢谢|同意|询问|聊|表示|没有别的)|助手|的对话$|聊了|没有更多|谢谢",
    re.IGNORECASE,
)
_MAY_TAKE_BACK = frozenset({"said", "empty", "wished"})
_IS_CUT = re.compile(r"[:：]\W*$|\s…(?:\s|$)")  # what followed is quoted, or a list
_HAS_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W_]")
_COMMA = re.compile(r"[，,；;]\s*")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or a part of one, what kind of thing it is, and of which message."""

    text: str
    kind: Kind
    message: int


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, without bullets, code blocks and heading marks."""
    pieces = (piece.strip() for piece in _END.split(_FENCE.sub("\n", text)))
    return [bare for piece in pieces if (bare := _LEAD.sub("", piece).strip("# \t"))]


def is_question(sentence: str) -> bool:
    """True when a sentence asks."""
    return bool(_QUESTION.search(sentence) or _ASKS.match(sentence))


def only_asks(text: str) -> bool:
    """True when a text is nothing but questions."""
    every = sentences(text)
    return bool(every) and all(map(is_question, every))


def is_unwanted(text: str) -> bool:
    """True when a text asks not to be written down."""
    return _UNWANTED.search(text) is not None


def is_supposed(sentence: str) -> bool:
    """True when a sentence only supposes, or says what somebody thinks or feels about a thing."""
    return bool(_SUPPOSED.search(sentence))


def is_command(sentence: str) -> bool:
    """True when a sentence tells the bot to do something."""
    return bool(_COMMANDS.match(sentence))


def unthanked(sentence: str) -> str:
    """A sentence without the courtesies it begins with."""
    if _ONLY_TALK.fullmatch(sentence):
        return ""
    found = _SMALL_TALK.match(sentence)
    return sentence if found is None else (found["rest"] or found["rest_zh"] or "").strip()


def untagged(sentence: str) -> str:
    """A sentence without what only turns to the other: "you know", 对吧."""
    return _TAG.sub("", sentence) if len(sentence) < LONGEST_TAGGED else sentence


def bare(sentence: str) -> str:
    """A sentence without courtesies and without what leads to what it says."""
    return _bare(sentence)[0]


def is_announced(sentence: str) -> bool:
    """True when a sentence begins by saying that it matters: "by the way", 对了."""
    return _bare(sentence)[1]


def _bare(sentence: str) -> tuple[str, bool]:
    announced = False
    while True:
        shorter = unthanked(sentence)
        if found := _ANNOUNCES.match(shorter):
            announced = True
        else:
            found = _LEADS.match(shorter)
        if found:
            shorter = shorter[found.end() :].strip()
        if shorter == sentence:
            return sentence, announced
        sentence = shorter


def asks_to_keep(message: str) -> bool:
    """True when a message asks that something be remembered."""
    return bool(_WISHES_TO_KEEP.search(message[:LONGEST_MESSAGE]))


def kind_of(sentence: str) -> Kind:
    """What kind of thing a sentence is by itself."""
    if holds_secret(sentence):
        return "secret"
    core = bare(sentence)
    if not _WORD.search(core):
        return "empty"
    for is_one, kind in _BY_ITSELF:
        if is_one(core):
            return kind
    if _JOKED.search(sentence):
        return "joked"
    return "said"


_BY_ITSELF: tuple[tuple[Callable[[str], object], Kind], ...] = (
    (_SAYS.search, "quoted"),
    (_IS_CUT.search, "quoted"),
    (is_supposed, "supposed"),
    (is_question, "asked"),
    (is_command, "wished"),
    (_HOLLOW.search, "empty"),
    (moods.is_mood, "mood"),
)


def read(messages: Sequence[str]) -> list[Sentence]:
    """The sentences of somebody's messages, oldest first, each with what kind of thing it is."""
    found: list[Sentence] = []
    for number, message in enumerate(messages):
        own = list(_of_message(message, number))
        if _DAY_TOLD.search(message):  # of a day's events only what has a date or a number stays
            own = [_as_event(each) for each in own]
        if any(_UNWANTED.search(each.text) for each in own):
            is_alone = all(each.kind == "empty" or _only_unwanted(each.text) for each in own)
            _mark(own, number, "unwanted")
            if is_alone:
                _mark(found, number - 1, "unwanted")
        if any(_JOKED_BEFORE.search(each.text) for each in own[:1]):
            _mark(found, number - 1, "joked")
        _correct(found, own)
        found += own
    return found


def _as_event(sentence: Sentence) -> Sentence:
    is_passing = sentence.kind == "said" and not _HAS_DIGIT.search(sentence.text)
    return replace(sentence, kind="mood") if is_passing else sentence


def _only_unwanted(sentence: str) -> bool:
    """Whether a sentence says nothing but that something is not to be written down."""
    found = _UNWANTED.search(sentence)
    return found is not None and 2 * len(found.group()) >= len(sentence)


def _mark(found: list[Sentence], message: int, kind: Kind) -> None:
    """Everything said in a message is of this kind after all."""
    for at in range(len(found) - 1, -1, -1):
        if found[at].message < message:
            return
        if found[at].message == message:
            found[at] = replace(found[at], kind=kind)


def _correct(before: list[Sentence], own: list[Sentence]) -> None:
    """Mark what a message takes back: what it says anew, calls off or does not do after all."""
    corrects = any(corrections.corrects(each.text) for each in own)
    for number, later in enumerate(own):
        if later.kind not in _MAY_TAKE_BACK:
            continue
        for earlier, place in ((before, len(before)), (own, number)):
            for at in range(max(0, place - TAKEN_BACK), place):
                one = earlier[at]
                says_anew = later.kind == "said" and corrections.restates(later.text, one.text)
                is_undone = corrections.undoes(later.text, one.text)
                if one.kind == "said" and ((corrects and says_anew) or is_undone):
                    earlier[at] = replace(one, kind="corrected")
                    if is_undone and not corrections.puts_instead(later.text):
                        own[number] = replace(later, kind="corrected")
    if before and own:
        _take_back_last(before, own)


def _take_back_last(before: list[Sentence], own: list[Sentence]) -> None:
    """Mark the message before one that begins with "hold on", and its plans before "scrap it"."""
    mends = corrections.mends(own[0].text)
    if mends and not any(corrections.restates(own[0].text, each.text) for each in before):
        own[0] = replace(own[0], kind="corrected")  # "Friday at 4" is nothing by itself
    calls_off = any(corrections.calls_off(each.text) for each in own)
    for at, one in enumerate(before):
        is_last = one.message == before[-1].message and one.kind == "said"
        if is_last and (mends or (calls_off and corrections.is_plan(one.text))):
            before[at] = replace(one, kind="corrected")


def _of_message(message: str, number: int) -> Iterator[Sentence]:
    """The sentences of one message; what was pasted is a quotation."""
    if len(message) > LONGEST_MESSAGE:
        return
    text = _FENCE.sub("\n", message)
    pasted = ""
    if found := _PRESENTS.search(text):
        end = text.find("\n", found.end())
        after = _END.search(text, found.end() - 1)
        cut = found.end() if found.group()[-1] in ":：" else after.end() if after else len(text)
        if end != -1 and cut > end:
            cut = end
        if found.group()[-1] in ":：" or len(text) - cut > PASTED:
            text, pasted = text[:cut], text[cut:]
    for span in _SPAN.finditer(text):
        yield Sentence(span[1] or span[2], "quoted", number)
    for line in _SPAN.sub(" … ", text).split("\n"):
        yield from _of_line(line, number)
    for piece in sentences(pasted):
        yield Sentence(piece, "quoted", number)


def _of_line(line: str, number: int) -> Iterator[Sentence]:
    is_others = line.startswith((">", " >")) or _CODE_LINE.match(line) is not None
    for sentence in sentences(line):
        is_others = is_others or _SAYS.search(bare(sentence)) is not None
        for part in (sentence,) if is_others else _parts(sentence):
            yield Sentence(part, "quoted" if is_others else kind_of(part), number)


def _parts(sentence: str) -> Iterator[str]:
    """A sentence, or what it states and what it then asks: "我属马，今年运势怎么样？"."""
    sentence = untagged(sentence)
    if joke := _JOKE_FIRST.match(sentence):
        yield joke.group()
        sentence = sentence[joke.end() :]
    if is_question(sentence) and not _ASKS.match(bare(sentence)):
        for comma in reversed(list(_COMMA.finditer(sentence))[-MAX_CLAUSES:]):
            head, tail = sentence[: comma.start()], sentence[comma.end() :]
            if not is_question(head):
                yield head
                yield tail
                return
    yield sentence
