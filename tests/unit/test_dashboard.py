"""The page: who may open it, what goes over its socket, its files, its notes for browsers."""

import asyncio
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from aiohttp.test_utils import make_mocked_request
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import adapters.web
from adapters.web import protocol
from adapters.web.pages import STEPS
from adapters.web.protocol import (
    MAX_WAITING,
    BadFrame,
    Hello,
    Send,
    Socket,
    Wish,
    parse_frame,
    parse_hello,
)
from bot.channel import Activity, Finding
from bot.commands.commander import menu
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
from bot.health import STATES
from bot.push.encryption import LENGTH, BrowserKeys, Signature, new_secret, sealed
from bot.shares import WRONG
from tests.fakes.browsers import BrowsersInMemory
from tests.fakes.push_service import PushBrowser, Pushed, decoded, encoded
from tests.support import changed_anywhere


def guarding(config: DashboardConfig) -> Guard:
    return Guard(config, ignore, BrowsersInMemory())


def ignore(_reason: str) -> None:
    pass


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1")),
        ("[::1]", True),
        *((host, False) for host in ("", "0.0.0.0", "::", "192.168.1.2", "example.org")),
        *((host, False) for host in ("127.0.0.1.evil.example", "localhost.", "X127.0.0.1")),
    ],
)
def test_loopback_names_and_no_others(host: str, loopback: bool) -> None:  # noqa: FBT001
    assert is_loopback(host) is loopback


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


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "127.0.0.1"])
def test_a_token_that_can_be_guessed_is_refused(host: str) -> None:
    for token in ("x", "x" * 15):
        with pytest.raises(ValidationError, match=r"fewer than 16 characters") as caught:
            DashboardConfig.model_validate({"host": host, "token": token})
        assert "xx" not in str(caught.value)
    for token in ("x" * 16, *([""] if host == "127.0.0.1" else [])):
        guarding(DashboardConfig.model_validate({"host": host, "token": token}))


async def test_who_guesses_slows_those_of_the_same_network_and_nobody_else(monkeypatch) -> None:
    asked: list[float] = []

    async def noted(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr("bot.dashboard.guard.sleep", noted)
    guard = guarding(DashboardConfig.model_validate({"token": TOKEN}))
    request = make_mocked_request("POST", "/login")
    guesser = request.clone(remote="192.0.2.1")
    for _ in range(FREE):
        assert await guard.prove(guesser, "wrong") == "wrong"
    other, nowhere = request.clone(remote="198.51.100.7"), request.clone(remote="")
    for known in (guesser, other, nowhere):
        assert await guard.prove(known, f" {TOKEN}\n") == "right"
    assert asked == [0.0] * FREE + [FIRST_DELAY, 0.0, 0.0]


def test_an_open_address_without_a_token_says_what_to_set() -> None:
    with pytest.raises(ConfigError) as caught:
        guarding(DashboardConfig.model_validate({"host": "0.0.0.0"}))
    assert str(caught.value) == (
        "The dashboard would listen on '0.0.0.0', which other machines can reach, without "
        "a token. Set CONFIDANT_DASHBOARD__TOKEN to a long random text, or set "
        '[dashboard] host = "127.0.0.1".'
    )


def test_a_cookie_proves_the_token_without_holding_it_and_runs_out() -> None:
    now = [1000.0]
    tokens = Tokens("correct horse", clock=lambda: now[0])
    cookie = tokens.issue()
    assert "correct" not in cookie
    assert tokens.remembers(cookie)
    assert not Tokens("another", clock=lambda: now[0]).remembers(cookie)
    now[0] += COOKIE_SECONDS + 1
    assert not tokens.remembers(cookie)


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


def test_a_name_is_slowed_by_many_addresses_and_not_by_one() -> None:
    failures, free = Failures(clock=lambda: 0.0), NETWORKS[-1].free
    a_minute_of_one_address = WRONG.each * 60 / LONGEST_DELAY
    assert wait_after(failures, "@ada", math.ceil(a_minute_of_one_address)) == 0
    assert wait_after(failures, "@ada", free) >= FIRST_DELAY
    assert failures.delay("@bob") == 0


def test_no_flood_of_addresses_makes_ones_own_failures_be_forgotten() -> None:
    failures = Failures(clock=lambda: 0.0)
    before = wait_after(failures, "192.0.2.1", 50)
    for number in range(20_000):
        failures.add(f"{number % 200}.{number // 200}.1.1")
    assert failures.delay("192.0.2.1") >= before
    assert sum(len(counts) for counts in failures._counts) == len(NETWORKS) * BUCKETS


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 1000))
def test_more_failures_never_wait_less_and_nobody_waits_long(some, more, free) -> None:
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
    levels = {state: level for level, state in STATES.items()}
    checks = tuple(Check(str(n), Finding(levels[s])) for n, s in enumerate(states))  # type: ignore[index]
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


