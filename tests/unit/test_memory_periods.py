"""What a question asks for: times, speakers, many things."""

import time
from datetime import date, timedelta

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory import chunking, listing, periods, ranking, words
from bot.memory.listing import asks_for_many
from bot.memory.periods import Named, Period
from bot.memory.ranking import Candidate, Weights
from bot.memory.search import Hit
from bot.storage.fulltext import tokenizer

TODAY = date(2024, 11, 20)  # a Wednesday
DAYS = st.dates(date(1950, 1, 1), date(2090, 12, 31))
PIECES = (
    "between", "from", "to", "and", "since", "before", "after", "the week before", "last", "this",
    "next",
    "May", "march", "spring", "fall", "winter", "year", "years ago", "week", "weekend", "friday",
    "month",
    "two", "a couple of", "999", "31", "29", "02", ".", "/", "-", "2023", "19391",
    "99999999999999999999",
    "in", "of", "christmas", "yesterday", "the day before yesterday", "去年", "前年", "大前年",
    "今年", "上上", "上",
    "下", "个", "周", "末", "月", "年", "前", "以前", "以来", "到", "至", "春天", "冬", "五",
    "十二", "三十一", "日", "昨天",
    "百百", "两", "〇", " ", "\n", "#", "İ", "ſ",
)  # fmt: skip


def when(text: str) -> list[str]:
    """What a text asks about, on a day that is known."""
    return [f"{each.first}/{each.last}" for each in periods.asked(text, TODAY)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("on 12.05.2023?", "2023-05-12", "2023-05-12"),
        ("on 2023-05-12.", "2023-05-12", "2023-05-12"),
        ("May 12th, 2023", "2023-05-12", "2023-05-12"),
        ("13/05/2023", "2023-05-13", "2023-05-13"),
        ("in 05/2023", "2023-05-01", "2023-05-31"),
        ("in 2023-05", "2023-05-01", "2023-05-31"),
        ("in February of 2024", "2024-02-01", "2024-02-29"),
        ("in the spring of 2023", "2023-03-01", "2023-05-31"),
        ("winter 2022", "2022-12-01", "2023-02-28"),
        ("mid-May 2023", "2023-05-01", "2023-05-31"),
        ("what happened in 2023", "2023-01-01", "2023-12-31"),
        ("last May", "2024-05-01", "2024-05-31"),
        ("last December", "2023-12-01", "2023-12-31"),
        ("this November", "2024-11-01", "2024-11-30"),
        ("next May", "2025-05-01", "2025-05-31"),
        ("May last year", "2023-05-01", "2023-05-31"),
        ("last year in May", "2023-05-01", "2023-05-31"),
        ("in May of last year", "2023-05-01", "2023-05-31"),
        ("two years ago in June", "2022-06-01", "2022-06-30"),
        ("in June two years ago", "2022-06-01", "2022-06-30"),
        ("the year before last", "2022-01-01", "2022-12-31"),
        ("last summer", "2024-06-01", "2024-08-31"),
        ("last winter", "2023-12-01", "2024-02-29"),
        ("the week before last", "2024-11-04", "2024-11-10"),
        ("last week", "2024-11-11", "2024-11-17"),
        ("this week", "2024-11-18", "2024-11-24"),
        ("last weekend", "2024-11-16", "2024-11-17"),
        ("last Wednesday", "2024-11-13", "2024-11-13"),
        ("next Wednesday", "2024-11-27", "2024-11-27"),
        ("last month", "2024-10-01", "2024-10-31"),
        ("the month before last", "2024-09-01", "2024-09-30"),
        ("three months ago", "2024-08-01", "2024-08-31"),
        ("two weeks ago", "2024-11-03", "2024-11-09"),
        ("a couple of days ago", "2024-11-18", "2024-11-18"),
        ("in the last 10 days", "2024-11-10", "2024-11-20"),
        ("yesterday", "2024-11-19", "2024-11-19"),
        ("the day before yesterday", "2024-11-18", "2024-11-18"),
        ("last Christmas", "2023-12-24", "2023-12-26"),
        ("between March and May 2024", "2024-03-01", "2024-05-31"),
        ("from November 2022 to February 2023", "2022-11-01", "2023-02-28"),
        ("between November and February 2023", "2022-11-01", "2023-02-28"),
        ("March-May 2024", "2024-03-01", "2024-05-31"),
        ("between 3 May 2023 and 10 May 2023", "2023-05-03", "2023-05-10"),
        ("from 2021 to 2023", "2021-01-01", "2023-12-31"),
        ("since May 2023", "2023-05-01", "2024-11-20"),
        ("before 2023", "1900-01-01", "2022-12-31"),
        ("after 3 May 2023", "2023-05-04", "2024-11-20"),
        ("the week before 9 June 2023", "2023-06-02", "2023-06-08"),
        ("the week after 9 June 2023", "2023-06-10", "2023-06-16"),
        ("去年五月", "2023-05-01", "2023-05-31"),
        ("去年5月3号", "2023-05-03", "2023-05-03"),
        ("前年十二月", "2022-12-01", "2022-12-31"),
        ("今年秋天", "2024-09-01", "2024-11-30"),
        ("2023年春天", "2023-03-01", "2023-05-31"),
        ("2023年5月", "2023-05-01", "2023-05-31"),
        ("2023年5月12日", "2023-05-12", "2023-05-12"),
        ("二〇二三年五月", "2023-05-01", "2023-05-31"),
        ("2023年做了什么", "2023-01-01", "2023-12-31"),
        ("三年前的夏天", "2021-06-01", "2021-08-31"),
        ("上上周", "2024-11-04", "2024-11-10"),
        ("上周", "2024-11-11", "2024-11-17"),
        ("上个星期三", "2024-11-13", "2024-11-13"),
        ("上周末", "2024-11-16", "2024-11-17"),
        ("上个月", "2024-10-01", "2024-10-31"),
        ("上上個月", "2024-09-01", "2024-09-30"),
        ("三个月前", "2024-08-01", "2024-08-31"),
        ("十天前", "2024-11-10", "2024-11-10"),
        ("前天", "2024-11-18", "2024-11-18"),
        ("昨晚", "2024-11-19", "2024-11-19"),
        ("最近十天", "2024-11-10", "2024-11-20"),
        ("2024年2月到5月之间", "2024-02-01", "2024-05-31"),
        ("去年三月至五月", "2023-03-01", "2023-05-31"),
        ("2023年春天以来", "2023-03-01", "2024-11-20"),
        ("2023年5月之前", "1900-01-01", "2023-04-30"),
    ],
)
def test_a_time_is_a_range_of_days(text: str, first: str, last: str):
    assert when(f"what was {text}") == [f"{first}/{last}"]


