"""Splits what people write into sentences, and leaves out what is not their own words. Pure.

Of what a person sent, three things do not count as said by them: quotations, pasted texts, and what
they asked nobody to write down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bot.context import wording
from bot.context.phrases import folded, phrases
from bot.context.secrets import holds_secret
from bot.messages import Message
from bot.storage import fulltext

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
    """Where a message asks that something not be written down."""
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
            more = wording.stems(rest).union(map(str, wording.numbers(rest))) - wording.SUBJECTS
            if kept and len(more) <= LONGEST_REQUEST:
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
    """What stays of a quotation: a word or two in quotation marks are the person's own."""
    words = found.group()
    longest = QUOTED_ZH if any(map(fulltext.is_cjk, words)) else QUOTED
    return words if words.lstrip()[0] != ">" and len(words) - 2 < longest else " "


LONGEST: Final = 200  # characters of a sentence that is offered
MESSAGE: Final = 600  # characters; a longer message was pasted, as were many lines
LINES: Final = 3

# A capital inside a sentence is how English marks a name; 叫 goes before one in Chinese.
_EXACT = re.compile(
    r"\d|(?<=[a-zß-ÿ,;] )(?!I\b)[A-ZÀ-Þ][\w’'-]*\w|叫[\u4e00-\u9fff]{2,4}"
    r"|[零一二三四五六七八九十两百千万]+[个月号日点岁年块元]|(?:周|星期|礼拜)[一二三四五六日天]"
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