def test_a_token_counts_in_every_place_and_so_does_its_digest():
    tokens = Tokens(TOKEN)
    assert tokens.accepts(TOKEN)
    assert not any(tokens.accepts(other) for other in changed_anywhere(TOKEN))
    digest = tokens._digest
    for at in range(len(digest)):
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
    one, two = (guarding(config).tokens for _ in range(2))
    assert one is not None
    assert two is not None
    assert two.remembers(one.issue())
    other = Guard(
        DashboardConfig(token="another token, as long as that"), ignore, BrowsersInMemory()
    ).tokens
    assert other is not None
    assert not other.remembers(one.issue())


@pytest.mark.parametrize(
    ("parse", "raw", "frame"),
    [
        (
            parse_hello,
            '{"type":"hello","version":1,"locale":"zh-CN","format":"text"}',
            Hello("zh-CN", "text"),
        ),
        (
            parse_frame,
            '{"type":"send","id":"a1","text":"hi","locale":"de"}',
            Send("a1", "hi", "de"),
        ),
        (parse_frame, '{"type":"models","id":7}', Wish("models")),
        # What no database can hold is mended.
        (
            parse_frame,
            '{"type":"send","id":"a","text":"a\\u0000b\\ud800c \\ud83d\\ude00"}',
            Send("a", "ab?c 😀", ""),
        ),
        (
            parse_frame,
            json.dumps({"type": "send", "id": "a", "text": "x" * protocol.MAX_TEXT}),
            Send("a", "x" * protocol.MAX_TEXT, ""),
        ),
    ],
    ids=["hello", "send", "models", "mended", "longest"],
)
def test_frames_say_what_they_carry(parse: Callable[[str], object], raw: str, frame: object):
    assert parse(raw) == frame


def test_hello_of_another_version_is_told_apart() -> None:
    with pytest.raises(BadFrame) as caught:
        parse_hello(json.dumps({"type": "hello", "version": 99}))
    assert caught.value.key == "version"


@pytest.mark.parametrize(
    ("frame", "key", "message_id"),
    [
        ("", "malformed", ""),
        ("[]", "malformed", ""),
        ("{", "malformed", ""),
        ("[" * 100_000, "malformed", ""),
        ('{"type":"other"}', "malformed", ""),
        ('{"type":"send","id":"a b","text":"x"}', "malformed", ""),
        ('{"type":"send","id":7,"text":"x"}', "malformed", ""),
        ('{"type":"send","id":"' + "a" * 65 + '","text":"x"}', "malformed", ""),
        ('{"type":"send","id":"a","text":null}', "malformed", "a"),
        ('{"type":"send","id":"a","text":"x","replaces":7}', "malformed", "a"),
        ('{"type":"send","id":"a","text":"x","replaces":"%"}', "malformed", "a"),
        ('{"type":"send","id":"a","text":"x","replaces":"' + "a" * 65 + '"}', "malformed", "a"),
        ('{"type":"send","id":"a","text":" \\n "}', "empty", "a"),
        ('{"type":"send","id":"a","text":"' + "字" * 21_846 + '"}', "too_long", "a"),
    ],
)
def test_unusable_frames_say_why(frame: str, key: str, message_id: str) -> None:
    with pytest.raises(BadFrame) as caught:
        parse_frame(frame)
    assert (caught.value.key, caught.value.id) == (key, message_id)


@given(st.text())
def test_any_text_either_parses_or_is_refused(raw: str) -> None:
    for parse in (parse_hello, parse_frame):
        with pytest.raises(BadFrame):
            parse(raw)


