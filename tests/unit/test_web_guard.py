from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config import DashboardConfig
from bot.dashboard import Check, Readiness
from bot.dashboard.guard import Guard, host_of, is_loopback
from bot.dashboard.pages import WORDS
from bot.dashboard.server import Listening
from bot.dashboard.sessions import COOKIE_SECONDS, MAX_FAILURES, Failures, Tokens
from bot.errors import ConfigError


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1", "[::1]"]
)
def test_loopback_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "192.168.1.2", "example.org", "127.0.0.1.evil.example", "localhost."],
)
def test_every_other_name_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost:8420", "localhost"),
        ("[::1]:8420", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1", ""),
        ("evil.example#127.0.0.1", "evil.example"),
        ("127.0.0.1@evil.example", "evil.example"),
    ],
)
def test_host_header(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "bot.example.org"])
@pytest.mark.parametrize("token", [None, ""])
def test_an_open_address_without_a_token_is_refused(host: str, token: str | None) -> None:
    with pytest.raises(ConfigError, match="CONFIDANT_DASHBOARD__TOKEN"):
        Guard(DashboardConfig.model_validate({"host": host, "token": token}))


def test_tokens_accept_only_the_token() -> None:
    tokens = Tokens("correct horse")
    assert tokens.accepts("correct horse")
    assert not tokens.accepts("correct horsf")
    assert not tokens.accepts("")


def test_a_cookie_proves_the_token_without_holding_it_and_runs_out() -> None:
    now = [1000.0]
    tokens = Tokens("correct horse", clock=lambda: now[0])
    cookie = tokens.issue()
    assert "correct" not in cookie
    assert tokens.remembers(cookie)
    assert not Tokens("another", clock=lambda: now[0]).remembers(cookie)
    now[0] += COOKIE_SECONDS + 1
    assert not tokens.remembers(cookie)


def test_a_cookie_with_a_later_expiry_is_a_forgery() -> None:
    expiry, _, signature = Tokens("t").issue().partition(".")
    assert not Tokens("t").remembers(f"{int(expiry) + 1}.{signature}")


@given(st.text())
def test_no_text_is_a_cookie(text: str) -> None:
    assert not Tokens("correct horse").remembers(text)


def test_guessing_is_slowed_per_address() -> None:
    now = [0.0]
    failures = Failures(clock=lambda: now[0])
    for _ in range(MAX_FAILURES):
        assert failures.wait("a") == 0
        failures.add("a")
    assert failures.wait("a") == 60
    assert failures.wait("b") == 0
    now[0] = 61
    assert failures.wait("a") == 0


def test_a_flood_of_addresses_does_not_fill_the_memory() -> None:
    failures = Failures()
    for number in range(5000):
        failures.add(str(number))
    assert len(failures._seen) == 1024


@pytest.mark.parametrize(
    ("states", "state", "ready"),
    [
        ((), "ok", True),
        (("ok", "ok"), "ok", True),
        (("ok", "degraded"), "degraded", True),
        (("down", "degraded", "ok"), "down", False),
    ],
)
def test_readiness_is_its_worst_check(states: tuple[str, ...], state: str, ready: bool) -> None:  # noqa: FBT001
    checks = tuple(Check(str(n), s) for n, s in enumerate(states))  # type: ignore[arg-type]
    assert Readiness(checks).state == state
    assert Readiness(checks).ready is ready


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/"),
        ("::1", "http://[::1]:80/"),
        ("0.0.0.0", "http://127.0.0.1:80/"),
        ("::", "http://[::1]:80/"),
    ],
)
def test_the_address_a_person_opens(host: str, url: str) -> None:
    assert Listening(host, 80).url == url


def test_the_pages_speak_both_languages() -> None:
    assert set(WORDS["en"]) == set(WORDS["zh"])
