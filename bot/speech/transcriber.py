"""The seam for what understands speech."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bot.channel.kit.text import parser
from bot.i18n import text

if TYPE_CHECKING:
    from markdown_it.token import Token


@dataclass(frozen=True, slots=True)
class Audio:
    """Something that was said; `name` and `mime` are what the platform says of it, or empty."""

    data: bytes
    name: str = ""
    mime: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was understood. `is_cut` is True when that is only the beginning.

    Tokens are those a service says it used; 0 where it tells none.
    """

    text: str
    is_cut: bool = False
    input_tokens: int = 0
    output_tokens: int = 0


class Transcriber(Protocol):
    """Understands what people say."""

    async def transcribe(self, person: str, audio: Audio) -> Transcript:
        """The words of a person's voice message, always in bounded time.

        Raises:
            Unreadable: nothing was understood; the reason says why.
        """
        ...

    async def close(self) -> None:
        """End what is being done."""
        ...


# What of a reply is said aloud: its words, without what only the eye can read. Pure.

MOST = 2_000  # characters, about two minutes; services take 4 096
_URL = re.compile(r"https?://(?:www\.)?([^\s/?#]+)\S*")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_SIGNS = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u200d\ufe0f]")
_SENTENCE = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)]*+(?=\s)|[。！？]|\n")


def speakable(markdown: str, language: str) -> str:
    """The words of a reply to say; empty when there are none.

    A long one ends with a sentence, and says that the rest is to be read, as it does of code and
    tables.
    """
    cut = markdown[: 4 * MOST]  # marks and what is left out take room as well
    lines = [" ".join(line.split()) for line in _lines(parser().parse(cut), language)]
    words = "\n".join(line for line in lines if any(char.isalnum() for char in line))
    if len(words) <= MOST and cut == markdown:
        return words
    return f"{_beginning(words[:MOST])}\n{text(language, 'speech.rest')}"


def _lines(tokens: Sequence[Token], language: str) -> Iterator[str]:
    """The words of a document, block by block."""
    in_table = False
    for token in tokens:
        if token.type in {"fence", "code_block"}:
            yield text(language, "speech.code")
        elif token.type == "table_open":
            in_table = True
            yield text(language, "speech.table")
        elif token.type == "table_close":
            in_table = False
        elif token.type == "inline" and not in_table:
            yield _said("".join(map(_word, token.children or ())))


def _word(token: Token) -> str:
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return token.content if token.type in {"text", "code_inline", "image"} else ""


def _said(words: str) -> str:
    """Words without signs: of an address, where it leads."""
    return _SIGNS.sub("", _TAG.sub("", _URL.sub(r"\1", words)))


def _beginning(words: str) -> str:
    ends = [found.end() for found in _SENTENCE.finditer(words)]
    if ends:
        return words[: ends[-1]].rstrip()
    return words.rpartition(" ")[0] or words
