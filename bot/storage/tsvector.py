"""Words as PostgreSQL's full text takes them: spelled out here, not made by the server. Pure.

The server would split and stem by its locale and dictionaries, which differ between servers; the
words are those of the file's full-text index (`fulltext.Words`), so both find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from bot.storage import fulltext

# What the server takes: 16 383 places and 1 MB a vector, 2 KB a word, 255 places of one word.
PART_PLACES = 16_000
PART_BYTES = 500_000
MAX_WORD = 500  # bytes; a longer one is known by its digest
MAX_PLACES = 250
_DIGEST: Final = "\ue002"  # begins the digest of a long word, and no word


def vectors(tokens: Sequence[str]) -> list[str]:
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


def query(tokens: Sequence[str]) -> str:
    """The words of one of `fulltext.phrases` as a query; empty when there are none."""
    if len(tokens) == 2 and _is_pair(*tokens):
        return _quoted(_word("".join(tokens)))
    return " <-> ".join(_quoted(_word(token)) for token in tokens)


def _is_pair(one: str, other: str) -> bool:
    return fulltext.is_cjk(one) and fulltext.is_cjk(other)


def _word(token: str) -> str:
    data = token.encode()
    if len(data) <= MAX_WORD:
        return token
    return _DIGEST + blake2b(data, digest_size=16).hexdigest()


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
