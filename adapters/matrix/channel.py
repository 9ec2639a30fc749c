"""The Matrix channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from adapters.matrix import MatrixConfig
from adapters.matrix.api import Api, Refused, TokenRefused
from adapters.matrix.inbound import CHANNEL
from adapters.matrix.send import LIMIT, messages
from bot.channel import (
    DEFAULT_ACCOUNT,
    Capabilities,
    Engine,
    Finding,
    Outbound,
    Piece,
    Trial,
    installing,
    reveal,
)
from bot.channel.kit.accounts import Account, AccountChannel
from bot.channel.kit.client import session
from bot.channel.kit.json_access import label, text
from bot.errors import ChannelError, SendLater

if TYPE_CHECKING:
    from adapters.matrix.account import Pace


class Matrix(AccountChannel[Account]):
    """Direct chats, rooms and threads of Matrix, with one or more bots."""

    name, title = CHANNEL, "Matrix"
    capabilities = Capabilities(
        max_length=LIMIT,
        typing=True,
        attachments=True,
        voice=True,
        files=True,
        reactions=True,
    )

    def __init__(self, config: MatrixConfig, pace: Pace | None = None) -> None:
        super().__init__()
        self._config, self._pace = config, pace

    async def start(self, engine: Engine) -> None:
        """Begin to listen with every account that is complete."""
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self.lack(engine, missing, "This account lacks homeserver or a token of its own.")
        if not _is_installed():
            self.lack(engine, tokens, f"Encryption is not installed: {installing('matrix')}")
            return
        module = await asyncio.to_thread(import_module, "adapters.matrix.account")  # 0.5 s
        pace = self._pace or module.Pace()
        await self.start_all(
            {
                name: module.Account(name, self._config.account(name), token, engine, pace)
                for name, token in tokens.items()
            }
        )

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text as Matrix shows it, and its files; see `Channel.render`."""
        return messages(outbound)

    async def examine(self) -> Sequence[Finding]:
        """Check every account; see `Channel.examine`."""
        tokens = self._config.tokens()
        found = [
            Finding.of("error", "matrix.incomplete", name)
            for name in sorted(self._config.accounts.keys() - tokens.keys())
        ]
        if not _is_installed():
            command = installing("matrix")
            found.append(Finding.of("error", "matrix.not_installed", command=command))
        for name in tokens:
            trial, more = await self._who(name)
            if trial.outcome != "known":
                found.append(Finding.of("error", f"matrix.{trial.outcome}", name, why=more))
                continue
            found.append(Finding.of("ok", "matrix.token", name, who=trial.name))
            if not more:
                found.append(Finding.of("warning", "matrix.no_device", name))
        return found

    async def tried(self, option: str) -> Trial:
        """Try a secret with the homeserver; see `Channel.tried`."""
        if option != "token" or DEFAULT_ACCOUNT not in self._config.tokens():
            return Trial("untried")
        return (await self._who(DEFAULT_ACCOUNT))[0]

    async def _who(self, name: str) -> tuple[Trial, str]:
        """The user and the device of a token, or the reason why nobody knows them."""
        config, token = self._config.account(name), self._config.tokens()[name]
        async with session(reveal(config.proxy)) as calls:
            try:
                who = await Api(config.address, token, calls).call("GET", "/account/whoami")
            except TokenRefused:
                return Trial("refused"), ""
            except Refused as error:
                return Trial("moved" if 300 <= error.status < 400 else "strange"), ""
            except SendLater:
                return Trial("busy"), ""
            except ChannelError as error:
                return Trial("unreachable"), str(error)
        person = label(text(who, "user_id"))
        return Trial("known" if person else "strange", person), text(who, "device_id")


def _is_installed() -> bool:
    return find_spec("nio") is not None and find_spec("vodozemac") is not None
