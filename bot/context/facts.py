"""Finding what in a person's messages is worth keeping, without a model. Pure.

Nothing is written here, only picked: whole sentences, in the words they were said in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bot.context import lasting, statements, wording
from bot.context.quoting import clipped

# What cannot be understood without what was said before it.
_LEANS = re.compile(
    r"^(?:that['’]?s?|it['’]?s?|this|these|those|he|she|they|him|her|there)\b|^(?:这|那|它|他"
    r"|她|是|也|还)",
    re.IGNORECASE,
)


def stated(messages: Iterable[str]) -> list[str]:
    """What a person's own messages state that will matter later, oldest first, each once.

    Questions, wishes to the bot, small talk, moods, jokes, what they quote, take back or want
    nobody to note, and secrets are not among them.
    """
    found: dict[frozenset[str], str] = {}
    for sentence in statements.read(list(messages)):
        if sentence.kind == "said" and (fact := _fact(sentence.text)):
            found[wording.words(fact)] = fact
    kept: list[tuple[frozenset[str], str]] = []
    for key, fact in found.items():
        kept = [(other, text) for other, text in kept if not wording.alike(other, key)]
        kept.append((key, fact))
    return [fact for _, fact in kept]


def unknown(facts_: Sequence[str], known: Iterable[str]) -> list[str]:
    """Those facts that none of the known texts says already, line by line."""
    there = [line for text in known for line in statements.sentences(text)]
    keys = [wording.words(line) for line in there]
    return [
        fact
        for fact in dict.fromkeys(facts_)
        if not any(wording.alike(wording.words(fact), key) for key in keys)
        and not any(wording.says(line, fact) for line in there)
    ]


def _fact(sentence: str) -> str:
    """A sentence as a fact, without what leads to it; empty when it is none."""
    bare = statements.bare(sentence)
    if not bare or leans(bare):
        return ""
    if not (
        lasting.is_lasting(bare)
        or (statements.is_announced(sentence) and len(wording.words(bare)) > 1)
    ):
        return ""
    return clipped(bare)


def leans(sentence: str) -> bool:
    """True when a sentence cannot be understood without what was said before it."""
    return _LEANS.match(sentence.lstrip("，, ")) is not None
