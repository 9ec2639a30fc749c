import base64
import hashlib
import os
import shutil
import socket

import pytest
import tiktoken_ext.openai_public
from hypothesis import given
from hypothesis import strategies as st

from bot.context import tokens
from bot.context.tokens import EXACT, KNOWN, Ranks, TokenCounter, counter, estimate, weight

TEXTS = st.text(alphabet=st.characters(), max_size=300)
LINES = b"".join(base64.b64encode(bytes([n])) + b" %d\n" % n for n in range(256))
BYTES = Ranks("bytes", "bytes-file", hashlib.sha256(LINES).hexdigest(), r"\S+|\s+")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 1),
        ("abc", 1),
        ("abcd", 2),
        ("a" * 4_000, 1_001),
        ("你", 2),
        ("你好世界", 5),
        ("你好 abc", 4),
        ("café", 2),
        ("カタカナ", 5),
        ("한국어", 4),
        ("😀😀", 3),
        ("\ud800", 2),
    ],
)
def test_letters_are_a_quarter_of_a_token_and_chinese_is_one(text, expected):
    assert estimate(text) == expected


@given(TEXTS)
def test_the_estimate_is_that_of_each_character(text):
    wide = sum(character >= "\u2e80" for character in text)
    assert weight(text) == len(text) + 3 * wide
    assert estimate(text) == (wide + (len(text) - wide) // 4 + 1 if text else 0)


@given(TEXTS, TEXTS)
def test_more_text_is_never_fewer_tokens(one, other):
    assert estimate(one) <= estimate(one + other) <= estimate(one) + estimate(other)


@given(TEXTS)
def test_without_an_encoding_a_counter_estimates(text):
    assert TokenCounter()(text) == estimate(text)
    assert TokenCounter().name == "estimate"


def test_an_encoding_counts_exactly_up_to_the_limit():
    count = TokenCounter("words", lambda text: [0] * len(text.split()))
    assert count("") == 0
    assert count("one two three") == 3
    assert count(" ") == 1
    assert count("word " * (EXACT // 5)) == EXACT // 5


@pytest.mark.parametrize("length", [EXACT - 1, EXACT, EXACT + 1, 50_001, 3_000_000])
def test_no_more_than_the_limit_is_ever_encoded(length):
    encoded: list[int] = []

    def encode(text: str) -> list[int]:
        encoded.append(len(text))
        return [0] * (len(text) // 2)

    assert TokenCounter("pairs", encode)("x" * length) == pytest.approx(length / 2, rel=0.01)
    assert 0 < sum(encoded) <= EXACT


def test_samples_reach_the_end_of_a_text():
    seen: list[str] = []
    TokenCounter("seen", lambda text: seen.append(text) or [0])("a" + "b" * 40_000 + "c")
    assert seen[0].startswith("a")
    assert seen[-1].endswith("c")


def test_an_encoding_that_fails_is_replaced_by_the_estimate():
    def encode(text: str) -> list[int]:
        raise ValueError(text)

    assert TokenCounter("broken", encode)("abcd") == estimate("abcd")
    assert TokenCounter("broken", encode)("你" * 99_999) == estimate("你" * 99_999)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with small ranks, in a process that may not connect to anything."""

    def refuse(*args: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    (tmp_path / BYTES.file).write_bytes(LINES)
    return tmp_path


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_ranks_are_used_where_they_stand(folder, variable):
    count = counter({variable: str(folder)}, (BYTES,))
    assert count.name == "bytes"
    assert count("héllo 你") == len("héllo 你".encode())
    assert count("\ud800x") > 0
    assert count("<|endoftext|>") == 13  # a special token's name is text like any other


def test_the_first_ranks_that_are_there_are_used(folder):
    absent = Ranks("absent", "absent-file", BYTES.sha256, BYTES.pattern)
    assert counter({"TIKTOKEN_CACHE_DIR": str(folder)}, (absent, BYTES)).name == "bytes"


def test_the_temporary_folder_is_the_last_place_to_look_in(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert counter({}, (BYTES,)).name == "estimate"
    shutil.copytree(folder, folder / "data-gym-cache")
    assert counter({}, (BYTES,)).name == "bytes"
    assert counter({"TIKTOKEN_CACHE_DIR": ""}, (BYTES,)).name == "estimate"
    assert counter({"DATA_GYM_CACHE_DIR": str(folder / "no")}, (BYTES,)).name == "estimate"


def test_damaged_ranks_are_left_alone_and_not_downloaded_again(folder):
    damaged = LINES[:-2]
    (folder / BYTES.file).write_bytes(damaged)
    assert counter({"TIKTOKEN_CACHE_DIR": str(folder)}, (BYTES,)).name == "estimate"
    assert (folder / BYTES.file).read_bytes() == damaged


@pytest.mark.parametrize("raw", [b"not ranks", b"", b"YQ== x\n", b"YQ== 1 2\n"])
def test_what_cannot_be_read_as_ranks_is_not_used(folder, raw):
    (folder / BYTES.file).write_bytes(raw)
    odd = Ranks("odd", BYTES.file, hashlib.sha256(raw).hexdigest(), BYTES.pattern)
    assert counter({"TIKTOKEN_CACHE_DIR": str(folder)}, (odd,))("ab") > 0


@pytest.mark.parametrize("kind", ["folder", "pipe", "huge"])
def test_something_else_in_their_place_does_no_harm(folder, kind):
    path = folder / BYTES.file
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    assert counter({"TIKTOKEN_CACHE_DIR": str(folder)}, (BYTES,)).name == "estimate"


def test_without_tiktoken_everything_is_estimated(folder, monkeypatch):
    def absent(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(tokens.importlib, "import_module", absent)
    assert counter({"TIKTOKEN_CACHE_DIR": str(folder)}, (BYTES,)).name == "estimate"


@pytest.mark.parametrize("ranks", KNOWN, ids=lambda ranks: ranks.name)
def test_what_is_known_of_ranks_is_what_tiktoken_knows(ranks, monkeypatch):
    asked: list[tuple[str, str]] = []

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest(), expected_hash))
        return {}

    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", load)
    theirs = getattr(tiktoken_ext.openai_public, ranks.name)()
    assert asked == [(ranks.file, ranks.sha256)]
    assert ranks.pattern == theirs["pat_str"]
