"""Who may talk, and where: one pure decision for each message. Default: nobody.

Ids are the platform's stable ones; display names and user names decide nothing. What is approved
for a direct chat means nothing in a room. A chat of a kind nobody knows counts as a room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from bot.channel import ChannelConfig, ToolRule
from bot.identity.values import MessageOrigin
from bot.identity.view import Subject, matches


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


# --- which tools ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a tool may be used, whether the person is asked before, and by which rule.

    Rules are counted from 1, as the configuration lists them; with 0 none of them is about it.
    """

    is_given: bool
    rule: int = 0
    asks: bool = False


@dataclass(frozen=True, slots=True)
class ToolRights:
    """Which tools one person may use in one place.

    `rules` are those that are about them and the place, with their numbers; `is_private` says that
    it is a direct chat of the owner's. By itself it gives the built-in tools and nothing else.
    """

    rules: tuple[tuple[int, ToolRule], ...] = ()
    is_private: bool = False

    def of(self, name: str, *, built_in: bool, changes: bool = False) -> Permission:
        """Whether they may use a tool.

        `built_in` says that everybody has it by default, `changes` that it says it changes
        something.
        """
        for number, rule in self.rules:
            if any(fnmatchcase(name.lower(), pattern.lower()) for pattern in rule.tools):
                asks = changes if rule.ask is None else rule.ask
                return Permission(rule.action == "allow", number, asks)
        return Permission(built_in or self.is_private, asks=changes)


NOTHING: Final = Permission(is_given=False)


def rights_of(
    rules: Sequence[ToolRule], subject: Subject, people: Collection[str], *, is_owner: bool
) -> ToolRights:
    """The rights of whoever speaks, by what they are called (`people`), where they speak."""
    known = {name.lower() for name in people} if rules else set[str]()
    return ToolRights(
        tuple(
            (number, rule)
            for number, rule in enumerate(rules, 1)
            if (not rule.person or rule.person.lower() in known) and matches(rule, subject)
        ),
        is_private=is_owner and subject.chat_type == "direct",
    )


def permission(
    rights: Iterable[ToolRights], name: str, *, built_in: bool, changes: bool = False
) -> Permission:
    """Whether all of those who are answered together may use a tool: the strictest counts.

    Of nobody nothing is known, so nothing is given.
    """
    found = [each.of(name, built_in=built_in, changes=changes) for each in rights]
    strictest = sorted(found, key=lambda each: (each.is_given, not each.asks))
    return strictest[0] if strictest else NOTHING
