"""Who may talk, and where: one pure decision for each message. Default: nobody.

Ids are the platform's stable ones; display names and user names decide nothing. What is approved
for a direct chat means nothing in a room. A chat of a kind nobody knows counts as a room.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from bot.channel import ChannelConfig
from bot.identity.values import MessageOrigin


class AccessDecision(StrEnum):
    """What happens to a message before anything else looks at it."""

    ALLOW = "allow"
    PAIR = "pair"  # allowed if a pairing code of theirs was approved; otherwise they get one
    LISTEN = "listen"  # said in one of its rooms, by somebody who may not talk to it
    DECLINE = "decline"  # said in a room that is none of its own: at most one polite line
    DENY = "deny"  # as if it had not been said


def decide(config: ChannelConfig, origin: MessageOrigin, *, is_owner: bool) -> AccessDecision:
    """Whether a message may become a turn; `config` is the account's own.

    In direct chats `dm_policy` decides, in rooms `group_policy` and who may talk there.
    """
    if origin.chat_type != "direct":
        return _in_room(config, origin, is_owner=is_owner)
    if not origin.sender or config.dm_policy == "disabled":
        return AccessDecision.DENY
    if is_owner or _names(config.allow_from, origin):
        return AccessDecision.ALLOW
    if config.dm_policy == "open":
        return AccessDecision.ALLOW if "*" in config.allow_from else AccessDecision.DENY
    return AccessDecision.PAIR if config.dm_policy == "pairing" else AccessDecision.DENY


def _in_room(config: ChannelConfig, origin: MessageOrigin, *, is_owner: bool) -> AccessDecision:
    if config.group_policy == "disabled" or not origin.chat:
        return AccessDecision.DENY
    room = config.listed(origin)
    is_admitted = room.enabled if room is not None else config.group_policy == "open"
    if not is_admitted:
        return AccessDecision.DECLINE
    if not origin.sender:
        return AccessDecision.LISTEN
    # Whom the room names itself, else whom the channel names, else everyone.
    if room is not None and "allow_from" in room.model_fields_set:
        allowed = room.allow_from
    else:
        allowed = config.group_allow_from or ("*",)
    if is_owner or "*" in allowed or _names(allowed, origin):
        return AccessDecision.ALLOW
    return AccessDecision.LISTEN


def _names(entries: Iterable[str], origin: MessageOrigin) -> bool:
    """Whether a list names the sender, as "42" or as "telegram:42"."""
    known = (origin.sender, f"{origin.channel}:{origin.sender}")
    return any(entry in known for entry in entries if entry != "*")
