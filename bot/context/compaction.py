"""What of a full conversation becomes a summary, and how it is handed to whoever writes it. Pure.

A cut is always before something a person said, so that no tool result loses its call. What is
handed over is quoted line by line, so that nothing in it can pass for the frame around it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, cast, get_args

import orjson

from bot.context import tokens
from bot.context.extract import Said, Who, clipped
from bot.context.persona import capped
from bot.context.prompt import unquoted
from bot.messages import CLEAN, Message, Text, ToolResult, ToolUse, Whose

KEPT_SHARE = 0.5  # of the window; when the last turns are more than this, fewer stay whole
LEAST_TOKENS = 200  # a summary of less than this would be no shorter

BASE_RATIO, MIN_RATIO = 0.4, 0.15  # of the window that one call is given to summarise
STEADY = 0.1  # mean share of the window of a message, up to which the base ratio holds
SLOPE = 2.0  # how fast the ratio falls above that
MARGIN = 1.2  # estimates may be this much too low
OVERSIZED = 0.5  # of the window: a message of more is summarised by itself
MIN_SPLIT = 4  # messages; fewer are split only when they would not fit one call

RESULT_CAP = 1_500  # characters of a tool's answer that a summariser is shown
CALL_CAP = 300  # characters of a tool call's arguments
FAILURES = 6  # failed tools that a summary names, the latest ones
FAILURE_CAP = 160  # characters of what each said

# What of a message is as much a part of the conversation as its own words.
_PASSED_ON: frozenset[Whose] = frozenset({"forwarded", "poll", "place", "card", "preview", "file"})
_STOPPED = "(stopped)"  # the program's own answer to a call that was never made
_FRAME = re.compile(rf"> (?P<who>{'|'.join(get_args(Who))}):(?: (?P<text>.*))?")
_MORE: Final = ">   "  # in front of the further lines of what somebody said


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages `start` to, not including, `end`; `oversized` when one of them is far too large."""

    start: int
    end: int
    tokens: int
    oversized: bool = False


def cut(
    messages: Sequence[Message],
    sizes: Sequence[int],
    *,
    window: int,
    keep_recent: int,
    keep_turns: int,
) -> int | None:
    """How many messages are to be summarised; None when there is nothing to.

    The last `keep_turns` turns stay whole, and more of them as long as they come to no more than
    `keep_recent` tokens (0: no more than those turns). When they alone would fill half of the
    window, fewer stay, but at least one.
    """
    cuts = [n for n, message in enumerate(messages) if _can_begin(message)]
    # Messages that waited together are one turn.
    turns = [n for n in cuts if n == 0 or not _can_begin(messages[n - 1])]
    if not turns:
        return None
    # What each message and all after it come to; one more, 0, for the end.
    tails = [*accumulate(reversed(sizes), initial=0)][::-1]
    found = turns[max(0, len(turns) - max(1, keep_turns))]
    found = min([found, *(n for n in turns if tails[n] <= keep_recent)])
    most = int(window * KEPT_SHARE)
    if tails[found] > most:  # later: between turns, else anywhere, else before the last turn
        small = (n for n in (*turns, *cuts) if n > found and tails[n] <= most)
        found = next(small, max(found, turns[-1]))
    return found if tails[0] - tails[found] >= LEAST_TOKENS else None


def _can_begin(message: Message) -> bool:
    """Whether a conversation can begin here: a person speaks, and no tool's answer is among it."""
    answers = any(isinstance(block, ToolResult) for block in message.blocks)
    return message.begins_turn and not answers


# --- in pieces -----------------------------------------------------------------------------------


def chunk_ratio(sizes: Sequence[int], window: int) -> float:
    """What share of the window one call is given: less when messages are large, without a jump."""
    if not sizes or window <= 0:
        return BASE_RATIO
    mean = MARGIN * sum(sizes) / len(sizes) / window
    return min(BASE_RATIO, max(MIN_RATIO, BASE_RATIO - SLOPE * (mean - STEADY)))


def chunk_tokens(sizes: Sequence[int], window: int, shrink: float = 1.0) -> int:
    """How many tokens one call is given to summarise."""
    return max(1, int(chunk_ratio(sizes, window) * window / MARGIN * shrink))


def is_oversized(size: int, window: int) -> bool:
    """Whether a message is too large to be summarised together with others."""
    return size * MARGIN > OVERSIZED * window


def chunks(
    messages: Sequence[Message], sizes: Sequence[int], *, window: int, shrink: float = 1.0
) -> tuple[Chunk, ...]:
    """The messages in parts of about the same size, each for one call; every message in one part.

    A tool call and its answer are never parted. `shrink` below 1 makes smaller parts, for a
    summariser that found these too large.
    """
    found: list[Chunk] = []
    run: list[Chunk] = []
    normal = [size for size in sizes if not is_oversized(size, window)]
    most = chunk_tokens(normal, window, shrink)
    for group in _groups(messages, sizes, window):
        if group.oversized:
            found += _shared_out(run, most, window * shrink)
            found.append(group)
            run = []
        else:
            run.append(group)
    return (*found, *_shared_out(run, most, window * shrink))


