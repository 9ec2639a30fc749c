import datetime as dt

import pytest
import telegram.error
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    NetworkError,
    PassportDecryptionError,
    RetryAfter,
    TelegramError,
    TimedOut,
)

from adapters.telegram.api import redact
from adapters.telegram.send import chat_id, failure
from bot.errors import ChatMoved, SendLater, SendRefused, SendTransient

TOKEN = "123456:AAbbccddeeffgghhiijjkkllmmnn"

EXPECTED = {
    TelegramError("x"): SendTransient,
    NetworkError("x"): SendTransient,
    TimedOut(): SendTransient,
    Conflict("x"): SendTransient,
    InvalidToken(): SendTransient,
    EndPointNotFound("x"): SendTransient,
    PassportDecryptionError("x"): SendTransient,
    BadRequest("Chat not found"): SendRefused,
    Forbidden("bot was blocked by the user"): SendRefused,
    RetryAfter(dt.timedelta(seconds=7)): SendLater,
    ChatMigrated(-1007): ChatMoved,
}


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_error_of_the_sdk_is_known_here():
    found = {kind for kind in subclasses(TelegramError) if kind.__module__ == "telegram.error"}
    assert found | {TelegramError} == {type(error) for error in EXPECTED}
    assert {kind.__name__ for kind in found} <= set(telegram.error.__all__)


@pytest.mark.parametrize("error", EXPECTED, ids=lambda error: type(error).__name__)
def test_every_error_of_the_sdk_becomes_one_of_the_contract(error):
    assert type(failure(error)) is EXPECTED[error]


@pytest.mark.parametrize("setting", ["1", "0"])
@pytest.mark.filterwarnings("ignore:.*retry_after")
def test_the_wait_is_in_seconds_whichever_type_the_sdk_uses(setting, monkeypatch):
    monkeypatch.setenv("PTB_TIMEDELTA", setting)
    error = failure(RetryAfter(dt.timedelta(seconds=7)))
    assert isinstance(error, SendLater)
    assert error.seconds == 7


def test_a_moved_chat_says_where():
    error = failure(ChatMigrated(-1007))
    assert isinstance(error, ChatMoved)
    assert error.chat == "-1007"


def test_messages_of_errors_carry_no_token():
    words = f"no route to https://api.telegram.org/bot{TOKEN}/sendMessage"
    assert TOKEN not in str(failure(BadRequest(words)))
    assert TOKEN not in redact(words)
    assert redact("bot short:token", "short:token") == "bot [token]"


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("-1007", -1007), ("@name", "@name"), ("", ""), ("٣", 3)]
)
def test_chat_ids_are_numbers_to_telegram(text, expected):
    assert chat_id(text) == expected
