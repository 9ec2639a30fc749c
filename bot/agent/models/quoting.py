"""How the offline model says what it found: word for word, with where it stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from bot import i18n
from bot.agent.models.intent import Recall, query_of, understand
from bot.facts import Quote
from bot.sessions import when

QUOTES = 3
QUOTE_LENGTH = 300  # characters of what was said
NOTE_LENGTH = 700  # of a passage of notes, which may hold several entries
LIKELY = 0.15  # how well a passage in other words matches; what has nothing to do with it less
WHOLE_LINES = 3  # of a note are quoted whether they answer or not
STEM = 4  # letters two words begin with to count as one: "allergic" and "allergies"

# Of this model's own answers, by how they begin.
_OWN_HEADS: Final = (
    *("offline.intro", "offline.short", "offline.found", "offline.before", "offline.nothing"),
    *("offline.not_searched", "offline.no_search", "offline.no_store", "offline.stored"),
    *("offline.stored_already", "offline.not_stored", "offline.remember_what"),
    *("offline.not_reminding", "offline.no_reminders", "reminder.set", "reminder.what"),
    *("reminder.long", "reminder.usage", *(f"reminder.problem_{p.value}" for p in when.Problem)),
)
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]+")
_WORD = re.compile("[^\\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]+")


def best(quotes: Sequence[Quote], question: str) -> list[Quote]:
    """The few that may answer a question: by a word in common, or because they match it well."""
    wanted = _terms(query_of(question))
    useful = (
        quote
        for quote in _useful(quotes, question)
        if _has_any(quote.text, wanted) or (quote.match or 0.0) >= LIKELY
    )
    return list(useful)[:QUOTES]


def quoted(language: str, quote: Quote, question: str, *, cite: bool) -> str:
    """One of them, as a person reads it; of a long passage the lines that answer."""
    if quote.by:
        text = _clipped(" ".join(quote.text.split()), QUOTE_LENGTH)
        return i18n.text(language, f"offline.said_{quote.by}", date=quote.where[0], text=text)
    where = quote.where[0] if cite else i18n.text(language, "offline.notes")
    kept = _clipped(quote.text, NOTE_LENGTH).splitlines()
    lines = [line for line in kept if line.strip() and not line.startswith("#")] or kept
    if len(lines) > WHOLE_LINES:
        wanted = _terms(query_of(question))
        lines = [line for line in lines if _has_any(line, wanted)] or lines
    if len(lines) == 1:
        return i18n.text(language, "offline.noted", where=where, text=" ".join(lines[0].split()))
    head = i18n.text(language, "offline.noted_lines", where=where)
    return "\n".join([head, "", *(f"> {line}" for line in lines)])


def _has_any(text: str, wanted: Sequence[str]) -> bool:
    """Whether a text has one of some words, or of some pieces of Chinese."""
    lowered = text.lower()
    words = {word[:STEM] for word in _WORD.findall(lowered)}
    return any(term in words if _WORD.fullmatch(term) else term in lowered for term in wanted)


def _terms(query: str) -> list[str]:
    """A query's words by how they begin, and its Chinese in pairs of characters."""
    runs = _CJK.findall(query)
    pairs = [run[at : at + 2] for run in runs for at in range(max(1, len(run) - 1))]
    return [word[:STEM] for word in _WORD.findall(query.lower())] + pairs


def _useful(quotes: Sequence[Quote], question: str) -> Iterator[Quote]:
    """Quotes that can answer: the person's own words first, without what they only asked."""
    seen = {question.strip()}
    for quote in sorted(quotes, key=lambda quote: quote.by == "assistant"):
        text = quote.text.strip()
        if text in seen or not text:
            continue
        seen.add(text)
        asked = quote.by in {"user", "said"} and isinstance(understand(text), Recall)
        own = quote.by in {"assistant", "said"} and _is_own_answer(text)
        if not asked and not own:
            yield quote


def _is_own_answer(text: str) -> bool:
    """Whether this model wrote it, so that quoting it would quote a quote."""
    catalogs = [i18n.catalog(language) for language in i18n.LANGUAGES]
    heads = (catalog[key].split("{")[0] for catalog in catalogs for key in _OWN_HEADS)
    return text.startswith(tuple(head for head in heads if head))


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
