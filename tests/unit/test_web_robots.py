"""robots.txt, by the examples and rules of RFC 9309."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.tools.web.robots import NOTHING, Rules, parse

# RFC 9309, 5.1
SIMPLE = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("program", "path", "allowed"),
    [
        ("confidant", "/", True),
        ("confidant", "/publications/a", True),
        ("confidant", "/example/a", False),
        ("confidant", "/a.gif", False),
        ("confidant", "/a.gif?x", True),
        ("foobot", "/", False),
        ("FooBot", "/example/page.html", True),
        ("foobot", "/example/allowed.gif", True),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/example/", True),
        ("quxbot", "/example/", True),
    ],
)
def test_the_rules_of_the_standards_example(program: str, path: str, *, allowed: bool):
    assert parse(SIMPLE, program).allow(path) is allowed


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        # RFC 9309, 5.2: the longest match
        ("Allow: /example/page/\nDisallow: /example/page/disallowed.gif", "/example/page/", True),
        (
            "Allow: /example/page/\nDisallow: /example/page/disallowed.gif",
            "/example/page/disallowed.gif",
            False,
        ),
        ("Disallow: /a\nAllow: /a", "/a", True),
        ("Disallow:", "/a", True),
        ("Disallow: /", "/robots.txt", True),
        # special characters (2.2.3)
        ("Disallow: /fish*.php", "/fish/food.php?id=1", False),
        ("Disallow: /fish*.php", "/Fish.php", True),
        ("Disallow: /*.php$", "/a.php", False),
        ("Disallow: /*.php$", "/a.php5", True),
        ("Disallow: /a$", "/a", False),
        ("Disallow: /a$", "/ab", True),
        ("Disallow: /*a*b$", "/xaxb", False),
        ("Disallow: /*a*b$", "/xb", True),
        ("Disallow: /*aa$", "/a", True),
        ("Disallow: *", "/any", False),
        # spellings (2.2.2)
        ("Disallow: /foo/bar?baz=quz", "/foo/bar?baz=quz", False),
        ("Disallow: /foo/bar/ツ", "/foo/bar/%E3%83%84", False),
        ("Disallow: /foo/bar/%e3%83%84", "/foo/bar/%E3%83%84", False),
        ("Disallow: /foo/bar/%62%61%7A", "/foo/bar/baz", False),
        ("Disallow: /a%2Fb", "/a/b", True),
        # what is no rule
        ("Disallow: /a # not this", "/a", False),
        ("disALLOW : /a", "/a", False),
        ("Crawl-delay: 9\nDisallow: /a", "/a", False),
        ("Sitemap: /x\nDisallow: /a", "/a", False),
        ("Disallow /a", "/a", True),
        ("<html>: /a", "/a", True),
    ],
)
def test_a_path_is_judged_by_the_rule_that_fits_best(rules: str, path: str, *, allowed: bool):
    assert parse(f"User-agent: *\n{rules}", "confidant").allow(path) is allowed


def test_groups_of_one_program_count_together_and_instead_of_everybodys():
    text = "user-agent: confidant/2.0\ndisallow: /a\n\nuser-agent: *\ndisallow: /b\n"
    text += "user-agent: Confidant\ndisallow: /c\n"
    rules = parse(f"\ufeff{text}", "confidant")
    assert [rules.allow(path) for path in ("/a", "/b", "/c")] == [False, True, False]


def test_rules_before_any_program_are_nobodys():
    assert parse("disallow: /\nuser-agent: *\n", "confidant").allow("/a")


def test_without_rules_all_may_be_read_and_with_nothing_nothing():
    assert Rules().allow("/a")
    assert not NOTHING.allow("/a")
    assert NOTHING.allow("/robots.txt")


def test_a_pattern_made_to_take_long_is_judged_at_once():
    rules = parse(f"user-agent: *\ndisallow: /{'*a' * 100_000}$", "confidant")
    assert rules.allow(f"/{'a' * 1_900}b")


@given(st.text(), st.text())
def test_whatever_stands_there_is_judged(text: str, path: str):
    parse(f"user-agent: *\n{text}\ndisallow: {text}", "confidant").allow(f"/{path}")
