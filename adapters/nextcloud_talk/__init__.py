"""Nextcloud Talk: rooms and direct chats with a bot, by its signed webhook.

Only the configuration lives here; aiohttp is imported when the channel is created.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, StringConstraints, model_validator

from bot.channel import (
    DEFAULT_ACCOUNT,
    PROXY_HELP,
    AccountId,
    Channel,
    ChannelConfig,
    ChannelPlugin,
    ProxyOption,
    RoomAccountSection,
    check_distinct,
    reveal,
)

WebhookPath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._~/-]{0,200}$")]

WEBHOOK_PATH = "/nextcloud-talk"
BOT_NAME = "Confidant"
MAX_NAME = 64  # characters of a bot's name, a rule of Talk's
_IN_PATHS = "/%:@!$&'()*+,;=~"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Seat:
    """One bot on one server, as its account and the section together configure it.

    `place` tells servers apart in ids: empty for the section's own server.
    """

    account: str
    base_url: str  # normalised
    place: str
    secret: SecretStr
    bot_name: str
    webhook_path: str
    webhook_url: str  # what Talk calls, or empty when it is not known
    api_user: str
    api_password: SecretStr | None
    rooms: tuple[str, ...]  # tokens of the rooms the configuration lets it into by name


class AccountConfig(RoomAccountSection):
    """One more bot, on this or another server; its secret is its own, the rest is inherited.

    The API user is inherited only on the same server.
    """

    base_url: str = Field(default="", description="Address of this bot's Nextcloud.")
    bot_secret: SecretStr | None = Field(default=None, description="This bot's own secret.")
    bot_name: str = Field(default=BOT_NAME, max_length=MAX_NAME, description="This bot's name.")
    api_user: str = Field(default="", description="Account of the bot's own on that server.")
    api_password: SecretStr | None = Field(default=None, description="App password of api_user.")
    webhook_path: WebhookPath = Field(
        default=WEBHOOK_PATH, description="Path of this bot's webhook; several may share one."
    )
    public_url: str = Field(
        default="", description="Address at which that server reaches the webhook."
    )


class NextcloudTalkConfig(ChannelConfig):
    """`[channels.nextcloud_talk]`: a bot in Nextcloud Talk."""

    base_url: str = Field(
        default="",
        description="Address of the Nextcloud, as overwrite.cli.url in its config.php has it.",
    )
    proxy: ProxyOption = Field(default=None, description=PROXY_HELP)
    bot_secret: SecretStr | None = Field(
        default=None,
        description="Secret given to occ talk:bot:install, 40-128 characters; better set as "
        "NEXTCLOUD_TALK_BOT_SECRET than in the file.",
    )
    bot_name: str = Field(
        default=BOT_NAME,
        max_length=MAX_NAME,
        description="Name given to occ talk:bot:install; saying it counts as a mention.",
    )
    api_user: str = Field(
        default="",
        description="The bot's own account, to tell direct chats from rooms, fetch files and read "
        "back; without it every chat is a room.",
    )
    api_password: SecretStr | None = Field(
        default=None,
        description="App password of api_user; better set as NEXTCLOUD_TALK_API_PASSWORD.",
    )
    webhook_host: str = Field(
        default="127.0.0.1", description="Address the webhook server listens on."
    )
    webhook_port: int = Field(
        default=8422, ge=1, le=65535, description="Port the webhook server listens on."
    )
    webhook_path: WebhookPath = Field(default=WEBHOOK_PATH, description="Path of the webhook.")
    public_url: str = Field(
        default="",
        description="Address at which Nextcloud reaches webhook_host:webhook_port, without the "
        "path; confidant doctor checks it.",
    )
    accounts: dict[AccountId, AccountConfig] = Field(
        default_factory=dict[str, AccountConfig],
        description="More bots by id, on this or other servers; each needs its own secret.",
    )

    def seats(self) -> dict[str, Seat]:
        """Every bot that has a server and a secret; the section itself is account "default"."""
        found = {
            name: self._seat(name) for name in dict.fromkeys((DEFAULT_ACCOUNT, *self.accounts))
        }
        return {name: seat for name, seat in found.items() if seat is not None}

    def _seat(self, name: str) -> Seat | None:
        section = self.account(name)
        own = self.accounts.get(name)
        # Nobody may speak with another bot's secret, nor give a server another one's password.
        secret = self.bot_secret if name == DEFAULT_ACCOUNT else None
        secret = own.bot_secret or secret if own is not None else secret
        base, home = normal_url(section.base_url), normal_url(self.base_url)
        if not base or not reveal(secret) or secret is None:
            return None
        api: NextcloudTalkConfig | AccountConfig | None = section if base == home else own
        return Seat(
            account=name,
            base_url=base,
            place="" if base == home else base.partition("://")[2],
            secret=secret,
            bot_name=section.bot_name.strip(),
            webhook_path=section.webhook_path,
            webhook_url=webhook_url(section.public_url, section.webhook_path),
            api_user=api.api_user if api is not None else "",
            api_password=api.api_password if api is not None else None,
            rooms=tuple(
                each.rpartition("/")[2]
                for each, room in section.groups.items()
                if each != "*" and room.enabled
            ),
        )

    @model_validator(mode="after")
    def _addresses_are_complete(self) -> Self:
        places: list[tuple[str, NextcloudTalkConfig | AccountConfig]] = [("", self)]
        places += [(f' (account "{name}")', each) for name, each in self.accounts.items()]
        for where, each in places:
            for option in ("base_url", "public_url"):
                if getattr(each, option) and not normal_url(getattr(each, option)):
                    raise ValueError(f"{option} must begin with https:// or http://{where}")
        return self

    @model_validator(mode="after")
    def _bots_differ(self) -> Self:
        # The secret says whose a call is: what names the server in it is not signed.
        secrets = {name: reveal(seat.secret) for name, seat in self.seats().items()}
        check_distinct(secrets, "bot_secret")
        return self


def normal_url(url: str) -> str:
    """An address in the one way to write it, without a slash at the end; empty if it is none."""
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
        if not host.isascii():
            host = host.encode("idna").decode()
    except ValueError:  # a port that is no number, brackets that do not close, no name
        return ""
    if parts.scheme not in _DEFAULT_PORTS or not host or parts.username or parts.query:
        return ""
    if not all(char.isprintable() and char not in ' "<>\\' for char in host + parts.path):
        return ""
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        shown = f"{shown}:{port}"
    return f"{parts.scheme}://{shown}{quote(parts.path, safe=_IN_PATHS).rstrip('/')}"


def webhook_url(public_url: str, path: str) -> str:
    """The whole address of a webhook; `public_url` may have the path already."""
    base = normal_url(public_url)
    return base if not base or (path != "/" and base.endswith(path)) else base + path


def _create(config: Any) -> Channel:
    from adapters.nextcloud_talk.channel import NextcloudTalk  # noqa: PLC0415  # aiohttp: 0.2 s

    return NextcloudTalk(config)


plugin = ChannelPlugin(
    name="nextcloud_talk",
    config=NextcloudTalkConfig,
    create=_create,
    ready=lambda config: bool(config.seats()),
    needs="base_url and NEXTCLOUD_TALK_BOT_SECRET",
    env={
        "NEXTCLOUD_TALK_BOT_SECRET": ("bot_secret",),
        "NEXTCLOUD_TALK_API_PASSWORD": ("api_password",),
    },
)
