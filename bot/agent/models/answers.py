"""Which line of what was found answers a question, and whether that is certain. Pure.

The offline model understands nothing, so it goes by what the search knows of each line (its words,
its meaning), by whether a line has what the question asks for (a time, a number, somebody, a
place), and by how far it is ahead of the next. The numbers were chosen by one half of the questions
of `bench/offline`; docs/memory.md has the figures of the other half.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bot.agent.models import kinds
from bot.agent.models.intent import Recall, query_of, understand
from bot.memory import markdown
from bot.memory.many import asks_for_a_list
from bot.tool_results import Quote

STEM = 4  # letters two words begin with to count as one: "allergic" and "allergies"
LIKELY = 0.15  # how well a passage in other words matches; what has nothing to do with it less
NEAR = 0.15  # how near in meaning a line is to be a guess
BY_WORDS = 0.15  # of a line's share of the words asked for, beside the cosine of its meaning
OTHER_SCRIPT = 0.6  # of a line in Chinese for a question in English, or the other way round
OTHER_KIND = 0.7  # of a line without a time when a time is asked for, …
OTHER_TIME = 0.5  # of what is of another time than was asked about, when something is of that
UNSCORED = 0.5  # of the share of the words, for what no search has judged line by line
BELIEVED_LESS = 0.5  # of what the bot said itself, and of what was struck out
# What is certain: nearly all the words, or far nearer in meaning than anything else.
SURE_WORDS, LEAST_WORDS = 0.75, 2
SURE_MEANING, SURE_LEAD = 0.4, 0.45
MIN_TWIN = 6  # characters that a note and the talk it came from have in common at least

_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]+")
_WORD = re.compile("[^\\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]+")
_LEFT_OUT = "…"


@dataclass(frozen=True, slots=True)
class Answer:
    """What may answer a question: lines of a quote, and when that was also said.

    `score` puts them in order. `covered` is the share of the question's words that stand there, of
    which `shared` many; `fits` says that it has what is asked for, and is about nobody else.
    """

    quote: Quote
    lines: tuple[str, ...]
    score: float = 0.0
    covered: float = 0.0
    shared: int = 0
    fits: bool = True
    said: str = ""
    key: str = field(default="", compare=False)  # its words, for comparing


def ranked(question: str, quotes: Iterable[Quote]) -> list[Answer]:
    """What may answer a question, best first, each once: a note before the talk it came from.

    Questions that were asked before are no answers.
    """
    asked = _Question(question)
    found: list[Answer] = []
    for quote in quotes:
        text = quote.text.strip()
        if not text or text == question.strip() or _only_asks(quote):
            continue
        if quote.by:
            found += asked.of_talk(quote)
        else:
            found += asked.of_note(quote)
    return _once(sorted(_of_the_time(found), key=lambda each: -each.score))


def is_sure(question: str, answers: Sequence[Answer]) -> bool:
    """True when the first of them may be told as the answer; to "which countries" no one is."""
    if not answers or not answers[0].fits or asks_for_a_list(question):
        return False
    best, rest = answers[0], answers[1:]
    if best.covered >= SURE_WORDS and best.shared >= LEAST_WORDS:
        return all(other.covered < best.covered for other in rest)
    second = rest[0].score if rest else 0.0
    ahead = best.score > 0 and 1 - second / best.score >= SURE_LEAD
    return bool(best.quote.lines) and best.score >= SURE_MEANING and ahead


def _of_the_time(found: Sequence[Answer]) -> list[Answer]:
    """Answers of which those of another time count less, when one is of the time asked about."""
    if not any(each.quote.of_time for each in found):
        return list(found)
    return [
        each if each.quote.of_time else replace(each, score=each.score * OTHER_TIME, fits=False)
        for each in found
    ]


def _only_asks(quote: Quote) -> bool:
    return quote.by in {"user", "said"} and isinstance(understand(quote.text.strip()), Recall)


class _Question:
    """What a question asks for, against which lines are held."""

    def __init__(self, text: str) -> None:
        self._terms = _terms(query_of(text))
        self._is_cjk = _is_cjk(text)
        self._has = kinds.asked_for(text)
        self._people = kinds.people(text)
        self._names = kinds.names(text)

    def of_talk(self, quote: Quote) -> list[Answer]:
        """What was said, as one answer."""
        scores = quote.lines or ((0.0, 0.0),)
        words, meaning = (max(each[at] for each in scores) for at in (0, 1))
        found = self._judged(quote, (quote.text,), (words, meaning) if quote.lines else None)
        is_likely = meaning >= NEAR if quote.lines else (quote.match or 0.0) >= LIKELY
        return [found] if found.shared or is_likely else []

    def of_note(self, quote: Quote) -> list[Answer]:
        """The lines of a note that may answer; all of it together when none stands out."""
        lines = quote.text.split("\n")
        scores = quote.lines if len(quote.lines) == len(lines) else (None,) * len(lines)
        told = [
            (self._judged(quote, (line,), score), score)
            for line, score in zip(lines, scores, strict=True)
            if line.strip() and line.strip() != _LEFT_OUT and not line.startswith("#")
        ]
        found = [each for each, score in told if each.shared or (score and score[1] >= NEAR)]
        is_likely = (quote.match or 0.0) >= LIKELY or self._shared(quote.text)
        if found or not told or quote.lines or not is_likely:
            return found
        return [self._judged(quote, tuple(each.lines[0] for each, _ in told), None)]

    def _judged(
        self, quote: Quote, lines: tuple[str, ...], score: tuple[float, float] | None
    ) -> Answer:
        text = markdown.plain("\n".join(lines))
        shared = self._shared(text)
        covered = shared / len(self._terms) if self._terms else 0.0
        if score is None:
            value = max(quote.match or 0.0, UNSCORED * covered)
        else:
            value = score[1] + BY_WORDS * score[0]
        bare = _bare(text)
        has = self._has is None or bool(self._has.search(bare))
        value *= 1.0 if _is_cjk(bare) == self._is_cjk else OTHER_SCRIPT
        value *= 1.0 if has else OTHER_KIND
        value *= BELIEVED_LESS if quote.by == "assistant" or bare.startswith("~~") else 1.0
        fits = has and self._is_about(bare)
        return Answer(quote, lines, value, covered, shared, fits, key=markdown.normal(bare))

    def _shared(self, text: str) -> int:
        """How many of the question's words, or pieces of Chinese, stand in a text."""
        lowered = text.lower()
        there = {word[:STEM] for word in _WORD.findall(lowered)}
        return sum(t in there if _WORD.fullmatch(t) else t in lowered for t in self._terms)

    def _is_about(self, text: str) -> bool:
        """False when a line is about somebody else, or not about whom the question names."""
        people = kinds.people(text)
        if self._people and people and not self._people & people:
            return False
        return all(name in text.lower() for name in self._names)


