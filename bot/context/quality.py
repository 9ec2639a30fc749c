"""Checks that a summary still says what matters: names, numbers, days, links, open questions. Pure.

What is looked for can be told from the words alone, in English and Chinese, without knowing what
the conversation was about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.context import extract, statements, wording
from bot.context.quoting import Said, clipped, spoken
from bot.messages import Message
from bot.storage import fulltext

MOST = 40  # things that are looked for
MAX_MISSING = 24  # of those that are named
TOLERATED = 0.25  # share that may be missing before the summary is asked for again
CONTEXT = 140  # characters of the sentence a thing stands in
COVERED = 0.5  # share of a question's words that must be there

_WEIGHT = {"person": 2.0, "summary": 2.0, "result": 1.0, "failure": 0.5, "assistant": 1.0}
_KIND = {"link": 3.0, "code": 2.5, "day": 2.0, "number": 1.5, "name": 1.5, "question": 3.0}
_SEPARATORS = re.compile(r"(?<=\d)[,\s](?=\d{3}\b)")
_TOO_PLAIN = re.compile(r"\d{1,2}")  # says nothing by itself
_NO_ANSWER = re.compile(
    r"\b(?:don['’]?t know|not sure|no idea|can(?:no|['’]?)t (?:say|tell|find)|will check"
    r"|let me check"
    r"|get back to you|find out|later|offline)\b|不知道|不确定|不清楚|查一下|稍后|没有找到|离线",
    re.IGNORECASE,
)
_TRAILING = ".,;:!?。，；：！？"


@dataclass(frozen=True, slots=True)
class Item:
    """Something that should not get lost, and the sentence it stands in."""

    text: str
    context: str


@dataclass(frozen=True, slots=True)
class SummaryCheck:
    """The things a summary lacks of those looked for, most important first."""

    missing: tuple[Item, ...]
    looked_for: int

    @property
    def share(self) -> float:
        """How much is missing, from 0 to 1."""
        return len(self.missing) / self.looked_for if self.looked_for else 0.0

    @property
    def is_poor(self) -> bool:
        """True when so much is missing that the summary should be written again."""
        return self.share > TOLERATED


def check(dropped: Sequence[Message], summary: str, previous: str = "") -> SummaryCheck:
    """Check a summary against the dropped messages and the summary before them."""
    items = wanted(dropped, previous)
    seen = _Seen.of(summary)
    lacking = tuple(item for kind, item in items if not seen.has(kind, item.text))
    return SummaryCheck(lacking[:MAX_MISSING], len(items))


def wanted(dropped: Sequence[Message], previous: str = "") -> list[tuple[str, Item]]:
    """The things that should not get lost, each with its kind, most important first."""
    said = [each for one in spoken(dropped) for each in one if each.who in _WEIGHT]
    before = [Said("summary", previous)] if previous else []
    weights: dict[tuple[str, str], float] = {}
    items: dict[tuple[str, str], Item] = {}
    for each in (*before, *said):
        whole = each.text
        if each.who in {"result", "failure"}:
            whole = whole.partition(": ")[2]  # without the tool's name
        for sentence in statements.sentences(whole):
            for kind, text in _things(sentence):
                key = (kind, text.casefold())
                weights[key] = weights.get(key, 0.0) + _WEIGHT[each.who] * _KIND[kind]
                items[key] = Item(text, clipped(sentence, CONTEXT))
    for question in _open_questions(said):
        key = ("question", question.casefold())
        weights[key] = weights.get(key, 0.0) + _WEIGHT["person"] * _KIND["question"]
        items[key] = Item(question, question)
    order = {key: number for number, key in enumerate(items)}
    ranked = sorted(items, key=lambda key: (-weights[key], -order[key]))[:MOST]
    return [(key[0], items[key]) for key in ranked]


def mentioned(items: Sequence[Item], characters: int) -> str:
    """What was missing, to be added to a summary, so that nothing is lost; bounded."""
    chosen: list[str] = []
    room = characters
    for sentence in dict.fromkeys(item.context for item in items):
        room -= len(sentence) + 3
        if room < 0:
            break
        chosen.append(f"- {sentence}")
    return "\n".join(["Also mentioned:", *chosen]) if chosen else ""


def _things(sentence: str) -> Iterator[tuple[str, str]]:
    rest = sentence
    for match in extract.LINK.finditer(sentence):
        yield "link", match.group().rstrip(_TRAILING)
    rest = extract.LINK.sub(" ", rest)
    for written in extract.dates(rest).values():
        yield "day", written
    rest = extract.without_dates(rest)
    for match in extract.CODE.finditer(rest):
        yield "code", match.group()
    rest = extract.CODE.sub(" ", rest)
    for match in extract.NUMBER.finditer(rest):
        text = match.group().strip()
        if not _TOO_PLAIN.fullmatch(text):
            yield "number", text
    for name in extract.names(sentence):
        if not extract.CODE.fullmatch(name):
            yield "name", name


def _open_questions(said: Sequence[Said]) -> Iterator[str]:
    """What the person asked and nobody answered, the last thing they were asked among it."""
    for number, each in enumerate(said):
        if each.who not in {"person", "assistant"}:
            continue
        questions = [s for s in statements.sentences(each.text) if statements.is_question(s)]
        if not questions:
            continue
        rest = said[number + 1 :]
        reply = next((one for one in rest if one.who in {"person", "assistant"}), None)
        unanswered = reply is None or reply.who == each.who
        if each.who == "person" and not unanswered and reply is not None:
            unanswered = bool(_NO_ANSWER.search(reply.text))
        elif each.who == "assistant":
            unanswered = reply is None
        if unanswered:
            yield clipped(questions[-1], CONTEXT)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A summary, ready to be looked through."""

    text: str
    plain: str
    days: frozenset[tuple[int, int]]
    words: frozenset[str]

    @classmethod
    def of(cls, summary: str) -> _Seen:
        lowered = summary.casefold()
        words = frozenset(fulltext.runs(lowered))
        return cls(lowered, _SEPARATORS.sub("", lowered), frozenset(extract.dates(summary)), words)

    def has(self, kind: str, text: str) -> bool:
        lowered = text.casefold()
        if kind == "day":
            return lowered in self.text or self.days.issuperset(extract.dates(text))
        if kind == "number":
            return _holds_number(self.plain, _SEPARATORS.sub("", lowered))
        if kind == "question":
            return self._covers(text)
        if kind == "name" and not fulltext.is_cjk(text):
            # Whoever was named in full once may be called by one name later.
            parts = (part for part in fulltext.runs(lowered) if len(part) > 2)
            return lowered in self.text or any(part in self.words for part in parts)
        return lowered in self.text

    def _covers(self, question: str) -> bool:
        asked = wording.words(question)
        there = wording.words(self.text)
        return not asked or len(asked & there) >= COVERED * len(asked)


def _holds_number(text: str, number: str) -> bool:
    """True when a number stands in a text, not only inside a longer one."""
    digits = re.sub(r"[^\d.,:/-]", "", number).strip(_TRAILING + "-/")
    return re.search(rf"(?<!\d){re.escape(digits)}(?!\d)", text) is not None
