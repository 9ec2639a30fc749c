"""Whose words are about to be kept, and whether memory has them already. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.agent.tools import Recalled, ToolContext
from bot.memory import markdown
from bot.memory.markdown import Provenance
from bot.memory.notes import Place

OWN_SHARE = 0.6  # of the words must be the person's, for it to be what they said
LONG = 30  # characters; a shorter text may stand inside another by chance

_FIRST_CJK = "\u2e80"


def provenance_of(text: str, context: ToolContext, *, untrusted: bool) -> Provenance:
    """Whose words a text is made of: the person's in this turn, others' it quoted, or the bot's.

    In a room nobody's words count as the owner's. What is made of recalled words that are marked
    as untrusted stays untrusted.
    """
    own = context.memory.words
    doubtful = (markdown.untrusted_lines(passage.text) for passage in context.memory.recalled)
    quoted = (*context.memory.quoted, *("\n".join(lines) for lines in doubtful))
    if untrusted or _share(text, quoted) > max(OWN_SHARE, _share(text, own)):
        return "untrusted"
    return "owner" if context.view.private and _share(text, own) >= OWN_SHARE else "agent"


def already(text: str, recalled: Sequence[Recalled], files: Mapping[str, str]) -> Place | None:
    """Where exactly this stands, in what was recalled in this turn or in one of the files."""
    wanted = markdown.normal(text)
    for path, content in files.items():
        line = markdown.says(content, text)
        if line:
            return Place(path, line)
    for passage in recalled:
        for number, line in enumerate(passage.text.split("\n")):
            if markdown.entry_words(line.strip().lstrip("-*+ ")) == wanted:
                return Place(passage.place.path, passage.place.line + number)
        if len(wanted) >= LONG and wanted in markdown.normal(markdown.plain(passage.text)):
            return passage.place
    return None


def _share(text: str, others: Sequence[str]) -> float:
    """How much of a text, from 0 to 1, is made of words that stand in one of the others.

    In one, not in all together: a long conversation has nearly every word somewhere.
    """
    words = _words(text)
    if not words:
        return 0.0
    shares = (_count(words, frozenset(_words(other))) for other in others)
    return max(shares, default=0) / len(words)


def _count(words: Sequence[str], there: frozenset[str]) -> int:
    return sum(word in there for word in words)


def _words(text: str) -> list[str]:
    """The words of a text; scripts without spaces give their characters."""
    found: list[str] = []
    for word in markdown.normal(text).split():
        found.extend([word] if word[0] < _FIRST_CJK else word)
    return found
