"""Chinese words and their English meanings, and what the local embedder makes of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import EmbedderError
from bot.memory.embed import chinese, glosses, word_vectors
from bot.memory.embed.glosses import Glosses
from bot.memory.embed.local import LocalEmbedder
from bot.storage import fulltext

DICTIONARY = """\
# a comment
女兒 女儿 [nu:3 er2] /daughter/CL:個|个[ge4]/
上海 上海 [Shang4 hai3] /Shanghai/
上 上 [shang4] /on top/upon/to climb/
海 海 [hai3] /ocean/sea/
海 海 [Hai3] /surname Hai/a name (rare)/
工作 工作 [gong1 zuo4] /to work/(of a machine) to operate/job/task/work/labour/toil/
花 花 [hua1] /flower/variant of 華|华[hua2]/
一二三四五六七 一二三四五六七 [yi1] /a saying that is too long/
not an entry
"""


@pytest.fixture
def dictionary(tmp_path: Path) -> Glosses:
    path = tmp_path / "cedict.txt"
    path.write_text(DICTIONARY, "utf-8")
    return Glosses(path)


@cache
def installed() -> Glosses:
    return Glosses.installed()


@pytest.mark.parametrize(
    ("word", "meanings"),
    [
        ("女儿", ["daughter"]),
        ("女兒", ["daughter"]),
        ("海", ["ocean", "sea", "a name"]),  # a name's meanings come last
        ("工作", ["work", "operate", "job", "task", "labour"]),  # each once, at most five
        ("花", ["flower"]),
        ("一二三四五六七", []),
        ("entry", []),
        ("猫", []),
        ("", []),
    ],
)
def test_a_word_has_the_meanings_of_its_entries(dictionary, word, meanings):
    assert dictionary.meanings(word) == meanings


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("女儿在上海工作", ["女儿", "上海", "工作"]),
        ("的了吗", ["的", "了", "吗"]),  # nothing else is there
        ("猫上海", ["猫", "上海"]),
        ("海上", ["海", "上"]),
        ("花", ["花"]),
    ],
)
def test_a_run_is_cut_into_its_longest_words(dictionary, run, words):
    assert dictionary.words_of([run]) == words


def test_words_are_told_apart_from_the_end():
    assert installed().words_of(["想做手术"]) == ["想", "做", "手术"]
    assert installed().words_of(["我女儿", "对花生过敏"]) == ["女儿", "对", "花生", "过敏"]
    assert installed().words_of(["上", "海"]) == ["上", "海"]  # two runs
    assert installed().words_of([]) == []


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=60))
def test_no_character_is_lost_or_made_up(run):
    cut = installed().words_of([run])
    left = iter(run)
    assert all(character in left for word in cut for character in word)  # in their order
    said = [c for word in cut for c in word if c not in fulltext.FUNCTION_CHARACTERS]
    wanted = [c for c in run if c not in fulltext.FUNCTION_CHARACTERS]
    assert said == wanted
    assert all(len(word) <= glosses.LONGEST for word in cut)


@given(st.text(max_size=80))
def test_runs_and_what_is_beside_them_part_any_text(text):
    assert not any(chinese.han_runs(glosses.without_han(text)))
    assert all(run in text for run in chinese.han_runs(text))


@pytest.mark.parametrize("content", [b"# nothing [of that]\n", b"\n", b"/" * 5_000, b"a b c\n" * 3])
def test_a_dictionary_without_entries_is_refused(tmp_path, content):
    path = tmp_path / "cedict.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="no entries"):
        Glosses(path)


@pytest.mark.parametrize("content", [b"\xff\xfe \x00 [x] /y/\n"])
def test_a_dictionary_that_is_garbage_gives_no_meanings(tmp_path, content):
    path = tmp_path / "cedict.txt"
    path.write_bytes(content)
    assert Glosses(path).meanings("海") == []


# --- the local embedder with it -------------------------------------------------------------------


def likeness(embedder: LocalEmbedder, a: str, b: str) -> float:
    rows = embedder.word_vectors([a, b])
    return float(rows[0] @ rows[1])


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ("薪水", "工资", "宠物"),
        ("女儿", "闺女", "汽车"),
        ("女儿", "daughter", "engine"),
        ("花生过敏", "an allergy to peanuts", "an appointment with the dentist"),
        ("我被公司裁员了", "I lost my job", "I bought a house"),
        ("過敏", "过敏", "汽车"),
        ("在柏林租房", "renting a flat in Berlin", "swimming in a lake"),
        ("Python项目的截止日期", "deadline of the Python project", "the dog's dinner"),
    ],
)
def test_what_means_the_same_is_nearer_in_either_language(embedder, one, same, other):
    assert likeness(embedder, one, same) > likeness(embedder, one, other) + 0.1


def test_a_chinese_text_beside_letters_keeps_both(embedder):
    both = likeness(embedder, "血型AB", "血型")
    assert 0.3 < both < 0.999


async def test_a_missing_dictionary_costs_chinese_its_meaning_and_nothing_else(monkeypatch):
    monkeypatch.setattr(glosses, "PACKAGE", "no_such_package_here")
    embedder = LocalEmbedder()
    assert np.linalg.norm((await embedder.embed(["my daughter"]))[0]) > 0.9
    with pytest.raises(EmbedderError, match=r"dictionary of Chinese words.*not installed"):
        await embedder.embed(["我的女儿"])
    await embedder.close()


async def test_more_words_than_are_kept_are_no_trouble(monkeypatch):
    embedder = LocalEmbedder()
    before = await embedder.embed(["女儿过敏", "daughter"])
    monkeypatch.setattr(word_vectors, "MAX_WORDS", 3)
    small = LocalEmbedder()
    for text in ("女儿过敏", "上海工作手术汽车薪水", "女儿过敏"):
        rows = await small.embed([text, "daughter"])
    assert np.allclose(rows, before, atol=1e-2)
    await small.close()
    await embedder.close()
