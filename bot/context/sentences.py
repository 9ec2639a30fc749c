"""Texts as sets of words and as sentences, without what is not somebody's own words. Pure.

Sets of words compare what texts say: as written, by stems, by numbers. Of what a person sent, three
things do not count as said by them: quotations, pasted texts, and what they asked nobody to write
down.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Final, Literal, get_args

from bot.messages import Message
from bot.storage import fulltext
from bot.unicode import normal_form

LONGEST_WORD = 30  # letters
STEM = 5  # letters two words begin with to count as one: "allergic" and "allergy"

# How a note speaks of whom it is about, whatever it says; stems.
SUBJECTS: Final = frozenset("user person owner becau pleas also well too then since 用 户".split())  # noqa: SIM905

_SUFFIX = re.compile(r"(?<=\w{3})(?:['’]s?|ies|ied|ing|ed|es|s|ly|e|(?<=\w{4})y)$")
_NUMERALS = re.compile(r"\d+")
_NUMBERS_EN: Final = {
    word: int(number)
    for number, *names in map(
        str.split,
        (
            "0 zero midnight", "1 one first", "2 two second twice", "3 three third",
            "4 four fourth", "5 five fifth", "6 six sixth", "7 seven seventh", "8 eight eighth",
            "9 nine ninth", "10 ten tenth", "11 eleven eleventh", "12 twelve twelfth noon",
            "13 thirteen", "14 fourteen", "15 fifteen", "16 sixteen", "18 eighteen", "20 twenty",
            "30 thirty", "40 forty", "50 fifty", "60 sixty", "70 seventy", "80 eighty", "90 ninety",
            "100 hundred",
        ),
    )
    for word in names
}  # fmt: skip
_NUMBERS_ZH: Final = dict(zip("零一二三四五六七八九", range(10), strict=True)) | {"两": 2, "〇": 0}
_UNITS_ZH: Final = {"十": 10, "百": 100, "千": 1_000, "万": 10_000}
_RUN_ZH = re.compile("[零〇一二两三四五六七八九十百千万]{1,12}")
_WORD_EN = re.compile(r"[a-z]+")


def words(text: str) -> frozenset[str]:
    """The content of a text, for comparing: words, and pairs of characters of CJK runs."""
    found: set[str] = set()
    for run in fulltext.runs(text.casefold()):
        if fulltext.is_cjk(run):
            found.update(run[n : n + 2] for n in range(max(1, len(run) - 1)))
        elif not fulltext.is_stop_word(run):
            found.add(run)
    return frozenset(found)


def terms(text: str) -> frozenset[str]:
    """A text's words by how they begin, and its Chinese in pairs of characters."""
    return frozenset(word if fulltext.is_cjk(word) else stem(word) for word in words(text))


def shared(wanted: frozenset[str], text: str) -> int:
    """Count the `terms` that a text has; one Chinese character may be inside a pair."""
    there = terms(text)
    return sum(term in there or (fulltext.is_cjk(term) and term in text) for term in wanted)


def stems(text: str) -> frozenset[str]:
    """The content of a text, for telling whether it says in other words what another one says.

    Words by how they begin, without numbers; CJK by single characters without those that only hold
    a sentence together.
    """
    found: set[str] = set()
    for run in fulltext.runs(text.casefold()):
        if fulltext.is_cjk(run):
            found.update(c for c in run if not fulltext.is_function_character(c))
        elif not fulltext.is_stop_word(run) and not run.isdigit():
            found.add(stem(run))
    return frozenset(found)


def content(text: str) -> frozenset[str]:
    """The stems of a text's words and its numbers, without those that say whom a note is about."""
    return stems(text).union(map(str, numbers(text))) - SUBJECTS


def stem(word: str) -> str:
    """The beginning of a word, without accents: the same for most of its forms."""
    if not word.isascii():
        word = "".join(c for c in normal_form("NFD", word) if not unicodedata.combining(c))
    return _SUFFIX.sub("", word[:LONGEST_WORD])[:STEM]


