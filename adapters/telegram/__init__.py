"""Telegram: direct chats, groups and channels, by long polling or webhook.

Only the configuration lives here; the SDK is imported when the channel is created.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from bot.channel import (
    DEFAULT_ACCOUNT,
    PROXY_HELP,
    AccountId,
    AccountSection,
    Channel,
    ChannelConfig,
    ChannelPlugin,
    ProxyOption,
    check_distinct,
    reveal,
)
from bot.imports import without

PUBLIC_API = "https://api.telegram.org"

# Telegram's own rule for the secret of a webhook.
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")

Mode = Literal["polling", "webhook"]


class AccountConfig(AccountSection):
    """One more bot; what it does not set is as in [channels.telegram], except the token."""

    token: SecretStr | None = Field(default=None, description="This bot's own token.")
    api_root: str = Field(default=PUBLIC_API, description="Bot API server of this bot.")
    mode: Mode = Field(default="polling", description="How this bot receives messages.")
    webhook_url: str = Field(default="", description="Public address for this bot's webhook.")
    webhook_secret: SecretStr | None = Field(
        default=None, description="Secret Telegram sends with this bot's webhook calls."
    )


class TelegramConfig(ChannelConfig):
    """`[channels.telegram]`: talking with a Telegram bot."""

    token: SecretStr | None = Field(
        default=None,
        description="Token from @BotFather; better set as TELEGRAM_BOT_TOKEN than in the file.",
    )
    api_root: str = Field(
        default=PUBLIC_API,
        description="Bot API server; change it to use a local Bot API server.",
    )
    proxy: ProxyOption = Field(default=None, description=PROXY_HELP)
    mode: Mode = Field(
        default="polling",
        description='How messages arrive: "polling" needs no public address, "webhook" does.',
    )
    webhook_url: str = Field(
        default="",
        description="Public https address that reaches webhook_host:webhook_port; each bot gets "
        "the path /telegram/<account> below it.",
    )
    webhook_host: str = Field(
        default="127.0.0.1", description="Address the webhook server listens on."
    )
    webhook_port: int = Field(
        default=8421, ge=1, le=65535, description="Port the webhook server listens on."
    )
    webhook_secret: SecretStr | None = Field(
        default=None,
        description="Secret Telegram sends with every webhook call: 1-256 letters, digits, _ or -.",
    )
    poll_timeout: int = Field(
        default=30, ge=1, le=50, description="Seconds one long poll waits for messages."
    )
    accounts: dict[AccountId, AccountConfig] = Field(
        default_factory=dict[str, AccountConfig],
        description="More bots by id; each needs its own token, the rest is inherited.",
    )

    def tokens(self) -> dict[str, str]:
        """The token of every account that has one; the top-level token is account "default"."""
        return self.secrets("token")

    @model_validator(mode="after")
    def _accounts_differ(self) -> Self:
        check_distinct(self.tokens(), "token")
        return self

    @model_validator(mode="after")
    def _webhooks_are_complete(self) -> Self:
        for name in {DEFAULT_ACCOUNT, *self.accounts}:
            _check_webhook(name, self.account(name))
        return self


def _check_webhook(name: str, section: TelegramConfig) -> None:
    """Raise ValueError when an account wants a webhook it cannot have."""
    if section.mode != "webhook":
        return
    where = "" if name == DEFAULT_ACCOUNT else f' (account "{name}")'
    if not section.webhook_url:
        raise ValueError(f'mode "webhook" needs webhook_url{where}')
    schemes = ("https://",) if section.api_root == PUBLIC_API else ("https://", "http://")
    if not section.webhook_url.startswith(schemes):
        raise ValueError(f"webhook_url must begin with https://{where}")
    secret = reveal(section.webhook_secret)
    if not secret:
        raise ValueError(f'mode "webhook" needs webhook_secret{where}')
    if not _WEBHOOK_SECRET.fullmatch(secret):
        raise ValueError(f"webhook_secret is 1-256 letters, digits, _ or -{where}")


def webhook_url(section: TelegramConfig, account: str) -> str:
    """The address to which Telegram sends an account's updates."""
    return f"{section.webhook_url.rstrip('/')}/telegram/{account}"


def _create(config: Any) -> Channel:
    # What it would need for Telegram Passport, and for a command line: 11 MB.
    with without("cryptography", "rich", "pygments"):
        importlib.import_module("telegram")
    from adapters.telegram.channel import Telegram  # noqa: PLC0415  # the SDK takes 0.25 s

    return Telegram(config)


plugin = ChannelPlugin(
    name="telegram",
    config=TelegramConfig,
    create=_create,
    ready=lambda config: bool(config.tokens()),
    needs="TELEGRAM_BOT_TOKEN",
    env={"TELEGRAM_BOT_TOKEN": ("token",)},
)
