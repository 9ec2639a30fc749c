"""What a conversation says, sentence by sentence, for judging what is made of it. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Final, Literal

from bot.context import extract, lasting, statements, wording
from bot.context.quoting import Said
from bot.context.statements import Kind

Reason = Literal[
    "secret", "empty", "mood", "wordy", "rules", "known", "repeated", "unsaid", "foreign", "bot",
    "supposed", "unwanted", "corrected", "passing", "leaning", "many",
]  # fmt: skip

ECHOED = 0.7  # of its words in one line of the bot's own files
FEWEST = 3  # words of a line that may be taken from there
MOST_AT_LEAST = 10  # entries of one conversation, however short it was
MOST_PLACES = 200  # sentences with a word that are looked at, the latest

_YES = re.compile(
    r"^(?:yes|yep|yeah|exactly|right|correct|that['’]?s (?:it|right)|agreed|deal"
    r"|let['’]?s do (?:it|that))\b"
    r"|^(?:是的?|对的?|没错|就这样|说定了|一言为定|可以，就)",
    re.IGNORECASE,
)
_TO_THEM = re.compile(r"\b(?:you|your|we|our|let['’]s|shall)\b|[你您咱]|我们", re.IGNORECASE)
_VAGUE = re.compile(
    r"\b(?:next|this|last|in (?:a|two|three|\d+)) (?:week|month|year|spring|summer|autumn|fall"
    r"|winter|days?)\w*"
    r"|\b(?:weekend|christmas|easter|spring|summer|autumn|winter|end of)\b|下个?月|明年|月底"
    r"|年底|春节|下周|下星期|个月后|天后",
    re.IGNORECASE,
)
_TOMORROW = (
    (
        re.compile(
            r"\btoday|tonight|this (?:morning|evening|afternoon)\b|今[天晚早]", re.IGNORECASE
        ),
        0,
    ),
    (re.compile(r"\bday after tomorrow\b|后天", re.IGNORECASE), 2),
    (re.compile(r"\btomorrow\b|明[天晚早]", re.IGNORECASE), 1),
    (re.compile(r"\byesterday\b|昨[天晚]", re.IGNORECASE), -1),
)
_WEEKDAY = re.compile(
    r"\b(?P<en>mon|tues|wednes|thurs|fri|satur|sun)days?\b|(?:周|星期"
    r"|礼拜)(?P<zh>[一二三四五六日天])",
    re.IGNORECASE,
)
_WEEKDAYS: Final = (
    {
        name: number
        for number, names in enumerate("mon一 tues二 wednes三 thurs四 fri五 satur六 sun日".split())  # noqa: SIM905
        for name in (names[:-1], names[-1])
    }
    | {"天": 6}
)
ISO_DAY = re.compile(r"\b\d{4}-\d{1,2}-\d{1,2}\b")
_DAY_ALONE = re.compile(r"\bthe (\d{1,2})(?:st|nd|rd|th)\b|(?<![月\d])(\d{1,2})\s?[号日]")
_OTHERS: Final[frozenset[Reason | None]] = frozenset({"bot", "foreign"})
_HALF = re.compile(r"\bhalf\b|半|三刻|一刻|\bquarter\b", re.IGNORECASE)
# What a kind of sentence says about an entry that is made of it.
REASON_OF: Final[Mapping[Kind, Reason]] = {
    "asked": "supposed", "supposed": "supposed", "joked": "supposed", "quoted": "foreign",
    "unwanted": "unwanted", "corrected": "corrected", "empty": "empty", "mood": "mood",
    "secret": "secret", "wished": "passing",
}  # fmt: skip


# Beside what is plainly said: "book a table for my daughter Lena, she turns seven" states too.
_MAY_STATE: Final[frozenset[Kind]] = frozenset({"asked", "wished"})
_FIRST = re.compile(r"\b(?:I|my|we|our|me)\b|[我咱]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Line:
    """Words somebody said, and what an entry made of them is; nothing when it may be kept."""

    tokens: frozenset[str]
    numbers: frozenset[int]
    reason: Reason | None
    text: str
    is_lasting: bool = False


@dataclass(frozen=True)
class Evidence:
    """What a conversation says, and what stands in files: the bot's `rules`, what is `known`.

    `today` is the person's own date.
    """

    said: tuple[Said, ...]
    today: date
    rules: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Every sentence of it, the person's as what it is."""
        return tuple(self._lines())

    @cached_property
    def wishes(self) -> tuple[frozenset[str], ...]:
        """The words of the messages in which the person asks that something be kept."""
        own = [each.text for each in self.said if each.who == "person"]
        said = [each for each in statements.read(own) if each.kind != "quoted"]
        asked = {each.message for each in said if statements.asks_to_keep(each.text)}
        whole = (" ".join(e.text for e in said if e.message == number) for number in sorted(asked))
        return tuple(map(tokens_of, whole))

    @cached_property
    def places(self) -> Mapping[str, Sequence[int]]:
        """In which lines each word stands."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self.lines):
            for token in line.tokens:
                found[token].append(number)
        return {token: numbers[-MOST_PLACES:] for token, numbers in found.items()}

    @cached_property
    def rule_lines(self) -> tuple[frozenset[str], ...]:
        """The words of each line, and each sentence, of the bot's own files."""
        return tuple(
            tokens
            for text in self.rules
            for sentence in statements.sentences(text)
            if len(tokens := tokens_of(sentence)) > 1
        )

    @cached_property
    def known_lines(self) -> tuple[str, ...]:
        """Each line and sentence that memory has."""
        return tuple(each for text in self.known for each in statements.sentences(text))

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Every number that the person, or what memory has, may have meant."""
        own = [line.text for line in self.lines if line.reason is None or line.reason == "supposed"]
        text = "\n".join((*own, *self.known))
        found = set(wording.numbers(text))
        found |= {number + 12 for number in found if number < 12}
        if _HALF.search(text):
            found |= {15, 30, 45}
        return frozenset(found | {0, self.today.year - 1, self.today.year, self.today.year + 1})

    def adapted(self, tokens: frozenset[str]) -> frozenset[str]:
        """The same without numbers that were said in another way: "half past four" for 16:30."""
        other = {t for t in tokens if t.isdecimal() and t not in self.places}
        return tokens - {token for token in other if int(token) in self.numbers}

    def source(self, tokens: frozenset[str]) -> int | None:
        """The line of the person's that says most of some words."""
        hits = self.hits(tokens)
        own = [n for n in hits if self.lines[n].reason is None or self.lines[n].is_lasting]
        return max(own, key=lambda n: (hits[n], n), default=None)

    def hits(self, tokens: frozenset[str]) -> Mapping[int, int]:
        """In which lines some words stand, and how many of them."""
        found: defaultdict[int, int] = defaultdict(int)
        for token in tokens:
            for place in self.places.get(token, ()):
                found[place] += 1
        return found

    def overheard(self, tokens: frozenset[str]) -> int:
        """How many of some words one line says that is not the person's."""
        hits = self.hits(tokens).items()
        return max((n for at, n in hits if self.lines[at].reason in {"bot", "foreign"}), default=0)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word that anybody said."""
        return self.own_words.union(*(line.tokens for line in self.lines))

    @cached_property
    def own_words(self) -> frozenset[str]:
        """Every word that the person said, or that memory has."""
        own = (line.tokens for line in self.lines if line.reason is None or line.is_lasting)
        notes = (each.text for each in self.said if each.who == "note")  # they name the person
        return frozenset[str]().union(*own, *map(tokens_of, (*self.known, *notes)))

    @cached_property
    def days(self) -> frozenset[tuple[int, int]] | None:
        """Every (month, day) that may have been meant; None when that may be any."""
        text = "\n".join(line.text for line in self.lines if line.reason in {None, "supposed"})
        if _VAGUE.search(text):
            return None
        found = set(extract.dates(text))
        for match in _DAY_ALONE.finditer(text):
            after = self.today.month % 12 + 1
            found |= {(month, int(match[1] or match[2])) for month in (self.today.month, after)}
        # What is mended is mostly the hour of the same day.
        whole = "\n".join(line.text for line in self.lines if line.reason not in _OTHERS)
        near = [distance for pattern, distance in _TOMORROW if pattern.search(whole)]
        for match in _WEEKDAY.finditer(text):
            ahead = (_WEEKDAYS[(match["en"] or match["zh"]).lower()] - self.today.weekday()) % 7
            near += [ahead - 7, ahead, ahead + 7]
        for distance in near:
            day = date.fromordinal(self.today.toordinal() + distance)
            found.add((day.month, day.day))
        return frozenset(found)

    @cached_property
    def most(self) -> int:
        """How many entries so much is worth at most: one for each sentence that says something."""
        return max(MOST_AT_LEAST, sum(line.is_lasting for line in self.lines))

    def _lines(self) -> Iterator[Line]:
        own = [each.text for each in self.said if each.who == "person"]
        by_message: defaultdict[int, list[statements.Sentence]] = defaultdict(list)
        for sentence in statements.read(own):
            by_message[sentence.message].append(sentence)
        number = 0
        before: Said | None = None
        for each in self.said:
            if each.who == "person":
                taken_up = before is not None and _YES.match(each.text.strip())
                if before is not None and taken_up:
                    for sentence in statements.sentences(before.text):
                        about = _TO_THEM.search(sentence) is not None
                        yield _line(
                            sentence, None, is_lasting=about and lasting.is_lasting(sentence)
                        )
                for sentence in by_message[number]:
                    reason = REASON_OF.get(sentence.kind)
                    states = sentence.kind == "said" or (
                        sentence.kind in _MAY_STATE and _FIRST.search(sentence.text) is not None
                    )
                    is_lasting = states and lasting.is_lasting(statements.bare(sentence.text))
                    line = _line(sentence.text, reason, is_lasting=is_lasting)
                    yield self._own(line)
                number += 1
                before = None
            elif each.who == "assistant":
                yield from _lines_of(each.text, "bot")
                before = each
            elif each.who in {"other", "result", "failure"}:
                yield from _lines_of(each.text, "foreign")
            elif each.who == "summary":
                yield from _lines_of(each.text, None)

    def _own(self, line: Line) -> Line:
        """A line of the person's; what they pasted of the bot's own files is not theirs."""
        if not self.echoes(line.tokens) or len(line.tokens) < FEWEST:
            return line
        return replace(line, reason="rules", is_lasting=False)

    def echoes(self, tokens: frozenset[str]) -> bool:
        """True when one line of the bot's own files says most of some words."""
        return any(len(tokens & line) >= len(tokens) * ECHOED for line in self.rule_lines)


def _lines_of(text: str, reason: Reason | None) -> Iterator[Line]:
    return (_line(sentence, reason) for sentence in statements.sentences(text))


def _line(text: str, reason: Reason | None, *, is_lasting: bool = False) -> Line:
    return Line(tokens_of(text), wording.numbers(text), reason, text, is_lasting)


def tokens_of(text: str) -> frozenset[str]:
    """What a text is compared by: the stems of its words, and its numbers without its days."""
    rest = ISO_DAY.sub(" ", extract.without_dates(text))
    numbers = (str(number) for number in wording.numbers(rest))
    return (wording.stems(rest) | frozenset(numbers)) - wording.SUBJECTS