def numbers(text: str) -> frozenset[int]:
    """Every number a text names, in digits or in words of either language."""
    found = {int(digits[:15]) for digits in _NUMERALS.findall(text)}
    found.update(_NUMBERS_EN[w] for w in _WORD_EN.findall(text.lower()) if w in _NUMBERS_EN)
    for run in _RUN_ZH.findall(text):
        found.add(_number_zh(run))
        found.update(_NUMBERS_ZH[c] for c in run if c in _NUMBERS_ZH)
    return frozenset(found)


def _number_zh(run: str) -> int:
    """A number in Chinese characters: 三千八 is 3800, 十二 12, 两万三 23000."""
    total = section = digit = 0
    unit = last = 1
    for character in run:
        if character in _NUMBERS_ZH:
            digit = _NUMBERS_ZH[character]
            last = unit
            continue
        unit = _UNITS_ZH[character]
        if unit == _UNITS_ZH["万"]:
            total, section, digit = (total + section + digit) * unit or unit, 0, 0
        else:
            section, digit = section + (digit or 1) * unit, 0
    # What follows a unit directly counts in the next smaller one.
    follows = run[-1] in _NUMBERS_ZH and len(run) > 1 and run[-2] in "百千万"
    return total + section + digit * (last // 10 if follows else 1)


# --- sentences ------------------------------------------------------------------------------------

# The phrases by which people ask to have something kept or not, as patterns, from `phrases.toml`.
#
# They are compiled when they are first asked for, which takes half a second: not on the event
# loop.

OPENINGS: Final = 8  # words before a wish

Kind = Literal["before", "asking", "remind"]

_APART: Final = r"[\s,，、.;；:：!！。…¿¡،؟–—-]"
CLAUSE: Final = re.compile(r"(?:^|[,，、.;；:：!！?？。…¿¡،؟\n–—])\s*+")  # where one begins
_NO_SPACES: Final = ("zh", "ja", "ko")  # nothing tells where a word ends
_REQUESTED_IN: Final = ("en", "zh")
NAMED: Final = re.compile(r"\W*(?:@\S{1,40}\s|(?:(?![\u2e80-\uffff])\w){2,20},)")  # "Nova, …"
_INSIDE: Final = r"(?!(?<=\w)\w)"  # no place inside a word
_LATER: Final = "\u0700"  # scripts from here on compose letters of other things than accents


@dataclass(frozen=True, slots=True)
class Language:
    """The openings of sentences by what they ask for, and what then makes them something else."""

    heads: tuple[tuple[Kind, re.Pattern[str]], ...]
    never: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Phrases:
    """The phrases of all languages together, and what begins a sentence by language."""

    languages: tuple[Language, ...]
    opening: re.Pattern[str]
    this: re.Pattern[str]
    behind: re.Pattern[str]
    ending: re.Pattern[str]
    remind: re.Pattern[str]
    reminding: re.Pattern[str]
    unwanted: re.Pattern[str]
    unwanted_anywhere: re.Pattern[str]  # where no space tells where a word begins
    claims: re.Pattern[str]

    def opened(self, text: str, start: int = 0) -> int:
        """The end of what may stand before a wish, in a folded text."""
        found = self.opening.match(text, start)
        return found.end() if found else start

    def points_back(self, text: str) -> bool:
        """True for a folded text that names nothing but what was said before, or nothing at all."""
        at = -1
        end = self.opened(text)
        while end > at:
            found = self.this.match(text, end)
            at, end = end, self.opened(text, found.end() if found else end)
        return end == len(text)

    def clause(self, pattern: re.Pattern[str], text: str, start: int = 0) -> tuple[int, int] | None:
        """The span of the first clause of a folded text that a pattern matches."""
        for clause in CLAUSE.finditer(text, start):
            if found := pattern.match(text, self.opened(text, clause.end())):
                return clause.start(), found.end()
        return None


def folded(sentence: str) -> str:
    """A sentence in small letters, each in its place."""
    return sentence.replace("İ", "i").lower()


def _table() -> dict[str, dict[str, list[str]]]:
    raw = resources.files("bot.context").joinpath("phrases.toml").read_text("utf-8")
    return tomllib.loads(raw)


@cache
def phrases() -> Phrases:
    """The table, read once; every pattern is for what `folded` gives."""
    table = _table()

    def all_of(key: str, names: Iterable[str] = table) -> str:
        return _any((name, phrase) for name in names for phrase in table[name][key])

    return Phrases(
        languages=tuple(
            Language(
                tuple((kind, re.compile(all_of(kind, (name,)))) for kind in get_args(Kind)),
                re.compile(all_of("never", (name,))),
            )
            for name in table
        ),
        opening=re.compile(rf"{_APART}*(?:{all_of('opening')}{_APART}*){{0,{OPENINGS}}}+"),
        this=re.compile(all_of("this")),
        behind=re.compile(rf"{all_of('behind')}\W*$"),
        ending=re.compile(rf"{all_of('ending')}\W*$"),
        remind=re.compile(all_of("remind")),
        reminding=re.compile(rf"{all_of('reminding')}\W*$"),
        unwanted=re.compile(all_of("unwanted")),
        unwanted_anywhere=re.compile(all_of("unwanted", _NO_SPACES)),
        claims=re.compile(all_of("claims")),
    )


@dataclass(frozen=True, slots=True)
class ReadRequests:
    """Whole messages, folded, that ask to read the notes or the last conversation."""

    notes: re.Pattern[str]
    last_talk: re.Pattern[str]


@cache
def requests() -> ReadRequests:
    """The table's requests, apart from `phrases`: they take a moment to compile, not a second."""
    table = _table()

    def whole(key: str) -> re.Pattern[str]:
        opening, asked = (
            _any((name, phrase) for name in _REQUESTED_IN for phrase in table[name][each])
            for each in ("opening", key)
        )
        return re.compile(rf"{_APART}*(?:{opening}{_APART}*){{0,2}}{asked}[吗呢吧呀啊]?\W*")

    return ReadRequests(whole("notes"), whole("last_talk"))


def _any(phrases: Iterable[tuple[str, str]]) -> str:
    """Any of some phrases with their languages, those that say most first; of none, nothing."""
    spaced: list[str] = []
    others: list[str] = []
    for language, whole in phrases:
        for phrase in _alternatives(whole):
            is_spaced = language not in _NO_SPACES
            made = "".join(_pieces(phrase, spaced=is_spaced))
            (spaced if is_spaced else others).append(made)
    both = (
        *([rf"(?<!\w)(?:{_first(spaced)}){_INSIDE}"] if spaced else ()),
        *([_first(others)] if others else ()),
    )
    return f"(?:{'|'.join(both)})" if both else "(?!)"


def _first(patterns: list[str]) -> str:
    return "|".join(sorted(patterns, key=len, reverse=True))


def _alternatives(phrase: str) -> list[str]:
    """The phrases that one of nothing but alternatives stands for."""
    inner = phrase[1:-1]
    is_plain = phrase[0] == "{" and phrase[-1] == "}" and not set("{}[]") & set(inner)
    return inner.split("|") if is_plain else [phrase]


_SIGNS: Final = {
    "{": "(?:",
    "~{": "(?=",
    "}": ")",
    "|": "|",
    "[": "(?:",
    "]": ")?",
    "]?": ")?",
    "]*": "){0,4}",
    "}?": ")?",
    "}*": "){0,4}",
    ":": r"(?:\s*[:：、]\s*|\s+[–—-]\s+|\s*$)",
    "^": r"^\W*",
    "'": "['’]",
}


def _pieces(phrase: str, *, spaced: bool) -> Iterator[str]:
    """A phrase of the table as a regular expression, piece by piece."""
    for sign in re.findall(r"~\{|[~…]\w+|[\]}][?*]|.", phrase):
        if sign in _SIGNS:
            yield _SIGNS[sign]
        elif sign[0] == "…":
            yield rf"\w*{sign[1:]}(?!\w)"
        elif sign[0] == "~":
            yield rf"(?=\w*{sign[1:]}(?!\w))"
        elif sign == " ":
            yield rf"(?:,?\s|{_INSIDE})" if spaced else r"\s?"
        else:
            yield _letter(sign)


def _letter(sign: str) -> str:
    """A letter, with and without its accent."""
    plain = unicodedata.normalize("NFD", sign)[0] if sign < _LATER else sign
    return re.escape(sign) if plain == sign else f"[{sign}{plain}]"


# Telling what nobody should write down: passwords, keys, codes, numbers of cards. Pure.

LONGEST_SECRET = 20_000  # characters that are looked at; no entry is longer

_NAMED = re.compile(
    r"\b(?:pass(?:word|phrase|code|wd)s?|pwd|pw|api[ _-]?keys?|(?:secret|private|access"
    r"|signing)[ _-]?keys?"
    r"|(?:access|auth|bearer|refresh)[ _-]?tokens?|client[ _-]?secret|cvv2?|cvc2?|(?:2fa|otp"
    r"|one[ -]time)"
    r"(?:\s+(?:code|password))?|(?:seed|recovery|mnemonic)\s+(?:phrase|words?|key|code)s?"
    r"|(?:security|verification|login|confirmation|bank)\s+code|log-?in\s+data|root\s+access)\b"
    r"|密码|口令|密钥|秘钥|私钥|助记词|验证码|动态码|校验码|安全码|取件码",
    re.IGNORECASE,
)
# These words have other meanings too, so what follows must look like one.
_PIN = re.compile(
    r"\b(?:pin|code|combination)\b[^.\n\d]{0,60}(?<![\d.,])\d{4,8}(?![\d.,]*\d)"
    r"|(?<!\d)\d{4,8}\s?(?:#|[加按]?井号)"
    r"|\b(?:pin|safe|combination|lock)\b[^.\n\d]{0,30}\d\d-\d\d-\d\d\b"
    r"|(?:码|暗号)\s*+(?:是|为|:|：)?\s*+\d{4,8}(?!\d)|锁[^，。\d]{0,8}\d{4,8}(?![\d年月元块])",
    re.IGNORECASE,
)
_PREFIXED = re.compile(
    r"-----BEGIN [A-Z ]{0,40}KEY|\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abps]|hf|npm|pypi"
    r"|whsec)[-_][\w-]{8,}"
    r"|\b(?:AKIA|ASIA|AIza|eyJ)[\w-]{12,}|\bgithub_pat_\w+"
)
_LONG_RUN = re.compile(r"(?<![\w/.:-])[A-Za-z0-9+=_$%&#!*~^-]{20,200}(?![\w/.-])")
# A user's name and what goes with it, as in "guest / BlueHeron-77".
_PAIR = re.compile(
    r"\b(?:log-?in|wifi|wi-fi|user(?:name)?|账号|帐号|用户名)[^.\n]{0,40}?\s[/|]\s*\S{6,}",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\d.,+])\d(?:[ -]?\d){11,18}(?![\d]|[.,]\d)")