@pytest.mark.parametrize(
    "text",
    [
        "", "may I", "march on", "31.02.2024", "2024-13-01", "13月", "year 19391", "12023-05-01",
        "5.6.20234",
        "version 3.11.2024", "v 3.11.2024", "1.3.11.2024", "tel. 12.05.2023", "0431 12.05.2023",
        "12.05.2023.17", "$2023", "in 2023 euros", "for 2023元", "555-2023-05-12", "+2023-05-12",
        "晚上周航读什么", "三个月", "第五年级", "prices fall", "spring water", "0000-00-00",
        "in 99999 years",
    ],
)  # fmt: skip
def test_what_is_part_of_something_else_is_no_time(text: str):
    assert when(text) == []


def test_a_month_without_a_year_is_that_of_any_of_the_last_years():
    found = periods.asked("in May", TODAY)
    assert len(found) == periods.YEARS_BACK
    assert found[0] == Period(date(2024, 5, 1), date(2024, 5, 31))
    assert periods.asked("十二月", TODAY)[0].first == date(2023, 12, 1)  # this year's has not begun


def test_a_date_with_slashes_may_be_read_in_two_ways():
    assert when("3/4/2023") == ["2023-03-04/2023-03-04", "2023-04-03/2023-04-03"]


def test_several_times_are_all_asked_about():
    assert when("last May or in spring 2023") == ["2024-05-01/2024-05-31", "2023-03-01/2023-05-31"]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map(" ".join)), DAYS)
def test_any_text_names_times_that_begin_before_they_end(text: str, today: date):
    for each in periods.asked(text, today):
        assert each.first <= each.last


@given(st.lists(st.sampled_from(PIECES)).map("".join), DAYS)
def test_any_text_without_spaces_does_too(text: str, today: date):
    for each in periods.asked(text, today):
        assert each.first <= each.last


