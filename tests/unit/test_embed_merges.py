"""Cutting text into the local model's pieces, next to the package they were made with."""

from __future__ import annotations

import json
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.memory.embed import local, merges
from bot.memory.embed.installed import folder_of, let_go
from bot.memory.embed.merges import LONGEST, Merges, merges_of

BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
SMALL = BYTES | {"▁": 256, "a": 257, "b": 258, "▁a": 259, "aa": 260, "ab": 261, "aaa": 262}
WORDS = [
    "Peanuts",
    " and\ttea",
    "  \n\n",
    "naïve",
    "北京",
    "ไทย",
    "👩\u200d👧",
    "</s>",
    "<unk>",
    "----",
    "▁",
]


@pytest.fixture(scope="module")
def package() -> Any:
    return pytest.importorskip("tokenizers").Tokenizer.from_file(str(_file()))


@pytest.fixture(scope="module")
def own() -> Merges:
    return merges_of(_file().read_bytes())


def _file():
    return folder_of(local.PACKAGE) / local.TOKENIZER


@given(text=st.lists(st.sampled_from(WORDS) | st.text(max_size=12), max_size=12).map("".join))
@example(text="########## " * 3)
@example(text="tht the then " + "aaaa" * 20)
def test_text_is_cut_as_by_the_package_it_was_made_with(package, own, text):
    text = text.encode("utf-8", "replace").decode()
    assert own.encode(text).tolist() == package.encode(text, add_special_tokens=False).ids


def test_words_are_the_same_after_they_were_forgotten(monkeypatch):
    monkeypatch.setattr(merges, "MAX_WORDS", 20)
    own = Merges(SMALL, ["a a", "a b"], [])
    words = [f"ab{'a' * (number % 7)}{number}" for number in range(40)]
    before = [own.encode(word).tolist() for word in words]
    assert [own.encode(word).tolist() for word in (*words, *words)] == [*before, *before]
    assert len(own._known) + len(own._older) <= 20


def test_a_word_without_end_is_cut_in_parts_and_not_kept():
    own = Merges(SMALL, ["a a"], [])
    half = LONGEST // 2
    expected = [256, *[260] * (half - 1), 257, *[260] * 2 * half, 257]
    assert own.encode("a" * 3 * LONGEST).tolist() == expected
    assert not own._known


@pytest.mark.parametrize(
    ("pairs", "text", "expected"),
    [
        (["a a", "aa a"], "aaaa", [256, 260, 260]),  # the first two, then what is left
        (["aa a", "a a"], "aaaa", [256, 262, 257]),  # what comes out is joined before the rest
        (["a b", "▁ a"], " ab", [256, 256, 261]),
        (["▁ a", "a b"], "ab", [259, 258]),
        (["a a"], "é", [256, 0xC3, 0xA9]),
    ],
)
def test_the_pair_that_was_learned_first_is_joined_first(pairs, text, expected):
    assert Merges(SMALL, pairs, []).encode(text).tolist() == expected


@pytest.mark.parametrize(
    ("pieces", "pairs"),
    [
        ({}, []),
        ({**SMALL, "a▁b": 263}, []),
        ({**SMALL, "a\nb": 263}, []),
        ({**SMALL, "c": 1 << 16}, []),
        (SMALL, ["a c"]),
        (SMALL, ["a a a"]),
        ({"a": 1}, []),
    ],
)
def test_pieces_that_are_not_llamas_are_refused(pieces, pairs):
    with pytest.raises((ValueError, KeyError)):
        Merges(pieces, pairs, [])


@pytest.mark.parametrize(
    "change", [{"model": {"type": "Unigram"}}, {"pre_tokenizer": {"type": "x"}}, {"model": 5}]
)
def test_another_kind_of_tokenizer_is_refused(change):
    described = {
        "model": {"type": "BPE", "byte_fallback": True, "vocab": SMALL, "merges": ["a a"]},
        "added_tokens": [],
        "pre_tokenizer": None,
    }
    assert merges_of(json.dumps(described).encode()).encode("a").tolist() == [256, 257]
    with pytest.raises((ValueError, KeyError, TypeError)):
        merges_of(json.dumps(described | change).encode())


def test_a_mapped_table_can_be_read_after_it_was_let_go(tmp_path):
    path = tmp_path / "table"
    path.write_bytes(bytes(range(256)) * 4 * mmap.PAGESIZE)
    table = np.memmap(path, np.uint8, "r", shape=(4 * mmap.PAGESIZE, 256))
    for row in (0, 4 * mmap.PAGESIZE - 1):
        assert table[row].tolist() == list(range(256))
        let_go(table)
