"""Finds in what people write what they wish to have kept, and in a reply the claim to have kept it.

The phrases of each language are data, in `phrases.toml`. They stand at the beginning or at the end
of a sentence; nothing else is understood. Pure, and linear in the length of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from bot.context import sentences, wording
from bot.context.phrases import NAMED, Kind, folded, phrases
from bot.sessions import time_phrases

MOST: Final = 5  # wishes of one message
TAIL: Final = 120  # characters of a sentence in which the phrase at its end is looked for
STATED: Final = 600  # characters of what a message states, to be kept because a reply claims it was
CONTENT: Final = 2  # words, beside those that only hold a sentence together, that make a statement

_AROUND: Final = " ,，、:：;；–—-?？؟¿،.。!！…"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be kept, in the person's words, or what it `lacks`.

    It points to what was said "before", has nothing but what is "quoted", or is too "long".
    """

    words: str
    lacks: Literal["", "before", "quoted", "long"] = ""


def find(message: str) -> tuple[Wish, ...]:
    """What a message asks to keep, at most `MOST`; what it asks to be reminded of is not among it.

    Nothing of a quotation, nor of what follows the first `sentences.LONGEST_MESSAGE` characters.
    """
    head = message[: sentences.LONGEST_MESSAGE]
    (own,) = sentences.own([head])
    found: list[Wish] = []
    before = ""  # what was stated just before, which "remember that" is about
    goes_on = False  # after "remember the following:"
    every = sentences.split(own)
    for number, sentence in enumerate(every):
        words, asks = _kept(sentence), sentences.is_question(sentence)
        if words is None:
            goes_on = goes_on and not asks
            if goes_on:
                found[-1] = Wish(f"{found[-1].words}\n{sentence}".strip())
            before = "" if asks else sentence
            continue
        if len(found) == MOST:
            break
        goes_on = not words and sentence.endswith((":", "："))
        if len(head) < len(message) and number == len(every) - 1:
            found.append(Wish("", "long"))
        elif words or before:
            found.append(Wish(words or before))
        else:
            is_whole = own.strip() == head.strip()
            found.append(Wish("", "before" if is_whole else "quoted"))
        before = ""
    return tuple(found)


def asks_to_keep(message: str) -> bool:
    """True for a message that asks that something be kept."""
    return bool(find(message))


def reminder(message: str) -> str | None:
    """What a message asks to be reminded of, and when, in its words; None when it does not."""
    (own,) = sentences.own([message[: sentences.LONGEST_MESSAGE]])
    found = map(_reminder, sentences.split(own))
    return next((words for words in found if words is not None), None)


def claims(reply: str) -> bool:
    """True for a reply that says something was, or will be, kept."""
    head = reply[: sentences.LONGEST_MESSAGE]
    search = phrases().claims.search
    return any(search(folded(sentence)) for sentence in sentences.split(head))


def stated(message: str) -> str:
    """What a message states in its sender's own words, for keeping it: no question, no wish.

    Empty when that is nothing, or more than `STATED` characters.
    """
    (own,) = sentences.own([message])
    kept = " ".join(each for each in sentences.split(own) if _states(each))
    return kept if len(kept) <= STATED and len(wording.stems(kept)) >= CONTENT else ""


def _states(sentence: str) -> bool:
    is_wish = _kept(sentence) is not None or _reminder(sentence) is not None
    return not (is_wish or sentences.is_question(sentence))


def _kept(sentence: str) -> str | None:
    """What a sentence asks to keep, empty when it points back; None when it asks for nothing."""
    known, asks = phrases(), sentences.is_question(sentence)
    kind, rest = _head(sentence)
    small, tail = folded(sentence), max(0, len(sentence) - TAIL)
    if kind == "remind" or known.reminding.search(small, tail):
        return None
    words = rest if kind == "asking" or (kind and not asks) else None
    if words is None:
        found = known.ending.search(small, tail)
        at = None if found is None else found.start()
        if at is None and not asks and (clause := known.clause(known.behind, small, tail)):
            at, _ = clause
        if at is None:
            return None
        words = sentence[:at]
    words = words.strip(_AROUND)
    return "" if known.points_back(folded(words)) else words


def _reminder(sentence: str) -> str | None:
    kind, rest = _head(sentence)
    if kind == "remind":
        return rest.strip(_AROUND)
    said = sentence[phrases().opened(folded(sentence)) :]
    if end := time_phrases.beginning(said):  # "tomorrow at 9, please remind me to …"
        kind, rest = _head(said[end:].lstrip(_AROUND))
        if kind == "remind":
            return f"{said[:end]} {rest}".strip(_AROUND)
    found = phrases().reminding.search(folded(sentence), max(0, len(sentence) - TAIL))
    return None if found is None else sentence.strip(_AROUND)


def _head(sentence: str) -> tuple[Kind | None, str]:
    """What the longest phrase at the beginning of a sentence asks for, and what follows it."""
    small, known = folded(sentence), phrases()
    opened = known.opened(small)
    called = NAMED.match(small, opened)
    for start in (opened, known.opened(small, called.end()) if called else opened):
        best, kind, by = start, None, None
        for language in known.languages:
            for each, pattern in language.heads:
                found = pattern.match(small, start)
                if found and found.end() >= best + (each != "remind"):
                    best, kind, by = found.end(), each, language
        if by is not None:
            rest = sentence[best:].lstrip(_AROUND)
            # "remind me of you" asks for nothing, and "remind me of the party at 6pm" does.
            is_timed = kind == "remind" and time_phrases.find(rest) is not None
            return (kind, rest) if is_timed or not by.never.match(folded(rest)) else (None, "")
    return None, ""