@pytest.mark.parametrize(
    "piece", ["1 ", "2023年", "May ", "between ", "the week before ", " ", "上", "9"]
)
def test_a_hostile_text_takes_no_longer_than_a_long_one(piece: str):
    began = time.process_time()
    periods.asked(piece * 200_000, TODAY)
    assert time.process_time() - began < 0.5


@given(DAYS, st.integers(0, 800), st.integers(-1000, 1000))
def test_nearer_days_are_never_worth_less(first: date, length: int, away: int):
    period = Period(first, first + timedelta(days=length))
    day = first + timedelta(days=away)
    farther = day + timedelta(days=1 if day > period.last else -1)
    assert 0 <= period.closeness(day) <= periods.NEAR
    if day < period.first or day > period.last:
        assert period.closeness(farther) < period.closeness(day)
    inside = 0 <= away <= length
    is_told = length == 0 and 0 < away <= periods.TOLD_WITHIN
    assert period.nearness(day) == (1.0 if inside else periods.TOLD_LATER if is_told else 0.0)


WRITTEN_DAYS = st.dates(date(1900, 1, 1), date(2099, 12, 31))
FORMATS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d %B %Y", "%B %d, %Y", "%b %d %Y", "%d %b. %Y",
    "%Y年%m月%d日", "%Y 年 %m 月 %d 号", "%d.%m.%Y", "%d. %m. %Y",
)  # fmt: skip


@given(WRITTEN_DAYS, st.sampled_from(FORMATS), st.sampled_from(("", "on ", "昨天（", "x, ")))
def test_a_day_is_read_however_it_is_written(day, written, before):
    text = f"{before}{day.strftime(written)} we went"
    assert periods.named_days(text) == (Named(day.year, day.month, day.day),)
    assert periods.first_day(text) == day


@pytest.mark.parametrize(
    "text",
    [
        "november 17th",
        "on the 17th of November",
        "Nov. 17",
        "17 november",
        "11月17号",
        "十一月十七日",
    ],
)
def test_a_day_without_a_year_is_one_of_each_year_the_one_to_come_too(text):
    days = when(f"{text} where was I")
    assert days[:2] == ["2024-11-17/2024-11-17", "2023-11-17/2023-11-17"]
    assert when(text.replace("17", "27").replace("十七", "二十七"))[0] == "2024-11-27/2024-11-27"


@pytest.mark.parametrize("text", ["May 2023", "in may of 2023?", "2023年5月", "MAY, 2023"])
def test_a_month_is_a_month(text):
    assert periods.named_days(text) == (Named(2023, 5, 0),)
    assert periods.first_day(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "may I", "2026-13-01", "2026-02-30", "31 February 2026", "12026-01-01", "2026-1-123",
        "1800-01-01", "call 555-2026", "version 2026.1", "1.2026.1.2", "2026.1.2.3", "1.2.3.2026",
        "3.4.20261",
        "marching in 2026", "日月年",
    ],
)  # fmt: skip
def test_what_is_no_day_is_none(text):
    assert periods.first_day(text) is None


def test_days_come_once_and_in_the_order_of_the_text():
    text = "2026-05-03, then 1 May 2026, then 3 May 2026 and June 2026"
    assert periods.named_days(text) == (Named(2026, 5, 3), Named(2026, 5, 1), Named(2026, 6, 0))


@given(st.text())
def test_any_text_can_be_asked_for_its_days(text):
    for each in periods.named_days(text):
        assert each.day == 0 or each.as_date()


def test_the_whole_days_of_a_text_are_read_at_once():
    text = "2026-05-03, in June 2026, 3 May 2026 and 4.5.2026, not 31.02.2026"
    assert periods.days_of(text) == {date(2026, 5, 3), date(2026, 5, 4)}
    assert periods.days_of("nothing of 12026") == frozenset()


TOKENIZE = tokenizer(apsw.Connection(":memory:"))
BOTH = Weights(text=0.7, vector=0.3)
THAT_DAY = date(2026, 11, 21)


