"""Capabilities of models, learned from refusals, and requests that keep to them. Pure.

A model takes everything until its service says otherwise. What it said counts for a week; what had
to be found out by leaving things out counts for a day, as it may have been something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from yarl import URL

from bot.agent.models import Request, Thoughts
from bot.agent.models.refusals import FINAL, LEAST, Refusal
from bot.agent.models.wire import OPENING
from bot.clock import DAY_MS
from bot.config import ANTHROPIC, ServiceConfig, Thinking
from bot.context.tokens import Folding
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

# What the configuration adds to the body of a request, and what of it a service refuses. Pure.
#
# How a model is told to think more, less or not at all differs by vendor; the tables here are
# theirs.

Json = dict[str, Any]
Way = Literal["effort", "type", "type and effort", "enable", "template", "reasoning"]

# How chat completions are told, by what an address or a model's name contains; the first match
# wins. Sources: the vendors' references, and the servers' (vLLM "Reasoning outputs", llama.cpp
# tools/server/README.md, Ollama docs/openai.md), read in 2026-11.
_WAYS: Final[tuple[tuple[str, str, Way], ...]] = (
    (r"openrouter\.ai", "", "reasoning"),
    (r"deepseek\.com|volces\.com|bytepluses\.com", "", "type and effort"),
    (r"moonshot\.(ai|cn)|kimi\.com|bigmodel\.cn|\bz\.ai", "", "type"),
    (r"dashscope|maas\.aliyuncs\.com|siliconflow\.|modelscope\.cn", "", "enable"),
    # These say effort, whatever the model.
    (r"openai\.com|googleapis\.com|\bx\.ai|groq\.com|mistral\.ai|ollama|:11434", "", "effort"),
    # Servers of one's own hand it to the model's template.
    ("", r"qwen|glm|deepseek|kimi|granite|hunyuan|nemotron|gemma|smollm", "template"),
    ("", "", "effort"),
)
# Claude models before adaptive thinking, which take a number of tokens.
_BY_BUDGET: Final = re.compile(
    r"claude-(?:[23]|(?:opus|sonnet|haiku)-4(?:-[015])?(?:-20\d{6}|-latest|$))"
)
_SHARES: Final[Mapping[Thinking, float]] = {"low": 0.25, "medium": 0.5, "high": 0.75}  # of a reply
_LEAST_BUDGET: Final = 1024  # tokens; the API takes no less
# What a refusal says of earlier messages and not of a field.
_OF_HISTORY: Final = re.compile(r"messages[.\[]|thinking['\"`]? blocks?|signature", re.IGNORECASE)
_OPTIONS: Final = {"temperature", "top_p", "thinking", "extra_body", "per_model"}
_COMMON: Final = frozenset({"type", "enabled", "display"})  # keys that name no field by themselves


def option_fields(
    kind: str, url: str, model: str, config: ServiceConfig, *, thinking: Thinking, longest: int
) -> Json:
    """The fields that options add to the body of a request to a model.

    Args:
        kind: what the service speaks.
        url: where it is.
        model: its name there.
        config: the service's options, with those of the model.
        thinking: what was chosen for the conversation; empty asks the options.
        longest: the longest reply that is asked for, in tokens.
    """
    found: Json = {
        name: value
        for name in ("temperature", "top_p")
        if (value := getattr(config, name)) is not None
    }
    if level := thinking or config.thinking:
        write = _to_claude if kind == ANTHROPIC else _to_completions
        found |= write(level, url, model, longest)
    return found | dict(config.extra_body)


def written_options(config: ServiceConfig) -> str:
    """These options of a service and of its models as text; empty without any."""
    said = config.model_dump_json(include=_OPTIONS, exclude_defaults=True)
    return "" if said == "{}" else said


def refused_options(extra: Mapping[str, Any], words: str) -> frozenset[str]:
    """Those of the fields that a refusal in these words names."""
    if _OF_HISTORY.search(words):
        return frozenset()
    return frozenset(name for name, value in extra.items() if _is_named(name, value, words))


def _is_named(name: str, value: object, words: str) -> bool:
    inner = cast("Mapping[str, Any]", value).keys() - _COMMON if isinstance(value, Mapping) else ()
    names = "|".join(map(re.escape, (name, *inner)))
    return re.search(rf"(?<!\w)(?:{names})(?!\w)", words, re.IGNORECASE) is not None


def _to_claude(level: Thinking, url: str, model: str, longest: int) -> Json:
    if level == "off":
        return {"thinking": {"type": "disabled"}}
    is_claude = (URL(url).host or "").endswith("anthropic.com")
    if is_claude and not _BY_BUDGET.search(model):
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": level},
        }
    budget = max(_LEAST_BUDGET, round(longest * _SHARES[level]))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _to_completions(level: Thinking, url: str, model: str, longest: int) -> Json:
    where, name = f"{URL(url).host}:{URL(url).port}".lower(), model.lower()
    way = next(way for at, of, way in _WAYS if re.search(at, where) and re.search(of, name))
    thinks, effort = level != "off", {"reasoning_effort": "none" if level == "off" else level}
    match way:
        case "effort":
            return effort
        case "type" | "type and effort":
            kind = {"thinking": {"type": "enabled" if thinks else "disabled"}}
            return {**kind, **effort} if thinks and way != "type" else kind
        case "enable":
            return {"enable_thinking": thinks}
        case "template":  # templates know one of the two names, and pass over the other
            return {"chat_template_kwargs": {"enable_thinking": thinks, "thinking": thinks}}
        case _:  # "reasoning"
            return {"reasoning": {"effort": level} if thinks else {"enabled": False}}


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
    """The capabilities of a model of a service.

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
class LearnedLimit:
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


