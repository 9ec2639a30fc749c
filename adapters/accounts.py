"""The accounts of a channel that has several, by name: for every such channel."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable
from typing import TypeVar

import structlog

from bot.channel import Address, Engine, Health
from bot.errors import SendRefused, SendTransient

_log = structlog.get_logger()
A = TypeVar("A")


class Accounts(UserDict[str, A]):
    """Those that run; none before the start and after the stop.

    Args:
        channel: the channel's name.
        title: what people call the platform.
    """

    def __init__(self, channel: str, title: str) -> None:
        super().__init__()
        self._channel = channel
        self._title = title

    def lack(self, engine: Engine, names: Iterable[str], detail: str) -> None:
        """Say that these accounts cannot run, and what they lack."""
        for name in sorted(names):
            _log.error(f"{self._channel}.account.incomplete", account=name)
            engine.report(self._channel, name, Health.DOWN, detail)

    def at(self, address: Address) -> A | None:
        """The account of an address, if it runs."""
        return self.get(address.account)

    def named(self, address: Address) -> A:
        """The account of an address.

        Raises:
            SendTransient: the channel does not run.
            SendRefused: there is no such account.
        """
        account = self.get(address.account)
        if account is not None:
            return account
        if not self:
            raise SendTransient(f"{self._title} is not connected")
        raise SendRefused(f"this {self._title} account is not configured")

    def take(self) -> list[A]:
        """All of them, for the channel to stop; it has none from now on."""
        accounts = list(self.values())
        self.clear()
        return accounts
