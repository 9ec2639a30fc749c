import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.identity.message import Parsed, is_abort, parse


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", Parsed("new")),
        ("  /NEW  ", Parsed("new")),
        ("/new@confidant_bot opus hi", Parsed("new", "opus hi", "confidant_bot")),
        ("/new\nfirst line\nsecond", Parsed("new", "first line\nsecond")),
        ("/model   claude-opus", Parsed("model", "claude-opus")),
        ("/Start x", Parsed("start", "x")),
        ("／help", Parsed("help")),
        ("/帮助", Parsed("help")),
        ("/提醒 明天9点 开会", Parsed("remind", "明天9点 开会")),
        ("/提醒列表", Parsed("reminders")),
        ("／停止", Parsed("stop")),
    ],
)
def test_commands_are_recognised(text, command):
    assert parse(text) == command


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "/",
            "//",
            "/etc/passwd",
            "/etc/passwd?",
            "new",
            "a /new",
            "/new!",
            "/新",
            "/né",
            "/帮助我",
            "/吃饭了吗",
        ),
        *("/a-b", "/" + "x" * 33, "/new@", "/ new"),
    ],
)
def test_what_only_looks_like_a_command_is_a_message(text):
    assert parse(text) is None


@given(st.text())
def test_any_text_is_parsed_and_nothing_after_the_name_is_lost(text):
    found = parse(text)
    if found is not None:
        assert text.strip().startswith(("/", "／"))
        assert found.name == found.name.lower()
        assert text.strip().endswith(found.rest)


@pytest.mark.parametrize("text", ["stop", "STOP!", " Stop. ", "停止", "停止。", "停止！"])
def test_the_words_that_stop_a_reply(text):
    assert is_abort(text)


@pytest.mark.parametrize("text", ["stop it", "don't stop", "", "停", "stops", "stop?"])
def test_other_words_stop_nothing(text):
    assert not is_abort(text)