# A Chinese citizen's number, or a key of digits: no other number has so many.
_LONG_NUMBER = re.compile(r"(?<!\d)(?:\d{17}[\dXx](?!\w)|\d{20})")
_SHORT_CODE = re.compile(
    r"(?<![\d.,:/#€$£¥+-])\d{6}(?![\d.,]*\d|\s*(?:km|kg|miles|元|块|人|次|[€$£]))"
)
_SENT = re.compile(
    r"\b(?:text|sms|message|bank|code)\b|短信|银行|动态|收到.{0,8}码|有效", re.IGNORECASE
)
_CARD_LENGTHS: Final = range(13, 20)


def holds_secret(text: str) -> bool:
    """True when a text names, or looks like, what gives access to something or to money."""
    text = text[:LONGEST_SECRET]
    if any(pattern.search(text) for pattern in (_NAMED, _PIN, _PREFIXED, _PAIR, _LONG_NUMBER)):
        return True
    if any(_is_card(found.group()) for found in _DIGITS.finditer(text)):
        return True
    if any(_is_random(found.group()) for found in _LONG_RUN.finditer(text)):
        return True
    return bool(_SHORT_CODE.search(text) and _SENT.search(text))


def _is_card(digits: str) -> bool:
    """True if digits are a card's: by their number and check digit, or their grouping."""
    bare = [int(digit) for digit in digits if digit.isdigit()]
    if len(bare) not in _CARD_LENGTHS:
        return False
    total = sum(bare[-1::-2]) + sum(sum(divmod(2 * digit, 10)) for digit in bare[-2::-2])
    # Chinese bank cards begin with 62 and are often written with a digit wrong; so are typed ones.
    return (
        total % 10 == 0
        or bare[:2] == [6, 2]
        or re.fullmatch(r"(?:\d{4}[ -]){3}\d{1,7}", digits) is not None
    )


