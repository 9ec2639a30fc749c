"""The Matrix channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from adapters.matrix import MatrixConfig
from adapters.matrix.api import Api, Refused, TokenRefused
from adapters.matrix.inbound import CHANNEL
from adapters.matrix.send import LIMIT, messages
from bot.channel import (
    DEFAULT_ACCOUNT,
    Address,
    Capabilities,
    Channel,
    Engine,
    Finding,
    Media,
    Outbound,
    Piece,
    Trial,
    installing,
    reveal,
)
from bot.channel.kit.client import session
from bot.channel.kit.json_access import label, text
from bot.channel.kit.supervisor import Accounts
from bot.errors import ChannelError, SendLater

if TYPE_CHECKING:
    from adapters.matrix.account import Account, Pace

_log = structlog.get_logger()


class Matrix(Channel):
    """Direct chats, rooms and threads of Matrix, with one or more bots."""

    name = CHANNEL
    capabilities = Capabilities(
        max_length=LIMIT,
        typing=True,
        attachments=True,
        voice=True,
        files=True,
        reactions=True,
    )

    def __init__(self, config: MatrixConfig, pace: Pace | None = None) -> None:
        self._config = config
        self._pace = pace
        self._accounts: Accounts[Account] = Accounts(CHANNEL, "Matrix")

    async def start(self, engine: Engine) -> None:
        """Begin to listen with every account that is complete."""
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self._accounts.lack(engine, missing, "This account lacks homeserver or a token of its own.")
        if not _is_installed():
            words = f"Encryption is not installed: {installing('matrix')}"
            self._accounts.lack(engine, tokens, words)
            return
        account = await asyncio.to_thread(import_module, "adapters.matrix.account")  # 0.5 s
        for name, token in tokens.items():
            config, pace = self._config.account(name), self._pace or account.Pace()
            self._accounts[name] = account.Account(name, config, token, engine, pace)
            self._accounts[name].start()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text as Matrix shows it, and its files; see `Channel.render`."""
        return messages(outbound)

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self._accounts.named(piece.address).send(piece)

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of a file that came with a message; see `Channel.fetch`."""
        return await self._accounts.named(address).fetch(media, most)

    async def typing(self, address: Address) -> None:
        """Show that a reply is being written, if that works."""
        if (account := self._accounts.get(address.account)) is not None:
            await _quietly(account.typing(address.chat))

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a reaction below a message, if that works."""
        if (account := self._accounts.get(address.account)) is not None:
            await _quietly(account.react(address.chat, message_id, emoji))

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may change a room."""
        account = self._accounts.get(address.account)
        return account is not None and await _quietly(account.is_admin(address, sender)) is True

    def invitation(self, account: str) -> str:
        """The link at which people find the bot; see `Channel.invitation`."""
        found = self._accounts.get(account)
        return f"https://matrix.to/#/{found.me.id}" if found is not None and found.me.id else ""

    async def examine(self) -> Sequence[Finding]:
        """What is right and wrong with every account; see `Channel.examine`."""
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
        """What the homeserver says of a secret; see `Channel.tried`."""
        if option != "token" or DEFAULT_ACCOUNT not in self._config.tokens():
            return Trial("untried")
        return (await self._who(DEFAULT_ACCOUNT))[0]

    async def _who(self, name: str) -> tuple[Trial, str]:
        """Whose a token is and the device it belongs to, or why nobody says so."""
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

    async def stop(self) -> None:
        """Stop listening, wait for what is being stored, close the connections."""
        await asyncio.gather(*(account.stop() for account in self._accounts.take()))


def _is_installed() -> bool:
    return find_spec("nio") is not None and find_spec("vodozemac") is not None


async def _quietly(work: Awaitable[object]) -> object:
    try:
        return await work
    except ChannelError as error:
        _log.info("matrix.call.failed", error=str(error))
        return None
