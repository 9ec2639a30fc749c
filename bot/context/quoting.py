"""A conversation as text for a model, each line quoted with who said it, and back. Pure.

Nothing in such a text can pass for the frame around it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, Literal, cast, get_args

import orjson

from bot.context import tokens
from bot.context.history import tool_names
from bot.context.persona import capped
from bot.context.prompt import unquoted
from bot.messages import CLEAN, Message, Text, ToolResult, ToolUse, Whose
from bot.tool_results import Quoted

Who = Literal[
    "person", "other", "assistant", "note", "call", "result", "failure", "summary", "memory"
]

LONGEST = 320  # characters of one sentence that is kept
RESULT_CAP = 1_500  # characters of a tool's answer that is shown
CALL_CAP = 300  # characters of a tool call's arguments

# What of a message is as much a part of the conversation as its own words.
_PASSED_ON: frozenset[Whose] = frozenset({"forwarded", "poll", "place", "card", "preview", "file"})
# Notes that quote what nobody said here.
_BESIDE: frozenset[Whose] = frozenset({"heard", "unknown"})
_FRAME = re.compile(rf"> (?:\[e?\d+\] )?(?P<who>{'|'.join(get_args(Who))}):(?: (?P<text>.*))?")
_MORE: Final = ">   "  # in front of the further lines of what somebody said


@dataclass(frozen=True, slots=True)
class Said:
    """Words and whose they are; `summary` is what stands for earlier words."""

    who: Who
    text: str


def clipped(text: str, length: int = LONGEST) -> str:
    """A text on one line, of at most `length` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else f"{flat[: length - 1]}…"


def spoken(messages: Sequence[Message], without: Collection[str] = ()) -> list[list[Said]]:
    """The words of each message and whose they are; of tools named in `without`, no answers.

    What memory showed is left out: notes that quote it are not part of the conversation.
    """
    called = tool_names(messages)
    return [list(_spoken(message, called, without)) for message in messages]


def _spoken(
    message: Message, called: Mapping[str, str], without: Collection[str]
) -> Iterator[Said]:
    for block in message.blocks:
        match block:
            case Text():
                yield from _words(block, message.role)
            case ToolUse(_, name, arguments):
                yield Said("call", f"{name} {clipped(_json(arguments), CALL_CAP)}")
            case ToolResult(id_, text, is_error, origin):
                name = called.get(id_, "a tool")
                # What the program answers is about a call that was never made.
                if name not in without and origin != "program":
                    who: Who = "failure" if is_error else "result"
                    yield Said(who, f"{name}: {capped(text.strip(), RESULT_CAP)}")
            case _:  # only the model's own service can read it
                continue


def _words(block: Text, role: Literal["user", "assistant"]) -> Iterator[Said]:
    if block.note:
        if block.origin in _PASSED_ON:
            yield Said("other", capped(unquoted(block.text), RESULT_CAP))
        elif block.origin not in _BESIDE and not isinstance(block.value, Quoted):
            yield Said("note", clipped(block.text, RESULT_CAP))
    elif role == "assistant":
        yield Said("assistant", block.text.strip())
    else:
        yield Said("person" if block.origin in CLEAN else "other", block.text.strip())


def _json(arguments: object) -> str:
    try:
        return orjson.dumps(arguments).decode()
    except TypeError:
        return str(arguments)


def render(said: Iterable[Said], numbers: Sequence[str] = ()) -> str:
    """Words as text for a model, each line quoted; with `numbers` each begins with its own."""
    parts: list[str] = []
    for each, number in zip(said, numbers or repeat(""), strict=False):
        first, *rest = each.text.splitlines() or [""]
        lead = f"[{number}] " if number else ""
        parts.append(f"> {lead}{each.who}: {first}".rstrip())
        parts += [f"{_MORE}{line}".rstrip() for line in rest]
    return "\n".join(parts)


def read(text: str) -> list[Said]:
    """Read back what `render` was given; nothing in any other text."""
    whose: list[Who] = []
    lines: list[list[str]] = []
    for line in text.split("\n"):
        if frame := _FRAME.fullmatch(line):
            whose.append(cast("Who", frame["who"]))
            lines.append([frame["text"] or ""])
        elif lines and (line == ">" or line.startswith(_MORE)):
            lines[-1].append(line.removeprefix(_MORE) if line != ">" else "")
    return [Said(who, "\n".join(text)) for who, text in zip(whose, lines, strict=True)]


def fitted(said: Sequence[Said], most: int) -> list[Said]:
    """The same in at most about `most` tokens: of each, the beginning and the end."""
    total = sum(tokens.estimate(each.text) for each in said)
    if total <= most:
        return list(said)
    share = most / total
    return [Said(each.who, capped(each.text, int(len(each.text) * share))) for each in said]
