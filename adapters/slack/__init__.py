"""Slack: direct messages, channels and threads, through Socket Mode: no public address is needed.

Only the configuration lives here; the SDK is an extra and imported when the channel starts.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, SecretStr, model_validator

from bot import channel as contract  # `channel` is a module of this package

CHANNEL = "slack"
PUBLIC_API = "https://slack.com/api/"
OPTIONS = ("bot_token", "app_token")


class AccountConfig(contract.RoomAccountSection):
    """One more app; what it does not set is as in [channels.slack], except the tokens."""

    bot_token: SecretStr | None = Field(default=None, description="This app's own bot token.")
    app_token: SecretStr | None = Field(default=None, description="This app's app-level token.")


class SlackConfig(contract.ChannelConfig):
    """`[channels.slack]`: an app of your own in a Slack workspace."""

    bot_token: SecretStr | None = Field(
        default=None,
        description='Bot token ("xoxb-…"); better set as SLACK_BOT_TOKEN than in the file.',
    )
    app_token: SecretStr | None = Field(
        default=None,
        description='App-level token ("xapp-…"), with the scope connections:write; better set as '
        "SLACK_APP_TOKEN than in the file.",
    )
    api_root: str = Field(
        default=PUBLIC_API, description="Web API; change it to go through a server of your own."
    )
    proxy: contract.ProxyOption = Field(default=None, description=contract.PROXY_HELP)
    accounts: dict[contract.AccountId, AccountConfig] = Field(
        default_factory=dict[str, AccountConfig],
        description="More apps by id; each needs its own tokens, the rest is inherited.",
    )

    def tokens(self) -> dict[str, tuple[str, str]]:
        """The bot token and the app-level one of every complete account, by its name."""
        bots, apps = (self.secrets(option) for option in OPTIONS)
        return {name: (bots[name], apps[name]) for name in bots if name in apps}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if not self.api_root.startswith(("https://", "http://")):
            raise ValueError("api_root must begin with https://")
        for at, what in enumerate(OPTIONS):
            contract.check_distinct({name: pair[at] for name, pair in self.tokens().items()}, what)
        return self


def _create(config: Any) -> contract.Channel:
    from adapters.slack.channel import Slack  # noqa: PLC0415  # aiohttp takes 0.2 s

    return Slack(config)


plugin = contract.ChannelPlugin(
    name=CHANNEL,
    config=SlackConfig,
    create=_create,
    ready=lambda config: bool(config.tokens()),
    needs="SLACK_BOT_TOKEN and SLACK_APP_TOKEN",
    env={"SLACK_BOT_TOKEN": ("bot_token",), "SLACK_APP_TOKEN": ("app_token",)},
)
