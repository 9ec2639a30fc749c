"""The order of what was found: better matches first, in every mode, without repetition."""

import math
import os
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bot.agent.recall import Find, ranked
from bot.config import AgingConfig, MemoryConfig
from bot.memory import claims, periods, ranking, vectors, words
from bot.memory.claims import Aging
from bot.memory.ranking import Candidate, Request, Scored, Weights
from bot.memory.search import Hit, Why
from bot.memory.words import Statistics
from bot.messages import Quote
from bot.storage.fulltext import tokenizer
from tests.support import make_config

TOKENIZE = tokenizer(apsw.Connection(":memory:"))
TODAY = date(2026, 11, 21)
BOTH = Weights(text=0.75, vector=0.25)
WORDS = st.lists(
    st.sampled_from(["tea", "peanut", "daughter", "car", "the", "garage", "花生", "过敏", "x"])
)


def statistics(query: words.Query, texts: list[str]) -> Statistics:
    seen = {
        term.tokens: sum(
            set(term.tokens) <= set(TOKENIZE(words.indexed(text))) for text in texts
        )
        for term in query.terms
    }  # fmt: skip
    lengths = [len(TOKENIZE(words.indexed(text))) for text in texts]
    return Statistics(len(texts), sum(lengths) / max(1, len(texts)), seen)


def scored(query: str, *texts: str, vector=None, rows=None, days=None) -> list[Scored]:
    parsed = words.parse(query, TOKENIZE)
    candidates = [
        Candidate(
            at,
            Hit("main", f"{at}.md", 1, 1, 0.0, "", "memory"),
            text,
            day=days[at] if days else None,
            vectors=rows[at : at + 1] if rows is not None else None,
        )
        for at, text in enumerate(texts)
    ]
    known = statistics(parsed, list(texts))
    return ranking.score(candidates, parsed, known, TOKENIZE, vector)


def order(found: list[Scored]) -> list[int]:
    return [each.candidate.key for each in found]


# --- words ---------------------------------------------------------------------------------------


@given(WORDS, st.lists(WORDS, min_size=1, max_size=5))
def test_scores_are_shares_and_no_match_is_nothing(query, texts):
    joined = [" ".join(text) for text in texts]
    asked = words.parse(" ".join(query), TOKENIZE)
    for each in scored(" ".join(query), *joined):
        assert 0 <= each.text <= 1.0001
        has = set(TOKENIZE(words.indexed(each.candidate.text)))
        matches = any(set(term.tokens) <= has for term in asked.terms)
        assert (each.text > 0) == matches or "花" in each.candidate.text
        assert len(each.unit_scores) == len(each.units)


def test_a_match_never_scores_like_no_match():
    """The reference system's text score was 1.0 for everything."""
    found = scored("peanuts", "peanuts are out", "the car", "peanuts", "")
    texts = [each.text for each in found]
    assert texts[1] == texts[3] == 0
    assert texts[0] > 0.3
    assert len(set(texts)) > 2


@pytest.mark.parametrize(
    ("query", "better", "worse"),
    [
        ("peanut allergy", "peanut allergy", "peanut farm"),
        ("peanut allergy", "an allergy to peanuts", "an allergy to dust"),
        ("peanut butter", "peanut butter", "butter, then a peanut"),
        ("peanut allergy", "peanut allergy\n" + "x\n" * 40, "peanut\n" + "x\n" * 40 + "allergy"),
        ("peanut", "peanut peanut peanut", "peanut and other things"),
        ("花生过敏", "女儿对花生过敏", "女儿喜欢花"),
        ("café", "the cafe in Lyon", "the tea room"),
    ],
)
def test_the_better_match_has_the_higher_text_score(query, better, worse):
    first, second, _ = scored(query, better, worse, "something else altogether")
    assert first.text > second.text


@given(st.integers(1, 6))
def test_each_more_of_the_queries_words_scores_higher(count):
    said = ["daughter", "peanut", "garage", "brakes", "oolong", "lighthouse"]
    texts = [" ".join(said[:n] + ["filler"] * (6 - n)) for n in range(count + 1)]
    found = [each.text for each in scored(" ".join(said), *texts)]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_a_rare_word_outweighs_a_common_one():
    texts = ["tea " + "x " * n for n in range(9)] + ["lighthouse " + "x " * 4]
    found = ranking.fuse(scored("tea lighthouse", *texts), BOTH, today=TODAY)
    assert order(found)[0] == 9


