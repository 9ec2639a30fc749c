"""Which tools whoever speaks may use where they speak. Pure.

The built-in tools are for everybody who may talk to the bot; every other tool is for the owner's
direct chats, until a rule says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from bot.channel import ToolRule
from bot.identity.view import Subject, matches


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
