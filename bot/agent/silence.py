"""When the model chooses to say nothing: a reply that is a silent token and nothing else. Pure.

While a reply could still become such a token, none of it may be shown: half a token on a screen is
worse than none. A reply that only begins with one is a reply without it; one that merely ends in
one, or has one inside, is a reply as it stands.
"""

from __future__ import annotations

import re

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
