"""Matrix: direct chats, rooms and threads, encrypted ones too, through a homeserver's `/sync`.

Only the configuration lives here; the SDK is an extra and imported when an account starts.
"""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from bot.channel import (
    PROXY_HELP,
    AccountId,
    Channel,
    ChannelConfig,
    ChannelPlugin,
    ProxyOption,
    RoomAccountSection,
    check_distinct,
)


class AccountConfig(RoomAccountSection):
    """One more bot; what it does not set is as in [channels.matrix], except the token."""

    homeserver: str = Field(default="", description="Address of this bot's homeserver.")
    token: SecretStr | None = Field(default=None, description="This bot's own access token.")


class MatrixConfig(ChannelConfig):
    """`[channels.matrix]`: a bot with an account on a Matrix homeserver."""

    homeserver: str = Field(
        default="",
        description='Address of the homeserver, such as "https://matrix.example.org".',
    )
    token: SecretStr | None = Field(
        default=None,
        description="Access token of the bot's account; better set as MATRIX_ACCESS_TOKEN than in "
        "the file.",
    )
    proxy: ProxyOption = Field(default=None, description=PROXY_HELP)
    accounts: dict[AccountId, AccountConfig] = Field(
        default_factory=dict[str, AccountConfig],
        description="More bots by id; each needs its own token, the rest is inherited.",
    )

    def tokens(self) -> dict[str, str]:
        """The token of every account that is complete; the section itself is "default"."""
        found = self.secrets("token")
        return {name: token for name, token in found.items() if self.account(name).address}

    @property
    def address(self) -> str:
        """The homeserver's address without a slash at its end."""
        return self.homeserver.strip().rstrip("/")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for section in (self, *self.accounts.values()):
            url = urlsplit(section.homeserver.strip())
            if section.homeserver and not (url.scheme in {"https", "http"} and url.hostname):
                raise ValueError("homeserver must begin with https://")
        check_distinct(self.tokens(), "token")
        return self


def _create(config: Any) -> Channel:
    from adapters.matrix.channel import Matrix  # noqa: PLC0415  # aiohttp takes 0.2 s

    return Matrix(config)


plugin = ChannelPlugin(
    name="matrix",
    config=MatrixConfig,
    create=_create,
    ready=lambda config: bool(config.tokens()),
    needs="homeserver and MATRIX_ACCESS_TOKEN",
    env={"MATRIX_ACCESS_TOKEN": ("token",)},
)
