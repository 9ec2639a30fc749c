"""What people read of a model's reply: no silent token, and no ✓ but the engine's own. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.i18n import text
from bot.memory.notes import Place, listed

# --- when a model chooses to say nothing ---------------------------------------------------------

TOKENS = ("NO_REPLY", "[SILENT]")

_MARKUP = "*`\"'“”‘’"  # that may stand around a token
# A token as a word of its own, no name that begins like one and no link, with what sets it apart
# from what follows.
_TOKEN = re.compile(
    rf"\s*[{_MARKUP}]*(?:NO_REPLY(?![A-Za-z0-9_])|\[SILENT\](?!\())"
    rf"[{_MARKUP}]*[ \t]*[.,:;!…—–-]*\s*",
    re.IGNORECASE,
)


def spoken(reply: str) -> str:
    """The reply without silent tokens at its beginning; as it is when there are none."""
    begin = 0
    while found := _TOKEN.match(reply, begin):
        begin = found.end()
    return reply[begin:]


def is_silent(reply: str) -> bool:
    """True when silent tokens are the whole reply, in whatever case."""
    return bool(reply.strip()) and not spoken(reply).strip()


def may_become_silent(written: str) -> bool:
    """True when nothing of what is written so far may be shown.

    All of it, or of what follows a token, is nothing yet or the beginning of a token.
    """
    so_far = spoken(written).lstrip().lstrip(_MARKUP).upper()
    return any(token.startswith(so_far.rstrip()) for token in TOKENS)


# --- what confirms that something was stored -----------------------------------------------------

_TICK = "[✓✔✅☑🗸]\ufe0f?"
_TICKED = re.compile(_TICK)
_LEADING = re.compile(rf"^(?P<indent>\s*)(?:{_TICK}\s*)+")
_TRAILING = re.compile(rf"(?:\s*{_TICK})+\s*$")
_CLAIM = re.compile(
    r"\b(?:stored?|noted?|saved?|remember(?:ed)?|kept|recorded|memory|memori[sz]ed)\b"
    r"|[记存]|保存|\.md\b",
    re.IGNORECASE,
)


def without_confirmations(reply: str) -> str:
    """A reply without the confirmations (✓) that a model made up.

    A list of several ticked lines is left alone, but for those that claim to have stored something.
    """
    if not _TICKED.search(reply):
        return reply.strip()
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
