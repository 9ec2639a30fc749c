"""Asking the person before a tool is called: what they are shown, and what they have decided. Pure.

A call that needs their word ends its turn with a question. Their answer is a message, whose turn
carries the call out and shows the model what came of it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bot.identity.access import ToolRights
from bot.messages import ToolUse
from bot.sessions.approvals import Verdict

# Control and format characters (such as those that turn the direction), and other line breaks.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

MAX_SHOWN = 8_000  # characters of a call; what is longer nobody would read

ONE_AT_A_TIME: Final = (
    "nothing was done: the person is asked about one call at a time. Call this again once they "
    "have answered."
)
NOBODY_THERE: Final = (
    "nothing was done: the person has to be asked about this, and what runs by itself cannot ask. "
    "Say so; they can have it done when they talk to you."
)
TOO_LONG: Final = (
    "nothing was done: the person has to be shown the whole call, and it has more than "
    f"{MAX_SHOWN} characters. Do it in smaller parts."
)
UNDONE: Final[Mapping[Verdict, str]] = {
    "denied": "the person said no, so nothing was done. Do not call it again unless they ask.",
    "late": "the person's answer came too late to be used, so nothing was done. Call it again if "
    "they still want it.",
    "begun": "this was begun before the program was ended, and what came of it is not known. It is "
    "not done a second time: say so, and look what came of it if you can.",
}


@dataclass(frozen=True, slots=True)
class DecidedCall:
    """A call that a person was asked about, what they decided, and their rights now."""

    use: ToolUse
    verdict: Verdict
    rights: tuple[ToolRights, ...]


def shown(arguments: Mapping[str, Any]) -> str:
    """A call's arguments as a person reads them: nothing in them is unseen, or turns the rest."""
    return "".join(map(_visible, json.dumps(arguments, ensure_ascii=False, indent=2)))


def _visible(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in _UNSEEN:
        return character
    return json.dumps(character)[1:-1]