def _is_random(run: str) -> bool:
    """True if a long run of characters mixes all kinds, as keys do and words do not."""
    kinds = [(each.isdigit(), each.islower(), each.isupper()) for each in run]
    # Between letters and digits, and between cases, a key changes all the time.
    changes = sum(one != other for one, other in pairwise(kinds))
    return all(map(any, zip(*kinds, strict=True))) and changes >= len(run) / 4


LONGEST_MESSAGE: Final = 4_000  # characters; a longer one was pasted
LONGEST_REQUEST: Final = 2  # words beside "don't write that down" in a message of just that
QUOTED: Final = 20  # characters in quotation marks; Chinese says as much in fewer
QUOTED_ZH: Final = 8
PASTED: Final = 150  # characters that follow "here is the letter" and make it a paste

# German dates have a full stop: "am 9. Mai".
_MONTHS_DE = "Jan|Feb|März|Apr|Mai|Juni|Juli|Aug|Sept|Okt|Nov|Dez"
_END = re.compile(
    r"(?<=[.!?…؟])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bSt\.)(?<!\bNo\.)(?<!\bProf\.)"
    r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\b[ap]\.m\.)(?<!\b[A-Z]\.)"
    rf"(?!(?<=\d\.)\s+(?:{_MONTHS_DE}))\s+|(?<=[。！？])|\n+"
)
_BULLET = re.compile(r"^(?:[-*+•]\s+|\d{1,2}[.)]\s+)")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# What opens a quotation and is not closed quotes the rest of its line.
_QUOTED = re.compile(
    r"^ ?>.*$|\"[^\"\n]*\"|“[^”\n]*(?:”|$)|「[^」\n]*(?:」|$)|『[^』\n]*(?:』|$)", re.MULTILINE
)
# Behind "Bob wrote:" or 他说： the rest of the line is somebody else's.
_SAYS = re.compile(
    r"^[^\s:：]{1,20}(?:\s[^\s:：]{1,20})?\s(?:said|wrote|writes|says|texted)\s*:"
    r"|(?:说|写|讲|问|发|回复?)(?:着|的是|道|了|的)?\s*[:：]",
    re.IGNORECASE,
)
_PRESENTS = re.compile(
    r"\b(?:here(?:['’]s| is| are)|this is|look at|proofread|polish|translate|summari[sz]e"
    r"|check)\b[^.:\n]{0,60}\b(?:text|chapter|mail|e-?mail|letter|draft|article|story|page|note"
    r"|post|poem|paragraph|essay|novel|speech|transcript|log|file|message)\b(?:\s*:)?"
    r"|(?:润色|翻译|改写|总结|检查|校对|看看|修改)[^。:：\n]{0,16}[:：]",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"[?？؟]\W*$|[吗呢么]\W*$")


