"""Nextcloud Talk: configuration, signatures, replays, what is posted, what answers mean."""

import hashlib
import hmac
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.nextcloud_talk import (
    AccountConfig,
    NextcloudTalkConfig,
    normal_url,
    plugin,
    webhook_url,
)
from adapters.nextcloud_talk.api import new_random, sign, verify, well_formed
from adapters.nextcloud_talk.send import (
    NotAccepted,
    body_of,
    failure,
    harmless,
    messages,
    reference_id,
)
from bot import settings
from bot.channel import Address, Outbound, reveal
from bot.channel.kit.client import Answer
from bot.errors import SendLater, SendRefused, SendTransient, SendUnreachable
from tests.support import changed_anywhere

SECRET = "s" * 40


def config(**values):
    return NextcloudTalkConfig.model_validate(values)


READY = {"base_url": "https://cloud.example", "bot_secret": SECRET}

# --- configuration -------------------------------------------------------------------------------


def body(outbound):
    """What is posted for a short text."""
    return body_of(messages(outbound)[0])


def test_what_an_account_can_set_the_section_can_set_alike():
    for name, field in AccountConfig.model_fields.items():
        assert NextcloudTalkConfig.model_fields[name].get_default(
            call_default_factory=True
        ) == field.get_default(call_default_factory=True)


@pytest.mark.parametrize(
    ("values", "ready"),
    [
        ({}, False),
        ({"base_url": "https://cloud.example"}, False),
        ({"bot_secret": SECRET}, False),
        ({"base_url": "https://cloud.example", "bot_secret": ""}, False),
        (READY, True),
        ({"accounts": {"work": READY}}, True),
        ({"accounts": {"work": {"bot_secret": SECRET}}}, False),
        (READY | {"accounts": {"work": {}}}, True),
    ],
)
def test_the_channel_is_ready_once_any_bot_has_a_server_and_a_secret(values, ready):
    assert plugin.ready(config(**values)) is ready


def test_plain_variables_set_the_secrets(tmp_path):
    environ = {"NEXTCLOUD_TALK_BOT_SECRET": SECRET, "NEXTCLOUD_TALK_API_PASSWORD": "p"}
    found = settings.load(None, environ, tmp_path).config.channels.get("nextcloud_talk")
    assert isinstance(found, NextcloudTalkConfig)
    assert (reveal(found.bot_secret), reveal(found.api_password)) == (SECRET, "p")
    assert SECRET not in repr(found)


def test_a_second_bot_on_one_server_has_its_secret_and_shares_the_rest():
    section = config(
        **READY,
        api_user="bot",
        api_password="p",
        public_url="https://bot.example",
        groups={"abc": {}, "*": {}},
        accounts={"work": {"bot_secret": "t" * 40, "bot_name": "Other"}, "idle": {}},
    )
    seats = section.seats()
    assert set(seats) == {"default", "work"}
    work = seats["work"]
    assert (work.base_url, work.place, work.api_user) == ("https://cloud.example", "", "bot")
    assert (work.bot_name, work.rooms) == ("Other", ("abc",))
    assert work.webhook_url == "https://bot.example/nextcloud-talk"


def test_another_server_never_gets_this_ones_password():
    section = config(
        **READY,
        api_user="bot",
        api_password="p",
        accounts={"there": {"base_url": "http://other.example:8080/x/", "bot_secret": "t" * 40}},
    )
    there = section.seats()["there"]
    assert (there.api_user, there.api_password) == ("", None)
    assert there.place == "other.example:8080/x"
    assert section.seats()["default"].place == ""


