"""Whether an address stands in a conversation, rather than being made up. Pure.

Who opens an address tells its host something: all that is in the address. A page that wants to know
what the model knows could have it open an address that holds it. So an address is opened only if it
stands in words that are not the model's own. What memory shows is, unless it is known to be the
person's: a model could note an address that it made up, and read it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from yarl import URL

from bot.agent.tools import TurnMemory
from bot.memory import markdown
from bot.messages import Text, ToolResult, ToolUse, Whose

# What the model wrote, or had a part in writing.
_OWN: frozenset[Whose] = frozenset({"bot", "mixed", "before", "carried"})
# The tools that show what the model may have written with somebody else's words before it.
OF_MEMORY = frozenset(
    {"memory_get", "memory_search", "memory_write", "schedule_message", "transcript_search"}
)
_GOES_ON = "A-Za-z0-9/?&=%~_+-"  # characters that make an address longer, wherever they stand
_MAY_END = r".:;,!@$*#'()"  # those that belong to it only if it goes on after them


def texts_of(memory: TurnMemory) -> Iterator[str]:
    """The words a turn's model was shown, without those that it may have made up itself."""
    yield from memory.words
    yield from memory.shown
    for passage in memory.recalled:
        yield markdown.parted(markdown.without_untrusted(passage.text), memory.foreign)[0]
    blocks = [(message.role, block) for message in memory.seen for block in message.blocks]
    uses = [use for _, use in blocks if isinstance(use, ToolUse)]
    others = {use.id for use in uses if use.name not in OF_MEMORY}
    for role, block in blocks:
        match block:
            case Text(text, origin=origin) if role == "user" and origin not in _OWN:
                yield text
            case ToolResult(id_, text, is_error=False) if id_ in others:
                yield text
            case _:
                pass


def is_mentioned(url: URL, texts: Iterable[str]) -> bool:
    """True when an address stands in one of some texts, as a whole.

    The scheme, "www." and a slash at its end make no difference, nor does how it is escaped.
    """
    host = (url.host or "").removeprefix("www.")
    spellings = {host, (url.raw_host or "").removeprefix("www.")}
    patterns = [re.compile(_pattern(each, url)) for each in spellings]
    for text in texts:
        folded = text.casefold()
        if any(each in folded for each in spellings) and any(p.search(text) for p in patterns):
            return True
    return False


def _pattern(host: str, url: URL) -> str:
    port = f":{url.explicit_port}" if url.explicit_port is not None else ""
    paths = {url.raw_path_qs.removesuffix("/"), url.path_qs.removesuffix("/")}
    path = "|".join(re.escape(each) for each in sorted(paths))
    before = r"(?<![A-Za-z0-9_.-])(?:[wW]{3}\.)?"
    after = rf"/?(?![{_GOES_ON}]|[{_MAY_END}]+[{_GOES_ON}])"
    # What is after a "#" stays here, so it may be anything.
    return rf"{before}(?i:\[?{re.escape(host)}\]?){port}(?:{path})(?:/?#|{after})"
