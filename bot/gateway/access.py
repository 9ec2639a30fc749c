"""Who may talk: one pure decision for each message. Default: nobody.

Ids are the platform's stable ones; display names and user names decide nothing.
"""

from __future__ import annotations

from enum import StrEnum

from bot.channel import ChannelConfig, Inbound


class Verdict(StrEnum):
    """What happens to a message before anything else looks at it."""

    ALLOW = "allow"
    PAIR = "pair"  # allowed if a pairing code of theirs was approved; otherwise they get one
    DENY = "deny"


def decide(config: ChannelConfig, inbound: Inbound, *, is_owner: bool) -> Verdict:
    """Whether a message may become a turn.

    Groups are closed: nothing said there is answered yet. In direct chats `dm_policy` decides;
    `config` is the account's own (see `ChannelConfig.account`).
    """
    if inbound.chat_type != "direct" or not inbound.sender or config.dm_policy == "disabled":
        return Verdict.DENY
    if is_owner or listed(config, inbound):
        return Verdict.ALLOW
    if config.dm_policy == "open":
        return Verdict.ALLOW if "*" in config.allow_from else Verdict.DENY
    return Verdict.PAIR if config.dm_policy == "pairing" else Verdict.DENY


def listed(config: ChannelConfig, inbound: Inbound) -> bool:
    """Whether `allow_from` names the sender, as "42" or as "telegram:42"."""
    return any(
        entry in (inbound.sender, f"{inbound.channel}:{inbound.sender}")
        for entry in config.allow_from
        if entry != "*"
    )
