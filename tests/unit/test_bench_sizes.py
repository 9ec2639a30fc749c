"""What the benchmark of sizes makes of its measurements."""

from __future__ import annotations

from bench.sizes import Found, Size, Words, report

FOUND = Found(
    turns=1_000,
    person={"entries": Size(0, 0), "inbox": Size(0, 0), "sessions": Size(300, 200)},
    turn={
        "entries": Size(1_000, 500),
        "inbox": Size(300, 100),
        "memory_chunks": Size(900, 100),
        "fences": Size(60, 40),
        "sessions": Size(0, 0),
        "procrastinate_jobs": Size(80, 80),
    },
    log=20_000,
    seconds=10,
)


def test_what_is_kept_for_ever_grows_by_the_year_and_the_rest_stays_as_it_is():
    text = report(FOUND, retention=30)
    # 100 turns a second are 8.64 million a day.
    assert "| entries | 1000 | 500 | 0 | for ever | 4,730 GB |" in text
    assert "| inbox | 300 | 100 | 0 | 30 d | 104 GB |" in text
    assert "| memory_chunks | 900 | 100 | 0 | 30 d | 259 GB |" in text
    assert "| fences | 60 | 40 | 0 | 1 d | 1 GB |" in text
    assert "| sessions | 0 | 0 | 500 | for ever | 0 GB |" in text  # half of one
    assert "4.7 TB more each year, beside 364 GB" in text
    assert "20.0 kB a turn, 2.0 MB a second, 173 GB a day" in text
    assert "procrastinate" not in text


def test_a_size_is_what_came_to_it_for_each():
    assert Size(1_000, 300).since(Size(200, 100), 4) == Size(200.0, 50.0)


def test_people_write_the_same_each_time():
    assert Words().text(25) == Words().text(25)
    assert len(Words().text(80).split()) == 80