def split(text: str) -> list[str]:
    """The sentences and lines of a text, without bullets, code blocks and heading marks."""
    pieces = (piece.strip() for piece in _END.split(_FENCE.sub("\n", text)))
    return [bare for piece in pieces if (bare := _BULLET.sub("", piece).strip("# \t"))]


def is_question(sentence: str) -> bool:
    """True for a sentence that ends as a question does."""
    return _QUESTION.search(sentence) is not None


def only_asks(text: str) -> bool:
    """True for a text of nothing but questions."""
    every = split(text)
    return bool(every) and all(map(is_question, every))


def is_unwanted(message: str) -> bool:
    """True for a message that asks that something not be written down."""
    return _request(message) is not None


def _request(message: str) -> tuple[int, int] | None:
    """The span in which a message asks that something not be written down."""
    known, small = phrases(), folded(message)
    found = known.unwanted_anywhere.search(small)
    return found.span() if found else known.clause(known.unwanted, small)


def own(messages: Sequence[str]) -> list[str]:
    """The words of somebody's messages that are theirs and may be written down, oldest first.

    A message that says "don't write that down" leaves nothing; nor does the one before it, if it
    says nothing else.
    """
    kept: list[str] = []
    for message in messages:
        said = _without_pastes(message) if len(message) <= LONGEST_MESSAGE else ""
        if found := _request(said):
            rest = f"{said[: found[0]]} {said[found[1] :]}"
            if kept and len(content(rest)) <= LONGEST_REQUEST:
                kept[-1] = ""
            said = ""
        kept.append(said)
    return kept


