"""The accounts of a channel."""

from __future__ import annotations

import pytest

from bot.channel import Address, Health
from bot.channel.kit.supervisor import Accounts
from bot.errors import SendRefused, SendTransient
from bot.testing import RecordingEngine

HERE = Address("pigeon", "default", "1")
ELSEWHERE = Address("pigeon", "work", "1")


def test_a_channel_that_does_not_run_may_later() -> None:
    accounts = Accounts[str]("pigeon", "Pigeon")
    with pytest.raises(SendTransient, match="Pigeon is not connected"):
        accounts.named(HERE)
    assert accounts.get(HERE.account) is None


def test_an_account_that_is_not_there_never_will_be() -> None:
    accounts = Accounts[str]("pigeon", "Pigeon")
    accounts["default"] = "a bot"
    assert accounts.named(HERE) == accounts.get(HERE.account) == "a bot"
    with pytest.raises(SendRefused, match="not configured"):
        accounts.named(ELSEWHERE)
    assert accounts.get(ELSEWHERE.account) is None


def test_after_the_stop_there_is_none() -> None:
    accounts = Accounts[str]("pigeon", "Pigeon")
    accounts["default"] = "a bot"
    assert accounts.take() == ["a bot"]
    assert accounts.take() == []
    with pytest.raises(SendTransient):
        accounts.named(HERE)


def test_what_an_account_lacks_is_told() -> None:
    engine = RecordingEngine()
    Accounts[str]("pigeon", "Pigeon").lack(engine, {"work"}, "This account has no token.")
    assert engine.health == {("pigeon", "work"): (Health.DOWN, "This account has no token.")}