def test_an_account_named_default_replaces_the_secret():
    section = config(**READY, accounts={"default": {"bot_secret": "t" * 40}})
    assert {name: reveal(seat.secret) for name, seat in section.seats().items()} == {
        "default": "t" * 40
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"accounts": {"work": READY}}, "same bot_secret"),
        ({"base_url": "cloud.example"}, "base_url must begin"),
        ({"public_url": "ftp://x"}, "public_url must begin"),
        ({"accounts": {"work": {"base_url": "x"}}}, 'account "work"'),
        ({"webhook_path": "no-slash"}, "webhook_path"),
        ({"webhook_path": "/a b"}, "webhook_path"),
        ({"accounts": {"Work": {}}}, "accounts"),
        ({"bot_name": "x" * 65}, "bot_name"),
    ],
)
def test_mistakes_are_named_and_no_secret_is(values, message):
    with pytest.raises(ValidationError, match=message) as caught:
        config(**(READY | values))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://Cloud.Example/", "https://cloud.example"),
        ("HTTPS://cloud.example:443", "https://cloud.example"),
        ("http://cloud.example:80/next/", "http://cloud.example/next"),
        ("http://cloud.example:8080", "http://cloud.example:8080"),
        (" https://cloud.example. ", "https://cloud.example"),
        ("https://[::1]:8443/", "https://[::1]:8443"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("", ""),
        ("cloud.example", ""),
        ("ftp://cloud.example", ""),
        ("https://user:pw@cloud.example", ""),
        ("https://cloud.example:99999", ""),
        ("https://[::1", ""),
        ("https://cloud.example/?x=1", ""),
        ("https://cloud .example", ""),
        ("https://cloud.example\\@evil.example", ""),
    ],
)
def test_addresses_have_one_spelling(url, normal):
    assert normal_url(url) == normal


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_none(text):
    found = normal_url(text)
    assert normal_url(found) == found


def test_the_webhooks_address():
    assert webhook_url("https://b.example/", "/talk") == "https://b.example/talk"
    assert webhook_url("https://b.example/x/talk", "/talk") == "https://b.example/x/talk"
    assert webhook_url("", "/talk") == ""


# --- signatures ----------------------------------------------------------------------------------


@given(st.text(min_size=1), st.text(), st.binary())
def test_signing_is_hmac_of_random_and_text(secret, random, body):
    key, start = (secret + "k").encode("utf-8", "ignore"), random.encode("utf-8", "ignore")
    wanted = hmac.new(key, start + body, hashlib.sha256).hexdigest()
    assert sign(key.decode(), start.decode(), body) == wanted
    assert verify(key.decode(), start.decode(), body, wanted.upper())
    assert not verify(key.decode(), start.decode(), body + b"x", wanted)


def test_a_signature_counts_in_every_place():
    random, body = "r" * 32, b"hello there, this is a message"
    good = sign(SECRET, random, body)
    assert verify(SECRET, random, body, good)
    for other in changed_anywhere(good):
        assert not verify(SECRET, random, body, other)
    for other in changed_anywhere(SECRET):
        assert not verify(other, random, body, good)
    for other in changed_anywhere(random):
        assert not verify(SECRET, other, body, good)
    for other in changed_anywhere(body.decode()):
        assert not verify(SECRET, random, other.encode(), good)


def test_random_values_are_long_and_new():
    found = {new_random() for _ in range(100)}
    assert len(found) == 100
    assert {len(each) for each in found} == {64}
    assert all(well_formed(each, "a" * 64) for each in found)
    assert {len(bytes.fromhex(each)) for each in found} == {32}


@pytest.mark.parametrize(
    ("random", "signature", "good"),
    [
        ("r" * 64, "a" * 64, True),
        ("r" * 32, "A" * 64, True),
        ("r" * 31, "a" * 64, False),
        ("r" * 257, "a" * 64, False),
        ("", "a" * 64, False),
        ("r" * 63 + "\n", "a" * 64, False),
        ("ü" * 64, "a" * 64, False),
        ("r" * 64, "a" * 63, False),
        ("r" * 64, "g" * 64, False),
        ("r" * 64, "", False),
        ("r" * 64, "a" * 64 + "\n", False),
    ],
)
def test_what_can_be_signed_at_all(random, signature, good):
    assert well_formed(random, signature) is good


# --- replays -------------------------------------------------------------------------------------


# --- sending -------------------------------------------------------------------------------------


def outbound(text="hi", **changes):
    values = {"id": "o1", "address": Address("nextcloud_talk", "default", "tok"), "text": text}
    return Outbound(**(values | changes))


