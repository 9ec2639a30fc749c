"""The ✓ of a reply is the engine's: it stands only for what memory really holds. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.i18n import text
from bot.memory.notes import Place, listed

_TICK = "[✓✔✅☑🗸]\ufe0f?"
_LEADING = re.compile(rf"^(?P<indent>\s*)(?:{_TICK}\s*)+")
_TRAILING = re.compile(rf"(?:\s*{_TICK})+\s*$")
_CLAIM = re.compile(
    r"\b(?:stored?|noted?|saved?|remember(?:ed)?|kept|recorded|memory|memori[sz]ed)\b"
    r"|[记存]|保存|\.md\b",
    re.IGNORECASE,
)


def without_ticks(reply: str) -> str:
    """A reply without the ticks a model made up.

    A list of several ticked lines is left alone, but for those that claim to have stored something.
    """
    lines = reply.split("\n")
    listed = sum(bool(_LEADING.match(line)) for line in lines) > 1
    kept = [
        line if listed and not _CLAIM.search(line) else _LEADING.sub(r"\g<indent>", line)
        for line in lines
    ]
    if not listed:
        kept = [_TRAILING.sub("", line) for line in kept]
    return "\n".join(kept).strip()


def confirmation(language: str, written: Sequence[Place]) -> str:
    """The line that confirms what was written, with where it stands; empty for nothing."""
    if not written:
        return ""
    return text(language, "memory.stored", places=listed(written))
