"""The contract between the engine and its channels.

A channel turns what its platform delivers into `Inbound` values and awaits `Engine.receive` for
each; once that returns the message is on disk and may be acknowledged to the platform. The engine
calls `Channel.send` for every piece of text that goes out. Anything more a platform can do is an
ability: a small Protocol of its own, plus a field of `Capabilities` that declares it.
"""

from __future__ import annotations

from bot.channel.config import (
    ChannelConfig,
    ChannelPlugin,
    ChannelScope,
    GroupConfig,
    Rule,
    ScopeConfig,
    check_patterns,
    reveal,
)
from bot.channel.seams import (
    Activities,
    Admins,
    Channel,
    CommandMenu,
    Doctor,
    Drafts,
    Engine,
    Files,
    Finding,
    HttpRoutes,
    Interactive,
    Reactions,
    Typing,
)
from bot.channel.values import (
    DEFAULT_ACCOUNT,
    Activity,
    Address,
    Attachment,
    Button,
    Capabilities,
    ChatType,
    Command,
    Foreign,
    ForeignKind,
    Health,
    Heard,
    HistoryItem,
    Inbound,
    LengthUnit,
    Media,
    Outbound,
    OutboundKind,
    ReplyTo,
)

__all__ = [
    "DEFAULT_ACCOUNT",
    "Activities",
    "Activity",
    "Address",
    "Admins",
    "Attachment",
    "Button",
    "Capabilities",
    "Channel",
    "ChannelConfig",
    "ChannelPlugin",
    "ChannelScope",
    "ChatType",
    "Command",
    "CommandMenu",
    "Doctor",
    "Drafts",
    "Engine",
    "Files",
    "Finding",
    "Foreign",
    "ForeignKind",
    "GroupConfig",
    "Health",
    "Heard",
    "HistoryItem",
    "HttpRoutes",
    "Inbound",
    "Interactive",
    "LengthUnit",
    "Media",
    "Outbound",
    "OutboundKind",
    "Reactions",
    "ReplyTo",
    "Rule",
    "ScopeConfig",
    "Typing",
    "check_patterns",
    "reveal",
]
