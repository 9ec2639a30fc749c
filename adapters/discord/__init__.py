"""Discord: direct messages, guild channels, threads and forum posts, through a gateway connection.

Only the configuration lives here; the SDK is imported when the channel is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from bot.channel import (
    PROXY_HELP,
    AccountId,
    Channel,
    ChannelConfig,
    ChannelPlugin,
    GroupConfig,
    InChat,
    ProxyOption,
    RoomAccountSection,
    check_distinct,
    check_patterns,
)

PUBLIC_API = "https://discord.com/api/v10"
PUBLIC_GATEWAY = "wss://gateway.discord.gg/"


class GuildConfig(GroupConfig):
    """One server; what it leaves out is as in the whole channel."""

    channels: tuple[str, ...] = Field(
        default=(),
        description="Ids of the channels it listens in, their threads included; empty is all.",
    )

    def holds(self, where: InChat) -> bool:
        """True if the bot listens where this was said."""
        return not self.channels or bool({where.chat, where.parent} & {*self.channels})


class AccountConfig(RoomAccountSection):
    """One more bot; what it does not set is as in [channels.discord], except the token."""

    token: SecretStr | None = Field(default=None, description="This bot's own token.")
    require_mention: bool = Field(
        default=True, description="In rooms, whether this bot answers only what is said to it."
    )
    guilds: Mapping[str, GuildConfig] = Field(
        default_factory=dict[str, GuildConfig], description="Servers of this bot by id."
    )
    api_root: str = Field(default=PUBLIC_API, description="REST API this bot uses.")
    gateway_url: str = Field(default=PUBLIC_GATEWAY, description="Gateway this bot connects to.")
    attachment_hosts: tuple[str, ...] = Field(
        default=(), description="Where this bot may fetch files from, besides Discord's own hosts."
    )


class DiscordConfig(ChannelConfig):
    """`[channels.discord]`: direct messages and servers of a Discord bot."""

    token: SecretStr | None = Field(
        default=None,
        description="Bot token from the developer portal; better set as DISCORD_BOT_TOKEN than in "
        "the file.",
    )
    api_root: str = Field(
        default=PUBLIC_API, description="REST API; change it to go through a server of your own."
    )
    proxy: ProxyOption = Field(default=None, description=PROXY_HELP)
    gateway_url: str = Field(
        default=PUBLIC_GATEWAY,
        description="Gateway; one of your own is used for every connection, resumed ones too.",
    )
    attachment_hosts: tuple[str, ...] = Field(
        default=(),
        description='Hosts of files, besides Discord\'s own, such as "https://cdn.example.org".',
    )
    guilds: Mapping[str, GuildConfig] = Field(
        default_factory=dict[str, GuildConfig],
        description='Servers by id; "*" is every other one. A room listed in groups comes first.',
    )
    accounts: dict[AccountId, AccountConfig] = Field(
        default_factory=dict[str, AccountConfig],
        description="More bots by id; each needs its own token, the rest is inherited.",
    )

    def tokens(self) -> dict[str, str]:
        """The token of every account that has one; the top-level token is account "default"."""
        return self.secrets("token")

    def listed(self, where: InChat) -> GroupConfig | None:
        """A room's own entry, else its parent's, else its server's, else that of "*"."""
        for name in (where.chat, where.parent):
            if name and name in self.groups:
                return self.groups[name]
        guild = self.guilds.get(where.server) or self.guilds.get("*") if where.server else None
        if guild is None:
            return self.groups.get("*")
        # A server that names its channels closes the others, also when group_policy is "open".
        return guild if guild.holds(where) else GuildConfig(enabled=False)

    @model_validator(mode="after")
    def _accounts_differ(self) -> Self:
        check_distinct(self.tokens(), "token")
        return self

    @model_validator(mode="after")
    def _addresses_are_valid(self) -> Self:
        for section in (self, *self.accounts.values()):
            if not section.api_root.startswith(("https://", "http://")):
                raise ValueError("api_root must begin with https://")
            if not section.gateway_url.startswith(("wss://", "ws://")):
                raise ValueError("gateway_url must begin with wss://")
            if not all(map(_is_host, section.attachment_hosts)):
                raise ValueError('attachment_hosts are written "https://cdn.example.org"')
        return self

    @model_validator(mode="after")
    def _guild_patterns_are_valid(self) -> Self:
        for section in (self, *self.accounts.values()):
            for room in (*section.guilds.values(), *section.groups.values()):
                check_patterns(room.mention_patterns)
        return self


def _is_host(address: str) -> bool:
    """True when an address is a scheme, a host and perhaps a port, and nothing else."""
    try:
        found = urlsplit(address)
        bare = found.port is None or found.port > 0
    except ValueError:
        return False
    bare = bare and not (found.username or found.query or found.fragment)
    bare = bare and found.path in {"", "/"}
    return bare and found.scheme in {"https", "http"} and bool(found.hostname)


def _create(config: Any) -> Channel:
    from adapters.discord.channel import Discord  # noqa: PLC0415  # the SDK takes 0.3 s

    return Discord(config)


plugin = ChannelPlugin(
    name="discord",
    config=DiscordConfig,
    create=_create,
    ready=lambda config: bool(config.tokens()),
    needs="DISCORD_BOT_TOKEN",
    env={"DISCORD_BOT_TOKEN": ("token",)},
)