# --- fusion --------------------------------------------------------------------------------------


def given_scores(*pairs: tuple[float, float], days=None) -> list[Scored]:
    made = scored("", *("" for _ in pairs), days=days)
    for each, (text, vector) in zip(made, pairs, strict=True):
        each.text, each.vector = text, vector
    return made


SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1))


@given(st.lists(SHARES, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_the_final_score_is_the_weighted_mean(pairs, text, vector):
    weights = Weights(text=text, vector=vector)
    sure = [(1.0, 0.0), *pairs]  # one of them has all the words
    for each in ranking.fuse(given_scores(*sure), weights, today=TODAY):
        mean = (text * each.text + vector * each.vector) / ((text + vector) or 1)
        assert each.score == pytest.approx(min(1.0, mean))


def test_words_by_chance_do_not_outweigh_meaning():
    by_chance, meant = (0.1, 0.2), (0.0, 0.4)
    found = given_scores(by_chance, meant)
    assert order(ranking.fuse(found, Weights(0.75, 0.25), today=TODAY)) == [1, 0]
    found = given_scores(by_chance, meant, (ranking.SURE, 0.0))  # words say something here
    assert order(ranking.fuse(found, Weights(0.75, 0.25), today=TODAY))[1:] == [0, 1]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8))
def test_how_sure_the_words_are_changes_no_order_by_words_alone(hundredths):
    found = given_scores(*((each / 100, 0.5) for each in hundredths))
    texts = [each.text for each in ranking.fuse(found, BOTH, today=TODAY)]
    assert texts == sorted(texts, reverse=True)


@given(SHARES, st.floats(0, 1), st.sampled_from(["text", "vector"]))
def test_a_better_part_never_lowers_the_score(pair, more, part):
    low, high = given_scores(pair, pair)
    setattr(high, part, max(more, getattr(high, part)))
    ranking.fuse([low, high], BOTH, today=TODAY)
    assert high.score >= low.score


def test_equal_scores_keep_one_order():
    found = given_scores(*[(0.5, 0.5)] * 9)
    assert order(ranking.fuse(found[::-1], BOTH, today=TODAY)) == list(range(9))


@pytest.mark.parametrize("weights", [Weights(text=1, vector=0), Weights(text=0.1, vector=0)])
def test_words_alone_reach_the_whole_score(weights):
    """The reference system's keyword hits were 0.30 at best, and its least was 0.35."""
    (only,) = ranking.fuse(given_scores((0.9, 0.0)), weights, today=TODAY)
    assert only.score == pytest.approx(0.9)