def test_what_is_posted():
    assert body(outbound()) == {
        "message": "hi",
        "referenceId": hashlib.sha256(b"o1").hexdigest(),
        "silent": False,
    }
    answer = outbound(reply_to="7", address=Address("nextcloud_talk", "default", "tok", "5"))
    assert body(answer).items() >= {"replyTo": 7, "threadId": 5}.items()
    assert "replyTo" not in body(outbound(reply_to="x"))
    silent = {
        k: body(outbound(kind=k))["silent"] for k in ("reply", "reminder", "notice", "receipt")
    }
    assert silent == {"reply": False, "reminder": False, "notice": True, "receipt": True}
    assert reference_id("a") == reference_id("a") != reference_id("b")
    reference_id("\ud800")


@pytest.mark.parametrize(
    "text",
    [
        *("@all", "hi @all hi", "hi\n@all, ", "-@all", "so.@all", "@allé", "@all\u2026", "@all*"),
        *('@"all"', '@"group/staff"', '@"team/x"', '@"federated_group/x"', "@all!", "x '@all"),
    ],
)
def test_nobody_makes_the_bot_call_everybody(text):
    assert calls_everybody(text)
    said = body(outbound(text))["message"]
    assert not calls_everybody(said)
    assert said == text.replace("@", "\uff20")


@pytest.mark.parametrize("text", ["@ALL", "hi @All", "hi @all.", "@all..."])
def test_what_a_later_talk_may_take_for_a_call_is_none_either(text):
    assert body(outbound(text))["message"] == text.replace("@", "\uff20")


@pytest.mark.parametrize(
    "text",
    [
        *("@ada", "@alliance", "a@b.example", '@"guest/x"', "@here", "ask @here."),
        *("@all-hands", "@all's"),
        *("ada@all.example", "all@here.org", "info@all", "mail ada@here.example, or bob@all."),
        *("https://social.example/@all", "https://social.example/@here/1?x=@all", "(@all)"),
        *("<mailto:team@all.example>", "[us](https://x.example/@all)", "@all@social.example"),
        *("@all.example.org", "**@all**", "\u5927\u5bb6@all", "git@here:all.git", '"@all"'),
    ],
)
def test_names_addresses_and_links_stay_as_they_are(text):
    assert body(outbound(text))["message"] == text
    assert not calls_everybody(text)


NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-@.'")
GROUPS = ("group/", "team/", "federated_group/", "federated_team/")


def calls_everybody(text):
    """Whether Talk would find a mention of everybody, or of a group: what its server does."""
    at = 0
    while (at := text.find("@", at)) >= 0:
        before, at = text[at - 1 : at], at + 1
        if before and not before.isspace() and before not in "-@.'":
            continue
        if text[at : at + 1] == '"':
            name, closed, _ = text[at + 1 :].partition('"')
            if closed and (name == "all" or name.startswith(GROUPS)):
                return True
            continue
        name = "".join(itertools.takewhile(NAME.__contains__, text[at:]))
        if name == "all":
            return True
        at += len(name)
    return False


PIECES = st.sampled_from(
    [
        *("@", "all", '"', "group/", "team/", "x", " ", "\n", ".", "-", "'", "/", "(", "é", "大"),
        *("_", "ALL"),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_the_bot_says_talk_calls_nobody_for_it_and_nothing_else_changes(text):
    said = harmless(text)
    assert not calls_everybody(said)
    assert said.replace("\uff20", "@") == text


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, SendRefused),
        (401, NotAccepted),
        (403, SendRefused),
        (404, SendUnreachable),
        (413, SendRefused),
        (301, SendRefused),
        (408, SendTransient),
        (423, SendRefused),  # only a file is locked for a while; a text must not wait for ever
        (429, SendLater),
        (500, SendTransient),
        (502, SendTransient),
        (503, SendTransient),
    ],
)
def test_every_answer_has_its_error(status, kind):
    assert type(failure(Answer(status))) is kind


def test_waiting_as_long_as_asked():
    later = failure(Answer(429, {"Retry-After": "7"}))
    assert isinstance(later, SendLater)
    assert later.seconds == 7
    assert isinstance(failure(Answer(503, {"Retry-After": "9"})), SendLater)
    assert failure(Answer(429)).seconds == 30


def test_a_refused_signature_says_what_to_do():
    assert "--feature response" in str(failure(Answer(401)))
