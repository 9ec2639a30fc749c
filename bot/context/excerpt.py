"""Picks out of a conversation what a summary must not lose; no model is asked. Pure.

Nothing is written here, only picked: whole sentences, in the words they were said in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bot.context import sentences, tokens, wording
from bot.context.quoting import Said, Who, clipped

MOST_NUMBERS, MOST_LINKS, MOST_QUESTIONS = 30, 7, 5  # with their headings 15 lines
LONGEST_LINK, LONGEST_QUESTION = 200, 140  # characters
LAST: Final = 4  # lines of a conversation that show where it stands

_LINK = re.compile(r"https?://[^\s<>\"'”）)\]]+|\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_NUMBER = re.compile(
    r"[€$£¥#]?(?<![\dA-Za-z])(?:[A-Z]{1,6}-?)?\d[\dA-Za-z.,:/-]{0,24}\s?[%€°元月日号岁点年]?"
)
_TELLING = re.compile(r"\w\D*\w\D*\w")  # more than one or two digits, as "in 20 minutes" has
_NAME = re.compile(r"(?<=[\w,] )[A-ZÀ-Þ][^\W\d_]{2,}")
_WORTH: Final[Mapping[Who, float]] = {
    "summary": 2, "memory": 2, "person": 1, "other": 0.5, "result": 0.5, "failure": 0.5,
    "assistant": -1,
}  # fmt: skip
_LABELS: Final[Mapping[Who, str]] = {
    "other": "(passed on) ",
    "assistant": "(assistant) ",
    "result": "(tool) ",
    "failure": "(tool failed) ",
}


def checklist(said: Sequence[Said]) -> str:
    """The latest links and numbers of a conversation and its open questions, in up to 15 lines."""
    text = "\n".join(each.text for each in said if each.who != "assistant")
    links = [link for link in _latest(_LINK, text) if len(link) <= LONGEST_LINK]
    numbers = _latest(_NUMBER, _LINK.sub(" ", text))
    asked = [
        clipped(sentence, LONGEST_QUESTION)
        for each in _unanswered(said)
        for sentence in sentences.split(each.text)
        if sentences.is_question(sentence)
    ]
    parts = (
        ("Links:", links[:MOST_LINKS]),
        ("Numbers:", [", ".join(numbers[:MOST_NUMBERS])] if numbers else []),
        ("Not answered:", asked[-MOST_QUESTIONS:]),
    )
    return "\n".join(line for head, lines in parts if lines for line in (head, *lines))


def _latest(pattern: re.Pattern[str], text: str) -> list[str]:
    """What a pattern finds in a text, each once, the latest first."""
    found = (match.group().strip(" .,:;/-") for match in pattern.finditer(text))
    return list(dict.fromkeys(reversed(list(found))))


def _unanswered(said: Sequence[Said]) -> Sequence[Said]:
    """What was said since the assistant's last words, and these themselves."""
    talk = [each for each in said if each.who in {"person", "assistant"}]
    last = max((n for n, each in enumerate(talk) if each.who == "assistant"), default=0)
    return talk[last:]


@dataclass(frozen=True, slots=True)
class _Candidate:
    place: int
    text: str
    score: float


def summarise(said: Sequence[Said], limit: int) -> str:
    """The sentences that matter most, as a list of at most about `limit` tokens, in their order.

    What was summarised before comes first, then open questions, the last exchange, and sentences
    with links, numbers or names. What repeats is there once, in its latest words.
    """
    found = dict(_candidates(said))
    chosen: list[_Candidate] = []
    room = limit
    for each in sorted(found.values(), key=lambda each: (-each.score, -each.place)):
        cost = tokens.estimate(each.text) + 1
        if cost <= room and (each.score > 0 or not chosen):
            chosen.append(each)
            room -= cost
    chosen.sort(key=lambda each: each.place)
    return "\n".join(f"- {each.text}" for each in chosen)


def _candidates(said: Sequence[Said]) -> Iterator[tuple[frozenset[str], _Candidate]]:
    """Every sentence with what makes it the same as another one: its words."""
    lines = [each for each in said if each.who in _WORTH]
    open_ = {id(each) for each in _unanswered(lines)}
    place = 0
    for number, each in enumerate(lines):
        # A result begins with the tool's name.
        text = each.text.partition(": ")[2] if each.who == "result" else each.text
        for sentence in sentences.split(text):
            words = wording.words(sentence)
            if not words:
                continue
            place += 1
            asks = sentences.is_question(sentence)
            exact = [*_LINK.findall(sentence), *_NUMBER.findall(sentence)]
            score = _WORTH[each.who] + number / len(lines) + 2 * (number >= len(lines) - LAST)
            score += bool(exact) + any(map(_TELLING.search, exact)) + bool(_NAME.search(sentence))
            score += 4 * (asks and id(each) in open_) - 2 * asks  # an answered one says little
            # What machines say in the same form again and again counts once.
            plain = frozenset(word for word in words if word.isalpha())
            key = plain if plain and each.who in _LABELS else words
            yield key, _Candidate(place, _LABELS.get(each.who, "") + clipped(sentence), score)