def _groups(messages: Sequence[Message], sizes: Sequence[int], window: int) -> Iterator[Chunk]:
    """The smallest parts: a message, or a tool call with what was answered."""
    start = 0
    calls: set[str] = set()
    for number, message in enumerate(messages):
        answered = {b.tool_use_id for b in message.blocks if isinstance(b, ToolResult)}
        if number > start and not answered & calls:
            yield _chunk(start, number, sizes, window)
            start, calls = number, set[str]()
        calls |= {b.id for b in message.blocks if isinstance(b, ToolUse)}
    if messages:
        yield _chunk(start, len(messages), sizes, window)


def _chunk(start: int, end: int, sizes: Sequence[int], window: int) -> Chunk:
    part = sizes[start:end]
    return Chunk(start, end, sum(part), any(is_oversized(size, window) for size in part))


def _shared_out(groups: Sequence[Chunk], most: int, window: float) -> list[Chunk]:
    """Neighbouring groups joined to parts of equal shares, none of more than `most` tokens."""
    if not groups:
        return []
    total = sum(group.tokens for group in groups)
    few = groups[-1].end - groups[0].start < MIN_SPLIT
    if total <= most or (few and total * MARGIN <= OVERSIZED * window):
        return [Chunk(groups[0].start, groups[-1].end, total)]
    share = total / max(2, math.ceil(total / most))
    parts: list[Chunk] = []
    for group in groups:
        last = parts[-1] if parts else None
        if last is None or last.tokens >= share or last.tokens + group.tokens > most:
            parts.append(group)
        else:
            parts[-1] = Chunk(last.start, group.end, last.tokens + group.tokens)
    return parts


# --- as text -------------------------------------------------------------------------------------


def spoken(messages: Sequence[Message], without: Collection[str] = ()) -> list[list[Said]]:
    """What each message says, for a summariser; of tools named in `without`, no answers.

    What memory showed is left out: notes that quote it are not part of the conversation.
    """
    called = {
        block.id: block.name
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolUse)
    }
    return [list(_spoken(message, called, without)) for message in messages]


def _spoken(message: Message, called: dict[str, str], without: Collection[str]) -> Iterator[Said]:
    for block in message.blocks:
        match block:
            case Text(text, True, origin):
                if origin in _PASSED_ON:
                    yield Said("other", capped(unquoted(text), RESULT_CAP))
                elif not any(line.startswith(">") for line in text.splitlines()):
                    yield Said("note", clipped(text, RESULT_CAP))
            case Text(text, _, origin):
                yield Said(_speaker(message, origin), text.strip())
            case ToolUse(_, name, arguments):
                yield Said("call", f"{name} {clipped(_json(arguments), CALL_CAP)}")
            case ToolResult(id_, text, is_error):
                name = called.get(id_, "a tool")
                if name not in without and text.strip() != _STOPPED:
                    who: Who = "failure" if is_error else "result"
                    yield Said(who, f"{name}: {capped(text.strip(), RESULT_CAP)}")
            case _:  # only the model's own service can read it
                continue


def _speaker(message: Message, origin: Whose) -> Who:
    if message.role == "assistant":
        return "assistant"
    return "person" if origin in CLEAN else "other"


def _json(arguments: object) -> str:
    try:
        return orjson.dumps(arguments).decode()
    except TypeError:
        return str(arguments)


def render(said: Iterable[Said]) -> str:
    """What was said as text for a model, each line quoted."""
    parts: list[str] = []
    for each in said:
        first, *rest = each.text.splitlines() or [""]
        parts.append(f"> {each.who}: {first}".rstrip())
        parts += [f"{_MORE}{line}".rstrip() for line in rest]
    return "\n".join(parts)


def rendered(messages: Sequence[Message]) -> str:
    """Messages as text for a model, each line quoted."""
    return render(each for said in spoken(messages) for each in said)


def read(text: str) -> list[Said]:
    """What `render` was given; nothing in any other text."""
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


def omitted(message: Message, size: int) -> Said:
    """What stands for a message that is too large to be summarised at all."""
    whose = "the person" if message.role == "user" else "the assistant"
    return Said("summary", f"[A message of {whose} of about {size} tokens is left out here.]")


def failures(messages: Sequence[Message]) -> list[str]:
    """What tools could not do, the latest ones: a summary keeps it, lest it be tried again."""
    failed = [each.text for said in spoken(messages) for each in said if each.who == "failure"]
    unique = dict.fromkeys(clipped(text, FAILURE_CAP) for text in reversed(failed))
    return list(unique)[:FAILURES][::-1]


def plain_note(previous: str, messages: Sequence[Message]) -> str:
    """What stands for messages that nobody could summarise: how many, and what stood there before.

    This loses sight of what they said, so it is only for whoever asks for it.
    """
    note = f"[{len(messages)} earlier messages could not be summarised; the transcript has them.]"
    return f"{previous}\n\n{note}" if previous else note
