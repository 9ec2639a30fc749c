from __future__ import annotations

from collections.abc import Callable

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from bot.config import DashboardConfig
from bot.dashboard import Check, Readiness
from bot.dashboard.guard import (
    BUCKETS,
    COOKIE_SECONDS,
    FIRST_DELAY,
    LONGEST_DELAY,
    NETWORKS,
    Failures,
    Guard,
    Tokens,
    delay_of,
    host_of,
    is_loopback,
)
from bot.dashboard.server import Listening
from bot.errors import ConfigError
from tests.support import changed_anywhere


def ignore(_reason: str) -> None:
    pass


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1", "[::1]"]
)
def test_loopback_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "192.168.1.2",
        "example.org",
        "127.0.0.1.evil.example",
        "localhost.",
        "X127.0.0.1",
    ],
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
        ("", ""),
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
        Guard(DashboardConfig.model_validate({"host": host, "token": token}), ignore)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2"])
def test_an_open_address_with_a_token_that_can_be_guessed_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"fewer than 16 characters.*token_urlsafe"):
        Guard(DashboardConfig.model_validate({"host": host, "token": "x" * 15}), ignore)
    Guard(DashboardConfig.model_validate({"host": host, "token": "x" * 16}), ignore)
    Guard(DashboardConfig.model_validate({"host": "127.0.0.1", "token": "x"}), ignore)


async def test_who_guesses_slows_those_of_the_same_network_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    async def noted(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr("bot.dashboard.guard.sleep", noted)
    guard = Guard(DashboardConfig.model_validate({"token": TOKEN}), ignore)
    request = make_mocked_request("POST", "/login")
    guesser = request.clone(remote="192.0.2.1")
    for _ in range(FREE):
        assert await guard.prove(guesser, "wrong") == "wrong"
    other, nowhere = request.clone(remote="198.51.100.7"), request.clone(remote="")
    for known in (guesser, other, nowhere):
        assert await guard.prove(known, f" {TOKEN}\n") == "right"
    assert asked == [0.0] * FREE + [FIRST_DELAY, 0.0, 0.0]


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (
            None,
            (
                "The dashboard would listen on '0.0.0.0', which other machines can reach, without "
                "a token. Set CONFIDANT_DASHBOARD__TOKEN to a long random text, or set "
                '[dashboard] host = "127.0.0.1".'
            ),
        ),
        (
            "short",
            (
                "The dashboard would listen on '0.0.0.0', which other machines can reach, with a "
                "token of fewer than 16 characters, which can be guessed. "
                "Set CONFIDANT_DASHBOARD__TOKEN to a long random text, such as this prints: "
                "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
            ),
        ),
    ],
)
def test_an_open_address_says_what_to_set(token: str | None, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Guard(DashboardConfig.model_validate({"host": "0.0.0.0", "token": token}), ignore)
    assert str(caught.value) == words


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
    cookie = Tokens("t").issue()
    expiry, dash, rest = cookie.partition("-")
    assert Tokens("t").remembers(cookie)
    assert not Tokens("t").remembers(f"{int(expiry) + 1}{dash}{rest}")


@given(st.text())
def test_no_text_is_a_cookie(text: str) -> None:
    assert not Tokens("correct horse").remembers(text)


FREE = NETWORKS[0].free


def wait_after(failures: Failures, address: str, times: int) -> float:
    for _ in range(times):
        failures.add(address)
    return failures.delay(address)


def test_guessing_is_slowed_where_it_comes_from_and_forgiven_in_time() -> None:
    now = [0.0]
    failures = Failures(clock=lambda: now[0])
    assert wait_after(failures, "192.0.2.1", FREE - 1) == 0
    assert wait_after(failures, "192.0.2.1", 1) == FIRST_DELAY
    assert wait_after(failures, "192.0.2.1", 100) == LONGEST_DELAY
    assert failures.delay("198.51.100.1") == 0
    now[0] = 61 * 21
    assert failures.delay("192.0.2.1") == 0


@pytest.mark.parametrize(
    "address",
    [
        lambda n: f"2001:db8:0:1::{n:x}",  # a /64 is one network
        lambda n: f"2001:db8:1:{n:x}::1",  # so is, for longer, a /48
        lambda n: f"2001:db8:{n:x}::1",  # and a /32
        lambda n: f"192.0.2.{n % 256}",  # a /24
        lambda n: f"192.0.{n % 256}.1",  # and a /16
        lambda n: f"::ffff:192.0.2.{n % 256}",
    ],
)
def test_another_address_nearby_is_no_fresh_start(address: Callable[[int], str]) -> None:
    failures = Failures(clock=lambda: 0.0)
    for number in range(500):
        failures.add(address(number))
    assert failures.delay(address(501)) > FIRST_DELAY


def test_no_flood_of_addresses_makes_ones_own_failures_be_forgotten() -> None:
    failures = Failures(clock=lambda: 0.0)
    before = wait_after(failures, "192.0.2.1", 50)
    for number in range(20_000):
        failures.add(f"{number % 200}.{number // 200}.1.1")
    assert failures.delay("192.0.2.1") >= before
    assert sum(len(counts) for counts in failures._counts) == len(NETWORKS) * BUCKETS


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 1000))
def test_more_failures_never_wait_less_and_nobody_waits_long(
    some: float, more: float, free: int
) -> None:
    few, many = delay_of(some, free), delay_of(some + more, free)
    assert 0 <= few <= many <= LONGEST_DELAY
    assert (few == 0) == (some < free)


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


# --- every place of a proof counts ----------------------------------------------------------------


TOKEN = "a-token-of-thirty-two-characters"


def test_a_token_counts_in_every_place():
    tokens = Tokens(TOKEN)
    assert tokens.accepts(TOKEN)
    assert not any(tokens.accepts(other) for other in changed_anywhere(TOKEN))


def test_the_whole_digest_of_a_token_is_compared():
    digest = Tokens(TOKEN)._digest
    for at in range(len(digest)):
        tokens = Tokens(TOKEN)
        tokens._digest = bytes([*digest[:at], digest[at] ^ 1, *digest[at + 1 :]])
        assert not tokens.accepts(TOKEN)


def test_a_cookie_counts_in_every_place():
    tokens = Tokens(TOKEN)
    cookie = tokens.issue()
    expiry, _, signature = cookie.partition(".")
    assert tokens.remembers(cookie)
    assert not any(tokens.remembers(other) for other in changed_anywhere(cookie))
    assert not any(tokens.remembers(f"{expiry}.{o}") for o in changed_anywhere(signature))
    assert not any(tokens.remembers(f"{o}.{signature}") for o in changed_anywhere(expiry))
    assert not any(Tokens(other).remembers(cookie) for other in changed_anywhere(TOKEN))


def test_a_cookie_of_one_node_holds_on_the_others() -> None:
    config = DashboardConfig(token="the same long token on every node")
    one, two = (Guard(config, ignore).tokens for _ in range(2))
    assert one is not None
    assert two is not None
    assert two.remembers(one.issue())
    other = Guard(DashboardConfig(token="another token, as long as that"), ignore).tokens
    assert other is not None
    assert not other.remembers(one.issue())
