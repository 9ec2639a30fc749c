"""Which addresses are opened, by which connections, and what robots.txt says."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.tools.web.fetch import PROGRAM, read_robots
from bot.errors import AddressRefused
from bot.net import connection
from bot.net.addresses import LONGEST, Guard, is_public
from bot.net.connection import CONNECTIONS, LOOKUPS, MOST_ADDRESSES, CheckedResolver, SystemLookup
from tests.support import PATIENCE, until

GUARD = Guard.from_hosts(["wiki.example", "10.0.0.7:8080", "[fd00::7]:8080", "Intra.Example.:22"])

CLOSED = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200"),
    *("100.127.255.255", "127.0.0.1", "127.8.8.8", "168.63.129.16", "169.254.0.1"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1"),
    *("192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1"),
    *("::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8"),
    *("100::1", "2001::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:db8::1", "2002:7f00:1::"),
    *("2002:808:808::1", "2607:f8b0::5efe:10.0.0.1", "2607:f8b0::200:5efe:7f00:1", "3fff::1"),
    *("5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2607:f8b0::1%eth0"),
    *("fec0::1", "ff02::1", "", "localhost", "8.8.8.8.8", "1", "0x7f.0.0.1", "0177.0.0.1"),
]
OPEN = [
    *("8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1"),
    *("168.63.129.17", "192.0.1.1", "223.255.255.255", "2607:f8b0:4005:80a::200e"),
    *("2a00:1450:4001:828::2004", "64:ff9b::8.8.8.8", "2607:f8b0::5efe:8.8.8.8"),
]


@pytest.mark.parametrize("address", CLOSED)
def test_an_address_that_is_not_everybodys_is_not_public(address: str):
    assert not is_public(address)


@pytest.mark.parametrize("address", OPEN)
def test_an_address_that_is_everybodys_is_public(address: str):
    assert is_public(address)


@given(st.ip_addresses())
def test_nothing_python_knows_to_be_closed_is_public(address):
    closed = (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )
    is_nat64 = address in ipaddress.ip_network("64:ff9b::/96")
    assert not (closed and is_public(str(address))) or is_nat64


REFUSED = {
    # schemes
    "file:///etc/passwd": "https://",
    "ftp://ftp.example/": "https://",
    "gopher://h.example:70/_x": "https://",
    "data:text/html,x": "https://",
    "javascript:alert(1)": "https://",
    "view-source:http://a.example/": "https://",
    "blob:https://a.example/1": "https://",
    "unix:///run/docker.sock": "https://",
    "//a.example/": "https://",
    "a.example": "https://",
    "": "https://",
    # hosts
    "http:///x": "no host",
    "http:x": "no host",
    "https://?x": "no host",
    "http://a..example/": "no host",
    "http://-a.example/": "no host",
    "http://a%2eexample/": "no host",
    "http://a.example%00.evil.example/": "no host",
    f"http://{'a' * 64}.example/": "no host",
    f"http://{'a.' * 150}example/": "no host",
    "http://2130706433/": "a number",
    "http://0x7f000001/": "a number",
    "http://0x7f.1/": "a number",
    "http://017700000001/": "a number",
    "http://0177.0.0.1/": "a number",
    "http://127.1/": "a number",
    "http://8.8.8.8.8/": "a number",
    "http://127%2e0.0.1/": "a number",
    "http://1.2.3.256/": "a number",
    "http://[::1": "no address",
    "http://[::1]x/": "no address",
    "http://[1:2]/": "a number",
    # who is who
    "http://ada@a.example/": "name or password",
    "http://ada:pw@a.example/": "name or password",
    "http://:pw@a.example/": "name or password",
    "http://a.example@10.0.0.1/": "name or password",
    "http://a.example\\@10.0.0.1/": "blanks or other",
    "http://a.example/ b": "blanks or other",
    "http://a.example/\r\nHost: x": "blanks or other",
    "http://a.example/\x00": "blanks or other",
    "http://a\u2028.example/": "blanks or other",
    f"http://a.example/{'a' * 2_000}": "more than 2000",
    # IP addresses, however they are written
    "http://127.0.0.1/": "not public",
    "http://127.0.0.1./": "not public",
    "http://１２７.0.0.1/": "not public",
    "http://127。0。0。1/": "not public",
    "http://①②⑦.0.0.1/": "not public",
    "http://169.254.169.254/latest/meta-data/": "not public",
    "http://[::1]/": "not public",
    "http://[0:0:0:0:0:0:0:1]/": "not public",
    "http://[::ffff:169.254.169.254]/": "not public",
    "http://[::ffff:a9fe:a9fe]/": "not public",
    "http://[fe80::1%25eth0]/": "not public",
    "http://[64:ff9b::a00:1]/": "not public",
    "http://10.0.0.7/": "not public",  # the port that is open is another
    "http://10.0.0.8:8080/": "not public",
    # ports
    "http://a.example:0/": "port",
    "http://a.example:22/": "port",
    "http://a.example:25/": "port",
    "http://a.example:6667/": "port",
    "http://a.example:10080/": "port",
    "http://a.example:65536/": "no address",
    "http://a.example:x/": "no address",
}
OPENED = {
    "https://a.example": "https://a.example",
    " HTTPS://A.Example:443/B?c=d#e ": "https://a.example/B?c=d",
    "http://a.example.:8080/": "http://a.example:8080/",
    "http://bücher.example/ü?ü": "http://xn--bcher-kva.example/%C3%BC?%C3%BC",
    "http://8.8.8.8/": "http://8.8.8.8/",
    "https://[2607:f8b0::1]:8443/": "https://[2607:f8b0::1]:8443/",
    "http://localhost/": "http://localhost/",  # its addresses are judged when they are known
    "http://10.0.0.7:8080/": "http://10.0.0.7:8080/",
    "http://[fd00::7]:8080/x": "http://[fd00::7]:8080/x",
    "http://intra.example:22/": "http://intra.example:22/",
    "http://a_b.example/a%2Fb%00": "http://a_b.example/a%2Fb%00",
    # as long, or as low, as may be
    "http://a.example:1024/": "http://a.example:1024/",
    f"http://a.example/{'a' * (LONGEST - 17)}": f"http://a.example/{'a' * (LONGEST - 17)}",
    f"http://{'a.' * 126}a/": f"http://{'a.' * 126}a/",
}
# What the model is told, whole.
SENTENCES = {
    str(AddressRefused()),
    "the address has more than 2000 characters",
    "the address has blanks or other characters that none has",
    "that is no address of the web",
    "only addresses that begin with https:// or http:// are opened",
    "addresses with a name or password before the host are refused",
    "that port is not for web pages",
    "the host is a number, and not an IP address as it is written",
    "the address has no host that could be looked up",
}


@pytest.mark.parametrize("written", REFUSED)
def test_an_address_that_is_none_or_a_trick_is_refused(written: str):
    with pytest.raises(AddressRefused, match=REFUSED[written]) as refused:
        GUARD.url(written)
    assert str(refused.value) in SENTENCES


@pytest.mark.parametrize("written", OPENED)
def test_an_address_is_opened_in_one_form(written: str):
    assert str(GUARD.url(written)).removesuffix("/") == OPENED[written].removesuffix("/")


@given(st.text(max_size=40))
def test_whatever_is_written_is_refused_or_has_a_scheme_and_a_host(words: str):
    for written in (words, f"http://{words}", f"http://{words}/", f"http://a.example{words}"):
        try:
            url = GUARD.url(written)
        except AddressRefused:
            continue
        assert url.scheme in {"http", "https"}
        assert url.raw_host
        assert url.user is None
        assert GUARD.url(str(url)) == url


@pytest.mark.parametrize(
    ("host", "port", "address", "may"),
    [
        ("a.example", 80, "8.8.8.8", True),
        ("a.example", 80, "10.0.0.1", False),
        ("wiki.example", 80, "10.0.0.1", True),
        ("wiki.example", 443, "fd00::1", True),
        ("wiki.example", 80, "127.0.0.1", True),
        ("wiki.example", 8080, "10.0.0.1", False),
        ("wiki.example", 80, "169.254.169.254", False),
        ("wiki.example", 80, "100.100.100.200", False),
        ("wiki.example", 80, "fd00:ec2::254", False),
        ("wiki.example", 80, "::ffff:10.0.0.1", False),
        ("wiki.example", 80, "224.0.0.1", False),
        ("wiki.example", 80, "0.0.0.0", False),
        ("wiki.example", 80, "fd00::1%eth0", False),
        ("wiki.example", 80, "nonsense", False),
        ("www.wiki.example", 80, "10.0.0.1", False),
    ],
)
def test_a_host_an_operator_named_may_be_in_their_network(host, port, address, *, may: bool):
    assert GUARD.may_connect(host, port, address) is may


def test_a_named_host_is_open_at_the_webs_ports_or_at_its_own():
    both = {("wiki.example", 80), ("wiki.example", 443)}
    assert Guard.from_hosts(["Wiki.Example."]).internal == both
    assert Guard.from_hosts([" wiki.example "]).internal == both
    assert Guard.from_hosts(["wiki.example:8080"]).internal == {("wiki.example", 8080)}
    assert Guard.from_hosts([]).internal == frozenset()


@pytest.mark.parametrize(
    "host", ["", "a b", "a/b", "http://a", "ada@a", "a:0", "a:x", "a:70000", "127.1", "*.a", "a?b"]
)
def test_an_internal_host_that_is_none_is_a_mistake(host: str):
    with pytest.raises(ValueError, match="is no host: write"):
        Guard.from_hosts([host])


V4, V6 = "93.184.216.34", "2607:f8b0::1"
TCP = socket.IPPROTO_TCP


def resolver(*addresses: str) -> CheckedResolver:
    async def lookup(_host: str) -> Sequence[str]:
        return addresses

    return CheckedResolver(Guard(), lookup)


async def test_what_was_found_is_handed_on_as_numbers():
    found = await resolver(V4, V6).resolve("a.example", 8443)
    numbers = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    common = {"hostname": "a.example", "port": 8443, "proto": 0, "flags": numbers}
    assert found == [
        {**common, "host": V4, "family": socket.AF_INET},
        {**common, "host": V6, "family": socket.AF_INET6},
    ]


async def test_no_more_addresses_are_tried_than_may_be():
    many = [f"8.8.{number}.8" for number in range(MOST_ADDRESSES + 1)]
    found = await resolver(*many).resolve("a.example", 80)
    assert [each["host"] for each in found] == many[:MOST_ADDRESSES]


async def test_a_host_without_addresses_cannot_be_connected():
    with pytest.raises(OSError, match=r"^no addresses$"):
        await resolver().resolve("a.example", 80)


async def test_one_address_that_may_not_be_opened_closes_the_host():
    checked = resolver(V4, "10.0.0.1")
    with pytest.raises(AddressRefused):
        await checked.resolve("a.example", 80)
    assert not checked.may_connect("10.0.0.1", 80)


async def test_a_socket_is_of_the_kind_that_was_asked_for_and_never_blocks():
    checked = resolver(V4)
    made: Any = connection.connector(checked)
    try:
        await checked.resolve("a.example", 80)
        place = (socket.AF_INET, socket.SOCK_STREAM, TCP, "", (V4, 80))
        assert (made.limit, made.use_dns_cache) == (CONNECTIONS, False)
        with made._socket_factory(place) as opened:
            assert (opened.family, opened.proto) == (socket.AF_INET, TCP)
            assert not opened.getblocking()
        closed = (socket.AF_INET, socket.SOCK_STREAM, TCP, "", ("10.0.0.1", 80))
        with pytest.raises(AddressRefused):
            made._socket_factory(closed)
    finally:
        await made.close()


async def test_names_are_looked_up_in_threads_of_their_own(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, str]] = []

    def found(host: str, *_: object, **__: object) -> list[Any]:
        asked.append((host, threading.current_thread().name))
        return [(socket.AF_INET, 0, 0, "", (V4, 0)), (socket.AF_INET, 0, 0, "", (V4, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    lookup = SystemLookup()
    try:
        assert await lookup("a.example") == [V4]
    finally:
        lookup.close()
    ((host, thread),) = asked
    assert host == "a.example"
    assert thread.startswith("lookup")


async def test_names_that_take_long_hold_up_neither_the_end_nor_anything_else(monkeypatch):
    asked: list[str] = []
    answered = threading.Event()

    def slow(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(threading.current_thread().name)
        answered.wait()
        return [(socket.AF_INET, 0, 0, "", (V4, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    lookup = SystemLookup()
    looking = [asyncio.ensure_future(lookup("a.example")) for _ in range(3 * LOOKUPS)]
    try:
        await until(lambda: len(asked) >= LOOKUPS)
        await asyncio.wait_for(asyncio.to_thread(lookup.close), PATIENCE)
    finally:
        answered.set()
    found = await asyncio.gather(*looking, return_exceptions=True)
    assert found.count([V4]) == len(asked) == len(set(asked)) == LOOKUPS
    assert sum(isinstance(each, asyncio.CancelledError) for each in found) == 2 * LOOKUPS


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
ROBOTS_CLOSED = "\nUser-Agent: confidant\nDisallow:/\nAllow:/example/page.html\n"
TOGETHER = "\nUser-Agent: barbot\nUser-Agent: Confidant\nDisallow: /example/page.html\n"


@pytest.mark.parametrize(
    ("ours", "path", "allowed"),
    [
        ("", "/", True),
        ("", "/publications/a", True),
        ("", "/example/a", False),
        ("", "/a.gif", False),
        ("", "/a.gif?x", True),
        (ROBOTS_CLOSED, "/", False),
        (ROBOTS_CLOSED, "/example/page.html", True),
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
