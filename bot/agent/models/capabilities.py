"""Why a service refused, what its model can do therefore, and requests that keep to it. Pure.

The causes stand in `refusals.toml`, in vendors' words. A refusal nobody has seen before has no
cause but its status. A model takes everything until its service says otherwise. What it said
counts for a week; what had to be found out by leaving things out counts for a day, as it may have
been something else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, cast

from yarl import URL

from bot import errors
from bot.agent.models import Request, Thoughts
from bot.agent.models.wire import OPENING, load
from bot.channel.kit.json_access import mapping
from bot.clock import DAY_MS
from bot.config import ANTHROPIC, ServiceConfig, Thinking
from bot.context.tokens import Folding
from bot.errors import ModelError
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

MOST_TOLD = 200  # characters of a service's sentence that are shown
RUN = 20  # characters in a row that stand in the request are cut out of it
LEAST = 256  # tokens; a smaller limit in a sentence is none to learn

_LOOKED_AT = 1_500  # characters of what is said: a phrase with gaps takes their square
_DEPTH = 8
_MOST_WORDS = 40  # sentences and codes
_WORDS: Final = frozenset(
    (
        *("message", "msg", "detail", "details", "title", "description", "raw", "status_msg"),
        *("error", "errors", "error_msg", "error_message", "error_description"),
        *("reason", "reasons"),
    )
)
_CODES: Final = frozenset(
    ("code", "type", "status", "error_code", "error_type", "status_code", "err_code", "param")
)
_ECHOES: Final = frozenset(("input", "messages", "request", "body", "ctx"))  # of what was asked
_QUOTES: Final = str.maketrans(dict.fromkeys('`"‘’“”´', "'"))
_HTML: Final = re.compile(r"\s*<(?:!doctype|html|head|body)", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title[^>]{0,99}>([^<]{1,300})", re.IGNORECASE)
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_NAME: Final = re.compile(r"(?!error$)[a-z_][\w.-]{0,59}|\d{1,9}")
_KEY: Final = re.compile(r"(?=[\w*.-]*[\d*])(?=[\w*.-]*[A-Za-z])[\w*-]{16,}")  # or a part of one

_ERRORS: Final[Mapping[str, type[ModelError]]] = {
    "auth": errors.ModelAuth,
    "expired": errors.ModelExpired,
    "billing": errors.ModelBilling,
    "region": errors.ModelRegion,
    "moderated": errors.ModelModerated,
    "not_found": errors.ModelNotFound,
    "rate": errors.ModelRateLimited,
    "overloaded": errors.ModelOverloaded,
    "failed": errors.ModelFailed,
    "timeout": errors.ModelTimeout,
    "unreachable": errors.ModelUnreachable,
    "proxy": errors.ModelProxy,
    "no_api": errors.ModelNoApi,
    "too_large": errors.ModelTooLarge,
    "context_full": errors.ModelContextFull,
}
FINAL: Final = frozenset(_ERRORS)  # causes that lie in more than the form of a request


@dataclass(frozen=True, slots=True)
class Refusal:
    """A service's answer in place of a reply.

    `cause` is the table's word for it, empty when nobody knows; `number` a limit that it names;
    `is_known` false when only the status tells the cause. `sentence` is what it said, uncut, and
    `codes` what it said in names, `param` for a field among them.
    """

    status: int
    cause: str = ""
    number: int = 0
    sentence: str = field(default="", repr=False)
    code: str = ""
    is_known: bool = True
    codes: str = field(default="", repr=False)

    def error(self, request_id: str = "") -> ModelError:
        """Our error for it, which names the kind, the status and the request, and no words."""
        detail = f"status {self.status}, {self.code or 'no type'}"
        kind = _ERRORS.get(self.cause, errors.ModelRejected)
        return kind(f"{detail}, request {request_id}" if request_id else detail)


class ServiceRefused(Exception):
    """A service answered with a status that is an error, with a page for people, or failed later.

    An event within a reply that tells of a failure has the status 200. `body` is what it
    says of it, as JSON where it is that; no message of ours quotes it.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(f"status {status}")
        self.headers = headers
        self.refusal = read(status, body)


def read(status: int, body: object) -> Refusal:
    """Reads an error of any shape; the status 200 is one within a stream."""
    words, codes = list[str](), list[str]()
    if isinstance(body, str):
        words.append(body)
    for name, said in _told(body, "", 0):
        (words if name in _WORDS or name == "n_ctx" else codes).append(said)
        if len(words) + len(codes) >= _MOST_WORDS:
            break
    if status < 300:
        status = next(
            (int(c) for c in codes if len(c) == 3 and c[0] in "45" and c.isdecimal()), 200
        )
    looked_at = _plain(" ".join(words)[:_LOOKED_AT])
    cause, number = _by_words(status, looked_at) or _by_code(codes)
    usual = "failed" if status >= 500 or status < 300 else ""
    page = _HTML.match(words[0]) if words else None
    titles = _TITLE.findall(words[0][:_LOOKED_AT]) if page else words
    return Refusal(
        status=status,
        cause=cause or _tables()[1].get(str(status), usual),
        number=number - ("exclusive" in looked_at) if number else 0,
        sentence=": ".join(dict.fromkeys(" ".join(each.split()) for each in titles)),
        code=min((c for c in codes if _NAME.fullmatch(c)), key=str.isdecimal, default=""),
        is_known=bool(cause),
        codes=" ".join(codes),
    )


