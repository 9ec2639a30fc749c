"""Which proxy serves an address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from bot.net.proxy import Proxy, choose, is_local
from bot.net.proxy import parse as parse_proxy

API = URL("https://api.example.org/v1")


@pytest.mark.parametrize(
    ("written", "proxy"),
    [
        ("127.0.0.1:7890", Proxy("http", "127.0.0.1", 7890)),
        ("proxy.lan:3128", Proxy("http", "proxy.lan", 3128)),
        ("proxy.lan", Proxy("http", "proxy.lan", 80)),
        (" http://proxy.lan:3128/ ", Proxy("http", "proxy.lan", 3128)),
        ("HTTP://Proxy.lan:3128", Proxy("http", "proxy.lan", 3128)),
        ("https://proxy.lan", Proxy("https", "proxy.lan", 443)),
        ("ada:s3cret@proxy.lan:3128", Proxy("http", "proxy.lan", 3128, "ada", "s3cret")),
        ("http://ada:p%40ss%3A@p.lan:1", Proxy("http", "p.lan", 1, "ada", "p@ss:")),
        ("socks5://127.0.0.1:1080", Proxy("socks5", "127.0.0.1", 1080)),
        ("socks5h://ada:s3cret@p.lan", Proxy("socks5", "p.lan", 1080, "ada", "s3cret")),
        ("socks://127.0.0.1:7891/", Proxy("socks5", "127.0.0.1", 7891)),
        ("[::1]:7890", Proxy("http", "::1", 7890)),
        ("none", None),
        (" NONE ", None),
    ],
)
def test_what_is_written_is_a_proxy(written, proxy):
    assert parse_proxy(written) == proxy


@pytest.mark.parametrize(
    "written",
    [
        *("", " ", ":", "http://", ":7890", "http://:7890", "p.lan:", "p.lan:0", "p.lan:99999"),
        *("p.lan:http", "ftp://p.lan:21", "socks4://p.lan:1080", "file:///etc/passwd", "a b:80"),
        *("http://ada:s3cret", "javascript:s3cret", "http://[::1:80", "http://s3cret@"),
    ],
)
def test_what_is_no_proxy_is_refused_without_repeating_it(written):
    if written == "p.lan:":
        assert parse_proxy(written) == Proxy("http", "p.lan", 80)
        return
    with pytest.raises(ValueError, match="proxy") as refused:
        parse_proxy(written)
    assert "s3cret" not in str(refused.value)


@given(st.text(), st.dictionaries(st.sampled_from(["http", "https", "all", "no"]), st.text()))
def test_nothing_that_is_written_is_more_than_refused(text, environment):
    for chosen in (text, ""):
        try:
            found = choose(API, chosen, environment)
        except ValueError:
            continue
        assert found is None or (found.host and 0 < found.port < 65536)


P, Q = Proxy("http", "p.lan", 1), Proxy("socks5", "q.lan", 2)
ONE, OTHER = "p.lan:1", "socks5://q.lan:2"


@pytest.mark.parametrize(
    ("address", "chosen", "environment", "proxy"),
    [
        (API, "", {}, None),
        (API, "", {"https": ONE}, P),
        (API, "", {"http": ONE}, None),
        ("http://api.example.org", "", {"http": ONE}, P),
        ("wss://gateway.example.org", "", {"https": ONE}, P),
        ("ws://gateway.example.org", "", {"http": ONE}, P),
        (API, "", {"all": OTHER}, Q),
        (API, "", {"https": ONE, "all": OTHER}, P),
        (API, "", {"https": "", "all": OTHER}, Q),
        (API, "", {"https": "none", "all": OTHER}, None),
        # What was chosen beats the environment, its exceptions and what is local.
        (API, ONE, {"https": OTHER, "no": "*"}, P),
        (API, "none", {"https": OTHER}, None),
        ("http://127.0.0.1:11434/v1", ONE, {}, P),
        # What is local is called directly.
        *(
            (f"http://{host}:11434/v1", "", {"http": ONE, "all": OTHER}, None)
            for host in (
                *("127.0.0.1", "127.8.8.8", "localhost", "LocalHost.", "api.localhost", "[::1]"),
                *("10.0.0.7", "192.168.1.5", "172.20.0.2", "169.254.1.1"),
                *("100.64.0.9", "[fd00::5]"),
                *("ollama", "gpu.local", "host.docker.internal", "nas.lan", "box.home.arpa"),
            )
        ),
        ("http://8.8.8.8", "", {"http": ONE}, P),
        ("http://172.32.0.1", "", {"http": ONE}, P),
        ("http://[2606:4700::1]", "", {"http": ONE}, P),
        # NO_PROXY
        *(
            (API, "", {"https": ONE, "no": no}, None)
            for no in (
                *("*", "api.example.org", "example.org", ".example.org", "*.example.org", "org"),
                *("a.b, example.org", "a.b example.org", "EXAMPLE.ORG", "api.example.org:443"),
            )
        ),
        *(
            (API, "", {"https": ONE, "no": no}, P)
            for no in (
                *("ple.org", "api.example", "example.org:80", "www.example.org", "."),
                *(",", "10.0.0.0/8"),
                *("*.", "xapi.example.org", "443", "[", "1/2/3"),
            )
        ),
        ("https://8.8.8.8", "", {"https": ONE, "no": "8.8.0.0/16"}, None),
        ("https://8.8.8.8", "", {"https": ONE, "no": "8.8.8.8"}, None),
        ("https://8.8.8.8", "", {"https": ONE, "no": "8.9.0.0/16,2600::/12"}, P),
        ("https://[2606:4700::1]:8443", "", {"https": ONE, "no": "[2606:4700::1]:8443"}, None),
        ("https://[2606:4700::1]", "", {"https": ONE, "no": "2606::/16"}, None),
    ],
)
def test_the_proxy_of_an_address(address, chosen, environment, proxy):
    assert choose(URL(address), chosen, environment) == proxy


def test_a_variable_that_cannot_be_used_is_named():
    for name in ("https", "all"):
        with pytest.raises(ValueError, match=f"^{name.upper()}_PROXY cannot be used: ") as refused:
            choose(API, "", {name: "gopher://ada:s3cret@p.lan"})
        assert "s3cret" not in str(refused.value)


def test_a_password_is_in_nothing_that_is_shown():
    proxy = parse_proxy("socks5://ada:s3cret@p.lan:1080")
    assert proxy is not None
    assert "s3cret" not in f"{proxy!r} {proxy.url}"
    assert proxy.with_login == "socks5://ada:s3cret@p.lan:1080"


def test_public_names_are_not_local():
    assert not any(map(is_local, ("api.openai.com", "local.example.org", "8.8.8.8", "internal.ai")))
