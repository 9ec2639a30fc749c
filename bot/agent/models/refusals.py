"""Why a service refused: what it said, looked up in one table of vendors' words. Pure.

The table is `refusals.toml`. A refusal nobody has seen before has no cause but its status.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final, cast

from bot import errors
from bot.agent.models.wire import load
from bot.channel.kit.json_access import mapping
from bot.errors import ModelError

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
