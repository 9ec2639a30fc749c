"""How many tokens a text has, and what real counts teach about estimates."""

import base64
import hashlib
import json
import os
import shutil
import socket

import orjson
import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given
from hypothesis import strategies as st

from bot.context import tokens
from bot.context.tokens import (
    EXACT,
    HIGH,
    KNOWN,
    LEAST,
    LOW,
    MOST_MODELS,
    START,
    Calibration,
    TokenCounter,
    counter,
    estimate,
    from_json,
    weight,
)
from tests.odd import JSON

TEXTS = st.text(alphabet=st.characters(), max_size=300)
LINES = b"".join(base64.b64encode(bytes([n])) + b" %d\n" % n for n in range(256))


def encoding(name: str, raw: bytes = LINES) -> dict[str, tokens.Define]:
    """An encoding by its name, defined as tiktoken defines its own."""

    def define(load: tokens.Load) -> dict[str, object]:
        ranks = load(f"https://ranks.example/{name}", expected_hash=hashlib.sha256(raw).hexdigest())
        return {"pat_str": r"\S+|\s+", "mergeable_ranks": ranks}

    return {name: define}


def file_of(name: str) -> str:
    """What tiktoken calls the file of an encoding's ranks."""
    return cached_as(f"https://ranks.example/{name}")


def cached_as(url: str) -> str:
    return hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()


