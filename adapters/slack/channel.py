"""The Slack channel: every app of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from adapters.slack import CHANNEL, OPTIONS, SlackConfig
from bot import channel, errors
from bot.channel.kit.accounts import Account, AccountChannel
from bot.channel.kit.client import session
from bot.channel.kit.json_access import label, text
from bot.channel.kit.text import numbered, seen, split

if TYPE_CHECKING:
    from adapters.slack.account import Pace

LIMIT = 4000  # characters of one message; Slack renders at most 12 000 of Markdown


class Slack(AccountChannel[Account]):
    """Direct messages, channels and threads in Slack, with one or more apps."""

    name, title = CHANNEL, "Slack"
    capabilities = channel.Capabilities(
        max_length=LIMIT, drafts=True, buttons=True, attachments=True, files=True
    )

    def __init__(self, config: SlackConfig, pace: Pace | None = None) -> None:
        super().__init__()
        self._config, self._pace = config, pace

    async def start(self, engine: channel.Engine) -> None:
        """Begin to listen with every account that is complete."""
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self.lack(engine, missing, "This account lacks a bot token or an app token.")
        if not _is_installed():
            self.lack(
                engine, tokens, f"Slack's SDK is not installed: {channel.installing(CHANNEL)}"
            )
            return
        module = await asyncio.to_thread(import_module, "adapters.slack.account")
        pace = self._pace or module.Pace()
        await self.start_all(
            {
                name: module.Account(name, self._config.account(name), pair, engine, pace)
                for name, pair in tokens.items()
            }
        )

    def render(self, outbound: channel.Outbound) -> Sequence[channel.Piece]:
        """A text, which Slack renders itself, and its files; see `Channel.render`."""
        made = [channel.Piece(outbound, seen(part)) for part in split(outbound.text, LIMIT)]
        if outbound.attachments:
            made.append(channel.Piece(outbound, "", attachments=outbound.attachments))
        return numbered(made)

    async def examine(self) -> Sequence[channel.Finding]:
        """Check every app; see `Channel.examine`."""
        tokens, finding = self._config.tokens(), channel.Finding.of
        lacking = sorted(self._config.accounts.keys() - tokens.keys())
        found = [finding("error", "slack.no_token", name) for name in lacking]
        if not _is_installed():
            command = channel.installing(CHANNEL)
            return [*found, finding("error", "slack.not_installed", command=command)]
        for name, pair in tokens.items():
            for option, token in zip(OPTIONS, pair, strict=True):
                try:
                    who = await self._asked(option, token, self._config.account(name))
                    found.append(finding("ok", f"slack.{option}", name, who=who))
                except errors.ChannelError as error:
                    found.append(finding("error", "slack.refused", name, why=str(error)))
        return found

    async def tried(self, option: str) -> channel.Trial:
        """Try a secret with Slack; see `Channel.tried`."""
        if option not in OPTIONS or not _is_installed():
            return channel.Trial("untried")
        token = channel.reveal(getattr(self._config, option)).strip()
        try:
            return channel.Trial("known", await self._asked(option, token, self._config))
        except errors.SendLater:
            return channel.Trial("busy")
        except errors.ChannelError as error:
            is_away = type(error) is errors.SendTransient
            return channel.Trial("unreachable" if is_away else "refused")

    async def _asked(self, option: str, token: str, config: SlackConfig) -> str:
        """Whom Slack says that a token belongs to.

        Raises:
            ChannelError: it does not take it, or cannot be asked; the message says why.
        """
        module = import_module("adapters.slack.api")
        async with session(channel.reveal(config.proxy)) as calls:
            api = module.Api(token, config.api_root, calls)
            if option == OPTIONS[0]:
                return label(text(await api("auth_test"), "user"))
            await api(module.SOCKET, app_token=token)
            return "Socket Mode"


def _is_installed() -> bool:
    return find_spec("slack_sdk") is not None
