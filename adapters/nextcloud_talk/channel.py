"""The Nextcloud Talk channel: every account of the section behind one `Channel`."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp

from adapters.nextcloud_talk import NextcloudTalkConfig
from adapters.nextcloud_talk.account import Account, Pace
from adapters.nextcloud_talk.api import new_session
from adapters.nextcloud_talk.doctor import examine, tried
from adapters.nextcloud_talk.inbound import CHANNEL, Membership
from adapters.nextcloud_talk.send import LIMIT, messages
from adapters.nextcloud_talk.webhook import TalkWebhook
from bot.channel import (
    Capabilities,
    Engine,
    Finding,
    Outbound,
    Piece,
    Trial,
    reveal,
)
from bot.channel.kit.accounts import AccountChannel
from bot.channel.kit.json_access import mapping, parse_json, text


class NextcloudTalk(AccountChannel[Account]):
    """Rooms and direct chats of Nextcloud Talk, with one or more bots on one or more servers."""

    name, title = CHANNEL, "Nextcloud Talk"

    def __init__(self, config: NextcloudTalkConfig, pace: Pace | None = None) -> None:
        super().__init__()
        self._config, self._pace = config, pace or Pace()
        self._seats = config.seats()
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
        self._session = session = new_session(reveal(self._config.proxy))
        missing = self._config.accounts.keys() - self._seats.keys()
        self.lack(engine, missing, "This account lacks base_url or a bot_secret of its own.")
        await self.start_all(
            {
                name: Account(seat, self._config.account(name), engine, session, self._pace)
                for name, seat in self._seats.items()
            }
        )
        if self._accounts:
            host, port = self._config.webhook_host, self._config.webhook_port
            self._server = TalkWebhook([*self._accounts.values()], host, port)
            self._server.start()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text as Talk shows it, and its files; see `Channel.render`."""
        return messages(outbound)

    async def heard(self, body: str) -> None:
        """A node was told that a bot came into a room or left it; see `Channel.heard`."""
        told = mapping(parse_json(body))
        account = self._accounts.get(text(told, "account"))
        if account is not None:
            room, actor = text(told, "room"), text(told, "actor")
            account.heard(Membership(told.get("joined") is True, room, actor))

    async def examine(self) -> Sequence[Finding]:
        """Check the set-up of every account."""
        return await examine(self._config)

    async def tried(self, option: str) -> Trial:
        """Try a secret with the section's server; see `Channel.tried`."""
        return await tried(self._config, option)

    async def stop(self) -> None:
        """Stop listening, wait for what is being stored, close the connections."""
        for account in self._accounts.values():
            account.supervisor.close()
        if self._server is not None:
            await self._server.stop()
        await super().stop()
        if self._session is not None:
            await self._session.close()