def _without_pastes(message: str) -> str:
    """A message without quotations, code blocks and texts that it presents."""
    text = _FENCE.sub("\n", message)
    if found := _PRESENTS.search(text):
        end = text.find("\n", found.end())
        stop = _END.search(text, found.end() - 1)
        cut = found.end() if found.group()[-1] in ":：" else stop.end() if stop else len(text)
        cut = end if -1 < end < cut else cut
        if found.group()[-1] in ":：" or len(text) - cut > PASTED:
            text = text[:cut]
    lines = _QUOTED.sub(_unquoted, text).split("\n")
    return "\n".join(
        line[: found.start()] if (found := _SAYS.search(line)) else line for line in lines
    )


def _unquoted(found: re.Match[str]) -> str:
    """The part of a quotation that stays: a word or two in quotation marks are the person's own."""
    words = found.group()
    longest = QUOTED_ZH if any(map(fulltext.is_cjk, words)) else QUOTED
    return words if words.lstrip()[0] != ">" and len(words) - 2 < longest else " "


LONGEST: Final = 200  # characters of a sentence that is offered
MESSAGE: Final = 600  # characters; a longer message was pasted, as were many lines
LINES: Final = 3

# A capital inside a sentence is how English marks a name; 叫 goes before one in Chinese.
_EXACT = re.compile(
    r"\d|(?<=[a-zß-ÿ,;] )(?!I\b)[A-ZÀ-Þ][\w’'-]*\w|叫[\u4e00-\u9fff]{2,4}"
    r"|(?<![零一二三四五六七八九十两百千万])[零一二三四五六七八九十两百千万]++[个月号日点岁年块元]|(?:周|星期|礼拜)[一二三四五六日天]"
)
_WHOLLY_QUOTED = re.compile(r"[\"“”「」『』`>|{}<]")


def is_exact(sentence: str) -> bool:
    """True when a sentence has a name, a number or a date."""
    return _EXACT.search(sentence) is not None


def sentence_of(message: Message) -> str:
    """The first sentence of a person's own words that may be offered; empty without one."""
    own = message.own_text.strip()
    if len(own) > MESSAGE or own.count("\n") >= LINES or is_unwanted(own):
        return ""
    return next(filter(_may_be_offered, split(own)), "")


def _may_be_offered(sentence: str) -> bool:
    return (
        len(sentence) <= LONGEST
        and is_exact(sentence)
        and not is_question(sentence)
        and _WHOLLY_QUOTED.search(sentence) is None
        and not holds_secret(sentence)
    )
