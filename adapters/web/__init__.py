"""The bot's own web page: a chat that needs no account and no platform."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bot.channel import Channel, ChannelPlugin, DirectChannelConfig


class WebConfig(DirectChannelConfig):
    """`[channels.web]`: the chat on the dashboard's address.

    Whoever may open the page may talk: on loopback that is this machine, elsewhere whoever knows
    the dashboard's token, or was let in by a link. So direct chats are open here, and pairing has
    no meaning.
    """

    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = Field(
        default="open",
        description="Whoever may open the page may talk; the dashboard's token guards the page.",
    )
    allow_from: tuple[str, ...] = Field(
        default=("*",),
        description='The ids here are "owner", and the names of those whom the owner let in.',
    )


def _create(_config: WebConfig) -> Channel:
    from adapters.web.channel import Web  # noqa: PLC0415 - importing a plugin stays cheap

    return Web()


plugin = ChannelPlugin(name="web", config=WebConfig, create=_create)
