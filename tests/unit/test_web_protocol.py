from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.web import protocol
from adapters.web.protocol import AskModels, BadFrame, Hello, Send, parse_frame, parse_hello


def test_hello_tells_language_and_format() -> None:
    raw = json.dumps({"type": "hello", "version": 1, "locale": "zh-CN", "format": "text"})
    assert parse_hello(raw) == Hello("zh-CN", "text")


def test_hello_of_another_version_is_told_apart() -> None:
    with pytest.raises(BadFrame) as caught:
        parse_hello(json.dumps({"type": "hello", "version": 99}))
    assert caught.value.key == "version"


def test_send_carries_id_and_text() -> None:
    assert parse_frame('{"type":"send","id":"a1","text":"hi","locale":"de"}') == Send(
        "a1", "hi", "de"
    )


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
        ('{"type":"send","id":"a","text":" \\n "}', "empty", "a"),
        ('{"type":"send","id":"a","text":"' + "字" * 21_846 + '"}', "too_long", "a"),
    ],
)
def test_unusable_frames_say_why(frame: str, key: str, message_id: str) -> None:
    with pytest.raises(BadFrame) as caught:
        parse_frame(frame)
    assert (caught.value.key, caught.value.id) == (key, message_id)


def test_the_longest_message_is_taken() -> None:
    text = "x" * protocol.MAX_TEXT
    assert parse_frame(json.dumps({"type": "send", "id": "a", "text": text})).text == text


def test_text_a_database_cannot_hold_is_mended() -> None:
    frame = parse_frame('{"type":"send","id":"a","text":"a\\u0000b\\ud800c \\ud83d\\ude00"}')
    assert frame.text == "ab?c 😀"


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


def test_a_page_may_ask_for_the_models() -> None:
    assert parse_frame('{"type":"models","id":7}') == AskModels()