def _once(answers: Sequence[Answer]) -> list[Answer]:
    """Without those that say the same: a note takes the place of the talk it came from."""
    kept: list[Answer] = []
    for each in answers:
        at = next((n for n, other in enumerate(kept) if _is_twin(each, other)), None)
        if at is None:
            kept.append(each)
            continue
        note, talk = (kept[at], each) if each.quote.by else (each, kept[at])
        if not note.quote.by:  # both may have been said
            best = max(note, talk, key=lambda one: one.score)
            said = note.said or (talk.quote.where[0] if talk.quote.by and talk.quote.where else "")
            kept[at] = replace(best, quote=note.quote, lines=note.lines, key=note.key, said=said)
    return kept


def _is_twin(one: Answer, other: Answer) -> bool:
    short, long = sorted((one.key, other.key), key=len)
    if one.key == other.key:
        return True
    is_mixed = bool(one.quote.by) != bool(other.quote.by)
    return is_mixed and len(short) >= MIN_TWIN and short in long


def _terms(query: str) -> list[str]:
    """A query's words by how they begin, and its Chinese in pairs of characters, each once."""
    runs = _CJK.findall(query)
    pairs = [run[at : at + 2] for run in runs for at in range(max(1, len(run) - 1))]
    words = [word[:STEM] for word in _WORD.findall(query.lower())]
    return list(dict.fromkeys(words + pairs))


def _bare(text: str) -> str:
    """A line without its bullet and time."""
    return markdown.untimed(markdown.unlisted(text))


def _is_cjk(text: str) -> bool:
    """True when a text is mostly Chinese, Japanese or Korean; a character counts as half a word."""
    characters = sum(map(len, _CJK.findall(text)))
    return characters > 2 * len(_WORD.findall(text))