def test_meaning_alone_reaches_the_whole_score():
    wanted = vectors.normalised(np.array([[1.0, 1.0]]))
    rows = vectors.normalised(np.array([[1.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]))
    found = scored("no such words", "a", "b", "c", vector=wanted, rows=rows)
    assert [each.vector for each in found] == pytest.approx([1.0, 0.7071, 0.0], abs=1e-3)
    ranked = ranking.fuse(found, Weights(text=0, vector=1), today=TODAY)
    assert order(ranked) == [0, 1, 2]
    assert ranked[0].score == pytest.approx(1.0, abs=1e-3)


def test_a_chunk_without_vectors_is_found_by_its_words_among_others_that_have_some():
    wanted = vectors.normalised(np.array([[1.0, 0.0]]))
    rows = vectors.normalised(np.array([[0.2, 1.0], [0.0, 1.0]]))
    found = scored("peanuts", "x", "y", vector=wanted, rows=rows)
    found += scored("peanuts", "peanuts here", "peanuts")[:1]
    assert ranking.fuse(found, BOTH, today=TODAY)[0].candidate.text == "peanuts here"


# --- days ----------------------------------------------------------------------------------------


@given(st.integers(0, 5_000))
def test_only_dated_notes_age_and_they_lose_half_of_their_head_start_in_thirty_days(age):
    days = [None, TODAY, TODAY - timedelta(days=age), TODAY - timedelta(days=age + 30)]
    found = given_scores(*[(0.8, 0.0)] * 4, days=days)
    ranking.fuse(found, Weights(text=1, vector=0), today=TODAY)
    undated, new, old, older = (each.score for each in found)
    assert undated == new == pytest.approx(0.8)
    least = 0.8 * (1 - BOTH.recency)
    assert old - least == pytest.approx(2 * (older - least), abs=1e-9)  # what is left of it
    assert least - 1e-9 <= older <= old


def test_age_decides_between_equals_and_not_against_a_better_match():
    days = [TODAY - timedelta(days=900), TODAY, TODAY]
    found = given_scores((0.9, 0.0), (0.8, 0.0), (0.9, 0.0), days=days)
    assert order(ranking.fuse(found, BOTH, today=TODAY)) == [2, 0, 1]


def aged(*texts: str, aging: Aging | None) -> list[Hit]:
    request = Request("harbour lights", ("main",), 6, None, TODAY, 0.0, aging)
    return list(ranking.hits(scored("harbour lights", *texts), request, MemoryConfig()))


@given(st.floats(0, 0.5), st.integers(0, 4_000), st.sampled_from(["agent", "imported", "owner"]))
def test_what_has_faded_loses_a_bounded_share_and_is_found_all_the_same(share, age, whose):
    line = f"- harbour lights at night <!-- {whose} {TODAY - timedelta(days=age)} -->"
    plain = aged(line, aging=None)[0]
    faded = aged(line, aging=Aging(TODAY, AgingConfig(search_share=share)))[0]
    assert plain.score * (1 - share) - 1e-4 <= faded.score <= plain.score
    expected = claims.strength(next(claims.of_note("x", line)), TODAY, AgingConfig())
    assert faded.strength == expected
    assert plain.strength == 1.0


def test_a_passage_is_as_strong_as_the_entry_that_answers():
    old, aging = "<!-- agent 2020-01-01 -->", Aging(TODAY)
    texts = {
        f"- harbour lights\n- other things {old}": False,
        f"- other things\n- harbour lights {old}\n  and more": True,
        f"- other things {old}\n  harbour lights": True,
        f"- other things {old}\n\nharbour lights": False,
        f"# harbour lights\n- other things {old}": False,
        "harbour lights": False,
    }
    for text, is_faded in texts.items():
        assert (aged(text, aging=aging)[0].strength < claims.FADED) == is_faded, text
    used = {"main": {claims.digest("harbour lights"): TODAY}}
    line = f"- harbour lights {old}"
    assert aged(line, aging=Aging(TODAY, used=used))[0].strength == 1.0
    assert aged(line, aging=Aging(TODAY, used={"people/eve": used["main"]}))[0].strength < 0.1


def test_a_note_from_the_future_and_no_half_life_are_harmless():
    days = [TODAY + timedelta(days=400), TODAY - timedelta(days=400)]
    found = given_scores((0.5, 0.0), (0.5, 0.0), days=days)
    ranking.fuse(found, Weights(1, 0, half_life_days=0), today=TODAY)
    assert {each.score for each in found} == {0.5}
    ranking.fuse(found, Weights(1, 0), today=TODAY)
    assert found[0].score == 0.5


def test_a_question_that_names_a_day_prefers_its_notes_among_those_that_match():
    days = [date(2026, 5, 1), date(2026, 5, 2), date(2026, 6, 1), date(2026, 5, 1)]
    found = given_scores((0.5, 0), (0.5, 0), (0.5, 0), (0.0, 0), days=days)
    asked = periods.asked("what was on 2026-05-01?", TODAY)
    ranked = ranking.fuse(found, BOTH, today=TODAY, times=asked)
    assert order(ranked) == [0, 1, 2, 3]
    assert ranked[-1].score == 0  # the day alone finds nothing


def test_when_nothing_is_of_the_time_asked_about_the_nearest_comes_first():
    days = [date(2026, 1, 1), date(2026, 4, 20), None, date(2026, 6, 25)]
    found = given_scores(*[(0.5, 0)] * 4, days=days)
    times = periods.asked("in May 2026", TODAY)
    assert order(ranking.fuse(found, Weights(1, 0, 0), today=TODAY, times=times)) == [1, 3, 0, 2]


def test_a_passage_is_also_of_the_days_that_it_names():
    found = scored("tea", "- tea, said 2025-05-04", "- tea, said 2026-05-04", "- tea")
    times = periods.asked("tea in May last year", TODAY)
    assert order(ranking.fuse(found, BOTH, today=TODAY, times=times))[0] == 0


# --- not the same again --------------------------------------------------------------------------


def ranked_texts(*texts: str, falling: float = 0.01) -> list[Scored]:
    made = scored("", *texts)
    for at, each in enumerate(made):
        each.score = 0.9 - falling * at
    return made


def test_near_copies_make_room_for_something_else():
    copy = "the daughter is allergic to peanuts since 2019"
    texts = [copy, f"{copy} too", f"{copy}!", "a note about oolong tea", "the car has brakes"]
    assert order(ranking.diversify(ranked_texts(*texts), 3, 0.7)) == [0, 3, 4]
    assert order(ranking.diversify(ranked_texts(*texts), 3, 1.0)) == [0, 1, 2]


def test_passages_about_one_thing_are_both_kept():
    texts = ["daughter allergic to peanuts", "peanuts grow under the earth", "oolong tea"]
    assert order(ranking.diversify(ranked_texts(*texts, falling=0.2), 2, 0.7)) == [0, 1]


@given(st.lists(WORDS.map(" ".join), max_size=12), st.integers(1, 6), st.floats(0, 1))
def test_diversity_chooses_each_once_and_the_best_first(texts, limit, trade_off):
    found = ranking.diversify(ranked_texts(*texts), limit, trade_off)
    assert len(found) == min(limit, len(texts))
    assert len(set(order(found))) == len(found)
    if found and trade_off > 0:
        assert order(found)[0] == 0


# --- what leaves the search ----------------------------------------------------------------------


def answered(tmp_path, query: str, *texts: str, limit: int = 6, **memory: object):
    config, _ = make_config(tmp_path, memory=memory)
    found = scored(query, *texts)
    request = Request(query, ("main",), limit, None, TODAY, 0.0)
    return ranking.hits(found, request, config.memory)


def test_what_scores_less_than_wanted_is_left_out(tmp_path):
    texts = ("peanuts", "peanuts " + "filler " * 300, "nothing")
    every = answered(tmp_path, "peanuts tea", *texts, min_score=0)
    assert [hit.path for hit in every] == ["0.md", "1.md"]  # no match is left out even so
    between = (every[0].score + every[1].score) / 2
    assert len(answered(tmp_path, "peanuts tea", *texts, min_score=between)) == 1
    assert answered(tmp_path, "peanuts tea", *texts, min_score=1) == ()


def test_words_alone_are_found_with_the_usual_configuration(tmp_path):
    hits = answered(tmp_path, "are peanuts allowed", "peanuts are out", "the car")
    assert [hit.path for hit in hits] == ["0.md"]
    assert hits[0].score > 5 * MemoryConfig().min_score


# --- why -----------------------------------------------------------------------------------------


def whys(query: str, *texts: str, vector=None, rows=None, days=None) -> list[Why]:
    found = scored(query, *texts, vector=vector, rows=rows, days=days)
    parsed = words.parse(query, TOKENIZE)
    times = periods.asked(query, TODAY)
    return [ranking.why(each, parsed, statistics(parsed, list(texts)), times) for each in found]


def test_a_passage_says_by_which_words_it_was_found():
    exact, stemmed, heading, chance, nothing = whys(
        "Peanuts", "peanuts are out", "no peanut", "# Peanuts\n\nnever", "a nut", "the car"
    )
    assert (exact.words, exact.headings, exact.by_meaning) == (("Peanuts",), (), False)
    assert stemmed.words == ("Peanuts",)
    assert (heading.words, heading.headings) == ((), ("Peanuts",))
    assert not chance.is_any
    assert not nothing.is_any


def test_a_word_of_many_is_there_by_chance():
    query = "zeppelin hangar doors near the lake open again"
    whole, one = whys(query, "zeppelin hangar doors open", "open", "open all day")[:2]
    assert whole.words[:2] == ("zeppelin", "hangar")
    assert not one.is_any


def test_chinese_words_are_told_whole():
    (found,) = whys("花生过敏", "女儿对花生过敏")
    assert found.words == ("花生", "生过", "过敏")
    (character,) = whys("花生过敏", "女儿喜欢花")
    assert not character.words


def test_a_passage_says_that_it_means_the_same_or_is_of_the_day():
    rows = np.array([[1.0, 0.0], [0.1, 0.995]], np.float32)
    near, far = whys("x", "boats", "cars", vector=rows[:1], rows=rows)
    assert near.by_meaning
    assert not far.is_any
    days = [date(2026, 11, 20), date(2026, 1, 1)]
    named, other = whys("what of 2026-11-20", "boats", "cars", days=days)
    assert named.by_date
    assert not other.is_any


MOST = 1_000
ROWS = st.tuples(st.integers(1, 6), st.integers(1, 70)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(-1, 1, width=16))
)


