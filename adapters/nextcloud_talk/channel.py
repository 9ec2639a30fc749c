"""The Nextcloud Talk channel: every account of the section behind one `Channel`."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp

from adapters.nextcloud_talk import NextcloudTalkConfig
from adapters.nextcloud_talk.account import Account
from adapters.nextcloud_talk.api import new_session
from adapters.nextcloud_talk.calls import Pace
from adapters.nextcloud_talk.doctor import examine, tried
from adapters.nextcloud_talk.inbound import CHANNEL, Membership
from adapters.nextcloud_talk.send import LIMIT, messages
from adapters.nextcloud_talk.webhook import TalkWebhook
from bot.channel import (
    Address,
    Capabilities,
    Channel,
    Engine,
    Finding,
    Media,
    Outbound,
    Piece,
    Trial,
    reveal,
)
from bot.channel.kit.json_access import mapping, parse_json, text
from bot.channel.kit.supervisor import Accounts


class NextcloudTalk(Channel):
    """Rooms and direct chats of Nextcloud Talk, with one or more bots on one or more servers."""

    name = CHANNEL

    def __init__(self, config: NextcloudTalkConfig, pace: Pace | None = None) -> None:
        self._config = config
        self._pace = pace or Pace()
        self._seats = config.seats()
        self._accounts: Accounts[Account] = Accounts(CHANNEL, "Nextcloud Talk")
        self._session: aiohttp.ClientSession | None = None
        self._server: TalkWebhook | None = None
        # Bots can neither fetch nor show files; the accounts beside them can.
        users = [bool(seat.api_user) for seat in self._seats.values()]
        self.capabilities = Capabilities(
            max_length=LIMIT,
            attachments=bool(users) and all(users),
            files=any(users),
            reactions=True,
        )

    async def start(self, engine: Engine) -> None:
        """Begin to listen for every account that has a server and a secret."""
        self._session = new_session(reveal(self._config.proxy))
        missing = self._config.accounts.keys() - self._seats.keys()
        detail = "This account lacks base_url or a bot_secret of its own."
        self._accounts.lack(engine, missing, detail)
        for name, seat in self._seats.items():
            section = self._config.account(name)
            account = Account(seat, section, engine, self._session, self._pace)
            self._accounts[name] = account
            await account.start()
        if self._accounts:
            host, port = self._config.webhook_host, self._config.webhook_port
            self._server = TalkWebhook([*self._accounts.values()], host, port)
            self._server.start()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text as Talk shows it, and its files; see `Channel.render`."""
        return messages(outbound)

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self._accounts.named(piece.address).send(piece)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a reaction below a message, if that works."""
        account = self._accounts.get(address.account)
        if account is not None:
            await account.react(address, message_id, emoji)

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of a file that came with a message; see `Channel.fetch`."""
        return await self._accounts.named(address).fetch(media, most)

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person looks after a room; Talk tells with what they write."""
        account = self._accounts.get(address.account)
        return account is not None and account.calls.is_admin(address, sender)

    async def heard(self, body: str) -> None:
        """A node was told that a bot came into a room or left it; see `Channel.heard`."""
        told = mapping(parse_json(body))
        account = self._accounts.get(text(told, "account"))
        if account is not None:
            room, actor = text(told, "room"), text(told, "actor")
            account.calls.heard(Membership(told.get("joined") is True, room, actor))

    async def examine(self) -> Sequence[Finding]:
        """What is right and wrong with the set-up of every account."""
        return await examine(self._config)

    async def tried(self, option: str) -> Trial:
        """What the section's server says of a secret; see `Channel.tried`."""
        return await tried(self._config, option)

    async def stop(self) -> None:
        """Stop listening, wait for what is being stored, close the connections."""
        for account in self._accounts.values():
            account.supervisor.close()
        if self._server is not None:
            await self._server.stop()
        for account in self._accounts.values():
            await account.supervisor.stop()
        if self._session is not None:
            await self._session.close()
        self._accounts.take()
        self._session = None
