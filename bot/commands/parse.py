"""Recognising commands. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ABORT_WORDS = frozenset({"stop", "停止"})

# What somebody types who writes Chinese; "／" is the slash of many of their keyboards.
CHINESE: Final[Mapping[str, str]] = {
    "帮助": "help",
    "新对话": "new",
    "撤销": "undo",
    "停止": "stop",
    "状态": "status",
    "提醒": "remind",
    "提醒列表": "reminders",
    "记忆": "memory",
    "模型": "model",
}

_COMMAND = re.compile(
    rf"[/／]([A-Za-z0-9_]{{1,32}}|{'|'.join(CHINESE)})(?:@(\w+))?(?:\s+(.*))?", re.DOTALL
)


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
    name = CHINESE.get(match[1]) or match[1].lower()
    return Parsed(name, (match[3] or "").strip(), match[2] or "")


def is_abort(text: str) -> bool:
    """Whether a text asks to stop a running reply without being a command."""
    return text.strip().strip(".!。！").lower() in ABORT_WORDS
