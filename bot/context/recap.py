"""What a conversation was about, in its own words: no model is asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Literal

from bot.context.quoting import clipped
from bot.sessions.entries import Entry
from bot.tool_results import Speaker

TAIL = 6  # messages kept nearly whole
TAIL_LENGTH = 600  # characters of each
FIRST, LAST = 3, 9  # questions of the part before the tail that a summary keeps
EARLIER_SHARE = 0.7  # of a recap, for the summary of what was said before its messages
LINE_LENGTH = 160  # characters of a question or an answer in a summary

_SENTENCE_END = re.compile(r"(?<=[.!?。！？…])\s|\n")


@dataclass(frozen=True, slots=True)
class Recap:
    """A conversation in short: what was asked and answered first, and its last messages."""

    ended: str
    summary: str
    turns: tuple[tuple[Speaker, str], ...]

    @property
    def tail(self) -> str:
        """Its last messages, a line each."""
        return "\n".join(f"{who}: {said}" for who, said in self.turns)


def recap(
    entries: Sequence[Entry], zone: tzinfo, characters: int, earlier: str = ""
) -> Recap | None:
    """The recap of a conversation's messages, of about `characters`; None when nothing was said.

    `earlier` is the summary of what was said before these messages: it holds the most in the
    fewest words, so it gets its room first.
    """
    said = [entry for entry in entries if entry.text.strip()]
    if not said:
        return None
    ended = datetime.fromtimestamp(said[-1].at / 1000, zone)
    earlier = _fit(earlier.strip().splitlines(), int(characters * EARLIER_SHARE), drop=-1)
    left = characters - len(earlier)
    room = left * 2 // 3
    each = min(TAIL_LENGTH, room // TAIL)
    turns: list[tuple[Speaker, str]] = []
    for entry in said[-TAIL:]:
        who: Speaker = "person" if entry.role == "user" else "you"
        turns.append((who, clipped(entry.text, max(1, each - len(f"{who}: ") - 1))))  # a line break
    while turns and sum(len(who) + len(words) + 3 for who, words in turns) > room:
        del turns[0]
    found = Recap(f"{ended:%Y-%m-%d %H:%M}", "", tuple(turns))
    exchanges = _fit(_exchanges(said[:-TAIL]), left - len(found.tail), drop=0)
    return replace(found, summary="\n".join(part for part in (earlier, exchanges) if part))


def _exchanges(said: Sequence[Entry]) -> list[str]:
    """Each question with the first sentence of its answer; of many, the first and the last."""
    lines: list[str] = []
    for number, entry in enumerate(said):
        if entry.role != "user":
            continue
        following = said[number + 1] if number + 1 < len(said) else None
        answer = following.text if following is not None and following.role == "assistant" else ""
        first = _SENTENCE_END.split(answer.strip(), maxsplit=1)[0]
        asked = f"- {clipped(entry.text, LINE_LENGTH)}"
        lines.append(f"{asked} → {clipped(first, LINE_LENGTH)}" if answer else asked)
    if len(lines) > FIRST + LAST:
        left_out = len(lines) - FIRST - LAST
        lines = [*lines[:FIRST], f"- … {left_out} more …", *lines[-LAST:]]
    return lines


def _fit(lines: Sequence[str], characters: int, *, drop: Literal[0, -1]) -> str:
    """The lines, without as many as have no room: the first ones (0) or the last ones (-1)."""
    kept = list(lines)
    while kept and sum(len(line) + 1 for line in kept) > characters:
        del kept[drop]
    return "\n".join(kept)