BYTES = encoding("bytes")


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
def test_the_estimate_is_that_of_each_character_and_a_counter_without_an_encoding_gives_it(text):
    wide = sum(character >= "\u2e80" for character in text)
    assert weight(text) == len(text) + 3 * wide
    assert estimate(text) == (wide + (len(text) - wide) // 4 + 1 if text else 0)
    assert TokenCounter()(text) == estimate(text)
    assert TokenCounter().name == "estimate"


@given(TEXTS, TEXTS)
def test_more_text_is_never_fewer_tokens(one, other):
    assert estimate(one) <= estimate(one + other) <= estimate(one) + estimate(other)


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
    (tmp_path / file_of("bytes")).write_bytes(LINES)
    return tmp_path


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_ranks_are_used_where_they_stand(folder, variable):
    count = counter("auto", {variable: str(folder)}, BYTES)
    assert count.name == "bytes"
    assert count("héllo 你") == len("héllo 你".encode())
    assert count("\ud800x") > 0
    assert count("<|endoftext|>") == 13  # a special token's name is text like any other


def test_the_first_ranks_that_are_there_are_used(folder):
    assert (
        counter("auto", {"TIKTOKEN_CACHE_DIR": str(folder)}, encoding("absent") | BYTES).name
        == "bytes"
    )


def test_the_temporary_folder_is_the_last_place_to_look_in(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert counter("auto", {}, BYTES).name == "estimate"
    shutil.copytree(folder, folder / "data-gym-cache")
    assert counter("auto", {}, BYTES).name == "bytes"
    assert counter("auto", {"TIKTOKEN_CACHE_DIR": ""}, BYTES).name == "estimate"
    assert counter("auto", {"DATA_GYM_CACHE_DIR": str(folder / "no")}, BYTES).name == "estimate"


def test_damaged_ranks_are_left_alone_and_not_downloaded_again(folder):
    damaged = LINES[:-2]
    (folder / file_of("bytes")).write_bytes(damaged)
    assert counter("auto", {"TIKTOKEN_CACHE_DIR": str(folder)}, BYTES).name == "estimate"
    assert (folder / file_of("bytes")).read_bytes() == damaged


@pytest.mark.parametrize("raw", [b"not ranks", b"", b"YQ== x\n", b"YQ== 1 2\n"])
def test_what_cannot_be_read_as_ranks_is_not_used(folder, raw):
    (folder / file_of("bytes")).write_bytes(raw)
    odd = encoding("bytes", raw)
    assert counter("auto", {"TIKTOKEN_CACHE_DIR": str(folder)}, odd)("ab") > 0


@pytest.mark.parametrize("kind", ["folder", "pipe", "huge"])
def test_something_else_in_their_place_does_no_harm(folder, kind):
    path = folder / file_of("bytes")
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    assert counter("auto", {"TIKTOKEN_CACHE_DIR": str(folder)}, BYTES).name == "estimate"


def test_without_tiktoken_everything_is_estimated(folder, monkeypatch):
    def absent(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(tokens.importlib, "import_module", absent)
    assert counter("auto", {"TIKTOKEN_CACHE_DIR": str(folder)}, BYTES).name == "estimate"


def test_who_wants_the_estimate_gets_it(folder):
    where = {"TIKTOKEN_CACHE_DIR": str(folder)}
    assert counter("tiktoken", where, BYTES).name == "bytes"
    assert counter("estimate", where, BYTES).name == "estimate"


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_tiktokens_own_pattern_and_checksum_are_used_and_nothing_is_downloaded(name, folder):
    asked: list[tuple[str, str]] = []

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((url, expected_hash))
        return {bytes([n]): n for n in range(256)}

    defined = KNOWN[name](load)
    ((url, checksum),) = asked
    assert url.endswith(f"/{name}.tiktoken")
    assert len(checksum) == 64
    assert tiktoken.Encoding(
        name,
        pat_str=defined["pat_str"],
        mergeable_ranks=defined["mergeable_ranks"],
        special_tokens={},
    ).encode_ordinary("don't 你好")
    # A file by the right name with other ranks is not used, and nobody is asked for a right one.
    path = folder / cached_as(url)
    path.write_bytes(LINES)
    assert counter("auto", {"TIKTOKEN_CACHE_DIR": str(folder)}, {name: KNOWN[name]}).name == (
        "estimate"
    )
    assert path.read_bytes() == LINES


def test_a_tiktoken_that_would_load_otherwise_is_not_called(folder, monkeypatch):
    def fetch() -> None:
        raise AssertionError("something else of the module was called")

    def o200k_base() -> dict[str, object]:
        return {"pat_str": ".", "mergeable_ranks": fetch()}

    monkeypatch.setattr(tiktoken_ext.openai_public, "fetch", fetch, raising=False)
    monkeypatch.setattr(tiktoken_ext.openai_public, "o200k_base", o200k_base)
    assert counter("auto", {"TIKTOKEN_CACHE_DIR": str(folder)}).name == "estimate"


COUNTS = st.integers(-100, 3_000_000)
SAMPLES = st.lists(st.tuples(st.sampled_from(["one", "two"]), COUNTS, COUNTS), max_size=30)


def after(samples: list[tuple[str, int, int]]) -> Calibration:
    calibration = Calibration()
    for model, estimated, reported in samples:
        calibration = calibration.learn(model, estimated, reported)
    return calibration


@pytest.mark.parametrize(
    ("samples", "factor"),
    [
        ([], 1.0),  # a model nobody knows is taken at its estimate
        # One request moves it, and many bring it there.
        ([(2 * START, 4 * START)], pytest.approx(5 / 3)),
        ([(5_000, 6_000)] * 20, pytest.approx(1.2, rel=0.01)),
        ([(5_000, 4_000)] * 20, pytest.approx(0.8, rel=0.01)),
        # What was learned first is forgotten at last.
        ([(20_000, 40_000)] * 50 + [(20_000, 20_000)] * 20, pytest.approx(1.0, rel=0.01)),
        # The bounds are reached and not passed.
        ([(100_000, 10_000_000)] * 200, pytest.approx(HIGH, abs=0.001)),
        ([(100_000, LEAST)] * 200, pytest.approx(LOW, abs=0.001)),
    ],
)
def test_a_factor_is_what_was_reported_of_late(samples, factor):
    assert after([("m", *each) for each in samples]).factor("m") == factor


def test_long_requests_count_more_than_short_ones_and_one_odd_report_little():
    short, long = after([("m", 500, 1_000)]), after([("m", 5_000, 10_000)])
    assert 1 < short.factor("m") < long.factor("m") < 2
    assert after([("m", 10_000, 11_000)] * 50 + [("m", 10_000, 99_000)]).factor("m") < 1.4


@pytest.mark.parametrize(
    ("estimated", "reported", "learned"),
    [
        (LEAST - 1, 10_000, False),
        (LEAST, 10_000, True),
        (LEAST + 1, 10_000, True),
        (10_000, LEAST - 1, False),
        (10_000, LEAST, True),
        (0, 0, False),
        (-5_000, 5_000, False),
    ],
)
def test_tiny_requests_teach_nothing(estimated, reported, learned):
    assert (after([("m", estimated, reported)]) != Calibration()) is learned


@given(SAMPLES)
def test_factors_stay_within_bounds_come_back_and_do_not_teach_each_other(samples):
    calibration = after(samples)
    assert all(LOW <= calibration.factor(model) <= HIGH for model in ("one", "two"))
    assert from_json(calibration.to_json()) == calibration
    alone = [sample for sample in samples if sample[0] == "one"]
    assert calibration.factor("one") == after(alone).factor("one")


def test_learning_leaves_the_value_before_it_as_it_was():
    before = Calibration()
    before.learn("m", 5_000, 9_000)
    assert before.factor("m") == 1.0


def test_only_so_many_models_are_kept_those_heard_of_least_recently_go():
    calibration = after([(f"m{number}", 5_000, 9_000) for number in range(MOST_MODELS)])
    calibration = calibration.learn("m0", 5_000, 9_000).learn("new", 5_000, 9_000)
    assert len(calibration.models) == MOST_MODELS
    assert calibration.factor("m1") == 1.0
    assert calibration.factor("m0") > 1.0
    assert from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        "nothing",
        "[]",
        "3",
        "null",
        '{"m": 1.5}',
        '{"m": []}',
        '{"m": [1.5]}',
        '{"m": [1.5, 100, 3]}',
        '{"m": ["1.5", 100]}',
        '{"m": [0.49, 100]}',
        '{"m": [3.01, 100]}',
        '{"m": [NaN, 100]}',
        '{"m": [1.5, -1]}',
        '{"m": [1.5, 0]}',
        '{"m": [1.5, 1e999]}',
        '{"good": [1.5, 100], "m": [null, null]}',
        "[" * 100_000,
        "\ud800",
        orjson.dumps({f"m{n}": [1.5, 100] for n in range(MOST_MODELS + 1)}).decode(),
    ],
)
def test_what_was_not_written_here_teaches_nothing(raw):
    assert from_json(raw) == Calibration()


@given(st.text() | JSON.map(json.dumps))
def test_no_text_breaks_it(raw):
    assert all(LOW <= each.factor <= HIGH for each in from_json(raw).models.values())
