"""A conversation as text for a model, each line quoted with who said it, and back. Pure.

Nothing in such a text can pass for the frame around it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from itertools import repeat
from typing import Final, Literal, cast, get_args

import orjson

from bot.context import sentences, tokens
from bot.context.history import tool_names
from bot.context.prompt import capped, unquoted
from bot.messages import CLEAN, Message, Quoted, Speaker, Text, ToolResult, ToolUse, Whose
from bot.sessions.entries import Entry

Who = Literal[
    "person", "other", "assistant", "note", "call", "result", "failure", "summary", "memory"
]

LONGEST = 320  # characters of one sentence that is kept
RESULT_CAP = 1_500  # characters of a tool's answer that is shown
CALL_CAP = 300  # characters of a tool call's arguments

# What of a message is as much a part of the conversation as its own words.
_PASSED_ON: frozenset[Whose] = frozenset(
    {"forwarded", "poll", "place", "card", "preview", "event", "file"}
)
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


# What a conversation was about, in its own words: no model is asked. Pure.

TAIL = 6  # messages kept nearly whole
TAIL_LENGTH = 600  # characters of each
FIRST, LAST_RECAPPED = 3, 9  # questions of the part before the tail that a summary keeps
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
    if len(lines) > FIRST + LAST_RECAPPED:
        left_out = len(lines) - FIRST - LAST_RECAPPED
        lines = [*lines[:FIRST], f"- … {left_out} more …", *lines[-LAST_RECAPPED:]]
    return lines


def _fit(lines: Sequence[str], characters: int, *, drop: Literal[0, -1]) -> str:
    """The lines, without as many as have no room: the first ones (0) or the last ones (-1)."""
    kept = list(lines)
    while kept and sum(len(line) + 1 for line in kept) > characters:
        del kept[drop]
    return "\n".join(kept)


# Picks out of a conversation what a summary must not lose; no model is asked. Pure.
#
# Nothing is written here, only picked: whole sentences, in the words they were said in.

MOST_NUMBERS, MOST_LINKS, MOST_QUESTIONS = 30, 7, 5  # with their headings 15 lines
LONGEST_LINK, LONGEST_QUESTION = 200, 140  # characters
LAST: Final = 4  # lines of a conversation that show where it stands

_LINK = re.compile(r"https?://[^\s<>\"'”）)\]]+|\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_NUMBER = re.compile(
    r"[€$£¥#]?(?<![\dA-Za-z])(?:[A-Z]{1,6}-?)?\d[\dA-Za-z.,:/-]{0,24}\s?[%€°元月日号岁点年]?"
)
_TELLING = re.compile(r"\w\D*\w\D*\w")  # more than one or two digits, as "in 20 minutes" has
_NAME = re.compile(r"(?<=[\w,] )[A-ZÀ-Þ][^\W\d_]{2,}")
_WORTH: Final[Mapping[Who, float]] = {
    "summary": 2, "memory": 2, "person": 1, "other": 0.5, "result": 0.5, "failure": 0.5,
    "assistant": -1,
}  # fmt: skip
_LABELS: Final[Mapping[Who, str]] = {
    "other": "(passed on) ",
    "assistant": "(assistant) ",
    "result": "(tool) ",
    "failure": "(tool failed) ",
}


def checklist(said: Sequence[Said]) -> str:
    """The latest links and numbers of a conversation and its open questions, in up to 15 lines."""
    text = "\n".join(each.text for each in said if each.who != "assistant")
    links = [link for link in _latest(_LINK, text) if len(link) <= LONGEST_LINK]
    numbers = _latest(_NUMBER, _LINK.sub(" ", text))
    asked = [
        clipped(sentence, LONGEST_QUESTION)
        for each in _unanswered(said)
        for sentence in sentences.split(each.text)
        if sentences.is_question(sentence)
    ]
    parts = (
        ("Links:", links[:MOST_LINKS]),
        ("Numbers:", [", ".join(numbers[:MOST_NUMBERS])] if numbers else []),
        ("Not answered:", asked[-MOST_QUESTIONS:]),
    )
    return "\n".join(line for head, lines in parts if lines for line in (head, *lines))


def _latest(pattern: re.Pattern[str], text: str) -> list[str]:
    """The matches of a pattern in a text, each once, the latest first."""
    found = (match.group().strip(" .,:;/-") for match in pattern.finditer(text))
    return list(dict.fromkeys(reversed(list(found))))


def _unanswered(said: Sequence[Said]) -> Sequence[Said]:
    """The messages from the assistant's last words on."""
    talk = [each for each in said if each.who in {"person", "assistant"}]
    last = max((n for n, each in enumerate(talk) if each.who == "assistant"), default=0)
    return talk[last:]


@dataclass(frozen=True, slots=True)
class _Candidate:
    place: int
    text: str
    score: float


def summarise(said: Sequence[Said], limit: int) -> str:
    """The sentences that matter most, as a list of at most about `limit` tokens, in their order.

    What was summarised before comes first, then open questions, the last exchange, and sentences
    with links, numbers or names. What repeats is there once, in its latest words.
    """
    found = dict(_candidates(said))
    chosen: list[_Candidate] = []
    room = limit
    for each in sorted(found.values(), key=lambda each: (-each.score, -each.place)):
        cost = tokens.estimate(each.text) + 1
        if cost <= room and (each.score > 0 or not chosen):
            chosen.append(each)
            room -= cost
    chosen.sort(key=lambda each: each.place)
    return "\n".join(f"- {each.text}" for each in chosen)


def _candidates(said: Sequence[Said]) -> Iterator[tuple[frozenset[str], _Candidate]]:
    """Every sentence with what makes it the same as another one: its words."""
    lines = [each for each in said if each.who in _WORTH]
    open_ = {id(each) for each in _unanswered(lines)}
    place = 0
    for number, each in enumerate(lines):
        # A result begins with the tool's name.
        text = each.text.partition(": ")[2] if each.who == "result" else each.text
        for sentence in sentences.split(text):
            words = sentences.words(sentence)
            if not words:
                continue
            place += 1
            asks = sentences.is_question(sentence)
            exact = [*_LINK.findall(sentence), *_NUMBER.findall(sentence)]
            score = _WORTH[each.who] + number / len(lines) + 2 * (number >= len(lines) - LAST)
            score += bool(exact) + any(map(_TELLING.search, exact)) + bool(_NAME.search(sentence))
            score += 4 * (asks and id(each) in open_) - 2 * asks  # an answered one says little
            # What machines say in the same form again and again counts once.
            plain = frozenset(word for word in words if word.isalpha())
            key = plain if plain and each.who in _LABELS else words
            yield key, _Candidate(place, _LABELS.get(each.who, "") + clipped(sentence), score)