def is_failure(event: Mapping[str, Any]) -> bool:
    """True for an event, or a whole answer, that is no part of a reply but an error."""
    choices = event.get("choices")
    first: object = next(iter(cast("Sequence[object]", choices or ())), None)
    if event.get("error") or mapping(first).get("error"):
        return True
    if any(event.get(name) == "error" for name in ("type", "object", "status")):
        return True
    if "type" in event or choices is not None:
        return False
    return not event.keys().isdisjoint({"message", "msg", "detail", "error_msg", "base_resp"})


def cleaned(sentence: str, said: str, key: str = "") -> str:
    """A service's sentence as it may be shown: short, without the key or a run of what was said."""
    text = " ".join(_ESCAPED.sub(lambda m: chr(int(m[1], 16)), sentence[: 2 * MOST_TOLD]).split())
    said = " ".join(said.split())
    cut = bytearray(len(text))
    half = RUN // 2
    for at in range(0, len(text) - half + 1, half):  # every run holds one of these halves whole
        if text[at : at + half] in said:
            for start in range(max(0, at - half), at + 1):
                if len(run := text[start : start + RUN]) == RUN and run in said:
                    cut[start : start + RUN] = bytes([1]) * RUN
    shown = "".join("\0" if gone else letter for letter, gone in zip(text, cut, strict=True))
    shown = re.sub("\0+", "…", shown.replace(key, "…") if key else shown)
    shown = _KEY.sub(lambda m: m[0] if m[0] in said else "…", shown)
    return shown if len(shown) <= MOST_TOLD else f"{shown[: MOST_TOLD - 1]}…"


# --- reading answers ------------------------------------------------------------------------------


def _told(value: object, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """The sentences and codes in an answer, each with its field's name, from the outside in."""
    if depth > _DEPTH or isinstance(value, bool):
        return
    match value:
        case str() if name in _WORDS and value.strip():
            yield from _within(value, name, depth)
        case str() | int() if name in _CODES:
            yield name, str(value).lower()
        case int() if name == "n_ctx":
            yield name, f"n_ctx {value}"
        case list():
            for each in cast("list[object]", value):
                yield from _told(each, name, depth + 1)
        case dict():
            fields = {str(k).lower(): v for k, v in cast("Mapping[object, object]", value).items()}
            if isinstance(where := fields.get("loc"), list):  # as FastAPI says what is wrong where
                place = ".".join(str(each) for each in cast("list[object]", where))
                fields["msg"] = f"{place}: {fields.get('msg')}"
            said = (key for key in fields if key not in _ECHOES)
            for key in sorted(said, key=lambda key: _is_deep(fields[key])):
                yield from _told(fields[key], key, depth + 1)
        case _:
            pass


def _is_deep(value: object) -> bool:
    return isinstance(value, dict | list)


def _within(text: str, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """A sentence, or those in the JSON that it is: relays pass on what another service said."""
    try:
        inner: object = load(text) if text.lstrip()[0] in "{[" else None
    except ValueError:
        inner = None
    if _is_deep(inner):
        yield from _told(inner, name, depth + 1)
    else:
        yield name, text


def _plain(text: str) -> str:
    """A sentence in one kind of letters and quotes, without commas in its numbers."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower().translate(_QUOTES))
    return " ".join(text.split())


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    cause: str
    phrases: Sequence[re.Pattern[str]]
    codes: frozenset[str]
    statuses: frozenset[int]


@cache
def _tables() -> tuple[tuple[_Row, ...], Mapping[str, str]]:
    """The refusals, and what a status means where there is no more to go by."""
    text = resources.files("bot.agent.models").joinpath("refusals.toml").read_text("utf-8")
    told = tomllib.loads(text)
    rows = tuple(
        _Row(
            row["cause"],
            # Those with a number first: it is worth more.
            sorted(
                (_phrase(each) for said in row.get("says", {}).values() for each in said),
                key=lambda phrase: not phrase.groups,
            ),
            frozenset(each for codes in row.get("codes", {}).values() for each in codes),
            frozenset(row.get("statuses", ())),
        )
        for row in told["refusal"]
    )
    return rows, told["statuses"]


def _phrase(text: str) -> re.Pattern[str]:
    escaped = re.escape(_plain(text)).replace(r"\#", r"(\d{1,9})")
    return re.compile(re.sub(r"(?:\\ )?…(?:\\ )?", ".*?", escaped))


def _by_words(status: int, text: str) -> tuple[str, int] | None:
    for row in _tables()[0]:
        if row.statuses and status not in row.statuses:
            continue
        for phrase in row.phrases:
            if found := phrase.search(text):
                number = int(found[1]) if phrase.groups else 0
                if not phrase.groups or number >= LEAST:
                    return row.cause, number
    return None


def _by_code(codes: Sequence[str]) -> tuple[str, int]:
    rows = (row for row in _tables()[0] if not row.codes.isdisjoint(codes))
    return next(((row.cause, 0) for row in rows), ("", 0))


# --- what a model can do --------------------------------------------------------------------------

# What the configuration adds to the body of a request, and what of it a service refuses. How a
# model is told to think more, less or not at all differs by vendor; the tables here are theirs.

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