@given(ROWS)
def test_what_was_packed_comes_back_within_a_hundredth_and_has_the_cosines_of_the_rows(rows):
    assert vectors.products(rows, rows) == pytest.approx(rows @ rows.T, abs=1e-4)
    rows = vectors.normalised(rows)
    packed = vectors.pack(rows)
    assert [len(each) for each in packed] == [rows.shape[1]] * len(rows)
    back = vectors.unpack(b"".join(packed), rows.shape[1])
    assert vectors.pack(back) == packed
    assert back.shape == rows.shape
    for row, again in zip(rows, back, strict=True):
        if row.any():
            assert np.linalg.norm(again) == pytest.approx(1, abs=1e-4)
            assert float(row @ again) > 0.99
        else:
            assert not again.any()
    found = vectors.cosines(b"".join(packed), rows[:1])
    # Each dimension is off by half a step at most, so a row by that times the root of their number.
    most = 0.5 / 127 * math.sqrt(rows.shape[1]) * 1.05 + 1e-4
    assert found == pytest.approx(rows @ rows[0], abs=most)
    assert (np.abs(found) <= 1.001).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_no_numbers_is_zeros_and_spoils_no_other(bad):
    rows = vectors.normalised(np.array([[bad, 1.0], [3.0, 4.0], [0.0, 0.0]]))
    assert rows.tolist() == [[0.0, 0.0], pytest.approx([0.6, 0.8]), [0.0, 0.0]]


