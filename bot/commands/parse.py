"""Recognising commands. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

ABORT_WORDS = frozenset({"stop", "停止"})

_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,32})(?:@(\w+))?(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command as typed: its name in lower case, the rest of the text, and which bot it names."""

    name: str
    rest: str = ""
    to: str = ""


def parse(text: str) -> Parsed | None:
    """The command a text is, or None when it is something to talk about.

    A name is one word after a slash at the very beginning: "/etc/passwd?" is no command.
    """
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    return Parsed(match[1].lower(), (match[3] or "").strip(), match[2] or "")


def is_abort(text: str) -> bool:
    """Whether a text asks to stop a running reply without being a command."""
    return text.strip().strip(".!。！").lower() in ABORT_WORDS
