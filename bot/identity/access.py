"""Access: one pure decision for each message on who may talk where. Default: nobody.

Ids are the platform's stable ones; display names and user names decide nothing. What is approved
for a direct chat means nothing in a room. A chat of a kind nobody knows counts as a room.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Final

from bot.channel import ChannelConfig, Inbound, ToolRule
from bot.i18n import LANGUAGES, catalog
from bot.identity.routing import Activation, MessageOrigin
from bot.identity.view import Subject, matches


class AccessDecision(StrEnum):
    """The first decision about a message."""

    ALLOW = "allow"
    PAIR = "pair"  # allowed if a pairing code of theirs was approved; otherwise they get one
    LISTEN = "listen"  # said in one of its rooms, by somebody who may not talk to it
    DECLINE = "decline"  # said in a room that is none of its own: at most one polite line
    DENY = "deny"  # as if it had not been said


def decide(
    config: ChannelConfig, origin: MessageOrigin, *, is_owner: bool, is_let_in: bool = False
) -> AccessDecision:
    """Decide if a message may become a turn; `config` is the account's own.

    In direct chats `dm_policy` decides, in rooms `group_policy` and who may talk there. A room that
    the owner let in is one of the bot's own, unless the configuration lists it and says otherwise.
    """
    if origin.chat_type != "direct":
        return _in_room(config, origin, is_owner=is_owner, is_let_in=is_let_in)
    if not origin.sender or config.dm_policy == "disabled":
        return AccessDecision.DENY
    if is_owner or _names(config.allow_from, origin):
        return AccessDecision.ALLOW
    if config.dm_policy == "open":
        return AccessDecision.ALLOW if "*" in config.allow_from else AccessDecision.DENY
    return AccessDecision.PAIR if config.dm_policy == "pairing" else AccessDecision.DENY


def _in_room(
    config: ChannelConfig, origin: MessageOrigin, *, is_owner: bool, is_let_in: bool
) -> AccessDecision:
    if config.group_policy == "disabled" or not origin.chat:
        return AccessDecision.DENY
    room = config.listed(origin)
    is_admitted = room.enabled if room is not None else is_let_in or config.group_policy == "open"
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
    """True if a list names the sender, as "42" or as "telegram:42"."""
    known = (origin.sender, f"{origin.channel}:{origin.sender}")
    return any(entry in known for entry in entries if entry != "*")


# --- which tools ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Permission:
    """The verdict on a tool: if it may be used, if the person is asked first, and by which rule.

    Rules are counted from 1, as the configuration lists them; with 0 none of them is about it.
    """

    is_given: bool
    rule: int = 0
    asks: bool = False


@dataclass(frozen=True, slots=True)
class ToolRights:
    """The tools that one person may use in one place.

    `rules` are those that are about them and the place, with their numbers; `is_private` says that
    it is a direct chat of the owner's. By itself it gives the built-in tools and nothing else.
    `only` are the names that their agent may use at all; empty is all.
    """

    rules: tuple[tuple[int, ToolRule], ...] = ()
    is_private: bool = False
    only: tuple[str, ...] = ()

    def of(self, name: str, *, built_in: bool, changes: bool = False) -> Permission:
        """The permission for one tool.

        `built_in` says that everybody has it by default, `changes` that it says it changes
        something.
        """
        if self.only and not _names_tool(self.only, name):
            return NOTHING
        for number, rule in self.rules:
            if _names_tool(rule.tools, name):
                asks = changes if rule.ask is None else rule.ask
                return Permission(rule.action == "allow", number, asks)
        return Permission(built_in or self.is_private, asks=changes)


NOTHING: Final = Permission(is_given=False)


def _names_tool(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def rights_of(
    rules: Sequence[ToolRule],
    subject: Subject,
    people: Collection[str],
    *,
    is_owner: bool,
    only: tuple[str, ...] = (),
) -> ToolRights:
    """The rights of whoever speaks, by what they are called (`people`), where they speak.

    `only` are the names of the tools that the agent there may use; empty is all.
    """
    known = {name.lower() for name in people} if rules else set[str]()
    return ToolRights(
        tuple(
            (number, rule)
            for number, rule in enumerate(rules, 1)
            if (not rule.person or rule.person.lower() in known) and matches(rule, subject)
        ),
        is_private=is_owner and subject.chat_type == "direct",
        only=only,
    )


def permission(
    rights: Iterable[ToolRights], name: str, *, built_in: bool, changes: bool = False
) -> Permission:
    """The permission for a tool of everybody answered together: the strictest counts.

    Of nobody nothing is known, so nothing is given.
    """
    found = [each.of(name, built_in=built_in, changes=changes) for each in rights]
    strictest = sorted(found, key=lambda each: (each.is_given, not each.asks))
    return strictest[0] if strictest else NOTHING


# What a message asks for: the command it is, and whether it is said to the bot at all. Pure.

ABORT_WORDS = frozenset({"stop", "停止"})

MAX_SEARCHED = 4_000  # characters of a message in which a mention is looked for

# A letter or digit of a script that puts spaces between words.
_WORD = r"[^\W\u2e80-\U0010ffff]"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command as typed: its name in lower case, the rest of the text, and which bot it names."""

    name: str
    rest: str = ""
    to: str = ""