@given(ROWS)
def test_every_row_is_found_by_its_signs_and_a_row_itself_first(values):
    rows = vectors.normalised(values)
    known = vectors.columns(vectors.signs(rows), rows.shape[1])
    assert known.shape == (-(-rows.shape[1] // 64), len(rows))
    found = vectors.nearest(known, rows[:1], MOST)
    assert sorted(found.tolist()) == list(range(len(rows)))
    there = (rows > 0).astype(np.float32) @ rows[0]
    assert there[found[0]] >= there.max() - 1e-5


def test_the_nearest_of_many_rows_are_found_by_their_signs():
    chance = np.random.default_rng(1)
    rows = vectors.normalised(chance.normal(size=(3 * MOST, 256)))
    known = vectors.columns(vectors.signs(rows), 256)
    for row in (0, 17, len(rows) - 1):
        near = vectors.normalised(rows[row : row + 1] + chance.normal(size=256) / 30)
        found = vectors.nearest(known, near, MOST)
        assert len(found) == MOST
        assert found[0] == row


@pytest.mark.parametrize("block", [1, 7, 1_000, 100_000])
def test_rows_are_found_the_same_however_many_are_compared_at_once(block, monkeypatch):
    chance = np.random.default_rng(3)
    rows = chance.standard_normal((1_500, 70)).astype(np.float32)
    known = vectors.columns(vectors.signs(rows), 70)
    whole = vectors.nearest(known, rows[:1], MOST)
    different = ((rows > 0) != (rows[0] > 0)).sum(axis=1)
    assert sorted(different[whole]) == sorted(different)[:MOST]
    monkeypatch.setattr(vectors, "BLOCK", block)
    assert vectors.nearest(known, rows[:1], MOST).tolist() == whole.tolist()


def test_vectors_of_another_length_are_never_compared_cut_short():
    packed = b"".join(vectors.pack(vectors.normalised(np.ones((1, 64)))))
    for dims in (48, 63, 100):
        with pytest.raises(ValueError, match="reshape"):
            vectors.cosines(packed, vectors.normalised(np.ones((1, dims))))
        with pytest.raises(ValueError, match="reshape"):
            vectors.unpack(packed, dims)


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "threads"), [("", 1), ("2", 2)])
@pytest.mark.proof
def test_numpy_takes_no_thread_of_its_own_unless_it_is_told_to(chosen: str, threads: int):
    code = """
import os, sys
import bot.app, bot.testing
import bot.memory.embed.multilingual
import numpy as np
many = np.ones((600, 600), np.float32)
many @ many
print(len(os.listdir("/proc/self/task")))
"""
    if not Path("/proc/self/task").exists() or (os.cpu_count() or 1) < threads:
        pytest.skip("threads cannot be counted here, or there are too few")
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if chosen:
        env["OPENBLAS_NUM_THREADS"] = chosen
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(threads)]


