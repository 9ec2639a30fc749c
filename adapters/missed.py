"""What was said while nobody listened: how far every channel that can read it back goes."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

from bot.channel import ChannelConfig, Inbound

MAX_MISSED = 100  # messages of one chat, the newest ones …
MAX_AGE = 24 * 3600 * 1000  # … that are not older, in ms
MAX_CHATS = 500  # looked through after a downtime, those of the newest messages
AT_ONCE = 4  # requests


def newest_chats(seen: Mapping[str, int]) -> dict[str, int]:
    """The chats to look through, by the newest message seen in each; the newest come first."""
    return dict(sorted(seen.items(), key=itemgetter(1), reverse=True)[:MAX_CHATS])


def listens(config: ChannelConfig, somewhere: Inbound) -> bool:
    """Whether the bot reads at all where something was said.

    That is in direct chats, and in rooms it is let into.
    """
    if somewhere.chat_type == "direct":
        return config.dm_policy != "disabled"
    if config.group_policy == "disabled":
        return False
    listed = config.listed(somewhere)
    return listed.enabled if listed is not None else config.group_policy == "open"
