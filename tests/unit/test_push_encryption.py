"""Notes for browsers are sealed as RFC 8291 has it, and signed as RFC 8292."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from bot.push.encryption import LENGTH, BrowserKeys, Signature, new_secret, sealed
from tests.fakes.push_service import PushBrowser, Pushed, decoded, encoded

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