def note(text: str, where: str = "MEMORY.md:1-2") -> Find:
    return Find(Quote((where, "found"), text, "MEMORY.md", 1), text)


def said(text: str, id_: str, date: str = "2026-07-01 14:03") -> Find:
    return Find(Quote((date, "said", "session s"), text, by="said"), text, id=id_, date=date)


def texts(finds: list[Find]) -> list[str]:
    return [find.quote.text for find in finds]


def test_what_both_searches_find_comes_before_what_one_of_them_finds_first():
    a, b, c = said("a tile", "1"), said("b tile", "2"), said("c tile", "3")
    assert texts(ranked([a, b], [c, b])) == ["b tile", "a tile", "c tile"]


def test_a_message_is_shown_once_and_as_the_last_list_shows_it():
    around = Find(
        Quote(("d", "said", "session s"), "person: tea\nyou: ok"), "tea", id="1", date="d"
    )
    assert texts(ranked([said("tea", "1")], [around])) == ["person: tea\nyou: ok"]


def test_a_note_takes_the_place_of_the_talk_it_came_from_and_its_date():
    kept = note("- Likes tea\n- 14:03 My daughter is allergic to peanuts")
    talk = said("Remember: my daughter is allergic to peanuts!", "1")
    (only, other) = ranked([talk, said("Peanuts are cheap", "2")], [kept])
    assert only.quote.where == ("MEMORY.md:1-2", "found", "said 2026-07-01 14:03")
    assert other.id == "2"
    again = ranked([kept, talk, said("My daughter is allergic to peanuts", "3", "2026-07-02 9:00")])
    assert [find.quote.where[-1] for find in again] == ["said 2026-07-01 14:03"]


def test_the_date_is_not_told_twice():
    kept = note("- 14:03 I like tea best", "memory/2026-07-01.md:1")
    assert ranked([said("I like tea best", "1")], [kept]) == [kept]


def test_talk_that_says_more_than_the_note_is_shown_too():
    kept = note("- I like tea")
    talk = said("I like tea, but only with oat milk and before noon, else I cannot sleep", "1")
    assert len(ranked([kept], [talk])) == 2


def test_what_was_struck_out_is_nobodys_twin():
    assert len(ranked([note("- ~~I live in Bonn now~~")], [said("I live in Bonn now", "1")])) == 2


def test_what_was_only_asked_comes_after_what_was_said():
    asked = [said("How many columns?", "1"), said("Which columns?", "2")]
    assert texts(ranked([*asked, said("Three columns", "3")]))[0] == "Three columns"


finds = st.lists(
    st.builds(note, st.text("ab c\n-~", max_size=30))
    | st.builds(said, st.text("ab c?\n", max_size=30), st.sampled_from("123456")),
    max_size=8,
)


@given(finds, finds)
def test_nothing_is_lost_but_what_stands_in_a_note_and_nothing_is_there_twice(one, other):
    found = ranked(one, other)
    messages = [find.id for find in found if find.id]
    assert len(messages) == len(set(messages))
    assert set(messages) <= {find.id for find in (*one, *other) if find.id}
    notes = {find.words for find in (*one, *other) if not find.id}
    assert {find.words for find in found if not find.id} == notes