@cache
def _typed() -> tuple[re.Pattern[str], Mapping[str, str]]:
    """The pattern of a typed command, and the other names of commands: `command.<name>.alias`.

    "／" is the slash of many Chinese keyboards.
    """
    aliases = {
        words: key.split(".")[1]
        for language in LANGUAGES
        for key, words in catalog(language).items()
        if key.startswith("command.") and key.endswith(".alias")
    }
    name = rf"[A-Za-z0-9_]{{1,32}}|{'|'.join(map(re.escape, aliases))}"
    return re.compile(rf"[/／]({name})(?:@(\w+))?(?:\s+(.*))?", re.DOTALL), aliases


def parse(text: str) -> Parsed | None:
    """The command a text is, or None when it is something to talk about.

    A name is one word after a slash at the very beginning: "/etc/passwd?" is no command.
    """
    pattern, aliases = _typed()
    match = pattern.fullmatch(text.strip())
    if match is None:
        return None
    name = aliases.get(match[1]) or match[1].lower()
    return Parsed(name, (match[3] or "").strip(), match[2] or "")


def is_abort(text: str) -> bool:
    """True if a text asks to stop a running reply without being a command."""
    return text.strip().strip(".!。！").lower() in ABORT_WORDS


def command_of(inbound: Inbound, parsed: Parsed) -> Parsed | None:
    """The command that a message gives, if it does; `parsed` is what its text is.

    Correcting an old command does not give it again. In rooms there may be other bots:
    "/help@another" is for that one.
    """
    if inbound.edit_of or (parsed.to and inbound.chat_type != "direct"):
        return None
    return parsed


# --- the mention gate -----------------------------------------------------------------------------


def addressed(
    config: ChannelConfig,
    inbound: Inbound,
    activation: Activation,
    agent_name: str,
    *,
    is_command: bool = False,
) -> bool:
    """True if something said in a room is for the bot; `config` is the room's.

    `is_command` says that it is one of the bot's own commands. What an admin chose for the room
    (`activation`) comes before what the configuration says.
    """
    return is_always(config, activation) or is_command or named(config, inbound, agent_name)


def is_always(config: ChannelConfig, activation: Activation) -> bool:
    """True if everything said in a room is for the bot."""
    return activation == "always" if activation else not config.require_mention


def named(config: ChannelConfig, inbound: Inbound, agent_name: str) -> bool:
    """True if a message mentions the bot: natively, as a reply to it, or by a pattern.

    Without patterns of its own, a room listens for "@Name" and for "Name," at the beginning.
    """
    if pointed(inbound):
        return True
    text = inbound.text[:MAX_SEARCHED]
    patterns = config.mention_patterns or _patterns_of(agent_name)
    return any(_compiled(pattern).search(text) for pattern in patterns)


def pointed(inbound: Inbound) -> bool:
    """True if a message is meant for the bot by the platform's own means."""
    return inbound.mentions_bot or (inbound.reply_to is not None and inbound.reply_to.from_bot)


@lru_cache(1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@lru_cache(100)
def _patterns_of(name: str) -> tuple[str, ...]:
    plain = re.escape(name.strip())
    if not plain:
        return ()
    ends = rf"(?!{_WORD})" if name.strip()[-1] < "\u2e80" else ""
    return (rf"(?<!{_WORD})@{plain}{ends}", rf"\A\s*{plain}\s*(?:[,:;!?，：；！？、]|\Z)")
