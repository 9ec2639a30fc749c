"""robots.txt, by the examples and rules of RFC 9309."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.tools.web.browser import PROGRAM, read_robots


def allows(text: str, path: str, program: str = PROGRAM) -> bool:
    return read_robots(text).can_fetch(f"https://example.org{path}", program)


# RFC 9309, 5.1, with this program among the others
SIMPLE = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif
{ours}
User-Agent: quxbot
Disallow: /
"""
CLOSED = "\nUser-Agent: confidant\nDisallow:/\nAllow:/example/page.html\n"
TOGETHER = "\nUser-Agent: barbot\nUser-Agent: Confidant\nDisallow: /example/page.html\n"


@pytest.mark.parametrize(
    ("ours", "path", "allowed"),
    [
        ("", "/", True),
        ("", "/publications/a", True),
        ("", "/example/a", False),
        ("", "/a.gif", False),
        ("", "/a.gif?x", True),
        (CLOSED, "/", False),
        (CLOSED, "/example/page.html", True),
        (TOGETHER, "/example/page.html", False),
        (TOGETHER, "/example/", True),
        ("\nUser-Agent: confidant\n\n", "/example/", False),
        ("\nUser-Agent: Confidantial\nAllow: /\n", "/example/", False),
    ],
)
def test_the_rules_of_the_standards_example(ours: str, path: str, *, allowed: bool):
    assert allows(SIMPLE.format(ours=ours), path) is allowed


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
        ("<html>: /a", "/a", True),
    ],
)
def test_a_path_is_judged_by_the_rule_that_fits_best(rules: str, path: str, *, allowed: bool):
    assert allows(f"User-agent: *\n{rules}", path) is allowed


def test_groups_of_one_program_count_together_and_instead_of_everybodys():
    text = "user-agent: confidant/2.0\ndisallow: /a\n\nuser-agent: *\ndisallow: /b\n"
    text = f"\ufeff{text}user-agent: Confidant\ndisallow: /c\n"
    assert [allows(text, path) for path in ("/a", "/b", "/c")] == [False, True, False]


def test_rules_before_any_program_are_nobodys():
    assert allows("disallow: /\nuser-agent: *\n", "/a")


def test_a_pattern_made_to_take_long_is_judged_at_once():
    rules = f"user-agent: *\ndisallow: /{'*a' * 100_000}$"
    assert allows(rules, f"/{'a' * 1_900}b")


@pytest.mark.parametrize(
    ("name", "allowed"), [("a", True), ("*", True), ("confidant/", False), ("Confidant-", True)]
)
def test_thousands_of_programs_and_rules_are_read_at_once(name: str, *, allowed: bool):
    programs = "".join(f"User-agent: {name}{number}\n" for number in range(15_000))
    assert allows(programs + "Disallow: /\n" * 15_000, "/a") is allowed


@given(st.text(), st.text())
def test_whatever_stands_there_is_judged(text: str, path: str):
    allows(f"user-agent: *\n{text}\ndisallow: {text}", f"/{path}")
