"""What a search cannot find: what somebody said with an account that is not joined to this one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from cachetools import LRUCache

from bot.agent.tools import ToolContext

NOTE = (
    "Not searched: what this person may have said with an account elsewhere that is not joined to "
    "this one. If that is what they ask for, say so once: in a direct chat /link gives a code with "
    "one of the two accounts, and typed with the other it joins both."
)
MAX_SEARCHED = 2_000  # characters of a message in which a place is looked for
MAX_TOLD = 1_000  # conversations that are remembered as told

# What people call the two places that every Confidant has.
_ALSO: Mapping[str, tuple[str, ...]] = {
    "web": ("page", "browser", "网页"),
    "console": ("terminal", "终端"),
}
_ANOTHER = re.compile(
    r"""\b(?:another|(?:my|the|your)\s+other)\s+(?:account|app|phone|messenger)\b
        |(?:另一个|另外一个|别的|其他)(?:账号|帐号|应用|软件|平台)""",
    re.IGNORECASE | re.VERBOSE,
)


class Elsewhere:
    """Notes that somebody asks for what they said in another place, once a conversation.

    Args:
        channels: the places there are.
        known: in which of them the configuration knows an account of somebody, by identity.
    """

    def __init__(
        self, channels: Iterable[str] = (), known: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self._places = {channel: _pattern(channel) for channel in channels}
        self._known = known or {}
        self._told: LRUCache[str, None] = LRUCache(MAX_TOLD)

    def note(self, context: ToolContext) -> str:
        """`NOTE` when it explains why nothing will be found, else empty.

        That is when the person names a place in which no account of theirs is known, in a direct
        chat, for the first time in this conversation.
        """
        if context.session_id in self._told or not self._asked(context):
            return ""
        self._told[context.session_id] = None
        return NOTE

    def _asked(self, context: ToolContext) -> bool:
        if not context.view.people or len(self._places) < 2:  # nothing of theirs, or no other place
            return False
        known = {place for person in context.view.people for place in self._places_of(person)}
        if context.origin is not None:
            known.add(context.origin.address.channel)
        others = [pattern for place, pattern in self._places.items() if place not in known]
        words = [said[:MAX_SEARCHED] for said in context.memory.words]
        return any(pattern.search(said) for pattern in (_ANOTHER, *others) for said in words)

    def _places_of(self, person: str) -> Iterable[str]:
        channel, is_account, _ = person.partition(":")
        return (channel,) if is_account else self._known.get(person, ())


def _pattern(channel: str) -> re.Pattern[str]:
    """A place as it is spoken of: "in Telegram", "on the page", "在 Discord"."""
    names = {channel.replace("_", " "), *channel.split("_"), *_ALSO.get(channel, ())}
    name = "|".join(re.escape(each).replace(r"\ ", "[ _-]?") for each in sorted(names, key=len))
    return re.compile(
        rf"\b(?:in|on|via|over|at|from|using|through)\s+(?:the\s+|my\s+|your\s+)?(?:{name})\b"
        rf"|在\s*(?:{name})|(?:{name})\s*(?:上|里|那边|中)",
        re.IGNORECASE,
    )
