"""Who says a line, and which words of a question are names. Pure.

In a conversation that was written down a line begins with its speaker: `Ada: …`, `- 14:03 Ada: …`,
`Ada Lovelace: …`. A word of a question that is such a label anywhere among the candidates is a
name: it tells whose words are asked for, and says little about which of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.memory.chunking import Unit
from bot.memory.vectors import Array, np
from bot.memory.words import Matches, Query, Text, Tokenize

BEFORE = 0.7  # of what the line before has of a question: an answer follows what it answers
AFTER = 0.5  # of what the line after has
NOTHING = 1e-9
LONGEST = 48  # characters within which a label ends

_COLONS = (":", "\uff1a")
_LABEL = re.compile(
    r"(?:[-*+>]\s+)?(?:[\[(]?\d{1,2}:\d\d(?::\d\d)?[\])]?\s+)?(?:\*\*)?"
    r"(?P<name>[^\W\d_][\w'\u2019.-]*(?: [^\W\d_][\w'\u2019.-]*){0,2})(?:\*\*)?\s?[:\uff1a](?!//)"
)
_FIRST_PERSON = re.compile(
    r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|[Oo]ur|[Uu]s)\b|[\u6211\u54b1]"
)


def label(line: str) -> str:
    """The speaker a line begins with; empty when it begins with none."""
    head = line[:LONGEST]
    found = _LABEL.match(head) if any(colon in head for colon in _COLONS) else None
    return found["name"] if found else ""


def labels(units: Sequence[Unit]) -> list[str]:
    """Who says each line of a passage; nobody anywhere when most of its lines do not tell."""
    if not any(colon in unit.text for unit in units for colon in _COLONS):
        return [""] * len(units)
    found = [label(unit.text) for unit in units]
    lines = [u for u in units if u.text.strip() and not u.continues and not u.text.startswith("#")]
    return found if 2 * sum(map(bool, found)) >= len(lines) else [""] * len(units)


def is_first_person(line: str) -> bool:
    """Whether a line speaks of who says it."""
    return _FIRST_PERSON.search(line) is not None


class Speakers:
    """Who says the lines of some texts, as far as a question asks for that.

    `are_known` when anybody does; `names` are the places of those of its terms that are names, and
    `others` tells the lines that nobody says who was asked for.
    """

    def __init__(self, texts: Sequence[Text], query: Query, tokenize: Tokenize) -> None:
        names = [name for text in texts for name in labels(text.units)]
        tokens = {
            name: frozenset(tokenize(name)) if name else frozenset[str]() for name in {*names}
        }
        every = frozenset[str]().union(*tokens.values())
        self.are_known = bool(every)
        self.names = [at for at, term in enumerate(query.terms) if every.issuperset(term.tokens)]
        wanted = frozenset(token for at in self.names for token in query.terms[at].tokens)
        # Where nobody is asked for by name, anybody may say it.
        self.others = np.array([bool(wanted) and not wanted & tokens[name] for name in names])

    def said(self, texts: Sequence[Text], found: Matches, shares: Array) -> tuple[Array, list[int]]:
        """What the best line of each text has of the rest of a question, and the row of that line.

        A line has something of what stands beside it. Only lines of who was asked for count.
        """
        rest = shares.copy()
        rest[self.names] = 0.0
        rest /= max(float(rest.sum()), NOTHING)
        own: Array = found.units @ rest
        worth = own.copy()
        for text in texts:
            first, last = text.first, text.first + len(text.units) - 1
            part = worth[first : last + 1]
            np.maximum(part[1:], BEFORE * own[first:last], out=part[1:])
            np.maximum(part[:-1], AFTER * own[first + 1 : last + 1], out=part[:-1])
        worth[self.others] = 0.0
        spans = [slice(text.first, text.first + len(text.units)) for text in texts]
        best = [span.start + int(worth[span].argmax()) for span in spans]
        return worth[best], best

    def named(self, found: Matches) -> Array:
        """1 for each text that has one of the question's names, or when it has none."""
        if not self.names:
            return np.ones(len(found.counts), np.float32)
        return found.counts[:, self.names].max(axis=1) > 0
