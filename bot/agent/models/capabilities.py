"""What a model takes, as its service's refusals told, and requests that keep to it. Pure.

A model takes everything until its service says otherwise. What it said counts for a week; what had
to be found out by leaving things out counts for a day, as it may have been something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from bot.agent.models import Request, Thoughts, options
from bot.agent.models.refusals import FINAL, LEAST, Refusal
from bot.agent.models.wire import OPENING
from bot.clock import DAY_MS
from bot.context.folding import Folding
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

WEEK = 7 * DAY_MS
SMALL_REPLY = 1_024  # tokens; every model may write as many
UNSEEN = "(A picture was here. It is left out, because this model cannot see pictures.)"
ANSWERED = "(A tool answered:)"

LimitField = Literal["max_tokens", "max_completion_tokens", ""]
FIELD: Final = "field:"  # begins the cause that is a field of the options
TOLD: Final = ("images", "picture", "tools", "history")  # what a person is told was left out

_WITHOUT: Final[Mapping[str, Mapping[str, Any]]] = {
    **{name: {name: False} for name in ("images", "tools", "tool_choice", "parallel", "thinking")},
    "picture": {"images": False},
    "system_role": {"system": False},
    "stream_options": {"usage": False},
    "reasoning_missing": {"reasoning": "needed"},
    "reasoning_forbidden": {"reasoning": "never"},
    "stale_thoughts": {"reasoning": "never"},
    "no_limit": {"limit": "", "output": SMALL_REPLY},
    "history": {"history": False},
}
_LIMITS: Final = {"output_limit": "output", "context_full": "window"}
_PASSING: Final = frozenset({"picture", "stale_thoughts", "history"})  # of one request, no model's
_SUSPECTS: Final = ("images", "no_limit", "tools", "reasoning_forbidden")
_HINTS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "too_large": (("picture",),),
    "moderated": (("history",),),
    "context_full": (),
}
_PUZZLES: Final = frozenset({"", "failed", "not_found"})  # where only the status says so
_OTHER: Final[Mapping[LimitField, LimitField]] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model of a service takes.

    Attributes:
        images: pictures.
        tools: a list of tools, and what was called and answered before.
        tool_choice: a request that no tool is called.
        parallel: several calls in one message.
        system: a system prompt beside the messages.
        thinking: the wish to hear what it thinks.
        usage: the wish to hear what a stream used.
        reasoning: what of its thoughts goes back to it.
        limit: the field for the longest reply; empty for none.
        output: the longest reply it may be asked for, 0 while nobody said so.
        window: how much it takes at once, 0 while nobody said so.
        history: what was said before this turn.
        refused: fields that options add and that it does not take.
    """

    images: bool = True
    tools: bool = True
    tool_choice: bool = True
    parallel: bool = True
    system: bool = True
    thinking: bool = True
    usage: bool = True
    reasoning: Thoughts = "kept"
    limit: LimitField = "max_tokens"
    output: int = 0
    window: int = 0
    history: bool = True
    refused: frozenset[str] = frozenset()

    def without(self, cause: str, number: int = 0) -> Capabilities:
        """This, after a refusal with that cause which named that limit."""
        if cause == "limit_name":
            return replace(self, limit=_OTHER.get(self.limit, ""))
        if cause in _LIMITS:
            return replace(self, **{_LIMITS[cause]: number})
        if cause.startswith(FIELD):
            return replace(self, refused=self.refused | {cause.removeprefix(FIELD)})
        return replace(self, **_WITHOUT.get(cause, {}))

    def longest(self, wanted: int) -> int:
        """The longest reply to ask for in place of one of so many tokens."""
        return min(n for n in (wanted, self.output, self.window // 4) if n)


@dataclass(frozen=True, slots=True)
class Learned:
    """A limit that a service named, 0 for none, and when it was learned (ms).

    `guessed` says that it was not told, but that a request came through once this was left out.
    """

    at: int
    number: int = 0
    guessed: bool = False

    def counts(self, now: int) -> bool:
        """True until it is worth finding out again; a clock that was set back makes it old."""
        is_sane = self.number == 0 or self.number >= LEAST
        return is_sane and 0 <= now - self.at <= (DAY_MS if self.guessed else WEEK)


Facts = Mapping[str, Learned]  # by cause


def _without(able: Capabilities, limits: Mapping[str, int]) -> Capabilities:
    for cause, number in limits.items():
        able = able.without(cause, number)
    return able


def known(usual: Capabilities, facts: Facts, now: int) -> Capabilities:
    """What a model takes, by what was learned of it."""
    return _without(usual, {c: each.number for c, each in facts.items() if each.counts(now)})


@dataclass(slots=True)
class Ladder:
    """What to leave out of one request next, each thing once, until its service takes it.

    `able` is what to keep to now, `extra` the fields that options add. A cause that was told stays;
    after a refusal for which nobody knows one, what may be the reason is left out, one at a time,
    then all of it, then what was said before this turn.
    """

    able: Capabilities
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sure: dict[str, int] = field(default_factory=dict[str, int])  # limits by their causes
    halved: set[str] = field(default_factory=set[str])  # of them, those that named no limit
    guessed: tuple[str, ...] = ()
    _usual: Capabilities = field(init=False)
    _rungs: Iterator[tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        self._usual = self.able

    def next(self, refusal: Refusal, asked: int) -> bool:
        """Leave out more after such a refusal of a request for `asked` tokens; False at the end."""
        cause, number = refusal.cause, refusal.number
        is_puzzle = cause in _PUZZLES and not refusal.is_known
        if (is_puzzle or cause not in FINAL) and self._name(refusal):
            return True
        if cause == "output_limit" and not 0 < number < asked:
            number = asked // 2
            self.halved.add(cause)
        is_new = cause not in self.sure and (cause != "context_full" or number > 0)
        if is_new and self.able.without(cause, number) != self.able:
            self.sure[cause] = number
            self.able = self.able.without(cause, number)
            return True
        if self._rungs is None:
            self._rungs = iter(self._all_rungs(cause, is_puzzle=is_puzzle or cause in self.sure))
        told = _without(self._usual, self.sure)
        for rung in self._rungs:
            able = _without(told, dict.fromkeys(rung, 0))
            if able not in {told, self.able}:
                self.able, self.guessed = able, rung
                return True
        return False

    def _name(self, refusal: Refusal) -> bool:
        """Leave out the fields of the options that a refusal names; False if it names none."""
        sent = {name: v for name, v in self.extra.items() if name not in self.able.refused}
        named = options.refused(sent, f"{refusal.sentence} {refusal.codes}")
        for cause in _causes(named):
            self.sure[cause] = 0
            self.able = self.able.without(cause)
        return bool(named)

    def _all_rungs(self, cause: str, *, is_puzzle: bool) -> Iterable[tuple[str, ...]]:
        """What to leave out, one after the other, when nobody knows more than this cause."""
        if cause in _HINTS:
            return _HINTS[cause]
        fields = _causes(self.extra)
        if is_puzzle:
            one_by_one = ((each,) for each in _SUSPECTS)
            return fields, *one_by_one, (*fields, *_SUSPECTS), ("history",)
        return () if cause in FINAL else (fields,)

    def told(self, now: int) -> Facts:
        """What the service itself said about the model."""
        return {
            cause: Learned(now, number, guessed=cause in self.halved)
            for cause, number in self.sure.items()
            if cause not in _PASSING
        }

    def guesses(self, now: int) -> Facts:
        """What the request that came through taught about the model beside."""
        return {each: Learned(now, guessed=True) for each in self.guessed if each not in _PASSING}


def _causes(fields: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{FIELD}{name}" for name in sorted(fields))


# --- requests -------------------------------------------------------------------------------------


def fitted(request: Request, able: Capabilities) -> Request:
    """The request without what its model cannot take; the same one if it takes all."""
    if not able.history and request.begins:
        opening = Message("user", (Text(OPENING, note=True),))
        rest = (opening, *request.messages[request.begins :])
        request = replace(request, messages=rest, begins=0, folding=Folding())
    if not able.refused.isdisjoint(request.extra):
        taken = {name: v for name, v in request.extra.items() if name not in able.refused}
        request = replace(request, extra=taken)
    thinks = able.reasoning in {"kept", "turn"}
    if able.images and able.tools and able.parallel and thinks and able.system:
        return request

    def add(made: list[Message], message: Message) -> list[Message]:
        _add(made, message, able)
        return made

    said = request.messages
    kind = f"fitted {able.images} {able.tools} {able.parallel} {able.reasoning}"
    history = request.folding.of(kind, said[: request.begins], list[Message], add)
    fit = list(history)
    begins = len(fit)
    for message in said[request.begins :]:
        _add(fit, message, able)
    if not able.system and request.system.strip():
        fit.insert(0, Message("user", (Text(request.system, note=True),)))
        request, begins = replace(request, system=""), begins + 1
    tools = request.tools if able.tools else ()
    return replace(request, messages=tuple(fit), begins=begins, tools=tools)


def pictures_lost(request: Request, able: Capabilities) -> bool:
    """True when a picture that this turn is about has to be left out."""
    mine = request.messages[request.begins :]
    return not able.images and any(
        isinstance(block, Picture) and bool(block.data)
        for message in mine
        for block in message.blocks
    )


def left_out(request: Request, ladder: Ladder) -> tuple[str, ...]:
    """What the person is told was left out: what is new, and every picture of theirs."""
    new = {*ladder.sure, *ladder.guessed}
    if pictures_lost(request, ladder.able):
        new.add("images" if "picture" not in new else "picture")
    return tuple(each for each in TOLD if each in new)


def _add(made: list[Message], message: Message, able: Capabilities) -> None:
    """Put what a model takes of a message behind others."""
    asked = next((each for each in reversed(made) if each.role == "assistant"), message)
    calls = {block.id for block in asked.blocks if isinstance(block, ToolUse)}
    fit = (_fit(block, message, able, calls) for block in message.blocks)
    blocks = tuple(block for block in fit if block is not None)
    if blocks != message.blocks:
        message = replace(message, blocks=blocks)
    if not able.parallel and made and message.role == "user":
        message = _one_by_one(made, message)
    if message.blocks:
        made.append(message)


def _fit(
    block: Block, message: Message, able: Capabilities, calls: Collection[str]
) -> Block | None:
    """A block as the model takes it, after those `calls`; None where it takes nothing of it."""
    match block:
        case Picture() if not able.images:
            return Text(UNSEEN, note=True)
        case ToolUse() if not able.tools or (able.reasoning == "needed" and _is_bare(message)):
            return None
        case ToolResult(id_, text) if id_ not in calls:  # it was left out
            return Text(f"{ANSWERED}\n{text}", note=True)
        case Opaque() if able.reasoning == "never" and block.is_thought:
            return None
        case _:
            return block


def _is_bare(message: Message) -> bool:
    """True when nothing is known of what was thought with the calls of a message."""
    return not any(isinstance(block, Opaque) for block in message.blocks)


def _one_by_one(made: list[Message], message: Message) -> Message:
    """Split a message with several calls, the last one made; returns what is left of answers."""
    uses = [block for block in made[-1].blocks if isinstance(block, ToolUse)]
    if len(uses) < 2:
        return message
    asked = made.pop()
    results = {b.tool_use_id: b for b in message.blocks if isinstance(b, ToolResult)}
    said = tuple(block for block in asked.blocks if not isinstance(block, ToolUse))
    for number, use in enumerate(uses):
        made.append(Message("assistant", (use,) if number else (*said, use)))
        if use.id in results:
            made.append(Message("user", (results[use.id],)))
    rest = tuple(block for block in message.blocks if not isinstance(block, ToolResult))
    return replace(message, blocks=rest)
