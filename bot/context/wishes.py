"""Finds in what people write what they wish to have kept, and in a reply the claim to have kept it.

The phrases of each language are data, in `phrases.toml`. They stand at the beginning or at the end
of a sentence; nothing else is understood. Pure, and linear in the length of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bot.context import sentences
from bot.context.sentences import NAMED, Kind, folded, phrases, requests
from bot.sessions import due_time

MOST: Final = 5  # wishes of one message
TAIL: Final = 120  # characters of a sentence in which the phrase at its end is looked for
STATED: Final = 600  # characters of what a message states, to be kept because a reply claims it was
REQUEST: Final = 100  # characters of a message that only asks to read something
CONTENT: Final = 2  # words, beside those that only hold a sentence together, that make a statement

_AROUND: Final = " ,，、:：;；–—-?？؟¿،.。!！…"


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish to keep something, in the person's words, or what it `lacks`.

    It points to what was said "before", has nothing but what is "quoted", or is too "long".
    """

    words: str
    lacks: Literal["", "before", "quoted", "long"] = ""


@dataclass(frozen=True, slots=True)
class MessageWishes:
    """The wishes of a message, at most `MOST`, and what it asks to be reminded of.

    The latter says when, too, as far as the message does; None when it asks for no reminder.
    """

    wishes: tuple[Wish, ...] = ()
    reminder: str | None = None


def read(message: str) -> MessageWishes:
    """The wishes and the reminder in a message.

    Nothing of a quotation, nor of what follows the first `sentences.LONGEST_MESSAGE` characters.
    """
    head = message[: sentences.LONGEST_MESSAGE]
    (own,) = sentences.own([head])
    every = [_Sentence(each) for each in sentences.split(own)]
    is_whole, is_cut = own.strip() == head.strip(), len(head) < len(message)
    reminders = (each.reminder for each in every)
    return MessageWishes(
        tuple(_wishes(every, is_whole=is_whole, is_cut=is_cut)),
        next((words for words in reminders if words is not None), None),
    )


def _wishes(every: Sequence[_Sentence], *, is_whole: bool, is_cut: bool) -> list[Wish]:
    """The wishes in sentences; `is_whole` if no quotation was left out of them."""
    found: list[Wish] = []
    before = ""  # what was stated just before, which "remember that" is about
    goes_on = False  # after "remember the following:"
    for number, each in enumerate(every):
        sentence, words, asks = each.text, each.kept, each.asks
        if words is None:
            goes_on = goes_on and not asks
            if goes_on:
                found[-1] = Wish(f"{found[-1].words}\n{sentence}".strip())
            before = "" if asks else sentence
            continue
        if len(found) == MOST:
            break
        goes_on = not words and sentence.endswith((":", "："))
        if is_cut and number == len(every) - 1:
            found.append(Wish("", "long"))
        elif words or before:
            found.append(Wish(words or before))
        else:
            found.append(Wish("", "before" if is_whole else "quoted"))
        before = ""
    return found


def asks_to_keep(message: str) -> bool:
    """True for a message that asks that something be kept."""
    return bool(read(message).wishes)


def asks_to_read(message: str) -> Literal["", "notes", "last talk"]:
    """The request in a message to read: "what do you know about me?", "what did we talk about?"."""
    words = folded(message.strip())
    if len(words) > REQUEST:
        return ""
    if requests().notes.fullmatch(words):
        return "notes"
    return "last talk" if requests().last_talk.fullmatch(words) else ""


def claims(reply: str) -> bool:
    """True for a reply that says something was, or will be, kept."""
    head = reply[: sentences.LONGEST_MESSAGE]
    search = phrases().claims.search
    return any(search(folded(sentence)) for sentence in sentences.split(head))


def stated(message: str) -> str:
    """The statements of a message in its sender's own words: no question, no wish.

    Empty when that is nothing, or more than `STATED` characters.
    """
    (own,) = sentences.own([message])
    every = (_Sentence(each) for each in sentences.split(own))
    kept = " ".join(
        each.text
        for each in every
        if not (each.asks or each.kept is not None or each.reminder is not None)
    )
    return kept if len(kept) <= STATED and len(sentences.stems(kept)) >= CONTENT else ""


class _Sentence:
    """A sentence, and what it asks for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asks = sentences.is_question(text)
        self._small = folded(text)
        self._tail = max(0, len(text) - TAIL)
        self._kind, self._rest = _head(text, self._small)
        self._reminds = phrases().reminding.search(self._small, self._tail) is not None

    @property
    def kept(self) -> str | None:
        """The words it asks to keep, empty when it points back; None when it asks for nothing."""
        known, kind, asks = phrases(), self._kind, self.asks
        if kind == "remind" or self._reminds:
            return None
        words = self._rest if kind == "asking" or (kind and not asks) else None
        if words is None:
            found = known.ending.search(self._small, self._tail)
            at = None if found is None else found.start()
            if at is None and not asks:
                clause = known.clause(known.behind, self._small, self._tail)
                at = clause[0] if clause else None
            if at is None:
                return None
            words = self.text[:at]
        words = words.strip(_AROUND)
        return "" if known.points_back(folded(words)) else words

    @property
    def reminder(self) -> str | None:
        """The words it asks to be reminded of, and when; None when it asks for no reminder."""
        if self._kind == "remind":
            return self._rest.strip(_AROUND)
        if phrases().remind.search(self._small):  # "tomorrow at 9, please remind me to …"
            said = self.text[phrases().opened(self._small) :]
            end = due_time.beginning(said)
            then = said[end:].lstrip(_AROUND)
            kind, rest = _head(then, folded(then)) if end else (None, "")
            if kind == "remind":
                return f"{said[:end]} {rest}".strip(_AROUND)
        return self.text.strip(_AROUND) if self._reminds else None


def _head(sentence: str, small: str) -> tuple[Kind | None, str]:
    """The kind of the longest phrase at the beginning of a sentence, and what follows it.

    `small` is the sentence, `folded`.
    """
    known = phrases()
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
            is_timed = kind == "remind" and due_time.find(rest) is not None
            return (kind, rest) if is_timed or not by.never.match(folded(rest)) else (None, "")
    return None, ""
