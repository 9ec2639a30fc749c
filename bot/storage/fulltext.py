"""Words of a text for the full-text index, in every script.

SQLite's tokenizer takes a run of Chinese, Japanese or Korean characters for one word, so nothing
inside it is ever found. Here every such character stands alone, both when text is indexed and, as
a phrase, when it is searched; other scripts keep their words.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import apsw

from bot.unicode import normal_form

MAX_QUERY_TERMS = 64
TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2"])

_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3100-\u312f\u3130-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_CJK_CHARACTER = re.compile(f"([{_CJK}])")
_TERM = re.compile(f"[{_CJK}]+|[^\\W{_CJK}]+")
_STARTS_CJK = re.compile(f"[{_CJK}]")

# Zero-width characters, marks of direction, soft hyphens and selectors of variants: Unicode's
# Default_Ignorable_Code_Point, which nobody sees.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)

# Words so common that a query made of other words too is better without them.
_STOP_WORDS = frozenset(
    """a about am an and are as at be been but by can could d did didn do does doesn don for
    from had has have he her him his how i if in is isn it its ll m me my of on or our re s
    she so t that the their them then there they this to ve was wasn we were what when where
    which who whom why will with would you your""".split()  # noqa: SIM905
)
# Characters that mostly hold a Chinese sentence together; two of them in a row say nothing.
FUNCTION_CHARACTERS = frozenset(
    "的了吗呢吧啊是在我你您他她它们和与及就都也很不没有这那个么什哪怎几谁为被把给"
)


def spaced(text: str) -> str:
    """The text with a space around every CJK character, as the index stores it."""
    if text.isascii():
        return text
    return _CJK_CHARACTER.sub(r" \1 ", text.encode("utf-8", "replace").decode())


def folded(text: str) -> str:
    """A text as it is compared: case, spacing, Unicode form and invisible characters do not count.

    A quote's line breaks are spaces too.
    """
    if not text.isascii():
        text = _INVISIBLE.sub("", normal_form("NFKC", text))
    return " ".join(text.replace("\n>", "\n").casefold().split())


def holds_any(text: str, words: Iterable[str]) -> bool:
    """True when a text holds any of these words, as they are compared."""
    wanted = [folded(each) for each in words]
    told = folded(text) if wanted else ""
    return any(each in told for each in wanted)


def runs(text: str) -> list[str]:
    """The words of a text: a run of CJK characters, or of letters and digits of other scripts."""
    return _TERM.findall(text)


def is_cjk(run: str) -> bool:
    """True if one of `runs` is of CJK characters."""
    return _STARTS_CJK.match(run) is not None


def is_stop_word(word: str) -> bool:
    """True if a word is so common that it says nothing by itself."""
    return word.lower() in _STOP_WORDS


def is_function_character(character: str) -> bool:
    """True if a CJK character mostly holds sentences together."""
    return character in FUNCTION_CHARACTERS


def has_content(text: str) -> bool:
    """True when a text has a word that says something by itself."""
    return any(
        not (FUNCTION_CHARACTERS.issuperset(run) if is_cjk(run) else is_stop_word(run))
        for run in runs(text)
    )


def phrases(query: str) -> list[str]:
    """The terms of a query: its content words, or any two neighbouring CJK characters.

    Empty when the query has no word at all. A single CJK character stands for itself; a longer run
    is asked for as overlapping pairs, so that a sentence finds the words inside it.
    """
    terms: list[str] = []
    for term in runs(query):
        if is_cjk(term):
            pairs = [term[i : i + 2] for i in range(len(term) - 1)] or [term]
            terms.extend(" ".join(pair) for pair in pairs)
        else:
            terms.append(term.lower())
    unique = list(dict.fromkeys(terms))
    content = [term for term in unique if term not in _STOP_WORDS]
    return (content or unique)[:MAX_QUERY_TERMS]


def match_query(query: str) -> str:
    """The `phrases` of a query as FTS5 spells them."""
    return " OR ".join(f'"{phrase}"' for phrase in phrases(query))


def tokenizer(connection: apsw.Connection) -> Callable[[str], list[str]]:
    """FTS5's own tokenizer, so that Python sees the words as it does."""
    call: Any = connection.fts5_tokenizer(*TOKENIZER)

    def tokenize(text: str) -> list[str]:
        data = text.encode("utf-8", "replace")
        return call(
            data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )

    return tokenize


class Words:
    """The words of texts as the file's full-text index has them; for any number of threads."""

    def __init__(self) -> None:
        self._tokenize = tokenizer(apsw.Connection(":memory:"))
        self._lock = threading.Lock()  # a connection is one thread's at a time

    def of(self, text: str) -> list[str]:
        """The words of a text, in order; each CJK character is one."""
        with self._lock:
            return self._tokenize(spaced(text))


def score(bm25: float) -> float:
    """FTS5's bm25 (negative, lower is better) as a score from 0 to 1, higher is better."""
    strength = abs(bm25)
    return strength / (1.0 + strength)


# Words as PostgreSQL's full text takes them: spelled out here, not made by the server. Pure.
#
# The server would split and stem by its locale and dictionaries, which differ between servers;
# the words are those of the file's full-text index (`fulltext.Words`), so both find the same.

# What the server takes: 16 383 places and 1 MB a vector, 2 KB a word, 255 places of one word.
PART_PLACES = 16_000
PART_BYTES = 500_000
MAX_WORD = 500  # bytes; a longer one is known by its digest
MAX_PLACES = 250
_DIGEST: Final = "\ue002"  # begins the digest of a long word, and no word


def tsvectors(tokens: Sequence[str]) -> list[str]:
    """The words of a text with their places, in as many vectors as the server's limits ask for.

    Two neighbouring CJK characters are a word too: as a phrase, every text that holds both of them
    anywhere would have to be looked at, and places beyond the limits would not be found.
    """
    parts: list[dict[str, list[int]]] = [{}]
    place = size = 0
    before = ""
    for token in tokens:
        if place >= PART_PLACES or size >= PART_BYTES:
            parts.append({_word(before): [1]})  # so that no phrase is cut
            place, size = 1, 0
        place += 1
        both = [token, before + token] if _is_pair(before, token) else [token]
        for word in map(_word, both):
            places = parts[-1].setdefault(word, [])
            size += 2 if places else len(word.encode()) + 8
            if len(places) < MAX_PLACES:
                places.append(place)
        before = token
    return [
        " ".join(f"{_quoted(word)}:{','.join(map(str, at))}" for word, at in part.items())
        for part in parts
        if part
    ]


def tsquery(tokens: Sequence[str]) -> str:
    """The words of one of `fulltext.phrases` as a query; empty when there are none."""
    if len(tokens) == 2 and _is_pair(*tokens):
        return _quoted(_word("".join(tokens)))
    return " <-> ".join(_quoted(_word(token)) for token in tokens)


def _is_pair(one: str, other: str) -> bool:
    return is_cjk(one) and is_cjk(other)


def _word(token: str) -> str:
    data = token.encode()
    if len(data) <= MAX_WORD:
        return token
    return _DIGEST + blake2b(data, digest_size=16).hexdigest()


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