def order(query: str, *texts: str) -> list[int]:
    """The places of texts, the best answer first."""
    items = [
        Candidate(at, Hit("main", f"{at}.md", 1, 1, 0.0, "", "memory"), text)
        for at, text in enumerate(texts)
    ]
    found = ranking.score(items, words.parse(query, TOKENIZE), None, TOKENIZE)
    return [each.candidate.key for each in ranking.fuse(found, BOTH, today=THAT_DAY)]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Ada: hello", "Ada"),
        ("- 14:03 Ada: hello", "Ada"),
        ("[14:03:20] Ada Lovelace: hello", "Ada Lovelace"),
        ("**Jean-Luc O'Neill**: oui", "Jean-Luc O'Neill"),
        ("小明：你好", "小明"),
        ("- 小明: 你好", "小明"),
        ("see https://example.org", ""),
        ("https://example.org: down", ""),
        ("14:03 hello", ""),
        ("hello", ""),
        ("", ""),
        (":", ""),
        ("this is a whole sentence of many words: and more", ""),
        ("x" * 60 + ": hello", ""),
    ],
)
def test_a_line_of_a_conversation_begins_with_who_says_it(line, name):
    assert listing.label(line) == name


def test_notes_in_which_a_colon_stands_now_and_then_are_no_conversation():
    note = "- Meeting: Tuesday\n- buy milk\n- call mother\n- water the plants"
    talk = "# May\nAda: hello\nBob: hi\n\nAda: how are you?"
    assert listing.labels(chunking.units(note, size=80)) == [""] * 4
    assert listing.labels(chunking.units(talk, size=80)) == ["", "Ada", "Bob", "", "Ada"]


def test_what_is_asked_of_one_person_is_not_answered_by_anothers_words():
    ada = "Bob: did you go to Norway?\nAda: I went to see the glaciers there\nBob: great"
    bob = "Ada: where do you want to go?\nBob: to see the glaciers of Norway\nAda: oh"
    assert order("What did Ada go to see in Norway?", bob, ada, "Cid: no idea") == [1, 0, 2]
    assert order("What does Bob want to see in Norway?", ada, bob, "Cid: no idea") == [1, 0, 2]


def test_an_answer_may_stand_beside_the_line_with_the_words():
    asked = "Bob: what did you buy at the flea market?\nAda: I got a brass lamp\nBob: lovely"
    other = "Ada: there was a market\nAda: with fleas\nBob: what?\nBob: no lamp"
    assert order("What did Ada buy at the flea market?", other, asked)[0] == 1


def test_where_nobody_speaks_the_order_is_what_words_make_it():
    notes = ["- the dentist is on Tuesday", "- Tuesday is a holiday", "- 14:03 tea with Ada"]
    assert order("dentist Tuesday", *notes) == [0, 1, 2]
    assert order("Ada", *notes)[0] == 2


@given(st.lists(st.text("AdaBob :：-\n我们ü9[]*", max_size=80), min_size=1, max_size=4), st.text())
def test_whatever_is_written_each_score_is_a_share(texts, query):
    items = [
        Candidate(at, Hit("main", f"{at}.md", 1, 1, 0.0, "", "memory"), text)
        for at, text in enumerate(texts)
    ]
    found = ranking.score(items, words.parse(f"Ada {query}", TOKENIZE), None, TOKENIZE)
    for each in ranking.fuse(found, BOTH, today=THAT_DAY):
        assert 0.0 <= each.speech <= ranking.NAMED + ranking.SAID + ranking.FIRST + 1e-6
        assert 0.0 <= each.score <= 1.0
        assert each.score > 0 or each.text == 0


@pytest.mark.parametrize(
    "question",
    [
        "Which countries has Ada been to?",
        "what kinds of tea do we have",
        "Who of my friends plays an instrument?",
        "What are her hobbies?",
        "Which of the books were lent?",
        "Where has Ada camped?",
        "How many races has Farid run?",
        "What do Elena and Farid have in common?",
        "What have both painted?",
        "Tell me everything about the trip",
        "我去过哪些城市？",
        "他们有什么共同的爱好",
        "谁会演奏乐器？",
        "苏敏一共上过几个课",
    ],
)
def test_a_question_may_ask_for_many(question: str):
    assert asks_for_many(question)


@pytest.mark.parametrize(
    "question",
    [
        *("", "When did Ada go to Lisbon?", "What is the name of the dog?"),
        *("Which bus goes to the harbour?", "Whose glass is it?", "What is Ada's address?"),
        *("小雨的老师叫什么？", "护照什么时候到期"),
    ],
)
def test_or_for_one(question: str):
    assert not asks_for_many(question)


@given(st.text())
def test_any_text_can_be_a_question(question: str):
    assert asks_for_many(question) in {True, False}
