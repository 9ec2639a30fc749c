"""When the model chooses to say nothing: a reply that is a silent token and nothing else. Pure.

While a reply could still become such a token, none of it may be shown: half a token on a screen is
worse than none. A long reply that merely ends in one is a reply.
"""

from __future__ import annotations

TOKENS = ("NO_REPLY", "[SILENT]")


def is_silent(reply: str) -> bool:
    """Whether the whole reply is a silent token, in whatever case."""
    return reply.strip().upper() in TOKENS


def may_become_silent(written: str) -> bool:
    """Whether what is written so far is the beginning of a silent token, or all of one."""
    so_far = written.strip().upper()
    return any(token.startswith(so_far) for token in TOKENS)