@given(st.text(), st.text(max_size=5))
def test_any_message_survives_the_way(text: str, extra: str) -> None:
    raw = json.dumps({"type": "send", "id": "a", "text": "x" + text + extra})
    sent = parse_frame(raw)
    assert json.loads(protocol.encode("message", text=sent.text))["text"] == sent.text
    sent.text.encode()


def test_errors_speak_the_persons_language() -> None:
    assert "64 kB" in json.loads(protocol.error("too_long", "en", "a"))["text"]
    assert "太长" in json.loads(protocol.error("too_long", "zh-CN"))["text"]


def test_both_catalogs_have_every_key_and_every_placeholder() -> None:
    catalogs = protocol._catalogs()
    english, chinese = catalogs["en"], catalogs["zh"]
    assert set(english) == set(chinese)
    for key in english:
        assert english[key].count("{") == chinese[key].count("{"), key
        assert english[key].strip()
        assert chinese[key].strip()


class Pipe:
    """As much of a WebSocket as a socket needs; `gate` holds every write back."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.gate = asyncio.Event()
        self.closed = asyncio.Event()
        self.code = 0

    async def send_str(self, frame: str) -> None:
        await self.gate.wait()
        self.sent.append(frame)

    async def close(self, *, code: int) -> None:
        self.code = code
        self.closed.set()


class Transport:
    aborted = False

    def abort(self) -> None:
        self.aborted = True


async def test_frames_queued_before_opening_come_after_the_first_ones() -> None:
    pipe = Pipe()
    pipe.gate.set()
    socket = Socket(pipe, None, "ada")  # type: ignore[arg-type]
    socket.put("later")
    socket.open(["history", "draft"])
    socket.close(1001)
    await pipe.closed.wait()
    assert pipe.sent == ["history", "draft", "later"]
    assert pipe.code == 1001
    await socket.finished()


async def test_newer_drafts_replace_those_still_waiting() -> None:
    pipe = Pipe()
    socket = Socket(pipe, None, "ada")  # type: ignore[arg-type]
    socket.open(["history"])
    for number in range(MAX_WAITING * 4):
        socket.put(f"draft {number}", draft="a")
    socket.put("message")
    pipe.gate.set()
    socket.close()
    await pipe.closed.wait()
    assert pipe.sent == ["history", f"draft {MAX_WAITING * 4 - 1}", "message"]
    await socket.finished()


async def test_a_page_that_does_not_read_is_disconnected() -> None:
    pipe, transport = Pipe(), Transport()
    socket = Socket(pipe, transport, "ada")  # type: ignore[arg-type]
    socket.open(["history"])
    for number in range(MAX_WAITING + 2):
        socket.put(f"message {number}")
    assert transport.aborted
    assert len(socket._waiting) == 0
    socket.put("dropped")
    assert len(socket._waiting) == 0
    pipe.gate.set()
    await socket.finished()


STATIC = Path(adapters.web.__file__).parent / "static"
FILES = {path.name: path.read_text("utf-8") for path in STATIC.iterdir()}
BUILT = ("state.", "error.", "activity.", "step.")  # keys put together at run time


def test_every_word_the_page_asks_for_is_in_the_catalog() -> None:
    known = set(protocol._catalogs()["en"])
    asked = set(re.findall(r'data-t(?:-\w+)?="([^"]+)"', FILES["index.html"]))
    for name, text in FILES.items():
        if name.endswith(".js"):
            asked |= set(re.findall(r'\bt\("([^"]+)"', text))
    assert asked <= known


def test_every_word_in_the_catalog_is_used() -> None:
    page = "".join(text for name, text in FILES.items() if name != "strings.json")
    unused = {
        key
        for key in protocol._catalogs()["en"]
        if not key.startswith(BUILT) and f'"{key}"' not in page
    }
    assert unused == set()


def test_every_step_has_a_sentence_however_it_ended() -> None:
    states = get_args(get_type_hints(Activity)["state"])
    wanted = {f"step.{kind}.{state}" for kind in STEPS for state in states}
    assert wanted == {key for key in protocol._catalogs()["en"] if key.startswith("step.")}


def test_every_error_the_server_names_has_a_sentence() -> None:
    code = "".join(path.read_text("utf-8") for path in STATIC.parent.glob("*.py"))
    named = set(re.findall(r'(?:BadFrame|protocol\.error)\("(\w+)"', code))
    assert named
    assert {f"error.{key}" for key in named} <= set(protocol._catalogs()["en"])


def test_the_page_says_the_same_before_its_words_are_loaded() -> None:
    english = protocol._catalogs()["en"]
    for key, text in re.findall(r'data-t="([^"]+)">([^<]+)<', FILES["index.html"]):
        assert text == english[key]
    for key, text in re.findall(
        r'data-t-(?:label|placeholder)="([^"]+)"[^>]*?(?:aria-label|placeholder)="([^"]+)"',
        FILES["index.html"],
    ):
        assert text == english[key]


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    html = FILES["index.html"]
    assert "<style" not in html
    assert not re.search(r"\sstyle=|\son\w+=", html)
    assert re.findall(r"<script(?![^>]*\ssrc=)", html) == []
    for name, text in FILES.items():
        urls = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert urls == set(), name


def test_server_and_page_agree_on_version_and_size() -> None:
    assert f"const VERSION = {protocol.VERSION};" in FILES["connection.js"]
    assert protocol.MAX_TEXT == 64 * 1024
    assert "const LONGEST = 64 * 1024;" in FILES["main.js"]


def test_in_the_menu_of_commands_every_description_begins_in_the_same_column() -> None:
    column = re.search(r"minmax\((\d+)rem, auto\) 1fr", FILES["app.css"])
    assert column is not None
    for locale in ("en", "zh"):
        for command in menu(locale):
            shown = f"/{command.name} {command.usage}".strip()
            widths = (1 if letter.isascii() else 2 for letter in shown)
            assert sum(widths) * 0.9 * 0.602 <= int(column[1]), shown  # 0.9 rem, monospaced


# RFC 8291, section 5 and appendix A.
WORDS = b"When I grow up, I want to be a watermelon"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
PUBLIC = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6Tlz"
    "AC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def test_the_example_of_the_rfc_comes_out_to_the_byte():
    sender = ec.derive_private_key(int.from_bytes(decoded(SENDER)), ec.SECP256R1())
    keys = BrowserKeys.of(PUBLIC, AUTH)
    body = sealed(WORDS, keys, sender=sender, salt=decoded(SALT), length=len(WORDS))
    assert encoded(body) == BODY


@given(note=st.binary(max_size=LENGTH))
def test_one_browser_reads_it_no_other_does_and_its_length_tells_nothing(note: bytes):
    browser, other = PushBrowser("https://one"), PushBrowser("https://two")
    body = sealed(note, BrowserKeys.of(encoded(browser.public), encoded(browser.auth)))
    assert browser.read(body) == note
    assert len(body) == 86 + LENGTH + 1 + 16
    with pytest.raises(InvalidTag):
        other.read(body)


def test_a_note_that_is_too_long_is_refused():
    browser = PushBrowser("https://one")
    with pytest.raises(ValueError, match="too long"):
        sealed(b"a" * (LENGTH + 1), BrowserKeys(browser.public, browser.auth))


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [
        ("", AUTH),
        (PUBLIC, ""),
        (PUBLIC, AUTH + "AAAA"),
        (PUBLIC[:-4], AUTH),
        ("A" * len(PUBLIC), AUTH),  # no point of the curve
        ("BA" + "A" * (len(PUBLIC) - 2), AUTH),
        ("ö" * 87, AUTH),
        (PUBLIC, "not base64 at all!"),
    ],
)
def test_keys_that_are_none_are_refused(p256dh: str, auth: str):
    with pytest.raises(ValueError):  # noqa: PT011 - whichever part of it says so
        BrowserKeys.of(p256dh, auth)


def test_a_signature_says_who_sends_it_to_whom_and_for_how_long():
    signature = Signature(new_secret())
    header = signature.header("https://push.example", "https://bot.example", 1_000.9)
    pushed = Pushed("/", {"Authorization": header}, b"")
    claims = pushed.claims(signature.public)
    assert claims == {
        "aud": "https://push.example",
        "exp": 1_000 + 12 * 3600,
        "sub": "https://bot.example",
    }
    assert Signature(new_secret()).public != signature.public