Facts = Mapping[str, LearnedLimit]  # by cause


def _without(able: Capabilities, limits: Mapping[str, int]) -> Capabilities:
    for cause, number in limits.items():
        able = able.without(cause, number)
    return able


def known(usual: Capabilities, facts: Facts, now: int) -> Capabilities:
    """The capabilities of a model, by what was learned of it."""
    able = usual
    for cause, each in facts.items():
        if each.counts(now):
            able = able.without(cause, each.number)
    return able


@dataclass(slots=True)
class Ladder:
    """Leaves parts out of one request, each once, until its service takes it.

    `able` is what to keep to now, `extra` the fields that options add. A cause that was told stays;
    after a refusal for which nobody knows one, what may be the reason is left out, one at a time,
    then all of it, then what was said before this turn.
    """

    able: Capabilities
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sure: dict[str, int] = field(default_factory=dict[str, int])  # limits by their causes
    halved: set[str] = field(default_factory=set[str])  # of them, those that named no limit
    guessed: tuple[str, ...] = ()
    _usual: Capabilities | None = None  # before anything was left out
    _rungs: Iterator[tuple[str, ...]] | None = None

    def next(self, refusal: Refusal, asked: int) -> bool:
        """Leave out more after such a refusal of a request for `asked` tokens; False at the end."""
        cause, number = refusal.cause, refusal.number
        self._usual = usual = self._usual or self.able
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
        told = _without(usual, self.sure)
        for rung in self._rungs:
            able = _without(told, dict.fromkeys(rung, 0))
            if able not in {told, self.able}:
                self.able, self.guessed = able, rung
                return True
        return False

    def _name(self, refusal: Refusal) -> bool:
        """Leave out the fields of the options that a refusal names; False if it names none."""
        sent = {name: v for name, v in self.extra.items() if name not in self.able.refused}
        named = refused_options(sent, f"{refusal.sentence} {refusal.codes}")
        for cause in _causes(named):
            self.sure[cause] = 0
            self.able = self.able.without(cause)
        return bool(named)

    def _all_rungs(self, cause: str, *, is_puzzle: bool) -> Iterable[tuple[str, ...]]:
        """The sets of parts to leave out, one after the other, when only this cause is known."""
        if cause in _HINTS:
            return _HINTS[cause]
        fields = _causes(self.extra)
        if is_puzzle:
            one_by_one = ((each,) for each in _SUSPECTS)
            return fields, *one_by_one, (*fields, *_SUSPECTS), ("history",)
        return () if cause in FINAL else (fields,)

    def told(self, now: int) -> Facts:
        """Facts about the model that the service itself told."""
        return {
            cause: LearnedLimit(now, number, guessed=cause in self.halved)
            for cause, number in self.sure.items()
            if cause not in _PASSING
        }

    def guesses(self, now: int) -> Facts:
        """Facts about the model inferred from the request that came through."""
        return {
            each: LearnedLimit(now, guessed=True) for each in self.guessed if each not in _PASSING
        }


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
    """The parts that the person is told were left out: new ones, and every picture of theirs."""
    new = {*ladder.sure, *ladder.guessed}
    if not ladder.able.images and pictures_lost(request, ladder.able):
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
